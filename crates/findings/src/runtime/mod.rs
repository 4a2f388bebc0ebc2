//! Findings from what runtimes reported: suspensions, collections, exceptions, waits for locks, adjustments of thread pools.

mod blocked_workers;
mod exceptions;
mod full_collections;
mod gc_pauses;
mod lock_contention;
mod pool_growth;
mod process_events;

use profiler_profile::Finding;

pub(crate) use self::blocked_workers::WaitSamples;
use self::process_events::ProcessEvents;

/// The findings of the runtime events of all processes.
pub(crate) fn findings(samples: &WaitSamples<'_>) -> Vec<Finding> {
    let finders = [gc_pauses::find, full_collections::find, exceptions::find, lock_contention::find];
    let mut findings = Vec::new();
    for events in ProcessEvents::of(samples.profile) {
        findings.extend(finders.iter().filter_map(|find| find(&events)));
        findings.extend(pool_growth::find(&events, samples));
    }
    findings
}
