//! The work budget: limits on what parsers of symbols and debug information read, shared by all files of a session.
//!
//! Parsers of DWARF are linear in what they read, but a hostile file can make them read the same bytes repeatedly:
//! entries that share a range list, units that share an abbreviation table, names that share a very long string.
//! Each read therefore takes work from the budget. When the budget is exhausted, reads fail.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of decompressed sections that are held in memory.
const MAX_SECTION_BYTES: u64 = 1 << 30;

/// Total work. A hundred units of a large C++ library, with all their tables, take a quarter.
const MAX_WORK: u64 = 512 << 20;

/// The work that each read costs in addition to its bytes.
///
/// A parser may allocate 50 bytes or more for each read, so that the total work can become 1.7 GB in the worst case.
pub const WORK_PER_READ: u64 = 16;

/// Symbol table entries that are read. Each function symbol takes 16 bytes in memory. The tables of a browser and of
/// all libraries that it loads take a tenth.
const MAX_SYMBOLS: u64 = 32 << 20;

/// Bytes of debug files that are read for checksums. Only files without a build id need one.
const MAX_CHECKSUM_BYTES: u64 = 4 << 30;

/// The limits of all parsers of one session together.
///
/// One thread at a time reads with a budget.
#[derive(Debug)]
pub struct WorkBudget {
    section_bytes: AtomicU64,
    work: AtomicU64,
    symbols: AtomicU64,
    checksum_bytes: AtomicU64,
}

impl Default for WorkBudget {
    fn default() -> Self {
        Self {
            section_bytes: AtomicU64::new(MAX_SECTION_BYTES),
            work: AtomicU64::new(MAX_WORK),
            symbols: AtomicU64::new(MAX_SYMBOLS),
            checksum_bytes: AtomicU64::new(MAX_CHECKSUM_BYTES),
        }
    }
}

impl WorkBudget {
    /// A budget with the default limits but this much work.
    pub fn with_work_limit(work: u64) -> Self {
        Self { work: AtomicU64::new(work), ..Self::default() }
    }

    /// The number of section bytes that may still be loaded.
    pub fn section_bytes_left(&self) -> u64 {
        self.section_bytes.load(Ordering::Relaxed)
    }

    /// Subtracts section bytes that were loaded.
    pub fn spend_section_bytes(&self, bytes: u64) {
        self.section_bytes.store(self.section_bytes_left().saturating_sub(bytes), Ordering::Relaxed);
    }

    /// Calls `read` with the number of symbols that may still be read. `read` subtracts what it reads.
    pub fn read_symbols<T>(&self, read: impl FnOnce(&mut u64) -> T) -> T {
        let mut left = self.symbols.load(Ordering::Relaxed);
        let result = read(&mut left);
        self.symbols.store(left, Ordering::Relaxed);
        result
    }

    /// Subtracts the work of one read of `bytes` bytes. Returns `false` when the budget is exhausted.
    pub fn spend_on_reading(&self, bytes: u64) -> bool {
        // One thread reads at a time: a load and a store do what a slower atomic operation would do.
        let left = self.work.load(Ordering::Relaxed).checked_sub(WORK_PER_READ.saturating_add(bytes));
        self.work.store(left.unwrap_or(0), Ordering::Relaxed);
        left.is_some()
    }

    /// Subtracts the bytes of a file whose checksum is to be computed. Returns `false`, and subtracts nothing, when
    /// fewer bytes are left.
    pub fn spend_on_checksum(&self, bytes: u64) -> bool {
        let left = self.checksum_bytes.load(Ordering::Relaxed).checked_sub(bytes);
        left.inspect(|left| self.checksum_bytes.store(*left, Ordering::Relaxed)).is_some()
    }

    /// Runs `act` with `quota` work in place of the budget's own, which stays unchanged.
    ///
    /// For passes that keep nothing in memory.
    pub fn with_separate_quota<T>(&self, quota: u64, act: impl FnOnce() -> T) -> T {
        let left = self.work.swap(quota, Ordering::Relaxed);
        let result = act();
        self.work.store(left, Ordering::Relaxed);
        result
    }

    /// Runs `act` and refunds up to `max_refund` of the work that it spent.
    ///
    /// For operations that run any number of times and are usually cheap.
    pub fn with_refund<T>(&self, max_refund: u64, act: impl FnOnce() -> T) -> T {
        let before = self.work.load(Ordering::Relaxed);
        let result = act();
        let after = self.work.load(Ordering::Relaxed);
        self.work.store(after.saturating_add(max_refund).min(before), Ordering::Relaxed);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_and_symbols_have_limits_of_their_own() {
        let budget = WorkBudget::default();
        assert!(budget.spend_on_checksum(MAX_CHECKSUM_BYTES - 1));
        assert!(!budget.spend_on_checksum(2));
        assert!(budget.spend_on_checksum(1), "the refused checksum spent nothing");
        budget.read_symbols(|left| *left -= 7);
        assert_eq!(budget.read_symbols(|left| *left), MAX_SYMBOLS - 7);
    }

    #[test]
    fn a_separate_quota_and_a_refund_leave_the_budget_unchanged() {
        let budget = WorkBudget::with_work_limit(WORK_PER_READ + 1);
        assert!(budget.with_separate_quota(1000, || budget.spend_on_reading(8)));
        assert!(!budget.with_separate_quota(1, || budget.spend_on_reading(8)));
        for _ in 0..5 {
            assert!(budget.with_refund(1000, || budget.spend_on_reading(1)));
        }
        assert!(budget.spend_on_reading(1));
        assert!(!budget.spend_on_reading(1));
    }
}
