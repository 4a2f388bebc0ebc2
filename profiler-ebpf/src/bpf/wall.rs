//! Wall-clock samples: one pass of the task iterator over the threads of the target that are not on a CPU.
//!
//! The program is sleepable: the stack of another task is copied by `bpf_copy_from_user_task`, which can fault pages in. A
//! thread that has not run since the last pass keeps its stacks, and costs no copy.

use core::ffi::c_void;

use aya_ebpf::{bindings::task_struct, helpers::generated as helpers};
use profiler_common::{
    Counter, MAX_FRAMES, OVERHEAD_SHARE_BITS, PidSource, RecordKind, StackId, TargetFilter,
    unwind::StackEndReason,
    wall::{WaitRecord, WaitState, WaitingThread, WallPass},
};

use super::{
    cgroup,
    config::get,
    counters::add,
    kernel_memory::read,
    maps::{TARGETS, WAITING_THREADS, WALL_PASS, WALL_SCRATCH},
    pid_namespace::{TaskIds, ids_of_task},
    ring_buffer::{Wakeup, send},
    scratch::{Scratch, UnwindState},
    stack_capture,
    stack_copy::{CopiedStack, StackCopy},
    unwinder,
    user_registers::registers_of_task,
};

/// The working memory of a pass. Passes run one after another.
#[repr(C)]
pub(crate) struct WallScratch {
    pub(crate) scratch: Scratch,
    pub(crate) copy: StackCopy,
    pub(crate) record: WaitRecord,
}

/// What is read of a task at each pass.
struct Task {
    address: u64,
    ids: TaskIds,
    state: u32,
    switches: u64,
    start_time: u64,
}

/// Samples a thread of the target that is not on a CPU. The counters of losses are in ticks.
#[inline(always)]
pub(crate) fn sample_thread(task: *mut task_struct) {
    let Some(pass) = WALL_PASS.get(0) else { return };
    let Some(found) = waiting_task(task as u64) else { return };
    add(Counter::WallTicks, u64::from(pass.ticks));
    if let Some(known) = known_thread(&found) {
        if is_known_stack(known, &found, *pass) {
            keep_waiting(known, &found, *pass);
            return;
        }
        send_wait(known);
    }
    if let Err(counter) = capture(task, &found, *pass) {
        add(counter, u64::from(pass.ticks));
    }
}

/// The thread of an earlier pass.
#[inline(always)]
fn known_thread(task: &Task) -> Option<&'static mut WaitingThread> {
    let known = WAITING_THREADS.get_ptr_mut(&task.ids.tid)?;
    // SAFETY: passes run one after another, and user space changes the map between them.
    Some(unsafe { &mut *known })
}

/// Whether a thread has not run since its stacks were captured. Stacks that are cut are captured again in some of the passes.
#[inline(always)]
fn is_known_stack(known: &WaitingThread, task: &Task, pass: WallPass) -> bool {
    const PASSES_BETWEEN_CAPTURES: u32 = 16;
    let is_same = known.switches == task.switches && known.start_time == task.start_time;
    is_same && (known.is_cut == 0 || !pass.number.is_multiple_of(PASSES_BETWEEN_CAPTURES))
}

/// Counts the ticks of a thread that has not run since the last pass.
#[inline(always)]
fn keep_waiting(known: &mut WaitingThread, task: &Task, pass: WallPass) {
    if known.state != task.state {
        // It was woken, and waits for a CPU. Its stacks are the same.
        send_wait(known);
        known.state = task.state;
        known.time_ns = now_ns();
    }
    known.ticks += pass.ticks;
    known.pass = pass.number;
}

/// Sends the ticks of a thread that no record has.
#[inline(always)]
fn send_wait(known: &mut WaitingThread) {
    if known.ticks == 0 {
        return;
    }
    let Some(wall) = wall_scratch() else { return };
    wall.record.kind = RecordKind::Wait as u32;
    wall.record.thread = *known;
    let bytes = size_of::<WaitRecord>() as u64;
    if !send((&raw const wall.record).cast(), bytes, Wakeup::AtThreshold) {
        add(Counter::WallLostRingBuffer, u64::from(known.ticks));
    }
    known.ticks = 0;
}

