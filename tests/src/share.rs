//! Compares a share of samples with the share that a workload has by construction.

/// The quantile of the normal distribution that one of 100,000 true shares exceeds on either side.
pub const QUANTILE: f64 = 4.42;

/// Checks that `found` of `all` samples have something that by construction has a share of `expected_percent`, within
/// `tolerance_percent` points: what the construction leaves open, such as the time that a call takes beside a loop.
///
/// The bounds are those of the binomial distribution for `all` samples, by the score interval of Wilson (1927), so that a true
/// share is refused once in 100,000 times. Samples of a timer are distributed more evenly than that.
///
/// # Panics
/// Panics if the share is another one, or if the samples are too few to tell it from any other.
#[track_caller]
pub fn assert_share(found: u64, all: u64, expected_percent: f64, tolerance_percent: f64) {
    let (least, most) = interval_percent(found, all);
    assert!(most - least < 60.0, "{all} samples are too few for a share: it is {least:.1} to {most:.1} %");
    assert!(
        least <= expected_percent + tolerance_percent && most >= expected_percent - tolerance_percent,
        "{found} of {all} samples: a share of {least:.1} to {most:.1} %, not {expected_percent} % (+- {tolerance_percent})"
    );
}

/// The least and the largest share, in percent, with which `found` of `all` samples are not surprising.
fn interval_percent(found: u64, all: u64) -> (f64, f64) {
    if all == 0 {
        return (0.0, 100.0);
    }
    let (samples, share) = (all as f64, found as f64 / all as f64);
    let square = QUANTILE * QUANTILE / samples;
    let center = (share + square / 2.0) / (1.0 + square);
    let half = QUANTILE / (1.0 + square) * (share * (1.0 - share) / samples + square / samples / 4.0).sqrt();
    // The bounds of none and all are exact, which rounding would miss.
    let least = if found == 0 { 0.0 } else { center - half };
    let most = if found == all { 1.0 } else { center + half };
    (100.0 * least, 100.0 * most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_narrows_with_the_number_of_samples() {
        let (least, most) = interval_percent(75, 100);
        assert!((50.0..53.0).contains(&least) && (88.0..91.0).contains(&most), "{least} {most}");
        let (least, most) = interval_percent(7_500, 10_000);
        assert!((72.9..73.2).contains(&least) && (76.8..77.0).contains(&most), "{least} {most}");
        assert_eq!(interval_percent(0, 0), (0.0, 100.0));
        assert_eq!((interval_percent(0, 77).0, interval_percent(77, 77).1), (0.0, 100.0));
    }

    #[test]
    fn a_share_within_the_interval_is_accepted_and_another_one_is_not() {
        assert_share(760, 1_000, 75.0, 0.0);
        assert!(std::panic::catch_unwind(|| assert_share(500, 1_000, 75.0, 2.0)).is_err());
        assert!(std::panic::catch_unwind(|| assert_share(10, 12, 75.0, 2.0)).is_err(), "too few");
    }
}
