//! Writes the rows of an unwind table in ascending order of address.

use profiler_binary_reader::ParseError;
use profiler_common::unwind::{MAX_PAGES, PAGE_BITS, Rule};

use crate::{
    packed_rows::push_pair,
    rule_set::{RuleSet, UNKNOWN},
    table::{TableStatistics, UnwindTable},
};

/// The rows of one file: 32 MiB in the kernel, for about 400 MiB of code.
const MAX_ROWS: usize = 8 << 20;

/// Writes one table.
pub(crate) struct RowWriter {
    table: UnwindTable,
    rules: RuleSet,
    /// The index of the rule of the last row.
    current: u16,
    /// The offset of the last row in its page.
    last_offset: u16,
}

impl RowWriter {
    /// A writer of a table that starts at `first_page`, with rules that already have an index.
    pub(crate) fn new(first_page: u32, rules: RuleSet) -> Self {
        let table = UnwindTable { first_page, ..UnwindTable::default() };
        Self { table, rules, current: UNKNOWN, last_offset: 0 }
    }

    /// Allocates memory for rows, packed bytes.
    pub(crate) fn reserve(&mut self, bytes: usize) {
        self.table.rows.reserve(bytes);
    }

    /// Starts a row at `address`, which must not be lower than that of the last row.
    ///
    /// # Errors
    /// [`ParseError::TooLarge`] at the limits of a file.
    pub(crate) fn write(&mut self, address: u64, rule: Rule) -> Result<(), ParseError> {
        let index = self.rules.index_of(rule)?;
        self.write_index(address, index)
    }

    /// As [`write`](Self::write), for the rule with an index.
    ///
    /// # Errors
    /// [`ParseError::TooLarge`] at the limits of a file.
    pub(crate) fn write_index(&mut self, address: u64, rule: u16) -> Result<(), ParseError> {
        if rule == self.current {
            return Ok(());
        }
        let page = (address >> PAGE_BITS).checked_sub(self.table.first_page.into());
        let page = page.filter(|page| *page < MAX_PAGES.into()).ok_or(ParseError::TooLarge)?;
        let offset = address as u16 % (1 << PAGE_BITS);
        self.open_pages(page, offset);
        self.push(offset, rule);
        self.current = rule;
        if self.table.row_count > MAX_ROWS { Err(ParseError::TooLarge) } else { Ok(()) }
    }

    /// Starts all pages up to `page`. Each begins with a row of the current rule, unless the new row is at the start of the
    /// last page.
    fn open_pages(&mut self, page: u64, offset: u16) {
        while self.table.page_starts.len() as u64 <= page {
            let is_last = self.table.page_starts.len() as u64 == page;
            self.table.page_starts.push(self.table.rows.len() as u32);
            self.last_offset = 0;
            let repeats_rule = if is_last { offset > 0 } else { self.current != UNKNOWN };
            if repeats_rule {
                self.push(0, self.current);
            }
        }
    }

    fn push(&mut self, offset: u16, rule: u16) {
        push_pair(&mut self.table.rows, offset.wrapping_sub(self.last_offset).into(), rule.into());
        self.last_offset = offset;
        self.table.row_count += 1;
    }

    /// The finished table.
    pub(crate) fn finish(self, statistics: TableStatistics) -> UnwindTable {
        let mut table = self.table;
        table.rows.shrink_to_fit();
        table.rules = self.rules.into_rules();
        table.statistics = statistics;
        table
    }
}

#[cfg(test)]
mod tests {
    use profiler_common::unwind::{CfaRule, Row};

    use super::*;
    use crate::rule_set::MAX_FILE_RULES;

    const PAGE: u64 = 1 << PAGE_BITS;

    fn rule(cfa_offset: i32) -> Rule {
        Rule { cfa: CfaRule::StackPointer as u8, cfa_offset, ..Rule::default() }
    }

    /// The rows of each page as (offset, CFA offset); the CFA offset is 0 for code without unwind information.
    fn written(rows: &[(u64, Rule)]) -> Vec<Vec<(u32, i32)>> {
        let mut writer = RowWriter::new(1, RuleSet::new());
        for (address, rule) in rows {
            writer.write(*address, *rule).unwrap();
        }
        let table = writer.finish(TableStatistics::default());
        table.assert_valid();
        let row = |row: &Row| (row.offset(), table.rules()[row.rule() as usize].cfa_offset);
        table.pages().map(|rows| rows.iter().map(row).collect()).collect()
    }

    #[test]
    fn every_page_begins_with_the_rule_of_the_previous_page() {
        let pages = written(&[(PAGE, rule(8)), (PAGE + 5, rule(16)), (3 * PAGE + 1, rule(8))]);
        assert_eq!(pages, [vec![(0, 8), (5, 16)], vec![(0, 16)], vec![(0, 16), (1, 8)]]);
    }

    #[test]
    fn a_row_at_the_start_of_a_page_is_its_first_row() {
        assert_eq!(written(&[(PAGE, rule(8)), (2 * PAGE, rule(16))]), [[(0, 8)], [(0, 16)]]);
    }

    #[test]
    fn code_before_the_first_row_has_no_unwind_information() {
        assert_eq!(written(&[(PAGE + 100, rule(8))]), [[(0, 0), (100, 8)]]);
    }

    #[test]
    fn pages_without_unwind_information_have_no_rows() {
        let pages = written(&[(PAGE, rule(8)), (PAGE + 9, Rule::default()), (4 * PAGE, rule(8))]);
        assert_eq!(pages, [vec![(0, 8), (9, 0)], vec![], vec![], vec![(0, 8)]]);
    }

    #[test]
    fn a_repeated_rule_is_written_once() {
        assert_eq!(
            written(&[(PAGE, rule(8)), (PAGE + 4, rule(8)), (PAGE + 8, rule(16))]),
            [[(0, 8), (8, 16)]]
        );
    }

    #[test]
    fn rows_beyond_a_limit_are_refused() {
        let mut writer = RowWriter::new(1, RuleSet::new());
        assert_eq!(writer.write(PAGE * u64::from(MAX_PAGES + 1), rule(8)), Err(ParseError::TooLarge));
        assert_eq!(writer.write(u64::MAX, rule(8)), Err(ParseError::TooLarge));
        assert_eq!(writer.write(0, rule(8)), Err(ParseError::TooLarge));
        assert_eq!(writer.write(PAGE * u64::from(MAX_PAGES), rule(8)), Ok(()));

        let mut writer = RowWriter::new(0, RuleSet::new());
        let mut written = (0..).map(|index| writer.write(index, rule(i32::try_from(index).unwrap())));
        assert_eq!(written.position(|result| result.is_err()), Some(MAX_FILE_RULES - 1));

        let mut writer = RowWriter::new(0, RuleSet::new());
        let mut written = (0..).map(|address| writer.write(address, rule(8 << (address % 2))));
        assert!(written.position(|result| result.is_err()).unwrap() <= MAX_ROWS);
    }
}
