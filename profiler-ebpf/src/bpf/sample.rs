//! The sampling programs: filter a tick, capture kernel and user stack, send the sample.

use core::ffi::c_void;

use aya_ebpf::{EbpfContext, helpers::generated as helpers, programs::PerfEventContext};
use profiler_common::{COMM_BYTES, Counter, FRAMES_PER_TAIL_CALL, RecordKind, SampleRecord, StackId};
use profiler_ebpf::next_query;

use super::{
    clock,
    config::get,
    counters::{add, count},
    maps::{SCRATCH, TAIL_CALLS},
    pid_namespace::{TaskIds, current_task_ids},
    ring_buffer::{Wakeup, send},
    scratch::Scratch,
    stack_capture::{self, Side},
    target_filter::{Verdict, filter_task},
    unwinder,
    user_memory::UserStack,
    user_registers::interrupted_user_mode,
};

/// Takes a sample whose user stack `bpf_get_stack` captures.
///
/// # Errors
/// The counter of the loss when the sample is lost, as for all functions here.
#[inline(always)]
pub(crate) fn try_sample_fp(context: &PerfEventContext) -> Result<(), Counter> {
    let Some(scratch) = try_begin::<false>(context)? else { return Ok(()) };
    let user_stack = capture_user_stack::<false>(context, scratch);
    finish(scratch, user_stack)
}

/// Takes a sample whose user stack the unwinder captures in one `bpf_loop`.
#[inline(always)]
pub(crate) fn try_sample_loop(context: &PerfEventContext) -> Result<(), Counter> {
    let Some(scratch) = try_begin::<true>(context)? else { return Ok(()) };
    if unwinder::begin(context, scratch) {
        unwind_in_loop(scratch);
    }
    let user_stack = finish_user_stack::<true>(context, scratch);
    finish(scratch, user_stack)
}

/// Unwinds a stack that has begun, in one `bpf_loop`.
#[inline(always)]
pub(crate) fn unwind_in_loop(scratch: &mut Scratch) {
    let mut state: *mut Scratch = scratch;
    // SAFETY: the callback has the type that the helper calls, and the state outlives the loop.
    unsafe {
        helpers::bpf_loop(unwinder::MAX_STEPS, unwind_frame as *mut c_void, (&raw mut state).cast(), 0);
    }
}

/// The callback of `bpf_loop`: unwinds one frame; 1 ends the loop. A mangled name would depend on where the crate is built.
///
/// VERIFIER: never inlined. In a larger function the compiler keeps what a failed read left undefined on the stack, which
/// 5.10 refuses to load.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn unwind_frame(_iteration: u64, state: *mut *mut Scratch) -> i64 {
    // SAFETY: the loop was given the address of a pointer to this CPU's scratch.
    let scratch = unsafe { &mut **state };
    let stack = UserStack(&raw mut scratch.window);
    i64::from(!unwinder::unwind_frame::<true>(scratch, &stack))
}

/// As [`unwind_frame`], for kernels without `bpf_loop`, which the epilogue scan needs.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn unwind_frame_without_scan(state: *mut *mut Scratch) -> i64 {
    // SAFETY: as above.
    let scratch = unsafe { &mut **state };
    let stack = UserStack(&raw mut scratch.window);
    i64::from(!unwinder::unwind_frame::<false>(scratch, &stack))
}

/// As [`try_sample_loop`], for kernels without `bpf_loop`: starts the unwinder and tail-calls
/// [`try_unwind_tailcall`] for the frames.
#[inline(always)]
pub(crate) fn try_sample_tailcall(context: &PerfEventContext) -> Result<(), Counter> {
    let Some(scratch) = try_begin::<false>(context)? else { return Ok(()) };
    if unwinder::begin(context, scratch) {
        // SAFETY: the program has no destructors to skip.
        unsafe { TAIL_CALLS.tail_call(context, 0) };
    }
    let user_stack = finish_user_stack::<false>(context, scratch);
    finish(scratch, user_stack)
}

/// Unwinds some frames more, and tail-calls itself until the stack ends or the kernel's limit of tail calls is reached.
#[inline(always)]
pub(crate) fn try_unwind_tailcall(context: &PerfEventContext) -> Result<(), Counter> {
    let Some(scratch) = scratch() else { return Ok(()) };
    let mut state: *mut Scratch = scratch;
    let mut is_running = true;
    // Bound: as many frames as the verifier of 5.10 accepts in one program.
    for _ in 0..FRAMES_PER_TAIL_CALL {
        if unwind_frame_without_scan(&raw mut state) != 0 {
            is_running = false;
            break;
        }
    }
    if is_running {
        // SAFETY: the program has no destructors to skip.
        unsafe { TAIL_CALLS.tail_call(context, 0) };
    }
    let user_stack = finish_user_stack::<false>(context, scratch);
    finish(scratch, user_stack)
}

