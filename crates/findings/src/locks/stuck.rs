//! Finds threads that wait for locks until the end of the measurement, where no thread gets a lock: a deadlock, or a lock that
//! its owner does not release.

use std::collections::BTreeSet;

use profiler_profile::{Certainty, FindingFacts, Proof, Sample, Sampling, sum};

use super::{
    owner::{Owners, Relation},
    stuck_threads::{LockWait, StuckThreads, shortest_ns},
};
use crate::{
    WaitCause,
    facts::since,
    found::Found,
    frames::application_method,
    text::Problem,
    thread_group::ThreadGroup,
    thread_time::{Activity, Period},
    weights::heaviest,
};

/// The least time of a wait until the end. Locks of programs that proceed are held for milliseconds.
const MIN_WAIT_NS: u64 = 3_000_000_000;

/// The fewest threads: one alone can wait for a lock of another process, to be its replacement.
const MIN_THREADS: usize = 2;

/// How long before the end the last samples of a thread can be.
const END_NS: u64 = 1_000_000_000;

impl<'a> StuckThreads<'a> {
    /// The threads that are stuck at the end of the measurement.
    pub(crate) fn of(samples: &ThreadGroup<'a>) -> Option<Self> {
        let mut threads = samples.by_thread();
        let mut waits = Vec::new();
        // Methods in which a thread got its lock.
        let mut released = BTreeSet::new();
        for (tid, of_thread) in &threads {
            let (before, last) = of_thread.split_at(begin_of_last_wait(samples, of_thread));
            match LockWait::of(samples, *tid, last) {
                Some(wait) => waits.push(wait),
                None => released.extend(recent_lock_methods(samples, last)),
            }
            released.extend(recent_lock_methods(samples, before));
        }
        waits.retain(|wait| !released.contains(&wait.method));
        let waiting: BTreeSet<_> = waits.iter().map(|wait| wait.tid).collect();
        // Threads that came to the lock a moment ago are stuck too, but show nothing.
        waits.retain(|wait| wait.waited_ns >= MIN_WAIT_NS);
        if waits.len() < MIN_THREADS {
            return None;
        }
        threads.retain(|tid, _| !waiting.contains(tid));
        let period =
            Period { begin_ns: end_ns(samples).saturating_sub(shortest_ns(&waits)), end_ns: end_ns(samples) };
        let owners = Owners::of(samples, &threads, &methods(&waits), &period, &waiting);
        Some(Self { threads: waits, owners })
    }

    /// The finding of a deadlock, or of a lock that its owner holds.
    pub(crate) fn finding(&self, samples: &ThreadGroup<'a>) -> Found<'a> {
        let value = sum::of(self.threads.iter().map(|wait| wait.value));
        let method = heaviest(self.threads.iter().map(|wait| (wait.method, wait.value)))
            .and_then(|(method, ..)| method);
        let facts = self.facts(samples, method);
        samples.finding(&Problem::Stuck(self), facts, value).below(method)
    }

    /// The last waits are the evidence, and what a single owner does meanwhile.
    fn facts(&self, samples: &ThreadGroup<'a>, method: Option<&str>) -> FindingFacts {
        let waiting: BTreeSet<_> = self.threads.iter().map(|wait| wait.tid).collect();
        let is_waiting =
            |sample: &Sample, cause| cause == Some(WaitCause::Lock) && waiting.contains(&samples.tid(sample));
        let mut facts = samples.facts(method, samples.counted(is_waiting));
        // Some of the threads are in other methods: those of a deadlock, and the owner.
        facts.selection.search = None;
        let longest_ns = self.threads.iter().map(|wait| wait.waited_ns).max().unwrap_or_default();
        facts.selection.begin_ns = end_ns(samples).saturating_sub(longest_ns);
        facts.since_ns = since(facts.selection.begin_ns);
        facts.certainty = match self.owners.relation {
            Relation::Known => Certainty::Proven,
            Relation::SameMethod | Relation::SameType | Relation::None => Certainty::Likely(Proof::LockOwner),
        };
        if let ([owner], Relation::Known | Relation::SameMethod | Relation::SameType) =
            (&self.owners.threads[..], self.owners.relation)
        {
            facts.cause_thread = Some(owner.tid);
            facts.partner = match owner.activity {
                Activity::Waits(cause) => samples.marks.partners.of_wait(owner.tid, cause).cloned(),
                Activity::Runs | Activity::WaitsForCpu => None,
            };
            facts.selection.threads.push(owner.tid);
            facts.selection.threads.sort_unstable();
        }
        facts
    }
}

impl<'a> LockWait<'a> {
    /// The wait with these samples; `None` where it ends before the measurement, as it does where the thread ends.
    fn of(samples: &ThreadGroup<'a>, tid: u32, of_wait: &[(&Sample, Option<WaitCause>)]) -> Option<Self> {
        let (first, _) = of_wait.first()?;
        // Another process can own the lock of a file.
        if samples.marks.file_locks.contains(first) {
            return None;
        }
        let value = sum::of(of_wait.iter().map(|(sample, _)| sample.value));
        let waited_ns = value.saturating_mul(samples.profile.event(samples.event).unit_ns()?);
        let lasts = first.time_ns.saturating_add(waited_ns) >= end_ns(samples).saturating_sub(END_NS);
        lasts.then_some(Self { tid, method: method_of(samples, first), value, waited_ns })
    }
}

fn methods<'a>(waits: &[LockWait<'a>]) -> BTreeSet<&'a str> {
    waits.iter().filter_map(|wait| wait.method).collect()
}

/// The index of the first sample of the wait for a lock in which a thread is at the end; the number of samples where it is in none.
/// Samples are in time order.
fn begin_of_last_wait(samples: &ThreadGroup<'_>, of_thread: &[(&Sample, Option<WaitCause>)]) -> usize {
    let method = of_thread.last().and_then(|(last, _)| method_of(samples, last));
    let is_same = |(sample, cause): &&(&Sample, Option<WaitCause>)| {
        *cause == Some(WaitCause::Lock) && method_of(samples, sample) == method
    };
    // A value of ticks can be a part of a wait. One in nanoseconds is a whole wait, and another one follows.
    let is_whole = matches!(samples.profile.event(samples.event).sampling, Sampling::Durations { .. });
    let most = if is_whole { 1 } else { usize::MAX };
    of_thread.len() - of_thread.iter().rev().take_while(is_same).take(most).count()
}

/// The methods in which these samples wait for locks up to a moment near the end.
fn recent_lock_methods<'a>(
    samples: &ThreadGroup<'a>,
    of_thread: &[(&Sample, Option<WaitCause>)],
) -> BTreeSet<Option<&'a str>> {
    let from_ns = end_ns(samples).saturating_sub(MIN_WAIT_NS);
    let unit_ns = samples.profile.event(samples.event).unit_ns().unwrap_or_default();
    let ended_ns = |sample: &Sample| sample.time_ns.saturating_add(sample.value.saturating_mul(unit_ns));
    let is_recent = |(sample, cause): &&(&Sample, Option<WaitCause>)| {
        *cause == Some(WaitCause::Lock) && ended_ns(sample) >= from_ns
    };
    of_thread.iter().filter(is_recent).map(|(sample, _)| method_of(samples, sample)).collect()
}

fn method_of<'a>(samples: &ThreadGroup<'a>, sample: &Sample) -> Option<&'a str> {
    application_method(samples.profile, samples.profile.stack(sample.stack))
}

fn end_ns(samples: &ThreadGroup<'_>) -> u64 {
    samples.profile.header().duration_ns
}
