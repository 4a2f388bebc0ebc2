//! The maps of the kernel side, and the two operations that need more than one line.

use aya_ebpf::{
    helpers::generated as helpers,
    macros::map,
    maps::{CgroupArray, HashMap, LruHashMap, PerCpuArray, RingBuf},
};
use profiler_common::{Counter, STACKS_CAPACITY, StackId, TARGETS_CAPACITY};

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
/// 0 -> room for one stack record, too large for the stack of a BPF program.
/// It cannot be full.
#[map]
pub(crate) static SCRATCH: PerCpuArray<Scratch> = PerCpuArray::with_max_entries(1, 0);

/// Written here, read by user space.
/// Counter -> count.
/// It cannot be full.
#[map]
pub(crate) static COUNTERS: PerCpuArray<u64> = PerCpuArray::with_max_entries(Counter::COUNT, 0);

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
