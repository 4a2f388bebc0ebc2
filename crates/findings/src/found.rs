//! Findings before they are compared, and the comparison: of two findings of one cause, the better evidence stays.

use profiler_profile::{Finding, FindingKind, ProcessId, Profile};

use crate::process::percent;

/// A finding, with what says whether another one has the same cause.
#[derive(Clone, Debug)]
pub(crate) struct Found<'a> {
    pub(crate) finding: Finding,
    pub(crate) process: ProcessId,
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

/// The findings without those of a cause that another one shows better, those of more time first.
pub(crate) fn without_repetitions(mut found: Vec<Found<'_>>, profile: &Profile) -> Vec<Finding> {
    found.sort_by_key(|one| std::cmp::Reverse(one.time_ns(profile)));
    let others = |index: usize| found.iter().enumerate().filter(move |(other, _)| *other != index);
    let is_covered =
        |index: usize| others(index).any(|(_, other)| found[index].is_covered_by(other, profile));
    let kept = (0..found.len()).filter(|index| !is_covered(*index));
    let findings = kept.map(|index| {
        let mut finding = found[index].finding.clone();
        let owner = others(index)
            .find_map(|(_, other)| Some((other.owner_for(&found[index], profile)?, &other.finding.facts)));
        if let Some((owner, facts)) = owner {
            finding.evidence += &format!("; {owner}");
            finding.facts.cause_thread = facts.cause_thread;
            finding.facts.certainty = facts.certainty;
        }
        finding
    });
    findings.collect()
}
