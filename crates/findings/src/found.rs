//! Findings before they are compared, and the comparison: of two findings of one cause, the better evidence stays, and the processes of
//! a service that have the same finding have one together.

use std::collections::{BTreeMap, BTreeSet};

use profiler_profile::{Finding, FindingFacts, FindingKind, ProcessId, Profile, sum};

use crate::{service_key::ServiceKey, weights::percent};

/// The most names of processes that a text has.
const MAX_NAMES: usize = 3;

/// A finding, with what says whether another one has the same cause.
#[derive(Clone, Debug)]
pub(crate) struct Found<'a> {
    /// Its evidence has no processes yet.
    pub(crate) finding: Finding,
    /// The process, or the first one of those among which the finding was looked for.
    pub(crate) process: ProcessId,
    /// The processes that have it.
    pub(crate) processes: Vec<ProcessId>,
    /// The method of the application that the finding names.
    pub(crate) method: Option<&'a str>,
    /// The owner of the lock that threads wait for, as the runtime reported it.
    pub(crate) owner: Option<String>,
}

/// The least share of the time of waiting samples that the waits which the runtime reported have, for their owner to be that of
/// the samples. They lack the waits that have not ended.
const MIN_REPORTED_PERCENT: f64 = 80.0;

/// The most such share for a lock whose method the runtime did not report. More are waits for another lock.
const MAX_REPORTED_PERCENT: f64 = 120.0;

impl<'a> Found<'a> {
    pub(crate) fn below(mut self, method: Option<&'a str>) -> Self {
        self.method = method;
        self
    }

    /// The time that the finding is about, nanoseconds; ticks of an event without a time count as such.
    pub(crate) fn time_ns(&self, profile: &Profile) -> u64 {
        let unit_ns = self.finding.event.and_then(|event| profile.event(event).unit_ns());
        self.finding.value.saturating_mul(unit_ns.unwrap_or(1))
    }

    /// The owner of the lock of another finding, where the runtime reported most of its waits.
    fn owner_for(&self, other: &Self, profile: &Profile) -> Option<&str> {
        let is_of_lock = other.finding.kind == FindingKind::LockConvoy && self.is_covered_by(other, profile);
        let reported = percent(self.time_ns(profile), other.time_ns(profile));
        self.owner.as_deref().filter(|_| is_of_lock && reported >= MIN_REPORTED_PERCENT)
    }

    /// Whether this finding says less about the cause of another one than that one does.
    fn is_covered_by(&self, other: &Self, profile: &Profile) -> bool {
        use FindingKind::{
            Deadlock, GarbageCollection, GcPauses, GcSuspension, HeldLock, LockContention, LockConvoy,
            PoolGrowth, PoolStarvation,
        };
        if self.process != other.process {
            return false;
        }
        let (own_ns, other_ns) = (self.time_ns(profile), other.time_ns(profile));
        let is_same_method = self.method == other.method;
        match (self.finding.kind, other.finding.kind) {
            // Two events show the same threads.
            (one, another) if one == another && self.finding.event != other.finding.event => {
                let is_later = self.finding.event > other.finding.event;
                is_same_method && (own_ns < other_ns || own_ns == other_ns && is_later)
            }
            // Samples have the waits that have not ended.
            (LockContention, LockConvoy | HeldLock | Deadlock) => {
                let can_be_same = self.method.is_none() && percent(own_ns, other_ns) <= MAX_REPORTED_PERCENT;
                is_same_method || can_be_same
            }
            // The runtime reports each pause, and samples are some of them.
            (GcSuspension | GarbageCollection, GcPauses) => true,
            // Samples have the method, and what its workers wait for.
            (PoolGrowth, PoolStarvation) => true,
            _ => false,
        }
    }
}

/// The findings without those of a cause that another one shows better, those of more time first. A finding that several processes
/// of a service have is one.
pub(crate) fn without_repetitions(mut found: Vec<Found<'_>>, profile: &Profile) -> Vec<Finding> {
    found.sort_by_key(|one| std::cmp::Reverse(one.time_ns(profile)));
    let others = |index: usize| found.iter().enumerate().filter(move |(other, _)| *other != index);
    let is_covered =
        |index: usize| others(index).any(|(_, other)| found[index].is_covered_by(other, profile));
    let kept = (0..found.len()).filter(|index| !is_covered(*index)).map(|index| {
        let mut one = found[index].clone();
        let owner = others(index)
            .find_map(|(_, other)| Some((other.owner_for(&found[index], profile)?, &other.finding.facts)));
        if let Some((owner, facts)) = owner {
            one.finding.evidence += &format!("; {owner}");
            one.finding.facts.cause_thread = facts.cause_thread;
            one.finding.facts.certainty = facts.certainty;
        }
        one
    });
    let mut findings: Vec<_> =
        by_service(kept.collect(), profile).iter().map(|same| finding_of(same, profile)).collect();
    findings.sort_by_key(|(time_ns, _)| std::cmp::Reverse(*time_ns));
    findings.into_iter().map(|(_, finding)| finding).collect()
}

