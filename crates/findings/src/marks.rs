//! Which stacks have frames that rules name. Computed once for all processes of a profile.

use std::collections::BTreeMap;

use profiler_profile::{Frame, ProcessId, Profile, Sample, Sampling, Stack, Thread, ThreadState, sum};

use crate::{
    Partners, WaitCause, Waits,
    cpu_rules::{CPU_RULES, CpuRule},
    frames::{function, own_frames},
    pattern::matches_any,
    queue_ends::{QueueEnd, queue_end},
    rules::{
        COLLECTION_REQUESTS, COMMIT_RULES, CONSOLE_LOGGERS, DYNAMIC_METHODS, FILE_LOCKS, FINALIZER_WAITS,
        FINALIZERS, GIL_RULES, POOL_WORKERS, SYNCHRONIZATIONS, TRANSACTION_LOCK_RULES,
    },
    runtime::event_causes::EventCauses,
    service_rules::{CLIENTS, SERVERS, SYNCHRONOUS_CLIENTS},
};

/// A set of stacks.
pub(crate) struct StackSet(Vec<bool>);

impl StackSet {
    /// Whether the stack of a sample is in the set.
    pub(crate) fn contains(&self, sample: &Sample) -> bool {
        self.0.get(sample.stack.index()).copied().unwrap_or_default()
    }

    /// The stacks that have a frame for which `is_match` is true.
    fn with_frame(profile: &Profile, is_match: impl Fn(&Frame) -> bool) -> Self {
        let frames: Vec<_> = profile.frames().map(is_match).collect();
        let has_match = |stack: &Stack| own_frames(profile, stack).iter().any(|id| frames[id.index()]);
        Self(profile.stacks().map(has_match).collect())
    }

    fn with_function(profile: &Profile, functions: &[&str]) -> Self {
        Self::with_frame(profile, |frame| matches_any(functions, function(profile, frame)))
    }
}

/// The stacks and threads that match a rule on CPU time.
pub(crate) struct CpuMarks {
    pub(crate) rule: &'static CpuRule,
    stacks: StackSet,
    /// By the index of a thread, whether its name matches.
    threads: Vec<bool>,
}

impl CpuMarks {
    fn of(profile: &Profile, rule: &'static CpuRule) -> Self {
        let matching = StackSet::with_frame(profile, |frame| {
            matches_any(rule.functions, function(profile, frame))
                || matches_any(rule.modules, profile.module_name(frame.module))
        });
        let excepted = StackSet::with_function(profile, rule.except);
        let pairs = matching.0.into_iter().zip(excepted.0);
        let stacks = StackSet(pairs.map(|(is_match, is_excepted)| is_match && !is_excepted).collect());
        let is_match = |thread: &Thread| matches_any(rule.threads, profile.string(thread.comm));
        Self { rule, stacks, threads: profile.threads().map(is_match).collect() }
    }

    /// Whether the stack or the thread of a sample matches.
    pub(crate) fn contains(&self, sample: &Sample) -> bool {
        self.stacks.contains(sample) || self.threads.get(sample.thread.index()).copied().unwrap_or_default()
    }
}

/// For how long threads ran and waited for a CPU.
#[derive(Default)]
pub(crate) struct CpuDemand {
    pub(crate) on_cpu: u64,
    pub(crate) waiting: u64,
}

