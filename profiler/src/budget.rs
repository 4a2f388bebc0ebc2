//! What reading symbols and debug information may cost: a budget for all modules of a session, and the reader that
//! spends it.
//!
//! Parsers of DWARF are linear in what they read, but a hostile file can make them read the same bytes again
//! and again: entries that share a list of ranges, units that share a table, names that share an endless
//! string. So every read costs something, and when the budget is spent, reads fail.

use std::{
    borrow::Cow,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use gimli::{EndianArcSlice, Error, LittleEndian, ReaderOffsetId};

/// Bytes of sections that are held in memory, unpacked.
const MAX_BYTES: u64 = 1 << 30;

/// Work in all. A hundred units of a large C++ library, with all its tables, take a quarter.
const MAX_WORK: u64 = 512 << 20;

/// What a read costs beside its bytes: of each the parser may remember something of 50 bytes and more, so
/// that the whole work can become 1.7 GB in the worst case.
const READ_WORK: u64 = 16;

/// Entries of symbol tables that are read; each that names code takes 16 bytes. The tables of a browser and of all the
/// libraries it loads take a tenth.
const MAX_SYMBOLS: u64 = 32 << 20;

/// What is read of debug files to compute their checksums: only files without a build id need one.
const MAX_CHECKSUM_BYTES: u64 = 4 << 30;

/// Symbols and debug information of one session may cost this much.
#[derive(Debug)]
pub(crate) struct Budget {
    bytes: AtomicU64,
    work: AtomicU64,
    symbols: AtomicU64,
    checksum_bytes: AtomicU64,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            bytes: AtomicU64::new(MAX_BYTES),
            work: AtomicU64::new(MAX_WORK),
            symbols: AtomicU64::new(MAX_SYMBOLS),
            checksum_bytes: AtomicU64::new(MAX_CHECKSUM_BYTES),
        }
    }
}

impl Budget {
    /// So much work and no more.
    #[cfg(test)]
    pub(crate) fn of_work(work: u64) -> Self {
        Self { work: AtomicU64::new(work), ..Self::default() }
    }

    /// How many bytes of sections may still be loaded.
    pub(crate) fn bytes_left(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Takes note of bytes that were loaded.
    pub(crate) fn take_bytes(&self, bytes: u64) {
        self.bytes.store(self.bytes_left().saturating_sub(bytes), Ordering::Relaxed);
    }

    /// Reads a symbol table, which takes its symbols off those that are left.
    pub(crate) fn read_symbols<T>(&self, read: impl FnOnce(&mut u64) -> T) -> T {
        let mut left = self.symbols.load(Ordering::Relaxed);
        let result = read(&mut left);
        self.symbols.store(left, Ordering::Relaxed);
        result
    }

    /// Whether so many bytes may still be read; then they count as read.
    pub(crate) fn spend_on_reading(&self, bytes: u64) -> bool {
        usize::try_from(bytes).is_ok_and(|bytes| self.spend(bytes).is_ok())
    }

    /// Whether a checksum of so many bytes may still be computed; then it counts as computed.
    pub(crate) fn spend_on_checksum(&self, bytes: u64) -> bool {
        let left = self.checksum_bytes.load(Ordering::Relaxed).checked_sub(bytes);
        left.inspect(|left| self.checksum_bytes.store(*left, Ordering::Relaxed)).is_some()
    }

    /// Does what leaves nothing in memory, with an allowance of its own.
    pub(crate) fn apart<T>(&self, allowance: u64, act: impl FnOnce() -> T) -> T {
        let left = self.work.swap(allowance, Ordering::Relaxed);
        let result = act();
        self.work.store(left, Ordering::Relaxed);
        result
    }

    /// Does something whose first `free` work costs nothing: it may be done any number of times.
    pub(crate) fn with_free_work<T>(&self, free: u64, act: impl FnOnce() -> T) -> T {
        let before = self.work.load(Ordering::Relaxed);
        let result = act();
        let after = self.work.load(Ordering::Relaxed);
        self.work.store(after.saturating_add(free).min(before), Ordering::Relaxed);
        result
    }

    /// One thread reads at a time, so a load and a store do what an atomic operation would do slower.
    fn spend(&self, bytes: usize) -> gimli::Result<()> {
        let left = self.work.load(Ordering::Relaxed).checked_sub(READ_WORK + bytes as u64);
        self.work.store(left.unwrap_or(0), Ordering::Relaxed);
        left.map(drop).ok_or(Error::Io)
    }
}

/// Reads a section, as long as the budget lasts. Sections are shared by everything that refers to them, and by
/// threads.
#[derive(Clone, Debug)]
pub(crate) struct Reader {
    bytes: EndianArcSlice<LittleEndian>,
    budget: Arc<Budget>,
}

impl Reader {
    pub(crate) fn new(bytes: Arc<[u8]>, budget: Arc<Budget>) -> Self {
        Self { bytes: EndianArcSlice::new(bytes, LittleEndian), budget }
    }
}

impl gimli::Reader for Reader {
    type Endian = LittleEndian;
    type Offset = usize;

