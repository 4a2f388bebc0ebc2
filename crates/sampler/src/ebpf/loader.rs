//! Loader of the BPF object: creates the maps, writes the load-time constants, relocates and loads the programs.

use std::{
    collections::HashMap,
    ffi::CStr,
    fmt,
    num::NonZeroU64,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use aya::maps::{Map, MapData, RingBuf};
use profiler_common::{Config, Counter, names, wall::RDONLY_CAST};
use zerocopy::IntoBytes;

use super::{
    counters::Counters,
    events::LoadedEvent,
    kernel_function,
    map_sizes::MapSizes,
    object::{broken, clone_fd, create_map, load_program, map, object_bytes, relocate},
    programs::{EventContext, ProgramLoader},
    records,
    row_chunks::FirstChunks,
    unwind_maps::{CHUNKS_AT_ONCE, UnwindMapFds, UnwindMaps},
};
use crate::{
    batch::Batch,
    counts::{KernelCounts, TimerCounts},
    error::{Error, ErrorKind, Operation, Result},
    plan::{Filter, Plan},
    stack::RawStackId,
    sys::{
        bpf::{self, ProgramType},
        bpf_link::{self, IteratedTasks},
    },
};

/// The programs and their maps. Dropping it unloads them: nothing is pinned.
pub(super) struct LoadedPrograms {
    records: RingBuf<MapData>,
    /// The capacity of the ring buffer.
    record_bytes: usize,
    counters: Counters,
    events: Vec<Box<dyn LoadedEvent>>,
    unwind_maps: Option<UnwindMaps>,
    maps: HashMap<String, OwnedFd>,
    _tracepoints: Vec<OwnedFd>,
    #[cfg(feature = "bpf-log")]
    log: Option<super::bpf_log::BpfLog>,
}

impl LoadedPrograms {
    /// Creates the maps, fills in constants and targets, attaches the tracepoints of processes, and loads the programs of events.
    pub(super) fn load(
        plan: &Plan,
        config: &Config,
        sizes: &MapSizes,
        context: EventContext<'_>,
    ) -> Result<Self> {
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
            if name == names::MAP_UNWIND_ROWS && plan.stacks.uses_unwinder() {
                first_chunks = Some(start_inserting_chunks(map.as_fd())?);
            }
            maps.insert(name.clone(), map);
        }
        relocate(&mut object, &definitions, &maps)?;
        kernel_function::call(&mut object, RDONLY_CAST, config.wall.rdonly_cast);
        fill_targets(plan, &maps)?;
        let unwind_maps = if plan.stacks.uses_unwinder() {
            Some(empty_unwind_maps(&maps, first_chunks, config)?)
        } else {
            None
        };
        let tracepoints = attach_tracepoints(&object, plan, config)?;
        let loader = ProgramLoader {
            context,
            config,
            object: Arc::new(object),
            maps: &maps,
            tasks: iterated_tasks(plan),
            max_overhead_percent: plan.max_overhead_percent,
        };
        let loaded = plan.events.indexed().map(|(first, kind)| kind.load(first, &loader));
        #[cfg_attr(
            not(feature = "bpf-log"),
            allow(unused_mut, reason = "its log is opened once it is loaded")
        )]
        let mut events = loaded.collect::<Result<Vec<_>>>()?;
        let map_data = |name| MapData::from_fd(clone_fd(map(&maps, name)?)?).map_err(broken);
        Ok(Self {
            records: Map::RingBuf(map_data(names::MAP_RECORDS)?).try_into().map_err(broken)?,
            record_bytes: sizes.ring_buffer_bytes as usize,
            counters: Counters::new(clone_fd(map(&maps, names::MAP_COUNTERS)?)?),
            #[cfg(feature = "bpf-log")]
            log: match timer_program(&mut events)? {
                Some(program) if plan.stacks.uses_unwinder() => Some(super::bpf_log::BpfLog::open(program)?),
                _ => None,
            },
            events,
            unwind_maps,
            maps,
            _tracepoints: tracepoints,
        })
    }

    /// The program that runs at each tick, if there are ticks. The first call waits until it is loaded.
    pub(super) fn timer_program(&mut self) -> Result<Option<BorrowedFd<'_>>> {
        timer_program(&mut self.events)
    }

    /// The programs of each kind of event.
    pub(super) fn events(&mut self) -> &mut [Box<dyn LoadedEvent>] {
        &mut self.events
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
            let sample = |kind, batch: &mut Batch| {
                self.events.iter_mut().find_map(|event| event.decode(kind, &record, batch))
            };
            records::decode(&record, sample, batch);
        }
    }

    /// The counters, summed over all CPUs.
    pub(super) fn counts(&self) -> Result<KernelCounts> {
        let mut counts = KernelCounts {
            lost_children: self.count(Counter::LostChild)?,
            run_time_ns: self.count(Counter::RunTimeNs)?,
            timer: TimerCounts {
                delivered: self.count(Counter::Ticks)?,
                idle_delivered: self.count(Counter::IdleTicks)?,
                ..TimerCounts::default()
            },
            events: Vec::new(),
        };
        self.events.iter().try_for_each(|event| event.count(&self.counters, &mut counts))?;
        Ok(counts)
    }

    /// One counter, summed over all CPUs.
    pub(super) fn count(&self, counter: Counter) -> Result<u64> {
        self.counters.get(counter)
    }
}

impl fmt::Debug for LoadedPrograms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadedPrograms").field("maps", &self.maps).finish_non_exhaustive()
    }
}

fn timer_program(events: &mut [Box<dyn LoadedEvent>]) -> Result<Option<BorrowedFd<'_>>> {
    for event in events {
        if let Some(program) = event.timer_program()? {
            return Ok(Some(program));
        }
    }
    Ok(None)
}

/// The tasks that can belong to the target.
fn iterated_tasks(plan: &Plan) -> IteratedTasks {
    match &plan.filter {
        Filter::Processes(pids) if !plan.children && pids.len() == 1 => IteratedTasks::Process(pids[0]),
        Filter::Threads(tids) if tids.len() == 1 => IteratedTasks::Thread(tids[0]),
        _ => IteratedTasks::All,
    }
}

/// Raises the limit on locked memory: before 5.11 BPF maps count against the limit on locked memory. Where it cannot be raised, creating a map reports
/// it.
pub fn raise_locked_memory_limit() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    if let Err(error) = setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None }) {
        log::debug!("failed to raise the limit on locked memory: {error}");
    }
}

fn fill_targets(plan: &Plan, maps: &HashMap<String, OwnedFd>) -> Result<()> {
    let failed =
        |error| Error::from_io(Operation::CreateMap, "failed to write the target into a BPF map", error);
    match &plan.filter {
        Filter::Processes(_) | Filter::Threads(_) => {
            let targets = map(maps, names::MAP_TARGETS)?;
            for id in plan.filter.ids() {
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
        plan.children || (plan.stacks.uses_unwinder() && plan.follows_forks() && config.task_thread_pid != 0);
    let copies_entries = follows_exits && (plan.children || config.vma_search.is_possible == 0);
    let exec = plan.stacks.uses_unwinder().then_some(EXEC);
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
