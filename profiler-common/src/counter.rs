//! Counters of ticks, target ticks, lost samples and run time, kept per CPU by the BPF programs.

/// The key of a counter in the counters map.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// Ticks that hit a target: each is either sent as a sample or counted by one of the `Lost` counters of samples.
    TargetTicks = 0,
    /// Samples lost because the ring buffer was full.
    LostRingBuffer = 1,
    /// Samples lost because the task matches the filter and has no id in the profiler's PID namespace.
    LostThreadId = 2,
    /// Child processes that are not sampled because the targets map was full.
    LostChild = 3,
    /// Nanoseconds spent in the sampling programs on target ticks.
    RunTimeNs = 4,
    /// Ticks of the timers, whatever they hit.
    Ticks = 5,
    /// Ticks that hit no task: the CPU was idle.
    IdleTicks = 6,
    /// Ticks that hit a target and were skipped, because the sampling programs had reached the overhead limit.
    SkippedTicks = 7,
    /// Stacks that were cut below the most frames, for the same reason.
    CutStacks = 8,
    /// Ticks of passes at threads of the target: each is in a record or in the map of waiting threads, or counted by one of
    /// the `WallLost` counters.
    WallTicks = 9,
    /// Ticks of threads that ran while their stack was read.
    WallLostAwake = 10,
    /// Ticks of threads whose record or stack did not fit into the ring buffer.
    WallLostRingBuffer = 11,
    /// Ticks of threads that did not fit into the map of waiting threads.
    WallLostThread = 12,
    /// Waits that have a record, or are lost because it did not fit into the ring buffer.
    OffCpuRecords = 13,
    /// Those of `OffCpuRecords` that did not fit into the ring buffer.
    OffCpuLostRingBuffer = 14,
    /// Waits shorter than the least length of a record.
    OffCpuShort = 15,
    /// Nanoseconds of those.
    OffCpuShortNs = 16,
    /// Waits of threads that did not fit into the map of threads.
    OffCpuLostThread = 17,
    /// Nanoseconds spent in the programs of off-CPU time on threads of the target.
    OffCpuRunTimeNs = 18,
}

impl Counter {
    /// The number of counters, which is the size of the map.
    pub const COUNT: u32 = 19;
}
