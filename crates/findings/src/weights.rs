//! Shares of values, and the heaviest of items with weights.

use std::collections::BTreeMap;

use profiler_profile::sum;

/// The share of a value, percent.
pub(crate) fn percent(value: u64, of: u64) -> f64 {
    100.0 * value as f64 / of.max(1) as f64
}

/// The item with the largest sum of weights, this sum, and that of all items. Of equally heavy ones, the last in their order.
pub(crate) fn heaviest<T: Ord>(items: impl Iterator<Item = (T, u64)>) -> Option<(T, u64, u64)> {
    let mut weights = BTreeMap::<T, u64>::new();
    let mut total = 0;
    for (item, weight) in items {
        sum::add(weights.entry(item).or_default(), weight);
        sum::add(&mut total, weight);
    }
    let (item, weight) = weights.into_iter().max_by_key(|(_, weight)| *weight)?;
    Some((item, weight, total))
}
