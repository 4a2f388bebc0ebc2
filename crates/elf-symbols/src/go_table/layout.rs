//! The header of a Go function table: its version, and where its parts are.

use profiler_binary_reader::{ByteCursor, Image, ParseError};

use super::locate::Location;

/// The versions of the format, by the version of Go 1 that introduced them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    V2,
    V16,
    V18,
    V20,
}

impl Version {
    pub(super) fn from_magic(magic: u32) -> Option<Self> {
        match magic {
            0xffff_fffb => Some(Self::V2),
            0xffff_fffa => Some(Self::V16),
            0xffff_fff0 => Some(Self::V18),
            0xffff_fff1 => Some(Self::V20),
            _ => None,
        }
    }

    /// The size of a word in the list of functions: an address, or an offset from the start of the code.
    pub(super) fn entry_word_bytes(self) -> u64 {
        if matches!(self, Self::V18 | Self::V20) { 4 } else { 8 }
    }

    /// The number of words of a function's record between its start and the byte with its kind.
    pub(super) fn record_words(self) -> usize {
        match self {
            Self::V2 => 7,
            // The first file of the unit.
            Self::V16 | Self::V18 => 8,
            // The line of the function's beginning.
            Self::V20 => 9,
        }
    }

    /// The size of the first field of a function's record: its start.
    pub(super) fn record_start_bytes(self) -> u64 {
        self.entry_word_bytes()
    }
}

/// The places of the parts of a table, as offsets from its start.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) version: Version,
    /// The size of an instruction's unit, bytes: distances between instructions are multiples of it.
    pub(super) quantum: u8,
    /// The number of functions.
    pub(super) functions: u64,
    /// The address of the code of Go as the header has it; 0 if it has none.
    pub(super) text: u64,
    pub(super) names: u64,
    /// Indexes of files by compilation unit, from 1.16 on.
    pub(super) units: Option<u64>,
    pub(super) files: u64,
    pub(super) pc_values: u64,
    /// The base of the offsets of records.
    pub(super) records: u64,
    pub(super) entries: u64,
}

/// The size of the longest header.
const HEADER_BYTES: u64 = 8 + 8 * WORD_BYTES;
const WORD_BYTES: u64 = 8;

/// The offset of the word with the address of the code, from 1.18 on.
pub(super) const TEXT_OFFSET: u64 = 8 + 2 * WORD_BYTES;

/// The header up to the size of pointers, without its first byte, as all versions have it on 64-bit machines.
pub(super) fn is_header(bytes: &[u8]) -> bool {
    let Some(([magic @ .., zero, other_zero, quantum, pointer_bytes], _)) = bytes.split_first_chunk::<8>()
    else {
        return false;
    };
    let magic = magic.first_chunk().map(|magic| u32::from_le_bytes(*magic));
    magic.is_some_and(|magic| Version::from_magic(magic).is_some())
        && (*zero, *other_zero) == (0, 0)
        && matches!(quantum, 1 | 2 | 4)
        && *pointer_bytes == 8
}

impl Layout {
    pub(super) fn read(image: &Image, place: &Location) -> Result<Self, ParseError> {
        let bytes = place.read_up_to(image, 0, HEADER_BYTES)?;
        if !is_header(&bytes) {
            return Err(ParseError::Malformed);
        }
        let mut cursor = ByteCursor::new(&bytes, 0);
        let version = Version::from_magic(cursor.u32()?).ok_or(ParseError::Malformed)?;
        let quantum = bytes[6];
        let mut words = ByteCursor::new(&bytes, 8);
        let functions = words.u64()?;
        let mut layout = match version {
            Version::V2 => {
                let entries = 8 + WORD_BYTES;
                Self {
                    version,
                    quantum,
                    functions,
                    text: 0,
                    names: 0,
                    units: None,
                    files: 0,
                    pc_values: 0,
                    records: 0,
                    entries,
                }
            }
            Version::V16 | Version::V18 | Version::V20 => {
                let _files = words.u64()?;
                let text = if version == Version::V16 { 0 } else { words.u64()? };
                let (names, units, files) = (words.u64()?, words.u64()?, words.u64()?);
                let (pc_values, records) = (words.u64()?, words.u64()?);
                Self {
                    version,
                    quantum,
                    functions,
                    text,
                    names,
                    units: Some(units),
                    files,
                    pc_values,
                    records,
                    entries: records,
                }
            }
        };
        let words = layout.functions.checked_mul(2).and_then(|words| words.checked_add(1));
        let entries_bytes = words.and_then(|words| words.checked_mul(version.entry_word_bytes()));
        let entries_end = entries_bytes.and_then(|bytes| bytes.checked_add(layout.entries));
        let entries_end = entries_end.filter(|end| *end <= place.bytes).ok_or(ParseError::Malformed)?;
        if version == Version::V2 {
            // The list of files is behind the functions.
            let offset = place.read(image, entries_end, 4)?;
            layout.files = ByteCursor::new(&offset, 0).u32()?.into();
        }
        Ok(layout)
    }
}
