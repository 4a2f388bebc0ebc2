//! Looks up an instruction pointer in the unwind table: mapping, page, row, rule.

use core::ptr::read_volatile;

use aya_ebpf::helpers::generated as helpers;
use profiler_common::unwind::{
    MAX_MAPPINGS, MAX_MAPPINGS_PER_PROCESS, MAX_PAGES, MAX_RULES, MappingEntry, PAGE_BITS, PageEntry,
    ProcessEntry, ROWS_PER_CHUNK, Row, Rule,
};
use profiler_ebpf::is_below;

use super::maps::{MAPPINGS, UNWIND_PAGES, UNWIND_ROWS, UNWIND_RULES};

/// Steps of the binary search among a process's mappings.
const MAPPING_STEPS: u32 = MAX_MAPPINGS_PER_PROCESS.ilog2();
/// Steps of the binary search among a page's rows: at most one row for each byte, and the one carried over.
const ROW_STEPS: u32 = PAGE_BITS + 1;

const PAGE_OFFSET_MASK: u64 = (1 << PAGE_BITS) - 1;

/// The mappings of all processes: one map value, so that an entry is found by arithmetic and not by a lookup.
#[derive(Clone, Copy)]
pub(crate) struct Mappings(*const MappingEntry);

impl Mappings {
    /// Looks up the map value.
    #[inline(always)]
    pub(crate) fn get() -> Option<Self> {
        Some(Self(MAPPINGS.get_ptr(0)?.cast()))
    }

    /// The mapping with an index, masked into the bounds of the map value.
    #[inline(always)]
    fn at(self, index: u32) -> *const MappingEntry {
        // SAFETY: the mask keeps the index within the value.
        unsafe { self.0.add((index & (MAX_MAPPINGS - 1)) as usize) }
    }

    /// The mapping of a process that contains an address.
    #[inline(always)]
    pub(crate) fn find(self, process: ProcessEntry, address: u64) -> Option<MappingEntry> {
        let mut low = process.first_mapping;
        let mut left = process.mappings;
        if left == 0 {
            return None;
        }
        // Bound: the steps that the most mappings of a process need.
        for _ in 0..MAPPING_STEPS {
            if left <= 1 {
                break;
            }
            let half = left >> 1;
            // SAFETY: `at` stays within the value.
            let start = unsafe { (*self.at(low + half)).start };
            low += half * (1 ^ is_below(address, start) as u32);
            left -= half;
        }
        // SAFETY: `at` stays within the value.
        let mapping = unsafe { &*self.at(low) };
        if contains(mapping, address) { Some(copy(mapping)) } else { None }
    }
}

/// A copy by fields. LLVM makes of a copy of the structure a call of `memmove`, which copies bytes one by one.
#[inline(always)]
fn copy(mapping: &MappingEntry) -> MappingEntry {
    /// Reads a field so that LLVM does not merge it with others.
    macro_rules! read {
        ($field:ident) => {
            // SAFETY: a field of a live structure.
            unsafe { read_volatile(&raw const mapping.$field) }
        };
    }
    MappingEntry {
        start: read!(start),
        end: read!(end),
        bias: read!(bias),
        page_entry: read!(page_entry),
        first_page: read!(first_page),
        pages: read!(pages),
        flags: read!(flags),
    }
}

/// Whether a mapping contains an address.
#[inline(always)]
pub(crate) fn contains(mapping: &MappingEntry, address: u64) -> bool {
    mapping.start <= address && address < mapping.end
}

/// The unwind rule with an index.
#[inline(always)]
pub(crate) fn rule_at(index: u32) -> Option<Rule> {
    let rules = UNWIND_RULES.get_ptr(0)?.cast::<Rule>();
    // SAFETY: the mask keeps the index within the value.
    Some(unsafe { *rules.add((index & (MAX_RULES - 1)) as usize) })
}

/// The index of the unwind rule for an address in a mapping, `None` where the table has none.
#[inline(always)]
pub(crate) fn find_rule(mapping: &MappingEntry, address: u64) -> Option<u32> {
    let address = address.wrapping_sub(mapping.bias);
    let page = ((address >> PAGE_BITS) as u32).wrapping_sub(mapping.first_page);
    if page >= mapping.pages {
        return None;
    }
    let pages = UNWIND_PAGES.get_ptr(0)?.cast::<PageEntry>();
    // SAFETY: the mask keeps the index within the value.
    let page = unsafe { *pages.add((mapping.page_entry.wrapping_add(page) & (MAX_PAGES - 1)) as usize) };
    let mut left = u32::from(page.rows);
    if left == 0 {
        return None;
    }
    let rows = rows_of_chunk(u32::from(page.chunk))?;
    let offset = (address & PAGE_OFFSET_MASK) as u32;
    let mut low = page.first_row;
    // Bound: the steps that the most rows of a page need.
    for _ in 0..ROW_STEPS {
        if left <= 1 {
            break;
        }
        let half = left >> 1;
        let first = row_at(rows, low + half).offset();
        low += half * (1 ^ is_below(u64::from(offset), u64::from(first)) as u32);
        left -= half;
    }
    Some(row_at(rows, low).rule())
}

#[inline(always)]
fn row_at(rows: *const Row, index: u32) -> Row {
    // SAFETY: the mask keeps the index within the chunk.
    unsafe { *rows.add((index & (ROWS_PER_CHUNK - 1)) as usize) }
}

/// The rows of a chunk, `None` where the chunk does not exist.
#[inline(always)]
fn rows_of_chunk(index: u32) -> Option<*const Row> {
    let outer = (&raw const UNWIND_ROWS).cast_mut().cast();
    // SAFETY: the map is an array of maps, and the key a live number.
    let inner = unsafe { helpers::bpf_map_lookup_elem(outer, (&raw const index).cast()) };
    if inner.is_null() {
        return None;
    }
    let first = 0_u32;
    // SAFETY: each inner map is an array.
    let rows = unsafe { helpers::bpf_map_lookup_elem(inner, (&raw const first).cast()) };
    if rows.is_null() { None } else { Some(rows.cast_const().cast()) }
}
