//! Reads the target's user memory: code bytes, and stack words through a window that is read at once.

use core::{
    ffi::c_void,
    ptr::{read_volatile, write_volatile},
};

use aya_ebpf::helpers::generated as helpers;
use profiler_ebpf::unwind_step::StackMemory;

use super::scratch::{StackWindow, WINDOW_WORDS};

const WORD_BYTES: u64 = size_of::<u64>() as u64;
const WINDOW_BYTES: u64 = WINDOW_WORDS as u64 * WORD_BYTES;

/// Reads `bytes` bytes of user memory; the destination has at least that size. False where the memory is not readable.
#[inline(always)]
pub(crate) fn read_user(destination: *mut c_void, bytes: u32, address: u64) -> bool {
    // SAFETY: callers give a destination of that size; the helper checks the source.
    let result = unsafe { helpers::bpf_probe_read_user(destination, bytes, address as *const c_void) };
    result == 0
}

/// The target's stack, read through the window of this CPU.
pub(crate) struct UserStack(pub(crate) *mut StackWindow);

/// The index of memory that cannot be read.
const UNREADABLE: usize = usize::MAX;

impl UserStack {
    /// The index in the window of `bytes` bytes at an address; moves the window when they are not in it.
    /// [`UNREADABLE`] where they cannot be read.
    ///
    /// VERIFIER: all fields are volatile. What the compiler keeps in registers is different on each way, and what follows is verified
    /// once for each.
    #[inline(always)]
    fn index_of(&self, address: u64, bytes: u64) -> usize {
        let window = self.0;
        // SAFETY: the window is part of a live map value that this CPU owns.
        let (start, read) =
            unsafe { (read_volatile(&raw const (*window).start), read_volatile(&raw const (*window).bytes)) };
        let offset = address.wrapping_sub(start);
        let is_read = bytes <= read && offset <= read - bytes;
        let index = if is_read && offset.is_multiple_of(WORD_BYTES) {
            offset as usize / WORD_BYTES as usize
        } else if fill(window, address, WINDOW_BYTES) || fill_to_end_of_page(window, address, bytes) {
            0
        } else {
            UNREADABLE
        };
        // SAFETY: as above.
        unsafe {
            write_volatile(&raw mut (*window).index, index);
            read_volatile(&raw const (*window).index)
        }
    }

    #[inline(always)]
    fn word_at(&self, index: usize) -> u64 {
        // SAFETY: as above.
        let words = unsafe { &raw const (*self.0).words }.cast::<u64>();
        // SAFETY: the mask keeps the index within the array.
        unsafe { *words.add(index & (WINDOW_WORDS - 1)) }
    }
}

/// Moves the window to an address at the end of the stack, where a whole window is not readable: up to the end of the page.
#[inline(always)]
fn fill_to_end_of_page(window: *mut StackWindow, address: u64, bytes: u64) -> bool {
    const PAGE_BYTES: u64 = 4096;
    let to_end = PAGE_BYTES - address % PAGE_BYTES;
    if to_end < bytes || to_end >= WINDOW_BYTES {
        return false;
    }
    // SAFETY: the window is part of a live map value that this CPU owns.
    unsafe { write_volatile(&raw mut (*window).readable, to_end) };
    // VERIFIER: read anew, so that it does not remember how the size was computed, and masked, so that it knows the bound.
    // SAFETY: as above.
    let readable = unsafe { read_volatile(&raw const (*window).readable) } % WINDOW_BYTES;
    fill(window, address, readable)
}

/// Moves the window to an address.
#[inline(always)]
fn fill(window: *mut StackWindow, address: u64, bytes: u64) -> bool {
    // SAFETY: as above, for all fields.
    let words = unsafe { &raw mut (*window).words };
    let is_read = read_user(words.cast(), bytes as u32, address);
    unsafe {
        write_volatile(&raw mut (*window).start, address);
        write_volatile(&raw mut (*window).bytes, if is_read { bytes } else { 0 });
    }
    is_read
}

impl StackMemory for UserStack {
    const IS_OF_RUNNING_TASK: bool = true;

    #[inline(always)]
    fn read_pair(&self, address: u64, words: &mut [u64; 2]) -> bool {
        let index = self.index_of(address, 2 * WORD_BYTES);
        if index != UNREADABLE {
            *words = [self.word_at(index), self.word_at(index + 1)];
        }
        index != UNREADABLE
    }

    #[inline(always)]
    fn read_word(&self, address: u64, word: &mut u64) -> bool {
        let index = self.index_of(address, WORD_BYTES);
        if index != UNREADABLE {
            *word = self.word_at(index);
        }
        index != UNREADABLE
    }
}
