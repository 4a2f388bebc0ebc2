//! Loaded segments (`PT_LOAD`): conversion between runtime addresses, file offsets and ELF addresses; load bias.

use std::ops::Range;

use profiler_addresses::{ElfAddress, FileMapping, FileOffset, RuntimeAddress};

/// The largest page size of a kernel of this machine. Mappings begin and end at multiples of the page size.
const PAGE_BYTES: u64 = if cfg!(target_arch = "aarch64") { 64 << 10 } else { 4 << 10 };

/// A segment of a file that is loaded into memory (`PT_LOAD` of ELF, a section of PE).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Segment {
    /// The offset in the file (`p_offset`).
    pub offset: FileOffset,
    /// The address (`p_vaddr`).
    pub address: ElfAddress,
    /// The number of bytes in the file (`p_filesz`).
    pub file_bytes: u64,
    /// Whether the segment is executable (`PF_X`).
    pub is_code: bool,
    /// Whether the segment is writable (`PF_W`).
    pub is_writable: bool,
}

/// Converts a runtime address in a mapping of a file to the ELF address; `None` outside of all segments.
///
/// ```text
///            mapping.start          address
/// memory    ──────┼────────────────────●────────────   load bias = address - ELF address
///                 │<──── distance ────>│
/// file      ──────┼─────────┼──────────●──────┼─────   file offset = mapping.offset + distance
///           mapping.offset  │<─ within ┤      │
///                        p_offset         p_offset + p_filesz
/// ELF       ────────────────┼──────────●──────┼─────   ELF address = p_vaddr + within
///                        p_vaddr
/// ```
///
/// The kernel maps whole pages. The first and the last page of a mapping also show bytes of the file outside of the
/// segment, even those of an adjacent segment with another difference between `p_vaddr` and `p_offset`. The order of
/// preference is therefore: a segment that contains the file offset before one whose pages contain it, code before data
/// (a page of data may have been made executable later), a segment that begins on the mapping's first page before others.
pub fn elf_address(
    segments: &[Segment],
    mapping: FileMapping,
    address: RuntimeAddress,
) -> Option<ElfAddress> {
    let offset = mapping.file_offset(address)?;
    let segments = segments.iter().filter(|segment| segment.pages_contain(offset));
    let segment = segments.max_by_key(|segment| {
        (segment.contains(offset), segment.is_code, page_start(segment.offset.0) == mapping.offset.0)
    })?;
    // Wraps only for bytes before the segment on its first page, or if the program headers are wrong.
    let within = offset.0.wrapping_sub(segment.offset.0);
    Some(ElfAddress(segment.address.0.wrapping_add(within)))
}

/// The segments of a file, for use after the file is closed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SegmentLayout(Vec<Segment>);

impl SegmentLayout {
    /// A layout of these segments.
    pub fn new(segments: Vec<Segment>) -> Self {
        Self(segments)
    }

    /// Its segments.
    pub fn segments(&self) -> &[Segment] {
        &self.0
    }

    /// The layout of a file that is not ELF, from the sections of the file: offset, address, number of bytes in the file,
    /// and whether the section is code.
    pub fn from_sections(sections: impl Iterator<Item = (FileOffset, ElfAddress, u64, bool)>) -> Self {
        let segment = |(offset, address, file_bytes, is_code)| Segment {
            offset,
            address,
            file_bytes,
            is_code,
            is_writable: false,
        };
        Self(sections.map(segment).collect())
    }

    /// The file offset of `address` and the number of bytes from there to the end of its segment; `None` outside of all
    /// segments.
    pub fn rest_from(&self, address: ElfAddress) -> Option<(FileOffset, u64)> {
        self.0.iter().find_map(|segment| segment.rest_from(address))
    }

    /// The load bias of a mapping: the wrapping difference between the runtime addresses and the ELF addresses of the
    /// segment that the mapping shows. `None` when it shows no segment.
    ///
    /// Adjacent segments share at most the first and the last page, so the mapping shows the segment that has the most
    /// bytes in it, code before data.
    pub fn load_bias(&self, mapping: FileMapping, mapping_bytes: u64) -> Option<u64> {
        let mapping_end = mapping.offset.0.saturating_add(mapping_bytes);
        let shown = |segment: &Segment| {
            let end = segment.offset.0.saturating_add(segment.file_bytes).min(mapping_end);
            end.saturating_sub(segment.offset.0.max(mapping.offset.0))
        };
        let segments = self.0.iter().filter(|segment| shown(segment) > 0);
        let segment = segments.max_by_key(|segment| (segment.is_code, shown(segment)))?;
        let segment_start = segment.address.0.wrapping_add(mapping.offset.0.wrapping_sub(segment.offset.0));
        Some(mapping.start.0.wrapping_sub(segment_start))
    }
}

