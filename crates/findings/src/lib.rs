//! What threads wait for, and what a profile shows beyond doubt.
//!
//! [`Waits`] gives each sample of a waiting thread a [`WaitCause`], by rules over its frames, and [`ProgramPlace`] the method of
//! the program that waits. [`with_wait_causes`] is the view in which each wait has its cause, without threads that wait for work. [`analyze`] adds
//! [findings](profiler_profile::Finding) to a profile, each with its evidence and its remedy: threads of a pool that block, a
//! lock that many threads wait for, CPU time of a compiler, garbage collections that a runtime reported. A finding has
//! thresholds that healthy programs do not reach; each is a constant with its reason.
//!
//! ```no_run
//! use std::fs::File;
//!
//! use profiler_findings::{WaitCause, Waits, analyze};
//! use profiler_profile::Profile;
//!
//! let mut profile = Profile::read(File::open("shop.profile")?)?;
//! analyze(&mut profile);
//! for finding in profile.findings() {
//!     println!("{}: {}", finding.evidence, finding.remedy);
//! }
//! let waits = Waits::of(&profile);
//! let for_locks = profile.samples().iter().filter(|sample| waits.cause(sample) == Some(WaitCause::Lock));
//! println!("{} ns for locks", for_locks.map(|sample| sample.value).sum::<u64>());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The rules are data, in `rules.rs`, `primitives.rs` and `cpu_rules.rs`.

mod barrier;
mod busy;
mod cause;
mod checked;
mod child_processes;
mod code_rules;
mod connection_waits;
mod cpu;
mod cpu_rules;
mod databases;
mod facts;
mod finalizer;
mod followers;
mod found;
mod frames;
mod group_facts;
mod held_times;
mod idle;
mod kernel_rules;
mod locks;
mod marks;
mod partners;
mod pattern;
mod pool;
mod primitives;
mod program_place;
mod queue_ends;
mod rest;
mod rules;
mod runtime;
mod service;
mod service_key;
mod service_rules;
#[cfg(test)]
mod tests;
mod text;
mod thread_group;
mod thread_time;
mod top_level;
mod wait_view;
mod waiting;
mod waits;
mod weights;

pub use self::{
    cause::{WaitCause, WaitGroup},
    checked::checked_kinds,
    partners::{Partners, threads_with_unknown_partners},
    program_place::ProgramPlace,
    wait_view::{IdleThreads, with_wait_causes},
    waits::Waits,
};

use profiler_profile::{Finding, FindingFacts, Profile};

use self::{found::without_repetitions, marks::Marks, runtime::WaitSamples};

/// The event of waits for block and file I/O. Findings are shares of the time of threads, and it has only a part of this time.
const IO: &str = "io";

/// The most findings of a profile.
const MAX_FINDINGS: usize = 10;

/// Counts the samples of idle threads in the ledger, and sets the findings: those of the time since an incident began, where the
/// profile was kept for one.
///
/// ```
/// use profiler_profile::{Header, ProfileBuilder};
///
/// let mut profile = ProfileBuilder::default().finish(Header::default());
/// profiler_findings::analyze(&mut profile);
/// assert!(profile.findings().is_empty());
/// ```
pub fn analyze(profile: &mut Profile) {
    let partners = Partners::of_findings(profile);
    analyze_with_partners(profile, &partners);
}

/// [`analyze`] with what threads wait for beyond their processes.
pub fn analyze_with_partners(profile: &mut Profile, partners: &Partners) {
    let waits = Waits::of(profile);
    for event in profile.event_ids() {
        let idle = idle::idle_samples(profile, &waits, event);
        profile.set_idle_samples(event, idle);
    }
    let findings = match (profile.since_incident(), &profile.header().incident) {
        (Some(part), Some(incident)) => findings_since(&part, partners, incident.since_ns),
        _ => findings(profile, &waits, partners),
    };
    profile.set_findings(findings);
}

/// The findings of the part of a profile that begins at a time, with times of the whole.
fn findings_since(part: &Profile, partners: &Partners, begin_ns: u64) -> Vec<Finding> {
    let mut findings = findings(part, &Waits::of(part), partners);
    for FindingFacts { since_ns, selection, .. } in findings.iter_mut().map(|finding| &mut finding.facts) {
        *since_ns = since_ns.map(|since_ns| since_ns.saturating_add(begin_ns));
        selection.begin_ns = selection.begin_ns.saturating_add(begin_ns);
        selection.end_ns = selection.end_ns.saturating_add(begin_ns);
    }
    findings
}

/// The findings of all events and services, and of runtime events, those of more time first.
fn findings(profile: &Profile, waits: &Waits, partners: &Partners) -> Vec<Finding> {
    let marks = Marks::of(profile, waits, partners);
    let mut found = Vec::new();
    for event in profile.event_ids().filter(|event| profile.event(*event).name != IO) {
        found.extend(service::findings(profile, waits, &marks, event));
    }
    found.extend(runtime::findings(&WaitSamples { profile, waits, marks: &marks }));
    let mut findings = without_repetitions(found, profile);
    findings.truncate(MAX_FINDINGS);
    findings
}
