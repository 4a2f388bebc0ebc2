//! Loaded segments, and the arithmetic between memory, file and ELF addresses.

use std::ops::Range;

use profiler_addresses::{ElfAddress, FileOffset, RuntimeAddress};

/// The largest page of a kernel for this machine: mappings begin and end at a multiple of the page.
const PAGE_BYTES: u64 = if cfg!(target_arch = "aarch64") { 64 << 10 } else { 4 << 10 };

/// A part of the file that is loaded into memory (`PT_LOAD`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Segment {
    pub offset: FileOffset,
    pub address: ElfAddress,
    pub file_bytes: u64,
    pub is_code: bool,
    pub is_writable: bool,
}

/// The ELF address of what is at `address` in a mapping of the file.
///
/// ```text
///            mapping_start          address
/// memory    ──────┼────────────────────●────────────   load bias = address - ELF address
///                 │<──── distance ────>│
/// file      ──────┼─────────┼──────────●──────┼─────   file offset = mapping_offset + distance
///           mapping_offset  │<─ within ┤      │
///                        p_offset         p_offset + p_filesz
/// ELF       ────────────────┼──────────●──────┼─────   ELF address = p_vaddr + within
///                        p_vaddr
/// ```
///
/// The kernel maps whole pages: the first and the last page of a mapping also show bytes of the file that lie
/// outside of the segment, even those of a neighbour that has another distance between `p_vaddr` and
/// `p_offset`. So a segment that holds the file offset goes before one whose pages do, code before data (a
/// page of data may have been made executable later), and a segment that begins on the mapping's first page
/// before one that does not.
pub fn elf_address(
    segments: &[Segment],
    mapping_start: RuntimeAddress,
    mapping_offset: FileOffset,
    address: RuntimeAddress,
) -> Option<ElfAddress> {
    let distance = address.0.checked_sub(mapping_start.0)?;
    let offset = FileOffset(mapping_offset.0.checked_add(distance)?);
    let segments = segments.iter().filter(|segment| segment.pages_hold(offset));
    let segment = segments.max_by_key(|segment| {
        (segment.holds(offset), segment.is_code, page_start(segment.offset.0) == mapping_offset.0)
    })?;
    // Wraps only for what lies on the segment's first page before it, or in a file that lies.
    let within = offset.0.wrapping_sub(segment.offset.0);
    Some(ElfAddress(segment.address.0.wrapping_add(within)))
}

/// Where a file's segments are: what is left to know when the file is closed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SegmentLayout(Vec<Segment>);

impl SegmentLayout {
    pub fn new(segments: Vec<Segment>) -> Self {
        Self(segments)
    }

    /// Of a file that is no ELF file: where each part of it is in the file and in memory, how many bytes it has, and
    /// whether it is code.
    pub fn of_parts(parts: impl Iterator<Item = (FileOffset, ElfAddress, u64, bool)>) -> Self {
        let segment = |(offset, address, file_bytes, is_code)| Segment {
            offset,
            address,
            file_bytes,
            is_code,
            is_writable: false,
        };
        Self(parts.map(segment).collect())
    }

    /// What is added to this file's addresses where `mapping_bytes` of it from `mapping_offset` on are mapped to
    /// `mapping_start`: the load bias of the segment that the mapping shows. It wraps.
    ///
    /// The neighbours' bytes are on its first and last page at most, so it is the one with most bytes in the mapping,
    /// code before data.
    pub fn load_bias(
        &self,
        mapping_start: RuntimeAddress,
        mapping_offset: FileOffset,
        mapping_bytes: u64,
    ) -> Option<u64> {
        let mapping_end = mapping_offset.0.saturating_add(mapping_bytes);
        let shown = |segment: &Segment| {
            let end = segment.offset.0.saturating_add(segment.file_bytes).min(mapping_end);
            end.saturating_sub(segment.offset.0.max(mapping_offset.0))
        };
        let segments = self.0.iter().filter(|segment| shown(segment) > 0);
        let segment = segments.max_by_key(|segment| (segment.is_code, shown(segment)))?;
        let segment_start = segment.address.0.wrapping_add(mapping_offset.0.wrapping_sub(segment.offset.0));
        Some(mapping_start.0.wrapping_sub(segment_start))
    }
}

