//! The compiled kernel side: its maps are created, its constants set, its programs loaded.

use std::{
    collections::HashMap,
    ffi::CStr,
    fmt,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use aya::maps::{Map, MapData, RingBuf};
use aya_obj::generated::bpf_insn;
use profiler_common::{Config, Counter, names};
use zerocopy::IntoBytes;

use super::{
    functions, records,
    unwind_maps::{self, UnwindMaps, create_chunk},
};
use crate::{
    error::{Error, ErrorKind, Operation, Result},
    sampler::{Batch, Filter, KernelCounts, Plan},
    sys::bpf::{self, Code, MapShape},
};

/// The object as `cargo xtask build-ebpf` left it.
static OBJECT: &[u8] = aya::include_bytes_aligned!("profiler.bpf.o");

/// `enum bpf_prog_type` of `include/uapi/linux/bpf.h`.
pub(crate) const PROGRAM_TYPE_PERF_EVENT: u32 = 7;
pub(crate) const PROGRAM_TYPE_RAW_TRACEPOINT: u32 = 17;
/// `BPF_F_RDONLY_PROG`.
const MAP_READ_ONLY_IN_PROGRAM: u32 = 1 << 7;

/// Sizes that depend on how much there is to record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    ring_buffer_bytes: u32,
}

impl Limits {
    /// Room for all samples of two seconds on every CPU, with as much again for stacks: among a hundred busy threads
    /// for each CPU, a reader that is woken waits for half a second and more.
    pub(super) fn new(frequency_hz: u64, cpus: usize) -> Self {
        const MIN_BYTES: u64 = 512 << 10;
        const MAX_BYTES: u64 = 64 << 20;
        const SAMPLE_AND_STACK_BYTES: u64 = 128;
        const SECONDS: u64 = 2;
        let samples = frequency_hz.saturating_mul(SECONDS).saturating_mul(cpus as u64);
        let bytes =
            samples.saturating_mul(SAMPLE_AND_STACK_BYTES).clamp(MIN_BYTES, MAX_BYTES).next_power_of_two();
        Self { ring_buffer_bytes: u32::try_from(bytes).unwrap_or(1 << 20) }
    }

    /// The reader is woken when a quarter is used.
    pub(super) fn wakeup_bytes(self) -> u64 {
        u64::from(self.ring_buffer_bytes / 4)
    }
}

/// The loaded kernel side. Dropped, it is gone from the kernel: nothing is pinned.
pub(super) struct KernelSide {
    records: RingBuf<MapData>,
    counters: OwnedFd,
    sample: OwnedFd,
    unwind_maps: Option<UnwindMaps>,
    _maps: HashMap<String, OwnedFd>,
    _tracepoints: Vec<OwnedFd>,
}

impl KernelSide {
    /// Creates the maps, fills in constants and targets, and loads the programs that the plan needs.
    pub(super) fn load(plan: &Plan, config: &Config, limits: Limits) -> Result<Self> {
        raise_locked_memory_limit();
        let mut object = aya_obj::Object::parse(OBJECT).map_err(broken)?;
        let globals = HashMap::from([(names::GLOBAL_CONFIG, (config.as_bytes(), true))]);
        object.patch_map_data(globals).map_err(broken)?;
        let mut definitions: Vec<(String, aya_obj::Map)> = object.maps.drain().collect();
        let mut maps = HashMap::new();
        for (name, map) in &mut definitions {
            if name == names::MAP_RECORDS {
                map.set_max_entries(limits.ring_buffer_bytes);
            }
            maps.insert(name.clone(), create_map(name, map)?);
        }
        relocate(&mut object, &definitions, &maps)?;
        fill_targets(plan, &maps)?;
        let (sample, walks) = load_sampling(&object, plan, &maps)?;
        let unwind_maps = if walks { Some(empty_unwind_maps(&maps)?) } else { None };
        let tracepoints = follow_processes(&object, plan, config)?;
        let map_data = |name| MapData::from_fd(clone_fd(map(&maps, name)?)?).map_err(broken);
        Ok(Self {
            records: Map::RingBuf(map_data(names::MAP_RECORDS)?).try_into().map_err(broken)?,
            counters: clone_fd(map(&maps, names::MAP_COUNTERS)?)?,
            sample,
            unwind_maps,
            _maps: maps,
            _tracepoints: tracepoints,
        })
    }

