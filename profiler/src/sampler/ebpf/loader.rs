//! Loader of the BPF object: creates the maps, writes the load-time constants, relocates and loads the programs.

use std::{
    collections::HashMap,
    ffi::CStr,
    fmt,
    num::NonZeroU64,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use aya::maps::{Map, MapData, RingBuf};
use profiler_common::{Config, Counter, names, wall::RDONLY_CAST};
use zerocopy::IntoBytes;

use super::{
    counted_events::CountedEvents,
    counted_waits::CountedWaits,
    kernel_function,
    kernel_types::KernelTypes,
    map_sizes::MapSizes,
    object::{broken, clone_fd, create_map, load_program, map, object_bytes, relocate},
    off_cpu::OffCpuWaits,
    records,
    row_chunks::FirstChunks,
    sampling_program::SamplingProgram,
    unwind_maps::{CHUNKS_AT_ONCE, UnwindMapFds, UnwindMaps},
    waiting_programs::WaitingPrograms,
    wall::WallPasses,
    wall_thread::WallThread,
};
use crate::{
    error::{Error, ErrorKind, Operation, Result},
    sampler::{Batch, Filter, KernelCounts, OffCpuCounts, Plan, RawStackId, TimerCounts, WallCounts},
    sys::{
        bpf::{self, ProgramType},
        bpf_link,
    },
};

/// The programs and their maps. Dropping it unloads them: nothing is pinned.
pub(super) struct LoadedPrograms {
    records: RingBuf<MapData>,
    /// The capacity of the ring buffer.
    record_bytes: usize,
    counters: OwnedFd,
    sample: Option<SamplingProgram>,
    unwind_maps: Option<UnwindMaps>,
    /// Until they start.
    wall_passes: Option<WallPasses>,
    wall: Option<WallThread>,
    off_cpu: Option<OffCpuWaits>,
    events: CountedEvents,
    waits: CountedWaits,
    maps: HashMap<String, OwnedFd>,
    _tracepoints: Vec<OwnedFd>,
    #[cfg(feature = "bpf-log")]
    log: Option<super::bpf_log::BpfLog>,
}

impl LoadedPrograms {
    /// Creates the maps, fills in constants and targets, attaches the tracepoints, and starts to load the program that runs
    /// at each tick.
    pub(super) fn load(plan: &Plan, config: &Config, sizes: MapSizes, types: &KernelTypes) -> Result<Self> {
        let bytes = object_bytes()?;
        let mut object = aya_obj::Object::parse(AsRef::<[u8]>::as_ref(&bytes)).map_err(broken)?;
        let globals = HashMap::from([(names::GLOBAL_CONFIG, (config.as_bytes(), true))]);
        object.patch_map_data(globals).map_err(broken)?;
        let mut definitions: Vec<(String, aya_obj::Map)> = object.maps.drain().collect();
        // The insertion of chunks takes longer than the rest of this function.
        definitions.sort_by_key(|(name, _)| name != names::MAP_UNWIND_ROWS);
        let mut maps = HashMap::new();
        let mut first_chunks = None;
        for (name, definition) in &mut definitions {
            if let Some(entries) = sizes.max_entries(name) {
                definition.set_max_entries(entries);
            }
            let map = create_map(name, definition)?;
            if name == names::MAP_UNWIND_ROWS && plan.uses_unwinder() {
                first_chunks = Some(start_inserting_chunks(map.as_fd())?);
            }
            maps.insert(name.clone(), map);
        }
        relocate(&mut object, &definitions, &maps)?;
        kernel_function::call(&mut object, RDONLY_CAST, config.wall.rdonly_cast);
        fill_targets(plan, &maps)?;
        let unwind_maps =
            if plan.uses_unwinder() { Some(empty_unwind_maps(&maps, first_chunks, config)?) } else { None };
        let tracepoints = attach_tracepoints(&object, plan, config)?;
        let waiting = WaitingPrograms { object: &object, plan, types, maps: &maps };
        let wall_passes =
            plan.wall_hz.map(|frequency_hz| waiting.wall_passes(config, frequency_hz)).transpose()?;
        let off_cpu = plan.off_cpu.map(|_| waiting.off_cpu_waits()).transpose()?;
        let events = CountedEvents::load(plan, config, types, &maps)?;
        #[cfg_attr(
            not(feature = "bpf-log"),
            allow(unused_mut, reason = "its log is opened once it is loaded")
        )]
        let mut sample = (plan.frequency_hz > 0)
            .then(|| SamplingProgram::start_loading(object, plan, &maps))
            .transpose()?;
        let map_data = |name| MapData::from_fd(clone_fd(map(&maps, name)?)?).map_err(broken);
        Ok(Self {
            records: Map::RingBuf(map_data(names::MAP_RECORDS)?).try_into().map_err(broken)?,
            record_bytes: sizes.ring_buffer_bytes as usize,
            counters: clone_fd(map(&maps, names::MAP_COUNTERS)?)?,
            #[cfg(feature = "bpf-log")]
            log: match &mut sample {
                Some(sample) if plan.uses_unwinder() => Some(super::bpf_log::BpfLog::open(sample.wait()?)?),
                _ => None,
            },
            sample,
            unwind_maps,
            wall_passes,
            wall: None,
            off_cpu,
            events,
            waits: CountedWaits::new(plan.off_cpu.is_some_and(|off_cpu| off_cpu.only_disk)),
            maps,
            _tracepoints: tracepoints,
        })
    }

    /// The program that runs at each tick, if there are ticks. The first call waits until it is loaded.
    pub(super) fn sample_program(&mut self) -> Result<Option<BorrowedFd<'_>>> {
        self.sample.as_mut().map(SamplingProgram::wait).transpose()
    }

    /// Starts the passes of wall-clock samples, if they are wanted.
    pub(super) fn start_wall(&mut self) -> Result<()> {
        let started = self.wall_passes.take().map(WallThread::start).transpose();
        self.wall = started.map_err(|error| {
            Error::with_source(ErrorKind::Io, "failed to start the thread of wall-clock samples", error)
        })?;
        Ok(())
    }

    /// The events that are sampled at their occurrences.
    pub(super) fn events(&mut self) -> &mut CountedEvents {
        &mut self.events
    }

    /// Starts to measure off-CPU time, if it is wanted.
    pub(super) fn start_off_cpu(&mut self, started_ns: u64) -> Result<()> {
        self.waits.start(started_ns);
        self.off_cpu.as_mut().map_or(Ok(()), OffCpuWaits::start)
    }

    /// Ends the measurement of off-CPU time. Its records can still be read.
    pub(super) fn stop_off_cpu(&mut self) {
        self.off_cpu.iter_mut().for_each(OffCpuWaits::stop);
    }

    /// Has the next reads return the waits so far of threads that still wait.
    pub(super) fn end_interval(&mut self) {
        self.wall.iter().for_each(WallThread::end_interval);
        self.off_cpu.iter_mut().for_each(OffCpuWaits::end_interval);
    }

    /// Lets passes run after the end of an interval: its samples and counters were read.
    pub(super) fn resume_passes(&self) {
        self.wall.iter().for_each(WallThread::resume);
    }

    /// Adds samples of threads that still wait, and runs the pass of off-CPU time that is due.
    pub(super) fn run_passes(&mut self, batch: &mut Batch) -> Result<()> {
        self.wall.as_mut().map_or(Ok(()), |wall| wall.read(batch))?;
        self.off_cpu.as_mut().map_or(Ok(()), OffCpuWaits::run_due)
    }

    /// Adds the waits up to a time, if the interval ends, or up to the end of sampling.
    pub(super) fn read_off_cpu(&mut self, until_ns: u64, batch: &mut Batch) -> Result<()> {
        let Self { off_cpu, waits, .. } = self;
        off_cpu.as_mut().map_or(Ok(()), |off_cpu| off_cpu.read(until_ns, waits, batch))
    }

    /// The unwind maps, to be filled: `Some` once, and only if the unwinder captures stacks.
    pub(super) fn take_unwind_maps(&mut self) -> Option<UnwindMaps> {
        self.unwind_maps.take()
    }

    /// Removes a stack from the set of those that user space has, so that it is sent again.
    pub(super) fn forget_sent_stack(&self) -> Result<impl Fn(RawStackId) + Send + use<>> {
        let sent = clone_fd(map(&self.maps, names::MAP_SENT_STACKS)?)?;
        Ok(move |id: RawStackId| {
            let id = id.map_or(0, NonZeroU64::get);
            // The kernel has forgotten most of them: it keeps the most recent ones.
            let _ = bpf::delete_element(sent.as_fd(), &id.to_ne_bytes());
        })
    }

    /// Becomes readable when the BPF programs wake the reader.
    pub(super) fn records_fd(&self) -> BorrowedFd<'_> {
        self.records.as_fd()
    }

    /// Becomes readable when the BPF programs log.
    #[cfg(feature = "bpf-log")]
    pub(super) fn log_fd(&self) -> Option<BorrowedFd<'_>> {
        self.log.as_ref().map(AsFd::as_fd)
    }

    /// Decodes all pending records into the batch.
    pub(super) fn drain(&mut self, batch: &mut Batch) {
        #[cfg(feature = "bpf-log")]
        if let Some(log) = &mut self.log {
            log.print();
        }
        // No more than what was there at the start: programs can write as fast as this reads.
        let mut left_bytes = self.record_bytes;
        while left_bytes > 0
            && let Some(record) = self.records.next()
        {
            left_bytes = left_bytes.saturating_sub(record.len());
            records::decode(&record, &mut self.waits, batch);
        }
    }

    /// The counters, summed over all CPUs.
    pub(super) fn counts(&self) -> Result<KernelCounts> {
        let events = self.events.counts()?;
        let events_ns: u64 = events.iter().map(|event| event.run_time_ns).sum();
        Ok(KernelCounts {
            target_ticks: self.count(Counter::TargetTicks)?,
            lost_ring_buffer: self.count(Counter::LostRingBuffer)?,
            lost_thread_id: self.count(Counter::LostThreadId)?,
            lost_children: self.count(Counter::LostChild)?,
            run_time_ns: self.count(Counter::RunTimeNs)? + self.count(Counter::OffCpuRunTimeNs)? + events_ns,
            skipped_ticks: self.count(Counter::SkippedTicks)?,
            cut_stacks: self.count(Counter::CutStacks)?,
            wall: self.wall_counts()?,
            off_cpu: self.off_cpu_counts()?,
            events,
            timer: TimerCounts {
                delivered: self.count(Counter::Ticks)?,
                idle_delivered: self.count(Counter::IdleTicks)?,
                ..TimerCounts::default()
            },
        })
    }

    fn wall_counts(&self) -> Result<WallCounts> {
        let Some(wall) = &self.wall else { return Ok(WallCounts::default()) };
        Ok(WallCounts {
            ticks: self.count(Counter::WallTicks)? + wall.flushed_ticks(),
            lost_awake: self.count(Counter::WallLostAwake)?,
            lost_ring_buffer: self.count(Counter::WallLostRingBuffer)?,
            lost_thread: self.count(Counter::WallLostThread)?,
        })
    }

    fn off_cpu_counts(&self) -> Result<OffCpuCounts> {
        if self.off_cpu.is_none() {
            return Ok(OffCpuCounts::default());
        }
        Ok(OffCpuCounts {
            records: self.count(Counter::OffCpuRecords)?,
            lost_ring_buffer: self.count(Counter::OffCpuLostRingBuffer)?,
            lost_thread: self.count(Counter::OffCpuLostThread)?,
            short: self.count(Counter::OffCpuShort)?,
            short_ns: self.count(Counter::OffCpuShortNs)?,
            due: 0,
        })
    }

    /// One counter, summed over all CPUs.
    pub(super) fn count(&self, counter: Counter) -> Result<u64> {
        bpf::sum_over_cpus(self.counters.as_fd(), counter as u32).map_err(|error| {
            Error::with_source(ErrorKind::Io, "failed to read the counters of the BPF programs", error)
        })
    }
}

