//! Tasks that are not on a CPU: whether they belong to the target, and what they wait for.
//!
//! The verifier knows the type of these tasks, so that their fields are loaded, without a helper: a pass visits thousands.

use core::ptr::read_volatile;

use aya_ebpf::{bindings::task_struct, helpers::generated as helpers};
use profiler_common::{PidSource, TargetFilter, wall::WaitState};

use super::{
    cgroup,
    config::get,
    kernel_memory::read,
    pid_namespace::{TaskIds, id_of_task, ids_of_task},
    target_filter::is_target_by_ids,
};

/// What is read of a task at each pass.
pub(crate) struct WaitingTask {
    pub(crate) task: *mut task_struct,
    pub(crate) ids: TaskIds,
    /// A [`WaitState`].
    pub(crate) state: u32,
    pub(crate) switches: u64,
    pub(crate) start_time: u64,
}

/// A thread of the target that is not on a CPU, and is no kernel thread.
#[inline(always)]
pub(crate) fn waiting_task(task: *mut task_struct) -> Option<WaitingTask> {
    if is_kernel_thread(task) || is_on_cpu(task) {
        return None;
    }
    let ids = ids(task)?;
    let is_target = match is_target_by_ids(ids) {
        Some(is_target) => is_target,
        None => cgroup::is_task_under(task as u64),
    };
    if !is_target {
        return None;
    }
    let state = wait_state(task)?;
    if state == WaitState::Runnable && is_displaced(task) {
        return None;
    }
    Some(WaitingTask {
        task,
        ids,
        state: state as u32,
        switches: switches(task),
        start_time: load(task, get!(wall.task_start_time)),
    })
}

/// A field of a task at an offset from BTF.
#[inline(always)]
pub(crate) fn load<T: Copy>(task: *mut task_struct, offset: u32) -> T {
    // SAFETY: the verifier checks that a field of this size is at the offset.
    unsafe { read_volatile(task.cast::<u8>().add(offset as usize).cast::<T>()) }
}

/// Whether a task can belong to the target: a comparison instead of a look-up where the target is a single process or thread.
#[inline(always)]
pub(crate) fn may_be_target(task: *mut task_struct) -> bool {
    let (filter, only_target) = (get!(filter), get!(only_target));
    if only_target == 0 || get!(pid_source) != PidSource::Initial as u32 {
        return true;
    }
    let id = if filter == TargetFilter::Threads as u32 { get!(wall.task_pid) } else { get!(wall.task_tgid) };
    load::<u32>(task, id) == only_target
}

impl WaitingTask {
    /// Whether the task waits as it did when it was read.
    #[inline(always)]
    pub(crate) fn still_waits(&self) -> bool {
        switches(self.task) == self.switches && !is_on_cpu(self.task)
    }
}

/// The id of a thread in the profiler's PID namespace, from the address of its task.
#[inline(always)]
pub(crate) fn tid_at(task: u64) -> Option<u32> {
    if get!(pid_source) == PidSource::Initial as u32 {
        return read(task, get!(wall.task_pid));
    }
    id_of_task(task)
}

/// Whether a task has no address space: kernel threads, and tasks that exit.
#[inline(always)]
pub(crate) fn is_kernel_thread(task: *mut task_struct) -> bool {
    load::<u64>(task, get!(wall.task_mm)) == 0
}

#[inline(always)]
fn is_on_cpu(task: *mut task_struct) -> bool {
    // An `int`, or a byte in newer kernels.
    load::<u8>(task, get!(wall.task_on_cpu)) != 0
}

#[inline(always)]
fn ids(task: *mut task_struct) -> Option<TaskIds> {
    if get!(pid_source) == PidSource::Initial as u32 {
        let pid = load(task, get!(wall.task_tgid));
        return Some(TaskIds { pid, tid: load(task, get!(wall.task_pid)) });
    }
    ids_of_task(task as u64)
}

/// The state of a task that is not on a CPU, or leaves it (`include/linux/sched.h`); `None` for one that exits.
#[inline(always)]
pub(crate) fn wait_state(task: *mut task_struct) -> Option<WaitState> {
    const TASK_DEAD: u32 = 0x80;
    let exit_state: u32 = load(task, get!(wall.task_exit_state));
    let state: u32 = load(task, get!(wall.task_state));
    if exit_state != 0 || state & TASK_DEAD != 0 {
        return None;
    }
    Some(sleeping_state(state).unwrap_or_else(|| runnable_state(task)))
}

