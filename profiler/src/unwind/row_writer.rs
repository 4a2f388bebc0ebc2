//! Writes the rows of a table, by rising address.

use indexmap::IndexSet;
use profiler_common::unwind::{MAX_PAGES, PAGE_BITS, Row, Rule};

use super::table::{Statistics, UnwindTable};
use crate::elf::Defect;

/// Rows of one file: 32 MiB of them, for some 400 MiB of code.
const MAX_ROWS: usize = 8 << 20;

/// Distinct rules of one file. The richest real ones have a thousand.
const MAX_FILE_RULES: usize = 4096;

/// The index of the rule that nothing is known.
const UNKNOWN: u16 = 0;

/// The table that is being written.
pub(super) struct RowWriter {
    table: UnwindTable,
    rules: IndexSet<Rule>,
    /// The rule from the last row on.
    current: (Rule, u16),
}

impl RowWriter {
    /// A writer for rows in pages from `first_page` on.
    pub(super) fn new(first_page: u32) -> Self {
        let table = UnwindTable { first_page, ..UnwindTable::default() };
        Self { table, rules: IndexSet::from([Rule::default()]), current: (Rule::default(), UNKNOWN) }
    }

    /// The code from `address` on has that rule; addresses rise. Fails at the limits of a file.
    pub(super) fn write(&mut self, address: u64, rule: Rule) -> Result<(), Defect> {
        if rule == self.current.0 {
            return Ok(());
        }
        let page = (address >> PAGE_BITS).checked_sub(self.table.first_page.into());
        let page = page.filter(|page| *page < MAX_PAGES.into()).ok_or(Defect::TooLarge)?;
        let offset = address as u16 % (1 << PAGE_BITS);
        self.open_pages(page, offset);
        let index = self.index_of(rule)?;
        self.table.rows.push(Row::new(offset, index));
        self.current = (rule, index);
        if self.table.rows.len() > MAX_ROWS { Err(Defect::TooLarge) } else { Ok(()) }
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

    fn index_of(&mut self, rule: Rule) -> Result<u16, Defect> {
        let (index, _) = self.rules.insert_full(rule);
        if index < MAX_FILE_RULES { Ok(index as u16) } else { Err(Defect::TooLarge) }
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
