//! Samples by BPF programs: loads them, attaches them to timer events on each CPU, reads records and sideband events.

pub mod abilities;
#[cfg(feature = "bpf-log")]
mod bpf_log;
pub(crate) mod btf;
mod config;
mod counted_events;
mod counted_waits;
mod counters;
mod cpus;
mod event_fields;
pub(crate) mod events;
mod free_ranges;
mod func_info;
mod idle_time;
mod iterator_pass;
mod kernel_function;
mod kernel_types;
mod loader;
mod map_sizes;
mod object;
mod off_cpu;
mod programs;
mod record_wakeups;
mod records;
mod requested_stacks;
mod row_chunks;
mod sampling_program;
mod sideband;
mod system_call_entries;
#[cfg(any(test, feature = "testing"))]
pub mod test_maps;
mod timers;
mod unwind_maps;
mod wall;
mod wall_scan;
mod wall_thread;

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    time::{Duration, Instant},
};

pub use config::INITIAL_PID_NAMESPACE;
pub use cpus::check_present;
pub(crate) use kernel_types::KernelTypes;
pub use loader::raise_locked_memory_limit;
use profiler_addresses::MonotonicTime;
use profiler_common::Counter;
use profiler_processes::monotonic_time;
use rustix::event::{PollFd, PollFlags, poll};
pub use unwind_maps::{InstallError, InstalledFile, InstalledMappings, UnwindMaps};

use self::{
    config::configure,
    cpus::{CpuSelection, cpu_count, possible},
    events::LoadedEvent,
    idle_time::idle_ns_by_cpu,
    loader::LoadedPrograms,
    map_sizes::{CpuCounts, MapSizes},
    programs::EventContext,
    record_wakeups::RecordWakeups,
    sideband::Sideband,
    timers::CpuTimers,
};
#[cfg(fuzzing)]
use crate::sys::perf_ring::PerfRecord;
use crate::{
    batch::Batch,
    batch_order::BatchOrder,
    counts::{KernelCounts, TimerCounts},
    error::{Error, ErrorKind, Operation, Result},
    plan::Plan,
    source::SampleSource,
    stack::RawStackId,
    sys::{bpf_link, perf::PerfEvent},
};

/// How often the list of online CPUs is read.
const CPU_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The BPF programs, loaded. Sideband events are open, and no sample is taken.
#[derive(Debug)]
pub struct LoadedSource(EbpfSource);

/// Samples of the BPF programs, by timer events on each CPU.
#[derive(Debug)]
pub struct EbpfSource {
    programs: LoadedPrograms,
    wakeups: RecordWakeups,
    cpus: Vec<Cpu>,
    cpu_selection: CpuSelection,
    plan: Plan,
    waker: Arc<OwnedFd>,
    started: MonotonicTime,
    last_cpu_check: Instant,
    /// When the opening events of the timers end.
    opening_ends: Option<Instant>,
    /// The ticks of CPUs that went offline, and those that were due before CPUs that came online had timers.
    past_ticks: TimerCounts,
    order: BatchOrder,
    stopped: bool,
}

/// The events of one CPU. Dropping it detaches the program.
#[derive(Debug)]
struct Cpu {
    id: u32,
    timers: CpuTimers,
    /// Perf events with the index of the event of each.
    events: Vec<(u16, PerfEvent)>,
    sideband: Sideband,
    /// Its idle time since boot when idle ticks were counted last.
    idle_ns: Option<u64>,
}

/// Decodes bytes as one record of the ring buffer, and as one sideband record.
#[cfg(fuzzing)]
pub(crate) fn decode_records(bytes: &[u8]) {
    let mut batch = Batch::default();
    records::decode(bytes, |kind, batch| events::decode_sample(kind, bytes, batch), &mut batch);
    let Some(([kind, misc_low, misc_high], body)) = bytes.split_first_chunk() else { return };
    let misc = u16::from_ne_bytes([*misc_low, *misc_high]);
    sideband::decode(PerfRecord { kind: u32::from(*kind), misc, body }, &mut batch);
}