    /// The program to run at each tick.
    pub(super) fn sample_program(&self) -> BorrowedFd<'_> {
        self.sample.as_fd()
    }

    /// The unwind tables, to be filled: once, and where stacks are walked by tables.
    pub(super) fn take_unwind_maps(&mut self) -> Option<UnwindMaps> {
        self.unwind_maps.take()
    }

    /// Becomes readable when the ring buffer fills.
    pub(super) fn records_fd(&self) -> BorrowedFd<'_> {
        self.records.as_fd()
    }

    /// Takes all records there are.
    pub(super) fn drain(&mut self, batch: &mut Batch) {
        while let Some(record) = self.records.next() {
            records::decode(&record, batch);
        }
    }

    /// The counters, all CPUs together.
    pub(super) fn counts(&self) -> Result<KernelCounts> {
        Ok(KernelCounts {
            target_ticks: self.count(Counter::TargetTicks)?,
            lost_ring_buffer: self.count(Counter::LostRingBuffer)?,
            lost_thread_id: self.count(Counter::LostThreadId)?,
            lost_children: self.count(Counter::LostChild)?,
            run_time_ns: self.count(Counter::RunTimeNs)?,
        })
    }

    /// One of the counters.
    pub(super) fn count(&self, counter: Counter) -> Result<u64> {
        bpf::sum_over_cpus(self.counters.as_fd(), counter as u32).map_err(|error| {
            Error::with_source(ErrorKind::Io, "failed to read the kernel side's counters", error)
        })
    }
}

impl fmt::Debug for KernelSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KernelSide").field("sample", &self.sample).finish_non_exhaustive()
    }
}

/// Before 5.11 maps count against the limit on locked memory. Where it cannot be raised, creating a map tells.
fn raise_locked_memory_limit() {
    let unlimited = rustix::process::Rlimit { current: None, maximum: None };
    if let Err(error) = rustix::process::setrlimit(rustix::process::Resource::Memlock, unlimited) {
        log::debug!("the limit on locked memory stays as it is: {error}");
    }
}

fn create_map(name: &str, definition: &aya_obj::Map) -> Result<OwnedFd> {
    let failed =
        |error| Error::from_io(Operation::CreateMap, format!("failed to create the BPF map `{name}`"), error);
    let constants = definition.section_kind() == aya_obj::EbpfSectionKind::Rodata;
    let shape = MapShape {
        map_type: definition.map_type(),
        key_bytes: definition.key_size(),
        value_bytes: definition.value_size(),
        max_entries: definition.max_entries(),
        flags: definition.map_flags() | if constants { MAP_READ_ONLY_IN_PROGRAM } else { 0 },
    };
    let inner = if name == names::MAP_CHUNKS { Some(create_chunk().map_err(failed)?) } else { None };
    let map = bpf::create_map(name.trim_start_matches('.'), shape, inner.as_ref().map(AsFd::as_fd))
        .map_err(failed)?;
    if constants {
        bpf::update_element(map.as_fd(), &0_u32.to_ne_bytes(), definition.data()).map_err(failed)?;
        bpf::freeze(map.as_fd()).map_err(failed)?;
    }
    Ok(map)
}

fn relocate(
    object: &mut aya_obj::Object,
    definitions: &[(String, aya_obj::Map)],
    maps: &HashMap<String, OwnedFd>,
) -> Result<()> {
    let text_sections = object.functions.keys().map(|(section, _)| *section).collect();
    let placed = definitions
        .iter()
        .filter_map(|(name, definition)| Some((name.as_str(), maps.get(name)?.as_raw_fd(), definition)));
    object.relocate_maps(placed, &text_sections).map_err(broken)?;
    object.relocate_calls(&text_sections).map_err(broken)
}

