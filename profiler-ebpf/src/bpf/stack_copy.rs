//! A part of the stack of another task, copied at once.

use core::{ffi::c_void, ptr::read_volatile};

use aya_ebpf::{bindings::task_struct, helpers::generated as helpers};
use profiler_common::{
    requested_stack::{PART_WORDS, StackPart},
    unwind::StackEndReason,
};
use profiler_ebpf::unwind_step::StackMemory;

use super::{config::get, kernel_memory::read};

const WORD_BYTES: u64 = size_of::<u64>() as u64;
const PAGE_BYTES: u64 = 4096;
const PART_BYTES: u64 = PART_WORDS as u64 * WORD_BYTES;

/// `EBUSY` of `bpf_find_vma`: another thread holds the lock of the address space for writing, or waits for it.
const EBUSY: i64 = 16;

/// Copies the part from the wanted address on. Returns 0, or the [`StackEndReason`] where it cannot: memory that is not readable, or
/// not anonymous. A page of a mapped file is read from a file system, which may never answer.
///
/// `is_first`: most stacks end in the first part, and a page takes longer to find than to copy.
#[inline(always)]
pub(crate) fn copy(part: &mut StackPart, task: *mut task_struct, is_first: bool) -> u32 {
    part.start = part.wanted;
    part.wanted = 0;
    part.bytes = 0;
    let start = part.start;
    let mut state: *mut StackPart = part;
    let (callback, context) = (note_anonymous_bytes as *mut c_void, (&raw mut state).cast());
    // SAFETY: the callback has the type that the helper calls, and the state outlives the call.
    let found = unsafe { helpers::bpf_find_vma(task, start, callback, context, 0) };
    // SAFETY: the pointer is that of the reference.
    let part = unsafe { &mut *state };
    // VERIFIER: from the map, so that the paths through the callback meet again.
    // SAFETY: the field of a live map value.
    let anonymous_bytes = unsafe { read_volatile(&raw const part.bytes) };
    let two_pages = 2 * PAGE_BYTES - (start & (PAGE_BYTES - 1));
    part.bytes = anonymous_bytes.min(if is_first { two_pages } else { PART_BYTES });
    // VERIFIER: as above, with the bounds in one register, which the verifier of 6.1 needs.
    // SAFETY: as above.
    let bytes = unsafe { read_volatile(&raw const part.bytes) };
    part.bytes = 0;
    if bytes == 0 || bytes > PART_BYTES {
        let is_locked = found as i64 == -EBUSY;
        let reason = if is_locked { StackEndReason::MappingsLocked } else { StackEndReason::UnreadableStack };
        return reason as u32;
    }
    let words = (&raw mut part.words).cast();
    // SAFETY: the destination has at least the size given; the helper checks the source.
    let result = unsafe { helpers::bpf_copy_from_user_task(words, bytes as u32, start as *const _, task, 0) };
    if result != 0 {
        return StackEndReason::UnreadableStack as u32;
    }
    part.bytes = bytes;
    0
}

/// The callback of `bpf_find_vma`, which is not called where another thread changes the address space: notes the number of bytes
/// from the start of the part to the end of a VMA without a file, whose page faults the kernel handles.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn note_anonymous_bytes(
    _task: *mut task_struct,
    vma: *mut c_void,
    part: *mut *mut StackPart,
) -> i64 {
    // SAFETY: the helper was given the address of a pointer to the part.
    let part = unsafe { &mut **part };
    let vma = vma as u64;
    let file: Option<u64> = read(vma, get!(wall.vma_file));
    let userfaultfd = get!(wall.vma_userfaultfd);
    let fault_handler: Option<u64> = if userfaultfd == 0 { Some(0) } else { read(vma, userfaultfd) };
    if file == Some(0) && fault_handler == Some(0) {
        let end: u64 = read(vma, get!(wall.vma_end)).unwrap_or(0);
        part.bytes = end.saturating_sub(part.start);
    }
    0
}

/// The stack of another task, read from a copy. A read outside of the copy fails, and its address is then wanted.
pub(crate) struct CopiedMemory(pub(crate) *mut StackPart);

/// The index of a word that is not in the copy.
const MISSING: usize = usize::MAX;

impl CopiedMemory {
    #[inline(always)]
    fn index_of(&self, address: u64, bytes: u64) -> usize {
        // SAFETY: the copy is part of a live map value, and passes run one after another.
        let copy = unsafe { &mut *self.0 };
        let offset = address.wrapping_sub(copy.start);
        let is_copied = bytes <= copy.bytes && offset <= copy.bytes - bytes;
        if is_copied && offset.is_multiple_of(WORD_BYTES) {
            return offset as usize / WORD_BYTES as usize;
        }
        copy.wanted = address;
        MISSING
    }

    #[inline(always)]
    fn word_at(&self, index: usize) -> u64 {
        // SAFETY: as above.
        let words = unsafe { &raw const (*self.0).words }.cast::<u64>();
        // SAFETY: the mask keeps the index within the array.
        unsafe { *words.add(index & (PART_WORDS - 1)) }
    }
}

impl StackMemory for CopiedMemory {
    const IS_OF_RUNNING_TASK: bool = false;

    #[inline(always)]
    fn read_pair(&self, address: u64, words: &mut [u64; 2]) -> bool {
        let index = self.index_of(address, 2 * WORD_BYTES);
        if index != MISSING {
            *words = [self.word_at(index), self.word_at(index + 1)];
        }
        index != MISSING
    }

    #[inline(always)]
    fn read_word(&self, address: u64, word: &mut u64) -> bool {
        let index = self.index_of(address, WORD_BYTES);
        if index != MISSING {
            *word = self.word_at(index);
        }
        index != MISSING
    }
}
