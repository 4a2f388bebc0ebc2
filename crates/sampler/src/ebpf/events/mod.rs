//! The kinds of events that a session samples. A module for each has all that is particular to it: its settings and their
//! limits, its programs and maps, its counters and how they become losses, its events in a profile, and what a session is
//! without it. The plan, the loader, the counts and the ledger go over a list of kinds.

mod cpu_ticks;
mod occurrences;
mod off_cpu;
mod settings;
mod wall;

use std::{fmt, os::fd::BorrowedFd, sync::Arc};

use profiler_common::{Config, RecordKind};
use profiler_profile::{Event, EventLedger, Loss};

use self::cpu_ticks::CpuTicks;
pub use self::settings::{DEFAULT_FREQUENCY_HZ, MAX_COUNTED_EVENTS};
pub use self::{
    occurrences::{PlannedEvent, ProbePlace, ProbedFile},
    off_cpu::OffCpu,
    settings::EventSettings,
    wall::WallShare,
};
#[cfg(any(test, fuzzing))]
use super::counted_waits::CountedWaits;
use super::programs::{EventContext, ProgramLoader};
#[cfg(any(test, fuzzing))]
use crate::Origin;
use crate::{Batch, Counters, KernelCounts, error::Result, sys::perf::PerfEvent};

/// The warning of a session without all kinds that sample threads that wait.
pub(crate) const WITHOUT_WAITS: &str = "threads that wait are not sampled (--wall, --off-cpu)";

/// A kind of event in a plan.
pub(crate) trait EventKind: fmt::Debug + Send + Sync {
    /// Its events in a profile. `timer_hz` is the frequency of the timers of CPUs.
    fn events(&self, timer_hz: u64) -> Vec<Event>;

