//! Wall-clock samples: passes of the task iterator over the target, and the ticks of threads that wait since.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    time::{Duration, Instant},
};

use profiler_common::{
    names,
    wall::{WaitingThread, WallPass},
};
use profiler_processes::{Pid, Tid, monotonic_time};
use zerocopy::{FromBytes, IntoBytes};

use super::{
    iterator_pass::{self, MAX_WAITING_THREADS},
    programs::{ProgramLoader, attach_iterator},
    records,
    requested_stacks::RequestedStacks,
    timers::random_fraction,
    wall_scan::{ScanLinks, WallScanner},
};
use crate::{
    error::{Error, ErrorKind, Result},
    sample::RawSample,
    sys::{
        bpf::{self, ProgramType},
        bpf_link::IteratedTasks,
    },
};

/// How often the BPF program sends the ticks of a thread that still waits.
const RECORD_INTERVAL: Duration = Duration::from_secs(1);

/// How often threads that have ended are removed, with their last ticks.
const FLUSH_INTERVAL: Duration = Duration::from_secs(5);

/// The passes of a session.
#[derive(Debug)]
pub(super) struct WallPasses {
    /// The index of the event.
    event: u16,
    /// The iterator; each pass opens it anew.
    link: OwnedFd,
    /// `None` unless the target is a single process.
    scanner: Option<WallScanner>,
    /// `None` where passes copy stacks.
    requested: Option<RequestedStacks>,
    pass: OwnedFd,
    threads: OwnedFd,
    period: Duration,
    /// The share of the time that passes may take.
    max_share: f64,
    started: Instant,
    /// The number of periods that the passes so far have counted.
    periods: u64,
    /// The number of passes.
    passes: u32,
    /// The ticks of all passes.
    ticks: u64,
    /// The ticks that became samples without a record.
    flushed_ticks: u64,
    /// The ticks up to the last flush: a thread that no later pass has found has most likely ended.
    removal_ticks: u64,
    next_pass: Instant,
    next_flush: Instant,
}

impl WallPasses {
    /// Loads the task iterator, for passes at a frequency, hertz. Samples are of `event`.
    pub(super) fn load(loader: &ProgramLoader<'_>, frequency_hz: u64, event: u16) -> Result<Self> {
        let (link, scanner, requested) = if loader.context.types.copies_stacks_of_tasks() {
            let program = loader.load_iterator(names::PROGRAM_WALL_PASS, true)?;
            let link = attach_iterator(&program, loader.tasks)?;
            let scanner = match loader.tasks {
                IteratedTasks::Process(pid) if loader.config.wall.signal_thread_head != 0 => {
                    load_scanner(loader, pid, program)?
                }
                _ => None,
            };
            (link, scanner, None)
        } else {
            let program = loader.load_iterator(names::PROGRAM_WALL_PASS_REQUESTING, false)?;
            let unwind = loader.load(names::PROGRAM_UNWIND_COPIED, ProgramType::RawTracepoint)?;
            let (requests, copied) =
                (loader.map(names::MAP_STACK_REQUESTS)?, loader.map(names::MAP_COPIED_STACK)?);
            let requested = RequestedStacks::new(unwind, requests, copied);
            (attach_iterator(&program, loader.tasks)?, None, Some(requested))
        };
        let started = Instant::now();
        let mut passes = Self {
            event,
            link,
            scanner,
            requested,
            pass: loader.map(names::MAP_WALL_PASS)?,
            threads: loader.map(names::MAP_WAITING_THREADS)?,
            period: Duration::from_secs(1) / u32::try_from(frequency_hz.max(1)).unwrap_or(u32::MAX),
            max_share: loader.max_overhead_percent / 100.0,
            started,
            periods: 0,
            passes: 0,
            ticks: 0,
            flushed_ticks: 0,
            removal_ticks: 0,
            next_pass: started,
            next_flush: started + FLUSH_INTERVAL,
        };
        passes.plan_next(started);
        Ok(passes)
    }

    /// Begins the first period.
    pub(super) fn start(&mut self) {
        self.started = Instant::now();
        self.next_flush = self.started + FLUSH_INTERVAL;
        self.plan_next(self.started);
    }

    /// The time until the next pass.
    pub(super) fn time_to_next(&self) -> Duration {
        self.next_pass.saturating_duration_since(Instant::now())
    }

    /// Runs the pass that is due. Returns samples without a record, now and then.
    pub(super) fn run(&mut self) -> Result<Vec<RawSample>> {
        let now = Instant::now();
        // A pass counts all periods that began since the previous pass.
        let begun = (now.duration_since(self.started).as_nanos() / self.period.as_nanos().max(1)) as u64 + 1;
        let ticks = u32::try_from(begun.saturating_sub(self.periods)).unwrap_or(u32::MAX);
        let is_flushed = now >= self.next_flush;
        self.visit(ticks, is_flushed).map_err(failed)?;
        self.periods = begun;
        // What a pass takes is a part of the time that is allowed.
        let pause = now.elapsed().div_f64(self.max_share.max(f64::EPSILON));
        self.plan_next(now + pause);
        if is_flushed { self.flush().map_err(failed) } else { Ok(Vec::new()) }
    }

