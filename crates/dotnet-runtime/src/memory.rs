//! Reads the memory of a process within the limits of one lookup.
//!
//! Everything that is read can be wrong: the process is hostile, or changes its data structures meanwhile. Limits on the reads
//! and bytes of each lookup bound its cost, whatever the structures say.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use profiler_binary_reader::{ParseError, ReadAt, text_of, text_of_utf16};
use thiserror::Error;

/// The first address that is not of user space (x86-64 with four levels of page tables).
const USER_SPACE_END: u64 = 1 << 47;

/// The span of fields that are read together.
const MAX_FIELDS_BYTES: usize = 256;

/// The memory of a process.
pub trait Memory: fmt::Debug + Send + Sync {
    /// Fills `into` with the bytes from `address`.
    ///
    /// # Errors
    /// [`ReadError`] when not all of the bytes can be read.
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), ReadError>;

    /// Reads bytes that were read before, to check that they are the same: never from a cache that [`read`](Self::read) has.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    fn read_again(&self, address: u64, into: &mut [u8]) -> Result<(), ReadError> {
        self.read(address, into)
    }
}

/// Why memory cannot be read.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ReadError {
    /// The process has no readable memory at the address.
    #[error("the process has no readable memory at the address")]
    NotMapped,
    /// The read did not end in time.
    #[error("a read of the memory of the process did not end in time")]
    TimedOut,
    /// A limit of [`ReadLimits`] is exceeded.
    #[error("the data structures of the runtime take too many reads")]
    LimitExceeded,
}

impl From<ReadError> for ParseError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::NotMapped => Self::Malformed,
            ReadError::TimedOut => Self::TimedOut,
            ReadError::LimitExceeded => Self::TooLarge,
        }
    }
}

/// How much one lookup may read. A list of threads or monitors may take four times as many reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadLimits {
    /// Calls of [`Memory::read`].
    pub reads: u64,
    /// Bytes of all reads together.
    pub bytes: u64,
}

impl Default for ReadLimits {
    /// Ten times what the first method of a process takes, whose metadata is not cached yet.
    fn default() -> Self {
        Self { reads: 4_000, bytes: 8 << 20 }
    }
}

/// The memory of a process, with the reads that are left of the current lookup.
#[derive(Debug)]
pub(crate) struct LimitedMemory {
    memory: Arc<dyn Memory>,
    limits: ReadLimits,
    /// Of the current lookup.
    max_reads: AtomicU64,
    reads: AtomicU64,
    bytes: AtomicU64,
    /// Whether the current lookup checks what it has read.
    is_check: AtomicBool,
}

impl LimitedMemory {
    pub(crate) fn new(memory: Arc<dyn Memory>, limits: ReadLimits) -> Self {
        let max_reads = AtomicU64::new(limits.reads);
        let (reads, bytes, is_check) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        Self { memory, limits, max_reads, reads, bytes, is_check }
    }

    /// Begins a lookup: the limits count from here.
    pub(crate) fn begin(&self) {
        self.begin_with(self.limits.reads);
    }

    /// Begins a list of threads or monitors: a process has thousands.
    pub(crate) fn begin_list(&self) {
        const LOOKUPS_PER_LIST: u64 = 4;
        self.begin_with(self.limits.reads.saturating_mul(LOOKUPS_PER_LIST));
    }

