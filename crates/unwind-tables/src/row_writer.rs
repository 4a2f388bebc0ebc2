//! Writes the rows of a table, by rising address.

use indexmap::IndexSet;
use profiler_common::unwind::{MAX_PAGES, PAGE_BITS, Row, Rule};

use super::table::{Statistics, UnwindTable};
use profiler_binary_reader::ParseError;

/// Rows of one file: 32 MiB of them, for some 400 MiB of code.
const MAX_ROWS: usize = 8 << 20;

/// Distinct rules of one file. The richest real ones have a thousand.
const MAX_FILE_RULES: usize = 4096;

/// A power of two.
const RECENT_RULES: usize = 256;

/// The index of the rule that nothing is known.
const UNKNOWN: u16 = 0;

/// The table that is being written.
pub(super) struct RowWriter {
    table: UnwindTable,
    rules: IndexSet<Rule>,
    /// Rules that were written lately and their indexes, each in the place that its fields give: most rows have one
    /// of a few dozen, and are spared the search.
    recent: [(Rule, u16); RECENT_RULES],
    /// The rule from the last row on.
    current: (Rule, u16),
}

impl RowWriter {
    /// A writer for rows in pages from `first_page` on.
    pub(super) fn new(first_page: u32) -> Self {
        let table = UnwindTable { first_page, ..UnwindTable::default() };
        let unknown = (Rule::default(), UNKNOWN);
        Self { table, rules: IndexSet::from([unknown.0]), recent: [unknown; RECENT_RULES], current: unknown }
    }

    /// The code from `address` on has that rule; addresses rise. Fails at the limits of a file.
    pub(super) fn write(&mut self, address: u64, rule: Rule) -> Result<(), ParseError> {
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

    /// Begins all pages up to `page`. Each carries the current rule over, but for the last where a row begins
    /// with it.
    fn open_pages(&mut self, page: u64, offset: u16) {
        while self.table.page_starts.len() as u64 <= page {
            let is_last = self.table.page_starts.len() as u64 == page;
            self.table.page_starts.push(self.table.rows.len() as u32);
            let carries = if is_last { offset > 0 } else { self.current.1 != UNKNOWN };
            if carries {
                self.table.rows.push(Row::new(0, self.current.1));
            }
        }
    }

    fn index_of(&mut self, rule: Rule) -> Result<u16, ParseError> {
        let recent = &mut self.recent[place_of(rule)];
        if recent.0 != rule {
            let (index, _) = self.rules.insert_full(rule);
            if index >= MAX_FILE_RULES {
                return Err(ParseError::TooLarge);
            }
            *recent = (rule, index as u16);
        }
        Ok(recent.1)
    }

    /// The table, with what was seen on the way.
    pub(super) fn finish(self, statistics: Statistics) -> UnwindTable {
        let mut table = self.table;
        table.rows.shrink_to_fit();
        table.rules = self.rules.into_iter().collect();
        table.statistics = statistics;
        table
    }
}

/// Stack slots are 8 bytes, so that neighbours in the offsets are neighbours in the places.
fn place_of(rule: Rule) -> usize {
    let slots = (rule.cfa_offset / 8 - i32::from(rule.frame_pointer_offset)) as usize;
    (slots ^ usize::from(rule.cfa) << 5 ^ usize::from(rule.frame_pointer) << 3) % RECENT_RULES
}

#[cfg(test)]
mod tests {
    use profiler_common::unwind::CfaRule;

    use super::*;

    const PAGE: u64 = 1 << PAGE_BITS;

    fn rule(cfa_offset: i32) -> Rule {
        Rule { cfa: CfaRule::StackPointer as u8, cfa_offset, ..Rule::default() }
    }

    /// The rows of each page as (offset, canonical frame address's offset); 0 where nothing is known.
    fn written(rows: &[(u64, Rule)]) -> Vec<Vec<(u32, i32)>> {
        let mut writer = RowWriter::new(1);
        for (address, rule) in rows {
            writer.write(*address, *rule).unwrap();
        }
        let table = writer.finish(Statistics::default());
        table.check();
        let row = |row: &Row| (row.offset(), table.rules()[row.rule() as usize].cfa_offset);
        table.pages().map(|rows| rows.iter().map(row).collect()).collect()
    }

    #[test]
    fn every_page_begins_with_the_rule_that_goes_on() {
        let pages = written(&[(PAGE, rule(8)), (PAGE + 5, rule(16)), (3 * PAGE + 1, rule(8))]);
        assert_eq!(pages, [vec![(0, 8), (5, 16)], vec![(0, 16)], vec![(0, 16), (1, 8)]]);
    }

    #[test]
    fn a_row_that_begins_with_its_page_needs_no_other() {
        assert_eq!(written(&[(PAGE, rule(8)), (2 * PAGE, rule(16))]), [[(0, 8)], [(0, 16)]]);
    }

    #[test]
    fn before_the_first_row_nothing_is_known() {
        assert_eq!(written(&[(PAGE + 100, rule(8))]), [[(0, 0), (100, 8)]]);
    }

    #[test]
    fn pages_of_which_nothing_is_known_have_no_rows() {
        let pages = written(&[(PAGE, rule(8)), (PAGE + 9, Rule::default()), (4 * PAGE, rule(8))]);
        assert_eq!(pages, [vec![(0, 8), (9, 0)], vec![], vec![], vec![(0, 8)]]);
    }

    #[test]
    fn a_rule_that_goes_on_is_written_once() {
        assert_eq!(
            written(&[(PAGE, rule(8)), (PAGE + 4, rule(8)), (PAGE + 8, rule(16))]),
            [[(0, 8), (8, 16)]]
        );
    }

    #[test]
    fn rules_are_kept_once_also_when_they_share_a_place() {
        let mut writer = RowWriter::new(0);
        let apart = i32::try_from(8 * RECENT_RULES).unwrap();
        for address in 0..1000 {
            writer.write(address, rule(8 + apart * i32::from(address % 2 == 0))).unwrap();
        }
        assert_eq!(writer.finish(Statistics::default()).rules().len(), 3);
    }

    #[test]
    fn what_is_beyond_a_limit_is_too_large() {
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
    fn no_rule_has_a_place_beyond_the_last() {
        for cfa_offset in [i32::MIN, -1, 0, i32::MAX] {
            for frame_pointer_offset in [i16::MIN, -1, i16::MAX] {
                assert!(place_of(Rule { frame_pointer_offset, cfa: 255, ..rule(cfa_offset) }) < RECENT_RULES);
            }
        }
    }
}
