//! Per-CPU working memory of the sampling programs: unwinder state, stack window, sample and stack record.
//!
//! VERIFIER: the state is in a map value and never in registers or on the BPF stack. A value loaded from a map has
//! no history, so that each unwind step looks to the verifier like the one before and is verified once.

use profiler_common::{
    MAX_FRAMES, SampleRecord, StackHeader,
    function_edge::EdgeScan,
    unwind::{FileSegment, MappingEntry, ProcessEntry, Rule, StackEndReason},
};
use profiler_ebpf::{
    epilogue::{CODE_BYTES, ScanState},
    governor::Governor,
    maple_node::MAPLE_NODE_WORDS,
    unwind_step::{LeafRegisters, Registers, SavedGoroutine},
};

/// The working memory of one run of a program.
#[repr(C)]
pub(crate) struct Scratch {
    pub(crate) unwind: UnwindState,
    pub(crate) window: StackWindow,
    pub(crate) code: CodeScan,
    pub(crate) vma_search: VmaSearchState,
    pub(crate) return_probes: ReturnProbeState,
    /// The hash of the blocks so far of a stack that `bpf_get_stack` captured.
    pub(crate) captured_hash: u64,
    pub(crate) governor: Governor,
    pub(crate) sample: SampleRecord,
    /// Samples of this CPU until the fill of the ring buffer is read, see [`profiler_ebpf::next_query`].
    pub(crate) samples_to_query: u64,
    pub(crate) stack: StackRecord,
}

/// The state of the unwinder between two frames.
#[repr(C)]
pub(crate) struct UnwindState {
    /// The registers of the frame that was added last.
    pub(crate) registers: Registers,
    /// All registers of the leaf.
    pub(crate) leaf: LeafRegisters,
    /// The stack hash of the frames so far.
    pub(crate) hash: u64,
    /// The mappings of the process.
    pub(crate) process: ProcessEntry,
    /// Identifies the mappings of the process in the cache of rules.
    pub(crate) hash_of_mappings: u64,
    /// The mapping that holds the instruction pointer, unless its rule is in the cache.
    pub(crate) mapping: MappingEntry,
    /// The number of frames so far.
    pub(crate) depth: u32,
    /// Subtracted from the instruction pointer for lookups: 1 for a return address, so that the call is looked up.
    pub(crate) lookup_offset: u32,
    /// A [`PendingSearch`]: what the next step finds of the registers' frame before it adds the frame.
    pub(crate) pending: u32,
    /// The index of the rule of the frame that was added last, or [`UnwindState::NOT_CACHED`].
    pub(crate) cached_rule: u32,
    /// The rule of the frame that was added last.
    pub(crate) rule: Rule,
    /// The goroutine of this rule.
    pub(crate) goroutine: SavedGoroutine,
    /// The [`FrameFlags`](profiler_common::FrameFlags) of that frame.
    pub(crate) next_flag: u64,
    /// A [`StackEndReason`](profiler_common::unwind::StackEndReason), or [`UnwindState::RUNNING`].
    pub(crate) end_reason: u32,
}

/// What is still unknown of a frame.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PendingSearch {
    /// The frame is complete: the next step unwinds it.
    None = 0,
    /// The mapping of its code, among the VMAs.
    Mapping = 1,
    /// The return address that a return probe has replaced.
    ReturnAddress = 2,
    /// The goroutine on whose stack its caller is.
    Goroutine = 3,
    /// The caller, by the rule that is given.
    Caller = 4,
}

impl UnwindState {
    /// The stack has not ended.
    pub(crate) const RUNNING: u32 = 0;

    /// The rule is looked up in the unwind table.
    pub(crate) const NOT_CACHED: u32 = u32::MAX;

    /// Whether the stack ended before its root, for a reason that an unwind table can remove. Without one, also a register that
    /// is no frame pointer and happens to be 0 looks like the end.
    #[inline(always)]
    pub(crate) fn is_cut(&self) -> bool {
        self.end_reason != StackEndReason::Root as u32
            && self.end_reason != StackEndReason::NoUserStack as u32
            && self.end_reason != StackEndReason::DepthLimit as u32
            && self.end_reason != StackEndReason::ReturnProbe as u32
    }
}

/// Words of the target's stack that are read at once: neighbouring frames are near each other, and a
/// read costs more by its call than by its length.
pub(crate) const WINDOW_WORDS: usize = 128;

/// The part of the target's stack that was read last.
#[repr(C)]
pub(crate) struct StackWindow {
    /// The address of the first word.
    pub(crate) start: u64,
    /// The number of bytes that were read.
    pub(crate) bytes: u64,
    /// The number of bytes that can be read where a whole window cannot.
    pub(crate) readable: u64,
    /// The index of the word that was read last.
    pub(crate) index: usize,
    pub(crate) words: [u64; WINDOW_WORDS],
}

/// The state of a scan of code.
#[repr(C)]
pub(crate) struct CodeScan {
    /// The code from the scanned instruction on.
    pub(crate) code: [u8; CODE_BYTES],
    pub(crate) edge: EdgeScan,
    pub(crate) state: ScanState,
    /// 1 when the instruction runs, and is not preceded by a call.
    pub(crate) runs: u32,
}

/// The state of a search among the VMAs of a process.
#[repr(C)]
pub(crate) struct VmaSearchState {
    /// The `mm_struct` that is searched; 0 for that of the running task.
    pub(crate) mm: u64,
    /// The levels of the maple tree that the search has descended.
    pub(crate) levels: u32,
    /// The node of the maple tree that was read last.
    pub(crate) node: [u64; MAPLE_NODE_WORDS],
    /// The entry in that node: a node of the next level, or a VMA.
    pub(crate) entry: u64,
    pub(crate) segment: FileSegment,
}

/// The state of a search among the return addresses of a task that return probes have replaced.
#[repr(C)]
pub(crate) struct ReturnProbeState {
    /// The address of the `task_struct`; 0 for the running task.
    pub(crate) task: u64,
    /// The address that is on the stack in place of a return address; 0 until it is read.
    pub(crate) trampoline: u64,
    /// The address of the next `return_instance`; 0 after the last.
    pub(crate) instance: u64,
}

/// One stack record, as it goes into the ring buffer.
#[repr(C)]
pub(crate) struct StackRecord {
    pub(crate) header: StackHeader,
    /// The block behind the deepest stack is for padding: addresses are hashed by whole blocks.
    pub(crate) frames: [u64; MAX_FRAMES + HASH_BLOCK],
}

/// Addresses that are hashed between two bounds checks, or in one call of the callback of `bpf_loop`: the verifier inspects its state once
/// a block instead of once an address, and a call costs as much as some addresses. A power of two.
pub(crate) const HASH_BLOCK: usize = 8;
