//! Events that are sampled at their occurrences: software and hardware events, tracepoints, probes, system calls.

use std::io;

use profiler_addresses::MonotonicTime;
use profiler_common::{
    RecordKind,
    event::{EventRecord, MAX_EVENTS},
    names,
    system_call::SystemCallAbi,
};
use profiler_profile::{Event, EventLedger, Loss, Sampling};
use zerocopy::FromBytes;

use super::{
    super::{
        counted_events::{CountedEvents, open_on_cpu},
        iterator_pass::MAX_WAITING_THREADS,
        programs::{EventContext, ProgramLoader},
        records,
    },
    kind::{ArrivedSamples, EventKind, LoadedEvent},
    settings::EventSettings,
};
use crate::{
    batch::Batch,
    counts::{KernelCounts, add_loss},
    ebpf::counters::Counters,
    error::Result,
    planned_event::PlannedEvent,
    sample::{CalledSystemCall, Origin, RawSample},
    sys::perf::PerfEvent,
};

/// All events of a session that are sampled at their occurrences.
#[derive(Debug)]
pub(super) struct Occurrences {
    pub(super) events: Vec<PlannedEvent>,
}

impl EventKind for Occurrences {
    fn add_to(&self, settings: &mut EventSettings, _timer_hz: u64) {
        settings.counted.extend(self.events.iter().map(|planned| planned.event.clone()));
    }

    fn events(&self, _timer_hz: u64) -> Vec<Event> {
        let event = |PlannedEvent { event, .. }: &PlannedEvent| {
            let period = event.period().get();
            let sampling = match event.weight() {
                Some(_) if event.is_weighted_by_time() => Sampling::Times { period },
                Some(_) => Sampling::Sums { period },
                None => Sampling::Occurrences { period },
            };
            Event { name: event.name_with_weight(), sampling }
        };
        self.events.iter().map(event).collect()
    }

    fn load(&self, first: u16, loader: &ProgramLoader<'_>) -> Result<Box<dyn LoadedEvent>> {
        Ok(Box::new(LoadedOccurrences { first, events: CountedEvents::load(&self.events, loader)? }))
    }

    fn has_unbounded_rate(&self) -> bool {
        true
    }

    fn is_measured(&self) -> bool {
        true
    }

    fn map_entries(&self, _context: &EventContext<'_>) -> Vec<(&'static str, u32)> {
        // At most `MAX_EVENTS`.
        let events = self.events.len() as u32;
        let mut entries = vec![(names::MAP_EVENT_COUNTS, events), (names::MAP_EVENT_SCRATCH, events)];
        if self.events.iter().any(|planned| planned.event.needs_duration()) {
            entries.push((names::MAP_SYSTEM_CALLS, MAX_WAITING_THREADS));
        }
        entries
    }

    fn open_on_cpu(&self, cpu: u32, first: u16) -> Result<Vec<(u16, PerfEvent)>> {
        let opened = (first..).zip(&self.events).filter_map(|(index, PlannedEvent { event, .. })| {
            Some(open_on_cpu(cpu, event)?.map(|opened| (index, opened)))
        });
        opened.collect()
    }

    fn settle(&self, counted: &EventLedger, arrived: &ArrivedSamples) -> EventLedger {
        let mut settled = counted.clone();
        if !arrived.is_last {
            // Those that were skipped will be in the next sample of their CPU, and samples are on their way.
            settled.lost.remove(&Loss::OverheadLimit);
            settled.due = counted.due.min(arrived.samples.saturating_add(settled.lost_total()));
        }
        settled.due = settled.due.saturating_sub(arrived.foreign);
        settled
    }
}

struct LoadedOccurrences {
    first: u16,
    events: CountedEvents,
}

impl LoadedEvent for LoadedOccurrences {
    fn start(&mut self, _started: MonotonicTime) -> Result<()> {
        self.events.start()
    }

    fn start_on_cpu(&self, index: u16, event: &PerfEvent) -> io::Result<()> {
        index.checked_sub(self.first).map_or(Ok(()), |index| self.events.start_on_cpu(index.into(), event))
    }

    fn decode(&mut self, kind: RecordKind, record: &[u8], batch: &mut Batch) -> Option<()> {
        (kind == RecordKind::Event).then(|| decode(record, self.first, batch))?
    }

    fn count(&self, _counters: &Counters, counts: &mut KernelCounts) -> Result<()> {
        for event in self.events.counts()? {
            let mut ledger = EventLedger { due: event.due + event.lost_nested, ..EventLedger::default() };
            add_loss(&mut ledger, Loss::OverheadLimit, event.skipped);
            add_loss(&mut ledger, Loss::RingBufferFull, event.lost_ring_buffer);
            add_loss(&mut ledger, Loss::NoThreadId, event.lost_thread_id);
            add_loss(&mut ledger, Loss::Nested, event.lost_nested);
            counts.run_time_ns += event.run_time_ns;
            counts.events.push(ledger);
        }
        Ok(())
    }

    fn stop(&mut self) {
        self.events.stop();
    }
}

/// Decodes the record of an occurrence; `None` if it is malformed. `first` is the index of the first event of the kind.
pub(super) fn decode(record: &[u8], first: u16, batch: &mut Batch) -> Option<()> {
    let (record, _) = EventRecord::read_from_prefix(record).ok()?;
    let event = u16::try_from(record.event).ok().filter(|event| usize::from(*event) < MAX_EVENTS)?;
    let system_call = match record.system_call_abi {
        0 => None,
        abi => Some(CalledSystemCall { number: record.system_call, abi: SystemCallAbi::from_number(abi)? }),
    };
    let origin = Origin { event: first + event, ..Origin::default() };
    batch.samples.push(RawSample { system_call, ..records::sample_of(&record.sample, origin, record.value) });
    Some(())
}
