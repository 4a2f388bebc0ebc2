//! Off-CPU time: each wait of a thread of the target, from the switch away from it to the switch back to it.
//!
//! All waits are timed. Stacks are captured as long as the governor allows: the user stack at the switch away, while the address
//! space is that of the thread, and the kernel stack at the end, for waits that are long enough for a record. Where the governor
//! refuses, the user stack is copied, and unwound at the end of a long wait.

use core::{
    ffi::c_void,
    ptr::{read_volatile, write_volatile},
};

use aya_ebpf::{bindings::task_struct, helpers::generated as helpers};
use profiler_common::{
    COMM_BYTES, Counter, RecordKind,
    off_cpu::{OffCpuRecord, OffCpuThread, Waker},
    wall::WaitState,
};

use profiler_ebpf::governor::next_mean_ns;

use super::{
    clock,
    config::get,
    counters::{add, count},
    kernel_memory::read,
    maps::{OFF_CPU_SCRATCH, OFF_CPU_THREADS},
    off_cpu_copy,
    pid_namespace::{TaskIds, current_task_ids},
    ring_buffer::{Wakeup, send},
    sample::unwind_in_loop,
    scratch::Scratch,
    stack_capture::{self, Side},
    target_filter::{Verdict, filter_task},
    unwinder,
    waiting_task::{is_kernel_thread, load, may_be_target, runnable_state, wait_state},
};

/// The working memory of one run.
#[repr(C)]
pub(crate) struct OffCpuScratch {
    pub(crate) scratch: Scratch,
    pub(crate) record: OffCpuRecord,
}

/// The arguments of `sched_switch` (`include/trace/events/sched.h`).
pub(crate) struct Switch {
    pub(crate) is_preemption: bool,
    pub(crate) previous: *mut task_struct,
    pub(crate) next: *mut task_struct,
}

/// Begins the wait of the task that leaves the CPU, which is still the running one, and ends that of the next task.
///
/// `UNWINDS`, here and below: the kernel has `bpf_loop`, for the unwinder; else `bpf_get_stack` captures user stacks.
#[inline(always)]
pub(crate) fn switch<const UNWINDS: bool>(context: *mut c_void, switch: &Switch) {
    // Most switches are between tasks of other processes: they cost two comparisons.
    let (leaves, arrives) = (may_be_target(switch.previous), may_be_target(switch.next));
    if !leaves && !arrives {
        return;
    }
    let now_ns = clock::now_ns();
    if leaves {
        begin_wait::<UNWINDS>(context, switch, now_ns);
    }
    if arrives {
        end_wait::<UNWINDS>(switch.next, now_ns);
    }
}

#[inline(always)]
fn begin_wait<const UNWINDS: bool>(context: *mut c_void, switch: &Switch, now_ns: u64) {
    let task = switch.previous as u64;
    // SAFETY: the entry of a running thread is written on its CPU alone.
    let mut known = OFF_CPU_THREADS.get_ptr_mut(&task).map(|thread| unsafe { &mut *thread });
    if let Some(thread) = &mut known {
        end_unreported_wait(switch.previous, thread, now_ns);
    }
    let Some(state) = wait_state(switch.previous) else {
        // It exits, and has neither an address space nor, perhaps, an id. Fails for a thread that never left a CPU before.
        let _ = OFF_CPU_THREADS.remove(&task);
        return;
    };
    let Verdict::Target(ids) = filter_task(current_task_ids()) else { return };
    if ids.tid == 0 || is_kernel_thread(switch.previous) {
        return;
    }
    let only_state = get!(off_cpu.only_state);
    if only_state != 0 && (only_state != state as u32 || switch.is_preemption) {
        return;
    }
    let runnable = matches!(state, WaitState::Runnable | WaitState::Throttled).then_some(state);
    // A task that was about to sleep is displaced like one that runs.
    let runnable = runnable.or_else(|| switch.is_preemption.then(|| runnable_state(switch.previous)));
    let Some(off_cpu) = off_cpu_scratch() else { return };
    let Some(thread) = known.or_else(|| new_entry(task, off_cpu)) else {
        return count(Counter::OffCpuLostThread);
    };
    thread.run_time_ns = run_time_ns(switch.previous);
    thread.kernel_stack = 0;
    thread.user_stack = 0;
    thread.has_stacks = 0;
    thread.is_cut = 0;
    thread.pid = ids.pid;
    thread.tid = ids.tid;
    thread.state = state as u32;
    thread.woken_state = runnable.unwrap_or(WaitState::Runnable) as u32;
    // SAFETY: the helper has no arguments and cannot fail.
    thread.cpu = unsafe { helpers::bpf_get_smp_processor_id() };
    set_current_comm(&mut thread.comm);
    thread.waker.pid = 0;
    thread.waker.kernel_stack = 0;
    thread.waker.user_stack = 0;
    write_time(&mut thread.woken_ns, if runnable.is_some() { now_ns } else { 0 });
    // From here on, another CPU can wake the thread.
    write_time(&mut thread.since_ns, now_ns);
    // A thread that computes is displaced hundreds of times a second on a busy machine.
    let previous_ns = if runnable.is_some() { 0 } else { thread.previous_ns };
    capture_user_stack::<UNWINDS>(context, &mut off_cpu.scratch, thread, previous_ns, now_ns);
    if thread.has_stacks == 0 {
        copy_user_stack::<UNWINDS>(&mut off_cpu.scratch, thread, now_ns);
    }
    add(Counter::OffCpuRunTimeNs, clock::now_ns().saturating_sub(now_ns));
}

