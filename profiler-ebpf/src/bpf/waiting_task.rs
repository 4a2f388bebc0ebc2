//! Tasks that are not on a CPU: whether they belong to the target, and what they wait for.

use aya_ebpf::helpers::generated as helpers;
use profiler_common::{PidSource, TargetFilter, wall::WaitState};

use super::{
    cgroup,
    config::get,
    kernel_memory::read,
    maps::TARGETS,
    pid_namespace::{TaskIds, ids_of_task},
};

/// What is read of a task at each pass.
pub(crate) struct WaitingTask {
    pub(crate) address: u64,
    pub(crate) ids: TaskIds,
    /// A [`WaitState`].
    pub(crate) state: u32,
    pub(crate) switches: u64,
    pub(crate) start_time: u64,
}

/// A thread of the target that is not on a CPU, and is no kernel thread.
#[inline(always)]
pub(crate) fn waiting_task(address: u64) -> Option<WaitingTask> {
    if is_kernel_thread(address) || is_on_cpu(address) {
        return None;
    }
    let ids = ids(address)?;
    if !is_target(address, ids) {
        return None;
    }
    let state = wait_state(address)?;
    if state == WaitState::Runnable && is_displaced(address) {
        return None;
    }
    Some(WaitingTask {
        address,
        ids,
        state: state as u32,
        switches: switches(address)?,
        start_time: read(address, get!(wall.task_start_time))?,
    })
}

impl WaitingTask {
    /// Whether the task waits as it did when it was read.
    #[inline(always)]
    pub(crate) fn still_waits(&self) -> bool {
        switches(self.address) == Some(self.switches) && !is_on_cpu(self.address)
    }
}

/// Whether a task has no address space: kernel threads, and tasks that exit.
#[inline(always)]
pub(crate) fn is_kernel_thread(task: u64) -> bool {
    matches!(read::<u64>(task, get!(wall.task_mm)), None | Some(0))
}

#[inline(always)]
fn is_on_cpu(task: u64) -> bool {
    read::<u32>(task, get!(wall.task_on_cpu)) != Some(0)
}

#[inline(always)]
fn ids(task: u64) -> Option<TaskIds> {
    if get!(pid_source) == PidSource::Initial as u32 {
        let pid = read(task, get!(wall.task_tgid))?;
        return Some(TaskIds { pid, tid: read(task, get!(wall.task_pid))? });
    }
    ids_of_task(task)
}

#[inline(always)]
fn is_target(task: u64, ids: TaskIds) -> bool {
    let filter = get!(filter);
    let is_listed = |id: u32| {
        let only_target = get!(only_target);
        if only_target != 0 { id == only_target } else { TARGETS.get_ptr(&id).is_some() }
    };
    if filter == TargetFilter::Processes as u32 {
        is_listed(ids.pid)
    } else if filter == TargetFilter::Threads as u32 {
        is_listed(ids.tid)
    } else if filter == TargetFilter::CgroupV2 as u32 || filter == TargetFilter::CgroupV1 as u32 {
        cgroup::is_task_under(task)
    } else {
        true
    }
}

/// The state of a task that is not on a CPU, or leaves it (`include/linux/sched.h`); `None` for one that exits.
#[inline(always)]
pub(crate) fn wait_state(task: u64) -> Option<WaitState> {
    const TASK_RUNNING: u32 = 0;
    const TASK_UNINTERRUPTIBLE: u32 = 2;
    const TASK_STOPPED_OR_TRACED: u32 = 4 | 8;
    const TASK_DEAD: u32 = 0x80;
    const TASK_WAKING_OR_NEW: u32 = 0x200 | 0x800;
    /// An uninterruptible sleep that is idle time.
    const TASK_NOLOAD: u32 = 0x400;
    let exit_state: u32 = read(task, get!(wall.task_exit_state))?;
    let state: u32 = read(task, get!(wall.task_state))?;
    if exit_state != 0 || state & TASK_DEAD != 0 {
        return None;
    }
    Some(if state == TASK_RUNNING || state & TASK_WAKING_OR_NEW != 0 {
        WaitState::Runnable
    } else if state & TASK_STOPPED_OR_TRACED != 0 {
        WaitState::Stopped
    } else if state & TASK_UNINTERRUPTIBLE != 0 && state & TASK_NOLOAD == 0 {
        WaitState::Disk
    } else {
        WaitState::Blocked
    })
}

/// Whether a runnable task ran on this CPU until the thread of the profiler that runs the pass displaced it. It would wait at
/// each pass otherwise, and the ticks of the CPU count it already. It has been queued since that thread arrived
/// (`sched_info_depart` and `sched_info_arrive`, `kernel/sched/stats.h`).
#[inline(always)]
fn is_displaced(task: u64) -> bool {
    let offset = get!(wall.task_last_arrival);
    if offset == 0 {
        return false;
    }
    // SAFETY: the helpers have no arguments and cannot fail.
    let (own_task, own_cpu) =
        unsafe { (helpers::bpf_get_current_task(), helpers::bpf_get_smp_processor_id()) };
    let (Some([own_arrival, _]), Some([_, queued])) =
        (read::<[u64; 2]>(own_task, offset), read::<[u64; 2]>(task, offset))
    else {
        return false;
    };
    read(task, get!(wall.task_cpu)) == Some(own_cpu) && queued >= own_arrival
}

/// The context switches of a task, voluntary and not.
#[inline(always)]
fn switches(task: u64) -> Option<u64> {
    let [voluntary, involuntary]: [u64; 2] = read(task, get!(wall.task_switches))?;
    Some(voluntary.wrapping_add(involuntary))
}
