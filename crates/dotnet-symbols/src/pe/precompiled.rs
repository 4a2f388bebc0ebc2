//! Parses the ReadyToRun header of a PE file: the version and the table of sections.
//!
//! Source: dotnet/runtime, `docs/design/coreclr/botr/readytorun-format.md`.

use profiler_binary_reader::{ByteCursor, ByteRange, PagedImage, ParseError};

use super::{Directory, Pe};

/// Sections per header. The format defines about 25 types.
const MAX_SECTIONS: u32 = 96;

const SECTION_BYTES: u64 = 12;

/// The type of the section with all functions, sorted by address (`READYTORUN_SECTION_RUNTIME_FUNCTIONS`).
pub const RUNTIME_FUNCTIONS: u32 = 102;

/// The ReadyToRun header.
#[derive(Debug)]
pub struct ReadyToRunHeader {
    /// Major and minor version of the format.
    pub version: (u16, u16),
    /// The sections of the precompiled code.
    pub sections: SectionTable,
}

/// Sections by type (`READYTORUN_SECTION`).
#[derive(Debug)]
pub struct SectionTable(Vec<(u32, Directory)>);

impl ReadyToRunHeader {
    /// Parses the header. `None` is a header of another kind, such as that of NGEN.
    ///
    /// # Errors
    /// [`ParseError`] when the file ends too early or has too many sections.
    pub fn read(image: &mut PagedImage, header: ByteRange) -> Result<Option<Self>, ParseError> {
        const VERSION_BYTES: u64 = 8;
        let bytes: [u8; VERSION_BYTES as usize] = image.read_array(header)?;
        let mut fields = ByteCursor::new(&bytes, 0);
        if fields.array()? != *b"RTR\0" {
            return Ok(None);
        }
        let version = (fields.u16()?, fields.u16()?);
        Ok(Some(Self { version, sections: SectionTable::read(image, header.skip(VERSION_BYTES)?)? }))
    }
}

impl SectionTable {
    /// Parses flags and sections. The components of a composite image have a header of these alone.
    pub(crate) fn read(image: &mut PagedImage, at: ByteRange) -> Result<Self, ParseError> {
        const COUNT_BYTES: u64 = 8;
        let fields: [u8; COUNT_BYTES as usize] = image.read_array(at)?;
        let mut fields = ByteCursor::new(&fields, 0);
        let (_flags, count) = (fields.u32()?, fields.u32()?);
        if count > MAX_SECTIONS {
            return Err(ParseError::TooLarge);
        }
        let mut sections = Vec::new();
        for index in 0..u64::from(count) {
            let section = at.skip(COUNT_BYTES + index * SECTION_BYTES)?;
            let section: [u8; SECTION_BYTES as usize] = image.read_array(section)?;
            let mut fields = ByteCursor::new(&section, 0);
            sections.push((fields.u32()?, Directory::read(&mut fields)?));
        }
        Ok(Self(sections))
    }

    /// The address range of the section of a type.
    pub fn directory(&self, kind: u32) -> Option<Directory> {
        self.0.iter().find(|(found, _)| *found == kind).map(|(_, directory)| *directory)
    }

    /// The bytes of the file that hold the section of a type; empty where the image has none.
    pub(crate) fn span(&self, kind: u32, pe: &Pe) -> Result<ByteRange, ParseError> {
        self.directory(kind).map_or(Ok(ByteRange::default()), |directory| pe.span(directory))
    }
}
