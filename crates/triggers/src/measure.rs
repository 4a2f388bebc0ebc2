//! The measured quantities that conditions read.

use std::fmt;

use crate::{LinePattern, dimension::Dimension};

/// A measured quantity of a process, of its cgroup or of its runtime.
///
/// The kernel's measures are those of one process ([`ProcessMeasures`](crate::ProcessMeasures)). Where the target is a cgroup
/// ([`CgroupMeasures`](crate::CgroupMeasures)), they are sums over its processes; where it is the machine
/// ([`MachineMeasures`](crate::MachineMeasures)), over all processes and kernel threads.
///
/// Base units of values: the fraction 1 for 100 %, bytes, seconds, occurrences per second, or a number. A value of an
/// interval is that of the time since the moment before.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Measure {
    /// `cpu`: CPU time of the process per time that has passed. 100 % is one CPU. `utime` and `stime` of
    /// `/proc/PID/stat`, with the resolution of a clock tick (proc_pid_stat(5)). Of a cgroup: `usage_usec` in `cpu.stat`,
    /// `cpuacct.usage` of version 1. Of the machine: `/proc/stat`.
    Cpu,
    /// `cpu-of-quota`: CPU time of the cgroup as a share of its quota. `usage_usec` in `cpu.stat` and `cpu.max` of
    /// version 2 (`Documentation/admin-guide/cgroup-v2.rst`, "CPU Interface Files"); `cpuacct.usage`,
    /// `cpu.cfs_quota_us` and `cpu.cfs_period_us` of version 1 (`Documentation/scheduler/sched-bwc.rst`). Where
    /// `cpuacct` is not in the hierarchy of `cpu`, the CPU time is that of the process. Of the cgroup and its ancestors
    /// with a quota, the one with the largest share counts; without a quota there is no value.
    CpuOfQuota,
    /// `cpu-of-machine`: CPU time of the process as a share of all CPUs that are online.
    CpuOfMachine,
    /// `throttled`: time for which the CPU quota stopped the cgroup, summed over CPUs, per time that has passed. 100 %
    /// is one CPU that was stopped all the time. `throttled_usec` in `cpu.stat` of version 2, `throttled_time`
    /// (nanoseconds) of version 1. Of the cgroup and its ancestors, the largest value counts.
    Throttled,
    /// `runnable`: time for which threads waited for a CPU, summed over threads, per time that has passed. 100 % is
    /// one thread that waited all the time. The second number of `/proc/PID/task/TID/schedstat`, nanoseconds
    /// (`Documentation/scheduler/sched-stats.rst`), of 512 threads at most. Without a value if the kernel does not
    /// count (`CONFIG_SCHED_INFO`). Of the machine: `/proc/schedstat`.
    Runnable,
    /// `rss`: resident memory of the process: `rss` of `/proc/PID/stat`. The kernel's counter is inaccurate by some
    /// pages per CPU. Of a cgroup: `anon` and `file_mapped` in `memory.stat`, `total_rss` and `total_mapped_file` of version 1.
    /// Of the machine: `AnonPages` and `Mapped` in `/proc/meminfo`.
    Rss,
    /// `memory`: memory of the cgroup, the page cache included, as a share of its limit. `memory.current` and
    /// `memory.max` of version 2 (`Documentation/admin-guide/cgroup-v2.rst`, "Memory Interface Files");
    /// `memory.usage_in_bytes` and `memory.limit_in_bytes` of version 1
    /// (`Documentation/admin-guide/cgroup-v1/memory.rst`). Of the cgroup and its ancestors with a limit, the one with
    /// the largest share counts; without a limit there is no value. Of the machine: what is not `MemAvailable` in
    /// `/proc/meminfo`.
    Memory,
    /// `threads`: threads of the process: `num_threads` of `/proc/PID/stat`, without a leader that has ended. Of a cgroup:
    /// `pids.current`. Of the machine: `/proc/loadavg`.
    Threads,
    /// `fds`: open file descriptors of the process: entries of `/proc/PID/fd`, whose number is the size of the
    /// directory from Linux 6.2 on (proc_pid_fd(5)). Before, it needs the permission to examine the process (ptrace(2)). Of a
    /// cgroup: of 512 processes at most. Of the machine: the first number of `/proc/sys/fs/file-nr`.
    Fds,
    /// `psi.cpu`: share of the last ten seconds in which tasks waited for a CPU: `avg10` of `some` in `cpu.pressure` of
    /// the version 2 cgroup, or in `/proc/pressure/cpu` for the machine if the cgroup does not have it
    /// (`Documentation/accounting/psi.rst`). The kernel updates it every two seconds.
    PsiCpu,
    /// `psi.memory`: as [`PsiCpu`](Self::PsiCpu), for memory.
    PsiMemory,
    /// `psi.io`: as [`PsiCpu`](Self::PsiCpu), for I/O.
    PsiIo,
    /// `file ~ "REGEX"`: lines of the log file that matched in the interval.
    File(LinePattern),
    /// `signal`: signals that the recorder received in the interval to start an incident (SIGUSR2).
    Signal,
    /// `exit`: 1 from the end of the process or the cgroup on, 0 before.
    Exit,
    /// The number that `exit != 0` compares: the exit code of the process, or 128 and the number of the signal that
    /// ended it. Without a value before the end. From Linux 6.15 on, it is read once the parent has waited for the
    /// process (`PIDFD_GET_INFO`, `include/uapi/linux/pidfd.h`).
    ExitStatus,
    /// `gc-pause`: longest pause for a garbage collection that ended in the interval.
    GcPause,
    /// `gc-share`: share of the interval in which managed threads were suspended for garbage collections.
    GcShare,
    /// `heap`: size of the garbage-collected heap.
    Heap,
    /// `exceptions`: thrown exceptions per second.
    Exceptions,
    /// `pool-queue`: work items in the queues of the thread pool.
    PoolQueue,
    /// `pool-starvation`: workers that the thread pool added because of starvation, per second. Without a comparison:
    /// whether it added one in the interval.
    PoolStarvation,
    /// `contention`: waits for locks of the runtime that began, per second.
    Contention,
    /// `requests`: requests that the server has answered, per second.
    Requests,
    /// `request-time p99`: 99th percentile of the time of the requests that ended in the interval.
    RequestTimeP99,
    /// `counter(NAME)`: last value of a counter or meter of the runtime, in the unit of its provider.
    Counter {
        /// The name, as the condition has it.
        name: String,
    },
    /// `event(NAME)`: occurrences per second of an event that the recorder counts, such as a tracepoint or a probe; of an
    /// event that sums a field, the sum per second.
    Event {
        /// The name of the event.
        name: String,
    },
}

