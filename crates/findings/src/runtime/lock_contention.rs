//! Finds the lock that threads wait for most, and the thread that owns it.

use std::collections::BTreeMap;

use profiler_profile::{FindingFacts, FindingKind, RuntimeEvent, RuntimeEventKind, sum};

use super::process_events::{ProcessEvents, most_frequent};
use crate::found::Found;
use crate::locks::managed::ManagedOwner;
use crate::weights::percent;

/// The least number of threads that wait for the lock at a time, on average. Below, there are times at which no thread waits.
const MIN_QUEUE: f64 = 1.0;

/// The fewest waits, so that a single long one is no finding.
const MIN_WAITS: f64 = 10.0;

/// The least share of the waits with the same owner that names it.
const MIN_OWNER_PERCENT: f64 = 50.0;

pub(super) fn find<'a>(events: &ProcessEvents<'a>) -> Option<Found<'a>> {
    let mut locks = BTreeMap::<u64, Vec<&RuntimeEvent>>::new();
    for wait in events.of_kind(RuntimeEventKind::Contention) {
        if let Some(lock) = events.number(wait, "LockID") {
            locks.entry(lock).or_default().push(wait);
        }
    }
    let waited_ns = |waits: &[&RuntimeEvent]| sum::of(waits.iter().map(|wait| wait.duration_ns));
    let waits = locks.into_values().max_by_key(|waits| waited_ns(waits))?;
    let estimated = events.estimated_duration(RuntimeEventKind::Contention, &waits);
    let queue = estimated.divided_by(events.profile.header().duration_ns.max(1) as f64);
    let count = events.estimated_count(RuntimeEventKind::Contention, waits.len());
    if count.number < MIN_WAITS || queue.number < MIN_QUEUE {
        return None;
    }
    let site = events.site(&waits);
    let owner = owner(events, &waits);
    let evidence = format!(
        "{queue:.1} threads at a time wait for one lock{}, {count} times for {} in all{}",
        site.map(|site| format!(", most below {site}")).unwrap_or_default(),
        estimated.duration_text(),
        owner.as_ref().map(|(_, owner)| format!("; {owner}")).unwrap_or_default(),
    );
    let remedy = "hold the lock for a shorter time, or divide what it protects".to_owned();
    let facts = FindingFacts {
        threads_at_a_time: Some(queue.number),
        cause_thread: owner.as_ref().and_then(|(tid, _)| u32::try_from(*tid).ok()),
        ..events.facts(RuntimeEventKind::Contention, &waits, site)
    };
    let found =
        events.finding(FindingKind::LockContention, &evidence, remedy, estimated.number as u64, facts);
    Some(Found { owner: owner.map(|(_, text)| text), ..found.below(site) })
}

/// The id of the thread that owned the lock at most of the waits, and its text: `its owner is thread 31 (worker) at 92 % of them`.
fn owner(events: &ProcessEvents<'_>, waits: &[&RuntimeEvent]) -> Option<(u64, String)> {
    const UNKNOWN: u64 = 0;
    let owners = waits.iter().filter_map(|wait| events.number(wait, "LockOwnerThreadID"));
    let (owner, count, _) = most_frequent(owners.filter(|owner| *owner != UNKNOWN))?;
    let share = percent(count, waits.len() as u64);
    if share < MIN_OWNER_PERCENT {
        return None;
    }
    Some((owner, format!("its owner is thread {} at {share:.0} % of them", label(events, owner))))
}

/// A thread of the process with its last name: `31 "worker" (managed 5)`, `31 (worker)` where memory did not show it.
fn label(events: &ProcessEvents<'_>, tid: u64) -> String {
    let read = |tid| ManagedOwner::find(events.profile, events.process, tid, u64::MAX);
    if let Some(managed) = u32::try_from(tid).ok().and_then(read) {
        return managed.label();
    }
    name(events, tid).map_or_else(|| tid.to_string(), |name| format!("{tid} ({name})"))
}

/// The last name of a thread of the process.
fn name<'a>(events: &ProcessEvents<'a>, tid: u64) -> Option<&'a str> {
    let is_owner =
        |thread: &&profiler_profile::Thread| thread.process == events.process && u64::from(thread.tid) == tid;
    let thread = events.profile.threads().filter(is_owner).last()?;
    Some(events.profile.string(thread.comm))
}
