//! One ELF file: headers, segments, build id.

use std::ops::Range;

use profiler_addresses::{ElfAddress, FileMapping, FileOffset, RuntimeAddress};
use profiler_binary_reader::{Image, ParseError, Segment, SegmentLayout, elf_address};

use crate::{
    build_id::{self, BuildId},
    header::Header,
    machine::Machine,
    program_header,
    section::Sections,
};

/// An ELF file of this machine.
///
/// It holds what every mapping of the file needs. Sections and symbols are read on demand.
#[derive(Debug)]
pub struct Elf {
    image: Image,
    header: Header,
    segments: Vec<Segment>,
    eh_frame_header: Option<Segment>,
    dynamic_section: Option<Segment>,
    build_id: Option<BuildId>,
    has_go_note: bool,
}

impl Elf {
    /// Reads the headers, the segments and the build id.
    ///
    /// # Errors
    /// [`ParseError::NotElf`] when the file is not an ELF file of this machine; other errors when its headers are malformed.
    pub fn parse(image: Image) -> Result<Self, ParseError> {
        let header = Header::read(&image)?;
        let programs = header.program_headers(&image)?;
        let build_id = build_id::in_segments(&image, &programs);
        let has_go_note = build_id::has_go_note(&image, &programs);
        let segments = program_header::loaded(&programs);
        let eh_frame_header = program_header::eh_frame_header(&programs);
        let dynamic_section = program_header::dynamic_section(&programs);
        let mut elf =
            Self { image, header, segments, eh_frame_header, dynamic_section, build_id, has_go_note };
        if elf.build_id.is_none() {
            // The program headers of a debug file refer to bytes that only the stripped file has. Its notes are a section.
            elf.build_id =
                elf.sections().ok().and_then(|sections| build_id::in_sections(&elf.image, &sections));
        }
        Ok(elf)
    }

    /// The bytes of the file.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// The build id, if the linker wrote one.
    pub fn build_id(&self) -> Option<&BuildId> {
        self.build_id.as_ref()
    }

    /// Converts a runtime address in a mapping of the file to the ELF address; `None` outside of all segments.
    pub fn address(&self, mapping: FileMapping, address: RuntimeAddress) -> Option<ElfAddress> {
        elf_address(&self.segments, mapping, address)
    }

    /// The segments, for use after the file is closed.
    pub fn layout(&self) -> SegmentLayout {
        SegmentLayout::new(self.segments.clone())
    }

    /// The machine that the file is for.
    pub fn machine(&self) -> Machine {
        self.header.machine
    }

    /// Whether the file can be loaded at any address: its words that hold addresses have relocations.
    pub fn is_position_independent(&self) -> bool {
        self.header.is_position_independent
    }

    /// The entry point, 0 where the file has none.
    pub fn entry(&self) -> ElfAddress {
        ElfAddress(self.header.entry)
    }

    /// The ELF addresses of each code segment.
    pub fn code_ranges(&self) -> impl Iterator<Item = Range<u64>> {
        self.segments.iter().filter_map(Segment::code_range)
    }

    /// The file offset behind the last byte of a segment. Sections for debuggers and symbol tables follow in most files.
    pub fn loaded_end(&self) -> FileOffset {
        let ends = self.segments.iter().map(|segment| segment.offset.0.saturating_add(segment.file_bytes));
        FileOffset(ends.max().unwrap_or_default())
    }

    /// The file offset and the number of bytes of each writable segment.
    pub fn writable_data(&self) -> impl Iterator<Item = (FileOffset, u64)> {
        self.segments.iter().filter_map(Segment::writable_data)
    }

    /// Reads the section headers; empty where the file has none.
    ///
    /// # Errors
    /// When the section headers are malformed.
    pub fn sections(&self) -> Result<Sections, ParseError> {
        Sections::read(&self.image, &self.header)
    }

    /// Reads the code from `start` to the end of its section, at most `limit` bytes; `None` where the file has no code, as in a debug file.
    pub fn read_code(&self, start: ElfAddress, limit: u64) -> Option<Vec<u8>> {
        let sections = self.sections().ok()?;
        let mut code = sections.iter().filter(|section| section.is_code() && section.is_stored());
        let section = code.find(|section| section.addresses().contains(&start.0))?;
        let offset = section.file_offset().checked_add(start.0 - section.address().0)?;
        let bytes = limit.min(section.addresses().end - start.0);
        self.image.read(offset, bytes, bytes).ok()
    }

    pub(crate) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Whether Go's linker wrote a note with its build id.
    pub(crate) fn has_go_note(&self) -> bool {
        self.has_go_note
    }

    /// The segment of `.eh_frame_hdr` (`PT_GNU_EH_FRAME`).
    pub(crate) fn eh_frame_header(&self) -> Option<Segment> {
        self.eh_frame_header
    }

    /// The segment of the dynamic section (`PT_DYNAMIC`).
    pub(crate) fn dynamic_section(&self) -> Option<Segment> {
        self.dynamic_section
    }
}

#[cfg(test)]
mod tests {
    use profiler_binary_reader::WorkBudget;

    use super::*;
    use crate::{
        symbol_table::{SymbolTable, TableKind},
        test_file::TestFile,
    };

    /// Calls every parser of the crate but DWARF.
    fn parse_everything(bytes: Vec<u8>) {
        let Ok(elf) = Elf::parse(Image::Memory(bytes)) else { return };
        let address = elf.address(
            FileMapping { start: RuntimeAddress(0x1000), offset: FileOffset(0) },
            RuntimeAddress(0x1010),
        );
        let address = address.unwrap_or(ElfAddress(0x1010));
        let Ok(sections) = elf.sections() else { return };
        for kind in [TableKind::Static, TableKind::Dynamic] {
            if let Ok(Some(table)) = SymbolTable::load(&elf, &sections, kind, &WorkBudget::default()) {
                let _ = table.find(&elf, address);
            }
        }
        let _ = elf.debug_link(&sections);
        let _ = elf.alternate_link(&sections);
        let _ = elf.mini_debug_info(&sections, &WorkBudget::default());
    }

    #[test]
    fn a_file_truncated_anywhere_does_not_panic() {
        let bytes = TestFile::typical().bytes();
        for length in 0..bytes.len() {
            parse_everything(bytes[..length].to_vec());
        }
    }

    #[test]
    fn a_file_with_any_byte_changed_does_not_panic() {
        let bytes = TestFile::typical().bytes();
        for position in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut changed = bytes.clone();
                changed[position] = value;
                parse_everything(changed);
            }
        }
    }

    #[test]
    fn the_running_program_is_an_elf_file_with_segments() {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let elf = Elf::parse(Image::from_file(file).unwrap()).unwrap();
        assert!(!elf.segments.is_empty());
        assert_eq!(elf.machine(), Machine::HOST);
        assert!(elf.sections().unwrap().find(b".text").is_some());
    }
}
