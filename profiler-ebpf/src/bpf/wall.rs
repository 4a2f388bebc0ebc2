//! Wall-clock samples: one pass of the task iterator over the threads of the target that are not on a CPU.
//!
//! The program is sleepable: the stack of another task is copied by `bpf_copy_from_user_task`, which can fault pages in. A
//! thread that has not run since the last pass keeps its stacks, and costs no copy.

use core::ptr::{read_volatile, write_volatile};

use aya_ebpf::bindings::task_struct;
use profiler_common::{
    Counter, RecordKind,
    wall::{WaitRecord, WaitingThread, WallPass, captures_cut_stacks},
};

use super::{
    clock::now_ns,
    config::get,
    counters::add,
    kernel_memory::read,
    maps::{WAITING_THREADS, WALL_PASS, WALL_SCAN, WALL_SCRATCH},
    requested_stacks,
    ring_buffer::{Wakeup, send},
    waiting_stacks::{self, PassScratch},
    waiting_task::{WaitingTask, load, run_queue_ns, waiting_task},
};

/// The working memory of a pass.
#[repr(C)]
pub(crate) struct WallScratch {
    pub(crate) pass: PassScratch,
    pub(crate) record: WaitRecord,
    /// The state of the thread that the pass visits, a [`WaitState`](profiler_common::wall::WaitState).
    pub(crate) state: u32,
}

/// Samples a thread of the target that is not on a CPU. The counters of losses are in ticks.
///
/// `COPIES_STACKS`: the program can copy the stack of another task; else it requests a copy.
#[inline(always)]
pub(crate) fn sample_thread<const COPIES_STACKS: bool>(task: *mut task_struct) {
    let Some(pass) = WALL_PASS.get_ptr_mut(0) else { return };
    // SAFETY: passes run one after another.
    let pass = unsafe { &mut *pass };
    count_visit();
    let Some(mut found) = waiting_task(task) else { return };
    found.state = forget_state(found.state);
    let mut run_queue_ns = first_run_queue_ns(task, pass);
    if let Some(known) = known_thread(task as u64) {
        if is_known_stack(known, found.switches, found.start_time, pass) {
            keep_waiting(known, &found, pass);
            return;
        }
        send_wait(known, pass);
        if known.start_time == found.start_time {
            run_queue_ns = known.run_queue_ns;
        }
    }
    let captured = if COPIES_STACKS {
        capture(task, &found, pass, run_queue_ns)
    } else {
        requested_stacks::request(task, &found, pass, run_queue_ns)
    };
    if let Err(counter) = captured {
        count_lost(counter, pass);
    }
}

/// The same state, read from a map value.
///
/// VERIFIER: there it is an unknown number. In a register it is one of five, and the rest of the program is verified once for each.
#[inline(always)]
fn forget_state(state: u32) -> u32 {
    let Some(wall) = wall_scratch() else { return state };
    // SAFETY: a field of a live map value.
    unsafe {
        write_volatile(&raw mut wall.state, state);
        read_volatile(&raw const wall.state)
    }
}

/// The time that a thread which no earlier pass has found has waited for a CPU before the ticks of this pass.
#[inline(always)]
fn first_run_queue_ns(task: *mut task_struct, pass: &WallPass) -> u64 {
    let ended_ns: u64 =
        if get!(wall.task_run_delay) == 0 { 0 } else { load(task, get!(wall.task_run_delay)) };
    let before_ns = run_queue_ns(task).unwrap_or(0).saturating_sub(u64::from(pass.ticks) * pass.period_ns);
    before_ns.max(ended_ns)
}

/// Counts the ticks of a thread without a sample.
#[inline(always)]
pub(crate) fn count_lost(counter: Counter, pass: &WallPass) {
    let ticks = u64::from(pass.ticks);
    add(Counter::WallTicks, ticks);
    add(counter, ticks);
}

#[inline(always)]
fn count_visit() {
    if let Some(scan) = WALL_SCAN.get_ptr_mut(0) {
        // SAFETY: scans and passes run one after another.
        unsafe { (*scan).visits += 1 };
    }
}

/// The thread of an earlier pass.
#[inline(always)]
pub(crate) fn known_thread(task: u64) -> Option<&'static mut WaitingThread> {
    let known = WAITING_THREADS.get_ptr_mut(&task)?;
    // SAFETY: passes run one after another, and user space changes the map between them.
    Some(unsafe { &mut *known })
}

/// Whether a thread has not run since its stacks were captured, and they are not to be captured again.
#[inline(always)]
pub(crate) fn is_known_stack(known: &WaitingThread, switches: u64, start_time: u64, pass: &WallPass) -> bool {
    let is_same = known.switches == switches && known.start_time == start_time;
    is_same && (known.is_cut == 0 || !captures_cut_stacks(pass.number))
}