impl LoadedSource {
    /// Starts to load the BPF programs, and opens the sideband events. No sample is taken before [`start`](Self::start).
    ///
    /// `waker` is an eventfd that ends a waiting [`read`](SampleSource::read).
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) for a plan that this kernel cannot run; a missing privilege; no CPU of the plan is
    /// online.
    pub fn load(plan: Plan, waker: Arc<OwnedFd>) -> Result<Self> {
        let cpu_selection = CpuSelection::new(plan.cpus.clone());
        let online = cpu_selection.online()?;
        // The events come first: their error says most about what the user has to permit.
        let cpus = online.iter().map(|id| Cpu::open(id, &plan)).collect::<Result<Vec<_>>>()?;
        if cpus.is_empty() {
            return Err(cpu_selection.none_online_error()?);
        }
        let counts = CpuCounts { sampled: cpu_count(cpus.len()), possible: possible()? };
        let context = EventContext {
            types: &KernelTypes::default(),
            possible_cpus: counts.possible,
            uses_unwinder: plan.stacks.uses_unwinder(),
        };
        let sizes = MapSizes::new(&plan, counts, &context);
        let config = configure(&plan, &sizes, &context)?;
        let programs = LoadedPrograms::load(&plan, &config, &sizes, context)?;
        let wakeups = RecordWakeups::new(programs.records_fd()).map_err(wait_error)?;
        Ok(Self(EbpfSource {
            programs,
            wakeups,
            cpus,
            cpu_selection,
            plan,
            waker,
            started: MonotonicTime::ZERO,
            last_cpu_check: Instant::now(),
            opening_ends: None,
            past_ticks: TimerCounts::default(),
            order: BatchOrder::default(),
            stopped: false,
        }))
    }

    /// The unwind maps, to be filled: `Some` once, and only if the unwinder captures stacks.
    pub fn take_unwind_maps(&mut self) -> Option<UnwindMaps> {
        self.0.programs.take_unwind_maps()
    }

    /// Removes a stack from the set of those that user space has, so that it is sent again.
    ///
    /// # Errors
    /// The descriptor of the map cannot be duplicated.
    pub fn forget_sent_stack(&self) -> Result<impl Fn(RawStackId) + Send + use<>> {
        self.0.programs.forget_sent_stack()
    }

    /// Starts sampling.
    ///
    /// # Errors
    /// A program cannot be attached.
    pub fn start(self) -> Result<EbpfSource> {
        let mut source = self.0;
        if let Some(program) = source.programs.timer_program()? {
            source.started = monotonic_time();
            source.cpus.iter().try_for_each(|cpu| cpu.start(program))?;
            source.begin_opening();
            source.count_idle_ticks()?;
        } else {
            source.started = monotonic_time();
        }
        let events = source.programs.events();
        source.cpus.iter().try_for_each(|cpu| cpu.start_events(events))?;
        events.iter_mut().try_for_each(|event| event.start(source.started))?;
        Ok(source)
    }
}

