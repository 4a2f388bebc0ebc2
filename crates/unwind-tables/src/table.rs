//! The rows of one file, page by page, as the kernel side searches them.

#[cfg(any(test, fuzzing, feature = "testing"))]
use profiler_common::unwind::PAGE_BITS;
use profiler_common::unwind::{Row, Rule};

/// How to find the caller of every piece of a file's code.
#[derive(Debug, Default)]
pub struct UnwindTable {
    pub(super) first_page: u32,
    /// For each page the index of its first row.
    pub(super) page_starts: Vec<u32>,
    pub(super) rows: Vec<Row>,
    pub(super) rules: Vec<Rule>,
    pub(super) statistics: Statistics,
}

/// What a table was made of, and what was left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Functions that have rows, and linkage tables.
    pub functions: u32,
    /// Functions, or what looked like one, whose description contradicts itself or ends too early.
    pub malformed_functions: u32,
    /// Functions that lie outside of the file's code.
    pub misplaced_functions: u32,
    /// Rows whose rule is none that the kernel side knows.
    pub unsupported_rows: u32,
}

impl UnwindTable {
    /// The page of ELF addresses that [`pages`](Self::pages) begins with.
    pub fn first_page(&self) -> u32 {
        self.first_page
    }

    /// The rows of each page, sorted; what each says of its rule is an index into the [`rules`](Self::rules).
    /// Nothing is known of a page without rows. In all others the first row begins with the page.
    pub fn pages(&self) -> impl ExactSizeIterator<Item = &[Row]> {
        self.page_starts.iter().enumerate().map(|(page, start)| {
            let end = self.page_starts.get(page + 1).map_or(self.rows.len(), |end| *end as usize);
            self.rows.get(*start as usize..end).unwrap_or_default()
        })
    }

    /// How many rows there are in all pages.
    pub fn row_count(&self) -> usize {
        self.rows.len()
    }

    /// The distinct rules.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// What it was made of.
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// The rule at an ELF address, found as the kernel side does. `pages` are the table's.
    #[cfg(any(test, fuzzing, feature = "testing"))]
    pub fn rule_in(&self, pages: &[&[Row]], address: u64) -> Rule {
        let page = (address >> PAGE_BITS).checked_sub(self.first_page.into());
        let rows = page.and_then(|page| pages.get(usize::try_from(page).ok()?)).copied().unwrap_or_default();
        let offset = u32::try_from(address % (1 << PAGE_BITS)).unwrap_or_default();
        let above = rows.partition_point(|row| row.offset() <= offset);
        above.checked_sub(1).map_or(Rule::default(), |at| self.rules[rows[at].rule() as usize])
    }

    /// Fails where the kernel side would not find its way.
    #[cfg(any(test, fuzzing, feature = "testing"))]
    pub fn check(&self) {
        for rows in self.pages() {
            assert!(rows.first().is_none_or(|row| row.offset() == 0));
            assert!(rows.is_sorted_by(|row, next| row.offset() < next.offset()));
            assert!(rows.iter().all(|row| row.offset() < 1 << PAGE_BITS));
            assert!(rows.iter().all(|row| (row.rule() as usize) < self.rules.len()));
        }
        assert!(self.page_starts.len() <= profiler_common::unwind::MAX_PAGES as usize);
    }
}
