//! The work budget: limits on what parsers of symbols and debug information read, shared by all files of a session.
//!
//! Parsers of DWARF are linear in what they read, but a hostile file can make them read the same bytes repeatedly:
//! entries that share a range list, units that share an abbreviation table, names that share a very long string.
//! Each read therefore takes work from the budget. When the budget is exhausted, reads fail.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

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

/// Bytes of perf maps and jitdumps that are read. Large .NET programs write 20 MB.
const MAX_JIT_FILE_BYTES: u64 = 512 << 20;

/// The limits of all parsers of one session together, of those for one tenant, or of those of one file.
///
/// What is spent from a budget is spent from its parent too, and given back when the budget is dropped. One thread at a
/// time reads with a budget.
#[derive(Debug)]
pub struct WorkBudget {
    section_bytes: Account,
    work: Account,
    symbols: Account,
    checksum_bytes: Account,
    jit_file_bytes: Account,
    /// The work left of the quota of [`with_separate_quota`](Self::with_separate_quota); `u64::MAX` without a quota.
    separate_quota: AtomicU64,
    parent: Option<(Arc<Self>, Part)>,
}

/// How much of its parent's budget a budget may spend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    All,
    /// As much as is left, so that whatever one spends, something is left for the others.
    Share,
}

/// A limit, and what was spent of it.
#[derive(Debug)]
struct Account {
    limit: u64,
    spent: AtomicU64,
}

/// One of the accounts of a budget.
type Select = fn(&WorkBudget) -> &Account;

impl Default for WorkBudget {
    fn default() -> Self {
        Self::with_work_limit(MAX_WORK)
    }
}

impl WorkBudget {
    /// A budget with the default limits but this much work.
    pub fn with_work_limit(work: u64) -> Self {
        Self {
            section_bytes: Account::new(MAX_SECTION_BYTES),
            work: Account::new(work),
            symbols: Account::new(MAX_SYMBOLS),
            checksum_bytes: Account::new(MAX_CHECKSUM_BYTES),
            jit_file_bytes: Account::new(MAX_JIT_FILE_BYTES),
            separate_quota: AtomicU64::new(u64::MAX),
            parent: None,
        }
    }

    /// The budget of one of several tenants. It may spend as much as it leaves: one tenant at most half, a second one at
    /// most a third each.
    #[must_use]
    pub fn share(self: &Arc<Self>) -> Arc<Self> {
        self.child(Part::Share)
    }

    /// The budget of one file.
    #[must_use]
    pub fn part(self: &Arc<Self>) -> Arc<Self> {
        self.child(Part::All)
    }

    fn child(self: &Arc<Self>, part: Part) -> Arc<Self> {
        let unlimited = || Account::new(u64::MAX);
        Arc::new(Self {
            section_bytes: unlimited(),
            work: unlimited(),
            symbols: unlimited(),
            checksum_bytes: unlimited(),
            jit_file_bytes: unlimited(),
            separate_quota: AtomicU64::new(u64::MAX),
            parent: Some((Arc::clone(self), part)),
        })
    }

    /// The number of section bytes that may still be loaded.
    pub fn section_bytes_left(&self) -> u64 {
        self.left(|budget| &budget.section_bytes)
    }

    /// Subtracts section bytes that were loaded.
    pub fn spend_section_bytes(&self, bytes: u64) {
        self.spend(|budget| &budget.section_bytes, bytes);
    }

    /// Calls `read` with the number of symbols that may still be read. `read` subtracts what it reads.
    pub fn read_symbols<T>(&self, read: impl FnOnce(&mut u64) -> T) -> T {
        let before = self.left(|budget| &budget.symbols);
        let mut left = before;
        let result = read(&mut left);
        self.spend(|budget| &budget.symbols, before.saturating_sub(left));
        result
    }

    /// Subtracts the work of one read of `bytes` bytes. Returns `false` when the budget is exhausted.
    pub fn spend_on_reading(&self, bytes: u64) -> bool {
        let work = WORK_PER_READ.saturating_add(bytes);
        let quota = self.separate_quota.load(Ordering::Relaxed);
        if quota != u64::MAX {
            let left = quota.checked_sub(work);
            self.separate_quota.store(left.unwrap_or(0), Ordering::Relaxed);
            return left.is_some();
        }
        let left = self.left(|budget| &budget.work);
        self.spend(|budget| &budget.work, work.min(left));
        work <= left
    }

