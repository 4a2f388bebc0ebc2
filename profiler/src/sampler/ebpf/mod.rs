//! The kernel as a source of samples: loads the kernel side, attaches it to a timer on each CPU, and reads.

pub(crate) mod btf;
mod config;
mod cpus;
mod functions;
mod object;
mod ranges;
mod records;
mod side_band;
#[cfg(test)]
pub(crate) mod test_maps;
mod unwind_maps;

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    time::{Duration, Instant},
};

pub(crate) use config::INITIAL_PID_NAMESPACE;
pub use cpus::CpuSet;
pub(crate) use cpus::online;
pub(crate) use object::{PROGRAM_TYPE_PERF_EVENT, PROGRAM_TYPE_RAW_TRACEPOINT};
use profiler_common::Counter;
use rustix::event::{PollFd, PollFlags, poll};
pub(crate) use unwind_maps::{InstalledFile, InstalledMappings, Refusal, UnwindMaps};

use self::{
    config::configure,
    cpus::Watch,
    object::{KernelSide, Limits},
    side_band::SideBand,
};
use super::{Batch, KernelCounts, Plan, SampleSource};
#[cfg(fuzzing)]
use crate::sys::perf_ring::PerfRecord;
use crate::{
    error::{Error, ErrorKind, Operation, Result},
    sys::perf::TimerEvent,
};

/// How often the list of CPUs that are online is looked at again.
const CPU_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Whether the kernel has loops for programs (`bpf_loop`): without them a stack is walked by tail calls.
pub(crate) fn has_loops() -> bool {
    object::has_helper(object::Helper::Loop)
}

/// Samples from the kernel, by the timer of each CPU.
#[derive(Debug)]
pub(crate) struct EbpfSource {
    kernel: KernelSide,
    cpus: Vec<Cpu>,
    watch: Watch,
    plan: Plan,
    waker: Arc<OwnedFd>,
    started_ns: u64,
    next_cpu_check: Instant,
    stopped: bool,
}

/// What is attached to one CPU. Closing it detaches.
#[derive(Debug)]
struct Cpu {
    id: u32,
    timer: TimerEvent,
    side_band: SideBand,
    /// What the timer had counted at the last look.
    counted_ns: u64,
}

/// Decodes bytes as one record of the ring buffer, and as one of the side band.
#[cfg(fuzzing)]
pub(crate) fn decode_records(bytes: &[u8]) {
    let mut batch = Batch::default();
    records::decode(bytes, &mut batch);
    let Some(([kind, misc_low, misc_high], body)) = bytes.split_first_chunk() else { return };
    let misc = u16::from_ne_bytes([*misc_low, *misc_high]);
    side_band::decode(PerfRecord { kind: u32::from(*kind), misc, body }, &mut batch);
}

impl EbpfSource {
    /// Loads the kernel side and attaches the side band. No sample is taken before [`start`](Self::start).
    ///
    /// `waker` is an eventfd that ends a waiting [`read`](SampleSource::read).
    pub(crate) fn load(plan: Plan, waker: Arc<OwnedFd>) -> Result<Self> {
        let watch = Watch::new(plan.cpus.clone());
        let now = watch.online()?;
        // The events come first: without them nothing else is worth loading, and their refusal is the one
        // that says most.
        let cpus = now.iter().map(|id| Cpu::open(id, &plan)).collect::<Result<Vec<_>>>()?;
        if cpus.is_empty() {
            return Err(watch.none_is_online()?);
        }
        let limits = Limits::new(plan.frequency_hz, cpus.len());
        let configuration = configure(&plan, limits)?;
        let kernel = KernelSide::load(&plan, &configuration, limits)?;
        Ok(Self {
            kernel,
            cpus,
            watch,
            plan,
            waker,
            started_ns: 0,
            next_cpu_check: Instant::now() + CPU_CHECK_INTERVAL,
            stopped: false,
        })
    }

    /// Samples from now on.
    pub(crate) fn start(&mut self) -> Result<()> {
        self.started_ns = monotonic_ns();
        for cpu in &self.cpus {
            cpu.start(&self.kernel)?;
        }
        Ok(())
    }

    /// The unwind tables, to be filled: once, and where stacks are walked by tables.
    pub(crate) fn take_unwind_maps(&mut self) -> Option<UnwindMaps> {
        self.kernel.take_unwind_maps()
    }

