//! The BPF maps: ring buffer, sent stack ids, targets, counters, unwind tables, caches.

use core::cell::UnsafeCell;

use aya_ebpf::{
    bindings::{BPF_F_MMAPABLE, bpf_map_def, bpf_map_type::BPF_MAP_TYPE_ARRAY_OF_MAPS},
    macros::map,
    maps::{Array, CgroupArray, HashMap, LruHashMap, PerCpuArray, ProgramArray, RingBuf},
};
use profiler_common::{
    Counter, EDGE_CACHE_CAPACITY, RULE_CACHE_CAPACITY, StackId,
    event::EventCounts,
    off_cpu::{OffCpuThread, StackAtSwitch},
    requested_stack::{CopiedStack, StackRequest},
    system_call::SystemCallEntry,
    unwind::{
        FileSegment, MAX_MAPPINGS, MAX_PAGES, MAX_PROCESSES, MAX_ROW_CHUNKS, MAX_RULES, MAX_SEGMENTS,
        MappingEntry, PageEntry, ProcessEntry, Rule, SegmentTable,
    },
    wall::{ScannedThread, WaitingThread, WallPass, WallScan},
};
use profiler_ebpf::{cache_entry::CacheEntry, edge_cache::CachedEdge};

use super::{
    event::EventScratch, off_cpu::OffCpuScratch, off_cpu_pass::OffCpuPassScratch, scratch::Scratch,
    wall::WallScratch,
};

/// The size in the object of a map whose size depends on the machine or on the targets.
const SET_BY_LOADER: u32 = 1;

/// Written by all programs; read by the reader thread.
/// Samples, stacks and stale-mappings records, by their first word.
/// The loader sets the size.
/// When full: the sample is lost and counted; a stale-mappings record is dropped, and a later sample repeats it.
#[map]
pub(crate) static RECORDS: RingBuf = RingBuf::with_byte_size(SET_BY_LOADER, 0);

/// Written and read by the sampling programs.
/// Stack id -> nothing: the stacks that user space has.
/// The loader sets the size.
/// When full: the least recently used id is evicted, and its stack is sent again at its next sample.
#[map]
pub(crate) static SENT_STACKS: LruHashMap<StackId, u8> = LruHashMap::with_max_entries(SET_BY_LOADER, 0);

/// Written by the loader, and by the fork, exit and free programs; read by the sampling programs.
/// Process or thread id in the profiler's PID namespace -> nothing.
/// The loader sets the size.
/// When full: a forked child is counted and not sampled.
#[map]
pub(crate) static TARGETS: HashMap<u32, u8> = HashMap::with_max_entries(SET_BY_LOADER, 0);

/// Written and read by the exit and free programs.
/// Address of a thread group leader's `task_struct` -> its process id: targets and processes with mappings that have
/// exited, and are not yet reaped.
/// When full: the process loses its entries when it exits, before its address space is torn down.
#[map]
pub(crate) static EXITED: HashMap<u64, u32> = HashMap::with_max_entries(4096, 0);

/// Written by the loader; read by the sampling programs.
/// 0 -> the cgroup v2 directory to sample below.
/// When full: cannot be, it has one entry.
#[map]
pub(crate) static CGROUP: CgroupArray = CgroupArray::with_max_entries(1, 0);

/// Written and read by the sampling programs, within one run.
/// 0 -> the working memory of the run, which is too large for the BPF stack.
/// When full: cannot be, it has one entry.
#[map]
pub(crate) static SCRATCH: PerCpuArray<Scratch> = PerCpuArray::with_max_entries(1, 0);

/// Written by all programs; read by user space.
/// Counter -> count.
/// When full: cannot be, it has an entry for each counter.
#[map]
pub(crate) static COUNTERS: PerCpuArray<u64> = PerCpuArray::with_max_entries(Counter::COUNT, 0);

/// Written by user space, and by the fork, exec, exit and free programs; read by the unwinder.
/// Process id -> the range of its mappings in `MAPPINGS`.
/// When full: `bpf_get_stack` captures the stacks of further processes.
#[map]
pub(crate) static PROCESSES: HashMap<u32, ProcessEntry> = HashMap::with_max_entries(MAX_PROCESSES, 0);

/// Written by user space through mmap(2); read by the unwinder.
/// 0 -> the executable mappings of all processes, those of one process sorted by address.
/// When full: user space installs no further process.
#[map]
pub(crate) static MAPPINGS: Array<[MappingEntry; MAX_MAPPINGS as usize]> =
    Array::with_max_entries(1, BPF_F_MMAPABLE);

