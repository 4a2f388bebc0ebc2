//! The limits of a process that samples a node all day.

use super::{
    churn::{self, Done},
    minute::{Account, Minute},
};

const BYTES_PER_MEGABYTE: f64 = 1e6;

const MAX_RESIDENT_BYTES: u64 = 64_000_000;
const MAX_DESCRIPTORS: usize = 512;
/// After the tenth minute, when everything that is kept has reached its bound.
const MAX_GROWTH_BYTES_PER_HOUR: f64 = 1e6;
const SETTLED_MINUTES: usize = 10;
/// With fewer minutes after the tenth, the size of single profiles hides such a slope.
const MINUTES_OF_SLOPE: usize = 20;
/// The limit of the growth after the first minute, for shorter runs. The first minute has unwind tables and symbols of all
/// programs that run; the two generations of stacks, of 8 MiB each, are full after the fourth.
const MAX_GROWTH_OF_SHORT_RUN_BYTES: f64 = 2.0 * 8.0 * 1024.0 * 1024.0;

/// The limits that are exceeded, in words.
pub(super) fn failures(minutes: &[Minute], last: &Account, done: &Done) -> Vec<String> {
    let mut failures = Vec::new();
    if let Some(minute) = minutes.iter().find(|minute| minute.usage.peak_bytes > MAX_RESIDENT_BYTES) {
        let peak = minutes.iter().map(|minute| minute.usage.peak_bytes).max().unwrap_or_default();
        let megabytes = |bytes: u64| bytes as f64 / BYTES_PER_MEGABYTE;
        failures.push(format!(
            "resident memory: {:.1} MB at its peak, over {:.0} MB since minute {}",
            megabytes(peak),
            megabytes(MAX_RESIDENT_BYTES),
            minute.number
        ));
    }
    failures.extend(growth(minutes));
    if let Some(minute) = minutes.iter().find(|minute| minute.usage.descriptors > MAX_DESCRIPTORS) {
        let most = minutes.iter().map(|minute| minute.usage.descriptors).max().unwrap_or_default();
        failures.push(format!(
            "descriptors: {most} at most, over {MAX_DESCRIPTORS} since minute {}",
            minute.number
        ));
    }
    let accounts = || minutes.iter().map(|minute| &minute.account).chain([last]);
    let wrong = accounts().filter(|account| !account.is_exact).count();
    if wrong > 0 {
        failures.push(format!("ledger: {wrong} of {} do not add up", minutes.len() + 1));
    }
    let full: u64 = accounts().filter_map(|account| account.lost.get("MissingStack")).sum();
    if full > 0 {
        failures.push(format!("stacks: {full} samples lack theirs"));
    }
    failures.extend(pace(minutes, done));
    failures
}

/// A run that does not reach the churn proves nothing.
fn pace(minutes: &[Minute], done: &Done) -> Option<String> {
    let count = minutes.len() as u64;
    if let Err(error) = done.ensure_pace(count) {
        return Some(format!("churn: {error}"));
    }
    let lost = |minute: &Minute| minute.account.lost.values().sum::<u64>();
    let stacks: u64 = minutes.iter().map(|minute| minute.account.stacks + lost(minute)).sum();
    let least = churn::least_stacks(count);
    (stacks < least).then(|| format!("churn: {stacks} stacks sampled in {count} minutes, fewer than {least}"))
}

/// The growth of the resident memory beyond its limit.
fn growth(minutes: &[Minute]) -> Option<String> {
    let resident = |minute: &Minute| minute.usage.resident_bytes as f64;
    if minutes.len() >= SETTLED_MINUTES + MINUTES_OF_SLOPE {
        let settled: Vec<f64> = minutes[SETTLED_MINUTES..].iter().map(resident).collect();
        let bytes_per_hour = 60.0 * slope(&settled);
        return (bytes_per_hour > MAX_GROWTH_BYTES_PER_HOUR).then(|| {
            let megabytes = bytes_per_hour / BYTES_PER_MEGABYTE;
            format!("growth: {megabytes:.1} MB an hour after minute {SETTLED_MINUTES}, over 1 MB")
        });
    }
    let (first, last) = (minutes.first()?, minutes.last()?);
    let grown = resident(last) - resident(first);
    (grown > MAX_GROWTH_OF_SHORT_RUN_BYTES).then(|| {
        let [grown, limit] = [grown, MAX_GROWTH_OF_SHORT_RUN_BYTES].map(|bytes| bytes / BYTES_PER_MEGABYTE);
        format!("growth: {grown:.1} MB after the first minute, over {limit} MB")
    })
}

/// The slope of the line through values at 0, 1, 2 and so on, with the least squares.
fn slope(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let (middle, mean) = ((count - 1.0) / 2.0, values.iter().sum::<f64>() / count);
    let (mut products, mut squares) = (0.0, 0.0);
    for (index, value) in values.iter().enumerate() {
        let from_middle = index as f64 - middle;
        products += from_middle * (value - mean);
        squares += from_middle.powi(2);
    }
    products / squares
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{super::usage::Usage, *};

    fn minutes(resident_bytes: impl IntoIterator<Item = u64>) -> Vec<Minute> {
        let minute = |(index, resident_bytes): (usize, u64)| Minute {
            number: index as u64 + 1,
            usage: Usage {
                resident_bytes,
                peak_bytes: resident_bytes,
                descriptors: 100,
                cpu: Duration::ZERO,
            },
            account: exact(),
        };
        resident_bytes.into_iter().enumerate().map(minute).collect()
    }

    fn exact() -> Account {
        Account { is_exact: true, stacks: 20_000, ..Account::default() }
    }

    fn churn() -> Done {
        Done { processes: 1 << 20, libraries: 1 << 20, mappings: 1 << 20 }
    }

    #[test]
    fn a_run_within_the_limits_has_no_failure() {
        assert_eq!(failures(&minutes([20_000_000, 26_000_000]), &exact(), &churn()), [""; 0]);
    }

    #[test]
    fn each_limit_that_is_exceeded_is_named() {
        let mut run = minutes([50_000_000, 70_000_000]);
        run[1].usage.descriptors = 513;
        run[0].account.is_exact = false;
        run[1].account.lost.insert("MissingStack".to_owned(), 3);
        let done = Done { libraries: 0, ..churn() };
        let failures = failures(&run, &exact(), &done);
        let named = ["resident memory", "growth", "descriptors", "ledger", "stacks", "churn"];
        assert_eq!(failures.len(), named.len(), "{failures:?}");
        for (failure, name) in failures.iter().zip(named) {
            assert!(failure.starts_with(name), "{failure}");
        }
    }

    #[test]
    fn growth_before_the_tenth_minute_of_a_long_run_is_permitted() {
        let settled = |index: u64| 20_000_000 + 2_000_000 * index.min(10) + 100_000 * (index % 2);
        assert_eq!(failures(&minutes((0..60).map(settled)), &exact(), &churn()), [""; 0]);
        let growing =
            failures(&minutes((0..60).map(|index| 20_000_000 + 20_000 * index)), &exact(), &churn());
        assert_eq!(growing, ["growth: 1.2 MB an hour after minute 10, over 1 MB"]);
    }
}