    fn wait(&self, wait: Duration) -> Result<()> {
        let mut fds = vec![
            PollFd::from_borrowed_fd(self.waker.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.kernel.records_fd(), PollFlags::IN),
        ];
        fds.extend(
            self.cpus.iter().map(|cpu| PollFd::from_borrowed_fd(cpu.side_band.as_fd(), PollFlags::IN)),
        );
        let timeout = rustix::event::Timespec::try_from(wait).map_err(|error| {
            Error::with_source(ErrorKind::InvalidInput, "waiting time out of range", error)
        })?;
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(Error::with_source(ErrorKind::Io, "failed to wait for samples", error)),
        }
    }

    /// Follows CPUs that went offline or came online.
    fn follow_cpus(&mut self, batch: &mut Batch) -> Result<()> {
        if self.stopped || Instant::now() < self.next_cpu_check {
            return Ok(());
        }
        self.next_cpu_check = Instant::now() + CPU_CHECK_INTERVAL;
        let now = self.watch.online()?;
        // A CPU that was away for a moment is there at every look, but its events are dead.
        for cpu in self.cpus.extract_if(.., |cpu| !now.contains(cpu.id) || cpu.has_stood_still()) {
            log::info!("CPU {} went offline", cpu.id);
            let mut side_band = cpu.side_band;
            side_band.drain(batch);
        }
        for id in now.iter().filter(|id| !self.cpus.iter().any(|cpu| cpu.id == *id)).collect::<Vec<_>>() {
            match Cpu::open(id, &self.plan).and_then(|cpu| cpu.start(&self.kernel).map(|()| cpu)) {
                Ok(cpu) => {
                    log::info!("CPU {id} came online");
                    self.cpus.push(cpu);
                }
                // It may be gone again already; the next look will tell.
                Err(error) => log::info!("CPU {id} came online, but {error:?}"),
            }
        }
        Ok(())
    }
}

impl Cpu {
    fn open(id: u32, plan: &Plan) -> Result<Self> {
        let timer = TimerEvent::open(id, plan.frequency_hz).map_err(|error| {
            let message = format!("failed to open a timer event on CPU {id}");
            Error::from_io(Operation::OpenPerfEvent, message, error)
        })?;
        Ok(Self { id, timer, side_band: SideBand::open(id)?, counted_ns: 0 })
    }

    /// Whether the timer counted nothing since the last call.
    fn has_stood_still(&mut self) -> bool {
        let counted_ns = self.timer.counted_ns().unwrap_or(self.counted_ns);
        std::mem::replace(&mut self.counted_ns, counted_ns) == counted_ns
    }

    fn start(&self, kernel: &KernelSide) -> Result<()> {
        self.timer.start(kernel.sample_program()).map_err(|error| {
            let message = format!("failed to attach to the timer event on CPU {}", self.id);
            Error::from_io(Operation::OpenPerfEvent, message, error)
        })
    }
}

impl SampleSource for EbpfSource {
    fn started_ns(&self) -> u64 {
        self.started_ns
    }

    fn cpus(&self) -> u32 {
        u32::try_from(self.cpus.len()).unwrap_or(u32::MAX)
    }

    fn read(&mut self, wait: Duration) -> Result<Batch> {
        if !self.stopped {
            self.wait(wait)?;
        }
        let mut batch = Batch::default();
        // Samples first: whatever happened before one of them is in the side band by then.
        self.kernel.drain(&mut batch);
        for cpu in &mut self.cpus {
            cpu.side_band.drain(&mut batch);
        }
        self.follow_cpus(&mut batch)?;
        batch.events.sort_by_key(|event| event.time_ns);
        Ok(batch)
    }

    fn stop(&mut self) -> Result<()> {
        self.stopped = true;
        for cpu in &self.cpus {
            cpu.timer.stop().map_err(|error| {
                Error::with_source(
                    ErrorKind::Io,
                    format!("failed to stop the timer on CPU {}", cpu.id),
                    error,
                )
            })?;
        }
        Ok(())
    }

    fn is_exhausted(&self) -> bool {
        self.stopped
    }

    fn lost(&self) -> Result<u64> {
        self.kernel.count(Counter::LostRingBuffer)
    }

    fn counts(&self) -> Result<KernelCounts> {
        self.kernel.counts()
    }
}

/// `CLOCK_MONOTONIC` now: the clock of samples and of the side band.
pub(crate) fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    const NS_PER_S: u64 = 1_000_000_000;
    u64::try_from(now.tv_sec).unwrap_or(0) * NS_PER_S + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// Reads a small number from a file of the kernel: a sysctl.
pub(crate) fn read_number(path: &str) -> io::Result<u64> {
    std::fs::read_to_string(path)?.trim().parse().map_err(io::Error::other)
}
