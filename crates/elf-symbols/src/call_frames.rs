//! Call frame information: the sections that say how to find a function's caller.

use std::sync::Arc;

use gimli::{BaseAddresses, EhFrameHdr, LittleEndian, Pointer};

use super::{Elf, ParseError, Sections};
use profiler_addresses::ElfAddress;

/// The header in front of the search table: its fixed fields, and a pointer.
const EH_FRAME_HEADER_BYTES: u64 = 64;

/// A file's call frame information.
#[derive(Clone, Debug)]
pub struct CallFrames {
    pub kind: CallFrameKind,
    pub bytes: Arc<[u8]>,
    /// Where the bytes are: what stands in them may be relative to its own place.
    pub address: ElfAddress,
}

/// Which of the two forms it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallFrameKind {
    /// `.eh_frame`, which is loaded into memory (Linux Standard Base, "Exception Frames").
    EhFrame,
    /// `.debug_frame`, which is for debuggers only (DWARF 5, section 6.4).
    DebugFrame,
}

impl Elf {
    /// The file's `.eh_frame`, at most `limit` bytes: by its section, or by the segment that points to it where
    /// sections were stripped.
    pub fn eh_frame(&self, sections: &Sections, limit: u64) -> Result<Option<CallFrames>, ParseError> {
        if let Some(found) = self.call_frame_section(sections, b".eh_frame", CallFrameKind::EhFrame, limit)? {
            return Ok(Some(found));
        }
        self.call_frames_in_segment(limit)
    }

    /// The file's `.debug_frame`, at most `limit` bytes.
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
        let bytes = section.contents(self.image(), limit)?;
        Ok(Some(CallFrames { kind, bytes, address: section.address() }))
    }

    /// What `PT_GNU_EH_FRAME` points to. Its size stands nowhere: it ends within the segment that holds it.
    fn call_frames_in_segment(&self, limit: u64) -> Result<Option<CallFrames>, ParseError> {
        let Some(header) = self.eh_frame_header else { return Ok(None) };
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
        let found = self.segments.iter().find_map(|segment| segment.rest_from(address));
        let (offset, bytes) = found.ok_or(ParseError::Malformed)?;
        let bytes = self.image().read_shared(offset.0, bytes.min(limit), limit)?;
        Ok(Some(CallFrames { kind: CallFrameKind::EhFrame, bytes, address }))
    }
}

#[cfg(test)]
mod tests {
    use object::elf;

    use super::{
        super::{Image, test_file::TestFile},
        *,
    };

    fn find(file: TestFile) -> Result<Option<CallFrames>, ParseError> {
        let elf = Elf::parse(Image::Memory(file.bytes())).unwrap();
        elf.eh_frame(&elf.sections().unwrap(), 100)
    }

    /// A segment that holds its own header: whatever is read from it is the file's first bytes.
    fn with_header(header: &[u8], segment_bytes: u64) -> TestFile {
        TestFile::with_code()
            .code_segment(0, 0x1000, segment_bytes)
            .with(".eh_frame_hdr", elf::SHT_PROGBITS, header.to_vec())
            .segment_of_section(elf::PT_GNU_EH_FRAME)
    }

    #[test]
    fn each_of_the_two_sections_is_found_by_its_name() {
        let both = TestFile::with_code().with(".debug_frame", elf::SHT_PROGBITS, vec![1; 8]).with(
            ".eh_frame",
            elf::SHT_PROGBITS,
            vec![2; 8],
        );
        let elf = Elf::parse(Image::Memory(both.bytes())).unwrap();
        let sections = elf.sections().unwrap();
        let loaded = elf.eh_frame(&sections, 100).unwrap().unwrap();
        assert_eq!((loaded.kind, &*loaded.bytes), (CallFrameKind::EhFrame, &[2; 8][..]));
        let for_debuggers = elf.debug_frame(&sections, 100).unwrap().unwrap();
        assert_eq!((for_debuggers.kind, &*for_debuggers.bytes), (CallFrameKind::DebugFrame, &[1; 8][..]));
    }

    #[test]
    fn a_file_without_either_has_none() {
        assert!(find(TestFile::with_code()).unwrap().is_none());
        let split_off = TestFile::with_code().with(".eh_frame", elf::SHT_NOBITS, vec![2; 8]);
        assert!(find(split_off).unwrap().is_none());
    }

    #[test]
    fn a_section_beyond_the_limit_is_too_large() {
        let file = TestFile::with_code().with(".eh_frame", elf::SHT_PROGBITS, vec![0; 101]);
        assert_eq!(find(file).unwrap_err(), ParseError::TooLarge);
    }

    #[test]
    fn without_the_section_the_header_leads_to_it() {
        // Version, three encodings (absolute, none, none), the address.
        let header = [&[1, 0, 0xff, 0xff][..], &0x1010_u64.to_le_bytes()].concat();
        let found = find(with_header(&header, 0x30)).unwrap().unwrap();
        assert_eq!((found.kind, found.address), (CallFrameKind::EhFrame, ElfAddress(0x1010)));
        assert_eq!(found.bytes.len(), 0x20);
        assert_eq!(find(with_header(&header, 0x400)).unwrap().unwrap().bytes.len(), 100);
    }

    #[test]
    fn a_header_that_lies_is_malformed() {
        let outside = [&[1, 0, 0xff, 0xff][..], &0x9999_u64.to_le_bytes()].concat();
        let indirect = [&[1, 0x80, 0xff, 0xff][..], &0x1010_u64.to_le_bytes()].concat();
        for header in [&outside[..], &indirect, &outside[..7], &[9; 12]] {
            assert_eq!(find(with_header(header, 0x30)).unwrap_err(), ParseError::Malformed, "{header:x?}");
        }
    }
}
