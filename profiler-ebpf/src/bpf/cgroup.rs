//! Whether the running task is in or below the target cgroup, in a v2 or a v1 hierarchy.

use aya_ebpf::helpers::generated as helpers;
use profiler_common::MAX_CGROUP_DEPTH;

use super::{config::get, kernel_memory, maps::CGROUP};

/// cgroup v2: the helper `bpf_current_task_under_cgroup`, which includes descendants.
#[inline(always)]
pub(crate) fn is_under_v2() -> bool {
    CGROUP.current_task_under_cgroup(0).unwrap_or(false)
}

/// cgroup v1, which has no helper: compares the id of the task's directory and of all directories above it.
#[inline(always)]
pub(crate) fn is_under_v1() -> bool {
    kernfs_node_of_task().is_some_and(is_at_or_below_target)
}

/// The `kernfs_node` of the task's directory in the configured hierarchy.
#[inline(always)]
fn kernfs_node_of_task() -> Option<u64> {
    // SAFETY: the helper has no arguments and cannot fail.
    let task = unsafe { helpers::bpf_get_current_task() };
    let css_set: u64 = kernel_memory::read(task, get!(task_cgroups))?;
    let subsystem_state: u64 = kernel_memory::read(css_set, get!(css_set_subsys))?;
    let cgroup: u64 = kernel_memory::read(subsystem_state, get!(css_cgroup))?;
    kernel_memory::read(cgroup, get!(cgroup_kn))
}

#[inline(always)]
fn is_at_or_below_target(mut node: u64) -> bool {
    let target = get!(cgroup_id);
    // Bound: depth of the hierarchy; the parent of the root is null.
    for _ in 0..MAX_CGROUP_DEPTH {
        if node == 0 {
            return false;
        }
        match kernel_memory::read::<u64>(node, get!(kernfs_id)) {
            Some(id) if id == target => return true,
            Some(_) => {}
            None => return false,
        }
        match kernel_memory::read::<u64>(node, get!(kernfs_parent)) {
            Some(parent) => node = parent,
            None => return false,
        }
    }
    false
}
