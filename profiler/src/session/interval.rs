//! The interval of a profile.

use profiler_addresses::MonotonicTime;
use profiler_profile::Header;
use profiler_sampler::KernelCounts;

use super::Adjustment;

/// The interval that a profile covers.
#[derive(Clone, Debug)]
pub(super) struct Interval {
    pub(super) header: Header,
    pub(super) ended: MonotonicTime,
    /// The counters before the last batch was read.
    pub(super) counts_before: KernelCounts,
    /// The counters after it.
    pub(super) counts: KernelCounts,
    /// What changes at its end.
    pub(super) adjustment: Adjustment,
    /// Whether sampling has stopped, which makes the kernel's count of ticks final.
    pub(super) is_last: bool,
}