impl fmt::Debug for LoadedPrograms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadedPrograms").field("sample", &self.sample).finish_non_exhaustive()
    }
}

/// Raises the limit on locked memory: before 5.11 BPF maps count against the limit on locked memory. Where it cannot be raised, creating a map reports
/// it.
pub(crate) fn raise_locked_memory_limit() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    if let Err(error) = setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None }) {
        log::debug!("failed to raise the limit on locked memory: {error}");
    }
}

fn fill_targets(plan: &Plan, maps: &HashMap<String, OwnedFd>) -> Result<()> {
    let failed =
        |error| Error::from_io(Operation::CreateMap, "failed to write the target into a BPF map", error);
    match &plan.filter {
        Filter::Processes(ids) | Filter::Threads(ids) => {
            let targets = map(maps, names::MAP_TARGETS)?;
            for id in ids {
                bpf::update_element(targets, &id.to_ne_bytes(), &[0]).map_err(failed)?;
            }
        }
        Filter::CgroupV2(directory) => {
            let open = std::fs::File::open(directory).map_err(|error| {
                let message = format!("failed to open the cgroup `{}`", directory.display());
                Error::from_target_io(Operation::ReadProcess, message, error)
            })?;
            let cgroup = map(maps, names::MAP_CGROUP)?;
            bpf::update_element(cgroup, &0_u32.to_ne_bytes(), &open.as_raw_fd().to_ne_bytes())
                .map_err(failed)?;
        }
        Filter::Everything | Filter::CgroupV1 { .. } => {}
    }
    Ok(())
}

