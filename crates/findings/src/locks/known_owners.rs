//! Finds the threads that own the locks for which others wait, where the memory of the process has shown them.

use std::{
    collections::{BTreeMap, BTreeSet},
    iter::once,
};

use profiler_profile::LockOwner;

use crate::{thread_group::ThreadGroup, thread_time::Period};

/// The longest time between two readings, and between one and an end of the period. They are a second apart, and a busy machine is
/// late.
pub(crate) const MAX_GAP_NS: u64 = 2_500_000_000;

/// The fewest readings in which a lock has the same owner. In one, it can have had others before and after.
pub(crate) const MIN_READINGS: usize = 2;

/// The threads that own a lock in all readings of a period, if so many threads wait for these locks; else none: they can wait for
/// other locks.
pub(super) fn find(samples: &ThreadGroup<'_>, period: &Period, waiting: usize) -> BTreeSet<u32> {
    let profile = samples.profile;
    let is_in_period = |lock: &&LockOwner| {
        lock.process(profile) == samples.process && (period.begin_ns..=period.end_ns).contains(&lock.time_ns)
    };
    let mut readings = BTreeMap::<u64, Vec<(u64, u32, u32)>>::new();
    for lock in profile.lock_owners().iter().filter(is_in_period) {
        let reading = (lock.time_ns, profile.thread(lock.owner).tid, lock.waiters);
        readings.entry(lock.lock).or_default().push(reading);
    }
    readings.retain(|_, of_lock| is_held_throughout(of_lock, period));
    let last: Vec<_> = readings.values().filter_map(|of_lock| of_lock.last()).collect();
    let waiters: u64 = last.iter().map(|(_, _, waiters)| u64::from(*waiters)).sum();
    if waiters < waiting as u64 {
        return BTreeSet::new();
    }
    last.into_iter().map(|(_, owner, _)| *owner).collect()
}

/// Whether a lock has one owner in these readings, which are in time order, and none is missing.
fn is_held_throughout(readings: &[(u64, u32, u32)], period: &Period) -> bool {
    let mut owners = readings.iter().map(|(_, owner, _)| owner);
    let first = owners.next();
    let times = readings.iter().map(|(time_ns, ..)| *time_ns);
    let times: Vec<_> = once(period.begin_ns).chain(times).chain(once(period.end_ns)).collect();
    readings.len() >= MIN_READINGS
        && owners.all(|owner| Some(owner) == first)
        && times
            .iter()
            .zip(times.iter().skip(1))
            .all(|(before, after)| after.saturating_sub(*before) <= MAX_GAP_NS)
}
