//! Finds processes whose managed threads are suspended for garbage collections for much of the time.

use std::collections::BTreeMap;

use profiler_profile::{Finding, FindingKind, RuntimeEvent, RuntimeEventKind};

use super::process_events::{ProcessEvents, duration_text};
use crate::process::percent;

/// The least share of the time. Tuned collectors stay below a twentieth.
const MIN_PERCENT: f64 = 10.0;

/// The fewest suspensions, so that a single collection is no finding.
const MIN_SUSPENSIONS: usize = 3;

/// The reasons of suspensions for collections: `SuspendForGC`, `SuspendForGCPrep` (`GCSuspendEEReasonMap` in the runtime's
/// `ClrEtwAll.man`).
const REASON_PREFIX: &str = "SuspendForGC";

pub(super) fn find(events: &ProcessEvents<'_>) -> Option<Finding> {
    let is_for_gc = |event: &&RuntimeEvent| {
        events.text(event, "Reason").is_some_and(|reason| reason.starts_with(REASON_PREFIX))
    };
    let suspensions: Vec<_> = events.of_kind(RuntimeEventKind::Suspension).filter(is_for_gc).collect();
    let duration_ns = events.profile.header().duration_ns;
    let suspended_ns = covered_ns(&suspensions, duration_ns);
    let share = percent(suspended_ns, duration_ns);
    if suspensions.len() < MIN_SUSPENSIONS || share < MIN_PERCENT {
        return None;
    }
    let longest_ns = suspensions.iter().map(|suspension| suspension.duration_ns).max()?;
    let evidence = format!(
        "all managed threads are suspended for garbage collections for {share:.0} % of the time{}; the longest pause takes {}",
        collections(events).map(|collections| format!(": {collections}")).unwrap_or_default(),
        duration_text(longest_ns),
    );
    let remedy = "allocate less, and keep fewer objects alive".to_owned();
    Some(events.finding(FindingKind::GcPauses, &evidence, remedy, suspended_ns))
}

/// The time that events in time order cover up to the end of the measurement, nanoseconds. Time that several events cover
/// counts once.
fn covered_ns(events: &[&RuntimeEvent], duration_ns: u64) -> u64 {
    let mut covered_ns = 0;
    let mut covered_until_ns = 0;
    for event in events {
        let end_ns = event.end_ns().min(duration_ns);
        covered_ns += end_ns.saturating_sub(event.time_ns.max(covered_until_ns));
        covered_until_ns = covered_until_ns.max(end_ns);
    }
    covered_ns
}

/// The collections by generation: `100 of generation 0, 5 of generation 2`.
fn collections(events: &ProcessEvents<'_>) -> Option<String> {
    let collections = events.of_kind(RuntimeEventKind::GarbageCollection);
    let mut by_generation = BTreeMap::<u64, usize>::new();
    for generation in collections.filter_map(|event| events.number(event, "Depth")) {
        *by_generation.entry(generation).or_default() += 1;
    }
    let texts = by_generation.iter().map(|(generation, count)| format!("{count} of generation {generation}"));
    let texts: Vec<_> = texts.collect();
    (!texts.is_empty()).then(|| texts.join(", "))
}
