//! Range allocator: which index ranges of an array are free.

use std::{collections::BTreeMap, ops::Range};

/// The free ranges, which are never adjacent.
#[derive(Debug)]
pub(super) struct FreeRanges {
    /// Start -> end.
    free: BTreeMap<u32, u32>,
}

impl FreeRanges {
    /// An allocator in which all of `0..length` is free.
    pub(super) fn new(length: u32) -> Self {
        Self { free: BTreeMap::from([(0, length)]) }
    }

    /// Allocates a range of this length, `None` when no free range is long enough.
    pub(super) fn allocate(&mut self, length: u32) -> Option<Range<u32>> {
        self.allocate_between(length, length)
    }

    /// Allocates a range of at least `min` and at most `max` indices: the first free range that is long enough.
    pub(super) fn allocate_between(&mut self, min: u32, max: u32) -> Option<Range<u32>> {
        if min == 0 {
            return Some(0..0);
        }
        let (start, end) = self
            .free
            .iter()
            .find(|(start, end)| **end - **start >= min)
            .map(|(start, end)| (*start, *end))?;
        self.free.remove(&start);
        let allocated = start..end.min(start.saturating_add(max));
        if allocated.end < end {
            self.free.insert(allocated.end, end);
        }
        Some(allocated)
    }

    /// Frees an allocated range.
    pub(super) fn free(&mut self, range: Range<u32>) {
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
    fn ranges_freed_in_any_order_merge() {
        let mut ranges = FreeRanges::new(100);
        let allocated: Vec<_> = [30, 10, 60].map(|length| ranges.allocate(length).unwrap()).into();
        assert_eq!(allocated, [0..30, 30..40, 40..100]);
        assert_eq!(ranges.allocate(1), None);
        for index in [0, 2, 1] {
            ranges.free(allocated[index].clone());
        }
        assert_eq!(ranges.allocate(100), Some(0..100));
    }

    #[test]
    fn the_first_range_that_is_long_enough_is_allocated() {
        let mut ranges = FreeRanges::new(100);
        let first = ranges.allocate(20).unwrap();
        let _second = ranges.allocate(20).unwrap();
        ranges.free(first);
        assert_eq!(ranges.allocate(30), Some(40..70));
        assert_eq!(ranges.allocate_between(5, 1_000), Some(0..20));
    }

    #[test]
    fn an_empty_array_has_no_ranges() {
        assert_eq!(FreeRanges::new(0).allocate(1), None);
        assert_eq!(FreeRanges::new(10).allocate(0), Some(0..0));
    }
}