/// The state of a task that sleeps or is stopped, by its `task_struct.__state`; `None` for one that could run.
#[inline(always)]
pub(crate) fn sleeping_state(state: u32) -> Option<WaitState> {
    const TASK_RUNNING: u32 = 0;
    const TASK_UNINTERRUPTIBLE: u32 = 2;
    const TASK_STOPPED_OR_TRACED: u32 = 4 | 8;
    const TASK_WAKING_OR_NEW: u32 = 0x200 | 0x800;
    /// An uninterruptible sleep that is idle time.
    const TASK_NOLOAD: u32 = 0x400;
    if state == TASK_RUNNING || state & TASK_WAKING_OR_NEW != 0 {
        return None;
    }
    Some(if state & TASK_STOPPED_OR_TRACED != 0 {
        WaitState::Stopped
    } else if state & TASK_UNINTERRUPTIBLE != 0 && state & TASK_NOLOAD == 0 {
        WaitState::Disk
    } else {
        WaitState::Blocked
    })
}

/// The state of a task that could run: throttled where the CPU quota of its cgroup is used up (`throttle_cfs_rq`,
/// `kernel/sched/fair.c`).
#[inline(always)]
pub(crate) fn runnable_state(task: *mut task_struct) -> WaitState {
    let throttle_count = get!(wall.run_queue_throttle_count);
    if throttle_count == 0 {
        return WaitState::Runnable;
    }
    let run_queue: u64 = load(task, get!(wall.task_run_queue));
    match read::<i32>(run_queue, throttle_count) {
        Some(1..) => WaitState::Throttled,
        _ => WaitState::Runnable,
    }
}

/// Whether a runnable task ran on this CPU until the thread of the profiler that runs the pass displaced it. It would wait at
/// each pass otherwise, and the ticks of the CPU count it already. It has been queued since that thread arrived
/// (`sched_info_depart` and `sched_info_arrive`, `kernel/sched/stats.h`).
#[inline(always)]
fn is_displaced(task: *mut task_struct) -> bool {
    let arrival = get!(wall.task_last_arrival);
    if arrival == 0 {
        return false;
    }
    let queued = arrival + size_of::<u64>() as u32;
    // SAFETY: the helpers have no arguments and cannot fail.
    let (own_task, own_cpu) =
        unsafe { (helpers::bpf_get_current_task(), helpers::bpf_get_smp_processor_id()) };
    let is_on_own_cpu = load::<u32>(task, get!(wall.task_cpu)) == own_cpu;
    is_on_own_cpu
        && read::<u64>(own_task, arrival).is_some_and(|arrival| load::<u64>(task, queued) >= arrival)
}

/// The time for which a task has waited for a CPU, nanoseconds: `sched_info.run_delay` and, where it waits now, the time up to the
/// arrival of the thread that runs the pass, which can keep it waiting since. `None` where the kernel does not count it.
#[inline(always)]
pub(crate) fn run_queue_ns(task: *mut task_struct) -> Option<u64> {
    let (run_delay, arrival) = (get!(wall.task_run_delay), get!(wall.task_last_arrival));
    if run_delay == 0 {
        return None;
    }
    // SAFETY: the helper has no arguments and cannot fail.
    let own_task = unsafe { helpers::bpf_get_current_task() };
    let own_arrival = read::<u64>(own_task, arrival).filter(|arrival| *arrival != 0)?;
    let queued: u64 = load(task, arrival + size_of::<u64>() as u32);
    let waits_ns = if queued == 0 { 0 } else { own_arrival.saturating_sub(queued) };
    Some(load::<u64>(task, run_delay) + waits_ns)
}

/// The context switches of a task, voluntary and not.
#[inline(always)]
pub(crate) fn switches(task: *mut task_struct) -> u64 {
    let voluntary = get!(wall.task_switches);
    let involuntary = voluntary + size_of::<u64>() as u32;
    load::<u64>(task, voluntary).wrapping_add(load::<u64>(task, involuntary))
}