fn fill_targets(plan: &Plan, maps: &HashMap<String, OwnedFd>) -> Result<()> {
    let failed =
        |error| Error::from_io(Operation::CreateMap, "failed to set the target in the kernel side", error);
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
                Error::from_io(Operation::ReadProcess, message, error)
            })?;
            let cgroup = map(maps, names::MAP_CGROUP)?;
            bpf::update_element(cgroup, &0_u32.to_ne_bytes(), &open.as_raw_fd().to_ne_bytes())
                .map_err(failed)?;
        }
        Filter::Everything | Filter::CgroupV1 { .. } => {}
    }
    Ok(())
}

/// Loads what runs at each tick; true when it walks user stacks by tables.
fn load_sampling(
    object: &aya_obj::Object,
    plan: &Plan,
    maps: &HashMap<String, OwnedFd>,
) -> Result<(OwnedFd, bool)> {
    let load = |name| load_program(object, name, PROGRAM_TYPE_PERF_EVENT);
    if !plan.walks() {
        return Ok((load(names::PROGRAM_SAMPLE)?, false));
    }
    if has_helper(Helper::Loop) {
        return Ok((load(names::PROGRAM_SAMPLE_LOOP)?, true));
    }
    let link = load(names::PROGRAM_SAMPLE_LINK)?;
    let links = map(maps, names::MAP_LINKS)?;
    bpf::update_element(links, &0_u32.to_ne_bytes(), &link.as_raw_fd().to_ne_bytes()).map_err(|error| {
        Error::from_io(Operation::LoadProgram, "failed to chain the programs that walk a stack", error)
    })?;
    Ok((load(names::PROGRAM_SAMPLE_CHAIN)?, true))
}

/// Helpers that not every kernel has, `enum bpf_func_id` of `include/uapi/linux/bpf.h`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Helper {
    /// `bpf_task_pt_regs`: 5.15.
    TaskRegisters = 175,
    /// `bpf_loop`: 5.17.
    Loop = 181,
}

/// Whether a sampling program may call a helper. Called without arguments, one that is there is refused for the
/// want of them (`EACCES`), one that is not for itself (`EINVAL`).
pub(super) fn has_helper(helper: Helper) -> bool {
    const CALL: u8 = 0x85;
    const EXIT: [u8; 8] = [0x95, 0, 0, 0, 0, 0, 0, 0];
    let [imm0, imm1, imm2, imm3] = (helper as i32).to_ne_bytes();
    let instructions = [[CALL, 0, 0, 0, imm0, imm1, imm2, imm3], EXIT].concat();
    let code = Code { instructions: &instructions, license: c"GPL", functions: None };
    match bpf::load_program("probe", PROGRAM_TYPE_PERF_EVENT, code) {
        Ok(_) => true,
        Err(refused) => refused.error.raw_os_error() == Some(libc::EACCES),
    }
}

fn empty_unwind_maps(maps: &HashMap<String, OwnedFd>) -> Result<UnwindMaps> {
    let fd = |name| clone_fd(map(maps, name)?);
    Ok(UnwindMaps::new(unwind_maps::Maps {
        processes: fd(names::MAP_PROCESSES)?,
        mappings: fd(names::MAP_MAPPINGS)?,
        pages: fd(names::MAP_PAGES)?,
        rules: fd(names::MAP_RULES)?,
        chunks: fd(names::MAP_CHUNKS)?,
    }))
}

fn load_program(object: &aya_obj::Object, name: &str, program_type: u32) -> Result<OwnedFd> {
    let program = object.programs.get(name).ok_or_else(|| broken(format!("no program `{name}`")))?;
    let function = object
        .functions
        .get(&program.function_key())
        .ok_or_else(|| broken(format!("no code of `{name}`")))?;
    let instructions: Vec<[u8; 8]> = function.instructions.iter().map(instruction_bytes).collect();
    let info = functions::info(&instructions);
    // A program of one function needs no types.
    let types = if info.len() > 1 {
        let loaded = bpf::load_btf(&functions::types());
        Some(loaded.map_err(|error| {
            Error::from_io(Operation::LoadProgram, format!("failed to load the types of `{name}`"), error)
        })?)
    } else {
        None
    };
    let functions = types.as_ref().map(|types| bpf::Functions { btf: types.as_fd(), info: &info });
    let code = Code { instructions: instructions.as_flattened(), license: &program.license, functions };
    bpf::load_program(name, program_type, code).map_err(|refused| {
        let kind = match refused.error.kind() {
            std::io::ErrorKind::PermissionDenied if refused.log.is_empty() => {
                ErrorKind::PermissionDenied(Operation::LoadProgram)
            }
            _ => ErrorKind::Unsupported,
        };
        Error::with_source(kind, format!("failed to load the BPF program `{name}`"), refused)
    })
}

