//! Repeats a poll at an interval, and less often where it takes long.

use std::time::Duration;

use profiler_addresses::MonotonicTime;

/// When a poll is due.
#[derive(Clone, Copy, Debug)]
pub(super) struct Poll {
    interval: Duration,
    /// The pause after a poll, in multiples of the time that it took.
    pause_per_poll: u32,
    next: MonotonicTime,
}

impl Poll {
    /// A poll that is due now.
    pub(super) const fn new(interval: Duration, pause_per_poll: u32) -> Self {
        Self { interval, pause_per_poll, next: MonotonicTime::ZERO }
    }

    /// Whether it is due at a time.
    pub(super) fn is_due(&self, now: MonotonicTime) -> bool {
        now >= self.next
    }

    /// Ends a poll that was due at `now` and took so long.
    pub(super) fn end(&mut self, now: MonotonicTime, took: Duration) {
        let pause = took.saturating_mul(self.pause_per_poll).max(self.interval);
        self.next = now.saturating_add(pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_poll_that_takes_long_is_repeated_less_often() {
        let mut poll = Poll::new(Duration::from_micros(1), 99);
        assert!(poll.is_due(MonotonicTime(0)));
        for (took_ns, next_ns) in [(1, 5 + 1_000), (10, 5 + 1_000), (20, 5 + 1_980)] {
            poll.end(MonotonicTime(5), Duration::from_nanos(took_ns));
            let is_due = |time_ns| poll.is_due(MonotonicTime(time_ns));
            assert!(!is_due(next_ns - 1) && is_due(next_ns), "{took_ns} ns");
        }
    }
}
