//! One pass of the task iterator over threads that wait: captures the stacks that the switches away from them did not.

use aya_ebpf::{bindings::BPF_NOEXIST, bindings::task_struct};
use profiler_common::{off_cpu::OffCpuThread, wall::WaitState};

use super::{
    clock::now_ns,
    config::get,
    kernel_memory::read,
    maps::{OFF_CPU_PASS_SCRATCH, OFF_CPU_THREADS},
    off_cpu::run_time_ns,
    waiting_stacks::{self, PassScratch, WaitingStacks},
    waiting_task::{WaitingTask, load, waiting_task},
};

/// The working memory of a pass.
#[repr(C)]
pub(crate) struct OffCpuPassScratch {
    pub(crate) pass: PassScratch,
    pub(crate) thread: OffCpuThread,
}

/// Captures the stacks of a thread that waits. One that has waited since before the session has no entry yet.
#[inline(always)]
pub(crate) fn capture_thread(task: *mut task_struct) {
    let Some(found) = waiting_task(task) else { return };
    let only_state = get!(off_cpu.only_state);
    if only_state != 0 && only_state != found.state {
        return;
    }
    let key = task as u64;
    let known = OFF_CPU_THREADS.get_ptr_mut(&key);
    if let Some(known) = known
        // SAFETY: nothing removes the entry of a thread that lives.
        && has_all_stacks(unsafe { &*known })
    {
        return;
    }
    let Some(scratch) = pass_scratch() else { return };
    // A thread that ran meanwhile is in another wait, which has its own entry.
    let Ok(stacks) = waiting_stacks::capture(task, &found, &mut scratch.pass, now_ns()) else { return };
    match known {
        // SAFETY: as above.
        Some(known) => set_stacks(unsafe { &mut *known }, &found, &stacks),
        None => add_thread(&found, &stacks, &mut scratch.thread),
    }
}

#[inline(always)]
fn has_all_stacks(thread: &OffCpuThread) -> bool {
    let has_kernel_stack = get!(kernel_stacks) == 0 || thread.kernel_stack != 0;
    thread.has_stacks != 0 && thread.is_cut == 0 && has_kernel_stack
}

/// Sets the stacks of a wait, unless it has ended.
#[inline(always)]
fn set_stacks(known: &mut OffCpuThread, found: &WaitingTask, stacks: &WaitingStacks) {
    if found.still_waits() {
        known.kernel_stack = stacks.kernel;
        known.user_stack = stacks.user;
        known.has_stacks = 1;
        known.is_cut = u32::from(stacks.is_cut);
    }
}

/// Adds a thread that has waited since before the session, at most since its start.
#[inline(always)]
fn add_thread(found: &WaitingTask, stacks: &WaitingStacks, thread: &mut OffCpuThread) {
    let key = found.task as u64;
    let is_runnable = found.state == WaitState::Runnable as u32 || found.state == WaitState::Throttled as u32;
    thread.since_ns = found.start_time;
    thread.previous_ns = u64::MAX;
    thread.mean_ns = 0;
    thread.run_time_ns = run_time_ns(found.task);
    thread.woken_ns = if is_runnable { found.start_time } else { 0 };
    thread.kernel_stack = stacks.kernel;
    thread.user_stack = stacks.user;
    thread.has_stacks = 1;
    thread.is_cut = u32::from(stacks.is_cut);
    thread.pid = found.ids.pid;
    thread.tid = found.ids.tid;
    thread.state = found.state;
    thread.woken_state = if is_runnable { found.state } else { WaitState::Runnable as u32 };
    thread.cpu = load(found.task, get!(wall.task_cpu));
    thread.comm = read(key, get!(wall.task_comm)).unwrap_or_default();
    let is_added = OFF_CPU_THREADS.insert(&key, thread, u64::from(BPF_NOEXIST)).is_ok();
    if is_added && !found.still_waits() {
        // It ran before the entry was there. Its next wait adds one.
        let _ = OFF_CPU_THREADS.remove(&key);
    }
}

#[inline(always)]
fn pass_scratch() -> Option<&'static mut OffCpuPassScratch> {
    let scratch = OFF_CPU_PASS_SCRATCH.get_ptr_mut(0)?;
    // SAFETY: passes run one after another.
    Some(unsafe { &mut *scratch })
}
