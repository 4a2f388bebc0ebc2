//! Whether a task is in or below the target cgroup, in a v2 or a v1 hierarchy.

use aya_ebpf::helpers::generated as helpers;
use profiler_common::{MAX_CGROUP_DEPTH, TargetFilter};

use super::{config::get, kernel_memory, maps::CGROUP};

/// cgroup v2: the helper `bpf_current_task_under_cgroup`, which includes descendants.
#[inline(always)]
pub(crate) fn is_under_v2() -> bool {
    CGROUP.current_task_under_cgroup(0).unwrap_or(false)
}

/// cgroup v1, which has no helper: compares the id of the task's directory and of all directories above it.
#[inline(always)]
pub(crate) fn is_under_v1() -> bool {
    // SAFETY: the helper has no arguments and cannot fail.
    let task = unsafe { helpers::bpf_get_current_task() };
    kernfs_node_of_task(task).is_some_and(is_at_or_below_target)
}

/// As the two above, for any task.
#[inline(always)]
pub(crate) fn is_task_under(task: u64) -> bool {
    let node = if get!(filter) == TargetFilter::CgroupV2 as u32 {
        default_kernfs_node_of_task(task)
    } else {
        kernfs_node_of_task(task)
    };
    node.is_some_and(is_at_or_below_target)
}

/// The `kernfs_node` of a task's directory in the v2 hierarchy.
#[inline(always)]
fn default_kernfs_node_of_task(task: u64) -> Option<u64> {
    let css_set: u64 = kernel_memory::read(task, get!(task_cgroups))?;
    let cgroup: u64 = kernel_memory::read(css_set, get!(wall.css_set_default_cgroup))?;
    kernel_memory::read(cgroup, get!(cgroup_kn))
}

/// The `kernfs_node` of a task's directory in the configured hierarchy.
#[inline(always)]
fn kernfs_node_of_task(task: u64) -> Option<u64> {
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
