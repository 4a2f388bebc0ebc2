//! The code that functions cover, and the gaps between them.

use std::ops::Range;

/// Disjoint ranges of addresses, sorted.
pub(crate) struct Coverage(Vec<Range<u64>>);

impl Coverage {
    /// The union of ranges that are sorted by their start.
    pub(crate) fn of(ranges: impl Iterator<Item = Range<u64>>) -> Self {
        let mut union: Vec<Range<u64>> = Vec::new();
        for range in ranges {
            match union.last_mut().filter(|last| range.start <= last.end) {
                Some(last) => last.end = last.end.max(range.end),
                None => union.push(range),
            }
        }
        Self(union)
    }

    /// The parts of a range that are not covered.
    pub(crate) fn gaps(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let first = self.0.partition_point(|covered| covered.end <= range.start);
        let covered = self.0.get(first..).unwrap_or_default();
        let covered = covered.iter().take_while(move |covered| covered.start < range.end);
        let starts = covered.clone().map(|covered| covered.end);
        let ends = covered.map(|covered| covered.start).chain([range.end]);
        std::iter::once(range.start)
            .chain(starts)
            .zip(ends)
            .map(|(start, end)| start..end)
            .filter(|gap| !gap.is_empty())
    }
}

/// The addresses of ranges, each in one range: a hostile file can have sections and segments that overlap.
pub(crate) fn disjoint(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut end = 0;
    ranges.retain_mut(|range| {
        range.start = range.start.max(end);
        end = end.max(range.end);
        !range.is_empty()
    });
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_what_no_range_covers() {
        let coverage = Coverage::of([10..20, 12..14, 20..22, 30..40].into_iter());
        let gaps = |range| coverage.gaps(range).map(|gap| (gap.start, gap.end)).collect::<Vec<_>>();
        assert_eq!(gaps(0..50), [(0, 10), (22, 30), (40, 50)]);
        assert_eq!(gaps(10..40), [(22, 30)]);
        assert_eq!(gaps(15..25), [(22, 25)]);
        assert_eq!(gaps(24..26), [(24, 26)]);
        assert_eq!(gaps(5..12), [(5, 10)]);
        assert_eq!(gaps(39..42), [(40, 42)]);
        assert!(gaps(12..21).is_empty());
    }

    #[test]
    fn each_address_of_overlapping_ranges_is_in_one_of_them() {
        let ranges = disjoint(vec![30..40, 10..20, 12..14, 15..25, 25..30]);
        assert_eq!(ranges, [10..20, 20..25, 25..30, 30..40]);
        assert_eq!(disjoint(vec![0..8, 0..8]), vec![0..8]);
    }
}
