//! A part of the stack of another task, copied at once.

use core::ffi::c_void;

use aya_ebpf::{bindings::task_struct, helpers::generated as helpers};
use profiler_ebpf::unwind_step::StackMemory;

use super::{config::get, kernel_memory::read};

const WORD_BYTES: u64 = size_of::<u64>() as u64;
const COPY_WORDS: usize = 1024;
const COPY_BYTES: u64 = COPY_WORDS as u64 * WORD_BYTES;
const PAGE_BYTES: u64 = 4096;

/// A copy of a part of a stack.
#[repr(C)]
pub(crate) struct StackCopy {
    /// The address of the first word.
    pub(crate) start: u64,
    /// The number of bytes that were copied.
    pub(crate) bytes: u64,
    /// The address of the last read outside of the copy; 0 where there was none.
    pub(crate) wanted: u64,
    pub(crate) words: [u64; COPY_WORDS],
}

impl StackCopy {
    /// Copies the part from the wanted address on. False where it is not readable, or not anonymous memory: a page of a mapped
    /// file is read from a file system, which may never answer.
    #[inline(always)]
    pub(crate) fn fill(&mut self, task: *mut task_struct) -> bool {
        let start = self.wanted;
        self.wanted = 0;
        self.start = start;
        self.bytes = 0;
        // At the end of the stack the rest of a page is readable and no more.
        let rest_of_page = PAGE_BYTES - (start & (PAGE_BYTES - 1));
        let anonymous_end = anonymous_end(task, start);
        for bytes in [COPY_BYTES, rest_of_page] {
            if bytes > anonymous_end.saturating_sub(start) {
                continue;
            }
            let words = (&raw mut self.words).cast();
            // SAFETY: the destination has the size given; the helper checks the source.
            let result =
                unsafe { helpers::bpf_copy_from_user_task(words, bytes as u32, start as *const _, task, 0) };
            if result == 0 {
                self.bytes = bytes;
                return true;
            }
        }
        false
    }
}

/// The end of the anonymous memory that contains an address; 0 where it is other memory.
#[inline(always)]
fn anonymous_end(task: *mut task_struct, address: u64) -> u64 {
    const BUSY: i64 = -16;
    /// The helper does not wait for the lock of the address space.
    const ATTEMPTS: u32 = 4;
    let mut end = 0_u64;
    for _ in 0..ATTEMPTS {
        let (callback, context) = (note_anonymous_end as *mut c_void, (&raw mut end).cast());
        // SAFETY: the callback has the type that the helper calls, and the number outlives the call.
        if unsafe { helpers::bpf_find_vma(task, address, callback, context, 0) } != BUSY {
            break;
        }
    }
    end
}

/// The callback of `bpf_find_vma`: notes the end of a VMA without a file whose page faults the kernel handles.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn note_anonymous_end(_task: *mut task_struct, vma: *mut c_void, end: *mut u64) -> i64 {
    let vma = vma as u64;
    let file: Option<u64> = read(vma, get!(wall.vma_file));
    let userfaultfd = get!(wall.vma_userfaultfd);
    let fault_handler: Option<u64> = if userfaultfd == 0 { Some(0) } else { read(vma, userfaultfd) };
    if file == Some(0) && fault_handler == Some(0) {
        let end_address = read(vma, get!(wall.vma_end)).unwrap_or(0);
        // SAFETY: the helper was given the address of a number.
        unsafe { *end = end_address };
    }
    0
}

/// The stack of another task, read from a copy. A read outside of the copy fails, and its address is then wanted.
pub(crate) struct CopiedStack(pub(crate) *mut StackCopy);

/// The index of a word that is not in the copy.
const MISSING: usize = usize::MAX;

impl CopiedStack {
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
        unsafe { *words.add(index & (COPY_WORDS - 1)) }
    }
}

impl StackMemory for CopiedStack {
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
