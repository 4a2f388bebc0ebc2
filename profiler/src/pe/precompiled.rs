//! The header of the precompiled .NET code in an image (ReadyToRun): which tables there are, and where.
//!
//! Source: dotnet/runtime, `docs/design/coreclr/botr/readytorun-format.md`.

use super::{
    Directory,
    bytes::Bytes,
    pieces::{Pieces, Span},
};
use crate::elf::Defect;

/// The runtime has defined a quarter of it.
const MAX_SECTIONS: u32 = 96;

const HEADER_BYTES: u64 = 16;
const SECTION_BYTES: u64 = 12;

/// The table of all functions, in the order of their addresses.
pub(crate) const RUNTIME_FUNCTIONS: u32 = 102;

/// The tables by their kind, unless it is no header of precompiled code.
pub(crate) fn read_header(
    pieces: &mut Pieces,
    header: Span,
) -> Result<Option<Vec<(u32, Directory)>>, Defect> {
    let fields: [u8; HEADER_BYTES as usize] = pieces.array(header)?;
    let mut fields = Bytes::at(&fields, 0);
    if fields.array()? != *b"RTR\0" {
        return Ok(None);
    }
    fields.skip(8);
    let count = fields.u32()?;
    if count > MAX_SECTIONS {
        return Err(Defect::TooLarge);
    }
    let mut sections = Vec::new();
    for index in 0..u64::from(count) {
        let section = header.from(HEADER_BYTES + index * SECTION_BYTES)?;
        let section: [u8; SECTION_BYTES as usize] = pieces.array(section)?;
        let mut fields = Bytes::at(&section, 0);
        sections.push((fields.u32()?, Directory::read(&mut fields)?));
    }
    Ok(Some(sections))
}
