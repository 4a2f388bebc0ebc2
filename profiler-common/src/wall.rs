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
    /// A [`WaitState`].
    pub state: u32,
    /// The CPU on which it ran last.
    pub cpu: u32,
    /// 1: the user stack does not reach its root. It is captured again: its unwind table may be installed by then.
    pub is_cut: u32,
    /// 1: it may wait for a mutex of the GNU C library, as far as its system call shows.
    pub may_await_mutex: u32,
    /// [`WallPass::ticks_after`] of the last pass that found the thread waiting with this state and these stacks.
    pub found_ticks: u64,
    /// [`WallPass::ticks_after`] of the last pass whose ticks are in a record, or of the pass before the stacks were captured.
    pub recorded_ticks: u64,
    /// Of the time that the thread has waited for a CPU (`sched_info.run_delay`), the part whose ticks are counted, nanoseconds.
    pub run_queue_ns: u64,
    /// The name of the thread, padded with NUL.
    pub comm: [u8; COMM_BYTES],
}

impl WaitingThread {
    /// The ticks that no record has.
    #[inline(always)]
    #[must_use]
    pub fn ticks(&self) -> u64 {
        self.found_ticks.wrapping_sub(self.recorded_ticks)
    }

    /// Whether it could run.
    #[inline(always)]
    #[must_use]
    pub fn is_runnable(&self) -> bool {
        self.state == WaitState::Runnable as u32 || self.state == WaitState::Throttled as u32
    }

    /// Sets the ticks of a thread that could run, by the time that the scheduler counts: `total_ns` in all. A pass finds the same
    /// on average, but by chance too many or too few of a thread that is rarely in the run queue.
    #[inline(always)]
    pub fn count_run_queue(&mut self, total_ns: u64, period_ns: u64) {
        let waited_ns = total_ns.saturating_sub(self.run_queue_ns);
        let ticks = (waited_ns + period_ns / 2).checked_div(period_ns).unwrap_or(0);
        self.recorded_ticks = self.found_ticks.wrapping_sub(ticks);
    }

    /// Notes that a record has all ticks so far.
    #[inline(always)]
    pub fn end_record(&mut self, period_ns: u64) {
        if self.is_runnable() {
            self.run_queue_ns = self.run_queue_ns.wrapping_add(self.ticks().wrapping_mul(period_ns));
        }
        self.recorded_ticks = self.found_ticks;
    }

    /// Counts the ticks up to a pass, unless a later one has found the thread: a scan that is not complete has sent records of
    /// some threads.
    #[inline(always)]
    pub fn count_until(&mut self, ticks: u64) {
        self.found_ticks = self.found_ticks.max(ticks);
    }
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
#[cfg_attr(
    feature = "user",
    derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)
)]
pub struct WallPass {
    /// The number of the pass.
    pub number: u32,
    /// The ticks that were due since the previous pass: each thread that is found waiting gets them.
    pub ticks: u32,
    /// A wait that goes on has a record each time that so many passes have found it.
    pub passes_per_record: u32,
    /// 1: the scan before the pass ends that of earlier passes, and scans no thread.
    pub ends_scans: u32,
    /// The ticks of all earlier passes.
    pub ticks_before: u64,
    /// The time between two ticks, nanoseconds.
    pub period_ns: u64,
    /// The number of [`StackRequest`](crate::requested_stack::StackRequest)s that the pass has made.
    pub requests: u32,
    /// 0.
    pub reserved: u32,
}

impl WallPass {
    /// The ticks of all passes up to this one.
    #[inline(always)]
    #[must_use]
    pub fn ticks_after(&self) -> u64 {
        self.ticks_before.wrapping_add(u64::from(self.ticks))
    }
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

/// The most words that a scan reads of a task from its link in the list of threads on, up to `nvcsw`, `nivcsw` and
/// `start_time`.
pub const LINKED_WORDS: usize = 32;

/// The most words that a scan reads of a task from its state on, up to `on_cpu`.
pub const STATE_WORDS: usize = 8;

/// The threads that a scan reads at once.
pub const SCAN_GROUP: usize = 8;

/// The most threads that a scan lists for the pass after it.
pub const MAX_CHANGED_THREADS: usize = 64;

/// A thread in the order of the list of threads of its process, as the last scan found it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScannedThread {
    /// The address of its task.
    pub task: u64,
    /// See [`WaitingThread::switches`].
    pub switches: u64,
    /// See [`WaitingThread::start_time`].
    pub start_time: u64,
    /// `task_struct.__state`.
    pub state: u32,
    /// 1: each scan since has found it waiting, and did not look up its [`WaitingThread`].
    pub is_waiting: u32,
}

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
    /// The number of those that have run since the last pass. The pass visits them.
    pub changed: u32,
    /// The number of threads that the pass visited since.
    pub visits: u32,
    /// The number of [`ScannedThread`]s of the last scan.
    pub entries: u32,
    /// The index of the next of them.
    pub next_entry: u32,
    /// The number of [`ScannedThread`]s of this scan so far.
    pub kept: u32,
    /// The number of the thread whose wait has a record next.
    pub next_record: u32,
    /// The number of threads that are scanned one by one before the next group.
    pub singles: u32,
    /// The ids of the first changed threads, in the profiler's PID namespace.
    pub changed_tids: [u32; MAX_CHANGED_THREADS],
    /// Fields of the scanned thread, from its link on.
    pub linked: [u64; LINKED_WORDS],
    /// Fields of the scanned thread, from its state on.
    pub states: [u64; STATE_WORDS],
    /// For each thread of a group, the address of the link of the next one.
    pub group_links: [u64; SCAN_GROUP],
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
    /// The BTF id of `task_struct`, with which [`RDONLY_CAST`] makes a pointer; 0 where the kernel lacks that function.
    pub task_type: u32,
    /// The BTF id of that function.
    pub rdonly_cast: u32,
    /// `vm_area_struct.vm_end`.
    pub vma_end: u32,
    /// `vm_area_struct.vm_file`.
    pub vma_file: u32,
    /// `vm_area_struct.vm_userfaultfd_ctx`, one pointer. 0 where the kernel has no such field.
    pub vma_userfaultfd: u32,
    /// `task_struct.sched_info.run_delay`. 0 where `task_last_arrival` is.
    pub task_run_delay: u32,
    /// `task_struct.se.sum_exec_runtime`.
    pub task_run_time: u32,
    /// 0.
    pub reserved: u32,
}

