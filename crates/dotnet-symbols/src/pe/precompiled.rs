//! The header of the precompiled .NET code in an image (ReadyToRun): which tables there are, and where.
//!
//! Source: dotnet/runtime, `docs/design/coreclr/botr/readytorun-format.md`.

use super::{Directory, Pe};
use profiler_binary_reader::{ByteCursor, ByteRange, PagedImage, ParseError};

/// The runtime has defined a quarter of it.
const MAX_SECTIONS: u32 = 96;

const SECTION_BYTES: u64 = 12;

/// The table of all functions, in the order of their addresses.
pub const RUNTIME_FUNCTIONS: u32 = 102;

/// The header of precompiled code.
pub struct Header {
    /// Major and minor.
    pub version: (u16, u16),
    pub tables: Tables,
}

/// Tables by their kind.
pub struct Tables(Vec<(u32, Directory)>);

impl Header {
    /// Unless it is another kind of header.
    pub fn read(pieces: &mut PagedImage, header: ByteRange) -> Result<Option<Self>, ParseError> {
        const VERSION_BYTES: u64 = 8;
        let bytes: [u8; VERSION_BYTES as usize] = pieces.read_array(header)?;
        let mut fields = ByteCursor::new(&bytes, 0);
        if fields.array()? != *b"RTR\0" {
            return Ok(None);
        }
        let version = (fields.u16()?, fields.u16()?);
        Ok(Some(Self { version, tables: Tables::read(pieces, header.skip(VERSION_BYTES)?)? }))
    }
}

impl Tables {
    /// What follows the version in a header; components of a composite image have that alone.
    pub fn read(pieces: &mut PagedImage, at: ByteRange) -> Result<Self, ParseError> {
        const COUNT_BYTES: u64 = 8;
        let fields: [u8; COUNT_BYTES as usize] = pieces.read_array(at)?;
        let mut fields = ByteCursor::new(&fields, 0);
        let (_flags, count) = (fields.u32()?, fields.u32()?);
        if count > MAX_SECTIONS {
            return Err(ParseError::TooLarge);
        }
        let mut sections = Vec::new();
        for index in 0..u64::from(count) {
            let section = at.skip(COUNT_BYTES + index * SECTION_BYTES)?;
            let section: [u8; SECTION_BYTES as usize] = pieces.read_array(section)?;
            let mut fields = ByteCursor::new(&section, 0);
            sections.push((fields.u32()?, Directory::read(&mut fields)?));
        }
        Ok(Self(sections))
    }

    pub fn directory(&self, kind: u32) -> Option<Directory> {
        self.0.iter().find(|(found, _)| *found == kind).map(|(_, place)| *place)
    }

    /// Empty where there is no such table.
    pub fn span(&self, kind: u32, pe: &Pe) -> Result<ByteRange, ParseError> {
        self.directory(kind).map_or(Ok(ByteRange::default()), |place| pe.span(place))
    }
}
