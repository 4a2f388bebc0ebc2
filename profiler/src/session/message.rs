//! What the reader thread sends to the pipeline thread.

use profiler_addresses::MonotonicTime;
use profiler_sampler::{Batch, KernelCounts};

use super::Request;

/// One message.
#[derive(Debug)]
pub(super) enum Message {
    /// A batch and the time at which it was read.
    Batch(Batch, MonotonicTime),
    /// A request, after all batches up to its end. `counts` is `Some` for a profile.
    Request { request: Request, counts: Option<Box<IntervalCounts>>, ended: MonotonicTime },
}

/// The counters at the end of an interval.
#[derive(Debug)]
pub(super) struct IntervalCounts {
    /// The counters before the last batch was read.
    pub(super) counts_before: KernelCounts,
    /// The counters after it.
    pub(super) counts: KernelCounts,
}