/// The findings of one kind, event and method that processes of one service have, in the order of the first of each.
fn by_service<'a>(found: Vec<Found<'a>>, profile: &'a Profile) -> Vec<Vec<Found<'a>>> {
    let mut indices = BTreeMap::new();
    let mut services = Vec::<Vec<Found<'a>>>::new();
    for one in found {
        let key = (ServiceKey::of(profile, one.process), one.finding.kind, one.finding.event, one.method);
        let index = *indices.entry(key).or_insert(services.len());
        match services.get_mut(index) {
            Some(same) => same.push(one),
            None => services.push(vec![one]),
        }
    }
    services
}

/// One finding of those that several processes have, with its time. The evidence is that of the processes with the most time, and the
/// facts have the others.
fn finding_of(same: &[Found<'_>], profile: &Profile) -> (u64, Finding) {
    let time_ns = sum::of(same.iter().map(|one| one.time_ns(profile)));
    let mut finding = same[0].finding.clone();
    let processes: BTreeSet<_> = same.iter().flat_map(|one| &one.processes).copied().collect();
    let mut subject = subject(&processes, profile);
    if let [first, others @ ..] = same
        && !others.is_empty()
    {
        subject += &match first.processes[..] {
            [process] => format!(", most in process {}", profile.process(process).pid),
            ref several => format!(", most in {} of them", several.len()),
        };
        finding.value = sum::of(same.iter().map(|one| one.finding.value));
        finding.facts = others.iter().fold(finding.facts, |facts, other| merged(facts, &other.finding.facts));
    }
    if !subject.is_empty() {
        finding.evidence.insert_str(0, &format!("{subject}: "));
    }
    (time_ns, finding)
}

/// The processes in words; empty where the profile has one.
fn subject(processes: &BTreeSet<ProcessId>, profile: &Profile) -> String {
    let comm = |id: &ProcessId| profile.string(profile.process(*id).comm);
    match (profile.processes().len(), processes.first(), processes.len()) {
        (..=1, ..) | (_, None, _) => String::new(),
        (_, Some(process), 1) => format!("process {} ({})", profile.process(*process).pid, comm(process)),
        (_, _, count) => format!("{count} processes ({})", names(processes.iter().map(comm))),
    }
}

/// The names that most processes have first: `cc1plus, as and 2 others`.
fn names<'a>(comms: impl Iterator<Item = &'a str>) -> String {
    let mut counts = BTreeMap::<&str, usize>::new();
    comms.for_each(|comm| *counts.entry(comm).or_default() += 1);
    let mut names: Vec<_> = counts.into_iter().collect();
    names.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let named: Vec<_> = names.iter().take(MAX_NAMES).map(|(name, _)| *name).collect();
    match names.len().saturating_sub(MAX_NAMES) {
        0 => named.join(", "),
        1 => format!("{} and 1 other", named.join(", ")),
        others => format!("{} and {others} others", named.join(", ")),
    }
}

/// The facts of both. The share, the certainty and the cause are those of the first.
fn merged(first: FindingFacts, other: &FindingFacts) -> FindingFacts {
    let sum = |one: Option<u32>, other: Option<u32>| Some(one?.saturating_add(other?));
    let mut facts = FindingFacts {
        threads: sum(first.threads, other.threads),
        threads_at_a_time: first
            .threads_at_a_time
            .zip(other.threads_at_a_time)
            .map(|(one, other)| one + other),
        since_ns: first.since_ns.zip(other.since_ns).map(|(one, other)| one.min(other)),
        ..first
    };
    facts.processes.extend(&other.processes);
    facts.processes.sort_unstable();
    facts.processes.dedup();
    let selection = &mut facts.selection;
    selection.begin_ns = selection.begin_ns.min(other.selection.begin_ns);
    selection.end_ns = selection.end_ns.max(other.selection.end_ns);
    // Without threads, all of the process show it.
    let has_all = selection.threads.is_empty() || other.selection.threads.is_empty();
    selection.threads.extend(&other.selection.threads);
    if has_all {
        selection.threads.clear();
    }
    selection.threads.sort_unstable();
    facts
}