/// Attaches what follows processes as they fork, execute and end, as far as the plan needs it.
fn follow_processes(object: &aya_obj::Object, plan: &Plan, config: &Config) -> Result<Vec<OwnedFd>> {
    const FORK: (&str, &CStr) = (names::PROGRAM_FORK, c"sched_process_fork");
    const EXEC: (&str, &CStr) = (names::PROGRAM_EXEC, c"sched_process_exec");
    const EXIT: (&str, &CStr) = (names::PROGRAM_EXIT, c"sched_process_exit");
    // A child's id is read at an offset.
    let forks = plan.children || (plan.walks() && plan.follows_forks() && config.task_thread_pid != 0);
    let fork_and_exit = forks.then_some([FORK, EXIT]).into_iter().flatten();
    plan.walks()
        .then_some(EXEC)
        .into_iter()
        .chain(fork_and_exit)
        .map(|(name, tracepoint)| {
            let program = load_program(object, name, PROGRAM_TYPE_RAW_TRACEPOINT)?;
            bpf::open_raw_tracepoint(tracepoint, program.as_fd()).map_err(|error| {
                let message = format!("failed to attach to `{}`", tracepoint.to_string_lossy());
                Error::from_io(Operation::LoadProgram, message, error)
            })
        })
        .collect()
}

/// `struct bpf_insn` as the kernel reads it.
fn instruction_bytes(instruction: &bpf_insn) -> [u8; 8] {
    let registers = instruction.dst_reg() | instruction.src_reg() << 4;
    let [off0, off1] = instruction.off.to_ne_bytes();
    let [imm0, imm1, imm2, imm3] = instruction.imm.to_ne_bytes();
    [instruction.code, registers, off0, off1, imm0, imm1, imm2, imm3]
}

fn map<'a>(maps: &'a HashMap<String, OwnedFd>, name: &str) -> Result<BorrowedFd<'a>> {
    Ok(maps.get(name).ok_or_else(|| broken(format!("no map `{name}`")))?.as_fd())
}

fn clone_fd(fd: BorrowedFd<'_>) -> Result<OwnedFd> {
    fd.try_clone_to_owned().map_err(broken)
}

/// The object is part of this binary: what is wrong with it is wrong for everybody.
fn broken(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::with_source(ErrorKind::InvalidData, "the embedded BPF object is broken", cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_object_has_every_program_and_map_that_the_loader_asks_for() {
        let object = aya_obj::Object::parse(OBJECT).unwrap();
        for program in [names::PROGRAM_SAMPLE, names::PROGRAM_FORK, names::PROGRAM_EXIT] {
            assert!(object.programs.contains_key(program), "{program}");
        }
        for map in [
            names::MAP_RECORDS,
            names::MAP_STACKS,
            names::MAP_TARGETS,
            names::MAP_CGROUP,
            names::MAP_COUNTERS,
        ] {
            assert!(object.maps.contains_key(map), "{map}");
        }
        let counters = &object.maps[names::MAP_COUNTERS];
        assert_eq!(counters.max_entries(), Counter::COUNT);
    }

    #[test]
    fn the_ring_buffer_grows_with_frequency_and_cpus_within_bounds() {
        assert_eq!(Limits::new(99, 2).ring_buffer_bytes, 512 << 10);
        assert!(Limits::new(1_999, 2).ring_buffer_bytes >= 2 * 1_999 * 2 * 128);
        assert!(Limits::new(9_999, 64).ring_buffer_bytes >= 32 << 20);
        assert_eq!(Limits::new(u64::MAX, 8192).ring_buffer_bytes, 64 << 20);
    }
}
