//! The interface of a kind of event: in a plan, and when its programs are loaded.

use std::{fmt, os::fd::BorrowedFd};

use profiler_addresses::MonotonicTime;
use profiler_common::{Config, RecordKind};
use profiler_profile::{Event, EventLedger};

use super::{
    super::{
        counters::Counters,
        programs::{EventContext, ProgramLoader},
    },
    settings::EventSettings,
    wall_share::WallShare,
};
use crate::{batch::Batch, counts::KernelCounts, error::Result, sys::perf::PerfEvent};

/// A kind of event in a plan.
pub(crate) trait EventKind: fmt::Debug + Send + Sync {
    /// Adds the settings that request it: [`EventSettings::plan`] makes it of them. `timer_hz` is the frequency of the timers of
    /// CPUs.
    fn add_to(&self, settings: &mut EventSettings, timer_hz: u64);

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

    /// Whether it says in which processes threads may wait for a mutex ([`Batch::mutex_waits`]), where user stacks are sampled.
    fn notes_mutex_waits(&self) -> bool {
        false
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
    /// Attaches the programs. `started` is the start of sampling.
    fn start(&mut self, started: MonotonicTime) -> Result<()>;

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
    fn add_unfinished(&mut self, _until: MonotonicTime, _batch: &mut Batch) -> Result<()> {
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
