//! The clock of samples, of sideband events and of everything that is compared with them.

use rustix::time::{ClockId, clock_gettime};

/// `CLOCK_MONOTONIC` now, nanoseconds.
#[must_use]
pub fn monotonic_ns() -> u64 {
    const NS_PER_S: u64 = 1_000_000_000;
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * NS_PER_S + u64::try_from(now.tv_nsec).unwrap_or(0)
}