fn start_inserting_chunks(rows: BorrowedFd<'_>) -> Result<FirstChunks> {
    FirstChunks::start_inserting(clone_fd(rows)?, CHUNKS_AT_ONCE)
        .map_err(|error| Error::with_source(ErrorKind::Io, "failed to start a thread", error))
}

fn empty_unwind_maps(
    maps: &HashMap<String, OwnedFd>,
    first_chunks: Option<FirstChunks>,
    config: &Config,
) -> Result<UnwindMaps> {
    let fd = |name| clone_fd(map(maps, name)?);
    let searches_vmas = config.vma_search.is_possible != 0;
    let maps = UnwindMapFds {
        processes: fd(names::MAP_PROCESSES)?,
        segments: fd(names::MAP_UNWIND_SEGMENTS)?,
        mappings: fd(names::MAP_MAPPINGS)?,
        pages: fd(names::MAP_UNWIND_PAGES)?,
        rules: fd(names::MAP_UNWIND_RULES)?,
        rows: fd(names::MAP_UNWIND_ROWS)?,
    };
    Ok(UnwindMaps::new(maps, first_chunks, searches_vmas))
}

/// Attaches the fork, exec, exit and free programs that the plan needs.
fn attach_tracepoints(object: &aya_obj::Object, plan: &Plan, config: &Config) -> Result<Vec<OwnedFd>> {
    const FORK: (&str, &CStr) = (names::PROGRAM_FORK, c"sched_process_fork");
    const EXEC: (&str, &CStr) = (names::PROGRAM_EXEC, c"sched_process_exec");
    const EXIT: (&str, &CStr) = (names::PROGRAM_EXIT, c"sched_process_exit");
    const FREE: (&str, &CStr) = (names::PROGRAM_FREE, c"sched_process_free");
    // The fork and exit programs read ids at offsets from BTF.
    let follows_exits =
        plan.children || (plan.uses_unwinder() && plan.follows_forks() && config.task_thread_pid != 0);
    let copies_entries = follows_exits && (plan.children || config.vma_search.is_possible == 0);
    let exec = plan.uses_unwinder().then_some(EXEC);
    exec.into_iter()
        .chain(copies_entries.then_some(FORK))
        .chain(follows_exits.then_some([EXIT, FREE]).into_iter().flatten())
        .map(|(name, tracepoint)| {
            let program = load_program(object, name, ProgramType::RawTracepoint)?;
            bpf_link::open_raw_tracepoint(tracepoint, program.as_fd()).map_err(|error| {
                let message = format!("failed to attach to `{}`", tracepoint.to_string_lossy());
                Error::from_io(Operation::LoadProgram, message, error)
            })
        })
        .collect()
}