/// Ends the wait before the one that begins, if the switch that ended it did not run these programs: the kernel can keep them from
/// the switches away from some threads. The thread has run since for the time that was added to its run time.
#[inline(always)]
fn end_unreported_wait(task: *mut task_struct, thread: &mut OffCpuThread, now_ns: u64) {
    let since_ns = read_time(&thread.since_ns);
    if since_ns == 0 {
        return;
    }
    let ran_ns = run_time_ns(task).saturating_sub(thread.run_time_ns);
    let ended_ns = now_ns.saturating_sub(ran_ns).max(since_ns);
    // Its kernel stack is gone.
    if let Some(off_cpu) = ended_wait(thread, since_ns, ended_ns) {
        send_record(off_cpu);
    }
}

/// The time for which a task has run, nanoseconds, up to the last switch away from it or its last tick.
#[inline(always)]
pub(crate) fn run_time_ns(task: *mut task_struct) -> u64 {
    load(task, get!(wall.task_run_time))
}

/// A new entry of a thread. `None` where the map is full.
#[inline(always)]
fn new_entry(task: u64, off_cpu: &mut OffCpuScratch) -> Option<&'static mut OffCpuThread> {
    // A former thread's wait: all that matters is written before it is read.
    off_cpu.record.thread.since_ns = 0;
    off_cpu.record.thread.previous_ns = u64::MAX;
    off_cpu.record.thread.mean_ns = 0;
    OFF_CPU_THREADS.insert(&task, &off_cpu.record.thread, 0).ok()?;
    // SAFETY: as above.
    OFF_CPU_THREADS.get_ptr_mut(&task).map(|thread| unsafe { &mut *thread })
}

/// Captures the user stack of the running task, unless the overhead limit is reached, or the ring buffer is full.
#[inline(always)]
fn capture_user_stack<const UNWINDS: bool>(
    context: *mut c_void,
    scratch: &mut Scratch,
    thread: &mut OffCpuThread,
    previous_ns: u64,
    now_ns: u64,
) {
    if !scratch.governor.begin_wait(now_ns, get!(max_overhead), previous_ns) {
        return;
    }
    thread.has_stacks = 1;
    if get!(user_stacks) != 0 {
        let ids = TaskIds { pid: thread.pid, tid: thread.tid };
        match user_stack::<UNWINDS>(context, scratch, ids, now_ns) {
            Ok(stack) => thread.user_stack = stack,
            Err(_) => thread.has_stacks = 0,
        }
        thread.is_cut = u32::from(UNWINDS && scratch.unwind.is_cut());
    }
    end_stack(scratch, now_ns);
}

/// Copies the user stack of the running task, where a copy can be unwound and the overhead limit leaves time for it.
#[inline(always)]
fn copy_user_stack<const UNWINDS: bool>(scratch: &mut Scratch, thread: &OffCpuThread, now_ns: u64) {
    // Without a least length, all waits have a record.
    if !UNWINDS || get!(user_stacks) == 0 || get!(off_cpu.min_block_ns) == 0 {
        return;
    }
    let began_ns = clock::now_ns();
    if scratch.governor.begin_copy(began_ns, get!(max_overhead), thread.mean_ns) {
        off_cpu_copy::copy(thread, now_ns);
        end_stack(scratch, began_ns);
    }
}

