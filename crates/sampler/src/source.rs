//! The interface of a source of samples: the BPF programs, a capture, or a simulation.

use std::time::Duration;

use profiler_addresses::MonotonicTime;

use crate::{batch::Batch, counts::KernelCounts, error::Result};

/// A source of samples and sideband events.
pub trait SampleSource: Send {
    /// The start of sampling.
    fn started(&self) -> MonotonicTime;

    /// The number of CPUs that are sampled.
    fn cpus(&self) -> u32;

    /// Waits for records, at most `wait`, and returns all that are pending.
    fn read(&mut self, wait: Duration) -> Result<Batch>;

    /// Returns the last batch of an interval: all records that are pending, and the waits so far of threads that still wait.
    fn end_interval(&mut self) -> Result<Batch> {
        self.read(Duration::ZERO)
    }

    /// Changes the frequency of CPU samples, hertz, at most to that of the start; 0 takes no CPU sample.
    fn set_frequency_hz(&mut self, _frequency_hz: u64) -> Result<()> {
        Ok(())
    }

    /// Stops sampling, and returns its end. Pending records can still be read.
    fn stop(&mut self) -> Result<MonotonicTime>;

    /// Whether no further records will come.
    fn is_exhausted(&self) -> bool;

    /// Samples lost so far because the reader was too slow.
    fn lost(&self) -> Result<u64>;

    /// The counters of the BPF programs.
    fn counts(&mut self) -> Result<KernelCounts>;
}
