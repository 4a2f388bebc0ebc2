//! Counts the garbage collections of a runtime by their numbers, which are consecutive, where events were dropped.

use profiler_addresses::MonotonicTime;

use super::event_gaps::EventGap;

/// The numbers of the collections whose begins were received.
#[derive(Debug, Default)]
pub(super) struct CollectionNumbers {
    /// The lowest and the highest number.
    range: Option<(u64, u64)>,
    received: u64,
    /// The missing ones that were taken.
    taken: u64,
    first: MonotonicTime,
    last: MonotonicTime,
    /// The time in which events were dropped.
    gap: Option<(MonotonicTime, MonotonicTime)>,
}

/// The collections whose events were dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MissingCollections {
    /// The number of those since the last call.
    pub(super) count: u64,
    /// The time of the last known collection.
    pub(super) before: MonotonicTime,
    /// Whether there can be more, before the first known one or after the last.
    pub(super) can_be_more: bool,
}

impl CollectionNumbers {
    /// Adds the begin of a collection.
    pub(super) fn add(&mut self, number: u64, time: MonotonicTime) {
        let (lowest, highest) = self.range.unwrap_or((number, number));
        self.range = Some((lowest.min(number), highest.max(number)));
        if self.received == 0 {
            self.first = time;
        }
        self.received += 1;
        self.first = self.first.min(time);
        self.last = self.last.max(time);
    }

    /// Notes a time in which events were dropped.
    pub(super) fn add_gap(&mut self, gap: EventGap) {
        let (from, to) = self.gap.unwrap_or((MonotonicTime::MAX, MonotonicTime::ZERO));
        self.gap = Some((from.min(gap.from), to.max(gap.to)));
    }

    /// The collections that are missing since the last call; `None` where the runtime dropped nothing.
    pub(super) fn take_missing(&mut self) -> Option<MissingCollections> {
        let (from, to) = self.gap?;
        let numbers = self.range.map_or(0, |(lowest, highest)| (highest - lowest).saturating_add(1));
        let missing = numbers.saturating_sub(self.received);
        let count = missing.saturating_sub(self.taken);
        self.taken += count;
        let can_be_more = self.received == 0 || from < self.first || to > self.last;
        Some(MissingCollections { count, before: self.last, can_be_more })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GAP: EventGap = EventGap { thread: None, from: MonotonicTime(20), to: MonotonicTime(90) };

    #[test]
    fn numbers_that_are_missing_between_others_are_counted_once() {
        let mut numbers = CollectionNumbers::default();
        [(7, 20), (12, 100), (11, 95)]
            .into_iter()
            .for_each(|(number, time_ns)| numbers.add(number, MonotonicTime(time_ns)));
        assert_eq!(numbers.take_missing(), None, "the runtime dropped nothing");
        numbers.add_gap(GAP);
        let missing =
            |count| Some(MissingCollections { count, before: MonotonicTime(100), can_be_more: false });
        assert_eq!(numbers.take_missing(), missing(3));
        assert_eq!(numbers.take_missing(), missing(0));
    }

    #[test]
    fn a_gap_at_the_edge_hides_any_number() {
        let can_be_more = |times_ns: &[u64]| {
            let mut numbers = CollectionNumbers::default();
            (0..).zip(times_ns).for_each(|(number, time_ns)| numbers.add(number, MonotonicTime(*time_ns)));
            numbers.add_gap(GAP);
            numbers.take_missing().unwrap().can_be_more
        };
        assert!(can_be_more(&[]) && can_be_more(&[20, 80]) && can_be_more(&[30, 100]));
        assert!(!can_be_more(&[20, 90]));
    }
}
