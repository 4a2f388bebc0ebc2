//! Converts the times of a nettrace stream to the clock of samples.

use std::time::Duration;

use profiler_addresses::MonotonicTime;
use profiler_dotnet_symbols::eventpipe::nettrace::Clock;

/// The difference between a stream's clock and that of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimeBase {
    clock: Clock,
    begin: MonotonicTime,
}

impl TimeBase {
    /// `opened`: when the session was opened. .NET 3.1 begins the stream after its answer, later runtimes before it.
    ///
    /// The clock of the stream is `CLOCK_MONOTONIC` of the target, which has another offset in another time namespace
    /// (time_namespaces(7)). The stream is untrusted: a begin that is not close to `opened` is replaced by it.
    pub(super) fn new(clock: Clock, opened: MonotonicTime) -> Self {
        const MAX_DIFFERENCE: Duration = Duration::from_secs(10);
        let begin = MonotonicTime(nanoseconds(clock.begin_ticks, clock.ticks_per_second));
        let difference = begin.saturating_since(opened).max(opened.saturating_since(begin));
        Self { clock, begin: if difference < MAX_DIFFERENCE { begin } else { opened } }
    }

    /// Converts the time of an event.
    pub(super) fn to_monotonic_time(self, ticks: u64) -> MonotonicTime {
        let since_begin = ticks.saturating_sub(self.clock.begin_ticks);
        let since_begin_ns = nanoseconds(since_begin, self.clock.ticks_per_second);
        self.begin.saturating_add(Duration::from_nanos(since_begin_ns))
    }
}

fn nanoseconds(ticks: u64, ticks_per_second: u64) -> u64 {
    const NS_PER_S: u128 = 1_000_000_000;
    u64::try_from(u128::from(ticks) * NS_PER_S / u128::from(ticks_per_second.max(1))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_that_begins_shortly_before_or_after_the_opening_has_the_same_clock() {
        let clock = Clock { begin_ticks: 100, ticks_per_second: 1_000 };
        for opened in [100_000_050, 95_000_000].map(MonotonicTime) {
            let base = TimeBase::new(clock, opened);
            assert_eq!(base.to_monotonic_time(101), MonotonicTime(101_000_000), "{opened:?}");
        }
    }

    #[test]
    fn a_clock_with_another_offset_is_converted() {
        let clock = Clock { begin_ticks: 100, ticks_per_second: 1_000 };
        let now = MonotonicTime(70_000_000_000_000);
        let base = TimeBase::new(clock, now);
        assert_eq!(base.to_monotonic_time(101), now.saturating_add(Duration::from_millis(1)));
        assert_eq!(base.to_monotonic_time(0), now);
        let broken = Clock { begin_ticks: u64::MAX, ticks_per_second: 0 };
        assert_eq!(TimeBase::new(broken, now).to_monotonic_time(u64::MAX), now);
    }
}
