//! Keeps parts of the memory of a process by pages.

use std::{collections::HashMap, ops::Range};

use profiler_binary_reader::ParseError;

/// Pages of one process. A web server with 3,000 sampled methods has 5,000.
const MAX_PAGES: usize = 16 << 10;

const PAGE_BYTES: u64 = 4 << 10;

/// The first address that is not of user space (x86-64 with four levels of page tables).
const USER_SPACE_END: u64 = 1 << 47;

/// The known parts of the memory of a process.
#[derive(Debug, Default)]
pub(super) struct MemoryPages(HashMap<u64, Box<Page>>);

#[derive(Debug)]
struct Page {
    bytes: [u8; PAGE_BYTES as usize],
    /// A bit for each byte that is known.
    known: [u64; PAGE_BYTES as usize / 64],
}

impl MemoryPages {
    /// Whether memory is known and has these bytes.
    pub(super) fn has(&self, address: u64, bytes: &[u8]) -> bool {
        let is_in_user_space = end_of(address, bytes.len()).is_some();
        is_in_user_space
            && parts(address, bytes.len()).all(|Part { page, in_page, in_range }| {
                let known = self.0.get(&page).and_then(|page| page.get(in_page));
                known == bytes.get(in_range)
            })
    }

    /// Copies known memory; false if not all of it is known.
    pub(super) fn read(&self, address: u64, into: &mut [u8]) -> bool {
        end_of(address, into.len()).is_some()
            && parts(address, into.len()).all(|Part { page, in_page, in_range }| {
                let known = self.0.get(&page).and_then(|page| page.get(in_page));
                let copied = known.zip(into.get_mut(in_range));
                copied.map(|(known, into)| into.copy_from_slice(known)).is_some()
            })
    }

    /// Changes memory.
    ///
    /// # Errors
    /// [`ParseError`] when the addresses are not of user space, or there are too many pages.
    pub(super) fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), ParseError> {
        end_of(address, bytes.len()).ok_or(ParseError::Malformed)?;
        for Part { page, in_page, in_range } in parts(address, bytes.len()) {
            if self.0.len() >= MAX_PAGES && !self.0.contains_key(&page) {
                return Err(ParseError::TooLarge);
            }
            let page = self.0.entry(page).or_default();
            if let (Some(known), Some(bytes)) = (page.bytes.get_mut(in_page.clone()), bytes.get(in_range)) {
                known.copy_from_slice(bytes);
                page.mark(in_page, true);
            }
        }
        Ok(())
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.0.len() * size_of::<Page>() + self.0.capacity() * size_of::<(u64, Box<Page>)>()
    }

    /// Forgets memory. Returns whether any of it was known.
    pub(super) fn remove(&mut self, address: u64, length: usize) -> bool {
        if end_of(address, length).is_none() {
            return false;
        }
        let mut was_known = false;
        for Part { page, in_page, .. } in parts(address, length) {
            if let Some(page) = self.0.get_mut(&page) {
                was_known |= page.mark(in_page, false);
            }
        }
        was_known
    }
}

impl Default for Page {
    fn default() -> Self {
        Self { bytes: [0; PAGE_BYTES as usize], known: [0; PAGE_BYTES as usize / 64] }
    }
}

impl Page {
    /// The bytes of a part, if all of them are known.
    fn get(&self, part: Range<usize>) -> Option<&[u8]> {
        let is_known = part.clone().all(|byte| self.known[byte / 64] >> (byte % 64) & 1 == 1);
        self.bytes.get(part).filter(|_| is_known)
    }

    /// Notes whether a part is known. Returns whether any of it was.
    fn mark(&mut self, part: Range<usize>, is_known: bool) -> bool {
        let mut was_known = false;
        for byte in part {
            let (word, bit) = (&mut self.known[byte / 64], 1 << (byte % 64));
            was_known |= *word & bit != 0;
            *word = if is_known { *word | bit } else { *word & !bit };
        }
        was_known
    }
}

/// The part of a range of addresses that is in one page.
struct Part {
    /// The number of the page.
    page: u64,
    /// Positions in the page.
    in_page: Range<usize>,
    /// Positions in the range.
    in_range: Range<usize>,
}

/// The end of a range of addresses of user space.
fn end_of(address: u64, length: usize) -> Option<u64> {
    address.checked_add(length as u64).filter(|end| *end <= USER_SPACE_END)
}

/// The parts of a range of addresses of user space, page by page.
fn parts(address: u64, length: usize) -> impl Iterator<Item = Part> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = address + done as u64;
        let (page, start) = (at / PAGE_BYTES, (at % PAGE_BYTES) as usize);
        let bytes = (length - done).min(PAGE_BYTES as usize - start);
        let in_range = done..done + bytes;
        done += bytes;
        (bytes > 0).then(|| Part { page, in_page: start..start + bytes, in_range })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(memory: &MemoryPages, address: u64, length: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; length];
        memory.read(address, &mut bytes).then_some(bytes)
    }

    #[test]
    fn memory_reads_as_it_was_written_last() {
        let mut memory = MemoryPages::default();
        memory.write(0x1ffc, b"12345678").unwrap();
        memory.write(0x1ffe, b"xy").unwrap();
        assert_eq!(read(&memory, 0x1ffc, 8).unwrap(), b"12xy5678");
        assert_eq!(read(&memory, 0x1ffb, 2), None);
        assert_eq!(read(&memory, 0x2000, 5), None);
        assert!(memory.remove(0x1fff, 2));
        assert!(!memory.remove(0x1fff, 2) && !memory.remove(0x9000, 2));
        assert_eq!(read(&memory, 0x1ffc, 3).unwrap(), b"12x");
        assert_eq!(read(&memory, 0x1ffe, 2), None);
        assert_eq!(read(&memory, 0x2001, 3).unwrap(), b"678");
    }

    #[test]
    fn addresses_and_pages_are_limited() {
        let mut memory = MemoryPages::default();
        for (address, bytes) in
            [(u64::MAX, 1), (u64::MAX - 1, 8), (USER_SPACE_END, 1), (USER_SPACE_END - 1, 2)]
        {
            assert_eq!(memory.write(address, &vec![0; bytes]), Err(ParseError::Malformed));
            assert!(read(&memory, address, bytes).is_none() && !memory.remove(address, bytes));
        }
        for page in 0..MAX_PAGES as u64 {
            memory.write(page * PAGE_BYTES, b"x").unwrap();
        }
        assert_eq!(memory.write(MAX_PAGES as u64 * PAGE_BYTES, b"x"), Err(ParseError::TooLarge));
    }
}
