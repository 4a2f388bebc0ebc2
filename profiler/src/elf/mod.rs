//! One ELF file from its bytes: segments, build id, sections, symbols, debug links, call frame information.
//!
//! Nothing here trusts the file. Every size it states is checked against its length and a limit before
//! memory is taken, and what does not fit is a [`Defect`].

mod build_id;
mod call_frames;
mod debug_link;
mod export;
mod function_ranges;
mod header;
mod image;
mod mini_debug_info;
mod section;
mod segment;
mod symbol_table;
#[cfg(test)]
pub(crate) mod test_file;

pub(crate) use build_id::BuildId;
pub(crate) use call_frames::{CallFrameKind, CallFrames};
pub(crate) use debug_link::{AlternateLink, DebugLink, crc32};
pub(crate) use function_ranges::FunctionRanges;
pub(crate) use image::Image;
pub(crate) use section::{Section, Sections};
pub(crate) use segment::Layout;
pub(crate) use symbol_table::{SymbolMatch, SymbolTable, TableKind};

use std::ops::Range;

use object::elf::Machine;

use self::{header::Header, segment::Segment};
use crate::address::{ElfAddress, FileOffset, RuntimeAddress};

/// Why a file cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    /// No ELF file, or not one of this machine: another byte order, word size or architecture.
    NotElf,
    /// It contradicts itself, ends too early, or cannot be read.
    Malformed,
    /// It is beyond a limit of the profiler.
    TooLarge,
}

/// An ELF file of this machine.
///
/// Holds what every mapping of it needs; sections and symbols are read when they are asked for.
#[derive(Debug)]
pub(crate) struct Elf {
    image: Image,
    header: Header,
    segments: Vec<Segment>,
    eh_frame_header: Option<Segment>,
    build_id: Option<BuildId>,
}

impl Elf {
    /// Reads the headers, the segments and the build id.
    pub(crate) fn parse(image: Image) -> Result<Self, Defect> {
        let header = Header::read(&image)?;
        let programs = header.program_headers(&image)?;
        let build_id = build_id::in_segments(&image, &programs);
        let segments = segment::loaded(&programs);
        let eh_frame_header = segment::eh_frame_header(&programs);
        let mut elf = Self { image, header, segments, eh_frame_header, build_id };
        if elf.build_id.is_none() {
            // A debug file keeps the notes as a section; what its segments state is not in it.
            elf.build_id =
                elf.sections().ok().and_then(|sections| build_id::in_sections(&elf.image, &sections));
        }
        Ok(elf)
    }

    /// The bytes it was read from.
    pub(crate) fn image(&self) -> &Image {
        &self.image
    }

    /// The build id, where the linker left one.
    pub(crate) fn build_id(&self) -> Option<&BuildId> {
        self.build_id.as_ref()
    }

    /// The address in this file of code that runs at `address`, in a mapping of this file's bytes from
    /// `mapping_offset` on to the memory from `mapping_start` on.
    pub(crate) fn address(
        &self,
        mapping_start: RuntimeAddress,
        mapping_offset: FileOffset,
        address: RuntimeAddress,
    ) -> Option<ElfAddress> {
        segment::elf_address(&self.segments, mapping_start, mapping_offset, address)
    }

    /// Where its segments are.
    pub(crate) fn layout(&self) -> Layout {
        Layout::new(self.segments.clone())
    }

    /// For which machine it is.
    pub(crate) fn machine(&self) -> Machine {
        self.header.machine
    }

    /// The addresses of its code.
    pub(crate) fn code(&self) -> impl Iterator<Item = Range<u64>> {
        self.segments.iter().filter_map(Segment::code)
    }

    /// Where in the file the first values of its variables are, and how many bytes.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (FileOffset, u64)> {
        self.segments.iter().filter_map(Segment::variables)
    }

    /// The section headers. A file may have none.
    pub(crate) fn sections(&self) -> Result<Sections, Defect> {
        Sections::read(&self.image, &self.header)
    }
}

#[cfg(test)]
mod tests {
    use super::{test_file::TestFile, *};

    /// Everything that can be asked of a file.
    fn ask_everything(bytes: Vec<u8>) {
        let Ok(elf) = Elf::parse(Image::Memory(bytes)) else { return };
        let address = elf.address(RuntimeAddress(0x1000), FileOffset(0), RuntimeAddress(0x1010));
        let address = address.unwrap_or(ElfAddress(0x1010));
        let Ok(sections) = elf.sections() else { return };
        for kind in [TableKind::Static, TableKind::Dynamic] {
            if let Ok(Some(table)) = SymbolTable::load(&elf, &sections, kind, &mut { u64::MAX }) {
                let _ = table.find(&elf, address);
            }
        }
        let _ = elf.debug_link(&sections);
        let _ = elf.alternate_link(&sections);
        let _ = elf.mini_debug_info(&sections);
    }

    #[test]
    fn a_file_that_ends_anywhere_is_an_answer_and_no_panic() {
        let bytes = TestFile::typical().bytes();
        for length in 0..bytes.len() {
            ask_everything(bytes[..length].to_vec());
        }
    }

    #[test]
    fn a_file_with_any_byte_changed_is_an_answer_and_no_panic() {
        let bytes = TestFile::typical().bytes();
        for position in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut changed = bytes.clone();
                changed[position] = value;
                ask_everything(changed);
            }
        }
    }

    #[test]
    fn the_running_program_is_an_elf_file_with_segments() {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let elf = Elf::parse(Image::of_file(file).unwrap()).unwrap();
        assert!(!elf.segments.is_empty());
        assert!(elf.sections().unwrap().find(b".text").is_some());
    }
}
