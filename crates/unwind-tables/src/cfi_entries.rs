//! Reads a section of call frame information entry by entry, in blocks, so that no large section is in memory as a whole.

use std::{
    hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState},
    sync::LazyLock,
};

use profiler_binary_reader::{Image, ParseError};
use profiler_elf_symbols::{CallFrameKind, CallFrames};

use crate::cfi_excerpt::{Cie, Excerpt};

/// The unit of reads.
const BLOCK_BYTES: usize = 64 << 10;

/// The longest part of an entry that is read. The longest real entries have some kilobytes.
pub(crate) const MAX_ENTRY_BYTES: usize = 256 << 10;

/// The length that announces one of 64 bits (DWARF 5, section 7.4).
const LENGTH_64_BIT: u32 = u32::MAX;

/// The keys of content hashes: a target must not know which contents have equal hashes.
pub(crate) static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// The bytes of a length and an id of 64 bits.
const HEADER_BYTES: usize = 4 + 8 + 8;

/// The bytes of the length, the CIE pointer, the address and the size of an FDE.
const MAX_FIXED_FDE_BYTES: usize = HEADER_BYTES + 8 + 8;

/// The length and the id of an entry.
#[derive(Clone, Copy)]
struct Header([u8; HEADER_BYTES]);

impl Header {
    fn u32_at(self, at: usize) -> u32 {
        self.0.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u32::from_le_bytes(*bytes))
    }

    fn u64_at(self, at: usize) -> u64 {
        self.0.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }
}

/// A CIE or an FDE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The offset in the section.
    pub(crate) offset: u64,
    /// The bytes, with those of the length.
    pub(crate) bytes: u64,
    /// The offset in the entry of the CIE id or pointer, and its bytes.
    pub(crate) id_offset: usize,
    pub(crate) id_bytes: usize,
    /// The offset in the section of the CIE of an FDE; `None` for a CIE.
    pub(crate) cie: Option<u64>,
}

/// The position in a section, and the block around it.
pub(crate) struct EntryReader<'a> {
    kind: CallFrameKind,
    content: &'a Image,
    /// The bytes that were read and are not passed yet, and the offset of the first one.
    block: Vec<u8>,
    block_offset: u64,
    next_offset: u64,
    hasher: DefaultHasher,
}

/// A section, the keyed hash of its content, and how much code it describes.
pub(crate) struct HashedSection {
    pub(crate) frames: CallFrames,
    pub(crate) content_hash: u64,
    /// The number of FDEs, and the sum of the lengths of their functions; without those of rare encodings.
    pub(crate) functions: u64,
    pub(crate) function_bytes: u64,
}

impl HashedSection {
    /// Reads the section for its hash and the lengths of its functions.
    pub(crate) fn read(frames: CallFrames) -> Result<Self, ParseError> {
        let mut entries = EntryReader::new(&frames);
        let (functions, function_bytes) = entries.sum_functions(&frames)?;
        let content_hash = entries.finish()?;
        Ok(Self { frames, content_hash, functions, function_bytes })
    }
}

/// The sections of a file are not loaded at the same address in files with equal contents.
impl Hash for HashedSection {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.frames.kind as u8, self.frames.address.0, self.content_hash).hash(state);
    }
}

impl<'a> EntryReader<'a> {
    pub(crate) fn new(section: &'a CallFrames) -> Self {
        Self {
            kind: section.kind,
            content: &section.content,
            block: Vec::new(),
            block_offset: 0,
            next_offset: 0,
            hasher: KEYS.build_hasher(),
        }
    }

    /// The next entry; `None` at the end.
    ///
    /// # Errors
    /// [`ParseError::Malformed`] where the start of the next entry is unknown.
    pub(crate) fn next(&mut self) -> Result<Option<Entry>, ParseError> {
        while self.next_offset < self.content.length() {
            let offset = self.next_offset;
            let header = self.header_at(offset)?;
            let (length_bytes, length) = match header.u32_at(0) {
                LENGTH_64_BIT => (12, header.u64_at(4)),
                length => (4, length.into()),
            };
            let end = length.checked_add(offset + length_bytes).filter(|end| *end <= self.content.length());
            self.next_offset = end.ok_or(ParseError::Malformed)?;
            if length > 0 {
                return self.entry(offset, header, length_bytes as usize).map(Some);
            }
            if self.kind == CallFrameKind::EhFrame {
                return Ok(None);
            }
            // Some assemblers write empty entries into `.debug_frame`.
        }
        Ok(None)
    }

