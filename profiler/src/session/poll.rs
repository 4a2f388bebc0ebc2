//! Repeats a poll at an interval, and less often where it takes long.

use std::time::Duration;

/// When a poll is due.
#[derive(Clone, Copy, Debug)]
pub(super) struct Poll {
    interval_ns: u64,
    /// The pause after a poll, in multiples of the time that it took.
    pause_per_poll: u64,
    next_ns: u64,
}

impl Poll {
    /// A poll that is due now.
    pub(super) const fn new(interval_ns: u64, pause_per_poll: u64) -> Self {
        Self { interval_ns, pause_per_poll, next_ns: 0 }
    }

    /// Whether it is due at a time, nanoseconds.
    pub(super) fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.next_ns
    }

    /// Ends a poll that was due at `now_ns` and took so long.
    pub(super) fn end(&mut self, now_ns: u64, took: Duration) {
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let pause_ns = took_ns.saturating_mul(self.pause_per_poll).max(self.interval_ns);
        self.next_ns = now_ns.saturating_add(pause_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_poll_that_takes_long_is_repeated_less_often() {
        let mut poll = Poll::new(1_000, 99);
        assert!(poll.is_due(0));
        for (took_ns, next_ns) in [(1, 5 + 1_000), (10, 5 + 1_000), (20, 5 + 1_980)] {
            poll.end(5, Duration::from_nanos(took_ns));
            assert!(!poll.is_due(next_ns - 1) && poll.is_due(next_ns), "{took_ns} ns");
        }
    }
}
