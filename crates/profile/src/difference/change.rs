//! A share of samples before and after, and how far apart chance alone may put the two.

/// How often something was hit, of all samples, before and after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Samples that hit it before.
    pub before_count: u64,
    /// All samples before.
    pub before_total: u64,
    /// Samples that hit it after.
    pub after_count: u64,
    /// All samples after.
    pub after_total: u64,
}

impl Change {
    /// What 95 of 100 normally distributed values keep to, in standard deviations.
    const Z_95: f64 = 1.96;

    /// The share before, in a hundred.
    #[must_use]
    pub fn before_percent(&self) -> f64 {
        percent(self.before_count, self.before_total)
    }

    /// The share after, in a hundred.
    #[must_use]
    pub fn after_percent(&self) -> f64 {
        percent(self.after_count, self.after_total)
    }

    /// The share after less the one before, in points of a hundred.
    #[must_use]
    pub fn points(&self) -> f64 {
        self.after_percent() - self.before_percent()
    }

    /// What sampling alone makes of no change, in points of a hundred to either side: half the width of the 95 %
    /// interval of the difference of two proportions, with a success and a failure added to each side (Agresti and
    /// Caffo, "Simple and effective confidence intervals for proportions and differences of proportions", The American
    /// Statistician 54, 2000).
    ///
    /// It takes samples for independent. Those of one thread are not quite: what it did at one tick it often does at the
    /// next.
    #[must_use]
    pub fn noise_points(&self) -> f64 {
        let variance = |count: u64, total: u64| {
            let total = total as f64 + 2.0;
            let share = (count as f64 + 1.0) / total;
            share * (1.0 - share) / total
        };
        let both =
            variance(self.before_count, self.before_total) + variance(self.after_count, self.after_total);
        100.0 * Self::Z_95 * both.sqrt()
    }

    /// Whether that interval leaves 0 out. Its middle lies a little nearer to 0 than [`points`](Self::points).
    #[must_use]
    pub fn is_beyond_noise(&self) -> bool {
        let share = |count: u64, total: u64| 100.0 * (count as f64 + 1.0) / (total as f64 + 2.0);
        let points = share(self.after_count, self.after_total) - share(self.before_count, self.before_total);
        points.abs() > self.noise_points()
    }
}

fn percent(count: u64, total: u64) -> f64 {
    100.0 * count as f64 / total.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(before_count: u64, before_total: u64, after_count: u64, after_total: u64) -> Change {
        Change { before_count, before_total, after_count, after_total }
    }

    #[test]
    fn a_change_is_in_points_of_each_side_s_own_total() {
        let change = change(10, 100, 40, 200);
        assert_eq!((change.before_percent(), change.after_percent(), change.points()), (10.0, 20.0, 10.0));
        assert_eq!(Change::default().points(), 0.0);
    }

    #[test]
    fn the_interval_is_that_of_agresti_and_caffo() {
        // p1 = 8/12 and p2 = 2/12: 1.96 * sqrt(2 * (2/9 or 5/36) / 12) around their difference.
        let change = change(7, 10, 1, 10);
        let expected =
            100.0 * 1.96 * ((8.0 / 12.0 * 4.0 / 12.0 + 2.0 / 12.0 * 10.0 / 12.0) / 12.0_f64).sqrt();
        assert!((change.noise_points() - expected).abs() < 1e-9);
        assert!(change.is_beyond_noise());
    }

    #[test]
    fn few_samples_prove_nothing_and_many_do() {
        assert!(!change(0, 10, 1, 10).is_beyond_noise());
        assert!(!change(10, 1000, 18, 1000).is_beyond_noise());
        assert!(change(100, 10_000, 180, 10_000).is_beyond_noise());
        assert!(!Change::default().is_beyond_noise());
        assert!(!change(0, 0, 5, 5).is_beyond_noise());
    }

    #[test]
    fn numbers_of_any_size_are_an_answer() {
        for change in [change(u64::MAX, u64::MAX, 0, u64::MAX), change(5, 0, 5, 0)] {
            assert!(change.points().is_finite());
            let _ = (change.noise_points(), change.is_beyond_noise());
        }
    }
}
