//! The work budget: limits on what parsers of symbols and debug information read, shared by all files of a session.
//!
//! Parsers of DWARF are linear in what they read, but a hostile file can make them read the same bytes repeatedly:
//! entries that share a range list, units that share an abbreviation table, names that share a very long string.
//! Each read therefore takes work from the budget. When the budget is exhausted, reads fail.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};

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

/// Upper bounds of the CPU time of slow steps, which turn the time that is left into a number of bytes or symbols: a byte
/// that xz decompresses, a symbol that is read and sorted, and a byte of a section that is read or that zlib decompresses.
const XZ_NS_PER_BYTE: u64 = 25;
const NS_PER_SYMBOL: u64 = 250;
const NS_PER_SECTION_BYTE: u64 = 5;
const CHECKSUM_BYTES_PER_NS: u64 = 1;

/// Reads between two looks at the clock.
const READS_PER_CLOCK: u64 = 1 << 10;

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
    /// CPU time of the reading thread, nanoseconds; unlimited until [`limit_time`](Self::limit_time).
    time_ns: Account,
    /// From when on the time of what [`timed`](Self::timed) runs counts, by the CPU clock of the thread; 0 before.
    began_ns: AtomicU64,
    reads: AtomicU64,
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
    limit: AtomicU64,
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
            time_ns: Account::new(u64::MAX),
            began_ns: AtomicU64::new(0),
            reads: AtomicU64::new(0),
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
            time_ns: unlimited(),
            began_ns: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            separate_quota: AtomicU64::new(u64::MAX),
            parent: Some((Arc::clone(self), part)),
        })
    }

    /// Limits the CPU time of all further reading in [`timed`](Self::timed), from any thread: a session has ended, and its
    /// output waits. What is being read is included, from its next look at the budget on.
    pub fn limit_time(&self, limit: Duration) {
        let limit_ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        let limit_ns = self.time_ns.spent().saturating_add(limit_ns);
        self.time_ns.limit.store(limit_ns, Ordering::Relaxed);
    }

    /// Runs `act`, whose reading fails once the time is used up. `None` if it was before.
    pub fn timed<T>(&self, act: impl FnOnce() -> T) -> Option<T> {
        // What was read outside of `timed` does not count.
        self.began_ns.store(0, Ordering::Relaxed);
        if self.time_left_ns() == 0 {
            return None;
        }
        let result = act();
        let began_ns = self.began_ns.swap(0, Ordering::Relaxed);
        if began_ns != 0 {
            self.spend(|budget| &budget.time_ns, thread_time_ns().saturating_sub(began_ns));
        }
        Some(result)
    }

    /// The CPU time that what runs now may still take, nanoseconds. Without a limit the clock is not read, which is a system
    /// call.
    fn time_left_ns(&self) -> u64 {
        let left = self.left(|budget| &budget.time_ns);
        // Half of an unlimited time is no limit either.
        if left > u64::MAX >> 32 {
            return u64::MAX;
        }
        let now_ns = thread_time_ns();
        let began_ns = match self.began_ns.load(Ordering::Relaxed) {
            0 => now_ns,
            began_ns => began_ns,
        };
        self.began_ns.store(began_ns, Ordering::Relaxed);
        left.saturating_sub(now_ns.saturating_sub(began_ns))
    }

    /// The number of section bytes that may still be loaded.
    pub fn section_bytes_left(&self) -> u64 {
        self.left(|budget| &budget.section_bytes).min(self.time_left_ns() / NS_PER_SECTION_BYTE)
    }

    /// The number of bytes that may still be decompressed by xz.
    pub fn xz_bytes_left(&self) -> u64 {
        self.left(|budget| &budget.section_bytes).min(self.time_left_ns() / XZ_NS_PER_BYTE)
    }

    /// Subtracts section bytes that were loaded.
    pub fn spend_section_bytes(&self, bytes: u64) {
        self.spend(|budget| &budget.section_bytes, bytes);
    }

    /// Calls `read` with the number of symbols that may still be read. `read` subtracts what it reads.
    pub fn read_symbols<T>(&self, read: impl FnOnce(&mut u64) -> T) -> T {
        let before = self.left(|budget| &budget.symbols).min(self.time_left_ns() / NS_PER_SYMBOL);
        let mut left = before;
        let result = read(&mut left);
        self.spend(|budget| &budget.symbols, before.saturating_sub(left));
        result
    }

    /// Subtracts the work of one read of `bytes` bytes. Returns `false` when the budget is exhausted.
    pub fn spend_on_reading(&self, bytes: u64) -> bool {
        let work = WORK_PER_READ.saturating_add(bytes);
        if self.is_time_over() {
            return false;
        }
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
        let in_time = self.time_left_ns().saturating_mul(CHECKSUM_BYTES_PER_NS);
        let is_enough = bytes <= self.left(|budget| &budget.checksum_bytes).min(in_time);
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

    /// Whether the time is used up, by a look at the clock now and then.
    fn is_time_over(&self) -> bool {
        let reads = self.reads.load(Ordering::Relaxed).wrapping_add(1);
        self.reads.store(reads, Ordering::Relaxed);
        reads.is_multiple_of(READS_PER_CLOCK) && self.time_left_ns() == 0
    }

    fn left(&self, account: Select) -> u64 {
        let spent = account(self).spent();
        match &self.parent {
            None => account(self).limit.load(Ordering::Relaxed).saturating_sub(spent),
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
        Self { limit: AtomicU64::new(limit), spent: AtomicU64::new(0) }
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

/// The CPU time of the calling thread, nanoseconds.
fn thread_time_ns() -> u64 {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime))
        .map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads until the budget refuses. Returns the CPU time that this took.
    fn read_to_the_end(budget: &WorkBudget) -> Option<Duration> {
        let began = thread_time_ns();
        budget.timed(|| while budget.spend_on_reading(0) {})?;
        Some(Duration::from_nanos(thread_time_ns() - began))
    }

    #[test]
    fn after_the_end_each_tenant_has_a_part_of_the_time() {
        const LIMIT: Duration = Duration::from_millis(100);
        let all = Arc::new(WorkBudget::with_work_limit(u64::MAX));
        let (hostile, victim) = (all.share(), all.share());
        assert_eq!(all.part().timed(|| ()), Some(()));
        all.limit_time(LIMIT);
        let took = read_to_the_end(&hostile.part()).unwrap();
        assert!(took >= LIMIT / 2 && took < LIMIT, "{took:?}");
        assert_eq!(hostile.part().timed(|| ()), None);
        let took = read_to_the_end(&victim.part()).unwrap();
        assert!(took >= LIMIT / 5 && took < LIMIT / 2, "{took:?}");
    }

    #[test]
    fn what_is_read_when_the_time_is_limited_ends_too() {
        let all = Arc::new(WorkBudget::with_work_limit(u64::MAX));
        let file = all.share().part();
        let is_refused = file.timed(|| {
            assert!(file.xz_bytes_left() > 1 << 28 && file.section_bytes_left() > 1 << 28);
            all.limit_time(Duration::from_millis(1));
            assert!(file.xz_bytes_left() < 1 << 16 && file.section_bytes_left() < 1 << 20);
            assert!(file.read_symbols(|left| *left) < 1 << 14);
            assert!(!file.spend_on_checksum(1 << 20));
            let mut reads = (0..u64::MAX).take_while(|_| file.spend_on_reading(0));
            reads.by_ref().last() < Some(u64::MAX - 1)
        });
        assert_eq!(is_refused, Some(true));
    }

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
