//! Captures the stacks of a task that is not on a CPU: the kernel's by its helper, the user's by unwinding a copy.

use core::ffi::c_void;

use aya_ebpf::{bindings::task_struct, helpers::generated as helpers};
use profiler_common::{
    Counter, OVERHEAD_SHARE_BITS, StackId, requested_stack::StackPart, unwind::StackEndReason,
};

use super::{
    config::get,
    scratch::{Scratch, UnwindState},
    stack_capture,
    stack_copy::{self, CopiedMemory},
    unwinder,
    user_registers::{may_await_mutex, registers_of_task},
    waiting_task::{WaitingTask, load},
};

/// The working memory of a pass. Passes run one after another.
#[repr(C)]
pub(crate) struct PassScratch {
    pub(crate) scratch: Scratch,
    pub(crate) part: StackPart,
    /// See [`WaitingThread::may_await_mutex`](profiler_common::wall::WaitingThread::may_await_mutex).
    pub(crate) may_await_mutex: u32,
}

/// The stacks of a task that waits.
pub(crate) struct WaitingStacks {
    /// 0 where kernel stacks are not wanted.
    pub(crate) kernel: StackId,
    /// 0 where user stacks are not wanted, or the task has none.
    pub(crate) user: StackId,
    /// Whether the user stack ended before its root, for a reason that an unwind table can remove.
    pub(crate) is_cut: bool,
}

/// Captures the stacks of a task.
///
/// # Errors
/// The counter of the loss: the task ran meanwhile, or a stack did not fit into the ring buffer.
#[inline(always)]
pub(crate) fn capture(
    task: *mut task_struct,
    found: &WaitingTask,
    pass: &mut PassScratch,
    now_ns: u64,
) -> Result<WaitingStacks, Counter> {
    let kernel = capture_kernel_stack::<true>(task, found, &mut pass.scratch, now_ns)?;
    pass.may_await_mutex = 0;
    let user = if get!(user_stacks) != 0 { unwind(task, pass)? } else { 0 };
    // A thread that ran meanwhile changed its stack while it was read.
    if !found.still_waits() {
        return Err(Counter::WallLostAwake);
    }
    let is_cut = get!(user_stacks) != 0 && pass.scratch.unwind.is_cut();
    Ok(WaitingStacks { kernel, user, is_cut })
}

/// Begins the stacks of a task, and captures that of the kernel; 0 where kernel stacks are not wanted. `LOOPS`: the program may call
/// `bpf_loop`.
///
/// # Errors
/// The counter of the loss.
#[inline(always)]
pub(crate) fn capture_kernel_stack<const LOOPS: bool>(
    task: *mut task_struct,
    found: &WaitingTask,
    scratch: &mut Scratch,
    now_ns: u64,
) -> Result<StackId, Counter> {
    scratch.sample.pid = found.ids.pid;
    scratch.sample.tid = found.ids.tid;
    scratch.sample.time_ns = now_ns;
    if get!(kernel_stacks) == 0 {
        return Ok(0);
    }
    stack_capture::capture_of_task::<LOOPS>(task, scratch).map_err(|_| Counter::WallLostRingBuffer)
}

/// The most parts of a stack that are copied.
const MAX_PARTS: u32 = 16;

/// What the callback for a part of a stack needs.
#[repr(C)]
struct PartsOfStack {
    pass: *mut PassScratch,
    task: *mut task_struct,
}

/// Unwinds the user stack and returns its id; 0 if the task has no user stack.
#[inline(always)]
fn unwind(task: *mut task_struct, pass: &mut PassScratch) -> Result<StackId, Counter> {
    begin_user_stack(&mut pass.scratch);
    pass.scratch.vma_search.mm = load(task, get!(wall.task_mm));
    pass.scratch.return_probes.task = task as u64;
    let Some(registers) = registers_of_task(task, &mut pass.scratch.unwind.leaf) else { return Ok(0) };
    pass.may_await_mutex = may_await_mutex(&pass.scratch.unwind.leaf);
    if !unwinder::begin_at(registers, &mut pass.scratch) {
        return Ok(0);
    }
    pass.part.wanted = registers.stack_pointer;
    let mut parts = PartsOfStack { pass, task };
    // SAFETY: the callback has the type that the helper calls, and the parts outlive the loop.
    unsafe { helpers::bpf_loop(MAX_PARTS, unwind_part as *mut c_void, (&raw mut parts).cast(), 0) };
    // SAFETY: the scratch outlives the loop.
    let pass = unsafe { &mut *parts.pass };
    unwinder::finish(&mut pass.scratch).map_err(|_| Counter::WallLostRingBuffer)
}

/// The callback of `bpf_loop`: copies the next part of a stack and unwinds its frames; 1 ends the loop. A loop of the program
/// itself would be verified for each part anew.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn unwind_part(index: u64, parts: *mut PartsOfStack) -> i64 {
    // SAFETY: the loop was given the address of the parts.
    let task = unsafe { (*parts).task };
    // SAFETY: as above; the scratch outlives the loop.
    let pass = unsafe { &mut *(*parts).pass };
    let failure = stack_copy::copy(&mut pass.part, task, index == 0);
    if failure != 0 {
        // Where a frame pointer leads to no stack, that is the reason.
        let is_first = pass.scratch.unwind.end_reason == UnwindState::RUNNING;
        if is_first || failure == StackEndReason::MappingsLocked as u32 {
            pass.scratch.unwind.end_reason = failure;
        }
        return 1;
    }
    pass.scratch.unwind.end_reason = UnwindState::RUNNING;
    let mut state: *mut PassScratch = pass;
    // SAFETY: the callback has the type that the helper calls, and the state outlives the loop.
    unsafe {
        helpers::bpf_loop(
            unwinder::MAX_STEPS,
            unwind_waiting_frame as *mut c_void,
            (&raw mut state).cast(),
            0,
        )
    };
    // SAFETY: as above.
    let pass = unsafe { &mut *state };
    i64::from(pass.part.wanted == 0 || !is_unreadable(pass.scratch.unwind.end_reason))
}

/// Begins a user stack without frames.
#[inline(always)]
pub(crate) fn begin_user_stack(scratch: &mut Scratch) {
    scratch.unwind.depth = 0;
    scratch.unwind.end_reason = UnwindState::RUNNING;
    // Passes have no limit of their own: user space spaces them.
    scratch.governor.begin_sample(scratch.sample.time_ns, 1 << OVERHEAD_SHARE_BITS);
}

/// The callback of `bpf_loop`: unwinds one frame; 1 ends the loop, also where a further part of the stack is needed.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn unwind_waiting_frame(_iteration: u64, state: *mut *mut PassScratch) -> i64 {
    // SAFETY: the loop was given the address of a pointer to the scratch.
    let pass = unsafe { &mut **state };
    pass.part.wanted = 0;
    let stack = CopiedMemory(&raw mut pass.part);
    i64::from(!unwinder::unwind_frame::<false>(&mut pass.scratch, &stack))
}

/// Whether a stack ended at memory that was not copied.
#[inline(always)]
pub(crate) fn is_unreadable(end_reason: u32) -> bool {
    end_reason == StackEndReason::UnreadableStack as u32
        || end_reason == StackEndReason::BrokenFramePointer as u32
}
