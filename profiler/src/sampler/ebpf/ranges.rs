//! What is free in an array: ranges of indices, taken and given back.

use std::{collections::BTreeMap, ops::Range};

/// The free ranges, none of which touches another.
#[derive(Debug)]
pub(super) struct FreeRanges {
    /// Start -> end.
    free: BTreeMap<u32, u32>,
}

impl FreeRanges {
    /// All of `0..length` is free.
    pub(super) fn new(length: u32) -> Self {
        Self { free: BTreeMap::from([(0, length)]) }
    }

    /// Takes a range of this length, `None` when no free one is as long.
    pub(super) fn take(&mut self, length: u32) -> Option<Range<u32>> {
        self.take_between(length, length)
    }

    /// Takes a range of at least `least` and at most `most`: the first that is long enough.
    pub(super) fn take_between(&mut self, least: u32, most: u32) -> Option<Range<u32>> {
        if least == 0 {
            return Some(0..0);
        }
        let (start, end) = self
            .free
            .iter()
            .find(|(start, end)| **end - **start >= least)
            .map(|(start, end)| (*start, *end))?;
        self.free.remove(&start);
        let taken = start..end.min(start.saturating_add(most));
        if taken.end < end {
            self.free.insert(taken.end, end);
        }
        Some(taken)
    }

    /// Gives a range back that was taken.
    pub(super) fn give_back(&mut self, range: Range<u32>) {
        let Range { mut start, mut end } = range;
        if start >= end {
            return;
        }
        if let Some(after) = self.free.remove(&end) {
            end = after;
        }
        if let Some((before, _)) = self.free.range(..start).next_back().filter(|(_, end)| **end == start) {
            start = *before;
        }
        self.free.insert(start, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_back_in_any_order_is_one_range_again() {
        let mut ranges = FreeRanges::new(100);
        let taken: Vec<_> = [30, 10, 60].map(|length| ranges.take(length).unwrap()).into();
        assert_eq!(taken, [0..30, 30..40, 40..100]);
        assert_eq!(ranges.take(1), None);
        for index in [0, 2, 1] {
            ranges.give_back(taken[index].clone());
        }
        assert_eq!(ranges.take(100), Some(0..100));
    }

    #[test]
    fn the_first_range_that_is_long_enough_is_taken() {
        let mut ranges = FreeRanges::new(100);
        let first = ranges.take(20).unwrap();
        let _second = ranges.take(20).unwrap();
        ranges.give_back(first);
        assert_eq!(ranges.take(30), Some(40..70));
        assert_eq!(ranges.take_between(5, 1_000), Some(0..20));
    }

    #[test]
    fn nothing_is_taken_of_nothing() {
        assert_eq!(FreeRanges::new(0).take(1), None);
        assert_eq!(FreeRanges::new(10).take(0), Some(0..0));
    }
}
