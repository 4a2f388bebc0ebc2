//! Call frame information (CFI): the sections `.eh_frame` and `.debug_frame`, and `.eh_frame` of files without section
//! headers.

use gimli::{BaseAddresses, EhFrameHdr, LittleEndian, Pointer};

use profiler_addresses::ElfAddress;
use profiler_binary_reader::{Image, ParseError};

use crate::{elf::Elf, section::Sections};

/// The part of `.eh_frame_hdr` that is read: the fixed fields and the pointer to `.eh_frame`.
const EH_FRAME_HEADER_BYTES: u64 = 64;

/// A section with call frame information.
#[derive(Debug)]
pub struct CallFrames {
    /// The format.
    pub kind: CallFrameKind,
    /// The content of the section: a part of the file, unless it is compressed.
    pub content: Image,
    /// The address of the section, to which pointers in it can be relative.
    pub address: ElfAddress,
}

impl CallFrames {
    /// Reads the whole section.
    ///
    /// # Errors
    /// [`ParseError::Malformed`] when the file was truncated.
    pub fn read(&self) -> Result<Vec<u8>, ParseError> {
        self.content.read(0, self.content.length(), self.content.length())
    }
}

/// The format of call frame information.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallFrameKind {
    /// `.eh_frame`, which is loaded into memory (Linux Standard Base, "Exception Frames").
    EhFrame,
    /// `.debug_frame`, which is not loaded (DWARF 5, section 6.4).
    DebugFrame,
}

impl Elf {
    /// Finds `.eh_frame`, at most `limit` bytes: by its section, or else by `PT_GNU_EH_FRAME`, for files whose section headers
    /// were stripped.
    ///
    /// # Errors
    /// When the section exceeds `limit`, or the headers are malformed.
    pub fn eh_frame(&self, sections: &Sections, limit: u64) -> Result<Option<CallFrames>, ParseError> {
        if let Some(found) = self.call_frame_section(sections, b".eh_frame", CallFrameKind::EhFrame, limit)? {
            return Ok(Some(found));
        }
        self.call_frames_in_segment(limit)
    }

    /// Finds `.debug_frame`, at most `limit` bytes.
    ///
    /// # Errors
    /// When the section exceeds `limit`, or its header is malformed.
    pub fn debug_frame(&self, sections: &Sections, limit: u64) -> Result<Option<CallFrames>, ParseError> {
        for name in [&b".debug_frame"[..], b".zdebug_frame"] {
            if let Some(found) = self.call_frame_section(sections, name, CallFrameKind::DebugFrame, limit)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn call_frame_section(
        &self,
        sections: &Sections,
        name: &[u8],
        kind: CallFrameKind,
        limit: u64,
    ) -> Result<Option<CallFrames>, ParseError> {
        let Some(section) = sections.find(name).filter(|section| section.is_stored()) else {
            return Ok(None);
        };
        let content = section.content_image(self.image(), limit)?;
        Ok(Some(CallFrames { kind, content, address: section.address() }))
    }

    /// Finds the `.eh_frame` that `.eh_frame_hdr` points to. No header states its size: it ends with its segment at the
    /// latest.
    fn call_frames_in_segment(&self, limit: u64) -> Result<Option<CallFrames>, ParseError> {
        let Some(header) = self.eh_frame_header() else { return Ok(None) };
        let bytes = self.image().read(
            header.offset.0,
            header.file_bytes.min(EH_FRAME_HEADER_BYTES),
            EH_FRAME_HEADER_BYTES,
        )?;
        let bases = BaseAddresses::default().set_eh_frame_hdr(header.address.0);
        let parsed =
            EhFrameHdr::new(&bytes, LittleEndian).parse(&bases, 8).map_err(|_| ParseError::Malformed)?;
        let Pointer::Direct(address) = parsed.eh_frame_ptr() else { return Err(ParseError::Malformed) };
        let address = ElfAddress(address);
        let found = self.segments().iter().find_map(|segment| segment.rest_from(address));
        let (offset, bytes) = found.ok_or(ParseError::Malformed)?;
        let content = self.image().part(offset.0, bytes.min(limit))?;
        Ok(Some(CallFrames { kind: CallFrameKind::EhFrame, content, address }))
    }
}

#[cfg(test)]
mod tests {
    use object::elf;

    use super::*;
    use crate::test_file::TestFile;

    fn find(file: TestFile) -> Result<Option<CallFrames>, ParseError> {
        let elf = Elf::parse(Image::Memory(file.bytes())).unwrap();
        elf.eh_frame(&elf.sections().unwrap(), 100)
    }

    /// A file with this `.eh_frame_hdr` and a code segment at the start of the file.
    fn with_header(header: &[u8], segment_bytes: u64) -> TestFile {
        TestFile::with_code()
            .code_segment(0, 0x1000, segment_bytes)
            .with(".eh_frame_hdr", elf::SHT_PROGBITS, header.to_vec())
            .segment_of_section(elf::PT_GNU_EH_FRAME)
    }

    #[test]
    fn both_sections_are_found_by_name() {
        let both = TestFile::with_code().with(".debug_frame", elf::SHT_PROGBITS, vec![1; 8]).with(
            ".eh_frame",
            elf::SHT_PROGBITS,
            vec![2; 8],
        );
        let elf = Elf::parse(Image::Memory(both.bytes())).unwrap();
        let sections = elf.sections().unwrap();
        let loaded = elf.eh_frame(&sections, 100).unwrap().unwrap();
        assert_eq!((loaded.kind, loaded.read().unwrap()), (CallFrameKind::EhFrame, vec![2; 8]));
        let debug_frame = elf.debug_frame(&sections, 100).unwrap().unwrap();
        assert_eq!((debug_frame.kind, debug_frame.read().unwrap()), (CallFrameKind::DebugFrame, vec![1; 8]));
    }

    #[test]
    fn a_file_without_the_sections_has_no_call_frames() {
        assert!(find(TestFile::with_code()).unwrap().is_none());
        let debug_file = TestFile::with_code().with(".eh_frame", elf::SHT_NOBITS, vec![2; 8]);
        assert!(find(debug_file).unwrap().is_none());
    }

    #[test]
    fn a_section_beyond_the_limit_is_too_large() {
        let file = TestFile::with_code().with(".eh_frame", elf::SHT_PROGBITS, vec![0; 101]);
        assert_eq!(find(file).unwrap_err(), ParseError::TooLarge);
    }

    #[test]
    fn without_section_headers_eh_frame_hdr_is_used() {
        // Version, three encodings (absolute, none, none), the address.
        let header = [&[1, 0, 0xff, 0xff][..], &0x1010_u64.to_le_bytes()].concat();
        let found = find(with_header(&header, 0x30)).unwrap().unwrap();
        assert_eq!((found.kind, found.address), (CallFrameKind::EhFrame, ElfAddress(0x1010)));
        assert_eq!(found.content.length(), 0x20);
        assert_eq!(find(with_header(&header, 0x400)).unwrap().unwrap().content.length(), 100);
    }

    #[test]
    fn an_eh_frame_hdr_with_a_wrong_pointer_is_malformed() {
        let outside = [&[1, 0, 0xff, 0xff][..], &0x9999_u64.to_le_bytes()].concat();
        let indirect = [&[1, 0x80, 0xff, 0xff][..], &0x1010_u64.to_le_bytes()].concat();
        for header in [&outside[..], &indirect, &outside[..7], &[9; 12]] {
            assert_eq!(find(with_header(header, 0x30)).unwrap_err(), ParseError::Malformed, "{header:x?}");
        }
    }
}
