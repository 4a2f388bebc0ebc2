//! Finds the range of code that contains an address: the range section map.
//!
//! The map has five levels of 256 entries. Those of the last level point to lists of fragments, each with a part of a range.
//! The lowest bit of a pointer is a mark for ranges of collectible code.
//!
//! Source: dotnet/runtime, `docs/design/datacontracts/ExecutionManager.md`, "RangeSectionMap"; `vm/codeman.h`.

use std::collections::HashSet;

use crate::{error::LookupError, layout::CodeLayout, memory::LimitedMemory};

/// Bits of an address below the index of each level, from the first level on.
const LEVEL_SHIFTS: [u32; 5] = [49, 41, 33, 25, 17];

/// Fragments in one list. A list has those of 128 KiB.
const MAX_FRAGMENTS_PER_LIST: u32 = 1_000;

const IS_COLLECTIBLE: u64 = 1;

/// A range of code: a code heap, stubs, or a precompiled image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CodeRange {
    pub(crate) begin: u64,
    pub(crate) end: u64,
    /// Whether the runtime frees the code of a whole assembly (`AssemblyLoadContext.Unload`).
    pub(crate) is_collectible: bool,
    pub(crate) content: CodeRangeContent,
}

/// What is in a range of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CodeRangeContent {
    /// JIT code. The list node of its code heap.
    Heap(u64),
    /// Stubs without headers.
    Stubs,
    /// An image with precompiled code, by its module.
    Precompiled(u64),
}

/// Finds the range that contains an address.
///
/// # Errors
/// [`LookupError::NoCode`] when no range does; other errors when the map cannot be read.
pub(crate) fn find_range(
    memory: &LimitedMemory,
    layout: &CodeLayout,
    address: u64,
) -> Result<CodeRange, LookupError> {
    let mut entry = layout.map;
    for shift in LEVEL_SHIFTS {
        let index = address >> shift & 0xff;
        let slot = entry.checked_add(index * 8).ok_or(LookupError::Malformed("code range map"))?;
        entry = pointer(memory, slot)?.ok_or(LookupError::NoCode)?;
    }
    let mut fragment = Some(entry);
    for _ in 0..MAX_FRAGMENTS_PER_LIST {
        let Some(at) = fragment else { return Err(LookupError::NoCode) };
        let CodeLayout { fragment_begin, fragment_end, fragment_section, fragment_next, .. } = *layout;
        let fields = memory.fields(at, &[fragment_begin, fragment_end, fragment_section, fragment_next]);
        if (fields.u64(fragment_begin)?..fields.u64(fragment_end)?).contains(&address) {
            let section = without_mark(fields.u64(fragment_section)?);
            let section = section.ok_or(LookupError::Malformed("code range"))?;
            let range = read_section(memory, layout, section)?;
            let is_within = (range.begin..range.end).contains(&address);
            return if is_within { Ok(range) } else { Err(LookupError::Malformed("code range")) };
        }
        fragment = without_mark(fields.u64(fragment_next)?);
    }
    Err(LookupError::TooLarge("list of code ranges"))
}

/// Finds all code heaps.
///
/// # Errors
/// Those of reading the map.
pub(crate) fn find_heaps(memory: &LimitedMemory, layout: &CodeLayout) -> Result<Vec<CodeRange>, LookupError> {
    const NODE_BYTES: usize = 256 * 8;
    let mut nodes = vec![layout.map];
    for _ in LEVEL_SHIFTS {
        let mut next = Vec::new();
        for node in nodes {
            let entries = memory.array::<NODE_BYTES>(node)?;
            let entries = entries.as_chunks::<8>().0.iter().map(|entry| u64::from_le_bytes(*entry));
            next.extend(entries.map(|entry| entry & !IS_COLLECTIBLE).filter(|entry| *entry != 0));
        }
        nodes = next;
    }
    let mut known = HashSet::new();
    let mut heaps = Vec::new();
    for first in nodes {
        let mut fragment = Some(first);
        for _ in 0..MAX_FRAGMENTS_PER_LIST {
            let Some(at) = fragment else { break };
            if let Some(section) = pointer(memory, at.wrapping_add(layout.fragment_section))?
                && known.insert(section)
            {
                match read_section(memory, layout, section) {
                    Ok(range) if matches!(range.content, CodeRangeContent::Heap(_)) => heaps.push(range),
                    Ok(_) | Err(LookupError::NoCode) => {}
                    Err(error) => return Err(error),
                }
            }
            fragment = pointer(memory, at.wrapping_add(layout.fragment_next))?;
        }
    }
    Ok(heaps)
}

fn read_section(memory: &LimitedMemory, layout: &CodeLayout, section: u64) -> Result<CodeRange, LookupError> {
    /// `RANGE_SECTION_COLLECTIBLE`, `RANGE_SECTION_CODEHEAP` and `RANGE_SECTION_RANGELIST` (`vm/codeman.h`).
    const COLLECTIBLE: u32 = 1;
    const CODE_HEAP: u32 = 2;
    const RANGE_LIST: u32 = 4;
    let CodeLayout { section_begin, section_end, section_flags, section_heap, .. } = *layout;
    let section_module = layout.section_precompiled_module;
    let offsets = [section_begin, section_end, section_flags, section_module, section_heap];
    let fields = memory.fields(section, &offsets);
    let (begin, end) = (fields.u64(section_begin)?, fields.u64(section_end)?);
    let (flags, module) = (fields.u32(section_flags)?, fields.u64(section_module)?);
    let content = if module != 0 {
        CodeRangeContent::Precompiled(module)
    } else if flags & RANGE_LIST != 0 {
        CodeRangeContent::Stubs
    } else if flags & CODE_HEAP != 0 {
        CodeRangeContent::Heap(fields.u64(section_heap)?)
    } else {
        return Err(LookupError::NoCode);
    };
    Ok(CodeRange { begin, end, is_collectible: flags & COLLECTIBLE != 0, content })
}

/// Reads a pointer without its mark; `None` is a null pointer.
fn pointer(memory: &LimitedMemory, at: u64) -> Result<Option<u64>, LookupError> {
    Ok(without_mark(memory.u64(at)?))
}

fn without_mark(pointer: u64) -> Option<u64> {
    Some(pointer & !IS_COLLECTIBLE).filter(|pointer| *pointer != 0)
}
