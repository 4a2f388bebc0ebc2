//! A file image with a page cache: pages are read at their first use and kept within a limit.

use std::sync::Arc;

use crate::{budget::WorkBudget, error::ParseError, image::Image};

/// The unit of reads and of the cache.
const PAGE_BYTES: usize = 4 << 10;

/// The largest file. Single-file programs with all their libraries are smaller.
const MAX_IMAGE_BYTES: u64 = 4 << 30;

/// The cache of one file. It holds the method tables of the largest library of the .NET runtime.
const MAX_CACHED_BYTES: usize = 8 << 20;

type Page = Box<[u8; PAGE_BYTES]>;

/// A range of bytes of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByteRange {
    /// The offset of the first byte.
    pub start: u64,
    /// The offset behind the last byte.
    pub end: u64,
}

impl ByteRange {
    /// The number of bytes.
    pub fn len(self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Whether the range has no bytes.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The range without its first `offset` bytes.
    ///
    /// # Errors
    /// [`ParseError::Malformed`] when it is shorter.
    pub fn skip(self, offset: u64) -> Result<Self, ParseError> {
        let start = self.start.checked_add(offset).filter(|start| *start <= self.end);
        Ok(Self { start: start.ok_or(ParseError::Malformed)?, end: self.end })
    }

    /// The first `bytes` bytes of the range.
    ///
    /// # Errors
    /// [`ParseError::Malformed`] when it is shorter.
    pub fn prefix(self, bytes: u64) -> Result<Self, ParseError> {
        let end = self.start.checked_add(bytes).filter(|end| *end <= self.end);
        Ok(Self { start: self.start, end: end.ok_or(ParseError::Malformed)? })
    }
}

/// A file image and the pages that were read of it.
#[derive(Debug)]
pub struct PagedImage {
    image: Image,
    pages: Vec<Option<Page>>,
    cached_bytes: usize,
    budget: Arc<WorkBudget>,
}

impl PagedImage {
    /// An image with an empty cache. Every read takes work from `budget`.
    ///
    /// # Errors
    /// [`ParseError::TooLarge`] when the file exceeds 4 GiB.
    pub fn new(image: Image, budget: Arc<WorkBudget>) -> Result<Self, ParseError> {
        if image.length() > MAX_IMAGE_BYTES {
            return Err(ParseError::TooLarge);
        }
        Ok(Self { image, pages: Vec::new(), cached_bytes: 0, budget })
    }

    /// The file image.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// The range of the whole file.
    pub fn full_range(&self) -> ByteRange {
        ByteRange { start: 0, end: self.image.length() }
    }

    /// The number of bytes in the cache.
    pub fn cached_bytes(&self) -> usize {
        self.cached_bytes
    }

    /// The budget of all reads.
    pub fn budget(&self) -> &Arc<WorkBudget> {
        &self.budget
    }

    /// Takes the work of one read of `bytes` bytes from the budget.
    ///
    /// # Errors
    /// [`ParseError::TooLarge`] when the budget is exhausted.
    pub fn spend(&self, bytes: u64) -> Result<(), ParseError> {
        if self.budget.spend_on_reading(bytes) { Ok(()) } else { Err(ParseError::TooLarge) }
    }

    /// Reads a whole range, past the cache.
    ///
    /// # Errors
    /// [`ParseError::Malformed`] when the file ends before, [`ParseError::TooLarge`] when the range exceeds `limit` or
    /// the budget is exhausted.
    pub fn read_uncached(&self, range: ByteRange, limit: u64) -> Result<Vec<u8>, ParseError> {
        self.spend(range.len().min(limit))?;
        self.image.read(range.start, range.len(), limit)
    }

