//! Captures one stack, and sends it when user space does not have it yet.

use core::ptr::read_volatile;

use aya_ebpf::{
    EbpfContext,
    bindings::{BPF_F_USER_STACK, BPF_RB_NO_WAKEUP},
    helpers::generated as helpers,
    programs::PerfEventContext,
};
use decide::{hash_finish, hash_step, stack_flags};
use profiler_common::{Counter, MAX_FRAMES, RecordKind, SampleRecord, StackHeader, StackId};

use crate::{
    ahead::Code,
    config::get,
    maps::{STACKS, count, send},
    walk::{Walk, Window},
};

/// What one run of the program works on.
#[repr(C)]
pub(crate) struct Scratch {
    pub(crate) walk: Walk,
    pub(crate) window: Window,
    pub(crate) code: Code,
    pub(crate) sample: SampleRecord,
    pub(crate) stack: StackRecord,
}

/// One stack record, as it goes into the ring buffer.
#[repr(C)]
pub(crate) struct StackRecord {
    pub(crate) header: StackHeader,
    /// Behind the most there can be is room to fill the last block up.
    pub(crate) frames: [u64; MAX_FRAMES + BLOCK],
}

/// Addresses are hashed by blocks of so many: the verifier looks at what it knows once a block, not once an address.
const BLOCK: usize = 8;

const WORD: u32 = size_of::<u64>() as u32;
const HEADER_BYTES: u64 = size_of::<StackHeader>() as u64;

/// Which of the two stacks of a task.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Side {
    Kernel,
    User,
}

/// The id of the stack at this tick by the kernel's own walk; 0 where the task has none on that side.
///
/// # Errors
/// The counter of the loss when the stack is new and does not fit into the ring buffer.
#[inline(always)]
pub(crate) fn capture(
    context: &PerfEventContext,
    scratch: &mut Scratch,
    side: Side,
) -> Result<StackId, Counter> {
    let flags = if side == Side::User { u64::from(BPF_F_USER_STACK) } else { 0 };
    let frames = (&raw mut scratch.stack.frames).cast();
    // SAFETY: the buffer has the size given, and the context is that of this program.
    let bytes = unsafe { helpers::bpf_get_stack(context.as_ptr(), frames, room_bytes(), flags) };
    if bytes <= 0 {
        return Ok(0);
    }
    let frames = bytes as u32 / WORD;
    let id = hash(scratch, frames);
    deliver(scratch, id, stack_flags(frames, get!(max_depth)), 0)
}

/// Sends the stack when user space does not have it yet. The number of its frames stands in the header.
///
/// # Errors
/// The counter of the loss when it does not fit into the ring buffer.
#[inline(always)]
pub(crate) fn deliver(scratch: &mut Scratch, id: StackId, flags: u8, end: u8) -> Result<StackId, Counter> {
    if STACKS.get_ptr(&id).is_some() {
        return Ok(id);
    }
    let bytes = complete_header(scratch, id, flags, end);
    if !send((&raw const scratch.stack).cast(), bytes, u64::from(BPF_RB_NO_WAKEUP)) {
        return Err(Counter::LostRingBuffer);
    }
    count(Counter::StacksSent);
    // Failing to remember it costs one more record, never a sample.
    let _ = STACKS.insert(&id, &0, 0);
    Ok(id)
}

/// As much as the kernel's walk can fill: where a task has no stack on a side, the helper zeroes all of it.
#[inline(always)]
fn room_bytes() -> u32 {
    let depth = get!(max_depth);
    let depth = if depth as usize > MAX_FRAMES { MAX_FRAMES as u32 } else { depth };
    depth * WORD
}

/// Hashes the captured addresses and leaves their number in the header.
#[inline(always)]
fn hash(scratch: &mut Scratch, frames: u32) -> StackId {
    let frames = if frames > MAX_FRAMES as u32 { MAX_FRAMES as u32 } else { frames };
    scratch.stack.header.frames = frames as u16;
    let addresses = (&raw mut scratch.stack.frames).cast::<u64>();
    for index in 0..BLOCK {
        // SAFETY: there is room for a block behind the most frames.
        unsafe { *addresses.add(frames as usize + index) = 0 };
    }
    let mut hash = get!(hash_seed);
    let limit = get!(max_depth) as usize;
    // Bound: the depth at which the kernel's walk ends, which the verifier knows, and MAX_FRAMES.
    for start in (0..MAX_FRAMES).step_by(BLOCK) {
        if start >= limit || start >= frames as usize {
            break;
        }
        for index in start..start + BLOCK {
            // SAFETY: `index` is below the length of the array.
            hash = hash_step(hash, unsafe { *addresses.add(index) });
        }
    }
    hash_finish(hash, u64::from(frames))
}

/// Completes the header; the number of bytes from there to the last address.
#[inline(always)]
fn complete_header(scratch: &mut Scratch, id: StackId, flags: u8, end: u8) -> u64 {
    // VERIFIER: `frames` is read back from the map value instead of kept in a register. What is loaded from
    // memory has no history, so that every way out of the loop above looks the same here and is verified
    // once; with the register, what follows is verified once for each number of frames.
    // SAFETY: the field is in bounds of a live map value that this CPU owns.
    let frames = unsafe { read_volatile(&raw const scratch.stack.header.frames) };
    let frames = if frames as usize > MAX_FRAMES { MAX_FRAMES as u16 } else { frames };
    scratch.stack.header = StackHeader { kind: RecordKind::Stack as u32, frames, flags, end, id };
    HEADER_BYTES + u64::from(frames) * u64::from(WORD)
}