/// Which component measures a [`Measure`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MeasureSource {
    /// The kernel: [`ProcessMeasures`](crate::ProcessMeasures), [`CgroupMeasures`](crate::CgroupMeasures) or
    /// [`MachineMeasures`](crate::MachineMeasures), by the target.
    Kernel,
    /// A reader of a log file.
    LogFile,
    /// The recorder's own signals.
    Signal,
    /// The runtime of the process.
    Runtime,
    /// The samples of the recorder's events.
    Samples,
}

/// The measures that a condition names by one or two words: these words, and what is measured.
const NAMED: [(&str, Measure, &str); 23] = [
    ("cpu", Measure::Cpu, "CPU time of the target; 100% is one CPU"),
    ("cpu-of-quota", Measure::CpuOfQuota, "CPU time of the cgroup as a share of its quota"),
    ("cpu-of-machine", Measure::CpuOfMachine, "CPU time of the target as a share of all CPUs"),
    ("throttled", Measure::Throttled, "time for which the CPU quota stopped the cgroup; 100% is one CPU"),
    ("runnable", Measure::Runnable, "time for which threads waited for a CPU; 100% is one thread"),
    ("rss", Measure::Rss, "resident memory of the target"),
    (
        "memory",
        Measure::Memory,
        "memory of the cgroup as a share of its limit; of the machine, memory that is not available",
    ),
    ("threads", Measure::Threads, "threads of the target"),
    ("fds", Measure::Fds, "open file descriptors of the target"),
    ("psi.cpu", Measure::PsiCpu, "share of the last 10 s in which tasks of the cgroup waited for a CPU"),
    (
        "psi.memory",
        Measure::PsiMemory,
        "share of the last 10 s in which tasks of the cgroup waited for memory",
    ),
    ("psi.io", Measure::PsiIo, "share of the last 10 s in which tasks of the cgroup waited for I/O"),
    ("signal", Measure::Signal, "the recorder received SIGUSR2"),
    (
        "exit",
        Measure::Exit,
        "the target has ended; compared, the exit code of the process, or 128 and the signal",
    ),
    ("gc-pause", Measure::GcPause, "longest pause for a garbage collection"),
    ("gc-share", Measure::GcShare, "share of time in which garbage collections suspended the threads"),
    ("heap", Measure::Heap, "size of the garbage-collected heap"),
    ("exceptions", Measure::Exceptions, "thrown exceptions per second"),
    ("pool-queue", Measure::PoolQueue, "work items in the queues of the thread pool"),
    (
        "pool-starvation",
        Measure::PoolStarvation,
        "the thread pool added workers because of starvation; compared, workers per second",
    ),
    ("contention", Measure::Contention, "waits for locks of the runtime per second"),
    ("requests", Measure::Requests, "requests that the server has answered per second"),
    ("request-time p99", Measure::RequestTimeP99, "99th percentile of the time of requests"),
];

