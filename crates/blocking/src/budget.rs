//! The time that all callers together wait for slow operations: many slow objects must not stop the profiler.

use std::time::{Duration, Instant};

/// The longest wait for one operation.
const MAX_WAIT: Duration = Duration::from_millis(700);

/// The wait for one operation when the budget is spent. Operations that nothing blocks take less.
const MIN_WAIT: Duration = Duration::from_millis(100);

/// The most time that accumulates: a cold disk is read within it.
const MAX_BURST: Duration = Duration::from_secs(4);

/// The part of the elapsed time that is added to the budget: one part of so many.
const REFILL_DIVISOR: u32 = 10;

/// A token bucket of waiting time.
#[derive(Debug)]
pub(crate) struct WaitBudget {
    available: Duration,
    refilled: Instant,
}

impl WaitBudget {
    pub(crate) fn new(now: Instant) -> Self {
        Self { available: MAX_BURST, refilled: now }
    }

    /// The time to wait for the next operation.
    pub(crate) fn limit(&mut self, now: Instant) -> Duration {
        let refill = now.saturating_duration_since(self.refilled) / REFILL_DIVISOR;
        self.available = (self.available + refill).min(MAX_BURST);
        self.refilled = now;
        self.available.clamp(MIN_WAIT, MAX_WAIT)
    }

    pub(crate) fn spend(&mut self, waited: Duration) {
        self.available = self.available.saturating_sub(waited);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_become_short_when_many_are_long_and_recover() {
        let begin = Instant::now();
        let mut budget = WaitBudget::new(begin);
        while budget.available > MAX_WAIT {
            assert_eq!(budget.limit(begin), MAX_WAIT);
            budget.spend(MAX_WAIT);
        }
        budget.spend(MAX_WAIT);
        assert_eq!(budget.limit(begin), MIN_WAIT);
        assert_eq!(budget.limit(begin + Duration::from_secs(5)), Duration::from_millis(500));
        assert_eq!(budget.limit(begin + Duration::from_secs(500)), MAX_WAIT);
    }
}
