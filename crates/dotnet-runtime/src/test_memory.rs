//! Memory of a process that tests and the fuzz target build.

use std::collections::BTreeMap;
#[cfg(test)]
use std::sync::atomic::{AtomicU64, Ordering};

use crate::memory::{Memory, ReadError};

const PAGE_BYTES: u64 = 0x1000;

/// Pages of memory. Bytes that are not written are zero on pages with any written byte, and not mapped on others.
#[derive(Clone, Debug, Default)]
pub(crate) struct TestMemory {
    pages: BTreeMap<u64, Vec<u8>>,
}

impl TestMemory {
    pub(crate) fn write(&mut self, address: u64, bytes: &[u8]) {
        for (at, byte) in (address..).zip(bytes) {
            let page = self.pages.entry(at / PAGE_BYTES).or_insert_with(|| vec![0; PAGE_BYTES as usize]);
            page[(at % PAGE_BYTES) as usize] = *byte;
        }
    }

    pub(crate) fn write_u16(&mut self, address: u64, value: u16) {
        self.write(address, &value.to_le_bytes());
    }

    pub(crate) fn write_u32(&mut self, address: u64, value: u32) {
        self.write(address, &value.to_le_bytes());
    }

    pub(crate) fn write_u64(&mut self, address: u64, value: u64) {
        self.write(address, &value.to_le_bytes());
    }

    /// Writes bytes on one of the pages that are mapped.
    #[cfg(fuzzing)]
    pub(crate) fn write_on_page(&mut self, index: usize, offset: u64, bytes: &[u8]) {
        let page = self.pages.keys().nth(index % self.pages.len().max(1)).copied();
        let bytes = &bytes[..bytes.len().min((PAGE_BYTES - offset % PAGE_BYTES) as usize)];
        self.write(page.unwrap_or_default() * PAGE_BYTES + offset % PAGE_BYTES, bytes);
    }

    /// Changes each byte with a probability of one in `one_in`.
    #[cfg(test)]
    pub(crate) fn damage(&mut self, random: &mut fastrand::Rng, one_in: usize) {
        for byte in self.pages.values_mut().flatten() {
            if random.usize(..one_in) == 0 {
                *byte = [0, 1, 0xff, random.u8(..), *byte ^ 1 << random.u8(..8)][random.usize(..5)];
            }
        }
    }
}

impl Memory for TestMemory {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), ReadError> {
        for (at, byte) in (address..).zip(into) {
            let page = self.pages.get(&(at / PAGE_BYTES)).ok_or(ReadError::NotMapped)?;
            *byte = page[(at % PAGE_BYTES) as usize];
        }
        Ok(())
    }
}

/// Memory that is changed from a read on.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct ChangingMemory {
    before: TestMemory,
    after: TestMemory,
    pub(crate) reads: AtomicU64,
    changes_at: u64,
}

#[cfg(test)]
impl ChangingMemory {
    pub(crate) fn new(before: &TestMemory, after: &TestMemory, changes_at: u64) -> Self {
        Self { before: before.clone(), after: after.clone(), reads: AtomicU64::new(0), changes_at }
    }
}

#[cfg(test)]
impl Memory for ChangingMemory {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), ReadError> {
        let is_changed = self.reads.fetch_add(1, Ordering::Relaxed) >= self.changes_at;
        if is_changed { self.after.read(address, into) } else { self.before.read(address, into) }
    }
}