/// The number of a helper in the object in place of the kernel function `bpf_rdonly_cast` (`kernel/bpf/helpers.c`, from Linux
/// 6.2 on): the loader puts the id of the function there. No helper has the number.
pub const RDONLY_CAST: i32 = 1 << 20;

const _: () = assert!(size_of::<WaitingThread>() == 104);
const _: () = assert!(size_of::<WaitRecord>() == 112);
const _: () = assert!(size_of::<ScannedThread>() == 32);
const _: () = assert!(size_of::<WallPass>() == 40);
const _: () = assert!(
    size_of::<WallScan>() == 56 + 4 * MAX_CHANGED_THREADS + 8 * (LINKED_WORDS + STATE_WORDS + SCAN_GROUP)
);
const _: () = assert!(size_of::<WallOffsets>().is_multiple_of(8));

#[cfg(test)]
mod tests {
    use super::*;

    const WAITING: WaitingThread = WaitingThread {
        time_ns: 0,
        start_time: 0,
        switches: 0,
        kernel_stack: 0,
        user_stack: 0,
        pid: 1,
        tid: 1,
        state: WaitState::Blocked as u32,
        cpu: 0,
        is_cut: 0,
        may_await_mutex: 0,
        found_ticks: 40,
        recorded_ticks: 30,
        run_queue_ns: 0,
        comm: [0; COMM_BYTES],
    };

    #[test]
    fn a_wait_that_ends_has_the_ticks_up_to_the_last_pass() {
        let mut thread = WAITING;
        thread.count_until(45);
        assert_eq!(thread.ticks(), 15);
    }

    const PERIOD_NS: u64 = 20_000_000;

    /// A thread that a pass finds in the run queue now and then, for less or more than a period in between.
    #[test]
    fn ticks_in_the_run_queue_are_the_time_in_it() {
        let mut thread = WaitingThread { state: WaitState::Runnable as u32, ..WAITING };
        let (mut total_ns, mut ticks) = (0, 0);
        for waited_ns in [3, 1, 55, 0, 9, 30, 12, 400, 2].map(|ms| ms * 1_000_000) {
            total_ns += waited_ns;
            thread.found_ticks += 7;
            thread.count_run_queue(total_ns, PERIOD_NS);
            ticks += thread.ticks();
            thread.end_record(PERIOD_NS);
            assert!((ticks * PERIOD_NS).abs_diff(total_ns) <= PERIOD_NS / 2, "{ticks} ticks, {total_ns} ns");
            assert_eq!(thread.ticks(), 0);
        }
    }

    #[test]
    fn a_thread_that_waited_for_less_than_half_a_period_has_no_tick_yet() {
        let mut thread = WaitingThread { state: WaitState::Throttled as u32, ..WAITING };
        thread.count_run_queue(PERIOD_NS / 2 - 1, PERIOD_NS);
        assert_eq!(thread.ticks(), 0);
        // The time of the task is read on another CPU than before.
        thread.run_queue_ns = PERIOD_NS;
        thread.count_run_queue(PERIOD_NS - 1, PERIOD_NS);
        assert_eq!(thread.ticks(), 0);
    }

    #[test]
    fn a_sleep_takes_nothing_from_the_time_in_the_run_queue() {
        let mut thread = WAITING;
        thread.end_record(PERIOD_NS);
        assert_eq!((thread.ticks(), thread.run_queue_ns), (0, 0));
    }

    #[test]
    fn a_wait_that_ends_in_the_pass_of_its_record_has_no_more_ticks() {
        let mut thread = WaitingThread { found_ticks: 46, recorded_ticks: 46, ..WAITING };
        thread.count_until(45);
        assert_eq!(thread.ticks(), 0);
    }
}
