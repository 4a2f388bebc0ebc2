//! How much of a CPU the unwinding thread takes: targets that map, fork and execute without end cost no more.

use std::time::Duration;

/// The share of one CPU that it takes in the long run: one part of so many.
const SHARE: u32 = 10;

/// What it may take at once: the tables of a whole machine.
const MOST: Duration = Duration::from_secs(3);

/// The longest rest: what happens meanwhile is unwound by frame pointer.
const LONGEST_REST: Duration = Duration::from_secs(5);

/// CPU time that is saved up while there is nothing to do, and spent when there is.
#[derive(Debug)]
pub(super) struct Allowance {
    saved: Duration,
    /// Up to here it was earned.
    earned_until: Duration,
}

impl Allowance {
    /// All there can be, at a time of any clock.
    pub(super) fn new(now: Duration) -> Self {
        Self { saved: MOST, earned_until: now }
    }

    /// Spends CPU time. Tells how long to rest until there is some again.
    pub(super) fn spend(&mut self, spent: Duration, now: Duration) -> Duration {
        let earned = now.saturating_sub(self.earned_until) / SHARE;
        self.saved = (self.saved + earned).min(MOST);
        let missing = spent.saturating_sub(self.saved);
        self.saved = self.saved.saturating_sub(spent);
        let rest = missing.saturating_mul(SHARE).min(LONGEST_REST);
        self.earned_until = now + rest;
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_burst_is_free_and_what_goes_on_rests() {
        let mut allowance = Allowance::new(Duration::ZERO);
        assert_eq!(allowance.spend(MOST, Duration::ZERO), Duration::ZERO);
        assert_eq!(allowance.spend(10 * MS, Duration::ZERO), 100 * MS);
    }

    #[test]
    fn work_without_end_takes_its_share_and_no_more() {
        let mut allowance = Allowance::new(Duration::ZERO);
        let (mut now, mut spent) = (Duration::ZERO, Duration::ZERO);
        while now < Duration::from_secs(1_000) {
            now += 7 * MS;
            spent += 7 * MS;
            now += allowance.spend(7 * MS, now);
        }
        assert!(spent <= MOST + now / SHARE + 7 * MS, "{spent:?} of {now:?}");
        assert!(spent >= now / SHARE);
    }

    #[test]
    fn who_takes_less_than_the_share_never_rests() {
        let mut allowance = Allowance::new(Duration::ZERO);
        allowance.spend(MOST, Duration::ZERO);
        assert!((1..1_000).all(|round| allowance.spend(10 * MS, round * 100 * MS).is_zero()));
    }

    #[test]
    fn no_rest_is_longer_than_the_longest() {
        let mut allowance = Allowance::new(Duration::ZERO);
        assert_eq!(allowance.spend(Duration::MAX, Duration::ZERO), LONGEST_REST);
    }
}
