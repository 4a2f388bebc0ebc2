//! Ticks of the timers of CPUs that hit a thread of the target.

use std::os::fd::BorrowedFd;

use profiler_addresses::MonotonicTime;
use profiler_common::{Counter, RecordKind, SampleRecord};
use profiler_profile::{Event, EventLedger, Loss, ThreadState};
use zerocopy::FromBytes;

use super::{
    super::{programs::ProgramLoader, records, sampling_program::SamplingProgram},
    kind::{ArrivedSamples, EventKind, LoadedEvent},
    settings::EventSettings,
};
use crate::{
    batch::Batch,
    counts::{KernelCounts, add_loss},
    ebpf::counters::Counters,
    error::Result,
    sample::Origin,
};

/// Ticks of CPUs, which are samples of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CpuTicks {
    /// The name of the event.
    pub(super) name: &'static str,
    /// The state of their threads, for an event that has states.
    pub(super) state: Option<ThreadState>,
}

impl CpuTicks {
    /// The event of CPU samples.
    pub(crate) const CPU_CLOCK: Self = Self { name: Event::CPU_CLOCK, state: None };
}

impl EventKind for CpuTicks {
    /// The ticks of a session without CPU samples follow from its other settings.
    fn add_to(&self, settings: &mut EventSettings, timer_hz: u64) {
        if *self == Self::CPU_CLOCK {
            settings.cpu_samples = true;
            settings.frequency_hz = timer_hz;
        }
    }

    fn events(&self, timer_hz: u64) -> Vec<Event> {
        vec![Event::at_frequency(self.name, timer_hz)]
    }

    fn load(&self, first: u16, loader: &ProgramLoader<'_>) -> Result<Box<dyn LoadedEvent>> {
        let origin = Origin { event: first, state: self.state, is_duration: false };
        Ok(Box::new(LoadedTicks { origin, program: SamplingProgram::start_loading(loader)? }))
    }

    fn counts_ticks(&self) -> bool {
        true
    }

    /// The ticks are all samples of the event, unless threads that wait have some as well.
    fn is_sufficient(&self) -> bool {
        self.state.is_none()
    }

    fn settle(&self, counted: &EventLedger, arrived: &ArrivedSamples) -> EventLedger {
        // The weight of later samples contains ticks that were skipped before.
        let represented = arrived.samples.saturating_sub(arrived.records);
        let unrepresented = counted.skipped_ticks.saturating_sub(represented);
        let mut settled = counted.clone();
        if arrived.is_last {
            add_loss(&mut settled, Loss::OverheadLimit, unrepresented);
        } else {
            let received = arrived.samples.saturating_add(counted.lost_total());
            // A CPU can be between the count of a tick and its record.
            let on_their_way = u64::from(arrived.cpus).saturating_add(unrepresented);
            let least = arrived.due_before.saturating_sub(on_their_way);
            settled.due = received.max(least).min(counted.due);
        }
        settled.due = settled.due.saturating_sub(arrived.foreign);
        settled
    }
}

struct LoadedTicks {
    origin: Origin,
    program: SamplingProgram,
}

impl LoadedEvent for LoadedTicks {
    /// The timers are started on each CPU.
    fn start(&mut self, _started: MonotonicTime) -> Result<()> {
        Ok(())
    }

    fn timer_program(&mut self) -> Result<Option<BorrowedFd<'_>>> {
        self.program.wait().map(Some)
    }

    fn decode(&mut self, kind: RecordKind, record: &[u8], batch: &mut Batch) -> Option<()> {
        (kind == RecordKind::Sample).then(|| decode(record, self.origin, batch))?
    }

    fn count(&self, counters: &Counters, counts: &mut KernelCounts) -> Result<()> {
        let mut ledger = EventLedger {
            due: counters.get(Counter::TargetTicks)?,
            // Those of `due` that were skipped because of the overhead limit.
            skipped_ticks: counters.get(Counter::SkippedTicks)?,
            cut_stacks: counters.get(Counter::CutStacks)?,
            ..EventLedger::default()
        };
        add_loss(&mut ledger, Loss::RingBufferFull, counters.get(Counter::LostRingBuffer)?);
        add_loss(&mut ledger, Loss::NoThreadId, counters.get(Counter::LostThreadId)?);
        counts.events.push(ledger);
        Ok(())
    }
}

/// Decodes the record of a tick; `None` if it is malformed.
pub(super) fn decode(record: &[u8], origin: Origin, batch: &mut Batch) -> Option<()> {
    let (record, _) = SampleRecord::read_from_prefix(record).ok()?;
    batch.samples.push(records::sample_of(&record, origin, record.weight.into()));
    Some(())
}
