//! Process and thread ids as the profiler's own pid namespace counts them.

use aya_ebpf::{
    EbpfContext,
    bindings::bpf_pidns_info,
    helpers::{bpf_get_current_pid_tgid, generated as helpers},
    programs::RawTracePointContext,
};
use core::mem::MaybeUninit;
use profiler_common::{Counter, MAX_PID_NAMESPACE_LEVEL, PidSource};

use crate::{
    config::get,
    kernel,
    maps::{PROCESSES, TARGETS},
    walk,
};

/// The ids of a task in the profiler's pid namespace.
#[derive(Clone, Copy)]
pub(crate) struct Ids {
    pub(crate) pid: u32,
    pub(crate) tid: u32,
}

/// The ids of the running task, `None` when the profiler's namespace does not see it.
#[inline(always)]
pub(crate) fn current() -> Option<Ids> {
    let source = get!(pid_source);
    if source == PidSource::Initial as u32 {
        let both = bpf_get_current_pid_tgid();
        Some(Ids { pid: (both >> 32) as u32, tid: both as u32 })
    } else if source == PidSource::Task as u32 {
        current_from_task()
    } else {
        current_from_helper()
    }
}

/// Walks the task's ids: right for tasks of this namespace and of all below it.
#[inline(always)]
fn current_from_task() -> Option<Ids> {
    // SAFETY: the helper has no arguments and cannot fail.
    let task = unsafe { helpers::bpf_get_current_task() };
    let leader: u64 = kernel::read(task, get!(task_group_leader))?;
    let tid = id_of(task)?;
    let pid = if leader == task { tid } else { id_of(leader)? };
    Some(Ids { pid, tid })
}

/// Right only for tasks whose active namespace is exactly the profiler's.
#[inline(always)]
fn current_from_helper() -> Option<Ids> {
    let mut info = MaybeUninit::<bpf_pidns_info>::uninit();
    let (dev, inode) = (get!(pid_namespace_dev), get!(pid_namespace_inode));
    // SAFETY: `info` is writable and of the size given.
    let result = unsafe {
        helpers::bpf_get_ns_current_pid_tgid(
            dev,
            inode,
            info.as_mut_ptr(),
            size_of::<bpf_pidns_info>() as u32,
        )
    };
    if result != 0 {
        return None;
    }
    // SAFETY: the helper fills the structure when it answers 0.
    let info = unsafe { info.assume_init() };
    Some(Ids { pid: info.tgid, tid: info.pid })
}

/// The id of a `task_struct` in the profiler's namespace.
#[inline(always)]
fn id_of(task: u64) -> Option<u32> {
    let pid: u64 = kernel::read(task, get!(task_thread_pid))?;
    let level: u32 = kernel::read(pid, get!(pid_level))?;
    let wanted = get!(pid_namespace_inode) as u32;
    let mut upid = pid + u64::from(get!(pid_numbers));
    // Bound: levels of namespaces. The outermost stands first, and the profiler is rarely deep.
    for depth in 0..MAX_PID_NAMESPACE_LEVEL {
        if depth > level {
            break;
        }
        let namespace: u64 = kernel::read(upid, get!(upid_ns))?;
        let inum: u32 = kernel::read(namespace, get!(pid_namespace_inum))?;
        if inum == wanted {
            return kernel::read(upid, get!(upid_nr));
        }
        upid += u64::from(get!(upid_size));
    }
    None
}

/// Gives the child what its parent has: a place among the targets, and mappings, which are the same until one of them
/// changes. Threads are of their process already.
#[inline(always)]
pub(crate) fn try_fork(context: &RawTracePointContext) -> Result<(), Counter> {
    let arguments = context.as_ptr().cast::<u64>();
    // SAFETY: sched_process_fork has two arguments, parent and child (include/trace/events/sched.h).
    let parent = unsafe { *arguments };
    // SAFETY: as above.
    let child = unsafe { *arguments.add(1) };
    let Some(child_leader) = kernel::read::<u64>(child, get!(task_group_leader)) else { return Ok(()) };
    if child_leader != child {
        return Ok(());
    }
    let Some(parent_leader) = kernel::read::<u64>(parent, get!(task_group_leader)) else { return Ok(()) };
    let Some(parent_pid) = id_of(parent_leader) else { return Ok(()) };
    // SAFETY: user space replaces entries, which the kernel frees after a grace period.
    if let Some(mappings) = unsafe { PROCESSES.get(&parent_pid) }
        && let Some(child_pid) = id_of(child)
    {
        // Where there is no room, the child's first sample asks for its mappings.
        let _ = PROCESSES.insert(&child_pid, mappings, 0);
    }
    if get!(children) == 0 || TARGETS.get_ptr(&parent_pid).is_none() {
        return Ok(());
    }
    let child_pid = id_of(child).ok_or(Counter::LostChild)?;
    TARGETS.insert(&child_pid, &0, 0).map_err(|_| Counter::LostChild)
}

/// Takes the mappings of the program before from the process, and asks for those of the one it executes.
#[inline(always)]
pub(crate) fn exec() {
    let Some(ids) = current() else { return };
    if PROCESSES.remove(&ids.pid).is_ok() || TARGETS.get_ptr(&ids.pid).is_some() {
        walk::ask(ids.pid, 0);
    }
}

/// Takes the process off the targets, and its mappings, when its last thread ends.
#[inline(always)]
pub(crate) fn exit(context: &RawTracePointContext) {
    // SAFETY: the first argument of sched_process_exit is the task (include/trace/events/sched.h).
    let task = unsafe { *context.as_ptr().cast::<u64>() };
    if is_last_thread(task) == Some(true)
        && let Some(leader) = kernel::read::<u64>(task, get!(task_group_leader))
        && let Some(pid) = id_of(leader)
    {
        // Most processes of the machine are no targets.
        let _ = TARGETS.remove(&pid);
        let _ = PROCESSES.remove(&pid);
    }
}

/// Whether no other thread of the task's process lives: `signal->live` was counted down before.
#[inline(always)]
fn is_last_thread(task: u64) -> Option<bool> {
    let signal: u64 = kernel::read(task, get!(task_signal))?;
    let live: u32 = kernel::read(signal, get!(signal_live))?;
    Some(live == 0)
}