/// The forms of the other measures, and what is measured.
const OTHERS: [(&str, &str); 3] = [
    ("event(NAME)", "occurrences of an event of -e per second, or the sum of its --weight per second"),
    ("counter(NAME)", "last value of a counter or meter of the runtime, in its own unit"),
    ("file ~ \"REGEX\"", "a line of the log file matches"),
];

impl Measure {
    /// The name of each measure in conditions, and what is measured, for a help text.
    pub fn summaries() -> impl Iterator<Item = (&'static str, &'static str)> {
        NAMED.into_iter().map(|(name, _, summary)| (name, summary)).chain(OTHERS)
    }

    /// The measure with a name of one or two words.
    pub(crate) fn named(name: &str) -> Option<Self> {
        NAMED.into_iter().find(|(known, ..)| *known == name).map(|(_, measure, _)| measure)
    }

    /// Which component measures it.
    #[must_use]
    pub fn source(&self) -> MeasureSource {
        match self {
            Self::Cpu
            | Self::CpuOfQuota
            | Self::CpuOfMachine
            | Self::Throttled
            | Self::Runnable
            | Self::Rss
            | Self::Memory
            | Self::Threads
            | Self::Fds
            | Self::PsiCpu
            | Self::PsiMemory
            | Self::PsiIo
            | Self::Exit
            | Self::ExitStatus => MeasureSource::Kernel,
            Self::File(_) => MeasureSource::LogFile,
            Self::Signal => MeasureSource::Signal,
            Self::GcPause
            | Self::GcShare
            | Self::Heap
            | Self::Exceptions
            | Self::PoolQueue
            | Self::PoolStarvation
            | Self::Contention
            | Self::Requests
            | Self::RequestTimeP99
            | Self::Counter { .. } => MeasureSource::Runtime,
            Self::Event { .. } => MeasureSource::Samples,
        }
    }

    /// Whether its name alone is a condition: that it occurred.
    pub(crate) fn is_occurrence(&self) -> bool {
        matches!(self, Self::File(_) | Self::Signal | Self::Exit | Self::PoolStarvation)
    }

    /// Whether it can be compared with a number.
    pub(crate) fn is_comparable(&self) -> bool {
        !matches!(self, Self::File(_) | Self::Signal | Self::Exit)
    }

    pub(crate) fn dimension(&self) -> Dimension {
        match self {
            Self::Cpu
            | Self::CpuOfQuota
            | Self::CpuOfMachine
            | Self::Throttled
            | Self::Runnable
            | Self::Memory
            | Self::PsiCpu
            | Self::PsiMemory
            | Self::PsiIo
            | Self::GcShare => Dimension::Share,
            Self::Rss | Self::Heap => Dimension::Bytes,
            Self::GcPause | Self::RequestTimeP99 => Dimension::Time,
            Self::Exceptions
            | Self::PoolStarvation
            | Self::Contention
            | Self::Requests
            | Self::Event { .. } => Dimension::Rate,
            Self::Threads
            | Self::Fds
            | Self::PoolQueue
            | Self::File(_)
            | Self::Signal
            | Self::Exit
            | Self::ExitStatus => Dimension::Count,
            Self::Counter { .. } => Dimension::Number,
        }
    }

    /// The measure with a value for messages: `cpu 12.3 %`; `cpu unknown` without a value.
    #[must_use]
    pub fn describe(&self, value: Option<f64>) -> String {
        let name = if *self == Self::ExitStatus { "exit status".to_owned() } else { self.to_string() };
        match value {
            Some(value) if *self == Self::Exit => {
                if value > 0.0 { "exited" } else { "not exited" }.to_owned()
            }
            Some(value) => format!("{name} {}", self.dimension().format(value)),
            None => format!("{name} unknown"),
        }
    }
}

impl fmt::Display for Measure {
    /// Writes the name in conditions.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(pattern) => {
                formatter.write_str("file ~ ")?;
                write_quoted(formatter, pattern.as_str())
            }
            Self::Counter { name } => write_with_name(formatter, "counter", name),
            Self::Event { name } => write_with_name(formatter, "event", name),
            Self::ExitStatus => formatter.write_str("exit"),
            named => {
                let name = NAMED.iter().find(|(_, measure, _)| measure == named).map(|(name, ..)| *name);
                formatter.write_str(name.unwrap_or_default())
            }
        }
    }
}

fn write_with_name(formatter: &mut fmt::Formatter<'_>, measure: &str, name: &str) -> fmt::Result {
    write!(formatter, "{measure}(")?;
    write_quoted(formatter, name)?;
    formatter.write_str(")")
}

/// Writes a string as the grammar has it. A backslash and the character after it are a pair already.
fn write_quoted(formatter: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    formatter.write_str("\"")?;
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match (character, characters.as_str().chars().next()) {
            ('\\', Some(next)) => {
                write!(formatter, "\\{next}")?;
                characters.next();
            }
            ('"', _) => formatter.write_str("\\\"")?,
            _ => write!(formatter, "{character}")?,
        }
    }
    formatter.write_str("\"")
}
