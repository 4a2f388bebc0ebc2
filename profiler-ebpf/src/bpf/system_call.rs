//! System calls: when each thread of the target entered the kernel, and the number and the duration of a call at its exit.
//!
//! An exit is that of the last entry of its thread, except where the kernel reports an exit without an entry: in a new thread, and
//! after a call that a seccomp filter or a tracer did not let pass. Such an exit has no duration.

use core::ffi::c_void;

use aya_ebpf::helpers::generated as helpers;
use profiler_common::system_call::{BEGUN_BEFORE, SystemCallAbi, SystemCallEntry};

use super::{
    clock,
    config::get,
    kernel_memory::read,
    maps::SYSTEM_CALLS,
    pid_namespace::current_task_ids,
    target_filter::{Verdict, filter_task},
};

/// Offset in `struct pt_regs` of the number of the system call (`arch/x86/include/asm/ptrace.h`).
const ORIG_AX: u32 = 120;

/// Offset in `struct pt_regs` of the code segment.
const CS: u32 = 136;

/// The code segment of 64-bit programs, `__USER_CS` (`arch/x86/include/asm/segment.h`).
const USER_CODE_SEGMENT: u16 = 0x33;

/// `thread_info.status`: the call has a number of 32-bit code (`arch/x86/include/asm/thread_info.h`).
const TS_COMPAT: u32 = 2;

/// The number that `rt_sigreturn` leaves: it restores the registers of what a signal interrupted.
const NO_NUMBER: i64 = -1;

/// Keeps the time at which a thread of the target enters the kernel.
#[inline(always)]
pub(crate) fn enter(context: *mut c_void) {
    if matches!(filter_task(current_task_ids()), Verdict::NotTarget) {
        return;
    }
    let entry = SystemCallEntry { entered_ns: clock::now_ns(), number: entered_number(context), taken_by: 0 };
    keep(current_task(), entry);
}

/// Removes the entry of a thread that exits: another one can have its address.
#[inline(always)]
pub(crate) fn exit_thread() {
    // Fails for a thread that is no target.
    let _ = SYSTEM_CALLS.remove(&current_task());
}

/// The time since the entry of the call that returns, nanoseconds; `None` where the kernel did not report the entry. `event`: the
/// index of the event, which takes each duration once.
#[inline(always)]
pub(crate) fn duration_ns(context: *mut c_void, event: u32) -> Option<u64> {
    let task = current_task();
    let now_ns = clock::now_ns();
    let number = saved_number(context)?;
    let taken = 1 << (event & (u64::BITS - 1));
    let Some(entry) = SYSTEM_CALLS.get_ptr_mut(&task) else {
        return begun_before(task, number, taken).map(|begun_ns| now_ns.saturating_sub(begun_ns));
    };
    // SAFETY: only the exit of this thread removes its entry, and only this thread writes it.
    let entry = unsafe { &mut *entry };
    let is_own = entry.number == number || number == NO_NUMBER;
    if !is_own || entry.taken_by & taken != 0 {
        return None;
    }
    entry.taken_by |= taken;
    Some(now_ns.saturating_sub(entry.entered_ns))
}

/// The start of sampling, for a call that had begun before: its thread has no entry. `None` in a new thread, and where threads
/// can lack entries for another reason.
#[inline(always)]
fn begun_before(task: u64, number: i64, taken: u64) -> Option<u64> {
    let started = SYSTEM_CALLS.get_ptr(&{ BEGUN_BEFORE })?;
    // SAFETY: a live map value. Where the map has just become full, another thread can have it: its time is later.
    let entered_ns = unsafe { (*started).entered_ns };
    let is_new = read::<u64>(task, get!(event.thread_start_time))? >= entered_ns;
    keep(task, SystemCallEntry { entered_ns, number, taken_by: if is_new { u64::MAX } else { taken } });
    if is_new { None } else { Some(entered_ns) }
}

#[inline(always)]
fn keep(task: u64, kept: SystemCallEntry) {
    if let Some(entry) = SYSTEM_CALLS.get_ptr_mut(&task) {
        // SAFETY: as in `duration_ns`.
        unsafe { *entry = kept };
    } else if SYSTEM_CALLS.insert(&task, &kept, 0).is_err() {
        // A thread without an entry no longer means that its call had begun before. Fails from the second time on.
        let _ = SYSTEM_CALLS.remove(&{ BEGUN_BEFORE });
    }
}

/// The number of the call that is entered or that returns.
#[inline(always)]
pub(crate) fn number(context: *mut c_void, is_exit: bool) -> i64 {
    if !is_exit {
        return entered_number(context);
    }
    let number = saved_number(context).unwrap_or(NO_NUMBER);
    if number != NO_NUMBER || get!(event.needs_duration) == 0 {
        return number;
    }
    let entry = SYSTEM_CALLS.get_ptr_mut(&current_task());
    // SAFETY: as in `duration_ns`.
    entry.map_or(number, |entry| unsafe { (*entry).number })
}

/// Which table has the number of the call.
#[inline(always)]
pub(crate) fn abi(context: *mut c_void) -> SystemCallAbi {
    let status_offset = get!(event.thread_status);
    let is_64_bit = if status_offset == 0 {
        // Wrong for 64-bit code that uses `int 0x80`.
        registers(context).and_then(|registers| read::<u16>(registers, CS)) == Some(USER_CODE_SEGMENT)
    } else {
        read::<u32>(current_task(), status_offset).is_none_or(|status| status & TS_COMPAT == 0)
    };
    if is_64_bit { SystemCallAbi::X64 } else { SystemCallAbi::I386 }
}

/// The number at an entry: a tracer can have changed that of the registers.
#[inline(always)]
fn entered_number(context: *mut c_void) -> i64 {
    // SAFETY: sys_enter has two arguments, the registers and the number (`include/trace/events/syscalls.h`).
    unsafe { *context.cast::<i64>().add(1) }
}

/// The number that the kernel keeps until the exit.
#[inline(always)]
fn saved_number(context: *mut c_void) -> Option<i64> {
    read(registers(context)?, ORIG_AX)
}

/// The address of the registers of the thread, the first argument of both tracepoints.
#[inline(always)]
fn registers(context: *mut c_void) -> Option<u64> {
    // SAFETY: as in `entered_number`.
    Some(unsafe { *context.cast::<u64>() })
}

#[inline(always)]
fn current_task() -> u64 {
    // SAFETY: the helper has no arguments and cannot fail.
    unsafe { helpers::bpf_get_current_task() }
}
