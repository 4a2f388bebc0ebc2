//! Call frame information: the sections that say how to find a function's caller.

use std::sync::Arc;

use gimli::{BaseAddresses, EhFrameHdr, LittleEndian, Pointer};

use super::{Defect, Elf, Sections};
use crate::address::ElfAddress;

/// The header in front of the search table: its fixed fields, and a pointer.
const EH_FRAME_HEADER_BYTES: u64 = 64;

/// A file's call frame information.
#[derive(Clone, Debug)]
pub(crate) struct CallFrames {
    pub(crate) kind: CallFrameKind,
    pub(crate) bytes: Arc<[u8]>,
    /// Where the bytes are: what stands in them may be relative to its own place.
    pub(crate) address: ElfAddress,
}

/// Which of the two forms it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallFrameKind {
    /// `.eh_frame`, which is loaded into memory (Linux Standard Base, "Exception Frames").
    EhFrame,
    /// `.debug_frame`, which is for debuggers only (DWARF 5, section 6.4).
    DebugFrame,
}

impl Elf {
    /// The file's call frame information, at most `limit` bytes.
    ///
    /// `.eh_frame` is found by its section, or by the segment that points to it where sections were stripped.
    /// `.debug_frame` is for want of it.
    pub(crate) fn call_frames(&self, sections: &Sections, limit: u64) -> Result<Option<CallFrames>, Defect> {
        if let Some(found) = self.call_frame_section(sections, b".eh_frame", CallFrameKind::EhFrame, limit)? {
            return Ok(Some(found));
        }
        if let Some(found) = self.call_frames_in_segment(limit)? {
            return Ok(Some(found));
        }
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
    ) -> Result<Option<CallFrames>, Defect> {
        let Some(section) = sections.find(name).filter(|section| section.is_stored()) else {
            return Ok(None);
        };
        let bytes = section.contents(self.image(), limit)?;
        Ok(Some(CallFrames { kind, bytes, address: section.address() }))
    }

    /// What `PT_GNU_EH_FRAME` points to. Its size stands nowhere: it ends within the segment that holds it.
    fn call_frames_in_segment(&self, limit: u64) -> Result<Option<CallFrames>, Defect> {
        let Some(header) = self.eh_frame_header else { return Ok(None) };
        let bytes = self.image().read(
            header.offset.0,
            header.file_bytes.min(EH_FRAME_HEADER_BYTES),
            EH_FRAME_HEADER_BYTES,
        )?;
        let bases = BaseAddresses::default().set_eh_frame_hdr(header.address.0);
        let parsed = EhFrameHdr::new(&bytes, LittleEndian).parse(&bases, 8).map_err(|_| Defect::Malformed)?;
        let Pointer::Direct(address) = parsed.eh_frame_ptr() else { return Err(Defect::Malformed) };
        let address = ElfAddress(address);
        let found = self.segments.iter().find_map(|segment| segment.rest_from(address));
        let (offset, bytes) = found.ok_or(Defect::Malformed)?;
        let bytes = self.image().read_shared(offset.0, bytes.min(limit), limit)?;
        Ok(Some(CallFrames { kind: CallFrameKind::EhFrame, bytes, address }))
    }
}
