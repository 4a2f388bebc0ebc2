//! Captures one stack, and sends it when user space does not have it yet.

use core::ptr::read_volatile;

use aya_ebpf::{
    EbpfContext,
    bindings::{BPF_F_USER_STACK, BPF_RB_NO_WAKEUP},
    helpers::generated as helpers,
    programs::PerfEventContext,
};
use decide::{hash_finish, hash_step, stack_flags};
use profiler_common::{Counter, MAX_FRAMES, RecordKind, StackHeader, StackId};

use crate::{
    config::get,
    maps::{SCRATCH, STACKS, count, send},
};

/// One stack record, as it goes into the ring buffer.
#[repr(C)]
pub(crate) struct Scratch {
    header: StackHeader,
    frames: [u64; MAX_FRAMES],
}

const WORD: u32 = size_of::<u64>() as u32;
const HEADER_BYTES: u64 = size_of::<StackHeader>() as u64;

/// Which of the two stacks of a task.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Side {
    Kernel,
    User,
}

/// The id of the stack at this tick; 0 where the task has none on that side.
///
/// # Errors
/// The counter of the loss when the stack is new and does not fit into the ring buffer.
#[inline(always)]
pub(crate) fn capture(context: &PerfEventContext, side: Side) -> Result<StackId, Counter> {
    let scratch = SCRATCH.get_ptr_mut(0).ok_or(Counter::LostRingBuffer)?;
    let flags = if side == Side::User { u64::from(BPF_F_USER_STACK) } else { 0 };
    // SAFETY: the field is in bounds of a live map value.
    let frames = unsafe { &raw mut (*scratch).frames };
    // SAFETY: the buffer has the size given, and the context is that of this program.
    let bytes = unsafe { helpers::bpf_get_stack(context.as_ptr(), frames.cast(), room_bytes(), flags) };
    if bytes <= 0 {
        return Ok(0);
    }
    let id = hash(scratch, bytes as u32 / WORD);
    if STACKS.get_ptr(&id).is_some() {
        return Ok(id);
    }
    if !send(scratch.cast_const().cast(), record_bytes(scratch, id), u64::from(BPF_RB_NO_WAKEUP)) {
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
fn hash(scratch: *mut Scratch, frames: u32) -> StackId {
    // SAFETY: the field is in bounds of a live map value that this CPU owns.
    unsafe { (*scratch).header.frames = frames as u16 };
    // SAFETY: as above.
    let addresses = unsafe { &raw const (*scratch).frames }.cast::<u64>();
    let mut hash = get!(hash_seed);
    let limit = get!(max_depth);
    // Bound: the depth at which the kernel's walk ends, which the verifier knows, and MAX_FRAMES.
    for index in 0..MAX_FRAMES as u32 {
        if index >= limit || index >= frames {
            break;
        }
        // SAFETY: `index` is below the length of the array.
        hash = hash_step(hash, unsafe { *addresses.add(index as usize) });
    }
    hash_finish(hash, u64::from(frames))
}

/// Completes the header; the number of bytes from there to the last address.
#[inline(always)]
fn record_bytes(scratch: *mut Scratch, id: StackId) -> u64 {
    // VERIFIER: `frames` is read back from the map value instead of kept in a register. What is loaded from
    // memory has no history, so that every way out of the loop above looks the same here and is verified
    // once; with the register, 6.18 walked what follows once for each number of frames (78,000
    // instructions in place of 6,000).
    // SAFETY: the field is in bounds of a live map value that this CPU owns.
    let frames = unsafe { read_volatile(&raw const (*scratch).header.frames) };
    let frames = if frames as usize > MAX_FRAMES { MAX_FRAMES as u16 } else { frames };
    let flags = stack_flags(u32::from(frames), get!(max_depth));
    let header = StackHeader { kind: RecordKind::Stack as u32, frames, flags, id };
    // SAFETY: as above.
    unsafe { (*scratch).header = header };
    HEADER_BYTES + u64::from(frames) * u64::from(WORD)
}
