//! Finds the mapping of an address among the VMAs of the running process, where user space has not installed it: in the
//! first milliseconds of a process, most of all.
//!
//! The VMAs are in a maple tree (`lib/maple_tree.c`, `mtree_lookup_walk`). It is read without its lock: what a concurrent
//! change leaves behind is not taken for a VMA that holds the address, or names no file that has a table.

use core::ffi::c_void;

use aya_ebpf::helpers::generated as helpers;
use profiler_common::unwind::{FileSegment, MappingEntry, SegmentTable};
use profiler_ebpf::{maple_node::EncodedNode, note_use};

use super::{
    config::get, kernel_memory::read, maps::UNWIND_SEGMENTS, scratch::VmaSearchState,
    user_address_space::current_mm,
};

/// Levels of the tree: a process with 65,530 VMAs (`vm.max_map_count`) has six.
pub(crate) const MAX_LEVELS: u32 = 8;

/// `VM_EXEC` of `include/linux/mm.h`.
const VM_EXEC: u64 = 4;
/// `FMODE_BACKING` of `include/linux/fs.h`.
const FMODE_BACKING: u32 = 1 << 25;
/// `I_CTIME_QUERIED` of `include/linux/fs.h` is the upper bit of the nanoseconds.
const CHANGED_NS_MASK: u32 = !(1 << 31);

/// A mapping, and what is known of its code.
pub(crate) struct Found {
    pub(crate) mapping: MappingEntry,
    /// Whether it is of a file with an unwind table.
    pub(crate) has_table: bool,
}

/// Whether this kernel has VMAs in a maple tree, and BTF of it.
#[inline(always)]
pub(crate) fn is_possible() -> bool {
    get!(vma_search.is_possible) != 0
}

/// Begins a search at the root of the tree.
#[inline(always)]
pub(crate) fn begin(state: &mut VmaSearchState) {
    state.levels = 0;
}

/// Descends one level of the tree towards an address. `Some(true)` once the entry is a VMA, unless the tree changed meanwhile.
///
/// VERIFIER: a step of the unwinder for each level. A loop over the levels was verified once for each of them.
#[inline(always)]
pub(crate) fn descend(state: &mut VmaSearchState, address: u64) -> Option<bool> {
    if state.levels == 0 {
        let mm = if state.mm == 0 { current_mm()? } else { state.mm };
        state.entry = read(mm, get!(vma_search.mm_root))?;
    }
    if state.levels >= MAX_LEVELS {
        return None;
    }
    state.levels += 1;
    let node = EncodedNode(state.entry);
    read_node(state, node.address())?;
    state.entry = *state.node.get(node.slot_of(&state.node, address))?;
    Some(!node.is_internal())
}

/// The executable mapping that contains an address: that of the VMA to which the search has descended.
#[inline(always)]
pub(crate) fn mapping_of(state: &mut VmaSearchState, address: u64, now_ns: u64) -> Option<Found> {
    let vma = state.entry;
    let start: u64 = read(vma, get!(vma_search.vma_start))?;
    let end: u64 = read(vma, get!(vma_search.vma_end))?;
    let flags: u64 = read(vma, get!(vma_search.vma_flags))?;
    if address < start || address >= end || flags & VM_EXEC == 0 {
        return None;
    }
    let mut mapping = MappingEntry { start, end, bias: 0, page_entry: 0, first_page: 0, pages: 0, flags: 0 };
    let table = read_segment(&mut state.segment, vma).and_then(|()| table_of(&state.segment, now_ns));
    let has_table = table.is_some();
    if let Some(table) = table {
        mapping.bias = start.wrapping_sub(table.address);
        mapping.page_entry = table.page_entry;
        mapping.first_page = table.first_page;
        mapping.pages = table.pages;
    }
    Some(Found { mapping, has_table })
}

#[inline(always)]
fn read_node(state: &mut VmaSearchState, address: u64) -> Option<()> {
    let bytes = size_of_val(&state.node) as u32;
    let node = (&raw mut state.node).cast::<c_void>();
    // SAFETY: the destination has the size given; the helper checks the source.
    let result = unsafe { helpers::bpf_probe_read_kernel(node, bytes, address as *const c_void) };
    (result == 0).then_some(())
}

/// What identifies the file of a VMA. `None` where it has no file.
#[inline(always)]
fn read_segment(segment: &mut FileSegment, vma: u64) -> Option<()> {
    let file: u64 = read(vma, get!(vma_search.vma_file))?;
    if file == 0 {
        return None;
    }
    let inode = inode_of_file(file)?;
    let superblock: u64 = read(inode, get!(vma_search.inode_superblock))?;
    let changed_ns: u32 = read(inode, get!(vma_search.inode_changed_ns))?;
    segment.page_offset = read(vma, get!(vma_search.vma_page_offset))?;
    segment.inode = read(inode, get!(vma_search.inode_number))?;
    segment.device = read(superblock, get!(vma_search.superblock_device))?;
    segment.changed_s = read(inode, get!(vma_search.inode_changed_s))?;
    segment.changed_ns = changed_ns & CHANGED_NS_MASK;
    Some(())
}

/// The inode that `/proc/PID/maps` shows. A file of overlayfs is backed by one of another file system, which is what is
/// mapped; the inode is that of the path which the process opened (`file_user_inode`, `include/linux/fs.h`).
#[inline(always)]
fn inode_of_file(file: u64) -> Option<u64> {
    if get!(vma_search.backing_file_dentry) != 0 {
        let mode: u32 = read(file, get!(vma_search.file_mode))?;
        if mode & FMODE_BACKING != 0 {
            let dentry: u64 = read(file, get!(vma_search.backing_file_dentry))?;
            return read(dentry, get!(vma_search.dentry_inode));
        }
    }
    read(file, get!(vma_search.file_inode))
}

/// The unwind table of a segment.
#[inline(always)]
fn table_of(segment: &FileSegment, now_ns: u64) -> Option<SegmentTable> {
    let table = UNWIND_SEGMENTS.get_ptr_mut(segment)?;
    // SAFETY: a live map value. The kernel can give a removed one to another segment at once: the map is preallocated. Then the
    // stack has a frame of the wrong table.
    let table = unsafe { &mut *table };
    note_use(&mut table.used_ns, now_ns);
    Some(*table)
}
