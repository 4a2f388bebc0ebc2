//! CPU quota of the unwinding thread: targets that map, fork and execute in a loop cost the profiler no more than this.

use std::time::Duration;

/// The share of one CPU that the thread uses in the long run: one part of so many.
const SHARE_DIVISOR: u32 = 10;

/// The most CPU time that accumulates while the thread is idle: enough for the unwind tables of a whole machine.
const MAX_BURST: Duration = Duration::from_secs(3);

/// The longest pause. Stacks of processes without unwind tables are unwound by frame pointer meanwhile.
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// A token bucket of CPU time.
#[derive(Debug)]
pub(super) struct CpuQuota {
    available: Duration,
    /// Time up to which the bucket was refilled.
    refilled_until: Duration,
}

impl CpuQuota {
    /// A full bucket. `now` is the time of any monotonic clock.
    pub(super) fn new(now: Duration) -> Self {
        Self { available: MAX_BURST, refilled_until: now }
    }

    /// Spends CPU time; returns how long to pause until some is available again.
    pub(super) fn spend(&mut self, spent: Duration, now: Duration) -> Duration {
        let refill = now.saturating_sub(self.refilled_until) / SHARE_DIVISOR;
        self.available = (self.available + refill).min(MAX_BURST);
        let missing = spent.saturating_sub(self.available);
        self.available = self.available.saturating_sub(spent);
        let pause = missing.saturating_mul(SHARE_DIVISOR).min(MAX_PAUSE);
        self.refilled_until = now + pause;
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_burst_is_not_paused_and_work_beyond_it_is() {
        let mut quota = CpuQuota::new(Duration::ZERO);
        assert_eq!(quota.spend(MAX_BURST, Duration::ZERO), Duration::ZERO);
        assert_eq!(quota.spend(10 * MS, Duration::ZERO), 100 * MS);
    }

    #[test]
    fn endless_work_uses_its_share_and_no_more() {
        let mut quota = CpuQuota::new(Duration::ZERO);
        let (mut now, mut spent) = (Duration::ZERO, Duration::ZERO);
        while now < Duration::from_secs(1_000) {
            now += 7 * MS;
            spent += 7 * MS;
            now += quota.spend(7 * MS, now);
        }
        assert!(spent <= MAX_BURST + now / SHARE_DIVISOR + 7 * MS, "{spent:?} of {now:?}");
        assert!(spent >= now / SHARE_DIVISOR);
    }

    #[test]
    fn work_below_the_share_is_never_paused() {
        let mut quota = CpuQuota::new(Duration::ZERO);
        quota.spend(MAX_BURST, Duration::ZERO);
        assert!((1..1_000).all(|round| quota.spend(10 * MS, round * 100 * MS).is_zero()));
    }

    #[test]
    fn a_pause_is_bounded() {
        let mut quota = CpuQuota::new(Duration::ZERO);
        assert_eq!(quota.spend(Duration::MAX, Duration::ZERO), MAX_PAUSE);
    }
}
