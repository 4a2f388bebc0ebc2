//! Why a runtime collects garbage: the reasons of its collections (`GCReasonMap` in the runtime's `ClrEtwAll.man`).

use profiler_profile::{RuntimeEvent, RuntimeEventKind};

use super::process_events::{ProcessEvents, most_frequent};

/// What causes collections, and what helps against it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CollectionCause {
    /// Allocations fill the space for small objects.
    Allocation,
    /// Allocations fill the space for large objects.
    LargeObjects,
    /// The program calls `GC.Collect`.
    Request,
    /// The machine or the container has little memory.
    LowMemory,
}

/// The causes of the reasons.
pub(super) const REASONS: [(&str, CollectionCause); 14] = [
    ("AllocSmall", CollectionCause::Allocation),
    ("Induced", CollectionCause::Request),
    ("LowMemory", CollectionCause::LowMemory),
    ("Empty", CollectionCause::Allocation),
    ("AllocLarge", CollectionCause::LargeObjects),
    ("OutOfSpaceSOH", CollectionCause::Allocation),
    ("OutOfSpaceLOH", CollectionCause::LargeObjects),
    ("InducedNotForced", CollectionCause::Request),
    ("Internal", CollectionCause::Allocation),
    ("InducedLowMemory", CollectionCause::LowMemory),
    ("InducedCompacting", CollectionCause::Request),
    ("LowMemoryHost", CollectionCause::LowMemory),
    // A full collection in the provisional mode, into which the collector goes when memory is low.
    ("PMFullGC", CollectionCause::LowMemory),
    ("LowMemoryHostBlocking", CollectionCause::LowMemory),
];

/// The cause of a collection; `None` for one without a known reason.
pub(super) fn cause_of(events: &ProcessEvents<'_>, collection: &RuntimeEvent) -> Option<CollectionCause> {
    let reason = events.text(collection, "Reason")?;
    REASONS.iter().find(|(name, _)| *name == reason).map(|(_, cause)| *cause)
}

/// The cause of most collections of a process, how many have it, and the number of collections.
pub(super) fn main_cause(events: &ProcessEvents<'_>) -> Option<(CollectionCause, u64, u64)> {
    let collections = events.of_kind(RuntimeEventKind::GarbageCollection);
    let (cause, count, all) = most_frequent(collections.map(|collection| cause_of(events, collection)))?;
    cause.filter(|_| 2 * count > all).map(|cause| (cause, count, all))
}