    /// Loads its programs. `first` is the index of its first event among those of all kinds.
    fn load(&self, first: u16, loader: &ProgramLoader<'_>) -> Result<Box<dyn LoadedEvent>>;

    /// The account of one of its events at the end of an interval: what was due up to then, and the losses that are final.
    /// `counted` is what the kernel counted.
    fn settle(&self, counted: &EventLedger, arrived: &ArrivedSamples) -> EventLedger;

    /// Whether its samples are the ticks of the timers of CPUs.
    fn counts_ticks(&self) -> bool {
        false
    }

    /// Whether a session with it has samples where the kernel does not support other kinds.
    fn is_sufficient(&self) -> bool {
        false
    }

    /// Of a kind that samples threads that wait. Its programs read fields of tasks, which not every kernel has.
    fn waits(&self) -> Option<Waits> {
        None
    }

    /// Whether the rate of its samples has no limit, so that the ring buffer has to hold many.
    fn has_unbounded_rate(&self) -> bool {
        false
    }

    /// Whether its values are measures, which are taken between profiles.
    fn is_measured(&self) -> bool {
        false
    }

    /// The part of the ticks of CPUs that its event counts as well.
    fn share_of_ticks(&self, _timer_hz: u64) -> Option<WallShare> {
        None
    }

    /// The entries of its maps, by name. Maps of other kinds have one.
    fn map_entries(&self, _context: &EventContext<'_>) -> Vec<(&'static str, u32)> {
        Vec::new()
    }

    /// Sets its constants.
    fn configure(&self, _config: &mut Config, _context: &EventContext<'_>) {}

    /// Opens its perf events on a CPU, disabled, with the index of the event of each.
    fn open_on_cpu(&self, _cpu: u32, _first: u16) -> Result<Vec<(u16, PerfEvent)>> {
        Ok(Vec::new())
    }
}

/// What is said of a kind that samples threads that wait, where the kernel does not support it.
#[derive(Clone, Copy, Debug)]
pub struct Waits {
    /// What cannot be done without the kernel's types.
    pub need: &'static str,
    /// What a session without it lacks.
    pub without: &'static str,
}

/// A kind whose programs are loaded. Dropping it detaches and unloads them.
pub(crate) trait LoadedEvent: Send {
    /// Attaches the programs. `started_ns` is the start of sampling, `CLOCK_MONOTONIC` nanoseconds.
    fn start(&mut self, started_ns: u64) -> Result<()>;

    /// Decodes a record; `None` if it is not of this kind, or malformed.
    fn decode(&mut self, kind: RecordKind, record: &[u8], batch: &mut Batch) -> Option<()>;

    /// Adds what was counted since the start: the ledger of each event, and the run time of the programs where it is not in
    /// the counter of all.
    fn count(&self, counters: &Counters, counts: &mut KernelCounts) -> Result<()>;

    /// The program that runs at each tick of the timers of CPUs. The first call waits until it is loaded.
    fn timer_program(&mut self) -> Result<Option<BorrowedFd<'_>>> {
        Ok(None)
    }

    /// Attaches the program of a perf event on a CPU, if the event with this index is of this kind.
    fn start_on_cpu(&self, _index: u16, _event: &PerfEvent) -> std::io::Result<()> {
        Ok(())
    }

    /// Detaches the programs. Their records can still be read.
    fn stop(&mut self) {}

    /// Lets passes run after the end of an interval: its samples and counters were read.
    fn resume(&self) {}

    /// Runs the pass that is due, and adds samples without a record.
    fn run_due(&mut self, _batch: &mut Batch) -> Result<()> {
        Ok(())
    }

    /// Runs the last pass of an interval, and adds samples without a record. No pass follows before [`resume`](Self::resume).
    fn run_last(&mut self, _batch: &mut Batch) -> Result<()> {
        Ok(())
    }

    /// Adds the samples so far of waits that last at the end of an interval, up to a time. All pending records were decoded.
    fn add_unfinished(&mut self, _until_ns: u64, _batch: &mut Batch) -> Result<()> {
        Ok(())
    }
}

/// What has arrived of an event since the start.
#[derive(Clone, Copy, Debug)]
pub struct ArrivedSamples {
    /// As the ledger counts samples.
    pub samples: u64,
    /// The number of records.
    pub records: u64,
    /// Of the samples, those of processes that are not targets.
    pub foreign: u64,
    /// What was due before the last batch was read.
    pub due_before: u64,
    /// The CPUs that are sampled.
    pub cpus: u32,
    /// Whether sampling has stopped, which makes the kernel's counts final.
    pub is_last: bool,
}

/// The events of a session.
#[derive(Clone, Debug, Default)]
pub struct EventPlan {
    /// The frequency of the timers of CPUs, hertz; 0 is no timer.
    pub timer_hz: u64,
    /// In the order of their events.
    pub(crate) kinds: Vec<Arc<dyn EventKind>>,
}

impl EventPlan {
    /// CPU samples at a frequency, hertz.
    pub fn cpu_samples(timer_hz: u64) -> Self {
        Self { timer_hz, kinds: vec![Arc::new(CpuTicks::CPU_CLOCK)] }
    }

    /// The events of a profile. An event that two kinds sample is there twice.
    pub fn events(&self) -> Vec<Event> {
        self.kinds.iter().flat_map(|kind| kind.events(self.timer_hz)).collect()
    }

    /// Each kind with the index of its first event.
    pub(crate) fn indexed(&self) -> impl Iterator<Item = (u16, &dyn EventKind)> {
        self.kinds.iter().scan(0, |next, kind| {
            let first = *next;
            // At most `MAX_EVENTS` of each kind.
            *next += kind.events(self.timer_hz).len() as u16;
            Some((first, &**kind))
        })
    }

    /// The events that count a share of the ticks of CPUs as well, by index.
    pub fn shares_of_ticks(&self) -> impl Iterator<Item = (u16, WallShare)> {
        self.indexed().filter_map(|(first, kind)| Some((first, kind.share_of_ticks(self.timer_hz)?)))
    }

