//! Finds what many threads wait for at a time: a lock of the program, the lock of its memory map or of a file, room in a queue.

use profiler_profile::{Certainty, FindingFacts, Proof, Sample};

use super::{
    crowd::{Crowd, MIN_LOCK_PERCENT},
    interpreter::interpreter_lock,
    stuck_threads::StuckThreads,
};
use crate::{
    WaitCause, databases::GroupCommit, found::Found, text::Queue, thread_group::ThreadGroup, weights::percent,
};

/// The least share of the time of threads with work that is spent before a full queue: more than all other work. Producers that
/// wait for less than that are what a limit of a queue is for.
const MIN_QUEUE_PERCENT: f64 = 50.0;

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
