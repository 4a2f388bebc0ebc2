//! When windows end, and which of them are sampled.

use std::time::{Duration, Instant};

/// The shortest first window, as a share of the others.
const LEAST_FIRST_SHARE: f64 = 0.05;

/// The ends of windows, and a random choice among them.
#[derive(Debug)]
pub(super) struct WindowPlan {
    window: Duration,
    probability: f64,
    /// A random number from 0 up to 1.
    random: fn() -> f64,
    end: Instant,
}

impl WindowPlan {
    /// The first window ends at a random time, so that the agents of many nodes that start together do not send together.
    pub(super) fn new(window: Duration, probability: f64, random: fn() -> f64, now: Instant) -> Self {
        let share = LEAST_FIRST_SHARE + (1.0 - LEAST_FIRST_SHARE) * random();
        Self { window, probability, random, end: now + window.mul_f64(share) }
    }

    /// The end of the current window.
    pub(super) fn end(&self) -> Instant {
        self.end
    }

    /// Begins the next window. Its end does not depend on the time that the work after a window takes, unless that takes longer
    /// than a window. The rest of a window that ended early is a window.
    pub(super) fn begin_next(&mut self, now: Instant) {
        if self.end <= now {
            let next = self.end + self.window;
            self.end = if next > now { next } else { now + self.window };
        }
    }

    /// Draws whether a window is sampled, and with which weight: the inverse of the probability on average. `None` for a
    /// window that is not sampled.
    pub(super) fn draw_weight(&self) -> Option<u64> {
        if self.probability >= 1.0 {
            return Some(1);
        }
        let weight = 1.0 / self.probability;
        let is_sampled = (self.random)() < self.probability;
        // Weights are whole numbers, so that counts remain exact.
        let is_rounded_up = (self.random)() < weight.fract();
        is_sampled.then_some(weight as u64 + u64::from(is_rounded_up))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn the_first_windows_of_many_agents_end_at_different_times() {
        let now = Instant::now();
        let ends: Vec<_> =
            (0..1_000).map(|_| WindowPlan::new(MINUTE, 1.0, fastrand::f64, now).end() - now).collect();
        assert!(ends.iter().all(|end| (MINUTE / 20..MINUTE).contains(end)));
        for tenth in 1..10 {
            let (from, to) = (MINUTE / 10 * tenth, MINUTE / 10 * (tenth + 1));
            let count = ends.iter().filter(|end| (from..to).contains(end)).count();
            assert!((50..170).contains(&count), "{count} of 1000 in tenth {tenth}");
        }
    }

    #[test]
    fn windows_follow_each_other_without_drift() {
        let start = Instant::now();
        let mut plan = WindowPlan::new(MINUTE, 1.0, || 0.5, start);
        let first = plan.end();
        plan.begin_next(first + Duration::from_secs(2));
        assert_eq!(plan.end(), first + MINUTE);
        let late = first + 3 * MINUTE;
        plan.begin_next(late);
        assert_eq!(plan.end(), late + MINUTE);
        let early = late + MINUTE / 2;
        plan.begin_next(early);
        assert_eq!(plan.end(), late + MINUTE);
    }

    #[test]
    fn the_weights_of_sampled_windows_add_up_to_the_number_of_windows() {
        for probability in [1.0, 0.5, 0.3, 0.01] {
            const WINDOWS: u32 = 200_000;
            let plan = WindowPlan::new(MINUTE, probability, fastrand::f64, Instant::now());
            let weights: Vec<_> = (0..WINDOWS).filter_map(|_| plan.draw_weight()).collect();
            let sampled = weights.len() as f64 / f64::from(WINDOWS);
            assert!((sampled / probability - 1.0).abs() < 0.15, "{sampled} of {probability}");
            let mean = weights.iter().sum::<u64>() as f64 / f64::from(WINDOWS);
            assert!((mean - 1.0).abs() < 0.15, "mean weight {mean} with probability {probability}");
        }
    }
}
