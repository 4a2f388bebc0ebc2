//! Whether the running task is in or below a cgroup directory.

use aya_ebpf::helpers::generated as helpers;
use profiler_common::MAX_CGROUP_DEPTH;

use crate::{config::get, kernel, maps::CGROUP};

/// Version 2: a helper compares with the directory in the map, descendants included.
#[inline(always)]
pub(crate) fn under_v2() -> bool {
    CGROUP.current_task_under_cgroup(0).unwrap_or(false)
}

/// Version 1 has no helper: the hierarchy's directory of the task and those above it, by id.
#[inline(always)]
pub(crate) fn under_v1() -> bool {
    node_of_task().is_some_and(is_at_or_below)
}

/// The kernfs node of the task's directory in the configured hierarchy.
#[inline(always)]
fn node_of_task() -> Option<u64> {
    // SAFETY: the helper has no arguments and cannot fail.
    let task = unsafe { helpers::bpf_get_current_task() };
    let css_set: u64 = kernel::read(task, get!(task_cgroups))?;
    let state: u64 = kernel::read(css_set, get!(css_set_subsys))?;
    let cgroup: u64 = kernel::read(state, get!(css_cgroup))?;
    kernel::read(cgroup, get!(cgroup_kn))
}

#[inline(always)]
fn is_at_or_below(mut node: u64) -> bool {
    let wanted = get!(cgroup_id);
    // Bound: depth of the hierarchy; the root's parent is null.
    for _ in 0..MAX_CGROUP_DEPTH {
        if node == 0 {
            return false;
        }
        match kernel::read::<u64>(node, get!(kernfs_id)) {
            Some(id) if id == wanted => return true,
            Some(_) => {}
            None => return false,
        }
        match kernel::read::<u64>(node, get!(kernfs_parent)) {
            Some(parent) => node = parent,
            None => return false,
        }
    }
    false
}