/// Counts the ticks of a thread that has not run since the last pass.
#[inline(always)]
fn keep_waiting(known: &mut WaitingThread, task: &WaitingTask, pass: &WallPass) {
    let is_gap = known.found_ticks < pass.ticks_before;
    if known.state != task.state || is_gap {
        // It was woken, and waits for a CPU. Its stacks are the same.
        send_wait(known, pass);
        known.state = task.state;
        known.time_ns = now_ns();
        known.recorded_ticks = pass.ticks_before.max(known.recorded_ticks);
    }
    known.found_ticks = pass.ticks_after();
    count_run_queue(known, task.task, pass);
    // Not all threads in the same pass: thousands of records do not fit into the ring buffer.
    let turn = pass.number.wrapping_add(known.tid);
    if pass.passes_per_record != 0 && turn.is_multiple_of(pass.passes_per_record) {
        send_wait(known, pass);
    }
}

/// Sends the ticks of a thread that no record has. The next ones begin a period from now on.
#[inline(always)]
pub(crate) fn send_wait(known: &mut WaitingThread, pass: &WallPass) {
    let ticks = known.ticks();
    if ticks == 0 {
        return;
    }
    let Some(wall) = wall_scratch() else { return };
    wall.record.kind = RecordKind::Wait as u32;
    wall.record.thread = *known;
    add(Counter::WallTicks, ticks);
    let bytes = size_of::<WaitRecord>() as u64;
    if !send((&raw const wall.record).cast(), bytes, Wakeup::AtThreshold) {
        add(Counter::WallLostRingBuffer, ticks);
    }
    known.end_record(pass.period_ns);
    known.time_ns = now_ns() + pass.period_ns;
}

/// Sets the ticks of a thread that could run by the scheduler's time, where the kernel has it.
#[inline(always)]
fn count_run_queue(thread: &mut WaitingThread, task: *mut task_struct, pass: &WallPass) {
    if thread.is_runnable()
        && let Some(total_ns) = run_queue_ns(task)
    {
        thread.count_run_queue(total_ns, pass.period_ns);
    }
}

/// Captures the stacks of a thread, and remembers it.
///
/// # Errors
/// The counter of the loss.
#[inline(always)]
fn capture(
    task: *mut task_struct,
    found: &WaitingTask,
    pass: &WallPass,
    run_queue_ns: u64,
) -> Result<(), Counter> {
    let wall = wall_scratch().ok_or(Counter::WallLostAwake)?;
    let now_ns = now_ns();
    let stacks = waiting_stacks::capture(task, found, &mut wall.pass, now_ns)?;
    let thread = &mut wall.record.thread;
    fill_thread(thread, task, found, pass, run_queue_ns);
    thread.time_ns = now_ns;
    thread.kernel_stack = stacks.kernel;
    thread.user_stack = stacks.user;
    thread.is_cut = u32::from(stacks.is_cut);
    thread.may_await_mutex = wall.pass.may_await_mutex;
    remember(task as u64, thread)
}

/// Fills in what the pass knows without the stacks. Field by field, in the scratch: the BPF stack has 512 bytes.
#[inline(always)]
pub(crate) fn fill_thread(
    thread: &mut WaitingThread,
    task: *mut task_struct,
    found: &WaitingTask,
    pass: &WallPass,
    run_queue_ns: u64,
) {
    thread.start_time = found.start_time;
    thread.switches = found.switches;
    thread.pid = found.ids.pid;
    thread.tid = found.ids.tid;
    thread.state = found.state;
    thread.cpu = load(task, get!(wall.task_cpu));
    thread.found_ticks = pass.ticks_after();
    thread.recorded_ticks = pass.ticks_before;
    thread.run_queue_ns = run_queue_ns;
    count_run_queue(thread, task, pass);
    thread.comm = read(task as u64, get!(wall.task_comm)).unwrap_or_default();
}

/// Remembers a thread until it runs.
///
/// # Errors
/// The counter of the loss.
#[inline(always)]
pub(crate) fn remember(task: u64, thread: &WaitingThread) -> Result<(), Counter> {
    WAITING_THREADS.insert(&task, thread, 0).map_err(|_| Counter::WallLostThread)
}

#[inline(always)]
pub(crate) fn wall_scratch() -> Option<&'static mut WallScratch> {
    let scratch = WALL_SCRATCH.get_ptr_mut(0)?;
    // SAFETY: passes run one after another.
    Some(unsafe { &mut *scratch })
}