impl Segment {
    /// The ELF addresses of a code segment; `None` for other segments.
    pub fn code_range(&self) -> Option<Range<u64>> {
        let start = self.address.0;
        self.is_code.then(|| start..start.saturating_add(self.file_bytes))
    }

    /// The file offset and the number of bytes of a writable segment; `None` for other segments.
    pub fn writable_data(&self) -> Option<(FileOffset, u64)> {
        self.is_writable.then_some((self.offset, self.file_bytes))
    }

    /// The file offset of `address` and the number of bytes from there to the end of the segment; `None` when it is
    /// outside.
    pub fn rest_from(&self, address: ElfAddress) -> Option<(FileOffset, u64)> {
        let within = address.0.checked_sub(self.address.0)?;
        let rest = self.file_bytes.checked_sub(within).filter(|rest| *rest > 0)?;
        Some((FileOffset(self.offset.0.checked_add(within)?), rest))
    }

    fn contains(&self, offset: FileOffset) -> bool {
        offset.0.checked_sub(self.offset.0).is_some_and(|within| within < self.file_bytes)
    }

    fn pages_contain(&self, offset: FileOffset) -> bool {
        let end = self.offset.0.saturating_add(self.file_bytes).checked_next_multiple_of(PAGE_BYTES);
        page_start(self.offset.0) <= offset.0 && offset.0 < end.unwrap_or(u64::MAX)
    }
}

