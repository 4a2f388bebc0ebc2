//! Points in time on the clock of samples and events.

/// Nanoseconds of `CLOCK_MONOTONIC` (`clock_gettime(2)`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MonotonicTime(pub u64);

impl MonotonicTime {
    /// Before all events.
    pub const ZERO: Self = Self(0);

    /// After all events.
    pub const MAX: Self = Self(u64::MAX);
}
