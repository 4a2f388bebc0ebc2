//! What a finding states, as fields: for tests, pages, scripts and conditions, which must not read its text.

use std::fmt;

use crate::RuntimeEventKind;

/// What a [`Finding`](crate::Finding) states. The default has nothing but [`Proof::NewMeasurement`]: recordings of earlier versions
/// lack the facts of their findings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FindingFacts {
    /// The ids of the processes, in ascending order.
    pub processes: Vec<u32>,
    /// The number of threads that have the problem; `None` where threads do not matter.
    pub threads: Option<u32>,
    /// How many threads have it at a time, on average.
    pub threads_at_a_time: Option<f64>,
    /// Its share of a time or of a number.
    pub share: Option<Share>,
    /// The method of the program that has or causes it.
    pub place: Option<Place>,
    /// The id of the thread that causes it: the owner of a lock, a thread that computes all the time.
    pub cause_thread: Option<u32>,
    /// What the threads wait for beyond their processes at the end of the measurement, where it was read: a service, or the device
    /// of files.
    pub partner: Option<Partner>,
    /// When it began, nanoseconds since the start of sampling; `None` where it can be older than the measurement.
    pub since_ns: Option<u64>,
    /// How sure it is.
    pub certainty: Certainty,
    /// What shows it.
    pub selection: Selection,
}

/// A part of a whole.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// From 0 to 100.
    pub percent: f64,
    /// What 100 % is.
    pub of: Whole,
}

/// What a [`Share`] is a part of.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Whole {
    /// The time of the threads that have work: they are neither idle nor asleep by their own choice.
    TimeOfThreadsWithWork,
    /// The time in which threads run or could run.
    RunnableTime,
    /// The CPU time of the process.
    CpuTime,
    /// The time of the thread that causes the problem.
    TimeOfThread,
    /// The duration of the measurement.
    Duration,
    /// The workers of the thread pool.
    PoolWorkers,
    /// The time in which workers of the thread pool block.
    BlockedTimeOfWorkers,
    /// The events of the kind that the selection has.
    RuntimeEvents,
}

impl Whole {
    /// Every whole, for tables and tests.
    pub const ALL: &'static [Self] = &[
        Self::TimeOfThreadsWithWork,
        Self::RunnableTime,
        Self::CpuTime,
        Self::TimeOfThread,
        Self::Duration,
        Self::PoolWorkers,
        Self::BlockedTimeOfWorkers,
        Self::RuntimeEvents,
    ];

    /// The name in machine-readable outputs: `cpu-time`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::TimeOfThreadsWithWork => "time-of-threads-with-work",
            Self::RunnableTime => "runnable-time",
            Self::CpuTime => "cpu-time",
            Self::TimeOfThread => "time-of-thread",
            Self::Duration => "duration",
            Self::PoolWorkers => "pool-workers",
            Self::BlockedTimeOfWorkers => "blocked-time-of-workers",
            Self::RuntimeEvents => "runtime-events",
        }
    }
}

impl fmt::Display for Whole {
    /// The whole within a sentence: `the CPU time`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TimeOfThreadsWithWork => "the time of threads with work",
            Self::RunnableTime => "the time in which they could run",
            Self::CpuTime => "the CPU time",
            Self::TimeOfThread => "the time of the thread",
            Self::Duration => "the time",
            Self::PoolWorkers => "the workers of the pool",
            Self::BlockedTimeOfWorkers => "the time in which workers block",
            Self::RuntimeEvents => "the events",
        })
    }
}

/// A method or function of the program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The name without assembly and arguments: `Shop.Cart.Get`.
    pub method: String,
    /// The source file and the line in it that most of the evidence has; `None` where it is unknown.
    pub location: Option<(String, u32)>,
}

impl fmt::Display for Place {
    /// The method.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.method)
    }
}

/// What threads wait for beyond their process.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partner {
    /// The name of the process, the address of a service that runs elsewhere, or the name of a device: text of the target.
    pub name: String,
    /// The id of the process; `None` for an address and a device, and where threads wait for several processes of this name.
    pub process: Option<u32>,
}

