//! Excerpts of a section of call frame information: a CIE and some of its FDEs, with offsets of their own.

use gimli::{BaseAddresses, EhFrame, LittleEndian, UnwindSection, constants};
use profiler_elf_symbols::{CallFrameKind, CallFrames};

use crate::cfi_entries::Entry;

/// The FDEs that are evaluated together, bytes.
const EXCERPT_BYTES: usize = 16 << 10;

/// A CIE, at most [`MAX_ENTRY_BYTES`](crate::cfi_entries::MAX_ENTRY_BYTES) of it.
pub(crate) struct Cie {
    pub(crate) entry: Entry,
    pub(crate) bytes: Box<[u8]>,
}

/// FDEs behind their CIE, as a section of its own: the section of the file is not in memory.
pub(crate) struct Excerpt {
    pub(crate) kind: CallFrameKind,
    pub(crate) bytes: Vec<u8>,
    /// The address of the section.
    section_address: u64,
    /// The offset of the CIE at the start.
    cie: Option<u64>,
    cie_bytes: usize,
    pub(crate) fdes: Vec<ExcerptFde>,
}

/// An FDE and its position in the excerpt.
pub(crate) struct ExcerptFde {
    pub(crate) position: usize,
    /// The address of the excerpt at which the FDE has the address that it has in the file: pointers in the FDE are relative
    /// to their own address.
    pub(crate) excerpt_address: u64,
    /// Its length or that of its CIE exceeds [`MAX_ENTRY_BYTES`](crate::cfi_entries::MAX_ENTRY_BYTES).
    pub(crate) is_too_long: bool,
}

impl Excerpt {
    /// An excerpt of a section, without a CIE.
    pub(crate) fn of(section: &CallFrames) -> Self {
        Self {
            kind: section.kind,
            bytes: Vec::new(),
            section_address: section.address.0,
            cie: None,
            cie_bytes: 0,
            fdes: Vec::new(),
        }
    }

    /// The bytes of an address, and of a length, in the FDEs of a CIE (Linux Standard Base, "DWARF Exception Header Encoding");
    /// `None` if the CIE is malformed, or if it is not the same for all of them.
    pub(crate) fn address_bytes(&mut self, cie: &Cie) -> Option<usize> {
        if self.kind == CallFrameKind::DebugFrame {
            return Some(size_of::<u64>());
        }
        self.restart(cie);
        let section = EhFrame::new(&self.bytes, LittleEndian);
        let bases = BaseAddresses::default().set_eh_frame(0);
        let cie = section.cie_from_offset(&bases, 0.into()).ok()?;
        match cie.fde_address_encoding().map_or(constants::DW_EH_PE_absptr, |encoding| encoding.format()) {
            constants::DW_EH_PE_absptr | constants::DW_EH_PE_udata8 | constants::DW_EH_PE_sdata8 => Some(8),
            constants::DW_EH_PE_udata4 | constants::DW_EH_PE_sdata4 => Some(4),
            _ => None,
        }
    }

    pub(crate) fn has_place_for(&self, cie: &Cie) -> bool {
        self.cie == Some(cie.entry.offset) && self.bytes.len() - self.cie_bytes < EXCERPT_BYTES
    }

    /// An excerpt without FDEs.
    pub(crate) fn restart(&mut self, cie: &Cie) {
        self.fdes.clear();
        if self.cie == Some(cie.entry.offset) {
            self.bytes.truncate(self.cie_bytes);
            return;
        }
        self.bytes.clear();
        self.bytes.extend_from_slice(&cie.bytes);
        set_length(&mut self.bytes, cie.entry);
        self.cie = Some(cie.entry.offset);
        self.cie_bytes = self.bytes.len();
    }

    /// Appends an FDE. Its CIE pointer leads to the CIE at the start.
    pub(crate) fn push(&mut self, entry: Entry, bytes: &[u8], is_too_long: bool) {
        let position = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        let pointer = match self.kind {
            CallFrameKind::EhFrame => (position + entry.id_offset) as u64,
            CallFrameKind::DebugFrame => 0,
        };
        let new = self.bytes.get_mut(position..).unwrap_or_default();
        set_length(new, entry);
        let id = new.get_mut(entry.id_offset..entry.id_offset + entry.id_bytes);
        if let Some((id, pointer)) = id.zip(pointer.to_le_bytes().get(..entry.id_bytes)) {
            id.copy_from_slice(pointer);
        }
        let excerpt_address = self.section_address.wrapping_add(entry.offset).wrapping_sub(position as u64);
        self.fdes.push(ExcerptFde { position, excerpt_address, is_too_long });
    }
}

/// Corrects the length of an entry that was not read to its end.
fn set_length(bytes: &mut [u8], entry: Entry) {
    if entry.bytes == bytes.len() as u64 {
        return;
    }
    let length = bytes.len().saturating_sub(entry.id_offset) as u64;
    let range = if entry.id_offset > 4 { 4..12 } else { 0..4 };
    let to = bytes.get_mut(range.clone());
    if let Some((to, length)) = to.zip(length.to_le_bytes().get(..range.len())) {
        to.copy_from_slice(length);
    }
}
