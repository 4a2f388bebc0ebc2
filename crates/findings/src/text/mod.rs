//! The text of findings from samples: evidence and remedy, made from the facts of a finding and from what its problem has beyond
//! them.

mod cpu;
mod locks;
mod pool;
mod queues;
mod waits;

use profiler_profile::{Finding, FindingFacts, FindingKind, ProcessId};

pub(crate) use self::{
    cpu::{CpuCause, CpuProblem},
    queues::Queue,
    waits::Slowest,
};
use crate::{
    found::Found, locks::stuck_threads::StuckThreads, thread_group::ThreadGroup, thread_time::Activity,
};

/// What is wrong, with what its text has beyond the facts.
pub(crate) enum Problem<'a> {
    /// Workers of a pool block.
    PoolStarvation {
        workers: usize,
        /// They wait for a semaphore, and else for a task.
        is_at_semaphores: bool,
        /// How many methods they block in beside the first one, if none of them has most of the time.
        other_methods: usize,
        /// New workers a second.
        growth: Option<f64>,
    },
    /// Threads wait for one thing.
    Queue(Queue),
    /// Threads wait for locks that no thread gets.
    Stuck(&'a StuckThreads<'a>),
    /// The finalizer thread stays in a finalizer.
    BlockedFinalizer {
        /// The method of the finalizer, and the one nearest to the leaf.
        outermost: &'a str,
        innermost: &'a str,
        activity: Activity,
        /// Threads that wait for finalizers.
        waiting: usize,
    },
    GcSuspension {
        is_requested: bool,
    },
    SlowDownstream {
        /// Most of the threads are clients of a service.
        is_at_client: bool,
    },
    /// Threads wait for the name service.
    NameResolution,
    /// Threads of a server wait for child processes.
    ChildProcess,
    /// Threads wait at a barrier for this one.
    BarrierSkew(&'a Slowest<'a>),
    RunQueue,
    CpuQuota,
    Disk,
    /// An event loop computes all the time; the name of its thread.
    BusyThread(&'a str),
    Cpu(CpuProblem<'a>),
}

impl<'a> ThreadGroup<'a> {
    /// A finding on the processes of its facts.
    pub(crate) fn finding(&self, problem: &Problem<'_>, facts: FindingFacts, value: u64) -> Found<'a> {
        let (evidence, remedy) = problem.text(&facts);
        let has_it = |process: &ProcessId| facts.processes.contains(&self.profile.process(*process).pid);
        let processes = self.processes.iter().copied().filter(has_it).collect();
        let finding =
            Finding { kind: problem.kind(), evidence, remedy, event: Some(self.event), value, facts };
        Found { finding, process: self.process, processes, method: None, owner: None }
    }
}

impl Problem<'_> {
    pub(crate) fn kind(&self) -> FindingKind {
        match self {
            Self::PoolStarvation { .. } => FindingKind::PoolStarvation,
            Self::Queue(queue) => queue.kind(),
            Self::Stuck(stuck) if stuck.is_deadlock() => FindingKind::Deadlock,
            Self::Stuck(_) => FindingKind::HeldLock,
            Self::BlockedFinalizer { .. } => FindingKind::BlockedFinalizer,
            Self::GcSuspension { .. } => FindingKind::GcSuspension,
            Self::SlowDownstream { .. } | Self::NameResolution => FindingKind::SlowDownstream,
            Self::ChildProcess => FindingKind::ChildProcess,
            Self::BarrierSkew(_) => FindingKind::BarrierSkew,
            Self::RunQueue => FindingKind::RunQueue,
            Self::CpuQuota => FindingKind::CpuQuota,
            Self::Disk => FindingKind::Disk,
            Self::BusyThread(_) => FindingKind::BusyThread,
            Self::Cpu(problem) => problem.rule.kind,
        }
    }

    /// The evidence, and the remedy.
    pub(crate) fn text(&self, facts: &FindingFacts) -> (String, String) {
        match self {
            Self::PoolStarvation { workers, is_at_semaphores, other_methods, growth } => (
                pool::evidence(facts, *workers, *is_at_semaphores, *other_methods, *growth),
                pool::remedy(facts, *is_at_semaphores, *other_methods),
            ),
            Self::Queue(queue) => (queue.evidence(facts), queue.remedy().to_owned()),
            Self::Stuck(stuck) => locks::stuck(stuck, facts),
            Self::BlockedFinalizer { outermost, innermost, activity, waiting } => {
                let activity = activity.text(percent(facts));
                waits::blocked_finalizer(outermost, innermost, &activity, *waiting)
            }
            Self::GcSuspension { is_requested } => waits::gc_suspension(facts, *is_requested),
            Self::SlowDownstream { is_at_client } => waits::slow_downstream(facts, *is_at_client),
            Self::NameResolution => waits::name_resolution(facts),
            Self::ChildProcess => waits::child_process(facts),
            Self::BarrierSkew(slowest) => waits::barrier_skew(facts, slowest),
            Self::RunQueue => waits::run_queue(facts),
            Self::CpuQuota => waits::cpu_quota(facts),
            Self::Disk => waits::disk(facts),
            Self::BusyThread(name) => cpu::busy_thread(facts, name),
            Self::Cpu(problem) => (problem.evidence(facts), problem.remedy().to_owned()),
        }
    }
}

/// The number of threads; 0 where it is unknown.
fn threads(facts: &FindingFacts) -> u32 {
    facts.threads.unwrap_or_default()
}

/// The number of threads at a time; 0 where it is unknown.
fn at_a_time(facts: &FindingFacts) -> f64 {
    facts.threads_at_a_time.unwrap_or_default()
}

/// The share; 0 where it is unknown.
fn percent(facts: &FindingFacts) -> f64 {
    facts.share.map_or(0.0, |share| share.percent)
}

/// The share and its whole: `98 % of the time of threads with work`; empty without a share.
fn share(facts: &FindingFacts) -> String {
    facts.share.map(|share| format!("{:.0} % of {}", share.percent, share.of)).unwrap_or_default()
}

/// The method of the place behind these words; empty without a place.
fn method_after(words: &str, facts: &FindingFacts) -> String {
    facts.place.as_ref().map(|place| format!("{words}{place}")).unwrap_or_default()
}

/// The partner behind these words; empty without one.
fn partner_after(words: &str, facts: &FindingFacts) -> String {
    facts.partner.as_ref().map(|partner| format!("{words}{partner}")).unwrap_or_default()
}
