//! Off-CPU time: the wait of a thread from the switch away from it to the switch back to it, and the record of a wait.

use crate::{COMM_BYTES, StackId, requested_stack::StackPart};

/// A thread of the target: the value of the map of its threads, and the body of an [`OffCpuRecord`].
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "user",
    derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)
)]
pub struct OffCpuThread {
    /// The start of the wait, `CLOCK_MONOTONIC`, nanoseconds; 0: the thread is on a CPU.
    pub since_ns: u64,
    /// When the thread was woken, `CLOCK_MONOTONIC`, nanoseconds; 0: it was not. It has waited for a CPU since.
    pub woken_ns: u64,
    /// The kernel frames; 0 until the wait ends, or a pass captures them.
    pub kernel_stack: StackId,
    /// The user frames.
    pub user_stack: StackId,
    /// The time from the begin of the last wait to its wake-up, nanoseconds.
    pub previous_ns: u64,
    /// The time for which the thread has run (`task_struct.se.sum_exec_runtime`) up to the start of the wait, nanoseconds.
    pub run_time_ns: u64,
    /// Process id in the profiler's PID namespace.
    pub pid: u32,
    /// Thread id in the profiler's PID namespace.
    pub tid: u32,
    /// The [`WaitState`](crate::wall::WaitState) until it was woken.
    pub state: u32,
    /// The CPU that it left.
    pub cpu: u32,
    /// 1: its stacks are captured, as far as it has any. 0: they were not, because of the overhead limit.
    pub has_stacks: u32,
    /// 1: the user stack does not reach its root. A pass captures it again: its unwind table may be installed by then.
    pub is_cut: u32,
    /// The [`WaitState`](crate::wall::WaitState) since it was woken: runnable or throttled.
    pub woken_state: u32,
    /// The mean time that waits of the thread add to the profile, nanoseconds.
    pub mean_ns: u32,
    /// The name of the thread, padded with NUL.
    pub comm: [u8; COMM_BYTES],
    /// Who woke it.
    pub waker: Waker,
}

/// The task that was running where a thread was woken. In an interrupt it has nothing to do with the wait.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "user",
    derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)
)]
pub struct Waker {
    /// The kernel frames.
    pub kernel_stack: StackId,
    /// The user frames.
    pub user_stack: StackId,
    /// Process id in the profiler's PID namespace; 0 is no process.
    pub pid: u32,
    /// Thread id in the profiler's PID namespace.
    pub tid: u32,
    /// The name of the thread, padded with NUL.
    pub comm: [u8; COMM_BYTES],
}

/// The record of a wait that ended.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "user",
    derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)
)]
pub struct OffCpuRecord {
    /// [`RecordKind::OffCpu`](crate::RecordKind::OffCpu).
    pub kind: u32,
    /// 0.
    pub reserved: u32,
    /// The end of the wait, `CLOCK_MONOTONIC`, nanoseconds.
    pub ended_ns: u64,
    /// The wait.
    pub thread: OffCpuThread,
}

/// What the programs of off-CPU time are to record.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "user", derive(zerocopy::IntoBytes, zerocopy::Immutable))]
pub struct OffCpuConfig {
    /// Shorter waits are counted and have no record, nanoseconds.
    pub min_block_ns: u64,
    /// 1: capture who wakes a thread.
    pub wakers: u32,
    /// The [`WaitState`](crate::wall::WaitState) of the waits that are recorded; 0: all are.
    pub only_state: u32,
    /// The number of [`StackAtSwitch`]es of each CPU.
    pub copies_per_cpu: u32,
    /// 0.
    pub reserved: u32,
}

/// The user stack of a thread at the switch away from it, to be unwound if its wait is long enough for a record.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackAtSwitch {
    /// Its id in the profiler's PID namespace; 0: the copy is not complete.
    pub tid: u32,
    /// 0.
    pub reserved: u32,
    /// The start of the wait.
    pub since_ns: u64,
    /// The user registers.
    pub instruction_pointer: u64,
    /// As above.
    pub stack_pointer: u64,
    /// As above.
    pub frame_pointer: u64,
    /// As above.
    pub rbx: u64,
    /// The first words of `struct pt_regs`, as [`LeafRegister`](crate::unwind::LeafRegister) numbers them.
    pub leaf: [u64; 16],
    /// The stack from its pointer on.
    pub part: StackPart,
}

/// The copies of stacks of all CPUs: each of the threads that leave one has its own, unless two threads share a number by chance.
pub const STACK_COPIES: u32 = 1024;

/// The copies of each CPU on a large machine.
pub const LEAST_STACK_COPIES_PER_CPU: u32 = 16;

const _: () = assert!(size_of::<OffCpuThread>() == 136);
const _: () = assert!(size_of::<OffCpuRecord>() == 152);