/// Written by user space, and the time of their use by the sampling programs; read by the unwinder.
/// Executable segment of a file -> its unwind table, for processes whose mappings are not in `MAPPINGS`.
/// When full: further files are found in `MAPPINGS` alone.
#[map]
pub(crate) static UNWIND_SEGMENTS: HashMap<FileSegment, SegmentTable> =
    HashMap::with_max_entries(MAX_SEGMENTS, 0);

/// Written by user space through mmap(2); read by the unwinder.
/// 0 -> the pages of all files, those of one file sorted by address.
/// When full: user space installs no further file, whose code is unwound by frame pointer.
#[map]
pub(crate) static UNWIND_PAGES: Array<[PageEntry; MAX_PAGES as usize]> =
    Array::with_max_entries(1, BPF_F_MMAPABLE);

/// Written by user space; read by the unwinder.
/// Chunk -> an array of one value, its rows. User space adds chunks on demand.
/// When full: user space installs no further file, whose code is unwound by frame pointer.
#[unsafe(no_mangle)]
#[unsafe(link_section = "maps")]
pub(crate) static UNWIND_ROWS: ArrayOfMaps = ArrayOfMaps(UnsafeCell::new(bpf_map_def {
    type_: BPF_MAP_TYPE_ARRAY_OF_MAPS,
    key_size: size_of::<u32>() as u32,
    value_size: size_of::<u32>() as u32,
    max_entries: MAX_ROW_CHUNKS,
    map_flags: 0,
    id: 0,
    pinning: 0,
}));

/// Written by user space through mmap(2); read by the unwinder.
/// 0 -> the rules of all rows.
/// When full: user space installs no further file, whose code is unwound by frame pointer.
#[map]
pub(crate) static UNWIND_RULES: Array<[Rule; MAX_RULES as usize]> =
    Array::with_max_entries(1, BPF_F_MMAPABLE);

/// Written and read by the sampling programs.
/// Process id -> the time of its last stale-mappings record, `CLOCK_MONOTONIC` nanoseconds.
/// The loader sets the size.
/// When full: the least recently used process is evicted, and its next record is sent early.
#[map]
pub(crate) static STALE_MAPPINGS: LruHashMap<u32, u64> = LruHashMap::with_max_entries(SET_BY_LOADER, 0);

/// Written and read by the sampling programs.
/// Hash of a process and an instruction's address -> the edge of the function there. A direct-mapped cache: an address replaces another
/// with the same hash.
/// When full: cannot be, every entry exists from the start.
#[map]
pub(crate) static FUNCTION_EDGES: Array<CachedEdge> = Array::with_max_entries(EDGE_CACHE_CAPACITY, 0);

/// Written and read by the sampling programs.
/// Hash of the mappings of processes and a return address -> the index of the rule of its code. A direct-mapped cache, as that of
/// function edges.
/// When full: cannot be, every entry exists from the start.
#[map]
pub(crate) static CACHED_RULES: Array<CacheEntry> = Array::with_max_entries(RULE_CACHE_CAPACITY, 0);

/// Written by the loader; read by the tail-calling programs.
/// 0 -> the program that unwinds further frames.
/// When full: cannot be, it has one entry.
#[map]
pub(crate) static TAIL_CALLS: ProgramArray = ProgramArray::with_max_entries(1, 0);

/// Written by user space before each pass; read by the pass, which counts its stack requests.
/// 0 -> the pass that begins.
/// When full: cannot be, it has one entry.
#[map]
pub(crate) static WALL_PASS: Array<WallPass> = Array::with_max_entries(1, 0);

/// Written and read by passes, which run one after another.
/// 0 -> the working memory of a pass. The ticks of a CPU interrupt a pass and have their own.
/// When full: cannot be, it has one entry.
#[map]
pub(crate) static WALL_SCRATCH: Array<WallScratch> = Array::with_max_entries(1, 0);

/// Written by scans; read by user space after each.
/// 0 -> the last scan.
/// When full: cannot be, it has one entry.
#[map]
pub(crate) static WALL_SCAN: Array<WallScan> = Array::with_max_entries(1, 0);