impl Segment {
    /// Its addresses, if it holds code.
    pub fn code(&self) -> Option<Range<u64>> {
        let start = self.address.0;
        self.is_code.then(|| start..start.saturating_add(self.file_bytes))
    }

    /// Where in the file the first values of its variables are, and how many bytes, if it has any.
    pub fn variables(&self) -> Option<(FileOffset, u64)> {
        self.is_writable.then_some((self.offset, self.file_bytes))
    }

    /// From `address` to the end of the segment: where that is in the file, and how much.
    pub fn rest_from(&self, address: ElfAddress) -> Option<(FileOffset, u64)> {
        let within = address.0.checked_sub(self.address.0)?;
        let rest = self.file_bytes.checked_sub(within).filter(|rest| *rest > 0)?;
        Some((FileOffset(self.offset.0.checked_add(within)?), rest))
    }

    fn holds(&self, offset: FileOffset) -> bool {
        offset.0.checked_sub(self.offset.0).is_some_and(|within| within < self.file_bytes)
    }

    fn pages_hold(&self, offset: FileOffset) -> bool {
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

    fn at(segments: &[Segment], start: u64, offset: u64, address: u64) -> Option<u64> {
        elf_address(segments, RuntimeAddress(start), FileOffset(offset), RuntimeAddress(address))
            .map(|found| found.0)
    }

    #[test]
    fn a_shared_object_is_shifted_by_its_load_bias() {
        let segments = [segment(0, 0, P, false), segment(P, P, 2 * P, true)];
        let bias = 0x7f00_0000_0000;
        assert_eq!(at(&segments, bias + P, P, bias + P + 0x123), Some(P + 0x123));
    }

    #[test]
    fn an_executable_at_a_fixed_address_is_not_shifted() {
        let segments = [segment(0, 0x40_0000, 3 * P, true)];
        assert_eq!(at(&segments, 0x40_0000, 0, 0x40_0000 + P + 5), Some(0x40_0000 + P + 5));
    }

    #[test]
    fn addresses_and_offsets_of_a_segment_may_differ_and_start_inside_a_page() {
        // As lld lays files out: no padding in the file, so the first page is shared with its neighbour.
        let segments = [segment(0, 0, P + 0x500, false), segment(P + 0x500, 2 * P + 0x500, P, true)];
        let start = 0x5555_0000_0000 + 2 * P;
        assert_eq!(at(&segments, start, P, start + 0x500), Some(2 * P + 0x500));
        assert_eq!(at(&segments, start, P, start + P + 4), Some(3 * P + 4));
    }

    #[test]
    fn of_two_segments_on_a_page_the_one_that_holds_the_byte_counts() {
        let segments = [segment(0, 0, 0x800, true), segment(0x800, P + 0x800, 0x800, true)];
        let start = 0x7000_0000;
        assert_eq!(at(&segments, start, 0, start + 0x10), Some(0x10));
        assert_eq!(at(&segments, start + P, 0, start + P + 0x810), Some(P + 0x810));
    }

    #[test]
    fn each_of_several_code_segments_has_its_own_distance() {
        let segments = [segment(P, 2 * P, P, true), segment(2 * P, 8 * P, P, true)];
        let bias = 0x1000_0000;
        assert_eq!(at(&segments, bias + 2 * P, P, bias + 2 * P + 1), Some(2 * P + 1));
        assert_eq!(at(&segments, bias + 8 * P, 2 * P, bias + 8 * P + 1), Some(8 * P + 1));
    }

    #[test]
    fn a_part_of_a_segment_that_was_mapped_alone_is_found() {
        let segments = [segment(P, 3 * P, 10 * P, true)];
        assert_eq!(at(&segments, 0x9000_0000, 4 * P, 0x9000_0000 + 7), Some(6 * P + 7));
    }

    #[test]
    fn outside_of_every_segment_there_is_no_address() {
        let segments = [segment(P, P, P, true)];
        assert_eq!(at(&segments, 0x1_0000, 8 * P, 0x1_0000), None);
        assert_eq!(at(&segments, 0x1_0000, P, 0xffff), None);
        assert_eq!(at(&[], 0, 0, 0), None);
    }

    #[test]
    fn lying_segments_and_mappings_overflow_nothing() {
        let hostile = [segment(u64::MAX, u64::MAX, u64::MAX, true), segment(u64::MAX - 4, 1, 2, true)];
        for value in [0, 1, u64::MAX - 5, u64::MAX] {
            for address in [0, 1, u64::MAX] {
                at(&hostile, value, value, address);
                at(&hostile, 0, value, address);
            }
        }
        assert_eq!(at(&hostile, 0, u64::MAX - 1, 5), None);
    }

    fn bias(segments: &[Segment], start: u64, offset: u64, bytes: u64) -> Option<u64> {
        SegmentLayout::new(segments.to_vec()).load_bias(RuntimeAddress(start), FileOffset(offset), bytes)
    }

    #[test]
    fn the_load_bias_is_what_a_mapping_adds() {
        let start = 0x7f00_0000_0000;
        let shared_object = [segment(0, 0, P, false), segment(P, P, 2 * P, true)];
        assert_eq!(bias(&shared_object, start + P, P, 2 * P), Some(start));
        assert_eq!(bias(&[segment(0, 0x40_0000, 3 * P, true)], 0x40_0000, 0, 3 * P), Some(0));
        assert_eq!(bias(&[segment(0, 5 * P, P, true)], 2 * P, 0, P), Some((3 * P).wrapping_neg()));
        assert_eq!(bias(&[segment(P, 3 * P, 10 * P, true)], start, 4 * P, P), Some(start - 6 * P));
    }

    #[test]
    fn a_mapping_that_shows_bytes_of_a_neighbour_has_the_bias_of_its_own_segment() {
        let segments = [
            segment(0, 0, P + 0x500, true),
            segment(P + 0x500, 2 * P + 0x500, P, true),
            segment(2 * P + 0x500, 4 * P + 0x500, 9 * P, false),
        ];
        let start = 0x5555_0000_0000;
        assert_eq!(bias(&segments, start, P, 2 * P), Some(start - 2 * P));
        assert_eq!(at(&segments, start, P, start + 0x500), Some(2 * P + 0x500));
    }

    #[test]
    fn a_mapping_of_no_segment_has_no_bias() {
        assert_eq!(bias(&[segment(P, P, P, true)], 0x1_0000, 8 * P, P), None);
        assert_eq!(bias(&[segment(P, P, P, true)], 0x1_0000, 0, 0), None);
        assert_eq!(bias(&[], 0, 0, u64::MAX), None);
        let hostile = [segment(u64::MAX, u64::MAX, u64::MAX, true), segment(u64::MAX - 4, 1, 2, true)];
        for value in [0, 1, u64::MAX - 5, u64::MAX] {
            let _ = (bias(&hostile, value, value, value), bias(&hostile, 0, value, u64::MAX));
        }
    }

    #[test]
    fn the_rest_of_a_segment_ends_with_it() {
        let segment = segment(0x100, 0x1100, 0x50, false);
        assert_eq!(segment.rest_from(ElfAddress(0x1120)), Some((FileOffset(0x120), 0x30)));
        for outside in [0x10ff, 0x1150, u64::MAX] {
            assert_eq!(segment.rest_from(ElfAddress(outside)), None);
        }
    }
}
