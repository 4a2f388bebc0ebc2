//! Entries of the direct-mapped caches, each in one word: the upper bits of the hash of its key, and a value.
//!
//! All CPUs read and write them without a lock: an entry is never half of another one.

use crate::stack_id::hash_step;

/// Identifies what is cached: a hash with the secret seed of the session, so that no process can choose the entry of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheKey(u64);

impl CacheKey {
    /// The key of an address in a process or in mappings, which have this hash.
    #[inline(always)]
    #[must_use]
    pub const fn of_address(seed: u64, owner: u64, address: u64) -> Self {
        Self(hash_step(seed, owner, address))
    }

    /// The key with this hash.
    #[inline(always)]
    #[must_use]
    pub const fn from_hash(hash: u64) -> Self {
        Self(hash)
    }

    /// The index of its entry: the lower bits, which an entry does not have.
    #[inline(always)]
    #[must_use]
    pub const fn index(self, capacity: u32) -> u32 {
        self.0 as u32 % capacity
    }
}

/// An entry of a cache. One of zeros is empty.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheEntry(u64);

impl CacheEntry {
    /// The bits of a value.
    pub const VALUE_BITS: u32 = 19;
    /// Set in each entry that was written.
    const IS_WRITTEN: u64 = 1 << Self::VALUE_BITS;
    const VALUE: u64 = Self::IS_WRITTEN - 1;

    /// The entry of a key.
    #[inline(always)]
    #[must_use]
    pub const fn new(key: CacheKey, value: u64) -> Self {
        Self(Self::tag(key) | value & Self::VALUE)
    }

    /// The value of a key; `None` where the entry is of another one.
    #[inline(always)]
    #[must_use]
    pub const fn value(self, key: CacheKey) -> Option<u64> {
        if self.0 & !Self::VALUE == Self::tag(key) { Some(self.0 & Self::VALUE) } else { None }
    }

    #[inline(always)]
    const fn tag(key: CacheKey) -> u64 {
        key.0 & !Self::VALUE | Self::IS_WRITTEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_the_value_of_its_key_only() {
        const SEED: u64 = 0x1234_5678_9abc_def1;
        let (owner, address) = (7, 0x7f15_4ac0_3850);
        let key = CacheKey::of_address(SEED, owner, address);
        for value in [0, 1, CacheEntry::VALUE] {
            let entry = CacheEntry::new(key, value);
            assert_eq!(entry.value(key), Some(value));
            for other in [(owner + 1, address), (owner, address + 1), (owner, address ^ 1 << 63)] {
                assert_eq!(entry.value(CacheKey::of_address(SEED, other.0, other.1)), None);
            }
        }
        assert_eq!(CacheEntry::default().value(key), None);
    }

    #[test]
    fn return_addresses_of_a_program_are_in_different_entries() {
        const CAPACITY: u32 = 1 << 14;
        let indices: std::collections::HashSet<_> = (0..1_000_u64)
            .map(|call| CacheKey::of_address(77, 5, 0x55d0_1234_1000 + 48 * call).index(CAPACITY))
            .collect();
        // Of 1,000 keys by chance, 970 are expected in entries of their own.
        assert!(indices.len() > 940, "{}", indices.len());
    }
}
