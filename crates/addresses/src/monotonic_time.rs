//! Points in time on the clock of samples and events.

use std::time::Duration;

/// A point in time: nanoseconds of `CLOCK_MONOTONIC` (`clock_gettime(2)`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize), serde(transparent))]
pub struct MonotonicTime(pub u64);

impl MonotonicTime {
    /// Before all events.
    pub const ZERO: Self = Self(0);

    /// After all events.
    pub const MAX: Self = Self(u64::MAX);

    /// The time a duration later, at most [`MAX`](Self::MAX).
    #[must_use]
    pub fn saturating_add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanoseconds(duration)))
    }

    /// The time a duration earlier, at least [`ZERO`](Self::ZERO).
    #[must_use]
    pub fn saturating_sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(nanoseconds(duration)))
    }

    /// The duration since an earlier time; zero since a later one.
    #[must_use]
    pub fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.nanoseconds_since(earlier))
    }

    /// The nanoseconds since an earlier time; 0 since a later one.
    #[must_use]
    pub fn nanoseconds_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_do_not_wrap() {
        let time = MonotonicTime(1_000);
        assert_eq!(time.saturating_add(Duration::from_micros(1)), MonotonicTime(2_000));
        assert_eq!(time.saturating_add(Duration::MAX), MonotonicTime::MAX);
        assert_eq!(time.saturating_sub(Duration::from_nanos(1)), MonotonicTime(999));
        assert_eq!(time.saturating_sub(Duration::MAX), MonotonicTime::ZERO);
    }

    #[test]
    fn no_time_passes_since_a_later_time() {
        assert_eq!(MonotonicTime(7).saturating_since(MonotonicTime(5)), Duration::from_nanos(2));
        assert_eq!(MonotonicTime(5).nanoseconds_since(MonotonicTime(7)), 0);
    }
}