/// The user stack of the running task, which has entered the kernel.
#[inline(always)]
fn user_stack<const UNWINDS: bool>(
    context: *mut c_void,
    scratch: &mut Scratch,
    ids: TaskIds,
    now_ns: u64,
) -> Result<u64, Counter> {
    if !UNWINDS {
        return stack_capture::capture::<UNWINDS>(context, scratch, Side::User);
    }
    scratch.sample.pid = ids.pid;
    scratch.sample.tid = ids.tid;
    scratch.sample.time_ns = now_ns;
    if unwinder::begin_in_kernel(scratch) {
        unwind_in_loop(scratch);
    }
    if unwinder::is_captured(scratch) {
        unwinder::finish(scratch)
    } else {
        stack_capture::capture::<UNWINDS>(context, scratch, Side::User)
    }
}

/// Ends the wait of a task that gets a CPU, and sends it if it was long enough.
#[inline(always)]
fn end_wait<const UNWINDS: bool>(task: *mut task_struct, now_ns: u64) {
    let Some(thread) = OFF_CPU_THREADS.get_ptr_mut(&(task as u64)) else { return };
    // SAFETY: nothing removes the entry of a thread that lives.
    let thread = unsafe { &mut *thread };
    let since_ns = read_time(&thread.since_ns);
    if since_ns == 0 {
        return;
    }
    let Some(off_cpu) = ended_wait(thread, since_ns, now_ns) else { return };
    if UNWINDS && thread.has_stacks == 0 {
        unwind_copy(task, off_cpu);
    }
    let thread = &off_cpu.record.thread;
    if get!(kernel_stacks) != 0 && thread.has_stacks != 0 && thread.kernel_stack == 0 {
        // Without, the record has the user stack alone.
        let began_ns = clock::now_ns();
        off_cpu.record.thread.kernel_stack =
            stack_capture::capture_of_task::<UNWINDS>(task, &mut off_cpu.scratch).unwrap_or(0);
        end_stack(&mut off_cpu.scratch, began_ns);
    }
    send_record(off_cpu);
    add(Counter::OffCpuRunTimeNs, clock::now_ns().saturating_sub(now_ns));
}

/// The record of a wait that ended. `None` where the wait was too short for one.
#[inline(always)]
fn ended_wait(thread: &mut OffCpuThread, since_ns: u64, ended_ns: u64) -> Option<&'static mut OffCpuScratch> {
    write_time(&mut thread.since_ns, 0);
    let waited_ns = ended_ns.saturating_sub(since_ns);
    // Without the time in which it waits for a CPU, which is long for every thread of a busy machine.
    let blocked_ns = read_time(&thread.woken_ns).saturating_sub(since_ns);
    if blocked_ns > 0 {
        thread.previous_ns = blocked_ns;
    }
    let is_short = waited_ns < get!(off_cpu.min_block_ns);
    thread.mean_ns = next_mean_ns(thread.mean_ns, if is_short { 0 } else { waited_ns });
    if is_short {
        count(Counter::OffCpuShort);
        add(Counter::OffCpuShortNs, waited_ns);
        return None;
    }
    let off_cpu = off_cpu_scratch()?;
    off_cpu.record.thread = *thread;
    off_cpu.record.thread.since_ns = since_ns;
    off_cpu.record.kind = RecordKind::OffCpu as u32;
    off_cpu.record.ended_ns = ended_ns;
    Some(off_cpu)
}

/// Unwinds the copy of the user stack of a task whose wait was long enough for a record, unless the overhead limit is reached.
#[inline(always)]
fn unwind_copy(task: *mut task_struct, off_cpu: &mut OffCpuScratch) {
    let now_ns = clock::now_ns();
    let (scratch, thread) = (&mut off_cpu.scratch, &mut off_cpu.record.thread);
    if !scratch.governor.begin_wait(now_ns, get!(max_overhead), u64::MAX) {
        return;
    }
    if let Some(Ok(stack)) = off_cpu_copy::unwind(task, thread, (thread.since_ns, now_ns), scratch) {
        thread.user_stack = stack;
        thread.has_stacks = 1;
        thread.is_cut = u32::from(scratch.unwind.is_cut());
    }
    end_stack(scratch, now_ns);
}

