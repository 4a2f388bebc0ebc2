//! Finds the function table in a file, and the code to which its addresses are relative.

use std::sync::Arc;

use object::elf::SHF_ALLOC;
use profiler_addresses::ElfAddress;
use profiler_binary_reader::{Image, ParseError, Segment, WorkBudget};

use super::layout::{self, Layout, TEXT_OFFSET};
use crate::{elf::Elf, header::LE, section::Sections};

/// The names of the section in programs at a fixed address and in position-independent ones.
const SECTIONS: [&[u8]; 2] = [b".gopclntab", b".data.rel.ro.gopclntab"];

/// The start of the names of sections that only Go's linker writes. A program with one of them is searched for its table.
const GO_SECTION_PREFIXES: [&[u8]; 3] = [b".go.", b".note.go.", b".gosymtab"];

/// The bytes that are searched for a table without a section of its own.
const MAX_SEARCHED_BYTES: u64 = 64 << 20;
const CHUNK_BYTES: u64 = 1 << 20;

/// Tables begin at multiples of the size of a pointer.
const ALIGNMENT: usize = 8;

/// A range of a file and its address.
#[derive(Debug)]
pub(super) struct Location {
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) address: ElfAddress,
}

impl Location {
    /// Finds the table; `None` when the file has none. By its section, else by its header in the data of a program that
    /// has sections of Go's linker or no sections: linkers can put it into another one.
    pub(super) fn find(
        elf: &Elf,
        sections: &Sections,
        budget: &WorkBudget,
    ) -> Result<Option<Self>, ParseError> {
        for section in SECTIONS.iter().filter_map(|name| sections.find(name)) {
            let header = section.header();
            // A debug file has the header without the bytes.
            if section.is_stored() && !section.is_compressed()? && header.sh_flags.get(LE).contains(SHF_ALLOC)
            {
                let (offset, bytes) = (header.sh_offset.get(LE), header.sh_size.get(LE));
                return Ok(Some(Self { offset, bytes, address: section.address() }));
            }
        }
        let is_go = |name: &[u8]| GO_SECTION_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        if !elf.has_go_note() && !sections.names().any(is_go) {
            return Ok(None);
        }
        let data = elf.segments().iter().filter(|segment| !segment.is_code);
        let mut left = MAX_SEARCHED_BYTES;
        for segment in data {
            if let Some(found) = search(elf, segment, &mut left, budget)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Reads `size` bytes at an offset of the table.
    pub(super) fn read(&self, image: &Image, offset: u64, size: u64) -> Result<Vec<u8>, ParseError> {
        let end = offset.checked_add(size).filter(|end| *end <= self.bytes);
        end.ok_or(ParseError::Malformed)?;
        image.read(self.offset.checked_add(offset).ok_or(ParseError::Malformed)?, size, self.bytes)
    }

    /// Reads at most `size` bytes at an offset of the table, fewer at its end.
    pub(super) fn read_up_to(&self, image: &Image, offset: u64, size: u64) -> Result<Vec<u8>, ParseError> {
        self.read(image, offset, size.min(self.bytes.saturating_sub(offset)))
    }

    /// Reads the string at an offset of the table.
    pub(super) fn read_string(&self, image: &Image, offset: u64) -> Result<Vec<u8>, ParseError> {
        let start = self.offset.checked_add(offset).ok_or(ParseError::Malformed)?;
        image.read_string(start, self.offset.saturating_add(self.bytes))
    }
}

/// Searches a segment for the header of a table whose parts are within the segment.
fn search(
    elf: &Elf,
    segment: &Segment,
    left: &mut u64,
    budget: &WorkBudget,
) -> Result<Option<Location>, ParseError> {
    let mut at = 0;
    let end = segment.file_bytes.min(*left);
    while at < end {
        let size = CHUNK_BYTES.min(end - at);
        if !budget.spend_on_reading(size) {
            return Err(ParseError::TooLarge);
        }
        let chunk = elf.image().read(segment.offset.0.saturating_add(at), size, CHUNK_BYTES)?;
        *left = left.saturating_sub(size);
        let misaligned = (segment.address.0 as usize).wrapping_neg() % ALIGNMENT;
        for within in (misaligned..chunk.len()).step_by(ALIGNMENT) {
            if !layout::is_header(&chunk[within..]) {
                continue;
            }
            let distance = at + within as u64;
            let found = Location {
                offset: segment.offset.0.saturating_add(distance),
                bytes: segment.file_bytes - distance,
                address: ElfAddress(segment.address.0.wrapping_add(distance)),
            };
            if Layout::read(elf.image(), &found).is_ok() {
                return Ok(Some(found));
            }
        }
        at += size;
    }
    Ok(None)
}

/// The address of the code of Go, which has `length` bytes: as the header has it, in the file or in a relocation; else as the
/// runtime's description of the program has it (from 1.26 on); else that of `.text`, where C code can precede it.
pub(super) fn text_address(
    elf: &Elf,
    sections: &Sections,
    place: &Location,
    layout: &Layout,
    length: u32,
) -> Result<u64, ParseError> {
    let is_valid = |text: &u64| {
        let is_in = |range: std::ops::Range<u64>| range.contains(text) && range.end - text >= length.into();
        elf.code_ranges().any(is_in)
    };
    let stored = Some(layout.text).filter(is_valid);
    let text_section = || sections.find(b".text").map(|section| section.address().0).filter(is_valid);
    let found = stored
        .or_else(|| relocated_text(elf, place, layout).filter(is_valid))
        .or_else(|| described_text(elf, place, layout).filter(is_valid))
        .or_else(text_section);
    found.ok_or(ParseError::Malformed)
}

/// The indexes of words in the description of a program (`moduledata` in `runtime/symtab.go`), which begins with the addresses
/// of the table and of its names.
const NAMES_WORD: u64 = 1;
const TEXT_WORD: u64 = 22;
const WORD_BYTES: u64 = 8;

/// The address of the code in a position-independent program whose addresses the dynamic linker writes.
fn relocated_text(elf: &Elf, place: &Location, layout: &Layout) -> Option<u64> {
    let relocations = elf.relative_relocations(&Arc::default()).ok()?;
    let target = |place: u64| {
        let found = relocations.binary_search_by_key(&place, |relocation| relocation.place.0).ok()?;
        Some(relocations[found].target.0)
    };
    let names = place.address.0.wrapping_add(layout.names);
    target(place.address.0.wrapping_add(TEXT_OFFSET)).or_else(|| {
        let starts = relocations.iter().filter(|relocation| relocation.target == place.address);
        let described = starts.map(|relocation| relocation.place.0);
        described
            .filter(|start| target(start.wrapping_add(NAMES_WORD * WORD_BYTES)) == Some(names))
            .find_map(|start| target(start.wrapping_add(TEXT_WORD * WORD_BYTES)))
    })
}

/// The address of the code in the description of the program, in its variables.
fn described_text(elf: &Elf, place: &Location, layout: &Layout) -> Option<u64> {
    let names = place.address.0.wrapping_add(layout.names);
    let word = |bytes: &[u8], index: u64| {
        let at = (index * WORD_BYTES) as usize;
        bytes.get(at..)?.first_chunk().map(|word| u64::from_le_bytes(*word))
    };
    let mut left = MAX_SEARCHED_BYTES;
    for (offset, bytes) in elf.writable_data() {
        let mut at = 0;
        while at < bytes.min(left) {
            // Parts overlap by the length of what is read of a description.
            let size = (CHUNK_BYTES + (TEXT_WORD + 1) * WORD_BYTES).min(bytes - at);
            let chunk = elf.image().read(offset.0.checked_add(at)?, size, size).ok()?;
            let starts = (0..chunk.len()).step_by(WORD_BYTES as usize).map(|start| &chunk[start..]);
            let mut described = starts.filter(|start| {
                word(start, 0) == Some(place.address.0) && word(start, NAMES_WORD) == Some(names)
            });
            if let Some(text) = described.find_map(|start| word(start, TEXT_WORD)) {
                return Some(text);
            }
            at += CHUNK_BYTES;
        }
        left = left.saturating_sub(bytes);
    }
    None
}
