//! Findings from what runtimes reported: suspensions, collections, exceptions, waits for locks, adjustments of thread pools.

mod blocked_workers;
mod collection_reasons;
mod estimates;
pub(crate) mod event_causes;
mod exceptions;
mod full_collections;
mod gc_pauses;
mod lock_contention;
mod pool_growth;
mod process_events;

pub(crate) use self::blocked_workers::WaitSamples;
use self::process_events::ProcessEvents;
use crate::found::Found;

/// The findings of the runtime events of all processes.
pub(crate) fn findings<'a>(samples: &WaitSamples<'a>) -> Vec<Found<'a>> {
    let finders = [full_collections::find, exceptions::find, lock_contention::find];
    let finders_with_samples = [gc_pauses::find, pool_growth::find];
    let mut findings = Vec::new();
    for events in ProcessEvents::of(samples.profile) {
        findings.extend(finders.iter().filter_map(|find| find(&events)));
        findings.extend(finders_with_samples.iter().filter_map(|find| find(&events, samples)));
    }
    findings
}
