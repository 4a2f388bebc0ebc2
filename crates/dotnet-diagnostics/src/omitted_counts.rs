//! Counts the events that are not kept, by their kinds and the parts of a second in which they ended.

use std::collections::BTreeMap;

use profiler_addresses::MonotonicTime;
use profiler_profile::RuntimeEventKind;

/// The length of a part.
const PART_NS: u64 = 50_000_000;

/// Parts of all kinds that are counted one by one until they are taken: those of 13 minutes of one kind. Later ones are added to
/// the last.
const MAX_PARTS: usize = 1 << 14;

/// The events of one kind that a profile counts and does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OmittedCount {
    /// The start of the twentieth of a second in which they ended.
    pub time: MonotonicTime,
    /// Their kind.
    pub kind: RuntimeEventKind,
    /// Their number.
    pub count: u64,
    /// The sum of the durations that are known.
    pub duration_ns: u64,
    /// The longest duration that is known.
    pub longest_ns: u64,
    /// Whether there were more: the runtime dropped events that can be of this kind.
    pub is_lower_bound: bool,
}

/// The counts that were not taken yet, by the numbers of their parts.
#[derive(Debug, Default)]
pub(super) struct OmittedCounts(BTreeMap<(u64, RuntimeEventKind), OmittedCount>);

impl OmittedCounts {
    /// Adds an event that has ended at a time, and its duration; 0 where it is not known.
    pub(super) fn add(&mut self, kind: RuntimeEventKind, end: MonotonicTime, duration_ns: u64) {
        let part = self.part(kind, end);
        part.count += 1;
        part.duration_ns = part.duration_ns.saturating_add(duration_ns);
        part.longest_ns = part.longest_ns.max(duration_ns);
    }

    /// Adds a number of events that are not known otherwise.
    pub(super) fn add_number(&mut self, kind: RuntimeEventKind, end: MonotonicTime, count: u64) {
        let part = self.part(kind, end);
        part.count = part.count.saturating_add(count);
    }

    /// Notes that there were more events than are counted.
    pub(super) fn add_unknown(&mut self, kind: RuntimeEventKind, end: MonotonicTime) {
        self.part(kind, end).is_lower_bound = true;
    }

    /// Removes the counts of the parts that begin up to a time, and returns them.
    pub(super) fn take_up_to(&mut self, end: MonotonicTime) -> Vec<OmittedCount> {
        let (taken, later) =
            std::mem::take(&mut self.0).into_iter().partition(|(_, count)| count.time <= end);
        self.0 = later;
        let taken: BTreeMap<_, _> = taken;
        taken.into_values().collect()
    }

    fn part(&mut self, kind: RuntimeEventKind, end: MonotonicTime) -> &mut OmittedCount {
        let number = end.0 / PART_NS;
        let key = if self.0.len() < MAX_PARTS || self.0.contains_key(&(number, kind)) {
            (number, kind)
        } else {
            let of_kind = self.0.keys().rev().find(|(_, known)| *known == kind);
            of_kind.copied().unwrap_or((number, kind))
        };
        let time = MonotonicTime(key.0 * PART_NS);
        let (count, duration_ns, longest_ns, is_lower_bound) = (0, 0, 0, false);
        self.0.entry(key).or_insert(OmittedCount {
            time,
            kind,
            count,
            duration_ns,
            longest_ns,
            is_lower_bound,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: RuntimeEventKind = RuntimeEventKind::Suspension;

    #[test]
    fn counts_of_a_part_are_added_up() {
        let mut counts = OmittedCounts::default();
        counts.add(KIND, MonotonicTime(120_000_000), 30);
        counts.add(KIND, MonotonicTime(149_999_999), 20);
        counts.add_number(KIND, MonotonicTime(220_000_000), 7);
        counts.add_unknown(KIND, MonotonicTime(220_000_001));
        let count = |time, count, duration_ns, longest_ns, is_lower_bound| OmittedCount {
            time,
            kind: KIND,
            count,
            duration_ns,
            longest_ns,
            is_lower_bound,
        };
        assert_eq!(
            counts.take_up_to(MonotonicTime(199_999_999)),
            [count(MonotonicTime(100_000_000), 2, 50, 30, false)]
        );
        assert_eq!(counts.take_up_to(MonotonicTime::MAX), [count(MonotonicTime(200_000_000), 7, 0, 0, true)]);
        assert_eq!(counts.take_up_to(MonotonicTime::MAX), []);
    }

    #[test]
    fn endless_parts_are_bounded_and_no_event_is_lost() {
        let mut counts = OmittedCounts::default();
        let count = 3 * MAX_PARTS as u64;
        for number in 0..count {
            counts.add(KIND, MonotonicTime(number * PART_NS), 0);
        }
        counts.add(RuntimeEventKind::Contention, MonotonicTime::MAX, 0);
        let taken = counts.take_up_to(MonotonicTime::MAX);
        assert!(taken.len() <= MAX_PARTS + RuntimeEventKind::ALL.len());
        assert_eq!(taken.iter().map(|part| part.count).sum::<u64>(), count + 1);
    }
}
