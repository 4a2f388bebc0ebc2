//! Exponential back-off with jitter.

use std::time::Duration;

/// The longest wait that a backend can ask for. A wrong date in `Retry-After` must not stop the delivery.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(600);

/// Delays between attempts: doubled at each failure, and spread at random so that the agents of many nodes do not return at
/// the same time.
#[derive(Debug)]
pub(super) struct Backoff {
    initial: Duration,
    limit: Duration,
    failures: u32,
    random: fastrand::Rng,
}

impl Backoff {
    pub(super) fn new(initial: Duration, limit: Duration) -> Self {
        Self { initial, limit, failures: 0, random: fastrand::Rng::new() }
    }

    /// The delay after another failure: at least the time that the backend asks for.
    pub(super) fn next_delay(&mut self, retry_after: Option<Duration>) -> Duration {
        let factor = 2_u32.saturating_pow(self.failures);
        let base = self.initial.saturating_mul(factor).min(self.limit);
        self.failures = self.failures.saturating_add(1);
        match retry_after {
            Some(after) => after.min(MAX_RETRY_AFTER) + base.mul_f64(self.random.f64()),
            None => base.mul_f64(0.5 + self.random.f64()),
        }
    }

    /// Begins with the initial delay again.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn delays_double_up_to_the_limit_and_are_spread() {
        let mut backoff = Backoff::new(SECOND, 60 * SECOND);
        for expected in [1, 2, 4, 8, 16, 32, 60, 60] {
            let (delay, base) = (backoff.next_delay(None), expected * SECOND);
            assert!(base / 2 <= delay && delay < base * 3 / 2, "{delay:?} of {base:?}");
        }
        backoff.reset();
        assert!(backoff.next_delay(None) < 2 * SECOND);
        let distinct: std::collections::HashSet<_> =
            (0..100).map(|_| Backoff::new(SECOND, SECOND).next_delay(None)).collect();
        assert!(distinct.len() > 90, "{}", distinct.len());
    }

    #[test]
    fn the_delay_is_never_shorter_than_the_backend_asks_for() {
        let mut backoff = Backoff::new(SECOND, SECOND);
        for _ in 0..100 {
            let delay = backoff.next_delay(Some(30 * SECOND));
            assert!(30 * SECOND <= delay && delay <= 31 * SECOND, "{delay:?}");
        }
        assert!(backoff.next_delay(Some(Duration::MAX)) <= MAX_RETRY_AFTER + SECOND);
    }

    #[test]
    fn a_long_outage_does_not_overflow() {
        let mut backoff = Backoff { failures: u32::MAX - 1, ..Backoff::new(SECOND, 60 * SECOND) };
        for _ in 0..3 {
            assert!(backoff.next_delay(None) <= 90 * SECOND);
        }
    }
}
