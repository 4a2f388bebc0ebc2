//! Per-CPU counters of ticks, target ticks, lost samples and run time.

use profiler_common::Counter;

use super::maps::COUNTERS;

/// Adds one to a counter of this CPU.
#[inline(always)]
pub(crate) fn count(counter: Counter) {
    add(counter, 1);
}

/// Adds to a counter of this CPU.
#[inline(always)]
pub(crate) fn add(counter: Counter, amount: u64) {
    if let Some(value) = COUNTERS.get_ptr_mut(counter as u32) {
        // SAFETY: the value belongs to this CPU, and the program is not interrupted by itself.
        unsafe { *value += amount }
    }
}
