//! A file image that is read by address, as the loader maps its segments.

use std::sync::Arc;

use profiler_addresses::ElfAddress;

use crate::{
    budget::WorkBudget,
    error::ParseError,
    image::Image,
    paged_image::{ByteRange, PagedImage},
    segment::SegmentLayout,
};

/// A word of a file that holds an address within the same file (`R_X86_64_RELATIVE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RelativeRelocation {
    /// The address of the word.
    pub place: ElfAddress,
    /// The address that it holds, before the load bias is added.
    pub target: ElfAddress,
}

/// A file image with the addresses of its segments. Pages are read at their first use.
#[derive(Debug)]
pub struct LoadedImage {
    image: PagedImage,
    layout: SegmentLayout,
}

impl LoadedImage {
    /// An image with these segments. Every read takes work from `budget`.
    ///
    /// # Errors
    /// [`ParseError::TooLarge`] when the file exceeds the limit of [`PagedImage`].
    pub fn new(image: Image, layout: SegmentLayout, budget: Arc<WorkBudget>) -> Result<Self, ParseError> {
        Ok(Self { image: PagedImage::new(image, budget)?, layout })
    }

    /// Reads the eight bytes at `address`, little-endian.
    ///
    /// # Errors
    /// [`ParseError::Malformed`] when they are not in one segment, [`ParseError::TooLarge`] when the budget is exhausted.
    pub fn read_u64(&mut self, address: ElfAddress) -> Result<u64, ParseError> {
        let rest = self.rest_from(address)?;
        self.image.read_array(rest).map(u64::from_le_bytes)
    }

    /// Reads the string at `address`, without its terminating zero byte.
    ///
    /// # Errors
    /// [`ParseError::Malformed`] when no zero byte follows in the segment, [`ParseError::TooLarge`] when the string
    /// exceeds `limit` bytes or the budget is exhausted.
    pub fn read_string(&mut self, address: ElfAddress, limit: usize) -> Result<Vec<u8>, ParseError> {
        let rest = self.rest_from(address)?;
        self.image.read_string(rest, limit)
    }

    fn rest_from(&self, address: ElfAddress) -> Result<ByteRange, ParseError> {
        let (start, bytes) = self.layout.rest_from(address).ok_or(ParseError::Malformed)?;
        let end = start.0.checked_add(bytes).ok_or(ParseError::Malformed)?;
        Ok(ByteRange { start: start.0, end: end.min(self.image.full_range().end) })
    }
}

#[cfg(test)]
mod tests {
    use profiler_addresses::FileOffset;

    use super::*;

    fn loaded(bytes: &[u8], segments: &[(u64, u64, u64)]) -> LoadedImage {
        let sections = segments
            .iter()
            .map(|(offset, address, bytes)| (FileOffset(*offset), ElfAddress(*address), *bytes, false));
        let layout = SegmentLayout::from_sections(sections);
        LoadedImage::new(Image::Memory(bytes.to_vec()), layout, Arc::default()).unwrap()
    }

    #[test]
    fn bytes_are_read_by_the_address_of_their_segment() {
        let mut image = loaded(b"name\0\x01\0\0\0\0\0\0\x80", &[(0, 0x1000, 5), (5, 0x3000, 8)]);
        assert_eq!(image.read_string(ElfAddress(0x1001), 10), Ok(b"ame".to_vec()));
        assert_eq!(image.read_u64(ElfAddress(0x3000)), Ok(0x8000_0000_0000_0001));
    }

    #[test]
    fn a_read_beyond_a_segment_or_a_limit_fails() {
        let mut image = loaded(b"name\0more", &[(0, 0x1000, 5), (5, 0x3000, 4)]);
        assert_eq!(image.read_u64(ElfAddress(0x1000)), Err(ParseError::Malformed));
        assert_eq!(image.read_string(ElfAddress(0x3000), 10), Err(ParseError::Malformed));
        assert_eq!(image.read_string(ElfAddress(0x1000), 3), Err(ParseError::TooLarge));
        for outside in [0xfff, 0x1005, 0x3004, u64::MAX] {
            assert_eq!(image.read_string(ElfAddress(outside), 10), Err(ParseError::Malformed));
        }
        let mut beyond_the_file = loaded(b"name", &[(u64::MAX - 1, 0x1000, u64::MAX), (2, 0x4000, 100)]);
        assert_eq!(beyond_the_file.read_u64(ElfAddress(0x1000)), Err(ParseError::Malformed));
        assert!(beyond_the_file.read_string(ElfAddress(0x4000), 10).is_err());
    }
}