fn page_start(offset: u64) -> u64 {
    offset - offset % PAGE_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: u64 = PAGE_BYTES;

    fn segment(offset: u64, address: u64, file_bytes: u64, is_code: bool) -> Segment {
        let (offset, address) = (FileOffset(offset), ElfAddress(address));
        Segment { offset, address, file_bytes, is_code, is_writable: false }
    }

    fn mapping(start: u64, offset: u64) -> FileMapping {
        FileMapping { start: RuntimeAddress(start), offset: FileOffset(offset) }
    }

    fn elf_address_at(segments: &[Segment], start: u64, offset: u64, address: u64) -> Option<u64> {
        elf_address(segments, mapping(start, offset), RuntimeAddress(address)).map(|found| found.0)
    }

    #[test]
    fn a_shared_object_is_relocated_by_its_load_bias() {
        let segments = [segment(0, 0, P, false), segment(P, P, 2 * P, true)];
        let bias = 0x7f00_0000_0000;
        assert_eq!(elf_address_at(&segments, bias + P, P, bias + P + 0x123), Some(P + 0x123));
    }

    #[test]
    fn an_executable_at_a_fixed_address_is_not_relocated() {
        let segments = [segment(0, 0x40_0000, 3 * P, true)];
        assert_eq!(elf_address_at(&segments, 0x40_0000, 0, 0x40_0000 + P + 5), Some(0x40_0000 + P + 5));
    }

    #[test]
    fn addresses_and_offsets_of_a_segment_may_differ_and_start_inside_a_page() {
        // The layout of lld: no padding in the file, so that two segments share a page.
        let segments = [segment(0, 0, P + 0x500, false), segment(P + 0x500, 2 * P + 0x500, P, true)];
        let start = 0x5555_0000_0000 + 2 * P;
        assert_eq!(elf_address_at(&segments, start, P, start + 0x500), Some(2 * P + 0x500));
        assert_eq!(elf_address_at(&segments, start, P, start + P + 4), Some(3 * P + 4));
    }

    #[test]
    fn of_two_segments_on_a_page_the_one_that_contains_the_byte_is_used() {
        let segments = [segment(0, 0, 0x800, true), segment(0x800, P + 0x800, 0x800, true)];
        let start = 0x7000_0000;
        assert_eq!(elf_address_at(&segments, start, 0, start + 0x10), Some(0x10));
        assert_eq!(elf_address_at(&segments, start + P, 0, start + P + 0x810), Some(P + 0x810));
    }

    #[test]
    fn each_of_several_code_segments_has_its_own_bias() {
        let segments = [segment(P, 2 * P, P, true), segment(2 * P, 8 * P, P, true)];
        let bias = 0x1000_0000;
        assert_eq!(elf_address_at(&segments, bias + 2 * P, P, bias + 2 * P + 1), Some(2 * P + 1));
        assert_eq!(elf_address_at(&segments, bias + 8 * P, 2 * P, bias + 8 * P + 1), Some(8 * P + 1));
    }

    #[test]
    fn a_part_of_a_segment_that_is_mapped_alone_is_found() {
        let segments = [segment(P, 3 * P, 10 * P, true)];
        assert_eq!(elf_address_at(&segments, 0x9000_0000, 4 * P, 0x9000_0000 + 7), Some(6 * P + 7));
    }

    #[test]
    fn outside_of_every_segment_there_is_no_address() {
        let segments = [segment(P, P, P, true)];
        assert_eq!(elf_address_at(&segments, 0x1_0000, 8 * P, 0x1_0000), None);
        assert_eq!(elf_address_at(&segments, 0x1_0000, P, 0xffff), None);
        assert_eq!(elf_address_at(&[], 0, 0, 0), None);
    }

    #[test]
    fn hostile_segments_and_mappings_do_not_overflow() {
        let hostile = [segment(u64::MAX, u64::MAX, u64::MAX, true), segment(u64::MAX - 4, 1, 2, true)];
        for value in [0, 1, u64::MAX - 5, u64::MAX] {
            for address in [0, 1, u64::MAX] {
                elf_address_at(&hostile, value, value, address);
                elf_address_at(&hostile, 0, value, address);
            }
        }
        assert_eq!(elf_address_at(&hostile, 0, u64::MAX - 1, 5), None);
    }

    fn bias(segments: &[Segment], start: u64, offset: u64, bytes: u64) -> Option<u64> {
        SegmentLayout::new(segments.to_vec()).load_bias(mapping(start, offset), bytes)
    }

    #[test]
    fn the_load_bias_is_the_difference_to_the_elf_addresses() {
        let start = 0x7f00_0000_0000;
        let shared_object = [segment(0, 0, P, false), segment(P, P, 2 * P, true)];
        assert_eq!(bias(&shared_object, start + P, P, 2 * P), Some(start));
        assert_eq!(bias(&[segment(0, 0x40_0000, 3 * P, true)], 0x40_0000, 0, 3 * P), Some(0));
        assert_eq!(bias(&[segment(0, 5 * P, P, true)], 2 * P, 0, P), Some((3 * P).wrapping_neg()));
        assert_eq!(bias(&[segment(P, 3 * P, 10 * P, true)], start, 4 * P, P), Some(start - 6 * P));
    }

    #[test]
    fn a_mapping_that_shows_bytes_of_an_adjacent_segment_has_the_bias_of_its_own_segment() {
        let segments = [
            segment(0, 0, P + 0x500, true),
            segment(P + 0x500, 2 * P + 0x500, P, true),
            segment(2 * P + 0x500, 4 * P + 0x500, 9 * P, false),
        ];
        let start = 0x5555_0000_0000;
        assert_eq!(bias(&segments, start, P, 2 * P), Some(start - 2 * P));
        assert_eq!(elf_address_at(&segments, start, P, start + 0x500), Some(2 * P + 0x500));
    }

    #[test]
    fn a_mapping_that_shows_no_segment_has_no_bias() {
        assert_eq!(bias(&[segment(P, P, P, true)], 0x1_0000, 8 * P, P), None);
        assert_eq!(bias(&[segment(P, P, P, true)], 0x1_0000, 0, 0), None);
        assert_eq!(bias(&[], 0, 0, u64::MAX), None);
        let hostile = [segment(u64::MAX, u64::MAX, u64::MAX, true), segment(u64::MAX - 4, 1, 2, true)];
        for value in [0, 1, u64::MAX - 5, u64::MAX] {
            let _ = (bias(&hostile, value, value, value), bias(&hostile, 0, value, u64::MAX));
        }
    }

    #[test]
    fn the_rest_from_an_address_ends_with_the_segment() {
        let segment = segment(0x100, 0x1100, 0x50, false);
        assert_eq!(segment.rest_from(ElfAddress(0x1120)), Some((FileOffset(0x120), 0x30)));
        for outside in [0x10ff, 0x1150, u64::MAX] {
            assert_eq!(segment.rest_from(ElfAddress(outside)), None);
        }
    }
}