    fn begin_with(&self, max_reads: u64) {
        self.max_reads.store(max_reads, Ordering::Relaxed);
        self.reads.store(0, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
        self.is_check.store(false, Ordering::Relaxed);
    }

    /// Begins to check what the lookup has read: from here on, [`Memory::read_again`] reads.
    pub(crate) fn begin_check(&self) {
        self.is_check.store(true, Ordering::Relaxed);
    }

    /// The reads and bytes of the current lookup.
    pub(crate) fn cost(&self) -> ReadLimits {
        ReadLimits { reads: self.reads.load(Ordering::Relaxed), bytes: self.bytes.load(Ordering::Relaxed) }
    }

    pub(crate) fn read_into(&self, address: u64, into: &mut [u8]) -> Result<(), ReadError> {
        let length = into.len() as u64;
        let end = address.checked_add(length).filter(|end| *end <= USER_SPACE_END && address > 0);
        if end.is_none() {
            return Err(ReadError::NotMapped);
        }
        let reads = self.reads.fetch_add(1, Ordering::Relaxed);
        let bytes = self.bytes.fetch_add(length, Ordering::Relaxed).saturating_add(length);
        if reads >= self.max_reads.load(Ordering::Relaxed) || bytes > self.limits.bytes {
            return Err(ReadError::LimitExceeded);
        }
        match self.is_check.load(Ordering::Relaxed) {
            true => self.memory.read_again(address, into),
            false => self.memory.read(address, into),
        }
    }

    pub(crate) fn array<const N: usize>(&self, address: u64) -> Result<[u8; N], ReadError> {
        let mut bytes = [0; N];
        self.read_into(address, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads `length` bytes, which the caller has bounded.
    pub(crate) fn bytes(&self, address: u64, length: usize) -> Result<Vec<u8>, ReadError> {
        let mut bytes = vec![0; length];
        self.read_into(address, &mut bytes)?;
        Ok(bytes)
    }

    pub(crate) fn u8(&self, address: u64) -> Result<u8, ReadError> {
        self.array(address).map(|[byte]| byte)
    }

    pub(crate) fn u16(&self, address: u64) -> Result<u16, ReadError> {
        self.array(address).map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&self, address: u64) -> Result<u32, ReadError> {
        self.array(address).map(u32::from_le_bytes)
    }

    /// Reads eight bytes: a number or a pointer.
    pub(crate) fn u64(&self, address: u64) -> Result<u64, ReadError> {
        self.array(address).map(u64::from_le_bytes)
    }

    /// The fields of a structure at these offsets, which are read together if they are near each other.
    pub(crate) fn fields(&self, structure: u64, offsets: &[u64]) -> Fields<'_> {
        let first = offsets.iter().min().copied().unwrap_or_default();
        let last = offsets.iter().max().copied().unwrap_or_default();
        let span = (last - first).saturating_add(size_of::<u64>() as u64);
        let mut fields = Fields { memory: self, structure, first, bytes: [0; MAX_FIELDS_BYTES], known: 0 };
        if span <= MAX_FIELDS_BYTES as u64 {
            let into = &mut fields.bytes[..span as usize];
            // What follows the last field can be unreadable, and a capture of an earlier version has the fields alone.
            let is_read = self.read_into(structure.wrapping_add(first), into).is_ok();
            fields.known = if is_read { span as usize } else { 0 };
        }
        fields
    }

    /// Reads a string up to its zero byte; one that is longer than `limit` bytes is cut off.
    pub(crate) fn string(&self, address: u64, limit: usize) -> Result<String, ReadError> {
        let mut string = Vec::new();
        self.for_each_chunk(address, limit, |chunk| {
            let end = chunk.iter().position(|byte| *byte == 0);
            string.extend_from_slice(&chunk[..end.unwrap_or(chunk.len())]);
            end.is_none()
        })?;
        Ok(text_of(&string).into_owned())
    }

    /// Reads a string of UTF-16 code units up to its zero; one that is longer than `limit` bytes is cut off.
    pub(crate) fn utf16_string(&self, address: u64, limit: usize) -> Result<String, ReadError> {
        let mut units = Vec::new();
        self.for_each_chunk(address, limit, |chunk| {
            for pair in chunk.chunks_exact(2) {
                match u16::from_le_bytes([pair[0], pair[1]]) {
                    0 => return false,
                    unit => units.push(unit),
                }
            }
            true
        })?;
        Ok(text_of_utf16(units))
    }

    /// Passes what follows `address` to `goes_on`, until it returns false or `limit` bytes are read. No chunk crosses the end of
    /// a page, behind which memory can be unreadable.
    fn for_each_chunk(
        &self,
        address: u64,
        limit: usize,
        mut goes_on: impl FnMut(&[u8]) -> bool,
    ) -> Result<(), ReadError> {
        const CHUNK_BYTES: u64 = 256;
        let mut position = address;
        let end = address.saturating_add(limit as u64);
        while position < end {
            let chunk_end = (position / CHUNK_BYTES + 1).saturating_mul(CHUNK_BYTES).min(end);
            let chunk = self.bytes(position, (chunk_end - position) as usize)?;
            if !goes_on(&chunk) {
                return Ok(());
            }
            position = chunk_end;
        }
        Ok(())
    }
}

/// Fields of a structure. One that was not read with the others is read alone.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    memory: &'a LimitedMemory,
    structure: u64,
    /// The offset of `bytes` in the structure.
    first: u64,
    bytes: [u8; MAX_FIELDS_BYTES],
    /// How many of `bytes` were read.
    known: usize,
}

impl Fields<'_> {
    pub(crate) fn u8(&self, offset: u64) -> Result<u8, ReadError> {
        self.array(offset).map(|[byte]| byte)
    }

