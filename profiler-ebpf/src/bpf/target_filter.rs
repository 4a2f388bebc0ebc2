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
    let is_target = match is_target_by_ids(ids) {
        Some(is_target) => is_target,
        None => is_under_cgroup(filter),
    };
    if is_target { Verdict::Target(ids) } else { Verdict::NotTarget }
}

/// Whether a task with these ids is a target; `None` where its cgroup decides. A single process or thread id is a constant, which
/// needs no lookup.
#[inline(always)]
pub(crate) fn is_target_by_ids(ids: TaskIds) -> Option<bool> {
    let filter = get!(filter);
    let id = if filter == TargetFilter::Processes as u32 {
        ids.pid
    } else if filter == TargetFilter::Threads as u32 {
        ids.tid
    } else {
        return if is_cgroup(filter) { None } else { Some(true) };
    };
    let only_target = get!(only_target);
    Some(if only_target != 0 { id == only_target } else { TARGETS.get_ptr(&id).is_some() })
}

#[inline(always)]
fn is_cgroup(filter: u32) -> bool {
    filter == TargetFilter::CgroupV2 as u32 || filter == TargetFilter::CgroupV1 as u32
}

#[inline(always)]
fn is_under_cgroup(filter: u32) -> bool {
    if filter == TargetFilter::CgroupV2 as u32 { cgroup::is_under_v2() } else { cgroup::is_under_v1() }
}
