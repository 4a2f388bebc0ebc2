//! The facts of findings as fields of JSON, with text of the target escaped.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::label;
use profiler_profile::{Certainty, Finding, FindingFacts, FindingKind, ManagedThread, Profile, Selection};

/// What a finding states. Fields that do not apply are absent. Times are nanoseconds since the start of sampling.
#[derive(Serialize)]
pub(crate) struct Fields {
    kind: &'static str,
    /// The ids of the processes.
    processes: Vec<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    threads: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    threads_at_a_time: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    share_percent: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    share_of: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause_thread: Option<u32>,
    /// The managed threads among the cause and the threads of the selection that owned locks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    managed_threads: Vec<ManagedFields>,
    /// What the threads wait for beyond their processes: its name and the id of its process.
    #[serde(skip_serializing_if = "Option::is_none")]
    partner: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    partner_process: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    since_ns: Option<u64>,
    certainty: &'static str,
    /// What would prove a likely finding: its name, and a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    proof: Option<&'static str>,
    certainty_text: String,
    selection: SelectionFields,
}

/// The most managed threads of a finding: those that a reading has of a process.
const MAX_MANAGED_THREADS: usize = 16;

/// A managed thread that owned a lock, at the last reading.
#[derive(Serialize)]
struct ManagedFields {
    thread: u32,
    managed_id: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// The type of the exception that it threw or handled.
    #[serde(skip_serializing_if = "Option::is_none")]
    exception: Option<String>,
    gc_mode: &'static str,
}

/// What shows a finding.
#[derive(Serialize)]
struct SelectionFields {
    begin_ns: u64,
    end_ns: u64,
    /// The ids of the threads; none where all threads of the processes show it.
    threads: Vec<u32>,
    /// The kind of runtime events, as in `.jsonl` files.
    #[serde(skip_serializing_if = "Option::is_none")]
    runtime_events: Option<&'static str>,
    /// A part of names of functions.
    #[serde(skip_serializing_if = "Option::is_none")]
    search: Option<String>,
}

impl Fields {
    pub(crate) fn of(profile: &Profile, finding: &Finding) -> Self {
        let FindingFacts { share, place, partner, certainty, .. } = &finding.facts;
        let location = place.as_ref().and_then(|place| place.location.as_ref());
        Self {
            kind: finding.kind.name(),
            processes: finding.facts.processes.clone(),
            threads: finding.facts.threads,
            threads_at_a_time: finding.facts.threads_at_a_time.map(rounded),
            share_percent: share.map(|share| rounded(share.percent)),
            share_of: share.map(|share| share.of.name()),
            method: place.as_ref().map(|place| text(&place.method)),
            file: location.map(|(file, _)| text(file)),
            line: location.map(|(_, line)| *line),
            cause_thread: finding.facts.cause_thread,
            managed_threads: managed_threads(profile, finding),
            partner: partner.as_ref().map(|partner| text(&partner.name)),
            partner_process: partner.as_ref().and_then(|partner| partner.process),
            since_ns: finding.facts.since_ns,
            certainty: certainty.name(),
            proof: match certainty {
                Certainty::Proven => None,
                Certainty::Likely(proof) => Some(proof.name()),
            },
            certainty_text: certainty.to_string(),
            selection: SelectionFields::of(&finding.facts.selection),
        }
    }
}

/// The owners of locks among the threads of a finding on locks.
fn managed_threads(profile: &Profile, finding: &Finding) -> Vec<ManagedFields> {
    use FindingKind::{Deadlock, HeldLock, LockContention, LockConvoy};
    if !matches!(finding.kind, Deadlock | HeldLock | LockContention | LockConvoy) {
        return Vec::new();
    }
    let FindingFacts { processes, cause_thread, selection, .. } = &finding.facts;
    // The last reading of each.
    let mut last = BTreeMap::new();
    for reading in profile.managed_threads() {
        let thread = profile.thread_view(reading.thread);
        let tid = thread.tid();
        let is_cause = *cause_thread == Some(tid);
        let is_named = is_cause || selection.threads.contains(&tid);
        if is_named && processes.contains(&thread.process().pid()) {
            last.insert((!is_cause, thread.process().id(), tid), reading);
        }
    }
    last.into_values().take(MAX_MANAGED_THREADS).map(|reading| ManagedFields::of(profile, reading)).collect()
}

impl ManagedFields {
    fn of(profile: &Profile, reading: &ManagedThread) -> Self {
        Self {
            thread: profile.thread_view(reading.thread).tid(),
            managed_id: reading.managed_id,
            name: reading.name.map(|name| text(profile.string(name))),
            exception: reading.exception.map(|exception| text(profile.string(exception))),
            gc_mode: reading.gc_mode.name(),
        }
    }
}

impl SelectionFields {
    fn of(selection: &Selection) -> Self {
        Self {
            begin_ns: selection.begin_ns,
            end_ns: selection.end_ns,
            threads: selection.threads.clone(),
            runtime_events: selection.runtime_events.map(|kind| kind.name()),
            search: selection.search.as_deref().map(text),
        }
    }
}

fn text(name: &str) -> String {
    label::escaped(name).into_owned()
}

/// A number with three digits behind the point.
fn rounded(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}
