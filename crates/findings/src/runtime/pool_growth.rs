//! Finds thread pools that add workers because their queue does not proceed.

use profiler_profile::{
    Certainty, FindingFacts, FindingKind, Proof, RuntimeEvent, RuntimeEventKind, Selection, Whole,
};

use super::{
    blocked_workers::{BlockingSite, WaitSamples},
    process_events::{ProcessEvents, most_frequent},
};
use crate::{WaitCause, facts::share, found::Found, frames::short};

/// The fewest adjustments. The pool adds a worker now and then in a burst of work.
const MIN_ADJUSTMENTS: usize = 5;

/// The least number of workers that the pool gained.
const MIN_NEW_WORKERS: u64 = 5;

/// The reason of an adjustment for workers that wait for tasks: they report their waits, and the runtime does not observe its queue
/// (`ThreadAdjustmentReasonMap` in the runtime's `ClrEtwAll.man`).
const COOPERATIVE_BLOCKING: &str = "CooperativeBlocking";

/// The time without progress after which the pool adds a worker (`GateThread.GateActivitiesPeriodMs` in the runtime's
/// `PortableThreadPool`).
const STARVATION_NS: u64 = 500_000_000;

/// The growth of a pool, and from samples of waiting threads, what its workers do meanwhile.
pub(super) fn find<'a>(events: &ProcessEvents<'a>, samples: &WaitSamples<'a>) -> Option<Found<'a>> {
    let adjustments: Vec<_> = events.of_kind(RuntimeEventKind::PoolAdjustment).collect();
    let is_starvation = |index: &usize| adjustments[*index].is_pool_starvation(events.profile);
    let starvations: Vec<usize> = (0..adjustments.len()).filter(is_starvation).collect();
    let (first, last) = (*starvations.first()?, *starvations.last()?);
    let workers = |index: usize| events.number(adjustments[index], "NewWorkerThreadCount");
    // The number before the first of these adjustments, where it is known.
    let from = workers(first.saturating_sub(1))?;
    let to = workers(last)?;
    if starvations.len() < MIN_ADJUSTMENTS || to < from.saturating_add(MIN_NEW_WORKERS) {
        return None;
    }
    let begin_ns = adjustments[first].time_ns.saturating_sub(STARVATION_NS);
    let site = samples.blocking_site(events.process, &(begin_ns..=adjustments[last].time_ns));
    let reasons = starvations.iter().map(|index| events.text(adjustments[*index], "Reason"));
    let meaning = match most_frequent(reasons)? {
        (Some(COOPERATIVE_BLOCKING), ..) => "workers waited for tasks",
        _ => "no work item was taken from its queue",
    };
    let evidence = format!(
        "the thread pool added workers {} times because {meaning}, from {from} to {to} workers{}",
        events.estimated_count(RuntimeEventKind::PoolAdjustment, starvations.len()),
        site.map(|site| format!(
            "; meanwhile, {:.0} % of the time in which workers block is below {} ({})",
            site.percent, site.method, site.cause
        ))
        .unwrap_or_default(),
    );
    let remedy = match site.map(|site| (short(site.method), site.cause)) {
        Some((method, WaitCause::SyncOverAsync)) => format!("make {method} asynchronous"),
        Some((method, _)) => format!("do not block workers in {method}"),
        None => "make methods asynchronous that block workers; --wall shows them".to_owned(),
    };
    let facts = facts(events, &adjustments[first..=last], site);
    let found = events.finding(FindingKind::PoolGrowth, &evidence, remedy, 0, facts);
    Some(found.below(site.map(|site| site.method)))
}

/// The workers are those of the samples. Without samples of them, the events show the growth of the pool and not its cause.
fn facts(
    events: &ProcessEvents<'_>,
    adjustments: &[&RuntimeEvent],
    site: Option<BlockingSite<'_>>,
) -> FindingFacts {
    let method = site.map(|site| site.method);
    let facts = events.facts(RuntimeEventKind::PoolAdjustment, adjustments, method);
    FindingFacts {
        threads: None,
        share: site.and_then(|site| share(site.percent, Whole::BlockedTimeOfWorkers)),
        certainty: match site {
            Some(_) => facts.certainty,
            None => Certainty::Likely(Proof::WaitSamples),
        },
        selection: Selection { threads: Vec::new(), ..facts.selection },
        ..facts
    }
}
