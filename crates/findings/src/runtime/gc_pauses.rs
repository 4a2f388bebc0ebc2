//! Finds processes whose managed threads are suspended for garbage collections for much of the time.

use std::collections::BTreeMap;

use profiler_profile::{FindingFacts, FindingKind, RuntimeEvent, RuntimeEventKind, Selection, Whole, sum};

use super::{
    blocked_workers::WaitSamples,
    collection_reasons::{CollectionCause, main_cause},
    process_events::{ProcessEvents, duration_text},
};
use crate::facts;
use crate::found::Found;
use crate::frames::short;
use crate::weights::percent;

/// The least share of the time. Tuned collectors stay below a twentieth.
const MIN_PERCENT: f64 = 10.0;

/// The fewest suspensions, so that a single collection is no finding.
const MIN_SUSPENSIONS: usize = 3;

/// The reasons of suspensions for collections: `SuspendForGC`, `SuspendForGCPrep` (`GCSuspendEEReasonMap` in the runtime's
/// `ClrEtwAll.man`).
const REASON_PREFIX: &str = "SuspendForGC";

pub(super) fn find<'a>(events: &ProcessEvents<'a>, samples: &WaitSamples<'a>) -> Option<Found<'a>> {
    let is_for_gc = |event: &&RuntimeEvent| {
        events.text(event, "Reason").is_some_and(|reason| reason.starts_with(REASON_PREFIX))
    };
    let suspensions: Vec<_> = events.of_kind(RuntimeEventKind::Suspension).filter(is_for_gc).collect();
    let duration_ns = events.profile.header().duration_ns;
    // There is one suspension at a time: the sum of those that the profile does not have covers as much time.
    let kept_ns = sum::of(suspensions.iter().map(|suspension| suspension.duration_ns));
    let estimated = events.estimated_duration(RuntimeEventKind::Suspension, &suspensions);
    let omitted_ns = (estimated.number as u64).saturating_sub(kept_ns);
    let suspended_ns = covered_ns(&suspensions, duration_ns).saturating_add(omitted_ns).min(duration_ns);
    let share = percent(suspended_ns, duration_ns);
    if suspensions.len() < MIN_SUSPENSIONS || share < MIN_PERCENT {
        return None;
    }
    let longest_ns = longest_ns(events, &suspensions);
    let reason = Reason::of(events, samples);
    let evidence = format!(
        "all managed threads are suspended for garbage collections for {}{share:.0} % of the time{}; the longest pause takes {}{}{}",
        estimated.qualifier(),
        collections(events).map(|collections| format!(": {collections}")).unwrap_or_default(),
        if events.totals(RuntimeEventKind::Suspension).is_lower_bound { "at least " } else { "" },
        duration_text(longest_ns),
        reason.evidence(events),
    );
    let facts = events.facts(RuntimeEventKind::Suspension, &suspensions, reason.site);
    // All managed threads wait, and the events have those that suspended them.
    let selection = Selection { threads: Vec::new(), ..facts.selection };
    let facts =
        FindingFacts { threads: None, share: facts::share(share, Whole::Duration), selection, ..facts };
    Some(events.finding(FindingKind::GcPauses, &evidence, reason.remedy(), suspended_ns, facts))
}

/// Why most collections happen.
struct Reason<'a> {
    /// The cause, how many collections have it, and the number of collections.
    cause: Option<(CollectionCause, u64, u64)>,
    /// The method below which the program requests collections, by samples of its threads.
    site: Option<&'a str>,
}

impl<'a> Reason<'a> {
    fn of(events: &ProcessEvents<'_>, samples: &WaitSamples<'a>) -> Self {
        let cause = main_cause(events);
        let is_request = matches!(cause, Some((CollectionCause::Request, ..)));
        let site = is_request.then(|| samples.site_of(events.process, &samples.marks.collection_requests));
        Self { cause, site: site.flatten() }
    }

    fn evidence(&self, events: &ProcessEvents<'_>) -> String {
        let Some((cause, count, all)) = self.cause else { return String::new() };
        let collections = |kept| events.estimated_count(RuntimeEventKind::GarbageCollection, kept as usize);
        let (count, all) = (collections(count), collections(all).number);
        let below = self.site.map(|site| format!(" below {site}")).unwrap_or_default();
        match cause {
            CollectionCause::Allocation => String::new(),
            CollectionCause::LargeObjects => format!("; {count} of {all:.0} are for large objects"),
            CollectionCause::Request => format!("; {count} of {all:.0} are requested by GC.Collect{below}"),
            CollectionCause::LowMemory => format!("; {count} of {all:.0} are for low memory"),
        }
    }

    fn remedy(&self) -> String {
        match self.cause.map(|(cause, ..)| cause) {
            None | Some(CollectionCause::Allocation) => {
                "allocate less, and keep fewer objects alive".to_owned()
            }
            Some(CollectionCause::LargeObjects) => {
                "reuse large buffers, as with ArrayPool, or divide them into smaller ones".to_owned()
            }
            Some(CollectionCause::Request) => match self.site {
                Some(site) => {
                    format!("do not call GC.Collect in {}: the runtime collects when it has to", short(site))
                }
                None => "do not call GC.Collect: the runtime collects when it has to".to_owned(),
            },
            Some(CollectionCause::LowMemory) => {
                "raise the memory limit of the container, or keep fewer objects alive".to_owned()
            }
        }
    }
}

/// The longest of these suspensions, and of those that the profile does not have where all are for the same.
fn longest_ns(events: &ProcessEvents<'_>, suspensions: &[&RuntimeEvent]) -> u64 {
    let totals = events.totals(RuntimeEventKind::Suspension);
    if suspensions.len() as u64 == totals.kept {
        return totals.longest_ns;
    }
    suspensions.iter().map(|suspension| suspension.duration_ns).max().unwrap_or_default()
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
    let texts = by_generation.into_iter().map(|(generation, kept)| {
        let count = events.estimated_count(RuntimeEventKind::GarbageCollection, kept);
        format!("{count} of generation {generation}")
    });
    let texts: Vec<_> = texts.collect();
    (!texts.is_empty()).then(|| texts.join(", "))
}