    /// The number of functions up to the first malformed entry, and the sum of their lengths.
    fn sum_functions(&mut self, section: &CallFrames) -> Result<(u64, u64), ParseError> {
        let (mut functions, mut bytes) = (0, 0_u64);
        // The CIE before is nearly always that of the FDE.
        let mut length_bytes = None;
        while let Ok(Some(entry)) = self.next() {
            if entry.cie.is_none() {
                let cie = Cie { entry, bytes: self.bytes_of(entry)?.into() };
                length_bytes = Excerpt::of(section).address_bytes(&cie);
                continue;
            }
            let Some(length_bytes) = length_bytes else { continue };
            let at = entry.id_offset + entry.id_bytes + length_bytes;
            let fixed = (at + length_bytes).min(MAX_FIXED_FDE_BYTES);
            if entry.bytes < fixed as u64 {
                continue;
            }
            let mut length = [0; 8];
            let stored = self.read(entry.offset, fixed)?.get(at..).unwrap_or_default();
            length.iter_mut().zip(stored).for_each(|(to, from)| *to = *from);
            functions += 1;
            bytes = bytes.saturating_add(u64::from_le_bytes(length));
        }
        Ok((functions, bytes))
    }

    fn entry(&self, offset: u64, header: Header, id_offset: usize) -> Result<Entry, ParseError> {
        let bytes = self.next_offset - offset;
        let is_64_bit = self.kind == CallFrameKind::DebugFrame && id_offset > 4;
        let id_bytes = if is_64_bit { 8 } else { 4 };
        if bytes < (id_offset + id_bytes) as u64 {
            return Err(ParseError::Malformed);
        }
        let id = if is_64_bit { header.u64_at(id_offset) } else { header.u32_at(id_offset).into() };
        let cie = match self.kind {
            CallFrameKind::EhFrame if id == 0 => None,
            // The distance back; it may lead before the section, where no CIE is found.
            CallFrameKind::EhFrame => Some((offset + id_offset as u64).wrapping_sub(id)),
            CallFrameKind::DebugFrame if id == u64::from(u32::MAX) && !is_64_bit || id == u64::MAX => None,
            CallFrameKind::DebugFrame => Some(id),
        };
        Ok(Entry { offset, bytes, id_offset, id_bytes, cie })
    }

    /// The first bytes of an entry. Behind the end of the section they are 0.
    fn header_at(&mut self, offset: u64) -> Result<Header, ParseError> {
        let rest = self.content.length() - offset;
        let bytes = usize::try_from(rest).map_or(HEADER_BYTES, |rest| rest.min(HEADER_BYTES));
        if bytes < size_of::<u32>() {
            return Err(ParseError::Malformed);
        }
        let mut header = [0; HEADER_BYTES];
        header[..bytes].copy_from_slice(self.read(offset, bytes)?);
        Ok(Header(header))
    }

    /// The bytes of the entry that was read last, at most [`MAX_ENTRY_BYTES`].
    pub(crate) fn bytes_of(&mut self, entry: Entry) -> Result<&[u8], ParseError> {
        self.read(entry.offset, entry.bytes.min(MAX_ENTRY_BYTES as u64) as usize)
    }

    /// Reads the rest of the section; the hash of the whole content.
    pub(crate) fn finish(mut self) -> Result<u64, ParseError> {
        self.pass(self.content.length())?;
        Ok(self.hasher.finish())
    }

    /// The bytes from `offset`, which is not before that of the last call.
    fn read(&mut self, offset: u64, bytes: usize) -> Result<&[u8], ParseError> {
        let end = self.block_offset + self.block.len() as u64;
        if end < offset.saturating_add(bytes as u64) {
            self.pass(offset)?;
            let start = (offset - self.block_offset) as usize;
            self.block.drain(..start);
            self.block_offset = offset;
            self.append(bytes.max(BLOCK_BYTES))?;
        }
        let start = offset.checked_sub(self.block_offset).ok_or(ParseError::Malformed)? as usize;
        self.block.get(start..start + bytes).ok_or(ParseError::Malformed)
    }

