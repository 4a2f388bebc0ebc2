//! Follows processes at fork, exec, exit and release: their entries in the targets and unwind maps.

use aya_ebpf::{EbpfContext, programs::RawTracePointContext};
use profiler_common::Counter;

use super::{
    config::get,
    kernel_memory,
    maps::{EXITED, PROCESSES, TARGETS},
    pid_namespace::{current_task_ids, id_of_task},
    stale_mappings, vma_search,
};

/// Copies the parent's entries to a forked child: its target entry, and its mappings, which are the same until one of
/// the two changes them. Where the unwinder searches VMAs, the child needs no mappings. New threads share the entries of
/// their process.
#[inline(always)]
pub(crate) fn try_fork(context: &RawTracePointContext) -> Result<(), Counter> {
    let arguments = context.as_ptr().cast::<u64>();
    // SAFETY: sched_process_fork has two arguments, parent and child (include/trace/events/sched.h).
    let parent = unsafe { *arguments };
    // SAFETY: as above.
    let child = unsafe { *arguments.add(1) };
    let Some(child_leader) = kernel_memory::read::<u64>(child, get!(task_group_leader)) else {
        return Ok(());
    };
    if child_leader != child {
        return Ok(());
    }
    let Some(parent_leader) = kernel_memory::read::<u64>(parent, get!(task_group_leader)) else {
        return Ok(());
    };
    let Some(parent_pid) = id_of_task(parent_leader) else { return Ok(()) };
    // SAFETY: a live map value. The kernel can give a removed one to another process at once: the map is preallocated. Then the
    // child's first sample reports stale mappings.
    let mappings = unsafe { PROCESSES.get(&parent_pid) };
    if let Some(mappings) = mappings.filter(|_| !vma_search::is_possible())
        && let Some(child_pid) = id_of_task(child)
    {
        // When the map is full, the child's first sample reports stale mappings.
        let _ = PROCESSES.insert(&child_pid, mappings, 0);
    }
    if get!(follow_children) == 0 || TARGETS.get_ptr(&parent_pid).is_none() {
        return Ok(());
    }
    let child_pid = id_of_task(child).ok_or(Counter::LostChild)?;
    TARGETS.insert(&child_pid, &0, 0).map_err(|_| Counter::LostChild)
}

/// Removes the mappings of the previous program from the process, and reports that they are stale. Where the unwinder
/// searches VMAs, the first samples need no mappings, and only a target is worth reading them before it is sampled.
#[inline(always)]
pub(crate) fn exec() {
    let Some(ids) = current_task_ids() else { return };
    let had_mappings = PROCESSES.remove(&ids.pid).is_ok();
    if had_mappings && !vma_search::is_possible() || TARGETS.get_ptr(&ids.pid).is_some() {
        stale_mappings::report(ids.pid);
    }
}

/// Remembers the id of a process whose last thread exits, for [`free`]. From Linux 6.16 on, the address space is torn
/// down after this event, which can take long and is to be sampled.
#[inline(always)]
pub(crate) fn exit(context: &RawTracePointContext) {
    let task = first_argument(context);
    if is_last_thread(task) == Some(true)
        && let Some(leader) = kernel_memory::read::<u64>(task, get!(task_group_leader))
        && let Some(pid) = id_of_task(leader)
    {
        let is_known = TARGETS.get_ptr(&pid).is_some() || PROCESSES.get_ptr(&pid).is_some();
        if is_known && EXITED.insert(&leader, &pid, 0).is_err() {
            remove(pid);
        }
    }
}

/// Removes the entries of a process when the kernel frees its thread group leader. The process has no id any more, and
/// another one can get it from now on.
#[inline(always)]
pub(crate) fn free(context: &RawTracePointContext) {
    let task = first_argument(context);
    // SAFETY: no other program writes the entry of a task that has exited.
    if let Some(pid) = unsafe { EXITED.get(&task) } {
        let pid = *pid;
        let _ = EXITED.remove(&task);
        remove(pid);
    }
}

/// Removes a process from the targets, and its mappings, which user space can then reuse.
#[inline(always)]
fn remove(pid: u32) {
    // Fails for a process that is sampled for another reason than its id.
    let _ = TARGETS.remove(&pid);
    if PROCESSES.remove(&pid).is_ok() {
        stale_mappings::report_exit(pid);
    }
}

/// The task of `sched_process_exit` or `sched_process_free` (`include/trace/events/sched.h`).
#[inline(always)]
fn first_argument(context: &RawTracePointContext) -> u64 {
    // SAFETY: the first argument of both tracepoints is the task.
    unsafe { *context.as_ptr().cast::<u64>() }
}

/// Whether no other thread of the task's process lives: the kernel has decremented `signal->live` before the tracepoint.
#[inline(always)]
fn is_last_thread(task: u64) -> Option<bool> {
    let signal: u64 = kernel_memory::read(task, get!(task_signal))?;
    let live: u32 = kernel_memory::read(signal, get!(signal_live))?;
    Some(live == 0)
}