    /// Reads the first `N` bytes of a range.
    ///
    /// # Errors
    /// [`ParseError::Malformed`] when the range or the file is shorter, [`ParseError::TooLarge`] when the budget is
    /// exhausted.
    pub fn read_array<const N: usize>(&mut self, range: ByteRange) -> Result<[u8; N], ParseError> {
        let mut bytes = [0; N];
        self.read_into(range.prefix(N as u64)?.start, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads a range, but at most `limit` bytes.
    ///
    /// # Errors
    /// [`ParseError::Malformed`] when the file ends before, [`ParseError::TooLarge`] when the budget is exhausted.
    pub fn read_up_to(&mut self, range: ByteRange, limit: u64) -> Result<Vec<u8>, ParseError> {
        let mut bytes = vec![0; range.len().min(limit) as usize];
        self.read_into(range.start, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads the string at the start of a range, without its terminating zero byte.
    ///
    /// # Errors
    /// [`ParseError::Malformed`] when no zero byte is in the range, [`ParseError::TooLarge`] when the string exceeds
    /// `limit` bytes or the budget is exhausted.
    pub fn read_string(&mut self, range: ByteRange, limit: usize) -> Result<Vec<u8>, ParseError> {
        let mut string = Vec::new();
        let mut position = range.start;
        while position < range.end {
            let (page, offset) = self.page_at(position)?;
            let rest = page.get(offset..).unwrap_or_default();
            let rest = &rest[..rest.len().min((range.end - position) as usize)];
            let length = memchr::memchr(0, rest);
            string.extend_from_slice(&rest[..length.unwrap_or(rest.len())]);
            position += rest.len() as u64;
            if string.len() > limit {
                return Err(ParseError::TooLarge);
            }
            if length.is_some() {
                self.spend(string.len() as u64)?;
                return Ok(string);
            }
        }
        Err(ParseError::Malformed)
    }

    fn read_into(&mut self, position: u64, buffer: &mut [u8]) -> Result<(), ParseError> {
        let end = position.checked_add(buffer.len() as u64).ok_or(ParseError::Malformed)?;
        if end > self.image.length() {
            return Err(ParseError::Malformed);
        }
        self.spend(buffer.len() as u64)?;
        let mut filled = 0;
        while filled < buffer.len() {
            let (page, offset) = self.page_at(position + filled as u64)?;
            let rest = page.get(offset..).unwrap_or_default();
            let bytes = rest.len().min(buffer.len() - filled);
            buffer[filled..filled + bytes].copy_from_slice(&rest[..bytes]);
            filled += bytes;
        }
        Ok(())
    }

    /// The page that holds a byte of the file, and the offset of the byte in the page.
    fn page_at(&mut self, position: u64) -> Result<(&[u8; PAGE_BYTES], usize), ParseError> {
        let index = usize::try_from(position / PAGE_BYTES as u64).map_err(|_| ParseError::Malformed)?;
        if self.pages.get(index).is_none_or(Option::is_none) {
            self.load_page(index)?;
        }
        let page = self.pages.get(index).and_then(Option::as_deref).ok_or(ParseError::Malformed)?;
        Ok((page, (position % PAGE_BYTES as u64) as usize))
    }

    fn load_page(&mut self, index: usize) -> Result<(), ParseError> {
        self.spend(PAGE_BYTES as u64)?;
        let start = (index * PAGE_BYTES) as u64;
        let bytes =
            self.image.length().checked_sub(start).ok_or(ParseError::Malformed)?.min(PAGE_BYTES as u64);
        let mut page = Box::new([0; PAGE_BYTES]);
        self.image.read_into(start, &mut page[..bytes as usize])?;
        if self.cached_bytes >= MAX_CACHED_BYTES {
            self.pages.clear();
            self.cached_bytes = 0;
        }
        if self.pages.len() <= index {
            self.pages.resize_with(index + 1, || None);
        }
        self.pages[index] = Some(page);
        self.cached_bytes += PAGE_BYTES;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paged(bytes: Vec<u8>) -> PagedImage {
        PagedImage::new(Image::Memory(bytes), Arc::default()).unwrap()
    }

    fn numbered(bytes: usize) -> PagedImage {
        paged((0..bytes).map(|position| (position % 251) as u8 + 1).collect())
    }

    #[test]
    fn bytes_are_the_same_within_and_across_pages() {
        let mut image = numbered(3 * PAGE_BYTES + 5);
        for start in [0, 1, PAGE_BYTES - 2, 2 * PAGE_BYTES - 1, 3 * PAGE_BYTES + 1] {
            let range = image.full_range().skip(start as u64).unwrap();
            let expected: Vec<u8> = (start..start + 4).map(|position| (position % 251) as u8 + 1).collect();
            assert_eq!(image.read_array::<4>(range).unwrap().to_vec(), expected);
            assert_eq!(image.read_up_to(range, 4).unwrap(), expected);
        }
        assert!(
            image.read_array::<4>(ByteRange { start: (3 * PAGE_BYTES + 2) as u64, end: u64::MAX }).is_err()
        );
        assert!(image.full_range().skip(u64::MAX).is_err());
    }

    #[test]
    fn a_string_ends_at_its_zero_byte() {
        let mut bytes = vec![b'x'; PAGE_BYTES + 10];
        bytes.extend([0, b'y', b'z']);
        let mut image = paged(bytes);
        let all = image.full_range();
        assert_eq!(image.read_string(all, 1 << 20).unwrap().len(), PAGE_BYTES + 10);
        assert_eq!(image.read_string(all, 100), Err(ParseError::TooLarge));
        let tail = all.skip(all.len() - 2).unwrap();
        assert_eq!(image.read_string(tail, 100), Err(ParseError::Malformed));
    }

    #[test]
    fn reading_ends_with_the_budget_and_caching_at_its_limit() {
        let content = || Image::Memory(vec![1; MAX_CACHED_BYTES + 10 * PAGE_BYTES]);
        let budget = Arc::new(WorkBudget::with_work_limit(10 * PAGE_BYTES as u64));
        let mut image = PagedImage::new(content(), budget).unwrap();
        let all = image.full_range();
        assert!(image.read_array::<4>(all).is_ok());
        assert_eq!(image.read_string(all, usize::MAX), Err(ParseError::TooLarge));
        let mut image = PagedImage::new(content(), Arc::default()).unwrap();
        assert_eq!(image.read_string(all, usize::MAX), Err(ParseError::Malformed));
        assert!((1..=MAX_CACHED_BYTES).contains(&image.cached_bytes));
    }
}
