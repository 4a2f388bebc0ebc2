//! Writes the rows of an unwind table in ascending order of address, and deduplicates the rules.

use indexmap::IndexSet;
use profiler_binary_reader::ParseError;
use profiler_common::unwind::{MAX_PAGES, PAGE_BITS, Row, Rule};

use crate::table::{TableStatistics, UnwindTable};

/// The rows of one file: 32 MiB, for about 400 MiB of code.
const MAX_ROWS: usize = 8 << 20;

/// The distinct rules of one file. Real files have at most a thousand.
const MAX_FILE_RULES: usize = 4096;

/// The entries of the rule cache, a power of two.
const RULE_CACHE_ENTRIES: usize = 256;

/// The index of the rule for code without unwind information.
const UNKNOWN: u16 = 0;

/// Writes one table.
pub(crate) struct RowWriter {
    table: UnwindTable,
    rules: IndexSet<Rule>,
    /// A direct-mapped cache of rules and their indexes. Most rows have one of a few dozen rules.
    cache: [(Rule, u16); RULE_CACHE_ENTRIES],
    /// The rule of the last row.
    current: (Rule, u16),
}

impl RowWriter {
    /// A writer of a table that starts at `first_page`.
    pub(crate) fn new(first_page: u32) -> Self {
        let table = UnwindTable { first_page, ..UnwindTable::default() };
        let unknown = (Rule::default(), UNKNOWN);
        Self {
            table,
            rules: IndexSet::from([unknown.0]),
            cache: [unknown; RULE_CACHE_ENTRIES],
            current: unknown,
        }
    }

    /// Starts a row at `address`, which must not be lower than that of the last row.
    ///
    /// # Errors
    /// [`ParseError::TooLarge`] at the limits of a file.
    pub(crate) fn write(&mut self, address: u64, rule: Rule) -> Result<(), ParseError> {
        if rule == self.current.0 {
            return Ok(());
        }
        let page = (address >> PAGE_BITS).checked_sub(self.table.first_page.into());
        let page = page.filter(|page| *page < MAX_PAGES.into()).ok_or(ParseError::TooLarge)?;
        let offset = address as u16 % (1 << PAGE_BITS);
        self.open_pages(page, offset);
        let index = self.index_of(rule)?;
        self.table.rows.push(Row::new(offset, index));
        self.current = (rule, index);
        if self.table.rows.len() > MAX_ROWS { Err(ParseError::TooLarge) } else { Ok(()) }
    }

    /// Starts all pages up to `page`. Each begins with a row of the current rule, unless the new row is at the start of the
    /// last page.
    fn open_pages(&mut self, page: u64, offset: u16) {
        while self.table.page_starts.len() as u64 <= page {
            let is_last = self.table.page_starts.len() as u64 == page;
            self.table.page_starts.push(self.table.rows.len() as u32);
            let repeats_rule = if is_last { offset > 0 } else { self.current.1 != UNKNOWN };
            if repeats_rule {
                self.table.rows.push(Row::new(0, self.current.1));
            }
        }
    }

    fn index_of(&mut self, rule: Rule) -> Result<u16, ParseError> {
        let cached = &mut self.cache[cache_slot(rule)];
        if cached.0 != rule {
            let (index, _) = self.rules.insert_full(rule);
            if index >= MAX_FILE_RULES {
                return Err(ParseError::TooLarge);
            }
            *cached = (rule, index as u16);
        }
        Ok(cached.1)
    }

    /// The finished table.
    pub(crate) fn finish(self, statistics: TableStatistics) -> UnwindTable {
        let mut table = self.table;
        table.rows.shrink_to_fit();
        table.rules = self.rules.into_iter().collect();
        table.statistics = statistics;
        table
    }
}

/// The cache slot of a rule. Stack slots have 8 bytes, so that consecutive offsets have consecutive cache slots.
fn cache_slot(rule: Rule) -> usize {
    let slots = (rule.cfa_offset / 8 - i32::from(rule.frame_pointer_offset)) as usize;
    (slots ^ usize::from(rule.cfa) << 5 ^ usize::from(rule.frame_pointer) << 3) % RULE_CACHE_ENTRIES
}

#[cfg(test)]
mod tests {
    use profiler_common::unwind::CfaRule;

    use super::*;

    const PAGE: u64 = 1 << PAGE_BITS;

    fn rule(cfa_offset: i32) -> Rule {
        Rule { cfa: CfaRule::StackPointer as u8, cfa_offset, ..Rule::default() }
    }

    /// The rows of each page as (offset, CFA offset); the CFA offset is 0 for code without unwind information.
    fn written(rows: &[(u64, Rule)]) -> Vec<Vec<(u32, i32)>> {
        let mut writer = RowWriter::new(1);
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
    fn rules_are_distinct_also_when_they_share_a_cache_slot() {
        let mut writer = RowWriter::new(0);
        let distance = i32::try_from(8 * RULE_CACHE_ENTRIES).unwrap();
        for address in 0..1000 {
            writer.write(address, rule(8 + distance * i32::from(address % 2 == 0))).unwrap();
        }
        assert_eq!(writer.finish(TableStatistics::default()).rules().len(), 3);
    }

    #[test]
    fn rows_beyond_a_limit_are_refused() {
        let mut writer = RowWriter::new(1);
        assert_eq!(writer.write(PAGE * u64::from(MAX_PAGES + 1), rule(8)), Err(ParseError::TooLarge));
        assert_eq!(writer.write(u64::MAX, rule(8)), Err(ParseError::TooLarge));
        assert_eq!(writer.write(0, rule(8)), Err(ParseError::TooLarge));
        assert_eq!(writer.write(PAGE * u64::from(MAX_PAGES), rule(8)), Ok(()));

        let mut writer = RowWriter::new(0);
        let mut written = (0..).map(|index| writer.write(index, rule(i32::try_from(index).unwrap())));
        assert_eq!(written.position(|result| result.is_err()), Some(MAX_FILE_RULES - 1));

        let mut writer = RowWriter::new(0);
        let mut written = (0..).map(|address| writer.write(address, rule(8 << (address % 2))));
        assert!(written.position(|result| result.is_err()).unwrap() <= MAX_ROWS);
    }

    #[test]
    fn every_rule_has_a_cache_slot() {
        for cfa_offset in [i32::MIN, -1, 0, i32::MAX] {
            for frame_pointer_offset in [i16::MIN, -1, i16::MAX] {
                assert!(
                    cache_slot(Rule { frame_pointer_offset, cfa: 255, ..rule(cfa_offset) })
                        < RULE_CACHE_ENTRIES
                );
            }
        }
    }
}
