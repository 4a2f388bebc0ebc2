//! Finds processes that collect generation 2 often, and what they allocate before.

use profiler_profile::{FindingFacts, FindingKind, RuntimeEvent, RuntimeEventKind, Whole, sum};

use super::{
    collection_reasons::{CollectionCause, cause_of},
    process_events::ProcessEvents,
};
use crate::{
    facts,
    found::Found,
    frames::short,
    weights::{heaviest, percent},
};

/// The generation that holds the objects that survive, and the large ones.
const OLDEST_GENERATION: u64 = 2;

/// The fewest collections of generation 2. A program that starts makes some.
const MIN_COLLECTIONS: usize = 5;

/// The least share of generation 2 among the collections. Tuned programs have 1 for 10 of generation 1 and 100 of generation 0.
const MIN_PERCENT: f64 = 20.0;

/// The fewest sampled allocations. Fewer do not show what is allocated most.
const MIN_ALLOCATIONS: usize = 20;

/// The least share of the bytes that names a type.
const MIN_TYPE_PERCENT: f64 = 20.0;

/// The allocation kind of large objects (`GCAllocationKindMap`).
const LARGE: &str = "Large";

pub(super) fn find<'a>(events: &ProcessEvents<'a>) -> Option<Found<'a>> {
    let is_requested =
        |collection: &&RuntimeEvent| cause_of(events, collection) == Some(CollectionCause::Request);
    let collections: Vec<_> =
        events.of_kind(RuntimeEventKind::GarbageCollection).filter(|event| !is_requested(event)).collect();
    let is_full = |event: &&RuntimeEvent| events.number(event, "Depth") == Some(OLDEST_GENERATION);
    let full: Vec<_> = collections.iter().copied().filter(is_full).collect();
    let share = percent(full.len() as u64, collections.len() as u64);
    if full.len() < MIN_COLLECTIONS || share < MIN_PERCENT {
        return None;
    }
    let is_for_large =
        |event: &&&RuntimeEvent| cause_of(events, event) == Some(CollectionCause::LargeObjects);
    let for_large = full.iter().filter(is_for_large).count();
    let are_for_large = 2 * for_large > full.len();
    let allocations = allocations(events, are_for_large);
    if allocations.len() < MIN_ALLOCATIONS {
        return None;
    }
    let (objects, cause) =
        if are_for_large { ("large objects", ", most of them for large objects") } else { ("objects", "") };
    let site = events.heaviest_site(&allocations);
    let evidence = format!(
        "{} of {:.0} garbage collections are of generation 2{cause}{}{}",
        events.estimated_count(RuntimeEventKind::GarbageCollection, full.len()),
        events.estimated_count(RuntimeEventKind::GarbageCollection, collections.len()).number,
        largest_type(events, &allocations)
            .map(|(name, share)| format!("; {share:.0} % of the bytes of {objects} are {name}"))
            .unwrap_or_default(),
        site.map(|site| format!("; most bytes of {objects} are allocated below {site}")).unwrap_or_default(),
    );
    let place = site.map(|site| format!(" in {}", short(site))).unwrap_or_default();
    let remedy = if are_for_large {
        format!("reuse buffers{place}, as with ArrayPool, or divide them into smaller ones")
    } else {
        format!("allocate less{place}, and keep objects alive for a shorter time")
    };
    let duration_ns = sum::of(full.iter().map(|collection| collection.duration_ns));
    let facts = FindingFacts {
        share: facts::share(share, Whole::RuntimeEvents),
        ..events.facts(RuntimeEventKind::GarbageCollection, &full, site)
    };
    Some(events.finding(FindingKind::FullCollections, &evidence, remedy, duration_ns, facts))
}

/// The sampled allocations, of large objects alone if `are_large`, with the bytes that each represents.
fn allocations<'a>(events: &ProcessEvents<'a>, are_large: bool) -> Vec<(&'a RuntimeEvent, u64)> {
    let is_meant = |event: &&RuntimeEvent| !are_large || events.text(event, "AllocationKind") == Some(LARGE);
    let allocations = events.of_kind(RuntimeEventKind::Allocation).filter(is_meant);
    allocations.map(|allocation| (allocation, bytes(events, allocation))).collect()
}

/// The bytes that a sampled allocation represents: those since the last one (`GCAllocationTick`), or its size divided by the
/// probability with which it is sampled (`AllocationSampled`).
fn bytes(events: &ProcessEvents<'_>, allocation: &RuntimeEvent) -> u64 {
    /// Of each byte (dotnet/runtime, docs/design/features/RandomizedAllocationSampling.md).
    const PROBABILITY: f64 = 1.0 / 102_400.0;
    if let Some(bytes) = events.number(allocation, "AllocationAmount64") {
        return bytes;
    }
    let size = events.number(allocation, "ObjectSize").unwrap_or(0).max(1) as f64;
    let probability = -(size * (-PROBABILITY).ln_1p()).exp_m1();
    (size / probability) as u64
}

/// The type with the most bytes, and its share.
fn largest_type<'a>(
    events: &ProcessEvents<'a>,
    allocations: &[(&RuntimeEvent, u64)],
) -> Option<(&'a str, f64)> {
    let types = allocations
        .iter()
        .filter_map(|(allocation, bytes)| Some((events.text(allocation, "TypeName")?, *bytes)));
    let (name, bytes, total) = heaviest(types)?;
    let share = percent(bytes, total);
    (share >= MIN_TYPE_PERCENT).then_some((name, share))
}