/// Captures the stacks of a thread, and remembers it.
///
/// # Errors
/// The counter of the loss.
#[inline(always)]
fn capture(task: *mut task_struct, found: &Task, pass: WallPass) -> Result<(), Counter> {
    let wall = wall_scratch().ok_or(Counter::WallLostAwake)?;
    let now_ns = now_ns();
    wall.scratch.sample.pid = found.ids.pid;
    wall.scratch.sample.tid = found.ids.tid;
    wall.scratch.sample.time_ns = now_ns;
    let kernel_stack = if get!(kernel_stacks) != 0 {
        stack_capture::capture_of_task(task, &mut wall.scratch).map_err(|_| Counter::WallLostRingBuffer)?
    } else {
        0
    };
    let user_stack = if get!(user_stacks) != 0 { unwind(task, wall)? } else { 0 };
    // A thread that ran meanwhile changed its stack while it was read.
    if switches(found.address) != Some(found.switches) {
        return Err(Counter::WallLostAwake);
    }
    // Field by field, in the scratch: the BPF stack has 512 bytes.
    let thread = &mut wall.record.thread;
    thread.time_ns = now_ns;
    thread.start_time = found.start_time;
    thread.switches = found.switches;
    thread.kernel_stack = kernel_stack;
    thread.user_stack = user_stack;
    thread.pid = found.ids.pid;
    thread.tid = found.ids.tid;
    thread.ticks = pass.ticks;
    thread.state = found.state;
    thread.cpu = read(found.address, get!(wall.task_cpu)).unwrap_or_default();
    thread.pass = pass.number;
    thread.is_cut = u32::from(get!(user_stacks) != 0 && is_cut(wall.scratch.unwind.end_reason));
    thread.comm = read(found.address, get!(wall.task_comm)).unwrap_or_default();
    WAITING_THREADS.insert(&found.ids.tid, thread, 0).map_err(|_| Counter::WallLostThread)
}

/// The most parts of a stack that are copied.
const MAX_COPIES: u32 = 16;

/// As many steps as the unwinder needs for the deepest stack.
const MAX_STEPS: u32 = 2 * MAX_FRAMES as u32;

/// Unwinds the user stack and returns its id; 0 if the task has no user stack.
#[inline(always)]
fn unwind(task: *mut task_struct, wall: &mut WallScratch) -> Result<StackId, Counter> {
    wall.scratch.unwind.depth = 0;
    wall.scratch.unwind.end_reason = UnwindState::RUNNING;
    wall.scratch.vma_search.mm = read(task as u64, get!(wall.task_mm)).unwrap_or(0);
    // Passes have no limit of their own: user space spaces them.
    wall.scratch.governor.begin_sample(wall.scratch.sample.time_ns, 1 << OVERHEAD_SHARE_BITS);
    let Some(registers) = registers_of_task(task) else { return Ok(0) };
    if !unwinder::begin_at(registers, &mut wall.scratch) {
        return Ok(0);
    }
    wall.copy.wanted = registers.stack_pointer;
    let mut state: *mut WallScratch = wall;
    // Bound: see its definition.
    for _ in 0..MAX_COPIES {
        // SAFETY: the scratch outlives the loop.
        let wall = unsafe { &mut *state };
        if !wall.copy.fill(task) {
            if wall.scratch.unwind.end_reason == UnwindState::RUNNING {
                wall.scratch.unwind.end_reason = StackEndReason::UnreadableStack as u32;
            }
            break;
        }
        wall.scratch.unwind.end_reason = UnwindState::RUNNING;
        // SAFETY: the callback has the type that the helper calls, and the state outlives the loop.
        unsafe {
            helpers::bpf_loop(MAX_STEPS, unwind_waiting_frame as *mut c_void, (&raw mut state).cast(), 0);
        }
        // SAFETY: as above.
        let wall = unsafe { &mut *state };
        if wall.copy.wanted == 0 || !is_unreadable(wall.scratch.unwind.end_reason) {
            break;
        }
    }
    // SAFETY: as above.
    let wall = unsafe { &mut *state };
    unwinder::finish(&mut wall.scratch).map_err(|_| Counter::WallLostRingBuffer)
}

/// Whether a stack ended before its root, for a reason that an unwind table can remove.
#[inline(always)]
fn is_cut(end_reason: u32) -> bool {
    end_reason != StackEndReason::Root as u32
        && end_reason != StackEndReason::NullCaller as u32
        && end_reason != StackEndReason::NoUserStack as u32
        && end_reason != StackEndReason::DepthLimit as u32
}

/// Whether a stack ended at memory that was not copied.
#[inline(always)]
fn is_unreadable(end_reason: u32) -> bool {
    end_reason == StackEndReason::UnreadableStack as u32
        || end_reason == StackEndReason::BrokenFramePointer as u32
}

/// The callback of `bpf_loop`: unwinds one frame; 1 ends the loop, also where a further part of the stack is needed.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn unwind_waiting_frame(_iteration: u64, state: *mut *mut WallScratch) -> i64 {
    // SAFETY: the loop was given the address of a pointer to the scratch.
    let wall = unsafe { &mut **state };
    wall.copy.wanted = 0;
    let stack = CopiedStack(&raw mut wall.copy);
    i64::from(!unwinder::unwind_frame::<false>(&mut wall.scratch, &stack))
}

