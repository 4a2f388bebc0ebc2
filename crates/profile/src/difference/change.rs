//! The change of a share of samples between two profiles, and its statistical noise.

/// Sample counts of a function or call path in two profiles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Its samples in the earlier profile.
    pub before_count: u64,
    /// All samples of the earlier profile.
    pub before_total: u64,
    /// Its samples in the later profile.
    pub after_count: u64,
    /// All samples of the later profile.
    pub after_total: u64,
    /// The number of samples of the earlier profile that determines its noise:
    /// [`Profile::effective_samples`](crate::Profile::effective_samples).
    pub before_samples: u64,
    /// The number of samples of the later profile that determines its noise.
    pub after_samples: u64,
}

impl Change {
    /// The two-sided 95 % quantile of the normal distribution, in standard deviations.
    const Z_95: f64 = 1.96;

    /// The share in the earlier profile, percent.
    #[must_use]
    pub fn before_percent(&self) -> f64 {
        percent(self.before_count, self.before_total)
    }

    /// The share in the later profile, percent.
    #[must_use]
    pub fn after_percent(&self) -> f64 {
        percent(self.after_count, self.after_total)
    }

    /// The later share minus the earlier one, percentage points.
    #[must_use]
    pub fn points(&self) -> f64 {
        self.after_percent() - self.before_percent()
    }

    /// The noise of the difference, percentage points to either side: half the width of the 95 % confidence interval of
    /// the difference of two proportions, with a success and a failure added to each side (Agresti and
    /// Caffo, "Simple and effective confidence intervals for proportions and differences of proportions", The American
    /// Statistician 54, 2000).
    ///
    /// The interval assumes independent samples. Consecutive samples of one thread are correlated, so the real noise is
    /// larger.
    #[must_use]
    pub fn noise_points(&self) -> f64 {
        let variance = |(share, samples): (f64, f64)| share * (1.0 - share) / samples;
        100.0 * Self::Z_95 * self.adjusted_shares().map(variance).iter().sum::<f64>().sqrt()
    }

    /// Whether the confidence interval excludes 0. Its centre is slightly nearer to 0 than [`points`](Self::points).
    #[must_use]
    pub fn is_beyond_noise(&self) -> bool {
        let [before, after] = self.adjusted_shares().map(|(share, _)| 100.0 * share);
        (after - before).abs() > self.noise_points()
    }

    /// Whether nearly all samples of both profiles have the function, as the root of all stacks.
    #[must_use]
    pub fn is_of_nearly_all(&self) -> bool {
        const NEARLY_ALL_PERCENT: f64 = 95.0;
        self.before_percent().min(self.after_percent()) > NEARLY_ALL_PERCENT
    }

    /// The share of each side and its number of samples, with a success and a failure added.
    fn adjusted_shares(&self) -> [(f64, f64); 2] {
        let adjusted = |count: u64, total: u64, samples: u64| {
            let successes = count as f64 * (samples as f64 / total.max(1) as f64);
            let samples = samples as f64 + 2.0;
            ((successes + 1.0) / samples, samples)
        };
        [
            adjusted(self.before_count, self.before_total, self.before_samples),
            adjusted(self.after_count, self.after_total, self.after_samples),
        ]
    }
}

fn percent(count: u64, total: u64) -> f64 {
    100.0 * count as f64 / total.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(before_count: u64, before_total: u64, after_count: u64, after_total: u64) -> Change {
        Change {
            before_count,
            before_total,
            after_count,
            after_total,
            before_samples: before_total,
            after_samples: after_total,
        }
    }

    #[test]
    fn a_change_compares_shares_of_each_total() {
        let change = change(10, 100, 40, 200);
        assert_eq!((change.before_percent(), change.after_percent(), change.points()), (10.0, 20.0, 10.0));
        assert_eq!(Change::default().points(), 0.0);
    }

    #[test]
    fn the_interval_is_the_one_of_agresti_and_caffo() {
        // p1 = 8/12 and p2 = 2/12: 1.96 * sqrt(2 * (2/9 or 5/36) / 12) around their difference.
        let change = change(7, 10, 1, 10);
        let expected =
            100.0 * 1.96 * ((8.0 / 12.0 * 4.0 / 12.0 + 2.0 / 12.0 * 10.0 / 12.0) / 12.0_f64).sqrt();
        assert!((change.noise_points() - expected).abs() < 1e-9);
        assert!(change.is_beyond_noise());
    }

    #[test]
    fn a_change_of_few_samples_is_noise() {
        assert!(!change(0, 10, 1, 10).is_beyond_noise());
        assert!(!change(10, 1000, 18, 1000).is_beyond_noise());
        assert!(change(100, 10_000, 180, 10_000).is_beyond_noise());
        assert!(!Change::default().is_beyond_noise());
        assert!(!change(0, 0, 5, 5).is_beyond_noise());
    }

    #[test]
    fn a_few_long_waits_are_few_samples() {
        const NS_PER_S: u64 = 1_000_000_000;
        let change = change(10 * NS_PER_S, 20 * NS_PER_S, 14 * NS_PER_S, 20 * NS_PER_S);
        assert!(change.is_beyond_noise());
        let waits = Change { before_samples: 10, after_samples: 10, ..change };
        assert!(!waits.is_beyond_noise() && waits.noise_points() > 30.0, "{}", waits.noise_points());
        let more_waits = Change { before_samples: 1_000, after_samples: 1_000, ..change };
        assert!(more_waits.is_beyond_noise());
    }

    #[test]
    fn counts_of_any_size_give_finite_results() {
        for change in [change(u64::MAX, u64::MAX, 0, u64::MAX), change(5, 0, 5, 0)] {
            assert!(change.points().is_finite());
            let _ = (change.noise_points(), change.is_beyond_noise());
        }
    }
}