/// Ends the unwinder's stack.
#[inline(always)]
fn finish_user_stack<const LOOPS: bool>(
    context: &PerfEventContext,
    scratch: &mut Scratch,
) -> Result<StackId, Counter> {
    if unwinder::is_captured(scratch) {
        unwinder::finish(scratch)
    } else {
        capture_user_stack::<LOOPS>(context, scratch)
    }
}

/// The working memory of this CPU.
#[inline(always)]
fn scratch() -> Option<&'static mut Scratch> {
    let scratch = SCRATCH.get_ptr_mut(0)?;
    // SAFETY: the value belongs to this CPU, and the program is not interrupted by itself.
    Some(unsafe { &mut *scratch })
}

/// Filters the tick, and fills in the sample except for its user stack. `None` where the task is no target.
#[inline(always)]
fn try_begin<const LOOPS: bool>(context: &PerfEventContext) -> Result<Option<&'static mut Scratch>, Counter> {
    count(Counter::Ticks);
    let ids = current_task_ids();
    if matches!(ids, Some(TaskIds { tid: 0, .. })) {
        count(Counter::IdleTicks);
        return Ok(None);
    }
    let ids = match filter_task(ids) {
        Verdict::NotTarget => return Ok(None),
        Verdict::Target(ids) => ids,
        Verdict::TargetWithoutIds => {
            count(Counter::TargetTicks);
            return Err(Counter::LostThreadId);
        }
    };
    count(Counter::TargetTicks);
    let Some(scratch) = scratch() else { return Ok(None) };
    let now_ns = clock::now_ns();
    fill_sample(&mut scratch.sample, ids, now_ns);
    let Some(weight) = scratch.governor.begin_sample(now_ns, get!(max_overhead)) else {
        count(Counter::SkippedTicks);
        return Ok(None);
    };
    scratch.sample.weight = weight;
    // `bpf_get_stack` would clear its buffer to find no stack.
    let kernel_stack = if get!(kernel_stacks) != 0 && !interrupted_user_mode(context) {
        stack_capture::capture::<LOOPS>(context.as_ptr(), scratch, Side::Kernel)
    } else {
        Ok(0)
    };
    match kernel_stack {
        Ok(id) => {
            scratch.sample.kernel_stack = id;
            Ok(Some(scratch))
        }
        Err(counter) => {
            end_run(scratch, false);
            Err(counter)
        }
    }
}

/// Fills in all fields but the stacks, one by one: a structure literal would be cleared and copied.
#[inline(always)]
pub(crate) fn fill_sample(sample: &mut SampleRecord, ids: TaskIds, time_ns: u64) {
    sample.kind = RecordKind::Sample as u32;
    // SAFETY: the helper has no arguments and cannot fail.
    sample.cpu = unsafe { helpers::bpf_get_smp_processor_id() } as u16;
    sample.time_ns = time_ns;
    sample.pid = ids.pid;
    sample.tid = ids.tid;
    let comm = &raw mut sample.comm;
    // SAFETY: the buffer has the size given; where there is no name the helper clears it.
    unsafe { helpers::bpf_get_current_comm(comm.cast(), COMM_BYTES as u32) };
}

#[inline(always)]
fn capture_user_stack<const LOOPS: bool>(
    context: &PerfEventContext,
    scratch: &mut Scratch,
) -> Result<StackId, Counter> {
    if get!(user_stacks) == 0 {
        return Ok(0);
    }
    stack_capture::capture::<LOOPS>(context.as_ptr(), scratch, Side::User)
}

/// Sends the sample.
#[inline(always)]
fn finish(scratch: &mut Scratch, user_stack: Result<StackId, Counter>) -> Result<(), Counter> {
    let sent = user_stack.and_then(|id| {
        scratch.sample.user_stack = id;
        let bytes = size_of::<SampleRecord>() as u64;
        let is_sent = send((&raw const scratch.sample).cast(), bytes, next_wakeup(scratch));
        if is_sent { Ok(()) } else { Err(Counter::LostRingBuffer) }
    });
    end_run(scratch, sent.is_ok());
    sent
}

/// Whether this sample wakes the reader at the threshold.
#[inline(always)]
fn next_wakeup(scratch: &mut Scratch) -> Wakeup {
    let (is_query, left) = next_query(scratch.samples_to_query);
    scratch.samples_to_query = left;
    if is_query { Wakeup::AtThreshold } else { Wakeup::Never }
}

/// Adds the run time.
#[inline(always)]
fn end_run(scratch: &mut Scratch, is_sent: bool) {
    let run_time_ns = clock::now_ns() - scratch.sample.time_ns;
    scratch.governor.end_sample(run_time_ns, is_sent);
    add(Counter::RunTimeNs, run_time_ns);
}