/// A thread of the target that is not on a CPU, and is no kernel thread.
#[inline(always)]
fn waiting_task(address: u64) -> Option<Task> {
    let mm: u64 = read(address, get!(wall.task_mm))?;
    let on_cpu: u32 = read(address, get!(wall.task_on_cpu))?;
    if mm == 0 || on_cpu != 0 {
        return None;
    }
    let ids = ids(address)?;
    if !is_target(address, ids) {
        return None;
    }
    let state = wait_state(address)?;
    if state == WaitState::Runnable && is_displaced(address) {
        return None;
    }
    Some(Task {
        address,
        ids,
        state: state as u32,
        switches: switches(address)?,
        start_time: read(address, get!(wall.task_start_time))?,
    })
}

#[inline(always)]
fn ids(task: u64) -> Option<TaskIds> {
    if get!(pid_source) == PidSource::Initial as u32 {
        let pid = read(task, get!(wall.task_tgid))?;
        return Some(TaskIds { pid, tid: read(task, get!(wall.task_pid))? });
    }
    ids_of_task(task)
}

#[inline(always)]
fn is_target(task: u64, ids: TaskIds) -> bool {
    let filter = get!(filter);
    let is_listed = |id: u32| {
        let only_target = get!(only_target);
        if only_target != 0 { id == only_target } else { TARGETS.get_ptr(&id).is_some() }
    };
    if filter == TargetFilter::Processes as u32 {
        is_listed(ids.pid)
    } else if filter == TargetFilter::Threads as u32 {
        is_listed(ids.tid)
    } else if filter == TargetFilter::CgroupV2 as u32 || filter == TargetFilter::CgroupV1 as u32 {
        cgroup::is_task_under(task)
    } else {
        true
    }
}

/// The state of a task that is not on a CPU (`include/linux/sched.h`); `None` for one that exits.
#[inline(always)]
fn wait_state(task: u64) -> Option<WaitState> {
    const TASK_RUNNING: u32 = 0;
    const TASK_UNINTERRUPTIBLE: u32 = 2;
    const TASK_STOPPED_OR_TRACED: u32 = 4 | 8;
    const TASK_DEAD: u32 = 0x80;
    const TASK_WAKING_OR_NEW: u32 = 0x200 | 0x800;
    /// An uninterruptible sleep that is idle time.
    const TASK_NOLOAD: u32 = 0x400;
    let exit_state: u32 = read(task, get!(wall.task_exit_state))?;
    let state: u32 = read(task, get!(wall.task_state))?;
    if exit_state != 0 || state & TASK_DEAD != 0 {
        return None;
    }
    Some(if state == TASK_RUNNING || state & TASK_WAKING_OR_NEW != 0 {
        WaitState::Runnable
    } else if state & TASK_STOPPED_OR_TRACED != 0 {
        WaitState::Stopped
    } else if state & TASK_UNINTERRUPTIBLE != 0 && state & TASK_NOLOAD == 0 {
        WaitState::Disk
    } else {
        WaitState::Blocked
    })
}

/// Whether a runnable task ran on this CPU until the thread of the profiler that runs the pass displaced it. It would wait at
/// each pass otherwise, and the ticks of the CPU count it already. It has been queued since that thread arrived
/// (`sched_info_depart` and `sched_info_arrive`, `kernel/sched/stats.h`).
#[inline(always)]
fn is_displaced(task: u64) -> bool {
    let offset = get!(wall.task_last_arrival);
    if offset == 0 {
        return false;
    }
    // SAFETY: the helpers have no arguments and cannot fail.
    let (own_task, own_cpu) =
        unsafe { (helpers::bpf_get_current_task(), helpers::bpf_get_smp_processor_id()) };
    let (Some([own_arrival, _]), Some([_, queued])) =
        (read::<[u64; 2]>(own_task, offset), read::<[u64; 2]>(task, offset))
    else {
        return false;
    };
    read(task, get!(wall.task_cpu)) == Some(own_cpu) && queued >= own_arrival
}

/// The context switches of a task, voluntary and not.
#[inline(always)]
fn switches(task: u64) -> Option<u64> {
    let [voluntary, involuntary]: [u64; 2] = read(task, get!(wall.task_switches))?;
    Some(voluntary.wrapping_add(involuntary))
}

#[inline(always)]
fn wall_scratch() -> Option<&'static mut WallScratch> {
    let scratch = WALL_SCRATCH.get_ptr_mut(0)?;
    // SAFETY: passes run one after another.
    Some(unsafe { &mut *scratch })
}

#[inline(always)]
fn now_ns() -> u64 {
    // SAFETY: the helper has no arguments and cannot fail.
    unsafe { helpers::bpf_ktime_get_ns() }
}
