//! Captures one stack, and sends it when user space does not have it yet.

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
    let bytes = unsafe {
        helpers::bpf_get_stack(context.as_ptr(), frames.cast(), MAX_FRAMES as u32 * WORD, flags)
    };
    if bytes <= 0 {
        return Ok(0);
    }
    let mut count_frames = bytes as u32 / WORD;
    if count_frames > MAX_FRAMES as u32 {
        count_frames = MAX_FRAMES as u32;
    }
    let id = hash(frames.cast(), count_frames);
    if STACKS.get_ptr(&id).is_some() {
        return Ok(id);
    }
    let header = StackHeader {
        kind: RecordKind::Stack as u32,
        frames: count_frames as u16,
        flags: stack_flags(count_frames, get!(max_depth)),
        id,
    };
    // SAFETY: the field is in bounds of a live map value that this CPU owns.
    unsafe { (*scratch).header = header };
    let record_bytes = HEADER_BYTES + u64::from(count_frames * WORD);
    if !send(scratch.cast_const().cast(), record_bytes, u64::from(BPF_RB_NO_WAKEUP)) {
        return Err(Counter::LostRingBuffer);
    }
    count(Counter::StacksSent);
    // Failing to remember it costs one more record, never a sample.
    let _ = STACKS.insert(&id, &0, 0);
    Ok(id)
}

#[inline(always)]
fn hash(frames: *const u64, count: u32) -> StackId {
    let mut hash = get!(hash_seed);
    // Bound: MAX_FRAMES.
    for index in 0..MAX_FRAMES {
        if index as u32 >= count {
            break;
        }
        // SAFETY: `index` is below the length of the array.
        let address = unsafe { *frames.add(index) };
        hash = hash_step(hash, address);
    }
    hash_finish(hash, u64::from(count))
}