impl fmt::Display for Partner {
    /// `postgres (process 123)`, `10.0.0.3:80`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        self.process.map_or(Ok(()), |process| write!(f, " (process {process})"))
    }
}

/// How sure a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Certainty {
    /// The measurement shows the cause.
    Proven,
    /// The measurement shows the symptom. This would prove its cause.
    Likely(Proof),
}

impl Certainty {
    /// The name in machine-readable outputs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Proven => "proven",
            Self::Likely(_) => "likely",
        }
    }
}

impl Default for Certainty {
    fn default() -> Self {
        Self::Likely(Proof::NewMeasurement)
    }
}

impl fmt::Display for Certainty {
    /// `proven`, `likely: the owner of the lock would prove it`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Proven => f.write_str("proven"),
            Self::Likely(proof) => write!(f, "likely: {proof} would prove it"),
        }
    }
}

/// What would prove a likely finding.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Proof {
    /// The recording lacks the facts of its findings.
    NewMeasurement,
    /// The memory of the process or an event of its runtime names the owner of the lock.
    LockOwner,
    /// The process at the other end of a connection.
    Peer,
    /// The durations of requests to a disk.
    DiskRequests,
    /// The adjustments of the thread pool that its runtime reports.
    PoolAdjustments,
    /// All events of the runtime: some were dropped.
    AllRuntimeEvents,
    /// The samples of waiting threads.
    WaitSamples,
    /// The process at the other end of a connection at other times: it was read once, when the profile was taken.
    FurtherReadings,
    /// The slow thread of a barrier reaches it.
    Arrival,
    /// The number of items in a queue.
    QueueLength,
}

impl Proof {
    /// Every proof, for tables and tests.
    pub const ALL: &'static [Self] = &[
        Self::NewMeasurement,
        Self::LockOwner,
        Self::Peer,
        Self::DiskRequests,
        Self::PoolAdjustments,
        Self::AllRuntimeEvents,
        Self::WaitSamples,
        Self::FurtherReadings,
        Self::Arrival,
        Self::QueueLength,
    ];

    /// The name in machine-readable outputs: `lock-owner`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NewMeasurement => "new-measurement",
            Self::LockOwner => "lock-owner",
            Self::Peer => "peer",
            Self::DiskRequests => "disk-requests",
            Self::PoolAdjustments => "pool-adjustments",
            Self::AllRuntimeEvents => "all-runtime-events",
            Self::WaitSamples => "wait-samples",
            Self::FurtherReadings => "further-readings",
            Self::Arrival => "arrival",
            Self::QueueLength => "queue-length",
        }
    }
}

impl fmt::Display for Proof {
    /// The proof within a sentence: `the owner of the lock`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NewMeasurement => "a new measurement",
            Self::LockOwner => "the owner of the lock",
            Self::Peer => "the process at the other end of the connection",
            Self::DiskRequests => "the requests to the disk (--io)",
            Self::PoolAdjustments => "an adjustment of the thread pool (--events default)",
            Self::AllRuntimeEvents => "a measurement without dropped events",
            Self::WaitSamples => "samples of waiting threads (--wall)",
            Self::FurtherReadings => "the process at the other end at other times (another measurement)",
            Self::Arrival => "a measurement in which the slow thread reaches the barrier",
            Self::QueueLength => "the number of items in the queue",
        })
    }
}

/// The part of a profile that shows a finding. The event of the samples is that of the finding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// The begin of the first evidence, nanoseconds since the start of sampling.
    pub begin_ns: u64,
    /// The end of the last evidence, nanoseconds since the start of sampling.
    pub end_ns: u64,
    /// The ids of the threads, in ascending order; empty where all threads of the process show it.
    pub threads: Vec<u32>,
    /// The kind of the runtime events that show it; `None` where samples do.
    pub runtime_events: Option<RuntimeEventKind>,
    /// A part of the names of the functions that show it.
    pub search: Option<String>,
}
