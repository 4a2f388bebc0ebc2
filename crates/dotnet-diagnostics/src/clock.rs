//! Reads `CLOCK_MONOTONIC`, and converts the times of a nettrace stream to it.

use profiler_dotnet_symbols::eventpipe::nettrace::Clock;

/// The difference between a stream's clock and `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimeBase {
    clock: Clock,
    begin_ns: u64,
}

impl TimeBase {
    /// `opened_ns`: when the session was opened. .NET 3.1 begins the stream after its answer, later runtimes before it.
    ///
    /// The clock of the stream is `CLOCK_MONOTONIC` of the target, which has another offset in another time namespace
    /// (time_namespaces(7)). The stream is untrusted: a begin that is not close to `opened_ns` is replaced by it.
    pub(super) fn new(clock: Clock, opened_ns: u64) -> Self {
        const MAX_DIFFERENCE_NS: u64 = 10_000_000_000;
        let begin_ns = nanoseconds(clock.begin_ticks, clock.ticks_per_second);
        let has_same_offset = begin_ns.abs_diff(opened_ns) < MAX_DIFFERENCE_NS;
        Self { clock, begin_ns: if has_same_offset { begin_ns } else { opened_ns } }
    }

    /// Converts the time of an event.
    pub(super) fn to_monotonic_ns(self, ticks: u64) -> u64 {
        let since_begin = ticks.saturating_sub(self.clock.begin_ticks);
        self.begin_ns.saturating_add(nanoseconds(since_begin, self.clock.ticks_per_second))
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
        for opened_ns in [100_000_050, 95_000_000] {
            assert_eq!(TimeBase::new(clock, opened_ns).to_monotonic_ns(101), 101_000_000, "{opened_ns}");
        }
    }

    #[test]
    fn a_clock_with_another_offset_is_converted() {
        let clock = Clock { begin_ticks: 100, ticks_per_second: 1_000 };
        let now_ns = 70_000_000_000_000;
        assert_eq!(TimeBase::new(clock, now_ns).to_monotonic_ns(101), now_ns + 1_000_000);
        assert_eq!(TimeBase::new(clock, now_ns).to_monotonic_ns(0), now_ns);
        let broken = Clock { begin_ticks: u64::MAX, ticks_per_second: 0 };
        assert_eq!(TimeBase::new(broken, now_ns).to_monotonic_ns(u64::MAX), now_ns);
    }
}
