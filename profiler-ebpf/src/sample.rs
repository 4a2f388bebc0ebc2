//! One tick: filter, capture both stacks, send the sample.

use core::ffi::c_void;

use aya_ebpf::{
    bindings::{BPF_RB_AVAIL_DATA, BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP},
    helpers::generated as helpers,
    programs::PerfEventContext,
};
use decide::must_wake;
use profiler_common::{
    COMM_BYTES, Counter, FRAMES_A_TAIL_CALL, MAX_FRAMES, RecordKind, SampleRecord, StackId,
};

use crate::{
    config::get,
    filter::{self, Verdict},
    maps::{LINKS, RECORDS, SCRATCH, add, count, send},
    process::{self, Ids},
    stack::{self, Scratch, Side},
    walk,
};

/// Takes the sample, its user stack by the kernel's own walk.
#[inline(always)]
pub(crate) fn by_frame_pointer(context: &PerfEventContext) {
    let Some(scratch) = begin(context) else { return };
    let user_stack = take_user_stack(context, scratch);
    finish(scratch, user_stack);
}

/// Takes the sample, its user stack by tables.
#[inline(always)]
pub(crate) fn by_loop(context: &PerfEventContext) {
    let Some(scratch) = begin(context) else { return };
    let user_stack = if walk::begin(context, scratch) {
        let mut state: *mut Scratch = scratch;
        // SAFETY: the callback has the type that the helper calls, and the state outlives the loop.
        unsafe {
            helpers::bpf_loop(MAX_FRAMES as u32, advance as *mut c_void, (&raw mut state).cast(), 0);
        }
        walk::finish(scratch)
    } else {
        take_user_stack(context, scratch)
    };
    finish(scratch, user_stack);
}

/// One turn of the loop; 1 ends it. A mangled name would depend on where the crate is built.
///
/// VERIFIER: never inlined. In a larger function the compiler keeps what a failed read left undefined on the stack, which
/// 5.10 refuses to load.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn advance(_turn: u64, state: *mut *mut Scratch) -> i64 {
    // SAFETY: the loop was given the address of a pointer to this CPU's scratch.
    let scratch = unsafe { &mut **state };
    i64::from(!walk::advance::<true>(scratch))
}

/// As [`advance`], for kernels that have no loops to look ahead with.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn advance_in_chain(state: *mut *mut Scratch) -> i64 {
    // SAFETY: as above.
    let scratch = unsafe { &mut **state };
    i64::from(!walk::advance::<false>(scratch))
}

/// As [`by_loop`], for kernels that have no loops: begins the walk, and leaves the rest to [`link`].
#[inline(always)]
pub(crate) fn by_chain(context: &PerfEventContext) {
    let Some(scratch) = begin(context) else { return };
    let user_stack = if walk::begin(context, scratch) {
        // SAFETY: the program has no destructors to skip.
        unsafe { LINKS.tail_call(context, 0) };
        walk::finish(scratch)
    } else {
        take_user_stack(context, scratch)
    };
    finish(scratch, user_stack);
}

/// Takes a few frames more, and goes on in its own place as often as the kernel lets it.
#[inline(always)]
pub(crate) fn link(context: &PerfEventContext) {
    let Some(scratch) = scratch() else { return };
    let mut state: *mut Scratch = scratch;
    let mut goes_on = true;
    // Bound: so many that 5.10 verifies them.
    for _ in 0..FRAMES_A_TAIL_CALL {
        if advance_in_chain(&raw mut state) != 0 {
            goes_on = false;
            break;
        }
    }
    if goes_on {
        // SAFETY: the program has no destructors to skip.
        unsafe { LINKS.tail_call(context, 0) };
    }
    let user_stack = walk::finish(scratch);
    finish(scratch, user_stack);
}

#[inline(always)]
fn scratch() -> Option<&'static mut Scratch> {
    let scratch = SCRATCH.get_ptr_mut(0)?;
    // SAFETY: the value belongs to this CPU, and the program is not interrupted by itself.
    Some(unsafe { &mut *scratch })
}

/// Filters, and begins the sample with all but its user stack. `None` when there is nothing more to do.
#[inline(always)]
fn begin(context: &PerfEventContext) -> Option<&'static mut Scratch> {
    count(Counter::Ticks);
    let ids = process::current();
    if matches!(ids, Some(Ids { tid: 0, .. })) {
        // The idle task.
        return None;
    }
    let ids = match filter::verdict(ids) {
        Verdict::Other => return None,
        Verdict::Target(ids) => ids,
        Verdict::Nameless => {
            count(Counter::TargetTicks);
            count(Counter::LostThreadId);
            return None;
        }
    };
    count(Counter::TargetTicks);
    let scratch = scratch()?;
    describe(&mut scratch.sample, ids);
    let kernel_stack =
        if get!(kernel_stacks) != 0 { stack::capture(context, scratch, Side::Kernel) } else { Ok(0) };
    match kernel_stack {
        Ok(id) => scratch.sample.kernel_stack = id,
        Err(counter) => {
            finish(scratch, Err(counter));
            return None;
        }
    }
    Some(scratch)
}

/// Fills in all but the stacks, field by field: a structure made elsewhere would be cleared and copied.
#[inline(always)]
fn describe(sample: &mut SampleRecord, ids: Ids) {
    sample.kind = RecordKind::Sample as u32;
    // SAFETY: the helper has no arguments and cannot fail.
    sample.cpu = unsafe { helpers::bpf_get_smp_processor_id() };
    // SAFETY: as above.
    sample.time_ns = unsafe { helpers::bpf_ktime_get_ns() };
    sample.pid = ids.pid;
    sample.tid = ids.tid;
    let comm = &raw mut sample.comm;
    // SAFETY: the buffer has the size given; where there is no name the helper clears it.
    unsafe { helpers::bpf_get_current_comm(comm.cast(), COMM_BYTES as u32) };
}

#[inline(always)]
fn take_user_stack(context: &PerfEventContext, scratch: &mut Scratch) -> Result<StackId, Counter> {
    if get!(user_stacks) != 0 { stack::capture(context, scratch, Side::User) } else { Ok(0) }
}

/// Sends the sample, or counts why it is lost.
#[inline(always)]
fn finish(scratch: &mut Scratch, user_stack: Result<StackId, Counter>) {
    let sent = user_stack.and_then(|id| {
        scratch.sample.user_stack = id;
        let bytes = size_of::<SampleRecord>() as u64;
        let is_sent = send((&raw const scratch.sample).cast(), bytes, wakeup_flag());
        if is_sent { Ok(()) } else { Err(Counter::LostRingBuffer) }
    });
    count(match sent {
        Ok(()) => Counter::Sampled,
        Err(counter) => counter,
    });
    // SAFETY: the helper has no arguments and cannot fail.
    let end_ns = unsafe { helpers::bpf_ktime_get_ns() };
    add(Counter::RunTimeNs, end_ns - scratch.sample.time_ns);
}

#[inline(always)]
fn wakeup_flag() -> u64 {
    // SAFETY: the map is a ring buffer and the flag one that the helper knows.
    let pending = unsafe {
        helpers::bpf_ringbuf_query((&raw const RECORDS).cast_mut().cast(), u64::from(BPF_RB_AVAIL_DATA))
    };
    u64::from(if must_wake(pending, get!(wakeup_bytes)) { BPF_RB_FORCE_WAKEUP } else { BPF_RB_NO_WAKEUP })
}
