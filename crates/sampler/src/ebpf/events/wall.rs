//! Wall-clock samples: passes over threads that wait, and ticks of threads that run.

use profiler_addresses::MonotonicTime;
use profiler_common::{Counter, RecordKind, names, requested_stack::MAX_STACK_REQUESTS, wall::WaitRecord};
use profiler_processes::Pid;
use profiler_profile::{Event, EventLedger, Loss, ThreadState};
use zerocopy::FromBytes;

use super::{
    super::{
        iterator_pass::MAX_WAITING_THREADS,
        kernel_types::WAITING_THREADS,
        programs::{EventContext, ProgramLoader},
        records,
        wall::WallPasses,
        wall_thread::WallThread,
    },
    cpu_ticks::CpuTicks,
    kind::{ArrivedSamples, EventKind, LoadedEvent, Waits},
    settings::EventSettings,
    wall_share::WallShare,
};
use crate::{
    batch::Batch,
    counts::{KernelCounts, add_loss},
    ebpf::counters::Counters,
    error::{Error, ErrorKind, Result},
};

/// Passes over threads that are not on a CPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wall {
    pub(super) frequency_hz: u64,
}

impl Wall {
    /// The ticks of CPUs in a session without CPU samples: they are samples of this event alone.
    pub(super) const TICKS: CpuTicks = CpuTicks { name: Event::WALL, state: Some(ThreadState::OnCpu) };
}

impl EventKind for Wall {
    fn add_to(&self, settings: &mut EventSettings, _timer_hz: u64) {
        settings.wall_hz = Some(self.frequency_hz);
    }

    fn events(&self, _timer_hz: u64) -> Vec<Event> {
        vec![Event::at_frequency(Event::WALL, self.frequency_hz)]
    }

    fn load(&self, first: u16, loader: &ProgramLoader<'_>) -> Result<Box<dyn LoadedEvent>> {
        let passes = WallPasses::load(loader, self.frequency_hz, first)?;
        Ok(Box::new(LoadedWall { event: first, passes: Some(passes), thread: None }))
    }

    fn waits(&self) -> Option<Waits> {
        Some(Waits { need: WAITING_THREADS, without: "threads that wait are not sampled (--wall)" })
    }

    fn notes_mutex_waits(&self) -> bool {
        true
    }

    fn share_of_ticks(&self, timer_hz: u64) -> Option<WallShare> {
        Some(WallShare::new(self.frequency_hz, timer_hz))
    }

    fn map_entries(&self, context: &EventContext<'_>) -> Vec<(&'static str, u32)> {
        let requests = if context.types.copies_stacks_of_tasks() { 1 } else { MAX_STACK_REQUESTS };
        vec![
            (names::MAP_WAITING_THREADS, MAX_WAITING_THREADS),
            (names::MAP_SCANNED_THREADS, MAX_WAITING_THREADS),
            (names::MAP_STACK_REQUESTS, requests),
        ]
    }

    fn settle(&self, counted: &EventLedger, arrived: &ArrivedSamples) -> EventLedger {
        // Ticks of threads that still wait have no record before the end.
        let received = arrived.samples.saturating_add(counted.lost_total());
        let due = if arrived.is_last { counted.due } else { received.min(counted.due) };
        EventLedger { due: due.saturating_sub(arrived.foreign), ..counted.clone() }
    }
}

struct LoadedWall {
    event: u16,
    /// Until they start.
    passes: Option<WallPasses>,
    thread: Option<WallThread>,
}

impl LoadedEvent for LoadedWall {
    fn start(&mut self, _started: MonotonicTime) -> Result<()> {
        let started = self.passes.take().map(WallThread::start).transpose();
        self.thread = started.map_err(|error| {
            Error::with_source(ErrorKind::Io, "failed to start the thread of wall-clock samples", error)
        })?;
        Ok(())
    }

    fn decode(&mut self, kind: RecordKind, record: &[u8], batch: &mut Batch) -> Option<()> {
        (kind == RecordKind::Wait).then(|| decode(record, self.event, batch))?
    }

    fn count(&self, counters: &Counters, counts: &mut KernelCounts) -> Result<()> {
        let mut ledger = EventLedger::default();
        if let Some(thread) = &self.thread {
            ledger.due = counters.get(Counter::WallTicks)? + thread.flushed_ticks();
            add_loss(&mut ledger, Loss::ThreadRan, counters.get(Counter::WallLostAwake)?);
            add_loss(&mut ledger, Loss::RingBufferFull, counters.get(Counter::WallLostRingBuffer)?);
            add_loss(&mut ledger, Loss::TooManyThreads, counters.get(Counter::WallLostThread)?);
        }
        counts.events.push(ledger);
        Ok(())
    }

    fn resume(&self) {
        self.thread.iter().for_each(WallThread::resume);
    }

    fn run_due(&mut self, batch: &mut Batch) -> Result<()> {
        self.thread.as_mut().map_or(Ok(()), |thread| thread.read(batch))
    }

    fn run_last(&mut self, batch: &mut Batch) -> Result<()> {
        self.thread.as_mut().map_or(Ok(()), |thread| thread.run_last(batch))
    }
}

/// Decodes the record of a thread that waited; `None` if it is malformed.
pub(super) fn decode(record: &[u8], event: u16, batch: &mut Batch) -> Option<()> {
    let (record, _) = WaitRecord::read_from_prefix(record).ok()?;
    batch.samples.push(records::waiting_sample(&record.thread, event)?);
    let pid = Pid(record.thread.pid);
    if record.thread.may_await_mutex != 0 && batch.mutex_waits.last() != Some(&pid) {
        batch.mutex_waits.push(pid);
    }
    Some(())
}
