//! User stacks that are copied at the switch away from a thread, and unwound when its wait was long enough for a record.
//!
//! Most waits of a busy server are short, and a copy costs a tenth of what unwinding does. It is made while the
//! address space of the thread is the current one.

use core::{
    ffi::c_void,
    ptr::{read_volatile, write_volatile},
};

use aya_ebpf::{bindings::task_struct, helpers::generated as helpers};
use profiler_common::{
    Counter, StackId,
    off_cpu::{OffCpuThread, StackAtSwitch},
};
use profiler_ebpf::unwind_step::Registers;

use super::{
    config::get,
    maps::STACKS_AT_SWITCH,
    scratch::{Scratch, UnwindState},
    stack_copy::CopiedMemory,
    unwinder,
    user_memory::read_user,
    user_registers::registers_at_kernel_entry,
    waiting_task::load,
};

const PAGE_BYTES: u64 = 4096;

/// What the callback for a frame needs.
#[repr(C)]
struct CopiedStackState {
    scratch: *mut Scratch,
    copy: *mut StackAtSwitch,
}

/// Copies the user stack of the running task, which begins to wait.
#[inline(always)]
pub(crate) fn copy(thread: &OffCpuThread, since_ns: u64) {
    let Some(copy) = copy_of(thread) else { return };
    write_tid(copy, 0);
    let Some(registers) = registers_at_kernel_entry(&mut copy.leaf) else { return };
    copy.since_ns = since_ns;
    copy.instruction_pointer = registers.instruction_pointer;
    copy.stack_pointer = registers.stack_pointer;
    copy.frame_pointer = registers.frame_pointer;
    copy.rbx = registers.rbx;
    copy.part.start = registers.stack_pointer;
    copy.part.bytes = copy_pages((&raw mut copy.part.words).cast(), registers.stack_pointer);
    write_tid(copy, thread.tid);
}

/// Copies up to the end of the next page, and returns the number of bytes. Page by page: the second one can be missing.
#[inline(always)]
fn copy_pages(words: *mut u8, start: u64) -> u64 {
    let first = PAGE_BYTES - (start & (PAGE_BYTES - 1));
    if !read_user(words.cast(), first as u32, start) {
        return 0;
    }
    // SAFETY: two pages fit into the words, and the first part is a page at most.
    let second = unsafe { words.add(first as usize) };
    if read_user(second.cast(), PAGE_BYTES as u32, start + first) { first + PAGE_BYTES } else { first }
}

/// Unwinds the stack that a task left at the start of its wait. `None` where there is no copy.
///
/// # Errors
/// The counter of the loss.
#[inline(always)]
pub(crate) fn unwind(
    task: *mut task_struct,
    thread: &OffCpuThread,
    (since_ns, now_ns): (u64, u64),
    scratch: &mut Scratch,
) -> Option<Result<StackId, Counter>> {
    let copy = copy_of(thread)?;
    if !is_of(copy, thread, since_ns) {
        return None;
    }
    scratch.sample.pid = thread.pid;
    scratch.sample.tid = thread.tid;
    scratch.sample.time_ns = now_ns;
    scratch.unwind.depth = 0;
    scratch.unwind.end_reason = UnwindState::RUNNING;
    scratch.unwind.leaf = copy.leaf;
    // Of the task that returns, not of the running one.
    scratch.vma_search.mm = load(task, get!(wall.task_mm));
    scratch.return_probes.task = task as u64;
    let registers = Registers {
        instruction_pointer: copy.instruction_pointer,
        stack_pointer: copy.stack_pointer,
        frame_pointer: copy.frame_pointer,
        rbx: copy.rbx,
    };
    let has_begun = unwinder::begin_at(registers, scratch);
    if has_begun {
        let mut state = CopiedStackState { scratch, copy };
        // SAFETY: the callback has the type that the helper calls, and the state outlives the loop.
        unsafe {
            helpers::bpf_loop(
                unwinder::MAX_STEPS,
                unwind_left_frame as *mut c_void,
                (&raw mut state).cast(),
                0,
            );
        }
    }
    scratch.vma_search.mm = 0;
    scratch.return_probes.task = 0;
    let is_whole = has_begun && is_of(copy, thread, since_ns);
    is_whole.then(|| unwinder::finish(scratch))
}

/// The callback of `bpf_loop`: unwinds one frame; 1 ends the loop.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn unwind_left_frame(_iteration: u64, state: *mut CopiedStackState) -> i64 {
    // SAFETY: the loop was given the address of the state.
    let copy = unsafe { (*state).copy };
    // SAFETY: as above; the scratch outlives the loop.
    let scratch = unsafe { &mut *(*state).scratch };
    // SAFETY: the field of a live map value.
    let stack = CopiedMemory(unsafe { &raw mut (*copy).part });
    i64::from(!unwinder::unwind_frame::<false>(scratch, &stack))
}

/// Whether a copy is complete, and belongs to this wait.
#[inline(always)]
fn is_of(copy: &StackAtSwitch, thread: &OffCpuThread, since_ns: u64) -> bool {
    // SAFETY: the reference is valid and aligned. Another CPU can write it.
    let owner = unsafe { read_volatile(&raw const copy.tid) };
    owner == thread.tid && copy.since_ns == since_ns
}

#[inline(always)]
fn write_tid(copy: &mut StackAtSwitch, tid: u32) {
    // SAFETY: the reference is valid and aligned.
    unsafe { write_volatile(&raw mut copy.tid, tid) }
}

/// The copy of a thread that leaves, or has left, a CPU. Only that CPU writes it.
///
/// VERIFIER: by its id. The address of its task is a pointer, which cannot be hashed.
#[inline(always)]
fn copy_of(thread: &OffCpuThread) -> Option<&'static mut StackAtSwitch> {
    let copies = get!(off_cpu.copies_per_cpu);
    // Threads of a process have consecutive ids.
    let index = thread.tid.checked_rem(copies)?;
    let copy = STACKS_AT_SWITCH.get_ptr_mut(thread.cpu * copies + index)?;
    // SAFETY: a live map value.
    Some(unsafe { &mut *copy })
}
