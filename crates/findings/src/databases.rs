//! Findings on threads of databases that wait for transactions: for their locks, and for their commits on a disk.

use std::collections::{BTreeMap, BTreeSet};

use profiler_profile::{FindingFacts, FrameId, Profile, Sample, Stack, Whole, sum};

use crate::{
    WaitCause, facts,
    found::Found,
    frames::{application_name, function, own_frames},
    pattern::matches_any,
    rules::SYNCHRONIZATIONS,
    text::{Problem, Queue},
    thread_group::ThreadGroup,
    weights::percent,
};

/// The fewest threads that wait for transactions. Two take turns without a queue.
const MIN_THREADS: usize = 3;

/// The least number of threads that wait at a time, on average.
const MIN_QUEUE: f64 = 2.0;

/// The least share of the time of threads with work that is spent at locks of transactions, as for other locks.
const MIN_LOCK_PERCENT: f64 = 20.0;

/// The least share of the time of threads with work that is spent at a commit. Sessions that do nothing but write reach two thirds
/// on a fast disk.
const MIN_COMMIT_PERCENT: f64 = 80.0;

/// Threads that wait for locks on rows or tables, which other sessions hold until their transactions end. The server finds
/// deadlocks itself.
pub(crate) fn transaction_locks<'a>(samples: &ThreadGroup<'a>) -> Option<Found<'a>> {
    let is_waiting = |sample: &Sample, cause: Option<WaitCause>| {
        cause.is_some_and(|cause| cause != WaitCause::RunQueue)
            && samples.marks.transaction_locks.contains(sample)
    };
    let value = samples.value(is_waiting);
    let threads = samples.threads(is_waiting).len();
    let share = percent(value, samples.value_with_work());
    let queue = samples.average_threads(value, threads);
    if threads < MIN_THREADS || share < MIN_LOCK_PERCENT || queue < MIN_QUEUE {
        return None;
    }
    let method = samples.sites(is_waiting).first().map(|site| site.method);
    let facts = FindingFacts {
        share: facts::share(share, Whole::TimeOfThreadsWithWork),
        ..samples.facts(method, samples.counted(is_waiting))
    };
    Some(samples.finding(&Problem::Queue(Queue::Transactions), facts, value))
}

/// Threads that wait in a function in which one of them synchronizes a file for all: a group commit.
pub(crate) struct GroupCommit<'a> {
    /// The function that synchronizes.
    function: &'a str,
    /// By stack: whether it has the function.
    stacks: Vec<bool>,
}

impl<'a> GroupCommit<'a> {
    /// The group commit of the function that synchronizes most. Where one thread alone synchronizes, it owns a lock meanwhile.
    pub(crate) fn of(samples: &ThreadGroup<'a>) -> Option<Self> {
        let profile = samples.profile;
        let mut functions = BTreeMap::<&str, (u64, BTreeSet<u32>)>::new();
        let is_sync = |sample: &Sample| samples.marks.synchronizations.contains(sample);
        for (sample, _) in samples.samples.iter().filter(|(sample, _)| is_sync(sample)) {
            if let Some(caller) = caller_of_synchronization(profile, profile.stack(sample.stack)) {
                let (value, leaders) = functions.entry(caller).or_default();
                sum::add(value, sample.value);
                leaders.insert(samples.tid(sample));
            }
        }
        let (function, (_, leaders)) = functions.into_iter().max_by_key(|(_, (value, _))| *value)?;
        (leaders.len() > 1).then(|| Self { function, stacks: stacks_with(profile, function) })
    }

    /// Whether a thread waits for the commit of another one.
    pub(crate) fn has(&self, samples: &ThreadGroup<'_>, sample: &Sample) -> bool {
        samples.marks.pending_commits.contains(sample)
            || self.stacks.get(sample.stack.index()).copied().unwrap_or_default()
    }

    pub(crate) fn finding(&self, samples: &ThreadGroup<'a>) -> Option<Found<'a>> {
        let is_waiting = |sample: &Sample, cause| {
            use WaitCause::{ConditionVariable, FileIo, Lock, Other};
            matches!(cause, Some(ConditionVariable | FileIo | Lock | Other)) && self.has(samples, sample)
        };
        let for_another = |sample: &Sample, cause| {
            is_waiting(sample, cause) && !samples.marks.synchronizations.contains(sample)
        };
        let value = samples.value(is_waiting);
        let threads = samples.threads(is_waiting).len();
        let share = percent(value, samples.value_with_work());
        let queue = samples.average_threads(samples.value(for_another), threads);
        if threads < MIN_THREADS || share < MIN_COMMIT_PERCENT || queue < MIN_QUEUE {
            return None;
        }
        let method = Some(self.function);
        let facts = FindingFacts {
            threads_at_a_time: Some(queue),
            share: facts::share(share, Whole::TimeOfThreadsWithWork),
            ..samples.facts(method, samples.counted(is_waiting))
        };
        Some(samples.finding(&Problem::Queue(Queue::GroupCommit), facts, value).below(method))
    }
}

/// The function of the application that synchronizes a file.
fn caller_of_synchronization<'a>(profile: &'a Profile, stack: &Stack) -> Option<&'a str> {
    let own = own_frames(profile, stack);
    let is_sync = |id: &FrameId| matches_any(SYNCHRONIZATIONS, function(profile, profile.frame(*id)));
    let outermost = own.iter().rposition(is_sync)?;
    own[outermost + 1..].iter().find_map(|id| application_name(profile, profile.frame(*id)))
}

/// Whether each stack has a function, in the order of the stacks.
fn stacks_with(profile: &Profile, name: &str) -> Vec<bool> {
    let frames: Vec<_> =
        profile.frames().map(|frame| application_name(profile, frame) == Some(name)).collect();
    let has_function = |stack: &Stack| own_frames(profile, stack).iter().any(|id| frames[id.index()]);
    profile.stacks().map(has_function).collect()
}
