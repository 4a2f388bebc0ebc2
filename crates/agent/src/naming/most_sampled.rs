//! Bounds the number of resources of a window.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
};

use profiler_profile::{Profile, sum};

use crate::Resource;

/// Replaces the resources of processes by `other` where there are more than `limit`. Those with the most samples are kept.
pub(super) fn keep_most_sampled(
    profile: &Profile,
    resources: Vec<Resource>,
    limit: usize,
    other: &Resource,
) -> Vec<Resource> {
    let counts = sample_counts(profile, &resources);
    if counts.len() <= limit {
        return resources;
    }
    let mut ranked: Vec<_> = counts.into_iter().collect();
    ranked.sort_unstable_by_key(|(resource, count)| (Reverse(*count), *resource));
    let kept: HashSet<_> =
        ranked.iter().take(limit.saturating_sub(1)).map(|(resource, _)| *resource).collect();
    let keep = |resource: &Resource| if kept.contains(resource) { resource.clone() } else { other.clone() };
    resources.iter().map(keep).collect()
}

/// The samples of each resource, over all events.
fn sample_counts<'a>(profile: &Profile, resources: &'a [Resource]) -> HashMap<&'a Resource, u64> {
    let mut of_processes = vec![0; resources.len()];
    for sample in profile.samples() {
        let count = profile.event(sample.event).sample_count(sample.value);
        sum::add(&mut of_processes[profile.thread(sample.thread).process.index()], count);
    }
    let mut counts = HashMap::new();
    for (resource, count) in resources.iter().zip(of_processes) {
        sum::add(counts.entry(resource).or_default(), count);
    }
    counts
}
