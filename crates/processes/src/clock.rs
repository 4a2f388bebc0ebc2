//! The clock of samples, of sideband events and of everything that is compared with them.

use profiler_addresses::MonotonicTime;
use rustix::time::{ClockId, clock_gettime};

pub(crate) const NS_PER_S: u64 = 1_000_000_000;

/// The time now.
#[must_use]
pub fn monotonic_time() -> MonotonicTime {
    MonotonicTime(nanoseconds_of(ClockId::Monotonic))
}

/// The nanoseconds of a clock now.
pub(crate) fn nanoseconds_of(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    u64::try_from(now.tv_sec).unwrap_or(0) * NS_PER_S + u64::try_from(now.tv_nsec).unwrap_or(0)
}
