//! Finds the range of code that contains an address: the range section map.
//!
//! The map has five levels of 256 entries. Those of the last level point to lists of fragments, each with a part of a range.
//! The lowest bit of a pointer is a mark for ranges of collectible code.
//!
//! Source: dotnet/runtime, `docs/design/datacontracts/ExecutionManager.md`, "RangeSectionMap"; `vm/codeman.h`.

use std::collections::{HashMap, HashSet};

use crate::{error::LookupError, layout::CodeLayout, memory::LimitedMemory};

/// Bits of an address below the index of each level, from the first level on, except for the last one.
const NODE_SHIFTS: [u32; 4] = [49, 41, 33, LAST_LEVEL_SHIFT];
const LAST_LEVEL_SHIFT: u32 = 25;

/// The same for the last level, whose entries are lists of fragments.
const FRAGMENT_SHIFT: u32 = 17;

/// The levels of the map.
const LEVELS: usize = NODE_SHIFTS.len() + 1;

/// Nodes of the last level that are kept: each is for 32 MiB of addresses.
const MAX_LAST_LEVELS: usize = 4_096;

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

/// The map of code ranges, and where its last levels are.
#[derive(Debug, Default)]
pub(crate) struct CodeRangeMap {
    /// The nodes of the last level, by the bits of an address above them. The runtime frees those alone that are behind a pointer with
    /// the mark (`RangeSectionMap::CleanupRangeSections`), which are not kept.
    last_levels: HashMap<u64, u64>,
}

impl CodeRangeMap {
    /// Finds the range that contains an address.
    ///
    /// # Errors
    /// [`LookupError::NoCode`] when no range does; other errors when the map cannot be read.
    pub(crate) fn find(
        &mut self,
        memory: &LimitedMemory,
        layout: &CodeLayout,
        address: u64,
    ) -> Result<CodeRange, LookupError> {
        let last_level = self.last_level(memory, layout, address)?;
        let fragments = memory.u64(slot(last_level, address, FRAGMENT_SHIFT)?)?;
        find_in_list(memory, layout, without_mark(fragments), address)
    }

    /// The node of the last level for an address.
    fn last_level(
        &mut self,
        memory: &LimitedMemory,
        layout: &CodeLayout,
        address: u64,
    ) -> Result<u64, LookupError> {
        let key = address >> LAST_LEVEL_SHIFT;
        if let Some(known) = self.last_levels.get(&key) {
            return Ok(*known);
        }
        let (mut node, mut can_be_freed) = (layout.map, false);
        for shift in NODE_SHIFTS {
            let pointer = memory.u64(slot(node, address, shift)?)?;
            can_be_freed |= pointer & IS_COLLECTIBLE != 0;
            node = without_mark(pointer).ok_or(LookupError::NoCode)?;
        }
        if !can_be_freed && self.last_levels.len() < MAX_LAST_LEVELS {
            self.last_levels.insert(key, node);
        }
        Ok(node)
    }
}

/// The address of the entry for an address in a node whose index is above this bit.
fn slot(node: u64, address: u64, shift: u32) -> Result<u64, LookupError> {
    let index = address >> shift & 0xff;
    node.checked_add(index * 8).ok_or(LookupError::Malformed("code range map"))
}

/// Finds the range that contains an address in a list of fragments.
fn find_in_list(
    memory: &LimitedMemory,
    layout: &CodeLayout,
    mut fragment: Option<u64>,
    address: u64,
) -> Result<CodeRange, LookupError> {
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
    for _ in 0..LEVELS {
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
