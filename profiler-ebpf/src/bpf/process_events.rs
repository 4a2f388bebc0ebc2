//! Follows processes at fork, exec and exit: their entries in the targets and unwind maps.

use aya_ebpf::{EbpfContext, programs::RawTracePointContext};
use profiler_common::Counter;

use super::{
    config::get,
    kernel_memory,
    maps::{PROCESSES, TARGETS},
    pid_namespace::{current_task_ids, id_of_task},
    stale_mappings,
};

/// Copies the parent's entries to a forked child: its target entry, and its mappings, which are the same until one of
/// the two changes them. New threads share the entries of their process.
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
    // SAFETY: user space replaces entries, which the kernel frees after a grace period.
    if let Some(mappings) = unsafe { PROCESSES.get(&parent_pid) }
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

/// Removes the mappings of the previous program from the process, and reports that they are stale.
#[inline(always)]
pub(crate) fn exec() {
    let Some(ids) = current_task_ids() else { return };
    if PROCESSES.remove(&ids.pid).is_ok() || TARGETS.get_ptr(&ids.pid).is_some() {
        stale_mappings::report(ids.pid);
    }
}

/// Removes the process from the targets, and its mappings, when its last thread exits.
#[inline(always)]
pub(crate) fn exit(context: &RawTracePointContext) {
    // SAFETY: the first argument of sched_process_exit is the task (include/trace/events/sched.h).
    let task = unsafe { *context.as_ptr().cast::<u64>() };
    if is_last_thread(task) == Some(true)
        && let Some(leader) = kernel_memory::read::<u64>(task, get!(task_group_leader))
        && let Some(pid) = id_of_task(leader)
    {
        // Fails for most processes of the machine, which are no targets.
        let _ = TARGETS.remove(&pid);
        let _ = PROCESSES.remove(&pid);
    }
}

/// Whether no other thread of the task's process lives: the kernel has decremented `signal->live` before the tracepoint.
#[inline(always)]
fn is_last_thread(task: u64) -> Option<bool> {
    let signal: u64 = kernel_memory::read(task, get!(task_signal))?;
    let live: u32 = kernel_memory::read(signal, get!(signal_live))?;
    Some(live == 0)
}
