//! What one read of a source returns.

use profiler_addresses::MonotonicTime;
use profiler_processes::{Pid, SidebandEvent};

use crate::{sample::RawSample, stack::RawStack};

/// What one read of a source returns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "capture", derive(serde::Serialize, serde::Deserialize))]
pub struct Batch {
    /// Stacks that are new.
    pub stacks: Vec<RawStack>,
    /// Samples, by time.
    pub samples: Vec<RawSample>,
    /// Sideband events, by time. All events before a sample of this batch are here or in an earlier batch.
    pub events: Vec<SidebandEvent>,
    /// All events before this time are in this batch or an earlier one.
    #[cfg_attr(feature = "capture", serde(skip))]
    pub watermark: MonotonicTime,
    /// Whether events are missing, or a ring of them was full.
    #[cfg_attr(feature = "capture", serde(default))]
    pub may_lack_events: bool,
    /// Events of this batch that belong before those of an earlier one.
    #[cfg_attr(feature = "capture", serde(default))]
    pub late_events: u64,
    /// Processes whose mappings in the unwind maps are missing or stale.
    #[cfg_attr(feature = "capture", serde(skip))]
    pub stale_mappings: Vec<Pid>,
    /// Processes in which a thread may wait for a mutex of the GNU C library, as far as its system call shows.
    #[cfg_attr(feature = "capture", serde(skip))]
    pub mutex_waits: Vec<Pid>,
    /// Records of samples and stacks that could not be decoded.
    pub undecodable: u64,
    /// Sideband records that the kernel dropped, or that could not be decoded.
    pub lost_events: u64,
}

impl Batch {
    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The number of stacks, samples and events.
    pub fn records(&self) -> usize {
        self.stacks.len() + self.samples.len() + self.events.len()
    }

    /// Appends the next batch.
    pub fn append(&mut self, next: Self) {
        let Self {
            stacks,
            samples,
            events,
            watermark,
            may_lack_events,
            late_events,
            stale_mappings,
            mutex_waits,
            undecodable,
            lost_events,
        } = next;
        self.stacks.extend(stacks);
        self.samples.extend(samples);
        self.events.extend(events);
        self.watermark = self.watermark.max(watermark);
        self.may_lack_events |= may_lack_events;
        // The numbers of a capture are any.
        self.late_events = self.late_events.saturating_add(late_events);
        self.stale_mappings.extend(stale_mappings);
        self.mutex_waits.extend(mutex_waits);
        self.undecodable = self.undecodable.saturating_add(undecodable);
        self.lost_events = self.lost_events.saturating_add(lost_events);
    }
}
