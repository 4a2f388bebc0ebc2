//! Target filter: whether a tick hit a process, thread or cgroup that is sampled.

use profiler_common::TargetFilter;

use super::{cgroup, config::get, maps::TARGETS, pid_namespace::TaskIds};

/// What the filter decides about the running task.
pub(crate) enum Verdict {
    /// It is no target.
    NotTarget,
    /// It is a target, with its ids.
    Target(TaskIds),
    /// It is a target that has no ids in the profiler's PID namespace.
    TargetWithoutIds,
}

/// Decides by the running task's ids, which are `None` where the profiler's PID namespace does not show the task.
#[inline(always)]
pub(crate) fn filter_task(ids: Option<TaskIds>) -> Verdict {
    let filter = get!(filter);
    let Some(ids) = ids else {
        // A process or thread filter names ids, and "everything" is everything that this namespace shows.
        return if is_cgroup(filter) && is_under_cgroup(filter) {
            Verdict::TargetWithoutIds
        } else {
            Verdict::NotTarget
        };
    };
    let is_target = if filter == TargetFilter::Processes as u32 {
        is_listed(ids.pid)
    } else if filter == TargetFilter::Threads as u32 {
        is_listed(ids.tid)
    } else if is_cgroup(filter) {
        is_under_cgroup(filter)
    } else {
        true
    };
    if is_target { Verdict::Target(ids) } else { Verdict::NotTarget }
}

/// Whether a process or thread id is a target. A single one is a constant, which needs no lookup.
#[inline(always)]
fn is_listed(id: u32) -> bool {
    let only_target = get!(only_target);
    if only_target != 0 { id == only_target } else { TARGETS.get_ptr(&id).is_some() }
}

#[inline(always)]
fn is_cgroup(filter: u32) -> bool {
    filter == TargetFilter::CgroupV2 as u32 || filter == TargetFilter::CgroupV1 as u32
}

#[inline(always)]
fn is_under_cgroup(filter: u32) -> bool {
    if filter == TargetFilter::CgroupV2 as u32 { cgroup::is_under_v2() } else { cgroup::is_under_v1() }
}