    /// The index of the event whose samples are the ticks of the timers of CPUs.
    pub fn ticks_index(&self) -> Option<u16> {
        self.indexed().find(|(_, kind)| kind.counts_ticks()).map(|(first, _)| first)
    }

    /// What is said of the first kind that samples threads that wait; `None` without such a kind.
    pub fn waits(&self) -> Option<Waits> {
        self.kinds.iter().find_map(|kind| kind.waits())
    }

    /// Whether the rate of samples has no limit.
    pub fn has_unbounded_rate(&self) -> bool {
        self.kinds.iter().any(|kind| kind.has_unbounded_rate())
    }

    /// The events whose values are measures, and the indices that they have in this plan.
    pub fn measured(&self) -> (Self, Vec<u16>) {
        let measured = |kind: &dyn EventKind| kind.is_measured();
        let kinds = self.kinds.iter().filter(|kind| measured(&***kind)).cloned().collect();
        let indices = self.indexed().filter(|(_, kind)| measured(*kind));
        let indices = indices.flat_map(|(first, kind)| (first..).take(kind.events(self.timer_hz).len()));
        (Self { timer_hz: self.timer_hz, kinds }, indices.collect())
    }

    /// The account of each event at the end of an interval, by index. `arrived` returns what has arrived of an event.
    pub fn settle(
        &self,
        counted: &[EventLedger],
        arrived: impl Fn(usize) -> ArrivedSamples,
    ) -> Vec<EventLedger> {
        let kinds =
            self.indexed().flat_map(|(_, kind)| std::iter::repeat_n(kind, kind.events(self.timer_hz).len()));
        let default = EventLedger::default();
        let settle = |(index, kind): (usize, &dyn EventKind)| {
            kind.settle(counted.get(index).unwrap_or(&default), &arrived(index))
        };
        kinds.enumerate().map(settle).collect()
    }

    /// Plans without kinds that a kernel may not support, and the warning for each. Samples remain in all of them.
    pub fn reduced(&self) -> Vec<(Self, &'static str)> {
        if !self.kinds.iter().any(|kind| kind.is_sufficient()) {
            return Vec::new();
        }
        let without = |is_left_out: &dyn Fn(&Arc<dyn EventKind>) -> bool| {
            let kinds = self.kinds.iter().filter(|kind| !is_left_out(kind)).cloned().collect();
            Self { timer_hz: self.timer_hz, kinds }
        };
        let optional: Vec<_> = self.kinds.iter().filter_map(|kind| Some((kind, kind.waits()?))).collect();
        let without_one = |(kind, waits): &(&Arc<dyn EventKind>, Waits)| {
            (without(&|other| Arc::ptr_eq(other, kind)), waits.without)
        };
        let mut plans: Vec<_> = optional.iter().map(without_one).collect();
        if optional.len() > 1 {
            plans.push((without(&|kind| kind.waits().is_some()), WITHOUT_WAITS));
        }
        plans
    }
}

/// Adds a loss that is not 0.
pub fn add_loss(ledger: &mut EventLedger, loss: Loss, count: u64) {
    if count > 0 {
        let sum = ledger.lost.entry(loss).or_default();
        *sum = sum.saturating_add(count);
    }
}

/// Decodes a record of one event of each kind.
#[cfg(any(test, fuzzing))]
pub(super) fn decode_sample(kind: RecordKind, record: &[u8], batch: &mut Batch) -> Option<()> {
    match kind {
        RecordKind::Sample => cpu_ticks::decode(record, Origin::default(), batch),
        RecordKind::Wait => wall::decode(record, 1, batch),
        RecordKind::OffCpu => off_cpu::decode(record, &mut CountedWaits::new(2, false), batch),
        RecordKind::Event => occurrences::decode(record, 3, batch),
        RecordKind::Stack | RecordKind::StaleMappings => None,
    }
}