/// The sets of stacks that findings need, and what else says more about threads than their samples.
pub(crate) struct Marks {
    /// Stacks of workers of a thread pool.
    pub(crate) pool_workers: StackSet,
    /// Stacks of threads of servers that wait for connections and requests.
    pub(crate) servers: StackSet,
    /// Stacks of clients of other services.
    pub(crate) clients: StackSet,
    /// Stacks of clients in processes with one thread.
    pub(crate) synchronous_clients: StackSet,
    /// Stacks in functions that add items to a queue of native code.
    pub(crate) producers: StackSet,
    /// Stacks in functions that take items from a queue of native code.
    pub(crate) consumers: StackSet,
    /// Stacks of waits until descriptors are ready.
    pub(crate) descriptor_waits: StackSet,
    /// Stacks of waits for locks that transactions hold.
    pub(crate) transaction_locks: StackSet,
    /// Stacks of answers that wait for the commit of another thread.
    pub(crate) pending_commits: StackSet,
    /// Stacks of waits until data is on a disk.
    pub(crate) synchronizations: StackSet,
    /// Stacks of waits for the global interpreter lock of Python.
    pub(crate) gil: StackSet,
    /// Stacks of threads that wait for the lock of a file, as `flock` takes it.
    pub(crate) file_locks: StackSet,
    /// Stacks of threads that log to the console.
    pub(crate) console_loggers: StackSet,
    /// Stacks of threads that execute finalizers.
    pub(crate) finalizers: StackSet,
    /// Stacks of threads that wait for finalizers.
    pub(crate) finalizer_waits: StackSet,
    /// Stacks of threads that request garbage collections.
    pub(crate) collection_requests: StackSet,
    /// Stacks of threads that compile dynamic methods.
    pub(crate) dynamic_methods: StackSet,
    /// What matches each rule on CPU time.
    pub(crate) cpu: Vec<CpuMarks>,
    /// What the events of runtimes say.
    pub(crate) event_causes: EventCauses,
    /// What threads wait for beyond their processes.
    pub(crate) partners: Partners,
    /// The time for which threads of each process ran or could run, from samples with states.
    pub(crate) cpu_demand: BTreeMap<ProcessId, CpuDemand>,
    /// Whether samples on CPUs have an event of their own.
    pub(crate) has_cpu_event: bool,
    /// Whether an event has the states of threads.
    pub(crate) has_states: bool,
}

impl Marks {
    pub(crate) fn of(profile: &Profile, waits: &Waits, partners: &Partners) -> Self {
        Self {
            pool_workers: StackSet::with_function(profile, POOL_WORKERS),
            servers: StackSet::with_function(profile, SERVERS),
            clients: StackSet::with_function(profile, CLIENTS),
            synchronous_clients: StackSet::with_function(profile, SYNCHRONOUS_CLIENTS),
            producers: at_queues(profile, waits, QueueEnd::Capacity),
            consumers: at_queues(profile, waits, QueueEnd::Item),
            descriptor_waits: StackSet(waits.stacks_at_descriptors()),
            transaction_locks: StackSet(waits.stacks_of_rules(TRANSACTION_LOCK_RULES)),
            pending_commits: StackSet(waits.stacks_of_rules(COMMIT_RULES)),
            synchronizations: StackSet::with_function(profile, SYNCHRONIZATIONS),
            gil: StackSet(waits.stacks_of_rules(GIL_RULES)),
            has_states: profile.samples().iter().any(|sample| sample.state.is_some()),
            file_locks: StackSet::with_function(profile, FILE_LOCKS),
            console_loggers: StackSet::with_function(profile, CONSOLE_LOGGERS),
            finalizers: StackSet::with_function(profile, FINALIZERS),
            finalizer_waits: StackSet::with_function(profile, FINALIZER_WAITS),
            collection_requests: StackSet::with_function(profile, COLLECTION_REQUESTS),
            dynamic_methods: StackSet::with_function(profile, DYNAMIC_METHODS),
            cpu: CPU_RULES.iter().map(|rule| CpuMarks::of(profile, rule)).collect(),
            event_causes: EventCauses::of(profile),
            partners: partners.clone(),
            cpu_demand: cpu_demand(profile),
            has_cpu_event: profile.samples().iter().any(|sample| sample.state.is_none()),
        }
    }
}

/// Of the events at a frequency: the others have other units, and no samples on CPUs.
fn cpu_demand(profile: &Profile) -> BTreeMap<ProcessId, CpuDemand> {
    let mut processes = BTreeMap::<ProcessId, CpuDemand>::new();
    for sample in profile.samples() {
        if !matches!(profile.event(sample.event).sampling, Sampling::Frequency(_)) {
            continue;
        }
        let demand = processes.entry(profile.thread(sample.thread).process).or_default();
        match sample.state {
            Some(ThreadState::OnCpu) => sum::add(&mut demand.on_cpu, sample.value),
            Some(ThreadState::Runnable | ThreadState::Throttled) => {
                sum::add(&mut demand.waiting, sample.value);
            }
            _ => {}
        }
    }
    processes
}

fn at_queues(profile: &Profile, waits: &Waits, end: QueueEnd) -> StackSet {
    let is_wait = |cause| matches!(cause, WaitCause::ConditionVariable | WaitCause::Idle);
    let is_there = |(stack, cause)| is_wait(cause) && queue_end(profile, stack) == Some(end);
    // Profiles without waits have no causes.
    StackSet(profile.stacks().zip(waits.causes()).map(is_there).collect())
}