#[inline(always)]
fn send_record(off_cpu: &mut OffCpuScratch) {
    count(Counter::OffCpuRecords);
    let bytes = size_of::<OffCpuRecord>() as u64;
    if !send((&raw const off_cpu.record).cast(), bytes, Wakeup::AtThreshold) {
        count(Counter::OffCpuLostRingBuffer);
    }
}

/// Notes that a task is woken by the running one.
#[inline(always)]
pub(crate) fn wake<const UNWINDS: bool>(context: *mut c_void, task: *mut task_struct) {
    if !may_be_target(task) {
        return;
    }
    let Some(thread) = OFF_CPU_THREADS.get_ptr_mut(&(task as u64)) else { return };
    // SAFETY: as above.
    let thread = unsafe { &mut *thread };
    let since_ns = read_time(&thread.since_ns);
    if since_ns == 0 || read_time(&thread.woken_ns) != 0 {
        return;
    }
    let now_ns = clock::now_ns();
    thread.woken_state = runnable_state(task) as u32;
    write_time(&mut thread.woken_ns, now_ns);
    if get!(off_cpu.wakers) != 0 && now_ns.saturating_sub(since_ns) >= get!(off_cpu.min_block_ns) {
        capture_waker::<UNWINDS>(context, &mut thread.waker, now_ns);
    }
}

/// Captures the stacks of the running task as those of a waker.
#[inline(always)]
fn capture_waker<const UNWINDS: bool>(context: *mut c_void, waker: &mut Waker, now_ns: u64) {
    let Some(ids) = current_task_ids() else { return };
    let Some(off_cpu) = off_cpu_scratch() else { return };
    let scratch = &mut off_cpu.scratch;
    if !scratch.governor.begin_wait(now_ns, get!(max_overhead), u64::MAX) {
        return;
    }
    waker.tid = ids.tid;
    set_current_comm(&mut waker.comm);
    if get!(kernel_stacks) != 0 {
        waker.kernel_stack = stack_capture::capture::<UNWINDS>(context, scratch, Side::Kernel).unwrap_or(0);
    }
    // SAFETY: the helper has no arguments and cannot fail.
    let task = unsafe { helpers::bpf_get_current_task() };
    let address_space: Option<u64> = read(task, get!(wall.task_mm));
    if get!(user_stacks) != 0 && address_space != Some(0) {
        waker.user_stack = user_stack::<UNWINDS>(context, scratch, ids, now_ns).unwrap_or(0);
    }
    waker.pid = ids.pid;
    end_stack(scratch, now_ns);
    add(Counter::OffCpuRunTimeNs, clock::now_ns().saturating_sub(now_ns));
}

/// Charges the governor for a stack whose capture began at a time. Records are not charged: the governor cannot avoid them.
#[inline(always)]
fn end_stack(scratch: &mut Scratch, began_ns: u64) {
    scratch.governor.end_sample(clock::now_ns().saturating_sub(began_ns), true);
}

#[inline(always)]
fn set_current_comm(comm: &mut [u8; COMM_BYTES]) {
    // SAFETY: the buffer has the size given; where there is no name the helper clears it.
    unsafe { helpers::bpf_get_current_comm(comm.as_mut_ptr().cast(), COMM_BYTES as u32) };
}

/// Writes a time that other CPUs read.
#[inline(always)]
fn write_time(time: &mut u64, value_ns: u64) {
    // SAFETY: the reference is valid and aligned.
    unsafe { write_volatile(time, value_ns) }
}

/// Reads a time that other CPUs write.
#[inline(always)]
fn read_time(time: &u64) -> u64 {
    // SAFETY: the reference is valid and aligned.
    unsafe { read_volatile(time) }
}

#[inline(always)]
fn off_cpu_scratch() -> Option<&'static mut OffCpuScratch> {
    let scratch = OFF_CPU_SCRATCH.get_ptr_mut(0)?;
    // SAFETY: the value belongs to this CPU, and both tracepoints run with interrupts disabled.
    Some(unsafe { &mut *scratch })
}
