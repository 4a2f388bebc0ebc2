//! Finds what many threads wait for at a time: a lock of the program, the lock of its memory map or of a file, room in a queue.

use profiler_profile::{Certainty, FindingFacts, Proof, Sample, Whole};

use super::{interpreter::interpreter_lock, stuck::StuckThreads};
use crate::{
    WaitCause,
    databases::GroupCommit,
    facts::share,
    found::Found,
    text::{Problem, Queue},
    thread_group::{ThreadGroup, percent},
    waiting::is,
};

/// The fewest threads. Two threads take turns without a queue.
const MIN_THREADS: u32 = 3;

/// The least number of threads that wait at a time, on average: a second one means that the lock is taken again as soon as it
/// is released.
const MIN_QUEUE: f64 = 2.0;

/// The least share of the time of threads with work that is spent at a lock. Less costs less than a fifth of throughput.
pub(super) const MIN_LOCK_PERCENT: f64 = 20.0;

/// The least share of the time of threads with work that is spent before a full queue: more than all other work. Producers that
/// wait for less than that are what a limit of a queue is for.
const MIN_QUEUE_PERCENT: f64 = 50.0;

/// Threads that wait for one thing.
pub(super) struct Crowd<'a> {
    /// The method of the application below which most of them wait, where it is known.
    method: Option<&'a str>,
    value: u64,
    facts: FindingFacts,
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
    fn with_cause(samples: &ThreadGroup<'a>, cause: WaitCause) -> Self {
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

pub(super) fn findings<'a>(
    samples: &ThreadGroup<'a>,
    stuck: Option<&StuckThreads<'_>>,
    commit: Option<&GroupCommit<'_>>,
) -> Vec<Found<'a>> {
    let finders = [memory_map, full_queue, connections, interpreter_lock];
    let mut findings: Vec<_> = finders.into_iter().filter_map(|find| find(samples)).collect();
    findings.extend(lock(samples, stuck, commit));
    findings
}

/// Threads that get no lock at all do not take turns, and those of a group commit wait for a disk. Threads without a method wait
/// for unknown locks.
fn lock<'a>(
    samples: &ThreadGroup<'a>,
    stuck: Option<&StuckThreads<'_>>,
    commit: Option<&GroupCommit<'_>>,
) -> Option<Found<'a>> {
    let is_stuck = |method| stuck.is_some_and(|stuck| stuck.has_method(method));
    let is_lock = |sample: &Sample, cause| {
        cause == Some(WaitCause::Lock)
            && !samples.marks.gil.contains(sample)
            && !commit.is_some_and(|commit| commit.has(samples, sample))
    };
    let site = samples.sites(is_lock).into_iter().find(|site| !is_stuck(Some(site.method)));
    let is_unnamed = |sample: &Sample, cause| is_lock(sample, cause) && samples.method(sample).is_none();
    let unnamed = Crowd::of(samples, None, is_unnamed);
    let crowd = match site {
        Some(site) if site.value >= unnamed.value || is_stuck(None) => {
            Crowd::of(samples, Some(site.method), |sample, cause| {
                is_lock(sample, cause) && samples.method(sample) == Some(site.method)
            })
        }
        _ if is_stuck(None) => return None,
        _ => unnamed,
    };
    // The method can take several locks.
    let certainty = Certainty::Likely(Proof::LockOwner);
    let crowd = Crowd { facts: FindingFacts { certainty, ..crowd.facts }, ..crowd };
    crowd.finding(samples, Queue::Lock, MIN_LOCK_PERCENT)
}

fn memory_map<'a>(samples: &ThreadGroup<'a>) -> Option<Found<'a>> {
    let crowd = Crowd::with_cause(samples, WaitCause::MemoryMap);
    crowd.finding(samples, Queue::MemoryMap, MIN_LOCK_PERCENT)
}

/// Processes can change one file.
pub(crate) fn file_lock<'a>(samples: &ThreadGroup<'a>) -> Option<Found<'a>> {
    Crowd::with_cause(samples, WaitCause::FileLock).finding(samples, Queue::File, MIN_LOCK_PERCENT)
}

fn connections<'a>(samples: &ThreadGroup<'a>) -> Option<Found<'a>> {
    Crowd::with_cause(samples, WaitCause::Connection).finding(samples, Queue::Connections, MIN_LOCK_PERCENT)
}

/// The most time, percent of that of threads in functions that add items to queues, in which others wait for an item: a queue is not full
/// then.
const MAX_EMPTY_PERCENT: f64 = 10.0;

fn full_queue<'a>(samples: &ThreadGroup<'a>) -> Option<Found<'a>> {
    let crowd = Crowd::with_cause(samples, WaitCause::FullQueue);
    if crowd.value == 0 {
        return full_native_queue(samples);
    }
    let of_console = samples.value(|sample, cause| {
        cause == Some(WaitCause::FullQueue) && samples.marks.console_loggers.contains(sample)
    });
    let queue = if 2 * of_console > crowd.value { Queue::ConsoleLogger } else { Queue::Capacity };
    crowd.finding(samples, queue, MIN_QUEUE_PERCENT)
}

/// Threads that wait on condition variables in functions that add items to queues, while none waits for an item. The queue itself is not
/// read.
fn full_native_queue<'a>(samples: &ThreadGroup<'a>) -> Option<Found<'a>> {
    let marks = samples.marks;
    let is_adding = |sample: &Sample, cause| {
        cause == Some(WaitCause::ConditionVariable) && marks.producers.contains(sample)
    };
    let is_empty = |sample: &Sample, cause| {
        matches!(cause, Some(WaitCause::ConditionVariable | WaitCause::Idle))
            && marks.consumers.contains(sample)
    };
    let crowd = Crowd::of(samples, samples.main_site(is_adding), is_adding);
    if percent(samples.value(is_empty), crowd.value) > MAX_EMPTY_PERCENT {
        return None;
    }
    let facts = FindingFacts { certainty: Certainty::Likely(Proof::QueueLength), ..crowd.facts };
    Crowd { facts, ..crowd }.finding(samples, Queue::Capacity, MIN_QUEUE_PERCENT)
}
