//! Events that are sampled at each occurrence, or at every Nth: software and hardware events, tracepoints, probes. Their
//! records, counts and load-time constants.

use crate::SampleRecord;

/// The most events of a session.
pub const MAX_EVENTS: usize = 8;

/// The most conditions of an event: two that distinguish a system call, and a requested one.
pub const MAX_CONDITIONS: usize = 3;

/// A sample of an event.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "user",
    derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)
)]
pub struct EventRecord {
    /// The task and its stacks, with the kind [`RecordKind::Event`](crate::RecordKind::Event).
    pub sample: SampleRecord,
    /// The occurrences since the previous sample of the CPU, its own included; or the sum of a field over these.
    pub value: u64,
    /// The index of the event.
    pub event: u32,
    /// The [`SystemCallAbi`](crate::system_call::SystemCallAbi) of the system call; 0: the event has none.
    pub system_call_abi: u32,
    /// The number of the system call.
    pub system_call: i64,
}

/// The occurrences of an event in the target on one CPU. Each is in a record, or in one of the other fields.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "user",
    derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)
)]
pub struct EventCounts {
    /// All of them but the nested ones, and but those since the last one that is to be sampled.
    pub due: u64,
    /// The runs of the program since the last occurrence that was to be sampled.
    pub runs: u64,
    /// The sum of their values.
    pub pending: u64,
    /// Those that were skipped because of the overhead limit, and are in no record yet: the next sample of the CPU has their
    /// number.
    pub skipped: u64,
    /// Those whose record or stack did not fit into the ring buffer.
    pub lost_ring_buffer: u64,
    /// Those of a task that has no id in the profiler's PID namespace.
    pub lost_thread_id: u64,
    /// Those that occurred while the program handled another one on the CPU.
    pub lost_nested: u64,
    /// Nanoseconds that the program took.
    pub run_time_ns: u64,
}

/// What the program of an event records. Each event has a program and constants of its own.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "user", derive(zerocopy::IntoBytes, zerocopy::Immutable))]
pub struct EventConfig {
    /// The occurrences for which one run of the program stands.
    pub occurrences_per_run: u64,
    /// The number of runs until one takes a sample.
    pub runs_per_sample: u64,
    /// The index of the event.
    pub index: u32,
    /// 1: the weight or a condition is the duration of a system call.
    pub needs_duration: u32,
    /// Whether records have the number of a system call, a [`SystemCallPlace`].
    pub system_call: u32,
    /// `task_struct.thread_info.status`, which states the table of the number; 0 where there is no BTF.
    pub thread_status: u32,
    /// `task_struct.start_time`, for durations; 0 where there is no BTF.
    pub thread_start_time: u32,
    /// 0.
    pub reserved: u32,
    /// The field whose values are summed; without, occurrences are counted.
    pub weight: Field,
    /// The conditions on which an occurrence counts: all of them.
    pub conditions: [Condition; MAX_CONDITIONS],
}

/// Where an event is in a system call, for records with its number.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SystemCallPlace {
    /// Records have no number.
    None = 0,
    /// At the entry.
    Entry = 1,
    /// At the exit.
    Exit = 2,
}

/// A number in the arguments of a tracepoint or a probe.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "user", derive(zerocopy::IntoBytes, zerocopy::Immutable))]
pub struct Field {
    /// The size of the number: 1, 2, 4 or 8 bytes; 0 is no field.
    pub bytes: u32,
    /// 1: the number has a sign.
    pub is_signed: u32,
    /// The offset of the argument in the context of the program.
    pub context_offset: u32,
    /// A [`FieldPlace`].
    pub place: u32,
    /// The offset of the number from the address that the argument is; or the number, if it is a constant.
    pub offset: i32,
    /// 0.
    pub reserved: u32,
}

/// The place of the number of a [`Field`].
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldPlace {
    /// The number is the argument.
    Argument = 0,
    /// The argument is an address in the kernel.
    KernelMemory = 1,
    /// The argument is an address in the process.
    UserMemory = 2,
    /// The number is a constant.
    Constant = 3,
    /// The number is the duration of the system call that returns, nanoseconds.
    Duration = 4,
}

/// A comparison of a field with a number.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "user", derive(zerocopy::IntoBytes, zerocopy::Immutable))]
pub struct Condition {
    /// The number.
    pub number: i64,
    /// The field.
    pub field: Field,
    /// A [`Comparison`]; 0 is no condition.
    pub comparison: u32,
    /// 0.
    pub reserved: u32,
}

/// How the field of a [`Condition`] compares with its number.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Comparison {
    /// `==`
    Equal = 1,
    /// `!=`
    NotEqual = 2,
    /// `<`
    Less = 3,
    /// `<=`
    AtMost = 4,
    /// `>`
    Greater = 5,
    /// `>=`
    AtLeast = 6,
}

const _: () = assert!(size_of::<EventRecord>() == 80);
