//! Process and thread ids of tasks in the profiler's PID namespace.

use core::mem::MaybeUninit;

use aya_ebpf::{
    bindings::bpf_pidns_info,
    helpers::{bpf_get_current_pid_tgid, generated as helpers},
};
use profiler_common::{MAX_PID_NAMESPACE_LEVEL, PidSource};

use super::{config::get, kernel_memory};

/// The ids of a task in the profiler's PID namespace.
#[derive(Clone, Copy)]
pub(crate) struct TaskIds {
    /// Of the process (the kernel's tgid).
    pub(crate) pid: u32,
    /// Of the thread (the kernel's pid).
    pub(crate) tid: u32,
}

/// The ids of the running task, `None` when it is not visible in the profiler's PID namespace.
#[inline(always)]
pub(crate) fn current_task_ids() -> Option<TaskIds> {
    let source = get!(pid_source);
    if source == PidSource::Initial as u32 {
        let both = bpf_get_current_pid_tgid();
        Some(TaskIds { pid: (both >> 32) as u32, tid: both as u32 })
    } else if source == PidSource::Task as u32 {
        // SAFETY: the helper has no arguments and cannot fail.
        ids_of_task(unsafe { helpers::bpf_get_current_task() })
    } else {
        ids_from_helper()
    }
}

/// Reads the ids from a `task_struct`: resolves tasks of the profiler's namespace and of all namespaces below it.
#[inline(always)]
pub(crate) fn ids_of_task(task: u64) -> Option<TaskIds> {
    let leader: u64 = kernel_memory::read(task, get!(task_group_leader))?;
    let tid = id_of_task(task)?;
    let pid = if leader == task { tid } else { id_of_task(leader)? };
    Some(TaskIds { pid, tid })
}

/// Resolves only tasks whose active namespace is exactly the profiler's.
#[inline(always)]
fn ids_from_helper() -> Option<TaskIds> {
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
    // SAFETY: the helper fills the structure when it returns 0.
    let info = unsafe { info.assume_init() };
    Some(TaskIds { pid: info.tgid, tid: info.pid })
}

/// The id of a `task_struct` in the profiler's PID namespace.
#[inline(always)]
pub(crate) fn id_of_task(task: u64) -> Option<u32> {
    let pid: u64 = kernel_memory::read(task, get!(task_thread_pid))?;
    let level: u32 = kernel_memory::read(pid, get!(pid_level))?;
    let profiler_namespace = get!(pid_namespace_inode) as u32;
    let mut upid = pid + u64::from(get!(pid_numbers));
    // Bound: levels of PID namespaces. The outermost is first, and the profiler's is rarely deep.
    for depth in 0..MAX_PID_NAMESPACE_LEVEL {
        if depth > level {
            break;
        }
        let namespace: u64 = kernel_memory::read(upid, get!(upid_ns))?;
        let inum: u32 = kernel_memory::read(namespace, get!(pid_namespace_inum))?;
        if inum == profiler_namespace {
            return kernel_memory::read(upid, get!(upid_nr));
        }
        upid += u64::from(get!(upid_size));
    }
    None
}
