//! Wall-clock samples: the state of a waiting thread between two passes, the passes, and the offsets that they need.

use crate::{COMM_BYTES, StackId};

/// The number of a thread's state in a [`WaitingThread`].
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitState {
    /// It waits for a CPU.
    Runnable = 1,
    /// It sleeps until an event (`TASK_INTERRUPTIBLE`).
    Blocked = 2,
    /// It sleeps and takes no signal (`TASK_UNINTERRUPTIBLE`).
    Disk = 3,
    /// A signal or a debugger has stopped it.
    Stopped = 4,
    /// It could run, and its cgroup has used up its CPU quota.
    Throttled = 5,
}

/// A thread that was not on a CPU at the last pass: the value of the map of waiting threads, and the body of a
/// [`WaitRecord`].
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "user",
    derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)
)]
pub struct WaitingThread {
    /// The first of the ticks, `CLOCK_MONOTONIC`, nanoseconds.
    pub time_ns: u64,
    /// `task_struct.start_time`: a thread that reuses an id has another one.
    pub start_time: u64,
    /// The number of context switches at which the stacks were captured.
    pub switches: u64,
    /// The kernel frames.
    pub kernel_stack: StackId,
    /// The user frames.
    pub user_stack: StackId,
    /// Process id in the profiler's PID namespace.
    pub pid: u32,
    /// Thread id in the profiler's PID namespace.
    pub tid: u32,
    /// The ticks that it waited with this state and these stacks, and that no record has.
    pub ticks: u32,
    /// A [`WaitState`].
    pub state: u32,
    /// The CPU on which it ran last.
    pub cpu: u32,
    /// The last pass that found the thread.
    pub pass: u32,
    /// 1: the user stack does not reach its root. It is captured again: its unwind table may be installed by then.
    pub is_cut: u32,
    /// 0.
    pub reserved: u32,
    /// The name of the thread, padded with NUL.
    pub comm: [u8; COMM_BYTES],
}

/// The record of a thread whose wait ended, or whose state changed.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "user",
    derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)
)]
pub struct WaitRecord {
    /// [`RecordKind::Wait`](crate::RecordKind::Wait).
    pub kind: u32,
    /// 0.
    pub reserved: u32,
    /// The wait.
    pub thread: WaitingThread,
}

/// A pass over the threads, written before it begins.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "user", derive(zerocopy::IntoBytes, zerocopy::Immutable))]
pub struct WallPass {
    /// The number of the pass.
    pub number: u32,
    /// The ticks that were due since the previous pass: each thread that is found waiting gets them.
    pub ticks: u32,
    /// A wait that goes on has a record each time that so many passes have counted it.
    pub passes_per_record: u32,
    /// 0.
    pub reserved: u32,
}

/// Whether a pass captures stacks again that were cut, since their unwind tables may be installed by then: each of the first
/// passes does, and some of the later ones.
#[inline(always)]
#[must_use]
pub fn captures_cut_stacks(pass: u32) -> bool {
    const FIRST_PASSES: u32 = 64;
    const INTERVAL_PASSES: u32 = 16;
    pass < FIRST_PASSES || pass.is_multiple_of(INTERVAL_PASSES)
}

/// The words that a scan reads of a task from its link in the list of threads on: `nvcsw`, `nivcsw` and `start_time` are
/// among them.
pub const LINKED_WORDS: usize = 32;

/// The words that a scan reads of a task from its state on: `on_cpu` is among them.
pub const STATE_WORDS: usize = 8;

/// The most threads that a scan lists for the pass after it.
pub const MAX_CHANGED_THREADS: usize = 64;

/// The result of a scan of the threads of a process, and its working memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "user",
    derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)
)]
pub struct WallScan {
    /// The address of the head of the list of threads.
    pub head: u64,
    /// The address of the link of the next thread.
    pub link: u64,
    /// The number of the pass that follows the scan.
    pub pass: u32,
    /// 1: the scan reached the end of the list.
    pub is_complete: u32,
    /// The number of threads that were scanned.
    pub threads: u32,
    /// The number of threads that have not run since the last pass. Their ticks are counted.
    pub waiting: u32,
    /// The number of all other threads. The pass visits them.
    pub changed: u32,
    /// The number of threads that the pass visited since.
    pub visits: u32,
    /// The ids of the first changed threads, in the profiler's PID namespace.
    pub changed_tids: [u32; MAX_CHANGED_THREADS],
    /// Fields of the scanned thread, from its link on.
    pub linked: [u64; LINKED_WORDS],
    /// Fields of the scanned thread, from its state on.
    pub states: [u64; STATE_WORDS],
}

/// The offsets that passes need, in bytes from the start of the structure. All are 0 without wall-clock samples.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "user", derive(zerocopy::IntoBytes, zerocopy::Immutable))]
pub struct WallOffsets {
    /// `task_struct.pid`, the id of the thread in the initial PID namespace.
    pub task_pid: u32,
    /// `task_struct.tgid`, that of the process.
    pub task_tgid: u32,
    /// `task_struct.mm`.
    pub task_mm: u32,
    /// `task_struct.__state`, or `state` before Linux 5.14.
    pub task_state: u32,
    /// `task_struct.exit_state`.
    pub task_exit_state: u32,
    /// `task_struct.on_cpu`.
    pub task_on_cpu: u32,
    /// `task_struct.nvcsw`; `nivcsw` is the next word.
    pub task_switches: u32,
    /// `task_struct.start_time`.
    pub task_start_time: u32,
    /// `task_struct.comm`.
    pub task_comm: u32,
    /// `task_struct.thread_info.cpu`, or `task_struct.cpu` before Linux 5.16.
    pub task_cpu: u32,
    /// `css_set.dfl_cgrp`.
    pub css_set_default_cgroup: u32,
    /// `task_struct.sched_info.last_arrival`; `last_queued` is the next word. 0 where the kernel has no such times.
    pub task_last_arrival: u32,
    /// `task_struct.se.cfs_rq`: the run queue of the task's cgroup on its CPU.
    pub task_run_queue: u32,
    /// `cfs_rq.throttle_count`: the cgroups, from this one up, whose quota is used up. 0 where the kernel has no quotas.
    pub run_queue_throttle_count: u32,
    /// `task_struct.thread_node`: the link of a thread in the list of threads of its process.
    pub task_thread_node: u32,
    /// `signal_struct.thread_head`: the head of that list. 0 where the iterator cannot visit a single thread.
    pub signal_thread_head: u32,
}

const _: () = assert!(size_of::<WaitingThread>() == 88);
const _: () = assert!(size_of::<WaitRecord>() == 96);
const _: () = assert!(size_of::<WallPass>() == 16);
const _: () =
    assert!(size_of::<WallScan>() == 40 + 4 * MAX_CHANGED_THREADS + 8 * (LINKED_WORDS + STATE_WORDS));
const _: () = assert!(size_of::<WallOffsets>().is_multiple_of(8));
