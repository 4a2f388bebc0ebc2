//! Counters that the kernel side keeps, one cell per CPU each.

/// What a tick ended as, and what sampling cost.
///
/// Of `Sampled`, `LostRingBuffer` and `LostThreadId` each tick that hits the target counts exactly one, so
/// that `TargetTicks` is their sum.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// Ticks that ran the program, on whatever task.
    Ticks = 0,
    /// Ticks that hit the target.
    TargetTicks = 1,
    /// Samples handed to user space.
    Sampled = 2,
    /// Samples lost because the ring buffer was full.
    LostRingBuffer = 3,
    /// Samples lost because the task has no id in the profiler's pid namespace, although the filter matched.
    LostThreadId = 4,
    /// Stacks sent to user space (first sight, or forgotten in between).
    StacksSent = 5,
    /// User stacks that could not be read at all, although the task has user memory.
    UserStackUnreadable = 6,
    /// Child processes that could not be added because the target table was full.
    LostChild = 7,
    /// Nanoseconds spent in the sampling program.
    RunTimeNs = 8,
}

impl Counter {
    /// How many counters there are: the size of the map.
    pub const COUNT: u32 = 9;
}