impl EbpfSource {
    /// Waits until records wake the reader or it is woken, and runs the passes that are due meanwhile: their records can wait in
    /// the ring buffer like others.
    fn wait(&mut self, wait: Duration, batch: &mut Batch) -> Result<()> {
        let deadline = Instant::now() + wait;
        self.programs.events().iter().for_each(|event| event.resume());
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let opening = self.opening_ends.map(|end| end.saturating_duration_since(Instant::now()));
            let is_woken = self.poll(opening.map_or(left, |opening| left.min(opening)))?;
            self.end_opening()?;
            self.run_passes(batch)?;
            if is_woken {
                return self.wakeups.reset().map_err(wait_error);
            }
            if Instant::now() >= deadline {
                return Ok(());
            }
        }
    }

    /// Runs the passes that are due, and adds samples without a record.
    fn run_passes(&mut self, batch: &mut Batch) -> Result<()> {
        self.programs.events().iter_mut().try_for_each(|event| event.run_due(batch))
    }

    /// Adds the records of programs. After the end, of those too that a CPU still ran.
    fn drain(&mut self, batch: &mut Batch) {
        if self.stopped && self.plan.events.has_unbounded_rate() {
            bpf_link::wait_for_closed();
        }
        self.programs.drain(batch);
    }

    /// Adds sideband events, and brings what was read into the order of times. `watermark`: before this time, all
    /// records were in the rings. After the end, none will follow.
    fn complete(&mut self, batch: &mut Batch, watermark: MonotonicTime) -> Result<()> {
        for cpu in &mut self.cpus {
            cpu.sideband.drain(batch);
        }
        self.update_cpus(batch)?;
        self.order.order(batch, if self.stopped { MonotonicTime::MAX } else { watermark });
        Ok(())
    }

    /// Waits for records; returns whether there are enough to wake the reader, or it was woken.
    fn poll(&self, wait: Duration) -> Result<bool> {
        let mut fds = vec![
            PollFd::from_borrowed_fd(self.waker.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.wakeups.as_fd(), PollFlags::IN),
        ];
        fds.extend(self.cpus.iter().map(|cpu| PollFd::from_borrowed_fd(cpu.sideband.as_fd(), PollFlags::IN)));
        #[cfg(feature = "bpf-log")]
        fds.extend(self.programs.log_fd().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let timeout = rustix::event::Timespec::try_from(wait)
            .map_err(|error| Error::with_source(ErrorKind::InvalidInput, "wait time out of range", error))?;
        match poll(&mut fds, Some(&timeout)) {
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(wait_error(error.into())),
        }
    }

    fn begin_opening(&mut self) {
        self.opening_ends = Some(Instant::now() + CpuTimers::opening_time(self.plan.events.timer_hz));
    }

    /// Ends the opening events when they have ticked often enough.
    fn end_opening(&mut self) -> Result<()> {
        if self.opening_ends.take_if(|end| *end <= Instant::now()).is_some() {
            for cpu in &mut self.cpus {
                cpu.timers.end_opening(&mut self.past_ticks).map_err(timer_error)?;
            }
        }
        Ok(())
    }

    /// Adds the ticks that were due since the last call on CPUs that were idle.
    fn count_idle_ticks(&mut self) -> Result<()> {
        let idle_ns_by_cpu = idle_ns_by_cpu().map_err(|error| {
            Error::from_io(Operation::OpenPerfEvent, "failed to read the idle times in `/proc/stat`", error)
        })?;
        for cpu in &mut self.cpus {
            let Some(idle_ns) = idle_ns_by_cpu.get(&cpu.id).copied() else { continue };
            let since_last_ns = idle_ns.saturating_sub(cpu.idle_ns.replace(idle_ns).unwrap_or(idle_ns));
            let ticks = Duration::from_nanos(since_last_ns).as_secs_f64() * self.plan.events.timer_hz as f64;
            self.past_ticks.idle_due += ticks as u64;
        }
        Ok(())
    }

    /// Replaces the timers of a CPU by those of the plan's frequency. Those of a CPU that has gone offline stay, for
    /// [`update_cpus`](Self::update_cpus).
    fn replace_timers(cpu: &mut Cpu, plan: &Plan, program: Option<BorrowedFd<'_>>) -> io::Result<CpuTimers> {
        let timers = CpuTimers::open(cpu.id, plan.events.timer_hz)?;
        program.map_or(Ok(()), |program| timers.start(program))?;
        Ok(std::mem::replace(&mut cpu.timers, timers))
    }

    /// Closes the events of CPUs that went offline, and opens events on CPUs that came online.
    fn update_cpus(&mut self, batch: &mut Batch) -> Result<()> {
        let since_check = self.last_cpu_check.elapsed();
        if self.stopped || since_check < CPU_CHECK_INTERVAL {
            return Ok(());
        }
        self.last_cpu_check = Instant::now();
        let online = self.cpu_selection.online()?;
        // A CPU that was offline between two checks is online at both, but its events are dead.
        for cpu in self.cpus.extract_if(.., |cpu| !online.contains(cpu.id) || cpu.timers.is_stalled()) {
            log::info!("CPU {} went offline", cpu.id);
            cpu.timers.add_to(&mut self.past_ticks).map_err(timer_error)?;
            let mut sideband = cpu.sideband;
            sideband.drain(batch);
        }
        for id in online.iter().filter(|id| !self.cpus.iter().any(|cpu| cpu.id == *id)).collect::<Vec<_>>() {
            match self.open_cpu(id) {
                Ok(cpu) => {
                    log::info!("CPU {id} came online");
                    self.cpus.push(cpu);
                    // At most: the time at which it came online is unknown.
                    let ticks = since_check.as_secs_f64() * self.plan.events.timer_hz as f64;
                    self.past_ticks.cpu_online += ticks as u64;
                    self.begin_opening();
                    self.count_idle_ticks()?;
                }
                // It may be offline again; the next check retries.
                Err(error) => log::info!("CPU {id} came online, but {error:?}"),
            }
        }
        Ok(())
    }

    /// Opens and starts the events of a CPU.
    fn open_cpu(&mut self, id: u32) -> Result<Cpu> {
        let cpu = Cpu::open(id, &self.plan)?;
        if let Some(program) = self.programs.timer_program()? {
            cpu.start(program)?;
        }
        cpu.start_events(self.programs.events())?;
        Ok(cpu)
    }
}

impl Cpu {
    fn open(id: u32, plan: &Plan) -> Result<Self> {
        let timers = CpuTimers::open(id, plan.events.timer_hz).map_err(|error| {
            let message = format!("failed to open the timer events of CPU {id}");
            Error::from_io(Operation::OpenPerfEvent, message, error)
        })?;
        let events = plan.events.indexed().map(|(first, kind)| kind.open_on_cpu(id, first));
        let events = events.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect();
        Ok(Self { id, timers, events, sideband: Sideband::open(id)?, idle_ns: None })
    }

