//! From an instruction pointer to the rule of its code, through the tables that user space fills.

use aya_ebpf::helpers::generated as helpers;
use profiler_common::unwind::{
    CHUNK_ROWS, MAX_MAPPINGS, MAX_PAGES, MAX_PROCESS_MAPPINGS, MAX_RULES, MappingEntry, PAGE_BITS, PageEntry,
    Row, Rule,
};

use crate::maps::{CHUNKS, MAPPINGS, PAGES, RULES};

/// Steps of the search among a process's mappings.
const MAPPING_STEPS: u32 = MAX_PROCESS_MAPPINGS.ilog2();
/// Steps of the search among a page's rows: at most one for each byte, and the one carried over.
const ROW_STEPS: u32 = PAGE_BITS + 1;

const PAGE_MASK: u64 = (1 << PAGE_BITS) - 1;

/// All mappings of all processes: one value of one array, so that what is in it is found by arithmetic.
#[derive(Clone, Copy)]
pub(crate) struct Mappings(*const MappingEntry);

impl Mappings {
    #[inline(always)]
    pub(crate) fn get() -> Option<Self> {
        Some(Self(MAPPINGS.get_ptr(0)?.cast()))
    }

    /// A mapping by its index.
    #[inline(always)]
    pub(crate) fn at(self, index: u32) -> *const MappingEntry {
        // SAFETY: the mask keeps the index within the value.
        unsafe { self.0.add((index & (MAX_MAPPINGS - 1)) as usize) }
    }

    /// The index of the mapping with this address, among `count` that begin at `first`.
    #[inline(always)]
    pub(crate) fn find(self, first: u32, count: u32, address: u64) -> Option<u32> {
        let mut low = first;
        let mut left = count;
        if left == 0 {
            return None;
        }
        // Bound: as many steps as the most mappings of a process need.
        for _ in 0..MAPPING_STEPS {
            if left <= 1 {
                break;
            }
            let half = left >> 1;
            // SAFETY: `at` stays within the value.
            if unsafe { (*self.at(low + half)).start } <= address {
                low += half;
            }
            left -= half;
        }
        self.holds(low, address).then_some(low)
    }

    /// Whether the mapping at an index has this address.
    #[inline(always)]
    pub(crate) fn holds(self, index: u32, address: u64) -> bool {
        let mapping = self.at(index);
        // SAFETY: `at` stays within the value.
        let start = unsafe { (*mapping).start };
        // SAFETY: as above.
        let end = unsafe { (*mapping).end };
        start <= address && address < end
    }
}

/// The rule of the code at an address in a mapping; the one of unknown code where there is none.
#[inline(always)]
pub(crate) fn rule(mapping: *const MappingEntry, address: u64) -> Rule {
    find_rule(mapping, address).unwrap_or_default()
}

#[inline(always)]
fn find_rule(mapping: *const MappingEntry, address: u64) -> Option<Rule> {
    // SAFETY: the mapping is one that `Mappings::at` gave.
    let mapping = unsafe { &*mapping };
    let address = address.wrapping_sub(mapping.bias);
    let page = ((address >> PAGE_BITS) as u32).wrapping_sub(mapping.first_page);
    if page >= mapping.pages {
        return None;
    }
    let pages = PAGES.get_ptr(0)?.cast::<PageEntry>();
    // SAFETY: the mask keeps the index within the value.
    let page = unsafe { *pages.add((mapping.page_entry.wrapping_add(page) & (MAX_PAGES - 1)) as usize) };
    let mut left = u32::from(page.rows);
    if left == 0 {
        return None;
    }
    let rows = chunk(u32::from(page.chunk))?;
    let offset = (address & PAGE_MASK) as u32;
    let mut low = page.first_row;
    // Bound: as many steps as the most rows of a page need.
    for _ in 0..ROW_STEPS {
        if left <= 1 {
            break;
        }
        let half = left >> 1;
        if row(rows, low + half).offset() <= offset {
            low += half;
        }
        left -= half;
    }
    let rules = RULES.get_ptr(0)?.cast::<Rule>();
    // SAFETY: the mask keeps the index within the value.
    Some(unsafe { *rules.add((row(rows, low).rule() & (MAX_RULES - 1)) as usize) })
}

#[inline(always)]
fn row(rows: *const Row, index: u32) -> Row {
    // SAFETY: the mask keeps the index within the chunk.
    unsafe { *rows.add((index & (CHUNK_ROWS - 1)) as usize) }
}

/// The rows of a chunk.
#[inline(always)]
fn chunk(index: u32) -> Option<*const Row> {
    let outer = (&raw const CHUNKS).cast_mut().cast();
    // SAFETY: the map is an array of maps, and the key a live number.
    let inner = unsafe { helpers::bpf_map_lookup_elem(outer, (&raw const index).cast()) };
    if inner.is_null() {
        return None;
    }
    let first = 0_u32;
    // SAFETY: what the outer map holds is an array.
    let rows = unsafe { helpers::bpf_map_lookup_elem(inner, (&raw const first).cast()) };
    if rows.is_null() { None } else { Some(rows.cast_const().cast()) }
}
