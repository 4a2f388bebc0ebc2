//! Captures a stack by `bpf_get_stack`, and sends a stack record when user space does not have its stack id yet.

use core::{
    ffi::c_void,
    ptr::{read_volatile, write_volatile},
};

use aya_ebpf::{
    bindings::{BPF_F_USER_STACK, task_struct},
    helpers::generated as helpers,
};
use profiler_common::{Counter, MAX_FRAMES, RecordKind, StackHeader, StackId};
use profiler_ebpf::{
    stack_flags,
    stack_id::{hash_finish, hash_step},
};

use super::{
    config::get,
    maps::SENT_STACKS,
    ring_buffer::{Wakeup, send},
    scratch::{HASH_BLOCK, Scratch},
};

const WORD_BYTES: u32 = size_of::<u64>() as u32;
const HEADER_BYTES: u64 = size_of::<StackHeader>() as u64;

/// Which of the two stacks of a task.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Side {
    Kernel,
    User,
}

/// Captures one stack by `bpf_get_stack` and returns its id; 0 where the task has no stack on that side.
///
/// `LOOPS`: the kernel has `bpf_loop`.
///
/// # Errors
/// The counter of the loss when the stack is new and does not fit into the ring buffer.
#[inline(always)]
pub(crate) fn capture<const LOOPS: bool>(
    context: *mut c_void,
    scratch: &mut Scratch,
    side: Side,
) -> Result<StackId, Counter> {
    let flags = if side == Side::User { u64::from(BPF_F_USER_STACK) } else { 0 };
    let frames = (&raw mut scratch.stack.frames).cast();
    // SAFETY: the buffer has the size given, and the context is that of this program.
    let bytes = unsafe { helpers::bpf_get_stack(context, frames, capture_bytes(), flags) };
    if bytes <= 0 {
        return Ok(0);
    }
    let frames = bytes as u32 / WORD_BYTES;
    let id = hash_frames::<LOOPS>(scratch, frames);
    send_if_new(scratch, id, stack_flags(frames, get!(perf_event_max_stack)), 0)
}

/// Captures the kernel stack of a task that is not on a CPU; 0 where it has none.
///
/// # Errors
/// As for [`capture`].
#[inline(always)]
pub(crate) fn capture_of_task<const LOOPS: bool>(
    task: *mut task_struct,
    scratch: &mut Scratch,
) -> Result<StackId, Counter> {
    let frames = (&raw mut scratch.stack.frames).cast();
    // SAFETY: the buffer has the size given, and the verifier knows that it is a task.
    let bytes = unsafe { helpers::bpf_get_task_stack(task, frames, capture_bytes(), 0) };
    if bytes <= 0 {
        return Ok(0);
    }
    let frames = bytes as u32 / WORD_BYTES;
    let id = hash_frames::<LOOPS>(scratch, frames);
    send_if_new(scratch, id, stack_flags(frames, get!(perf_event_max_stack)), 0)
}

/// Sends the stack unless user space has it. The header holds the number of its frames.
///
/// # Errors
/// The counter of the loss when it does not fit into the ring buffer.
#[inline(always)]
pub(crate) fn send_if_new(
    scratch: &mut Scratch,
    id: StackId,
    flags: u8,
    end_reason: u8,
) -> Result<StackId, Counter> {
    if SENT_STACKS.get_ptr(&id).is_some() {
        return Ok(id);
    }
    let bytes = complete_header(scratch, id, flags, end_reason);
    if !send((&raw const scratch.stack).cast(), bytes, Wakeup::Never) {
        return Err(Counter::LostRingBuffer);
    }
    scratch.samples_to_query = 0;
    // A failed insertion costs one more record, never a sample.
    let _ = SENT_STACKS.insert(&id, &0, 0);
    Ok(id)
}

