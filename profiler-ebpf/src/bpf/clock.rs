//! The clock of samples and waits.

use aya_ebpf::helpers::generated as helpers;

/// `CLOCK_MONOTONIC` now, nanoseconds.
#[inline(always)]
pub(crate) fn now_ns() -> u64 {
    // SAFETY: the helper has no arguments and cannot fail.
    unsafe { helpers::bpf_ktime_get_ns() }
}
