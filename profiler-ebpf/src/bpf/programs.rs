//! Entry points of the BPF object: perf_event programs for timer ticks, raw tracepoints for fork, exec, exit and release,
//! the task iterator of wall-clock samples, tracepoints of switches and wakeups for off-CPU time, counted events.
//!
//! Each calls a `try_` function and counts its error.

use core::ffi::c_void;

use aya_ebpf::{
    EbpfContext,
    bindings::task_struct,
    macros::{perf_event, raw_tracepoint},
    programs::{PerfEventContext, RawTracePointContext},
};
use profiler_common::Counter;

use super::{
    counters::count,
    event,
    off_cpu::{self, Switch},
    off_cpu_pass, process_events, requested_stacks, sample, system_call, wall, wall_scan,
};

/// Runs at each tick of a CPU's timer event: user stacks by `bpf_get_stack`, which follows frame pointers.
#[perf_event]
fn sample_fp(context: PerfEventContext) -> u32 {
    count_error(sample::try_sample_fp(&context));
    0
}

/// Runs at each tick of a CPU's timer event: user stacks by the unwinder, in one `bpf_loop`.
#[perf_event]
fn sample_loop(context: PerfEventContext) -> u32 {
    count_error(sample::try_sample_loop(&context));
    0
}

/// As [`sample_loop`], for kernels without `bpf_loop`: starts the unwinder and continues by a tail call.
#[perf_event]
fn sample_tailcall(context: PerfEventContext) -> u32 {
    count_error(sample::try_sample_tailcall(&context));
    0
}

/// Tail-called by [`sample_tailcall`] and by itself: unwinds some frames more.
#[perf_event]
fn unwind_tailcall(context: PerfEventContext) -> u32 {
    count_error(sample::try_unwind_tailcall(&context));
    0
}

/// Runs at each occurrence of a software event, at every Nth one, or of a hardware event.
#[perf_event]
fn sample_event(context: PerfEventContext) -> u32 {
    event::sample_perf_event::<true>(&context);
    0
}

/// As [`sample_event`]: user stacks by `bpf_get_stack`.
#[perf_event]
fn sample_event_fp(context: PerfEventContext) -> u32 {
    event::sample_perf_event::<false>(&context);
    0
}

/// Runs at each occurrence of a tracepoint.
#[unsafe(no_mangle)]
#[unsafe(link_section = "raw_tp/event")]
extern "C" fn sample_tracepoint(context: *mut c_void) -> i32 {
    event::sample_tracepoint::<true>(context);
    0
}

/// As [`sample_tracepoint`]: user stacks by `bpf_get_stack`.
#[unsafe(no_mangle)]
#[unsafe(link_section = "raw_tp/event")]
extern "C" fn sample_tracepoint_fp(context: *mut c_void) -> i32 {
    event::sample_tracepoint::<false>(context);
    0
}

/// Runs at each entry into a system call.
#[raw_tracepoint(tracepoint = "sys_enter")]
fn system_call_enter(context: RawTracePointContext) -> i32 {
    system_call::enter(context.as_ptr());
    0
}

/// Runs at `sched_process_exit`, in each thread that exits.
#[raw_tracepoint(tracepoint = "sched_process_exit")]
fn system_call_thread_exit(_context: RawTracePointContext) -> i32 {
    system_call::exit_thread();
    0
}

/// Runs at each execution of an instruction of a file, or at each return of a function.
#[unsafe(no_mangle)]
#[unsafe(link_section = "uprobe")]
extern "C" fn sample_probe(context: *mut c_void) -> i32 {
    event::sample_probe::<true>(context);
    0
}

/// As [`sample_probe`]: user stacks by `bpf_get_stack`.
#[unsafe(no_mangle)]
#[unsafe(link_section = "uprobe")]
extern "C" fn sample_probe_fp(context: *mut c_void) -> i32 {
    event::sample_probe::<false>(context);
    0
}

/// Runs at `sched_process_fork`: the child gets its parent's mappings and target entry before it runs.
#[raw_tracepoint(tracepoint = "sched_process_fork")]
fn process_fork(context: RawTracePointContext) -> i32 {
    count_error(process_events::try_fork(&context));
    0
}

/// Runs at `sched_process_exec`: the mappings of the previous program are gone.
#[raw_tracepoint(tracepoint = "sched_process_exec")]
fn process_exec(_context: RawTracePointContext) -> i32 {
    process_events::exec();
    0
}