    fn endian(&self) -> LittleEndian {
        LittleEndian
    }

    fn len(&self) -> usize {
        self.bytes.len()
    }

    fn empty(&mut self) {
        self.bytes.empty();
    }

    fn truncate(&mut self, len: usize) -> gimli::Result<()> {
        self.bytes.truncate(len)
    }

    fn offset_from(&self, base: &Self) -> usize {
        self.bytes.offset_from(&base.bytes)
    }

    fn offset_id(&self) -> ReaderOffsetId {
        self.bytes.offset_id()
    }

    fn lookup_offset_id(&self, id: ReaderOffsetId) -> Option<usize> {
        self.bytes.lookup_offset_id(id)
    }

    fn find(&self, byte: u8) -> gimli::Result<usize> {
        let found = memchr::memchr(byte, self.bytes.bytes());
        self.budget.spend(found.unwrap_or(self.len()))?;
        found.ok_or_else(|| Error::UnexpectedEof(self.offset_id()))
    }

    fn skip(&mut self, len: usize) -> gimli::Result<()> {
        self.budget.spend(0)?;
        self.bytes.skip(len)
    }

    fn split(&mut self, len: usize) -> gimli::Result<Self> {
        self.budget.spend(0)?;
        Ok(Self { bytes: self.bytes.split(len)?, budget: Arc::clone(&self.budget) })
    }

    fn to_slice(&self) -> gimli::Result<Cow<'_, [u8]>> {
        self.budget.spend(self.len())?;
        self.bytes.to_slice()
    }

    fn to_string(&self) -> gimli::Result<Cow<'_, str>> {
        self.budget.spend(self.len())?;
        self.bytes.to_string()
    }

    fn to_string_lossy(&self) -> gimli::Result<Cow<'_, str>> {
        self.budget.spend(self.len())?;
        self.bytes.to_string_lossy()
    }

    fn read_slice(&mut self, buffer: &mut [u8]) -> gimli::Result<()> {
        self.budget.spend(buffer.len())?;
        self.bytes.read_slice(buffer)
    }
}

#[cfg(test)]
mod tests {
    use gimli::Reader as _;

    use super::*;

    fn reader(work: u64) -> Reader {
        Reader::new((0..100_u8).collect(), Arc::new(Budget::of_work(work)))
    }

    #[test]
    fn reading_ends_with_the_budget() {
        let mut reader = reader(2 * (READ_WORK + 1));
        assert_eq!(reader.read_u8(), Ok(0));
        assert_eq!(reader.clone().read_u8(), Ok(1));
        assert_eq!(reader.read_u8(), Err(Error::Io));
        assert_eq!(reader.skip(1), Err(Error::Io));
    }

    #[test]
    fn what_is_looked_through_costs_its_length() {
        let reader = reader(2 * READ_WORK + 149);
        assert_eq!(reader.find(50), Ok(50));
        assert_eq!(reader.to_slice().unwrap_err(), Error::Io);
    }

    #[test]
    fn checksums_and_symbols_are_computed_and_read_until_they_are_spent() {
        let budget = Budget::default();
        assert!(budget.spend_on_checksum(MAX_CHECKSUM_BYTES - 1));
        assert!(!budget.spend_on_checksum(2));
        assert!(budget.spend_on_checksum(1), "what did not fit has spent nothing");
        budget.read_symbols(|left| *left -= 7);
        assert_eq!(budget.read_symbols(|left| *left), MAX_SYMBOLS - 7);
    }

    #[test]
    fn work_apart_and_free_work_leave_the_budget_as_it_is() {
        let mut reader = reader(READ_WORK + 1);
        let budget = Arc::clone(&reader.budget);
        assert!(budget.apart(1000, || reader.read_u64()).is_ok());
        assert!(budget.apart(1, || reader.read_u64()).is_err());
        for _ in 0..5 {
            assert!(budget.with_free_work(1000, || reader.read_u8()).is_ok());
        }
        assert!(reader.read_u8().is_ok());
        assert!(reader.read_u8().is_err());
    }
}