    /// The ticks that became samples without a record.
    pub(super) fn flushed_ticks(&self) -> u64 {
        self.flushed_ticks
    }

    /// Makes a pass due that adds the samples of threads that still wait.
    pub(super) fn plan_flush(&mut self) {
        self.next_flush = Instant::now();
        self.next_pass = self.next_flush;
    }

    /// Turns the ticks of threads that still wait into samples, and removes threads that have ended.
    fn flush(&mut self) -> io::Result<Vec<RawSample>> {
        self.next_flush = Instant::now() + FLUSH_INTERVAL;
        let mut samples = Vec::new();
        for key in bpf::keys::<{ size_of::<u64>() }>(self.threads.as_fd(), MAX_WAITING_THREADS as usize)? {
            self.flush_thread(key, &mut samples)?;
        }
        self.removal_ticks = self.ticks;
        Ok(samples)
    }

    fn flush_thread(&mut self, key: [u8; 8], samples: &mut Vec<RawSample>) -> io::Result<()> {
        let mut value = [0; size_of::<WaitingThread>()];
        bpf::look_up_element(self.threads.as_fd(), &key, &mut value)?;
        let Ok(mut thread) = WaitingThread::read_from_bytes(&value) else { return Ok(()) };
        if thread.ticks() > 0 {
            self.flushed_ticks += thread.ticks();
            samples.extend(records::waiting_sample(&thread, self.event));
        }
        // One that was on a CPU at the last pass keeps its time in run queues.
        if thread.found_ticks <= self.removal_ticks {
            return bpf::delete_element(self.threads.as_fd(), &key);
        }
        thread.end_record(self.period_ns());
        thread.time_ns = monotonic_time().0 + self.period_ns();
        bpf::update_element(self.threads.as_fd(), &key, thread.as_bytes())
    }

    /// Visits the threads that can wait. `visits_all`: the map then has the ticks of all of them.
    fn visit(&mut self, ticks: u32, visits_all: bool) -> io::Result<()> {
        self.passes = self.passes.wrapping_add(1);
        let mut pass = WallPass {
            number: self.passes,
            ticks,
            passes_per_record: (RECORD_INTERVAL.as_nanos() / self.period.as_nanos().max(1)) as u32,
            ends_scans: 0,
            ticks_before: self.ticks,
            period_ns: self.period_ns(),
            requests: 0,
            reserved: 0,
        };
        self.ticks = pass.ticks_after();
        write(&self.pass, &pass)?;
        if let Some(scanner) = &mut self.scanner {
            if !visits_all && scanner.scan(pass.number)? {
                return Ok(());
            }
            if scanner.has_scanned() {
                pass.ends_scans = 1;
                write(&self.pass, &pass)?;
                scanner.end_scans()?;
            }
        }
        iterator_pass::run(self.link.as_fd())?;
        let Some(requested) = &self.requested else { return Ok(()) };
        bpf::look_up_element(self.pass.as_fd(), &0_u32.to_ne_bytes(), pass.as_mut_bytes())?;
        requested.unwind(pass.requests)
    }

    fn period_ns(&self) -> u64 {
        u64::try_from(self.period.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Plans the next pass at a random time of the next period after `earliest`, so that passes do not beat with timers of
    /// the target.
    fn plan_next(&mut self, earliest: Instant) {
        let since_start = earliest.saturating_duration_since(self.started);
        let period = (since_start.as_nanos() / self.period.as_nanos().max(1)) as u64;
        let period = period.max(self.periods);
        let offset = self.period.mul_f64(random_fraction());
        self.next_pass = self.started + self.period * u32::try_from(period).unwrap_or(u32::MAX) + offset;
    }
}

/// Loads the scan of the threads of a process. `None` where the kernel refuses it.
fn load_scanner(loader: &ProgramLoader<'_>, pid: Pid, pass: OwnedFd) -> Result<Option<WallScanner>> {
    let scan = loader.load_iterator(names::PROGRAM_WALL_SCAN, false);
    let links = scan.and_then(|scan| {
        let attach = |pid| attach_iterator(&scan, IteratedTasks::Thread(Tid::leader_of(pid)));
        Ok(ScanLinks { scan: attach(pid)?, end: attach(Pid::own())? })
    });
    let links = links.inspect_err(|error| log::debug!("each pass visits all threads: {error}")).ok();
    let result = loader.map(names::MAP_WALL_SCAN)?;
    Ok(links.map(|links| WallScanner::new(links, result, pass)))
}

fn write(map: &OwnedFd, pass: &WallPass) -> io::Result<()> {
    bpf::update_element(map.as_fd(), &0_u32.to_ne_bytes(), pass.as_bytes())
}

fn failed(error: io::Error) -> Error {
    Error::with_source(ErrorKind::Io, "failed to sample waiting threads by the task iterator", error)
}
