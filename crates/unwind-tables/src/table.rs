//! The unwind table of one file: rows by page and the distinct rules, in the layout that the BPF program searches.

#[cfg(any(test, fuzzing, feature = "testing"))]
use profiler_common::unwind::PAGE_BITS;
use profiler_common::unwind::{Row, Rule};

use crate::packed_rows::take_pair;

/// The unwind table of one file.
#[derive(Debug, Default)]
pub struct UnwindTable {
    pub(crate) first_page: u32,
    /// The position of each page in `rows`.
    pub(crate) page_starts: Vec<u32>,
    /// For each row the distance to the row before it in the page, and its rule, as [`packed_rows`](crate::packed_rows).
    pub(crate) rows: Vec<u8>,
    pub(crate) row_count: usize,
    pub(crate) rules: Vec<Rule>,
    pub(crate) statistics: TableStatistics,
}

/// Counts of what a table was compiled from and of what was left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableStatistics {
    /// Functions and PLTs that have rows.
    pub functions: u32,
    /// Functions whose unwind information is malformed.
    pub malformed_functions: u32,
    /// Functions outside of the code segments.
    pub misplaced_functions: u32,
    /// Rows for which the BPF program has no rule.
    pub unsupported_rows: u32,
    /// Bytes of code without unwind information that have no rows, because there is more than can be analysed.
    pub bytes_not_analysed: u64,
}

impl UnwindTable {
    /// The number of the first page: the ELF address of its start, divided by the page size of unwind tables.
    pub fn first_page(&self) -> u32 {
        self.first_page
    }

    /// The rows of each page, sorted by offset. [`Row::rule`] is an index into [`rules`](Self::rules). The first row of a page
    /// is at offset 0. A page without rows has no unwind information.
    pub fn pages(&self) -> impl ExactSizeIterator<Item = Vec<Row>> {
        self.page_starts.iter().enumerate().map(|(page, start)| {
            let end = self.page_starts.get(page + 1).map_or(self.rows.len(), |end| *end as usize);
            let mut packed = self.rows.get(*start as usize..end).unwrap_or_default();
            let mut rows = Vec::with_capacity(packed.len() / 2);
            let mut offset = 0;
            while let Some((distance, rule)) = take_pair(&mut packed) {
                offset = u16::wrapping_add(offset, distance as u16);
                rows.push(Row::new(offset, rule as u16));
            }
            rows
        })
    }

    /// The number of rows of all pages.
    pub fn row_count(&self) -> usize {
        self.row_count
    }

    /// The distinct rules.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Counts of what the table was compiled from.
    pub fn statistics(&self) -> TableStatistics {
        self.statistics
    }

    /// Looks up the rule at an ELF address with the search of the BPF program. `pages` are those of this table.
    #[cfg(any(test, fuzzing, feature = "testing"))]
    pub fn find_rule(&self, pages: &[Vec<Row>], address: u64) -> Rule {
        let page = (address >> PAGE_BITS).checked_sub(self.first_page.into());
        let rows =
            page.and_then(|page| pages.get(usize::try_from(page).ok()?)).map_or(&[][..], Vec::as_slice);
        let offset = u32::try_from(address % (1 << PAGE_BITS)).unwrap_or_default();
        let above = rows.partition_point(|row| row.offset() <= offset);
        above.checked_sub(1).map_or(Rule::default(), |row| self.rules[rows[row].rule() as usize])
    }

    /// Asserts the invariants that the search of the BPF program depends on.
    #[cfg(any(test, fuzzing, feature = "testing"))]
    pub fn assert_valid(&self) {
        for rows in self.pages() {
            assert!(rows.first().is_none_or(|row| row.offset() == 0));
            assert!(rows.is_sorted_by(|row, next| row.offset() < next.offset()));
            assert!(rows.iter().all(|row| row.offset() < 1 << PAGE_BITS));
            assert!(rows.iter().all(|row| (row.rule() as usize) < self.rules.len()));
        }
        assert!(self.page_starts.len() <= profiler_common::unwind::MAX_PAGES as usize);
    }
}
