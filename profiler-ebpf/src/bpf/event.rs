//! Samples of events that are counted: filter an occurrence, capture its stacks, send the sample.
//!
//! A program can be interrupted by that of another event, or by a tick, and it can run again on the CPU before it ends: each
//! event has a working memory of its own, and an occurrence inside of another is counted as lost.

use core::{
    ffi::c_void,
    ptr::{read_volatile, write_volatile},
};

use aya_ebpf::{EbpfContext, programs::PerfEventContext};
use profiler_common::{
    Counter, RecordKind, StackId,
    event::{EventCounts, EventRecord, FieldPlace, SystemCallPlace},
};

use super::{
    clock,
    config::get,
    event_field,
    maps::{EVENT_COUNTS, EVENT_SCRATCH},
    pid_namespace::{TaskIds, current_task_ids},
    ring_buffer::{Wakeup, send},
    sample::{fill_sample, unwind_in_loop},
    scratch::Scratch,
    stack_capture::{self, Side},
    system_call,
    target_filter::{Verdict, filter_task},
    unwinder,
    user_registers::interrupted_user_mode,
};

/// The working memory of one run.
#[repr(C)]
pub(crate) struct EventScratch {
    pub(crate) scratch: Scratch,
    pub(crate) record: EventRecord,
    /// 1: a run uses this memory.
    pub(crate) is_used: u64,
}

/// An event that occurs, with what its program knows of it.
#[derive(Clone, Copy)]
enum Occurrence<'a> {
    /// Of a software or hardware event.
    PerfEvent(&'a PerfEventContext),
    Tracepoint,
    /// An entry into a system call, or an exit. All have the same kernel stack.
    SystemCall {
        is_exit: bool,
    },
    /// An execution of an instruction of a file. The task has entered the kernel from there.
    Probe,
}

impl Occurrence<'_> {
    /// Whether it was in user mode, or at its border: then the task has no kernel stack of interest.
    #[inline(always)]
    fn is_in_user_mode(self) -> bool {
        match self {
            Self::PerfEvent(context) => interrupted_user_mode(context),
            Self::Tracepoint => false,
            Self::Probe | Self::SystemCall { .. } => true,
        }
    }

    /// Begins the user stack, see [`unwinder::begin`].
    #[inline(always)]
    fn begin_user_stack(self, scratch: &mut Scratch) -> bool {
        match self {
            Self::PerfEvent(context) => unwinder::begin(context, scratch),
            Self::Tracepoint | Self::SystemCall { .. } | Self::Probe => unwinder::begin_in_kernel(scratch),
        }
    }
}

/// Samples an occurrence of a software or hardware event.
#[inline(always)]
pub(crate) fn sample_perf_event<const UNWINDS: bool>(context: &PerfEventContext) {
    sample::<UNWINDS>(context.as_ptr(), Occurrence::PerfEvent(context));
}

/// Samples an occurrence of a tracepoint.
#[inline(always)]
pub(crate) fn sample_tracepoint<const UNWINDS: bool>(context: *mut c_void) {
    let place = get!(event.system_call);
    let occurrence = if place == SystemCallPlace::None as u32 {
        Occurrence::Tracepoint
    } else {
        Occurrence::SystemCall { is_exit: place == SystemCallPlace::Exit as u32 }
    };
    sample::<UNWINDS>(context, occurrence);
}

/// Samples an execution of an instruction of a file.
#[inline(always)]
pub(crate) fn sample_probe<const UNWINDS: bool>(context: *mut c_void) {
    sample::<UNWINDS>(context, Occurrence::Probe);
}

#[inline(always)]
fn sample<const UNWINDS: bool>(context: *mut c_void, occurrence: Occurrence<'_>) {
    let ids = current_task_ids();
    // The idle task belongs to no process.
    if matches!(ids, Some(TaskIds { tid: 0, .. })) {
        return;
    }
    let verdict = filter_task(ids);
    if matches!(verdict, Verdict::NotTarget) {
        return;
    }
    let Some(own_value) = event_field::value_of_run(context) else { return };
    let index = get!(event.index);
    let (Some(counts), Some(memory)) = (EVENT_COUNTS.get_ptr_mut(index), EVENT_SCRATCH.get_ptr_mut(index))
    else {
        return;
    };
    // SAFETY: the value belongs to this CPU. A run inside of another one adds to the nested occurrences alone.
    let counts = unsafe { &mut *counts };
    // SAFETY: the value belongs to this CPU, and to the run that set `is_used`.
    let memory = unsafe { &mut *memory };
    if swap(&mut memory.is_used, 1) != 0 {
        counts.lost_nested += own_value;
        return;
    }
    if let Some(value) = due_value(counts, own_value) {
        counts.due += value;
        match verdict {
            Verdict::Target(ids) => {
                sample_target::<UNWINDS>(context, occurrence, (ids, value), memory, counts);
            }
            _ => counts.lost_thread_id += value,
        }
    }
    swap(&mut memory.is_used, 0);
}

