//! The maps of the kernel side, and the two operations that need more than one line.

use core::cell::UnsafeCell;

use aya_ebpf::{
    bindings::{BPF_F_MMAPABLE, bpf_map_def, bpf_map_type::BPF_MAP_TYPE_ARRAY_OF_MAPS},
    helpers::generated as helpers,
    macros::map,
    maps::{Array, CgroupArray, HashMap, LruHashMap, PerCpuArray, ProgramArray, RingBuf},
};
use decide::way_out::Remembered;
use profiler_common::{
    ASKED_CAPACITY, Counter, STACKS_CAPACITY, StackId, TARGETS_CAPACITY, WAYS_OUT_CAPACITY,
    unwind::{
        MAX_CHUNKS, MAX_MAPPINGS, MAX_PAGES, MAX_PROCESSES, MAX_RULES, MappingEntry, PageEntry, ProcessEntry,
        Rule,
    },
};

use crate::stack::Scratch;

/// Written here, read by the reader thread.
/// A sample record or a stack record.
/// The loader sets the size.
/// When it is full the sample is counted as lost.
#[map]
pub(crate) static RECORDS: RingBuf = RingBuf::with_byte_size(512 * 1024, 0);

/// Written and read here only.
/// Stack id -> nothing: the stacks that user space has.
/// When it is full the least recently used one goes, and is sent again when it comes back.
#[map]
pub(crate) static STACKS: LruHashMap<StackId, u8> = LruHashMap::with_max_entries(STACKS_CAPACITY, 0);

/// Written by the loader, and here when a target forks; read here.
/// Process or thread id in the profiler's pid namespace -> nothing.
/// When it is full the child is counted and not sampled.
#[map]
pub(crate) static TARGETS: HashMap<u32, u8> = HashMap::with_max_entries(TARGETS_CAPACITY, 0);

/// Written by the loader, read here.
/// 0 -> the cgroup v2 directory to sample below.
/// It cannot be full.
#[map]
pub(crate) static CGROUP: CgroupArray = CgroupArray::with_max_entries(1, 0);

/// Written here and read here, never outside one run of the program.
/// 0 -> what the run works on, too large for the stack of a BPF program.
/// It cannot be full.
#[map]
pub(crate) static SCRATCH: PerCpuArray<Scratch> = PerCpuArray::with_max_entries(1, 0);

/// Written here, read by user space.
/// Counter -> count.
/// It cannot be full.
#[map]
pub(crate) static COUNTERS: PerCpuArray<u64> = PerCpuArray::with_max_entries(Counter::COUNT, 0);

/// Written by user space, read here.
/// Process id -> where its mappings are.
/// When it is full the stacks of further processes are taken by the kernel's own walk.
#[map]
pub(crate) static PROCESSES: HashMap<u32, ProcessEntry> = HashMap::with_max_entries(MAX_PROCESSES, 0);

/// Written by user space through mmap(2), read here.
/// 0 -> the mappings of all processes, those of one by address.
/// User space knows what is free.
#[map]
pub(crate) static MAPPINGS: Array<[MappingEntry; MAX_MAPPINGS as usize]> =
    Array::with_max_entries(1, BPF_F_MMAPABLE);

/// Written by user space through mmap(2), read here.
/// 0 -> the pages of all files, those of one by address.
/// User space knows what is free.
#[map]
pub(crate) static PAGES: Array<[PageEntry; MAX_PAGES as usize]> = Array::with_max_entries(1, BPF_F_MMAPABLE);

/// Written by user space through mmap(2), read here.
/// 0 -> the rules of all rows.
/// User space knows what is free.
#[map]
pub(crate) static RULES: Array<[Rule; MAX_RULES as usize]> = Array::with_max_entries(1, BPF_F_MMAPABLE);

/// Written by user space, read here.
/// Chunk -> an array of one value, its rows. User space makes chunks as it needs them.
/// When it is full, files get no rows, and their code is walked by frame pointer.
#[unsafe(no_mangle)]
#[unsafe(link_section = "maps")]
pub(crate) static CHUNKS: MapOfMaps = MapOfMaps(UnsafeCell::new(bpf_map_def {
    type_: BPF_MAP_TYPE_ARRAY_OF_MAPS,
    key_size: size_of::<u32>() as u32,
    value_size: size_of::<u32>() as u32,
    max_entries: MAX_CHUNKS,
    map_flags: 0,
    id: 0,
    pinning: 0,
}));

/// A definition that no type of aya-ebpf has.
#[repr(transparent)]
pub(crate) struct MapOfMaps(UnsafeCell<bpf_map_def>);

// SAFETY: the loader replaces each use of it by the map; there is nothing to race for.
unsafe impl Sync for MapOfMaps {}

/// Written and read here only.
/// Process id -> when its unknown code was told last, `CLOCK_MONOTONIC` nanoseconds.
/// When it is full the least recently told process is forgotten, and told again.
#[map]
pub(crate) static ASKED: LruHashMap<u32, u64> = LruHashMap::with_max_entries(ASKED_CAPACITY, 0);

/// Written and read here only.
/// By an instruction's address -> its way out, of the last one of these addresses.
/// It cannot be full: what takes a place takes it from another.
#[map]
pub(crate) static WAYS_OUT: Array<Remembered> = Array::with_max_entries(WAYS_OUT_CAPACITY, 0);

/// Written by the loader, read here.
/// 0 -> the program that takes more frames.
/// It cannot be full.
#[map]
pub(crate) static LINKS: ProgramArray = ProgramArray::with_max_entries(1, 0);

/// Adds one to a counter of this CPU.
#[inline(always)]
pub(crate) fn count(counter: Counter) {
    add(counter, 1);
}

/// Adds to a counter of this CPU.
#[inline(always)]
pub(crate) fn add(counter: Counter, amount: u64) {
    if let Some(cell) = COUNTERS.get_ptr_mut(counter as u32) {
        // SAFETY: the cell belongs to this CPU, and the program is not interrupted by itself.
        unsafe { *cell += amount }
    }
}

/// Copies a record into the ring buffer; false when it is full.
#[inline(always)]
pub(crate) fn send(record: *const u8, bytes: u64, flags: u64) -> bool {
    // SAFETY: the verifier proves that `bytes` readable bytes stand at `record`.
    let result = unsafe {
        helpers::bpf_ringbuf_output(
            (&raw const RECORDS).cast_mut().cast(),
            record.cast_mut().cast(),
            bytes,
            flags,
        )
    };
    result == 0
}
