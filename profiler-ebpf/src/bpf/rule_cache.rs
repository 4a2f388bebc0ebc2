//! The cache of rules of return addresses. A look into the unwind table reads a mapping, a page, rows and a rule, which are far from each
//! other, and most stacks of a process have the same return addresses.

use profiler_common::{RULE_CACHE_CAPACITY, unwind::ProcessEntry};
use profiler_ebpf::{
    cache_entry::{CacheEntry, CacheKey},
    stack_id::hash_finish,
};

use super::{config::get, maps::CACHED_RULES};

/// No mappings: nothing is cached.
pub(crate) const NO_MAPPINGS: u64 = 0;

/// The hash of the mappings of a process, [`NO_MAPPINGS`] where it has none.
#[inline(always)]
pub(crate) fn hash_of_mappings(process: ProcessEntry) -> u64 {
    if process.mappings == 0 {
        NO_MAPPINGS
    } else {
        hash_finish(get!(hash_seed), u64::from(process.generation))
    }
}

/// The index of the rule for the code of a return address in mappings with this hash.
#[inline(always)]
pub(crate) fn find(mappings: u64, address: u64) -> Option<u32> {
    if mappings == NO_MAPPINGS {
        return None;
    }
    let key = CacheKey::of_address(get!(hash_seed), mappings, address);
    // SAFETY: a live map value. Another CPU may write it at the same time, but never half of it.
    let entry = unsafe { *entry(key)? };
    entry.value(key).map(|index| index as u32)
}

/// Keeps the index of a rule.
#[inline(always)]
pub(crate) fn insert(mappings: u64, address: u64, index: u32) {
    let key = CacheKey::of_address(get!(hash_seed), mappings, address);
    if let Some(entry) = entry(key) {
        // SAFETY: as above.
        unsafe { *entry = CacheEntry::new(key, u64::from(index)) };
    }
}

#[inline(always)]
fn entry(key: CacheKey) -> Option<*mut CacheEntry> {
    CACHED_RULES.get_ptr_mut(key.index(RULE_CACHE_CAPACITY))
}
