//! Findings: what a profile shows beyond doubt, with its evidence and its remedy.

use std::fmt;

use crate::{EventId, FindingFacts, Profile};

/// A conclusion from the samples of one event, or from runtime events.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The kind of problem.
    pub kind: FindingKind,
    /// What was measured: `31 of 34 pool workers block in Task.Wait below Shop.Cart.Get (sync over async)`.
    pub evidence: String,
    /// What helps: `make Cart.Get asynchronous`.
    pub remedy: String,
    /// The event of the samples; `None` for a finding of runtime events.
    pub event: Option<EventId>,
    /// The sum of the values of the samples that show the problem. For a finding of runtime events: their durations in
    /// nanoseconds, 0 where they have none.
    pub value: u64,
    /// What the text states, as fields.
    pub facts: FindingFacts,
}

/// The problem that a [`Finding`] describes.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FindingKind {
    /// Workers of a thread pool block until other work of the pool completes.
    PoolStarvation,
    /// Threads wait for one lock.
    LockConvoy,
    /// Threads wait for locks that no thread releases.
    Deadlock,
    /// Threads wait for a lock that its owner holds for seconds.
    HeldLock,
    /// Threads wait for room in a queue.
    FullQueue,
    /// Threads wait for a connection of a pool that has a limit.
    ConnectionLimit,
    /// The thread that executes finalizers is in one of them all the time.
    BlockedFinalizer,
    /// Threads wait for garbage collections.
    GcSuspension,
    /// Threads wait for the responses of another service.
    SlowDownstream,
    /// Threads wait for a CPU.
    RunQueue,
    /// Threads wait because the CPU quota of their cgroup is used up.
    CpuQuota,
    /// Threads wait for files.
    Disk,
    /// The thread of an event loop computes all the time.
    BusyThread,
    /// CPUs compile methods.
    Compilation,
    /// CPUs collect garbage.
    GarbageCollection,
    /// CPUs spin until another thread proceeds.
    Spinning,
    /// CPUs handle page faults.
    PageFaults,
    /// CPUs handle interrupts.
    Interrupts,
    /// The runtime reported long suspensions of all managed threads for garbage collections.
    GcPauses,
    /// The runtime reported many exceptions.
    Exceptions,
    /// The runtime reported long waits for one lock.
    LockContention,
    /// The runtime reported workers that it added to a thread pool whose queue did not proceed.
    PoolGrowth,
    /// The runtime reported many garbage collections of generation 2, and the allocations before them.
    FullCollections,
    /// Threads of a server wait for child processes.
    ChildProcess,
    /// Threads wait at a barrier for one that needs longer.
    BarrierSkew,
}

impl FindingKind {
    /// Every kind, for tables and tests.
    pub const ALL: &'static [Self] = &[
        Self::PoolStarvation,
        Self::LockConvoy,
        Self::Deadlock,
        Self::HeldLock,
        Self::FullQueue,
        Self::ConnectionLimit,
        Self::BlockedFinalizer,
        Self::GcSuspension,
        Self::SlowDownstream,
        Self::RunQueue,
        Self::CpuQuota,
        Self::Disk,
        Self::BusyThread,
        Self::Compilation,
        Self::GarbageCollection,
        Self::Spinning,
        Self::PageFaults,
        Self::Interrupts,
        Self::GcPauses,
        Self::Exceptions,
        Self::LockContention,
        Self::PoolGrowth,
        Self::FullCollections,
        Self::ChildProcess,
        Self::BarrierSkew,
    ];

    /// The name in machine-readable outputs: `pool-starvation`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::PoolStarvation => "pool-starvation",
            Self::LockConvoy => "lock-convoy",
            Self::Deadlock => "deadlock",
            Self::HeldLock => "held-lock",
            Self::FullQueue => "full-queue",
            Self::ConnectionLimit => "connection-limit",
            Self::BlockedFinalizer => "blocked-finalizer",
            Self::GcSuspension => "gc-suspension",
            Self::SlowDownstream => "slow-downstream",
            Self::RunQueue => "run-queue",
            Self::CpuQuota => "cpu-quota",
            Self::Disk => "disk",
            Self::BusyThread => "busy-thread",
            Self::Compilation => "compilation",
            Self::GarbageCollection => "garbage-collection",
            Self::Spinning => "spinning",
            Self::PageFaults => "page-faults",
            Self::Interrupts => "interrupts",
            Self::GcPauses => "gc-pauses",
            Self::Exceptions => "exceptions",
            Self::LockContention => "lock-contention",
            Self::PoolGrowth => "pool-growth",
            Self::FullCollections => "full-collections",
            Self::ChildProcess => "child-process",
            Self::BarrierSkew => "barrier-skew",
        }
    }

    /// What is examined for a finding of this kind: `locks`, `thread pool`.
    #[must_use]
    pub fn subject(self) -> &'static str {
        match self {
            Self::PoolStarvation => "thread pool",
            Self::LockConvoy | Self::Deadlock | Self::HeldLock => "locks",
            Self::FullQueue => "queues",
            Self::ConnectionLimit => "connections",
            Self::BlockedFinalizer => "finalizers",
            Self::GcSuspension => "GC suspensions",
            Self::SlowDownstream => "services",
            Self::RunQueue => "run queue",
            Self::CpuQuota => "CPU quota",
            Self::Disk => "disks",
            Self::BusyThread => "event loops",
            Self::Compilation => "compilation",
            Self::GarbageCollection => "garbage collection",
            Self::Spinning => "spinning",
            Self::PageFaults => "page faults",
            Self::Interrupts => "interrupts",
            Self::GcPauses => "GC pauses",
            Self::Exceptions => "exceptions",
            Self::LockContention => "lock contention",
            Self::PoolGrowth => "pool growth",
            Self::FullCollections => "full collections",
            Self::ChildProcess => "child processes",
            Self::BarrierSkew => "barriers",
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.evidence, self.remedy)
    }
}

impl Profile {
    /// The findings of the measurement, the most important first. Views keep them.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Sets the findings.
    pub fn set_findings(&mut self, findings: Vec<Finding>) {
        self.findings = findings;
    }

    /// Sets the number of samples of idle threads of an event.
    pub fn set_idle_samples(&mut self, event: EventId, idle: u64) {
        self.ledger.events[event.index()].idle = idle;
    }
}
