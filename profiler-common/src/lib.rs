//! Records, map layouts, limits and names that the BPF programs and user space share.
//!
//! Everything here is plain data of fixed width without implicit padding. The BPF programs write these
//! structures into maps and the ring buffer; user space (feature `user`) reads them back from bytes.
//! Process and thread ids are those of the profiler's own PID namespace.
#![no_std]

mod config;
mod counter;
pub mod event;
pub mod function_edge;
pub mod names;
pub mod off_cpu;
mod record;
pub mod requested_stack;
pub mod system_call;
pub mod unwind;
pub mod wall;

pub use config::{Config, PidSource, ReturnProbeOffsets, TargetFilter, UserRegistersSource, VmaSearch};
pub use counter::Counter;
pub use record::{
    COMM_BYTES, FrameFlags, RecordKind, SampleRecord, StackFlags, StackHeader, StackId, StaleMappingsRecord,
    decode_kind,
};

/// The most frames of one captured stack.
///
/// `bpf_get_stack` ends at `kernel.perf_event_max_stack` (127 by default); a node where that was raised gets up to this
/// many. A power of two.
pub const MAX_FRAMES: usize = 1024;

/// [`Config::max_overhead`] is in units of 1 / 2^20 of a CPU.
pub const OVERHEAD_SHARE_BITS: u32 = 20;

/// Frames that the unwinder adds between two tail calls, where the kernel has no `bpf_loop`. With the 33 programs that
/// one run may chain (`MAX_TAIL_CALL_CNT`, `include/linux/bpf.h`) it bounds the depth of a stack.
pub const FRAMES_PER_TAIL_CALL: u32 = 8;

/// Entries of the cache of function edges, indexed by the hash of an instruction's address. A power of two.
pub const EDGE_CACHE_CAPACITY: u32 = 4096;

/// Entries of the cache of rules, indexed by the hash of mappings and a return address: 128 KiB. A power of two.
pub const RULE_CACHE_CAPACITY: u32 = 16 * 1024;

/// Levels of a cgroup v1 hierarchy that are searched upwards for the target directory.
pub const MAX_CGROUP_DEPTH: u32 = 32;

/// Levels of PID namespaces, `MAX_PID_NS_LEVEL` of `include/linux/pid_namespace.h`.
pub const MAX_PID_NAMESPACE_LEVEL: u32 = 32;