/// Written and read by scans, which run one after another.
/// The number of a thread in the list of threads of its process -> the thread as the last scan found it.
/// The loader sets the size.
/// When full: cannot be, a scan ends at the last entry.
#[map]
pub(crate) static SCANNED_THREADS: Array<ScannedThread> = Array::with_max_entries(SET_BY_LOADER, 0);

/// Written by passes; read, and shortened, by user space between passes.
/// Address of a task -> the thread as the last pass found it.
/// The loader sets the size.
/// When full: the ticks of a thread that has no entry are lost and counted.
#[map]
pub(crate) static WAITING_THREADS: HashMap<u64, WaitingThread> = HashMap::with_max_entries(SET_BY_LOADER, 0);

/// Written by passes; read by user space after each, and by the program that unwinds copied stacks.
/// Index -> a thread whose user stack is to be copied.
/// The loader sets the size.
/// When full: the ticks of further threads are lost and counted.
#[map]
pub(crate) static STACK_REQUESTS: Array<StackRequest> = Array::with_max_entries(SET_BY_LOADER, 0);

/// Written by user space before each run of the program that unwinds copied stacks; read by the program, which notes what it lacks.
/// 0 -> the copied part of a stack.
/// When full: cannot be, it has one entry.
#[map]
pub(crate) static COPIED_STACK: Array<CopiedStack> = Array::with_max_entries(1, 0);

/// Written by the programs of off-CPU time; read by user space.
/// Address of a `task_struct` -> the wait of the thread. The entry of a thread that exits is removed at its last switch.
/// The loader sets the size.
/// When full: the waits of a thread that has no entry are counted and not timed.
#[map]
pub(crate) static OFF_CPU_THREADS: HashMap<u64, OffCpuThread> = HashMap::with_max_entries(SET_BY_LOADER, 0);

/// Written and read by the programs of off-CPU time, within one run.
/// 0 -> the working memory of the run. The ticks of a CPU have their own, and so has their governor.
/// When full: cannot be, it has one entry.
#[map]
pub(crate) static OFF_CPU_SCRATCH: PerCpuArray<OffCpuScratch> = PerCpuArray::with_max_entries(1, 0);

/// Written by the programs of off-CPU time on the CPU that a thread leaves, and read by them on that to which it returns.
/// Number of a CPU, times the copies of each, and the id of a thread modulo these -> the stack that the thread left.
/// The loader sets the size.
/// When full: a thread replaces the copy of another one with the same index, whose wait then has no stack.
#[map]
pub(crate) static STACKS_AT_SWITCH: Array<StackAtSwitch> = Array::with_max_entries(SET_BY_LOADER, 0);

/// Written and read by passes for off-CPU time, which run one after another.
/// 0 -> the working memory of a pass.
/// When full: cannot be, it has one entry.
#[map]
pub(crate) static OFF_CPU_PASS_SCRATCH: Array<OffCpuPassScratch> = Array::with_max_entries(1, 0);

/// Written by the programs of events; read by user space.
/// Index of an event -> its occurrences.
/// The loader sets the size.
/// When full: cannot be, every entry exists from the start.
#[map]
pub(crate) static EVENT_COUNTS: PerCpuArray<EventCounts> = PerCpuArray::with_max_entries(SET_BY_LOADER, 0);

/// Written and read by the programs of events, within one run.
/// Index of an event -> the working memory of its program: programs of several events can interrupt each other.
/// The loader sets the size.
/// When full: cannot be, every entry exists from the start.
#[map]
pub(crate) static EVENT_SCRATCH: PerCpuArray<EventScratch> = PerCpuArray::with_max_entries(SET_BY_LOADER, 0);

/// Written by the program of system call entries, by user space before sampling, and by the programs of events that measure
/// durations; read by these.
/// Address of a `task_struct` -> the last entry of the thread into a system call, until the thread exits; and
/// [`BEGUN_BEFORE`](profiler_common::system_call::BEGUN_BEFORE).
/// The loader sets the size.
/// When full: the calls of a thread that has no entry have no duration.
#[map]
pub(crate) static SYSTEM_CALLS: HashMap<u64, SystemCallEntry> = HashMap::with_max_entries(SET_BY_LOADER, 0);

/// A map definition of type array of maps, which aya-ebpf 0.2 does not offer.
#[repr(transparent)]
pub(crate) struct ArrayOfMaps(UnsafeCell<bpf_map_def>);

// SAFETY: the loader replaces each use of the definition by the map; nothing writes it.
unsafe impl Sync for ArrayOfMaps {}
