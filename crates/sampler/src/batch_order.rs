//! Puts the records of all CPUs that a source drains into time order, batch by batch.

use profiler_addresses::MonotonicTime;
use profiler_processes::{SidebandEvent, TimeOrdered};

use crate::{batch::Batch, sample::RawSample};

/// The records that are later than the watermark of the last batch.
#[derive(Debug)]
pub struct BatchOrder {
    samples: TimeOrdered<RawSample>,
    events: TimeOrdered<SidebandEvent>,
}

impl Default for BatchOrder {
    /// No record is pending.
    fn default() -> Self {
        Self { samples: TimeOrdered::new(|sample| sample.time), events: TimeOrdered::new(|event| event.time) }
    }
}

impl BatchOrder {
    /// Keeps what is later than the watermark for the next batch, and puts the rest into time order.
    pub fn order(&mut self, batch: &mut Batch, watermark: MonotonicTime) {
        let late_before = self.events.late();
        self.samples.push(batch.samples.drain(..));
        self.events.push(batch.events.drain(..));
        batch.samples = self.samples.release_before(watermark);
        batch.events = self.events.release_before(watermark);
        batch.watermark = watermark;
        batch.late_events = self.events.late() - late_before;
    }
}
