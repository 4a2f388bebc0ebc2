//! Off-CPU time: each wait of a thread, from its switch off a CPU to its switch onto one.

use std::time::Duration;

use profiler_addresses::MonotonicTime;
use profiler_common::{
    Config, Counter, RecordKind, names,
    off_cpu::{LEAST_STACK_COPIES_PER_CPU, OffCpuConfig, OffCpuRecord, STACK_COPIES},
    wall::WaitState,
};
use profiler_profile::{Event, EventLedger, Loss, Sampling};
use zerocopy::FromBytes;

use super::{
    super::{
        counted_waits::CountedWaits,
        iterator_pass::MAX_WAITING_THREADS,
        kernel_types::OFF_CPU,
        off_cpu::OffCpuWaits,
        programs::{EventContext, ProgramLoader},
    },
    kind::{ArrivedSamples, EventKind, LoadedEvent, Waits},
    settings::EventSettings,
};
use crate::{
    batch::Batch,
    counts::{KernelCounts, add_loss},
    ebpf::counters::Counters,
    error::Result,
};

/// Which waits are recorded, and with what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "capture", derive(serde::Serialize, serde::Deserialize))]
pub struct OffCpu {
    /// The least length of a wait.
    pub min_block: Duration,
    /// Whether the stack of the thread that ends a wait is captured.
    pub wakers: bool,
    /// Whether waits in the state [`Disk`](profiler_profile::ThreadState::Disk) alone are recorded, up to the time at which the
    /// thread is woken.
    pub only_disk: bool,
}

impl OffCpu {
    fn min_ns(&self) -> u64 {
        u64::try_from(self.min_block.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// The stacks that are copied at switches of each CPU.
fn copies_per_cpu(context: &EventContext<'_>) -> u32 {
    (STACK_COPIES / context.possible_cpus.max(1)).max(LEAST_STACK_COPIES_PER_CPU)
}

impl EventKind for OffCpu {
    fn add_to(&self, settings: &mut EventSettings, _timer_hz: u64) {
        settings.off_cpu = Some(*self);
    }

    fn events(&self, _timer_hz: u64) -> Vec<Event> {
        let name = if self.only_disk { Event::IO } else { Event::OFF_CPU };
        vec![Event { name: name.to_owned(), sampling: Sampling::Durations { min_ns: self.min_ns() } }]
    }

    fn load(&self, first: u16, loader: &ProgramLoader<'_>) -> Result<Box<dyn LoadedEvent>> {
        let waits = OffCpuWaits::load(loader)?;
        Ok(Box::new(LoadedWaits { waits, counted: CountedWaits::new(first, self.only_disk) }))
    }

    fn waits(&self) -> Option<Waits> {
        Some(Waits { need: OFF_CPU, without: "off-CPU time is not measured (--off-cpu, --io)" })
    }

    fn has_unbounded_rate(&self) -> bool {
        true
    }

    fn map_entries(&self, context: &EventContext<'_>) -> Vec<(&'static str, u32)> {
        let copies_stacks = context.uses_unwinder && !self.min_block.is_zero();
        let copies = copies_per_cpu(context).saturating_mul(context.possible_cpus);
        vec![
            (names::MAP_OFF_CPU_THREADS, MAX_WAITING_THREADS),
            (names::MAP_STACKS_AT_SWITCH, if copies_stacks { copies } else { 1 }),
        ]
    }

    fn configure(&self, config: &mut Config, context: &EventContext<'_>) {
        config.off_cpu = OffCpuConfig {
            min_block_ns: self.min_ns(),
            wakers: self.wakers.into(),
            only_state: if self.only_disk { WaitState::Disk as u32 } else { 0 },
            copies_per_cpu: copies_per_cpu(context),
            reserved: 0,
        };
    }

    fn settle(&self, counted: &EventLedger, arrived: &ArrivedSamples) -> EventLedger {
        let lost = counted.lost_total();
        // Before the end, records are on their way.
        let missing = if arrived.is_last { counted.due.saturating_sub(lost) } else { 0 };
        let due = arrived.samples.saturating_add(missing).saturating_add(lost);
        EventLedger { due: due.saturating_sub(arrived.foreign), ..counted.clone() }
    }
}

struct LoadedWaits {
    waits: OffCpuWaits,
    counted: CountedWaits,
}

impl LoadedEvent for LoadedWaits {
    fn start(&mut self, started: MonotonicTime) -> Result<()> {
        self.counted.start(started);
        self.waits.start()
    }

    fn decode(&mut self, kind: RecordKind, record: &[u8], batch: &mut Batch) -> Option<()> {
        (kind == RecordKind::OffCpu).then(|| decode(record, &mut self.counted, batch))?
    }

    /// What is due are records that were not decoded, and losses: a wait has several samples, or none so far.
    fn count(&self, counters: &Counters, counts: &mut KernelCounts) -> Result<()> {
        let lost_records = counters.get(Counter::OffCpuLostRingBuffer)?;
        let written = counters.get(Counter::OffCpuRecords)?.saturating_sub(lost_records);
        let mut ledger = EventLedger {
            short_waits: counters.get(Counter::OffCpuShort)?,
            short_waits_ns: counters.get(Counter::OffCpuShortNs)?,
            ..EventLedger::default()
        };
        add_loss(&mut ledger, Loss::RingBufferFull, lost_records);
        // These waits have no record.
        add_loss(&mut ledger, Loss::TooManyThreads, counters.get(Counter::OffCpuLostThread)?);
        ledger.due = written.saturating_sub(self.counted.decoded()) + ledger.lost_total();
        counts.run_time_ns += counters.get(Counter::OffCpuRunTimeNs)?;
        counts.events.push(ledger);
        Ok(())
    }

    fn stop(&mut self) {
        self.waits.stop();
    }

    fn run_due(&mut self, _batch: &mut Batch) -> Result<()> {
        self.waits.run_due()
    }

    fn run_last(&mut self, _batch: &mut Batch) -> Result<()> {
        self.waits.run_pass()
    }

    fn add_unfinished(&mut self, until: MonotonicTime, batch: &mut Batch) -> Result<()> {
        let (threads, ended) = self.waits.waiting_threads(until)?;
        self.counted.add_unfinished(threads, ended, batch);
        Ok(())
    }
}

/// Decodes the record of a wait; `None` if it is malformed.
pub(super) fn decode(record: &[u8], counted: &mut CountedWaits, batch: &mut Batch) -> Option<()> {
    let (record, _) = OffCpuRecord::read_from_prefix(record).ok()?;
    counted.end(&record, batch)
}
