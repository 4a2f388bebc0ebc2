//! Whether a tick hit the target.

use profiler_common::TargetFilter;

use crate::{cgroup, config::get, maps::TARGETS, process::Ids};

/// The verdict on one tick.
pub(crate) enum Verdict {
    /// Not the target.
    Other,
    /// The target, with its ids.
    Target(Ids),
    /// The target, but the profiler's pid namespace has no ids for it.
    Nameless,
}

/// Decides with the running task's ids, where it has some here.
#[inline(always)]
pub(crate) fn verdict(ids: Option<Ids>) -> Verdict {
    let filter = get!(filter);
    let Some(ids) = ids else {
        // A process or thread filter names ids, and "everything" is everything this namespace sees.
        return if is_cgroup(filter) && under_cgroup(filter) { Verdict::Nameless } else { Verdict::Other };
    };
    let hit = if filter == TargetFilter::Processes as u32 {
        TARGETS.get_ptr(&ids.pid).is_some()
    } else if filter == TargetFilter::Threads as u32 {
        TARGETS.get_ptr(&ids.tid).is_some()
    } else if is_cgroup(filter) {
        under_cgroup(filter)
    } else {
        true
    };
    if hit { Verdict::Target(ids) } else { Verdict::Other }
}

#[inline(always)]
fn is_cgroup(filter: u32) -> bool {
    filter == TargetFilter::CgroupV2 as u32 || filter == TargetFilter::CgroupV1 as u32
}

#[inline(always)]
fn under_cgroup(filter: u32) -> bool {
    if filter == TargetFilter::CgroupV2 as u32 { cgroup::under_v2() } else { cgroup::under_v1() }
}
