//! A recorded capture as a source of samples, for the user-space pipeline without privileges.

use std::{collections::VecDeque, path::Path, time::Duration};

use profiler_addresses::MonotonicTime;
use profiler_profile::Loss;

use crate::{
    batch::Batch,
    capture::{Capture, read},
    counts::KernelCounts,
    error::Result,
    source::SampleSource,
};

/// Returns the batches of a capture in their order.
#[derive(Debug)]
pub struct ReplaySource {
    capture: Capture,
    counts: KernelCounts,
    batches: VecDeque<Batch>,
}

impl ReplaySource {
    /// Reads the events of a capture directory.
    pub fn open(directory: &Path) -> Result<Self> {
        let (capture, batches) = read(directory)?;
        Ok(Self { counts: (&capture.counts).into(), capture, batches: batches.into() })
    }

    /// The metadata of the capture.
    pub fn capture(&self) -> &Capture {
        &self.capture
    }
}

impl SampleSource for ReplaySource {
    fn started(&self) -> MonotonicTime {
        self.capture.started
    }

    fn cpus(&self) -> u32 {
        self.capture.cpus
    }

    fn read(&mut self, _wait: Duration) -> Result<Batch> {
        Ok(self.batches.pop_front().unwrap_or_default())
    }

    fn stop(&mut self) -> Result<MonotonicTime> {
        Ok(self.capture.ended)
    }

    fn is_exhausted(&self) -> bool {
        self.batches.is_empty()
    }

    fn lost(&self) -> Result<u64> {
        let lost = self.counts.events.iter().filter_map(|event| event.lost.get(&Loss::RingBufferFull));
        Ok(lost.fold(0, |sum, lost| sum.saturating_add(*lost)))
    }

    fn counts(&mut self) -> Result<KernelCounts> {
        Ok(self.counts.clone())
    }
}