/// Samples an occurrence in the target, or skips it because of the overhead limit.
#[inline(always)]
fn sample_target<const UNWINDS: bool>(
    context: *mut c_void,
    occurrence: Occurrence<'_>,
    (ids, value): (TaskIds, u64),
    memory: &mut EventScratch,
    counts: &mut EventCounts,
) {
    let began_ns = clock::now_ns();
    // The calls that take long have their own stacks, whatever there is of short ones.
    let is_time = get!(event.weight.place) == FieldPlace::Duration as u32;
    let length_ns = if is_time { value } else { u64::MAX };
    if !memory.scratch.governor.begin_wait(began_ns, get!(max_overhead), length_ns) {
        counts.skipped += value;
        return;
    }
    fill_sample(&mut memory.scratch.sample, ids, began_ns);
    memory.record.value = value + counts.skipped;
    counts.skipped = 0;
    take::<UNWINDS>(context, occurrence, memory, counts);
    let run_time_ns = clock::now_ns().saturating_sub(began_ns);
    memory.scratch.governor.end_sample(run_time_ns, true);
    counts.run_time_ns += run_time_ns;
}

/// The sum of the values since the last sample where this run takes a sample; `None` where a later run takes it.
#[inline(always)]
fn due_value(counts: &mut EventCounts, own_value: u64) -> Option<u64> {
    let runs_per_sample = get!(event.runs_per_sample);
    if runs_per_sample <= 1 {
        return Some(own_value);
    }
    counts.pending += own_value;
    counts.runs += 1;
    if counts.runs < runs_per_sample {
        return None;
    }
    counts.runs = 0;
    let value = counts.pending;
    counts.pending = 0;
    Some(value)
}

/// Sets a flag that a run inside of this one reads, and returns its previous value. A run inside ends before this one goes on.
#[inline(always)]
fn swap(flag: &mut u64, value: u64) -> u64 {
    // SAFETY: the reference is valid and aligned.
    let previous = unsafe { read_volatile(flag) };
    // SAFETY: as above.
    unsafe { write_volatile(flag, value) };
    previous
}

/// Captures the stacks of a sample and sends it.
#[inline(always)]
fn take<const UNWINDS: bool>(
    context: *mut c_void,
    occurrence: Occurrence<'_>,
    memory: &mut EventScratch,
    counts: &mut EventCounts,
) {
    let (scratch, record) = (&mut memory.scratch, &mut memory.record);
    let kernel_stack = kernel_stack::<UNWINDS>(context, occurrence, scratch);
    let user_stack = user_stack::<UNWINDS>(context, occurrence, scratch);
    if let (Ok(kernel_stack), Ok(user_stack)) = (kernel_stack, user_stack) {
        record.sample = scratch.sample;
        record.sample.kind = RecordKind::Event as u32;
        record.sample.kernel_stack = kernel_stack;
        record.sample.user_stack = user_stack;
        record.event = get!(event.index);
        if let Occurrence::SystemCall { is_exit } = occurrence {
            record.system_call_abi = system_call::abi(context) as u32;
            record.system_call = system_call::number(context, is_exit);
        }
        let bytes = size_of::<EventRecord>() as u64;
        if send((&raw const *record).cast(), bytes, Wakeup::AtThreshold) {
            return;
        }
    }
    counts.lost_ring_buffer += record.value;
}

#[inline(always)]
fn kernel_stack<const UNWINDS: bool>(
    context: *mut c_void,
    occurrence: Occurrence<'_>,
    scratch: &mut Scratch,
) -> Result<StackId, Counter> {
    if get!(kernel_stacks) == 0 || occurrence.is_in_user_mode() {
        return Ok(0);
    }
    stack_capture::capture::<UNWINDS>(context, scratch, Side::Kernel)
}

/// The user stack. `UNWINDS`: the kernel has `bpf_loop`, for the unwinder; before Linux 5.13 it refuses a program that refers to a
/// callback, even where it does not run.
#[inline(always)]
fn user_stack<const UNWINDS: bool>(
    context: *mut c_void,
    occurrence: Occurrence<'_>,
    scratch: &mut Scratch,
) -> Result<StackId, Counter> {
    if get!(user_stacks) == 0 {
        return Ok(0);
    }
    if UNWINDS {
        if occurrence.begin_user_stack(scratch) {
            unwind_in_loop(scratch);
        }
        if unwinder::is_captured(scratch) {
            return unwinder::finish(scratch);
        }
    }
    stack_capture::capture::<UNWINDS>(context, scratch, Side::User)
}
