//! The back-off between the attempts of an operation that fails: it doubles with each failure.

use std::time::{Duration, Instant};

/// Bounds of the interval between two attempts.
const MIN_RETRY_INTERVAL: Duration = Duration::from_millis(20);
pub(super) const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// The time of the last failure, and the interval after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BackOff {
    failed: Instant,
    interval: Duration,
}

impl BackOff {
    /// The back-off after a failure. `previous` is the back-off after the previous failure.
    pub(super) fn after_failure(previous: Option<Self>, now: Instant) -> Self {
        let interval = previous.map_or(MIN_RETRY_INTERVAL, |previous| previous.interval * 2);
        Self { failed: now, interval: interval.min(MAX_RETRY_INTERVAL) }
    }

    /// The time of the next attempt.
    pub(super) fn retry_at(self) -> Instant {
        self.failed + self.interval
    }

    /// Whether the time of the next attempt has come.
    pub(super) fn has_passed(self, now: Instant) -> bool {
        self.retry_at() <= now
    }

    #[cfg(test)]
    pub(super) fn interval(self) -> Duration {
        self.interval
    }

    /// The same with an earlier failure.
    #[cfg(test)]
    pub(super) fn earlier_by(self, time: Duration) -> Self {
        Self { failed: self.failed.checked_sub(time).unwrap(), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_doubles_up_to_its_bound() {
        let now = Instant::now();
        let mut back_off = BackOff::after_failure(None, now);
        let mut expected = MIN_RETRY_INTERVAL;
        for _ in 0..20 {
            assert_eq!(back_off.retry_at(), now + expected);
            assert!(!back_off.has_passed(now) && back_off.has_passed(now + expected));
            back_off = BackOff::after_failure(Some(back_off), now);
            expected = (2 * expected).min(MAX_RETRY_INTERVAL);
        }
        assert_eq!(expected, MAX_RETRY_INTERVAL);
    }
}
