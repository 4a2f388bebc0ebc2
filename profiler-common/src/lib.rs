//! What crosses the border between the kernel side and user space: records, limits, counters and names.
//!
//! Everything here is plain data of fixed width without implicit padding. The kernel side writes these
//! structures into maps and the ring buffer; user space (feature `user`) reads them back from bytes.
//! Process and thread ids are already those of the profiler's own pid namespace.
#![no_std]

mod config;
mod counter;
mod record;
pub mod unwind;

pub use config::{Config, PidSource, TargetFilter, UserRegisters};
pub use counter::Counter;
pub use record::{
    COMM_BYTES, FrameMarks, RecordKind, SampleRecord, StackFlags, StackHeader, StackId, UnknownCodeRecord,
    decode_kind, stack_record_bytes,
};

/// The most frames one captured stack can hold.
///
/// The kernel's own walk ends at `kernel.perf_event_max_stack` (127 unless raised); a node where that was
/// raised gets up to this many. A power of two.
pub const MAX_FRAMES: usize = 1024;

/// How many frames the walker takes between two tail calls, where the kernel has no `bpf_loop`. With the 33
/// programs that one run may chain (`MAX_TAIL_CALL_CNT`, `include/linux/bpf.h`) it is the depth of a stack.
pub const FRAMES_A_TAIL_CALL: u32 = 8;

/// How many processes' unknown code is remembered as told.
pub const ASKED_CAPACITY: u32 = 1024;

/// Instructions of generated code whose way out is remembered: those in the stacks of some busy processes. A power of two.
pub const WAYS_OUT_CAPACITY: u32 = 4096;

/// How many distinct stacks the kernel side remembers as already sent.
///
/// When more are live the least recently used are forgotten and sent again: it costs bytes, never a sample.
pub const STACKS_CAPACITY: u32 = 16 * 1024;

/// How many processes or threads a target filter can name, forked children included.
pub const TARGETS_CAPACITY: u32 = 64 * 1024;

/// How deep a cgroup hierarchy is walked when it has to be walked by hand (cgroup v1).
pub const MAX_CGROUP_DEPTH: u32 = 32;

/// Levels of pid namespaces, `MAX_PID_NS_LEVEL` of `include/linux/pid_namespace.h`.
pub const MAX_PID_NAMESPACE_LEVEL: u32 = 32;

/// Names of programs and maps in the kernel object, as the loader looks them up.
pub mod names {
    /// The program run at each tick, user stacks by the kernel's own walk.
    pub const PROGRAM_SAMPLE: &str = "sample";
    /// As above, user stacks by tables: in one loop.
    pub const PROGRAM_SAMPLE_LOOP: &str = "sample_loop";
    /// As above, for kernels without loops: the first part.
    pub const PROGRAM_SAMPLE_CHAIN: &str = "sample_chain";
    /// A few frames more, in place of the program that calls it.
    pub const PROGRAM_SAMPLE_LINK: &str = "sample_link";
    /// The program that gives a child process what its parent has: a place among the targets, and mappings.
    pub const PROGRAM_FORK: &str = "process_fork";
    /// The program that takes the mappings from a process that executes another program.
    pub const PROGRAM_EXEC: &str = "process_exec";
    /// The program that takes a place among the targets and mappings from a process that ended.
    pub const PROGRAM_EXIT: &str = "process_exit";
    /// Ring buffer of [`SampleRecord`](super::SampleRecord) and stack records.
    pub const MAP_RECORDS: &str = "RECORDS";
    /// Ids of the stacks that were sent.
    pub const MAP_STACKS: &str = "STACKS";
    /// Process or thread ids to sample.
    pub const MAP_TARGETS: &str = "TARGETS";
    /// The cgroup v2 directory to sample below.
    pub const MAP_CGROUP: &str = "CGROUP";
    /// One cell for each [`Counter`](super::Counter).
    pub const MAP_COUNTERS: &str = "COUNTERS";
    /// The one program of [`PROGRAM_SAMPLE_LINK`].
    pub const MAP_LINKS: &str = "LINKS";
    /// Process id -> [`ProcessEntry`](super::unwind::ProcessEntry).
    pub const MAP_PROCESSES: &str = "PROCESSES";
    /// One value, all [`MappingEntry`](super::unwind::MappingEntry)s.
    pub const MAP_MAPPINGS: &str = "MAPPINGS";
    /// One value, all [`PageEntry`](super::unwind::PageEntry)s.
    pub const MAP_PAGES: &str = "PAGES";
    /// One value, all [`Rule`](super::unwind::Rule)s.
    pub const MAP_RULES: &str = "RULES";
    /// Chunk -> an array of one value, its [`Row`](super::unwind::Row)s.
    pub const MAP_CHUNKS: &str = "CHUNKS";
    /// The load-time constant of type [`Config`](super::Config).
    pub const GLOBAL_CONFIG: &str = "CONFIG";
}
