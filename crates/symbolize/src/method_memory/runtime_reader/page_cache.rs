//! Keeps the pages of the memory of a process that a reading has read.
//!
//! The structures that describe neighbouring methods are on few pages, and a read of a page takes hardly longer than that of a
//! word: the system call and the lookup of the page are what it costs.

use std::collections::HashMap;

pub(super) const PAGE_BYTES: usize = 4 << 10;

/// Pages that are kept: 512 KB. Beyond, all are forgotten.
const MAX_PAGES: usize = 128;

/// Pages by their addresses.
#[derive(Debug, Default)]
pub(super) struct PageCache(HashMap<u64, Box<[u8; PAGE_BYTES]>>);

impl PageCache {
    /// Copies memory up to its end, or to the first page that `read_page` cannot read. Returns the number of bytes.
    pub(super) fn read(
        &mut self,
        address: u64,
        into: &mut [u8],
        read_page: impl Fn(u64, &mut [u8; PAGE_BYTES]) -> bool,
    ) -> usize {
        let mut filled = 0;
        while filled < into.len() {
            let at = address + filled as u64;
            let start = (at % PAGE_BYTES as u64) as usize;
            let Some(page) = self.page(at - start as u64, &read_page) else { break };
            let known = &page[start..];
            let bytes = known.len().min(into.len() - filled);
            into[filled..filled + bytes].copy_from_slice(&known[..bytes]);
            filled += bytes;
        }
        filled
    }

    fn page(
        &mut self,
        address: u64,
        read_page: impl Fn(u64, &mut [u8; PAGE_BYTES]) -> bool,
    ) -> Option<&[u8; PAGE_BYTES]> {
        if !self.0.contains_key(&address) {
            let mut page = Box::new([0; PAGE_BYTES]);
            if !read_page(address, &mut page) {
                return None;
            }
            if self.0.len() >= MAX_PAGES {
                self.0.clear();
            }
            self.0.insert(address, page);
        }
        self.0.get(&address).map(|page| &**page)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const PAGE: u64 = PAGE_BYTES as u64;

    /// Each page has its number in all bytes; those from 3 on cannot be read.
    fn read(cache: &mut PageCache, address: u64, length: usize, reads: &Cell<u32>) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let filled = cache.read(address, &mut bytes, |address, page| {
            reads.set(reads.get() + 1);
            page.fill((address / PAGE) as u8);
            address < 3 * PAGE
        });
        bytes.truncate(filled);
        bytes
    }

    #[test]
    fn a_page_is_read_once() {
        let (mut cache, reads) = (PageCache::default(), Cell::new(0));
        assert_eq!(read(&mut cache, PAGE + 8, 4, &reads), [1; 4]);
        assert_eq!(read(&mut cache, 2 * PAGE - 2, 4, &reads), [1, 1, 2, 2]);
        assert_eq!(read(&mut cache, PAGE, 2 * PAGE_BYTES, &reads).len(), 2 * PAGE_BYTES);
        assert_eq!(reads.get(), 2);
    }

    #[test]
    fn memory_ends_at_a_page_that_cannot_be_read() {
        let (mut cache, reads) = (PageCache::default(), Cell::new(0));
        assert_eq!(read(&mut cache, 3 * PAGE - 2, 4, &reads), [2; 2]);
        assert_eq!(read(&mut cache, 3 * PAGE, 1, &reads), [0; 0]);
        assert_eq!(reads.get(), 3, "a page that cannot be read is not kept");
    }

    #[test]
    fn the_pages_are_limited() {
        let mut cache = PageCache::default();
        for page in 0..3 * MAX_PAGES as u64 {
            assert_eq!(cache.read(page * PAGE, &mut [0], |_, _| true), 1);
            assert!(cache.0.len() <= MAX_PAGES);
        }
    }
}
