//! Threads that wait for one thing, and the finding on them where they are many.

use profiler_profile::{FindingFacts, Sample, Whole};

use crate::{
    WaitCause,
    facts::share,
    found::Found,
    text::{Problem, Queue},
    thread_group::ThreadGroup,
    waiting::is,
    weights::percent,
};

/// The fewest threads. Two threads take turns without a queue.
const MIN_THREADS: u32 = 3;

/// The least number of threads that wait at a time, on average: a second one means that the lock is taken again as soon as it
/// is released.
const MIN_QUEUE: f64 = 2.0;

/// The least share of the time of threads with work that is spent at a lock. Less costs less than a fifth of throughput.
pub(super) const MIN_LOCK_PERCENT: f64 = 20.0;

/// Threads that wait for one thing.
pub(super) struct Crowd<'a> {
    /// The method of the application below which most of them wait, where it is known.
    pub(super) method: Option<&'a str>,
    pub(super) value: u64,
    pub(super) facts: FindingFacts,
}

impl<'a> Crowd<'a> {
    pub(super) fn of(
        samples: &ThreadGroup<'a>,
        method: Option<&'a str>,
        is_counted: impl Fn(&Sample, Option<WaitCause>) -> bool,
    ) -> Self {
        let value = samples.value(&is_counted);
        let percent = percent(value, samples.value_with_work());
        let facts = FindingFacts {
            share: share(percent, Whole::TimeOfThreadsWithWork),
            ..samples.facts(method, samples.counted(is_counted))
        };
        Self { method, value, facts }
    }

    /// The threads of this cause, below whatever method.
    pub(super) fn with_cause(samples: &ThreadGroup<'a>, cause: WaitCause) -> Self {
        Self::of(samples, samples.main_site(is(cause)), is(cause))
    }

    /// The finding on threads that are so many, for so much of their time.
    pub(super) fn finding(
        self,
        samples: &ThreadGroup<'a>,
        queue: Queue,
        min_percent: f64,
    ) -> Option<Found<'a>> {
        let is_large = self.facts.threads >= Some(MIN_THREADS)
            && self.facts.share.is_some_and(|share| share.percent >= min_percent)
            && self.facts.threads_at_a_time >= Some(MIN_QUEUE);
        is_large.then(|| samples.finding(&Problem::Queue(queue), self.facts, self.value).below(self.method))
    }
}