    /// Reads blocks until one contains `offset`, or ends there.
    fn pass(&mut self, offset: u64) -> Result<(), ParseError> {
        while self.block_offset + (self.block.len() as u64) < offset {
            self.block_offset += self.block.len() as u64;
            self.block.clear();
            self.append(BLOCK_BYTES)?;
        }
        Ok(())
    }

    /// Reads until the block has `bytes` bytes, or the section ends.
    fn append(&mut self, bytes: usize) -> Result<(), ParseError> {
        let read = self.block.len();
        let rest = self.content.length() - self.block_offset;
        let bytes = usize::try_from(rest).map_or(bytes, |rest| rest.min(bytes));
        self.block.resize(bytes.max(read), 0);
        let new = self.block.get_mut(read..).unwrap_or_default();
        self.content.read_into(self.block_offset + read as u64, new)?;
        self.hasher.write(new);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use profiler_addresses::ElfAddress;

    use super::*;

    fn section(kind: CallFrameKind, bytes: Vec<u8>) -> CallFrames {
        CallFrames { kind, content: Image::Memory(bytes), address: ElfAddress(0) }
    }

    /// The entries with their bytes, and whether the section ends behind the last one.
    fn read(section: &CallFrames) -> (Vec<(Entry, Vec<u8>)>, bool) {
        let mut reader = EntryReader::new(section);
        let mut entries = Vec::new();
        loop {
            match reader.next() {
                Ok(Some(entry)) => entries.push((entry, reader.bytes_of(entry).unwrap().to_vec())),
                end => {
                    assert_eq!(reader.finish().unwrap(), EntryReader::new(section).finish().unwrap());
                    return (entries, end.is_ok());
                }
            }
        }
    }

    fn entry(id: u32, body: usize) -> Vec<u8> {
        let length = u32::try_from(body + 4).unwrap();
        [&length.to_le_bytes()[..], &id.to_le_bytes(), &vec![7; body]].concat()
    }

    #[test]
    fn entries_that_cross_the_end_of_a_block_are_read_whole() {
        for first in BLOCK_BYTES - 24..BLOCK_BYTES + 4 {
            let last = entry(u32::try_from(first + 12).unwrap(), 40);
            let bytes = [entry(0, first), last.clone()].concat();
            let (entries, is_end) = read(&section(CallFrameKind::EhFrame, bytes));
            assert!(is_end);
            assert_eq!(entries.len(), 2);
            assert_eq!((entries[1].0.cie, &entries[1].1), (Some(0), &last), "{first}");
        }
    }

    #[test]
    fn an_entry_longer_than_the_limit_is_read_up_to_it() {
        let bytes = [entry(0, 3 * MAX_ENTRY_BYTES), entry(0, 8)].concat();
        let (entries, _) = read(&section(CallFrameKind::EhFrame, bytes));
        assert_eq!(entries[0].1.len(), MAX_ENTRY_BYTES);
        assert_eq!(entries[1].0.offset, 3 * MAX_ENTRY_BYTES as u64 + 8);
    }

    #[test]
    fn ids_of_both_sections_and_formats_are_read() {
        let long = |id: u64| {
            let length = [u32::MAX.to_le_bytes(), 16_u32.to_le_bytes(), [0; 4]].concat();
            [&length[..], &id.to_le_bytes(), &[0; 8]].concat()
        };
        let bytes = [entry(u32::MAX, 4), long(u64::MAX), vec![0; 4], long(12), entry(12, 4)].concat();
        let (entries, is_end) = read(&section(CallFrameKind::DebugFrame, bytes.clone()));
        assert!(is_end);
        let cies: Vec<Option<u64>> = entries.iter().map(|(entry, _)| entry.cie).collect();
        assert_eq!(cies, [None, None, Some(12), Some(12)]);
        let (entries, _) = read(&section(CallFrameKind::EhFrame, [entry(0, 4), vec![0; 4], bytes].concat()));
        assert_eq!(entries.len(), 1, "an empty entry ends `.eh_frame`");
    }

    #[test]
    fn a_truncated_entry_ends_the_section() {
        let whole = [entry(0, 8), entry(20, 8)].concat();
        for length in 17..whole.len() {
            let (entries, is_end) = read(&section(CallFrameKind::EhFrame, whole[..length].to_vec()));
            assert_eq!((entries.len(), is_end), (1, false));
        }
    }
}