/// Runs at `sched_process_free`: the id of a target that exited can be reused by another process.
#[raw_tracepoint(tracepoint = "sched_process_free")]
fn process_free(context: RawTracePointContext) -> i32 {
    process_events::free(&context);
    0
}

/// Runs at `sched_process_exit`, the last event at which a process has an id.
#[raw_tracepoint(tracepoint = "sched_process_exit")]
fn process_exit(context: RawTracePointContext) -> i32 {
    process_events::exit(&context);
    0
}

/// Runs at each task of a pass of the task iterator, and once with no task at its end (`struct bpf_iter__task`,
/// `kernel/bpf/task_iter.c`).
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter.s/task")]
extern "C" fn wall_pass(context: *mut c_void) -> i32 {
    // SAFETY: the second word of the context is the task.
    let task = unsafe { *context.cast::<*mut task_struct>().add(1) };
    if !task.is_null() {
        wall::sample_thread::<true>(task);
    }
    0
}

/// As [`wall_pass`], for kernels whose iterator cannot copy stacks.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task")]
extern "C" fn wall_pass_requesting(context: *mut c_void) -> i32 {
    // SAFETY: the second word of the context is the task.
    let task = unsafe { *context.cast::<*mut task_struct>().add(1) };
    if !task.is_null() {
        wall::sample_thread::<false>(task);
    }
    0
}

/// Runs when user space has copied a part of a stack.
#[unsafe(no_mangle)]
#[unsafe(link_section = "raw_tp/copied")]
extern "C" fn unwind_copied(_context: *mut c_void) -> i32 {
    requested_stacks::unwind_copied() as i32
}

/// Runs once, at the leader of the process that is scanned.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task")]
extern "C" fn wall_scan(context: *mut c_void) -> i32 {
    // SAFETY: the second word of the context is the task.
    let task = unsafe { *context.cast::<*mut task_struct>().add(1) };
    if !task.is_null() {
        wall_scan::scan_process(task);
    }
    0
}

/// Runs at `sched_switch`, with interrupts disabled; the previous task is still the running one.
#[unsafe(no_mangle)]
#[unsafe(link_section = "tp_btf/sched_switch")]
extern "C" fn off_cpu_switch(context: *mut c_void) -> i32 {
    off_cpu::switch::<true>(context, &switch_arguments(context));
    0
}

/// As [`off_cpu_switch`]: user stacks by `bpf_get_stack`.
#[unsafe(no_mangle)]
#[unsafe(link_section = "tp_btf/sched_switch")]
extern "C" fn off_cpu_switch_fp(context: *mut c_void) -> i32 {
    off_cpu::switch::<false>(context, &switch_arguments(context));
    0
}

#[inline(always)]
fn switch_arguments(context: *mut c_void) -> Switch {
    let arguments = context.cast::<*mut task_struct>();
    // SAFETY: the arguments are whether it is a preemption, the previous and the next task.
    unsafe {
        Switch {
            is_preemption: *context.cast::<u64>() != 0,
            previous: *arguments.add(1),
            next: *arguments.add(2),
        }
    }
}

/// Runs at `sched_waking`, with interrupts disabled, in the task that wakes another.
#[unsafe(no_mangle)]
#[unsafe(link_section = "tp_btf/sched_waking")]
extern "C" fn off_cpu_wake(context: *mut c_void) -> i32 {
    // SAFETY: the argument is the task that is woken.
    off_cpu::wake::<true>(context, unsafe { *context.cast::<*mut task_struct>() });
    0
}

/// As [`off_cpu_wake`]: user stacks by `bpf_get_stack`.
#[unsafe(no_mangle)]
#[unsafe(link_section = "tp_btf/sched_waking")]
extern "C" fn off_cpu_wake_fp(context: *mut c_void) -> i32 {
    // SAFETY: the argument is the task that is woken.
    off_cpu::wake::<false>(context, unsafe { *context.cast::<*mut task_struct>() });
    0
}

/// As [`wall_pass`], for off-CPU time.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter.s/task")]
extern "C" fn off_cpu_pass(context: *mut c_void) -> i32 {
    // SAFETY: the second word of the context is the task.
    let task = unsafe { *context.cast::<*mut task_struct>().add(1) };
    if !task.is_null() {
        off_cpu_pass::capture_thread(task);
    }
    0
}

#[inline(always)]
fn count_error(result: Result<(), Counter>) {
    if let Err(counter) = result {
        count(counter);
    }
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// The kernel offers its stack and task helpers to programs under the GPL only.
#[unsafe(no_mangle)]
#[unsafe(link_section = "license")]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
