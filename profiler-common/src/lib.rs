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

pub use config::{Config, PidSource, TargetFilter};
pub use counter::Counter;
pub use record::{
    COMM_BYTES, RecordKind, SampleRecord, StackFlags, StackHeader, StackId, decode_kind, stack_record_bytes,
};

/// The most frames one captured stack can hold.
///
/// The kernel's own walk ends at `kernel.perf_event_max_stack` (127 unless raised); a node where that was
/// raised gets up to this many.
pub const MAX_FRAMES: usize = 512;

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
    /// The program run at each tick.
    pub const PROGRAM_SAMPLE: &str = "sample";
    /// The program that adds a target's new child processes to the targets.
    pub const PROGRAM_FORK: &str = "process_fork";
    /// The program that takes a target that ended off the targets.
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
    /// The load-time constant of type [`Config`](super::Config).
    pub const GLOBAL_CONFIG: &str = "CONFIG";
}