    pub(crate) fn u16(&self, offset: u64) -> Result<u16, ReadError> {
        self.array(offset).map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&self, offset: u64) -> Result<u32, ReadError> {
        self.array(offset).map(u32::from_le_bytes)
    }

    /// Eight bytes: a number or a pointer.
    pub(crate) fn u64(&self, offset: u64) -> Result<u64, ReadError> {
        self.array(offset).map(u64::from_le_bytes)
    }

    pub(crate) fn array<const N: usize>(&self, offset: u64) -> Result<[u8; N], ReadError> {
        let start = offset.checked_sub(self.first).and_then(|start| usize::try_from(start).ok());
        let known = start.and_then(|start| self.bytes[..self.known].get(start..)?.first_chunk::<N>());
        known.map_or_else(|| self.memory.array(self.structure.wrapping_add(offset)), |bytes| Ok(*bytes))
    }
}

/// The memory from an address on, as the bytes of an image.
#[derive(Debug)]
pub(crate) struct MemoryImage {
    pub(crate) memory: Arc<LimitedMemory>,
    pub(crate) base: u64,
}

impl ReadAt for MemoryImage {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ParseError> {
        let address = self.base.checked_add(offset).ok_or(ParseError::Malformed)?;
        Ok(self.memory.read_into(address, buffer)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_memory::TestMemory;

    fn limited(limits: ReadLimits) -> LimitedMemory {
        let mut memory = TestMemory::default();
        memory.write(0x1000, b"name\0");
        memory.write(0x1100, &[0x61, 0, 0xe9, 0, 0, 0]);
        memory.write(0x1ff0, &[b'x'; 16]);
        LimitedMemory::new(Arc::new(memory), limits)
    }

    #[test]
    fn a_lookup_ends_at_its_limits_and_the_next_one_begins_anew() {
        let memory = limited(ReadLimits { reads: 2, bytes: 100 });
        assert_eq!(memory.u8(0x1000), Ok(b'n'));
        assert_eq!(memory.u8(0x1001), Ok(b'a'));
        assert_eq!(memory.u8(0x1000), Err(ReadError::LimitExceeded));
        memory.begin();
        assert_eq!(memory.cost().reads, 0);
        assert_eq!(memory.bytes(0x1000, 101), Err(ReadError::LimitExceeded));
    }

    #[test]
    fn near_fields_are_read_together_and_others_alone() {
        let memory = limited(ReadLimits { reads: 3, bytes: 1000 });
        let fields = memory.fields(0x1ff0, &[4, 0]);
        assert_eq!((fields.u32(0), fields.u64(4)), (Ok(0x7878_7878), Ok(0x7878_7878_7878_7878)));
        assert_eq!(memory.cost().reads, 1);
        // Behind the page is no memory.
        let fields = memory.fields(0x1ff0, &[8, 12]);
        assert_eq!(
            (fields.u64(8), fields.u64(12)),
            (Ok(0x7878_7878_7878_7878), Err(ReadError::LimitExceeded))
        );
        memory.begin();
        let fields = memory.fields(0x1ff0, &[0, u64::MAX - 0x1ff0]);
        assert_eq!(fields.u64(u64::MAX - 0x1ff0), Err(ReadError::NotMapped));
    }

    #[test]
    fn only_addresses_of_user_space_are_read() {
        let memory = limited(ReadLimits::default());
        for address in [0, USER_SPACE_END - 4, USER_SPACE_END, u64::MAX, u64::MAX - 7] {
            assert_eq!(memory.u64(address), Err(ReadError::NotMapped), "{address:x}");
        }
        assert_eq!(memory.cost().reads, 0, "the process is not asked");
    }

    #[test]
    fn strings_end_at_their_zero_or_at_the_limit() {
        let memory = limited(ReadLimits::default());
        assert_eq!(memory.string(0x1000, 100).as_deref(), Ok("name"));
        assert_eq!(memory.string(0x1000, 2).as_deref(), Ok("na"));
        assert_eq!(memory.utf16_string(0x1100, 100).as_deref(), Ok("a\u{e9}"));
        assert_eq!(memory.string(0x1ff0, 16).as_deref(), Ok("xxxxxxxxxxxxxxxx"));
        assert_eq!(
            memory.string(0x1ff0, 17),
            Err(ReadError::NotMapped),
            "no zero before the end of the page"
        );
    }
}
