//! What reading symbols and debug information may cost: a budget for all modules of a session, and the reader that
//! spends it.
//!
//! Parsers of DWARF are linear in what they read, but a hostile file can make them read the same bytes again
//! and again: entries that share a list of ranges, units that share a table, names that share an endless
//! string. So every read costs something, and when the budget is spent, reads fail.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of sections that are held in memory, unpacked.
const MAX_BYTES: u64 = 1 << 30;

/// Work in all. A hundred units of a large C++ library, with all its tables, take a quarter.
const MAX_WORK: u64 = 512 << 20;

/// What a read costs beside its bytes: of each the parser may remember something of 50 bytes and more, so
/// that the whole work can become 1.7 GB in the worst case.
pub const WORK_PER_READ: u64 = 16;

/// Entries of symbol tables that are read; each that names code takes 16 bytes. The tables of a browser and of all the
/// libraries it loads take a tenth.
const MAX_SYMBOLS: u64 = 32 << 20;

/// What is read of debug files to compute their checksums: only files without a build id need one.
const MAX_CHECKSUM_BYTES: u64 = 4 << 30;

/// Symbols and debug information of one session may cost this much.
#[derive(Debug)]
pub struct WorkBudget {
    bytes: AtomicU64,
    work: AtomicU64,
    symbols: AtomicU64,
    checksum_bytes: AtomicU64,
}

impl Default for WorkBudget {
    fn default() -> Self {
        Self {
            bytes: AtomicU64::new(MAX_BYTES),
            work: AtomicU64::new(MAX_WORK),
            symbols: AtomicU64::new(MAX_SYMBOLS),
            checksum_bytes: AtomicU64::new(MAX_CHECKSUM_BYTES),
        }
    }
}

impl WorkBudget {
    /// So much work and no more.
    #[doc(hidden)]
    pub fn of_work(work: u64) -> Self {
        Self { work: AtomicU64::new(work), ..Self::default() }
    }

    /// How many bytes of sections may still be loaded.
    pub fn bytes_left(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Takes note of bytes that were loaded.
    pub fn take_bytes(&self, bytes: u64) {
        self.bytes.store(self.bytes_left().saturating_sub(bytes), Ordering::Relaxed);
    }

    /// Reads a symbol table, which takes its symbols off those that are left.
    pub fn read_symbols<T>(&self, read: impl FnOnce(&mut u64) -> T) -> T {
        let mut left = self.symbols.load(Ordering::Relaxed);
        let result = read(&mut left);
        self.symbols.store(left, Ordering::Relaxed);
        result
    }

    /// Whether so many bytes may still be read; then they count as read.
    pub fn spend_on_reading(&self, bytes: u64) -> bool {
        usize::try_from(bytes).is_ok_and(|bytes| self.spend(bytes).is_some())
    }

    /// Whether a checksum of so many bytes may still be computed; then it counts as computed.
    pub fn spend_on_checksum(&self, bytes: u64) -> bool {
        let left = self.checksum_bytes.load(Ordering::Relaxed).checked_sub(bytes);
        left.inspect(|left| self.checksum_bytes.store(*left, Ordering::Relaxed)).is_some()
    }

    /// Does what leaves nothing in memory, with an allowance of its own.
    pub fn apart<T>(&self, allowance: u64, act: impl FnOnce() -> T) -> T {
        let left = self.work.swap(allowance, Ordering::Relaxed);
        let result = act();
        self.work.store(left, Ordering::Relaxed);
        result
    }

    /// Does something whose first `free` work costs nothing: it may be done any number of times.
    pub fn with_free_work<T>(&self, free: u64, act: impl FnOnce() -> T) -> T {
        let before = self.work.load(Ordering::Relaxed);
        let result = act();
        let after = self.work.load(Ordering::Relaxed);
        self.work.store(after.saturating_add(free).min(before), Ordering::Relaxed);
        result
    }

    /// One thread reads at a time, so a load and a store do what an atomic operation would do slower.
    pub fn spend(&self, bytes: usize) -> Option<()> {
        let left = self.work.load(Ordering::Relaxed).checked_sub(WORK_PER_READ + bytes as u64);
        self.work.store(left.unwrap_or(0), Ordering::Relaxed);
        left.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_and_symbols_are_computed_and_read_until_they_are_spent() {
        let budget = WorkBudget::default();
        assert!(budget.spend_on_checksum(MAX_CHECKSUM_BYTES - 1));
        assert!(!budget.spend_on_checksum(2));
        assert!(budget.spend_on_checksum(1), "a checksum that did not fit has spent nothing");
        budget.read_symbols(|left| *left -= 7);
        assert_eq!(budget.read_symbols(|left| *left), MAX_SYMBOLS - 7);
    }
}