    /// Subtracts the bytes of a file whose checksum is to be computed. Returns `false`, and subtracts nothing, when
    /// fewer bytes are left.
    pub fn spend_on_checksum(&self, bytes: u64) -> bool {
        let is_enough = bytes <= self.left(|budget| &budget.checksum_bytes);
        self.spend(|budget| &budget.checksum_bytes, if is_enough { bytes } else { 0 });
        is_enough
    }

    /// The number of bytes of perf maps and jitdumps that may still be read.
    pub fn jit_file_bytes_left(&self) -> u64 {
        self.left(|budget| &budget.jit_file_bytes)
    }

    /// Subtracts bytes of a perf map or jitdump that were read.
    pub fn spend_jit_file_bytes(&self, bytes: u64) {
        self.spend(|budget| &budget.jit_file_bytes, bytes);
    }

    /// Runs `act` with `quota` work in place of the budget's own, which stays unchanged.
    ///
    /// For passes that keep nothing in memory.
    pub fn with_separate_quota<T>(&self, quota: u64, act: impl FnOnce() -> T) -> T {
        let outer = self.separate_quota.swap(quota, Ordering::Relaxed);
        let result = act();
        self.separate_quota.store(outer, Ordering::Relaxed);
        result
    }

    /// Runs `act` and refunds up to `max_refund` of the work that it spent.
    ///
    /// For operations that run any number of times and are usually cheap.
    pub fn with_refund<T>(&self, max_refund: u64, act: impl FnOnce() -> T) -> T {
        let before = self.work.spent();
        let result = act();
        let spent = self.work.spent().saturating_sub(before);
        self.refund(|budget| &budget.work, spent.min(max_refund));
        result
    }

    fn left(&self, account: Select) -> u64 {
        let Account { limit, .. } = account(self);
        let spent = account(self).spent();
        let own = limit.saturating_sub(spent);
        match &self.parent {
            None => own,
            Some((parent, Part::All)) => parent.left(account),
            Some((parent, Part::Share)) => parent.left(account).saturating_sub(spent) / 2,
        }
    }

    fn spend(&self, account: Select, amount: u64) {
        account(self).add(amount);
        if let Some((parent, _)) = &self.parent {
            parent.spend(account, amount);
        }
    }

    fn refund(&self, account: Select, amount: u64) {
        account(self).subtract(amount);
        if let Some((parent, _)) = &self.parent {
            parent.refund(account, amount);
        }
    }
}

impl Drop for WorkBudget {
    fn drop(&mut self) {
        const ACCOUNTS: [Select; 4] = [
            |budget| &budget.section_bytes,
            |budget| &budget.work,
            |budget| &budget.symbols,
            |budget| &budget.checksum_bytes,
        ];
        if let Some((parent, _)) = &self.parent {
            ACCOUNTS.into_iter().for_each(|account| parent.refund(account, account(self).spent()));
        }
    }
}

// One thread at a time changes an account: a load and a store do what a slower atomic operation would do.
impl Account {
    fn new(limit: u64) -> Self {
        Self { limit, spent: AtomicU64::new(0) }
    }

    fn spent(&self) -> u64 {
        self.spent.load(Ordering::Relaxed)
    }

    fn add(&self, amount: u64) {
        self.spent.store(self.spent().saturating_add(amount), Ordering::Relaxed);
    }

    fn subtract(&self, amount: u64) {
        self.spent.store(self.spent().saturating_sub(amount), Ordering::Relaxed);
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

    #[test]
    fn one_tenant_leaves_something_for_the_others() {
        const ALL: u64 = MAX_SYMBOLS;
        let all = Arc::new(WorkBudget::default());
        let (hostile, victim) = (all.share(), all.share());
        let take = |budget: &WorkBudget| budget.read_symbols(std::mem::take);
        assert_eq!(take(&hostile.part()), ALL / 2, "given back at once: the part is dropped");
        let file = hostile.part();
        assert_eq!(take(&file), ALL / 2);
        assert_eq!(take(&hostile.part()), 0);
        assert_eq!(take(&victim), ALL / 4);
        drop(file);
        assert!(take(&hostile) > 0);
    }

    #[test]
    fn what_a_file_spent_is_given_back_with_it() {
        let all = Arc::new(WorkBudget::with_work_limit(1 << 20));
        for _ in 0..100 {
            let file = all.share().part();
            assert!(file.spend_on_reading(1 << 18));
            assert!(file.spend_on_checksum(MAX_CHECKSUM_BYTES / 2));
        }
        assert!(all.spend_on_reading((1 << 20) - WORK_PER_READ));
    }
}