    fn start(&self, program: BorrowedFd<'_>) -> Result<()> {
        self.timers.start(program).map_err(|error| {
            let message = format!("failed to attach to the timer events of CPU {}", self.id);
            Error::from_io(Operation::OpenPerfEvent, message, error)
        })
    }

    fn start_events(&self, programs: &[Box<dyn LoadedEvent>]) -> Result<()> {
        let start = |(index, event): &(u16, PerfEvent)| {
            programs.iter().try_for_each(|program| program.start_on_cpu(*index, event))
        };
        self.events.iter().try_for_each(start).map_err(|error| {
            let message = format!("failed to attach to the events of CPU {}", self.id);
            Error::from_io(Operation::OpenPerfEvent, message, error)
        })
    }
}

impl SampleSource for EbpfSource {
    fn started(&self) -> MonotonicTime {
        self.started
    }

    fn cpus(&self) -> u32 {
        cpu_count(self.cpus.len())
    }

    fn read(&mut self, wait: Duration) -> Result<Batch> {
        let mut batch = Batch::default();
        if self.stopped {
            // Passes can be seconds apart, and the last one counts the periods since the one before.
            self.run_passes(&mut batch)?;
        } else {
            self.wait(wait, &mut batch)?;
        }
        let now = monotonic_time();
        self.drain(&mut batch);
        self.complete(&mut batch, now)?;
        Ok(batch)
    }

    fn end_interval(&mut self) -> Result<Batch> {
        let mut batch = Batch::default();
        if !self.stopped {
            self.wakeups.reset().map_err(wait_error)?;
            self.end_opening()?;
        }
        // The stacks that a pass sends are read before the waits that have them.
        self.programs.events().iter_mut().try_for_each(|event| event.run_last(&mut batch))?;
        let now = monotonic_time();
        self.drain(&mut batch);
        let until = now.saturating_sub(Duration::from_nanos(1));
        let mut events = self.programs.events().iter_mut();
        events.try_for_each(|event| event.add_unfinished(until, &mut batch))?;
        self.complete(&mut batch, now)?;
        Ok(batch)
    }

    fn set_frequency_hz(&mut self, frequency_hz: u64) -> Result<()> {
        if self.stopped || frequency_hz == self.plan.events.timer_hz {
            return Ok(());
        }
        self.count_idle_ticks()?;
        self.plan.events.timer_hz = frequency_hz;
        let program = self.programs.timer_program()?;
        for cpu in &mut self.cpus {
            match Self::replace_timers(cpu, &self.plan, program) {
                Ok(replaced) => replaced.add_to(&mut self.past_ticks).map_err(timer_error)?,
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {
                    log::info!("CPU {} went offline", cpu.id);
                }
                Err(error) => {
                    let message = format!("failed to open the timer events of CPU {}", cpu.id);
                    return Err(Error::from_io(Operation::OpenPerfEvent, message, error));
                }
            }
        }
        self.begin_opening();
        Ok(())
    }

    fn stop(&mut self) -> Result<MonotonicTime> {
        self.stopped = true;
        self.programs.events().iter_mut().for_each(|event| event.stop());
        for cpu in &self.cpus {
            let mut events = cpu.events.iter();
            let stopped = cpu.timers.stop().and_then(|()| events.try_for_each(|(_, event)| event.stop()));
            stopped.map_err(|error| {
                Error::with_source(
                    ErrorKind::Io,
                    format!("failed to stop the events of CPU {}", cpu.id),
                    error,
                )
            })?;
        }
        Ok(monotonic_time())
    }

    fn is_exhausted(&self) -> bool {
        self.stopped
    }

    fn lost(&self) -> Result<u64> {
        self.programs.count(Counter::LostRingBuffer)
    }

    fn counts(&mut self) -> Result<KernelCounts> {
        self.count_idle_ticks()?;
        let mut counts = self.programs.counts()?;
        let mut timer = TimerCounts {
            delivered: counts.timer.delivered,
            idle_delivered: counts.timer.idle_delivered,
            is_throttled: timers::are_throttled(self.plan.events.timer_hz),
            ..self.past_ticks
        };
        for cpu in &self.cpus {
            cpu.timers.add_to(&mut timer).map_err(timer_error)?;
        }
        counts.timer = timer;
        Ok(counts)
    }
}

fn wait_error(error: io::Error) -> Error {
    Error::with_source(ErrorKind::Io, "failed to wait for samples", error)
}

fn timer_error(error: io::Error) -> Error {
    Error::with_source(ErrorKind::Io, "failed to read the times of a timer event", error)
}