/// The size of the buffer for `bpf_get_stack`: no larger than it can fill, because the helper zeroes all of the buffer
/// where a task has no stack on a side.
#[inline(always)]
fn capture_bytes() -> u32 {
    let depth = get!(perf_event_max_stack);
    let depth = if depth as usize > MAX_FRAMES { MAX_FRAMES as u32 } else { depth };
    depth * WORD_BYTES
}

/// Hashes the captured addresses, and stores their number in the header.
#[inline(always)]
fn hash_frames<const LOOPS: bool>(scratch: &mut Scratch, frames: u32) -> StackId {
    let frames = if frames > MAX_FRAMES as u32 { MAX_FRAMES as u32 } else { frames };
    scratch.stack.header.frames = frames as u16;
    let addresses = (&raw mut scratch.stack.frames).cast::<u64>();
    for index in 0..HASH_BLOCK {
        // SAFETY: the array has a block of padding behind the deepest stack.
        let padding = unsafe { addresses.add(frames as usize + index) };
        // Volatile, or LLVM makes of the loop a call of `memset`, which clears bytes.
        // SAFETY: as above.
        unsafe { write_volatile(padding, 0) };
    }
    scratch.captured_hash = get!(hash_seed);
    if LOOPS {
        let blocks = frames.div_ceil(HASH_BLOCK as u32);
        let mut state: *mut Scratch = scratch;
        // SAFETY: the callback has the type that the helper calls, and the state outlives the loop.
        unsafe { helpers::bpf_loop(blocks, hash_block as *mut c_void, (&raw mut state).cast(), 0) };
        // SAFETY: as above.
        let scratch = unsafe { &mut *state };
        return hash_finish(scratch.captured_hash, u64::from(scratch.stack.header.frames));
    }
    let limit = get!(perf_event_max_stack) as usize;
    // Bound: the depth limit of `bpf_get_stack`, which the verifier knows, and MAX_FRAMES.
    for start in (0..MAX_FRAMES).step_by(HASH_BLOCK) {
        if start >= limit || start >= frames as usize {
            break;
        }
        add_block(scratch, start);
    }
    hash_finish(scratch.captured_hash, u64::from(frames))
}

/// The callback of `bpf_loop`: hashes the next block of the captured addresses. A mangled name would depend on where the crate is built.
///
/// VERIFIER: a loop of the program was verified once for each block of each captured stack.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn hash_block(block: u64, state: *mut *mut Scratch) -> i64 {
    // SAFETY: the loop was given the address of a pointer to this CPU's scratch.
    let scratch = unsafe { &mut **state };
    add_block(scratch, block as usize % (MAX_FRAMES / HASH_BLOCK) * HASH_BLOCK);
    0
}

/// Adds the block of captured addresses that begins at an index to the hash.
#[inline(always)]
fn add_block(scratch: &mut Scratch, start: usize) {
    let seed = get!(hash_seed);
    let addresses = (&raw const scratch.stack.frames).cast::<u64>();
    let mut hash = scratch.captured_hash;
    for index in start..start + HASH_BLOCK {
        // SAFETY: the index is below the length of the array, which has a block of padding.
        hash = hash_step(seed, hash, unsafe { *addresses.add(index) });
    }
    scratch.captured_hash = hash;
}

/// Completes the header; returns the bytes of the record up to the last address.
#[inline(always)]
fn complete_header(scratch: &mut Scratch, id: StackId, flags: u8, end_reason: u8) -> u64 {
    // VERIFIER: `frames` is read back from the map value instead of kept in a register. What is loaded from
    // memory has no history, so that every exit of the loop above looks the same here and is verified
    // once; with the register, what follows is verified once for each number of frames.
    // SAFETY: the field is in bounds of a live map value that this CPU owns.
    let frames = unsafe { read_volatile(&raw const scratch.stack.header.frames) };
    let frames = if frames as usize > MAX_FRAMES { MAX_FRAMES as u16 } else { frames };
    scratch.stack.header = StackHeader { kind: RecordKind::Stack as u32, frames, flags, end_reason, id };
    HEADER_BYTES + u64::from(frames) * u64::from(WORD_BYTES)
}
