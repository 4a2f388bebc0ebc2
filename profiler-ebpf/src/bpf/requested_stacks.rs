//! User stacks of waiting threads where the task iterator cannot copy them: a pass requests their copies, and a program that user
//! space runs for each copied part unwinds them. Neither may sleep or use `bpf_loop`.

use aya_ebpf::bindings::task_struct;
use profiler_common::{
    Counter, FRAMES_PER_TAIL_CALL,
    requested_stack::{CopiedStack, StackRequest, UnwindResult, UnwindStep},
    unwind::StackEndReason,
    wall::WallPass,
};
use profiler_ebpf::unwind_step::Registers;

use super::{
    clock::now_ns,
    config::get,
    kernel_memory::read,
    maps::{COPIED_STACK, STACK_REQUESTS, WALL_PASS},
    scratch::{Scratch, UnwindState},
    stack_copy::CopiedMemory,
    unwinder,
    user_registers::{may_await_mutex, registers_of_task},
    waiting_stacks,
    waiting_task::WaitingTask,
    wall::{count_lost, fill_thread, remember, wall_scratch},
};

/// Captures the kernel stack of a thread, and requests a copy of its user stack.
///
/// # Errors
/// The counter of the loss.
#[inline(always)]
pub(crate) fn request(
    task: *mut task_struct,
    found: &WaitingTask,
    pass: &mut WallPass,
    run_queue_ns: u64,
) -> Result<(), Counter> {
    let wall = wall_scratch().ok_or(Counter::WallLostAwake)?;
    let now_ns = now_ns();
    let kernel = waiting_stacks::capture_kernel_stack::<false>(task, found, &mut wall.pass.scratch, now_ns)?;
    let thread = &mut wall.record.thread;
    fill_thread(thread, task, found, pass, run_queue_ns);
    thread.time_ns = now_ns;
    thread.kernel_stack = kernel;
    thread.user_stack = 0;
    thread.is_cut = 0;
    thread.may_await_mutex = 0;
    let leaf = &mut wall.pass.scratch.unwind.leaf;
    let registers = if get!(user_stacks) != 0 { registers_of_task(task, leaf) } else { None };
    let Some(registers) = registers else { return remember(task as u64, thread) };
    thread.may_await_mutex = may_await_mutex(leaf);
    let request = STACK_REQUESTS.get_ptr_mut(pass.requests).ok_or(Counter::WallLostThread)?;
    // SAFETY: passes and the program that reads it run one after another.
    let request = unsafe { &mut *request };
    request.task = task as u64;
    request.instruction_pointer = registers.instruction_pointer;
    request.stack_pointer = registers.stack_pointer;
    request.frame_pointer = registers.frame_pointer;
    request.rbx = registers.rbx;
    request.leaf = *leaf;
    request.thread = *thread;
    pass.requests += 1;
    Ok(())
}

/// Unwinds some frames of a requested stack; see [`UnwindStep`].
#[inline(always)]
pub(crate) fn unwind_copied() -> UnwindResult {
    let (Some(copied), Some(wall)) = (COPIED_STACK.get_ptr_mut(0), wall_scratch()) else {
        return UnwindResult::Ended;
    };
    // SAFETY: the program runs for one copy after another.
    let copied = unsafe { &mut *copied };
    let Some(request) = STACK_REQUESTS.get_ptr_mut(copied.request) else { return UnwindResult::Ended };
    // SAFETY: as above.
    let request = unsafe { &mut *request };
    if copied.step == UnwindStep::Begin as u32 && !begin(request, &mut wall.pass.scratch) {
        end(request, 0, false);
        return UnwindResult::Ended;
    }
    let unwind = &mut wall.pass.scratch.unwind;
    if copied.step == UnwindStep::End as u32 {
        unwind.end_reason = StackEndReason::UnreadableStack as u32;
    } else {
        unwind.end_reason = UnwindState::RUNNING;
        let mut state: *mut Scratch = &raw mut wall.pass.scratch;
        // Bound: see its definition.
        for _ in 0..FRAMES_PER_TAIL_CALL {
            if unwind_copied_frame(&raw mut state) != 0 {
                break;
            }
        }
        let end_reason = wall.pass.scratch.unwind.end_reason;
        if end_reason == UnwindState::RUNNING {
            return UnwindResult::HasFrames;
        }
        if copied.part.wanted != 0 && waiting_stacks::is_unreadable(end_reason) {
            return UnwindResult::NeedsPart;
        }
    }
    let scratch = &mut wall.pass.scratch;
    let is_cut = scratch.unwind.is_cut();
    match unwinder::finish(scratch) {
        Ok(id) => end(request, id, is_cut),
        Err(_) => lose(Counter::WallLostRingBuffer),
    }
    UnwindResult::Ended
}

/// Begins the stack of a request. False where it has no frame.
#[inline(always)]
fn begin(request: &StackRequest, scratch: &mut Scratch) -> bool {
    scratch.sample.pid = request.thread.pid;
    scratch.sample.tid = request.thread.tid;
    scratch.sample.time_ns = request.thread.time_ns;
    waiting_stacks::begin_user_stack(scratch);
    let registers = Registers {
        instruction_pointer: request.instruction_pointer,
        stack_pointer: request.stack_pointer,
        frame_pointer: request.frame_pointer,
        rbx: request.rbx,
    };
    scratch.unwind.leaf = request.leaf;
    scratch.return_probes.task = request.task;
    unwinder::begin_at(registers, scratch)
}

/// Unwinds one frame; 1 at the end of the stack, also where a further part is needed.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn unwind_copied_frame(state: *mut *mut Scratch) -> i64 {
    // SAFETY: the loop has given the address of a pointer to the scratch.
    let scratch = unsafe { &mut **state };
    let Some(copied) = COPIED_STACK.get_ptr_mut(0) else { return 1 };
    // SAFETY: the program runs for one copy after another.
    let copied: &mut CopiedStack = unsafe { &mut *copied };
    copied.part.wanted = 0;
    let memory = CopiedMemory(&raw mut copied.part);
    i64::from(!unwinder::unwind_frame::<false>(scratch, &memory))
}

/// Remembers the thread of a request with its stack, unless it has run since the request: then the stack changed while it was
/// copied.
#[inline(always)]
fn end(request: &mut StackRequest, user_stack: u64, is_cut: bool) {
    if !still_waits(request) {
        return lose(Counter::WallLostAwake);
    }
    request.thread.user_stack = user_stack;
    request.thread.is_cut = u32::from(is_cut);
    if let Err(counter) = remember(request.task, &request.thread) {
        lose(counter);
    }
}

#[inline(always)]
fn lose(counter: Counter) {
    if let Some(pass) = WALL_PASS.get(0) {
        count_lost(counter, pass);
    }
}

/// Whether the thread has not run since the request. The memory of one that has ended can belong to another task, with another
/// time of its start.
#[inline(always)]
fn still_waits(request: &StackRequest) -> bool {
    let task = request.task;
    let switches: Option<[u64; 2]> = read(task, get!(wall.task_switches));
    let on_cpu: Option<u8> = read(task, get!(wall.task_on_cpu));
    let start_time: Option<u64> = read(task, get!(wall.task_start_time));
    let [voluntary, involuntary] = switches.unwrap_or_default();
    voluntary.wrapping_add(involuntary) == request.thread.switches
        && on_cpu == Some(0)
        && start_time == Some(request.thread.start_time)
}
