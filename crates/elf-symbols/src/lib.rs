//! One ELF file from its bytes: segments, build id, sections, symbols, debug links, call frame information.
//!
//! Nothing here trusts the file. Every size it states is checked against its length and a limit before
//! memory is taken, and what does not fit is a [`ParseError`].

mod build_id;
mod call_frames;
mod debug_link;
mod demangle;
mod export;
mod function_ranges;
mod header;
#[cfg(feature = "mini-debug-info")]
mod mini_debug_info;
mod program_header;
mod section;
mod symbol_table;
#[cfg(any(test, feature = "testing"))]
pub mod test_file;

pub use build_id::BuildId;
pub use call_frames::{CallFrameKind, CallFrames};
pub use debug_link::{AlternateLink, DebugLink, crc32};
pub use demangle::{cut, demangle};
pub use function_ranges::FunctionRanges;
pub use section::{Section, Sections};
pub use symbol_table::{SymbolMatch, SymbolTable, TableKind};

use std::ops::Range;

use object::elf::Machine;

use profiler_binary_reader::{Image, ParseError, Segment, SegmentLayout, elf_address};

use self::header::Header;
use profiler_addresses::{ElfAddress, FileOffset, RuntimeAddress};

/// An ELF file of this machine.
///
/// Holds what every mapping of it needs; sections and symbols are read when they are asked for.
#[derive(Debug)]
pub struct Elf {
    image: Image,
    header: Header,
    segments: Vec<Segment>,
    eh_frame_header: Option<Segment>,
    build_id: Option<BuildId>,
}

impl Elf {
    /// Reads the headers, the segments and the build id.
    pub fn parse(image: Image) -> Result<Self, ParseError> {
        let header = Header::read(&image)?;
        let programs = header.program_headers(&image)?;
        let build_id = build_id::in_segments(&image, &programs);
        let segments = program_header::loaded(&programs);
        let eh_frame_header = program_header::eh_frame_header(&programs);
        let mut elf = Self { image, header, segments, eh_frame_header, build_id };
        if elf.build_id.is_none() {
            // A debug file keeps the notes as a section; what its segments state is not in it.
            elf.build_id =
                elf.sections().ok().and_then(|sections| build_id::in_sections(&elf.image, &sections));
        }
        Ok(elf)
    }

    /// The bytes it was read from.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// The build id, where the linker left one.
    pub fn build_id(&self) -> Option<&BuildId> {
        self.build_id.as_ref()
    }

    /// The address in this file of code that runs at `address`, in a mapping of this file's bytes from
    /// `mapping_offset` on to the memory from `mapping_start` on.
    pub fn address(
        &self,
        mapping_start: RuntimeAddress,
        mapping_offset: FileOffset,
        address: RuntimeAddress,
    ) -> Option<ElfAddress> {
        elf_address(&self.segments, mapping_start, mapping_offset, address)
    }

    /// Where its segments are.
    pub fn layout(&self) -> SegmentLayout {
        SegmentLayout::new(self.segments.clone())
    }

    /// For which machine it is.
    pub fn machine(&self) -> Machine {
        self.header.machine
    }

    /// The addresses of its code.
    pub fn code(&self) -> impl Iterator<Item = Range<u64>> {
        self.segments.iter().filter_map(Segment::code)
    }

    /// Where in the file the first values of its variables are, and how many bytes.
    pub fn variables(&self) -> impl Iterator<Item = (FileOffset, u64)> {
        self.segments.iter().filter_map(Segment::variables)
    }

    /// The section headers. A file may have none.
    pub fn sections(&self) -> Result<Sections, ParseError> {
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
        #[cfg(feature = "mini-debug-info")]
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
