//! A gimli reader of DWARF sections that spends the work budget.

use std::{borrow::Cow, sync::Arc};

use gimli::{EndianArcSlice, Error, LittleEndian, ReaderOffsetId};
use profiler_binary_reader::{ParseError, WorkBudget};

/// A reader of one section. Reads fail with [`Error::Io`] when the budget is exhausted. Clones share the bytes, also across
/// threads.
#[derive(Clone, Debug)]
pub(crate) struct Reader {
    bytes: EndianArcSlice<LittleEndian>,
    budget: Arc<WorkBudget>,
}

impl Reader {
    pub(crate) fn new(bytes: Arc<[u8]>, budget: Arc<WorkBudget>) -> Self {
        Self { bytes: EndianArcSlice::new(bytes, LittleEndian), budget }
    }

    fn spend(&self, bytes: usize) -> gimli::Result<()> {
        self.budget.spend_on_reading(bytes as u64).then_some(()).ok_or(Error::Io)
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
        self.spend(found.unwrap_or(self.len()))?;
        found.ok_or_else(|| Error::UnexpectedEof(self.offset_id()))
    }

    fn skip(&mut self, len: usize) -> gimli::Result<()> {
        self.spend(0)?;
        self.bytes.skip(len)
    }

    fn split(&mut self, len: usize) -> gimli::Result<Self> {
        self.spend(0)?;
        Ok(Self { bytes: self.bytes.split(len)?, budget: Arc::clone(&self.budget) })
    }

    fn to_slice(&self) -> gimli::Result<Cow<'_, [u8]>> {
        self.spend(self.len())?;
        self.bytes.to_slice()
    }

    fn to_string(&self) -> gimli::Result<Cow<'_, str>> {
        self.spend(self.len())?;
        self.bytes.to_string()
    }

    fn to_string_lossy(&self) -> gimli::Result<Cow<'_, str>> {
        self.spend(self.len())?;
        self.bytes.to_string_lossy()
    }

    fn read_slice(&mut self, buffer: &mut [u8]) -> gimli::Result<()> {
        self.spend(buffer.len())?;
        self.bytes.read_slice(buffer)
    }
}

/// Maps an error of gimli. The bytes are in memory: only an exhausted budget is an I/O error.
pub(crate) fn parse_error(error: &Error) -> ParseError {
    if *error == Error::Io { ParseError::TooLarge } else { ParseError::Malformed }
}

#[cfg(test)]
mod tests {
    use gimli::Reader as _;

    use profiler_binary_reader::WORK_PER_READ;

    use super::*;

    fn reader(work: u64) -> Reader {
        Reader::new((0..100_u8).collect(), Arc::new(WorkBudget::with_work_limit(work)))
    }

    #[test]
    fn reading_ends_with_the_budget() {
        let mut reader = reader(2 * (WORK_PER_READ + 1));
        assert_eq!(reader.read_u8(), Ok(0));
        assert_eq!(reader.clone().read_u8(), Ok(1));
        assert_eq!(reader.read_u8(), Err(Error::Io));
        assert_eq!(reader.skip(1), Err(Error::Io));
    }

    #[test]
    fn searching_costs_the_searched_bytes() {
        let reader = reader(2 * WORK_PER_READ + 149);
        assert_eq!(reader.find(50), Ok(50));
        assert_eq!(reader.to_slice().unwrap_err(), Error::Io);
    }
}
