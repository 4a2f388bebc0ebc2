//! Restores return addresses that return probes have replaced on the stack.
//!
//! At the entry of a function with a return probe, the kernel puts the address of a trampoline into the slot of the return address,
//! and keeps the address itself in a list of the task (`prepare_uretprobe`, `kernel/events/uprobes.c`). The trampoline is at the
//! start of the mapping `[uprobes]` (`uprobe_get_trampoline_vaddr`). The rest of the mapping has copies of probed instructions, which
//! a thread executes in place of the breakpoints.

use core::{ffi::c_void, mem::MaybeUninit};

use aya_ebpf::helpers::generated as helpers;
use profiler_common::unwind::StackEndReason;
use profiler_ebpf::unwind_step::Registers;

use super::{
    config::get,
    scratch::{PendingSearch, ReturnProbeState, UnwindState},
};

const PAGE_BYTES: u64 = 4096;
const WORD_BYTES: u64 = size_of::<u64>() as u64;

/// The trampoline of a process that has none: no return address is 1.
const NO_TRAMPOLINE: u64 = 1;

/// Whether a return address can be that of the trampoline, which is the start of a page: few others are.
#[inline(always)]
pub(crate) fn may_have_replaced(return_address: u64) -> bool {
    get!(return_probes.is_possible) != 0 && return_address.is_multiple_of(PAGE_BYTES)
}

/// One step of the search for the return address of the current registers: visits one entry of the list. The search is over when
/// it is no longer pending. The list has the callee's entry before that of its caller, so that one pass serves all frames.
///
/// # Errors
/// The list does not have the return address.
#[inline(always)]
pub(crate) fn search_step(
    unwind: &mut UnwindState,
    state: &mut ReturnProbeState,
) -> Result<(), StackEndReason> {
    if state.trampoline == 0 {
        begin(state);
    }
    if unwind.registers.instruction_pointer != state.trampoline {
        unwind.pending = PendingSearch::None as u32;
        return Ok(());
    }
    if state.instance == 0 {
        return Err(StackEndReason::ReturnProbe);
    }
    let instance = state.instance;
    let stack = word_at(instance, get!(return_probes.instance_stack));
    let return_address = word_at(instance, get!(return_probes.instance_return_address));
    let next = word_at(instance, get!(return_probes.instance_next));
    if stack == 0 || return_address == 0 {
        return Err(StackEndReason::ReturnProbe);
    }
    // The stack pointer at the entry of the function: the address of the slot (`arch_uretprobe_hijack_return_addr`,
    // `arch/x86/kernel/uprobes.c`). Functions that were entered by a tail call share the slot, and each entry has its address.
    if stack == unwind.registers.stack_pointer.wrapping_sub(WORD_BYTES) {
        unwind.registers.instruction_pointer = return_address;
        unwind.pending = PendingSearch::None as u32;
    }
    state.instance = next;
    Ok(())
}

/// Whether an address is in the mapping `[uprobes]`, which is at the highest address of a process unless that is taken
/// (`__create_xol_area`): with page tables of four or of five levels.
#[inline(always)]
pub(crate) fn is_in_uprobes(address: u64) -> bool {
    const HIGHEST_PAGES: [u64; 2] = [(1 << 47) - 2 * PAGE_BYTES, (1 << 56) - 2 * PAGE_BYTES];
    let page = address & !(PAGE_BYTES - 1);
    get!(return_probes.is_possible) != 0 && (page == HIGHEST_PAGES[0] || page == HIGHEST_PAGES[1])
}

/// Restores the registers of a leaf in the mapping `[uprobes]`: in the place of the copied instruction, or, in the trampoline, those
/// of the caller to which the function returns.
#[inline(always)]
pub(crate) fn restore_leaf(registers: &mut Registers, state: &mut ReturnProbeState) {
    let task = task(state);
    if let Some(correction) = correction_of_copy(task) {
        registers.instruction_pointer = registers.instruction_pointer.wrapping_add(correction);
        return;
    }
    let instance = first_instance(task);
    let stack = word_at(instance, get!(return_probes.instance_stack));
    let return_address = word_at(instance, get!(return_probes.instance_return_address));
    if stack == 0 || return_address == 0 {
        return;
    }
    // The trampoline pushes up to three registers (`arch_uretprobe_trampoline`, `arch/x86/kernel/uprobes.c`).
    if stack.wrapping_add(WORD_BYTES).wrapping_sub(registers.stack_pointer) <= 3 * WORD_BYTES {
        registers.instruction_pointer = return_address;
        registers.stack_pointer = stack.wrapping_add(WORD_BYTES);
    }
}

/// What leads from the copy of an instruction to the instruction, while a task executes the copy (`default_post_xol_op`,
/// `arch/x86/kernel/uprobes.c`).
#[inline(always)]
fn correction_of_copy(task: u64) -> Option<u64> {
    let uprobe_task = word_at(task, get!(return_probes.task_uprobe_task));
    let active = word_at(uprobe_task, get!(return_probes.uprobe_task_active));
    let copy = word_at(uprobe_task, get!(return_probes.uprobe_task_copy));
    let original = word_at(uprobe_task, get!(return_probes.uprobe_task_original));
    if active == 0 || copy == 0 || original == 0 {
        return None;
    }
    Some(original.wrapping_sub(copy))
}

/// Reads the trampoline of the process and the first entry of the task's list.
#[inline(always)]
fn begin(state: &mut ReturnProbeState) {
    let task = task(state);
    state.trampoline = match trampoline(task) {
        0 => NO_TRAMPOLINE,
        trampoline => trampoline,
    };
    state.instance = first_instance(task);
}

#[inline(always)]
fn task(state: &ReturnProbeState) -> u64 {
    // SAFETY: the helper has no arguments and cannot fail.
    if state.task == 0 { unsafe { helpers::bpf_get_current_task() } } else { state.task }
}

/// The trampoline of the process; 0 where it has none.
#[inline(always)]
fn trampoline(task: u64) -> u64 {
    let mm = word_at(task, get!(return_probes.task_mm));
    let area = word_at(mm, get!(return_probes.mm_xol_area));
    word_at(area, get!(return_probes.xol_area_address))
}

/// The first entry of the task's list; 0 where it has none.
#[inline(always)]
fn first_instance(task: u64) -> u64 {
    let uprobe_task = word_at(task, get!(return_probes.task_uprobe_task));
    word_at(uprobe_task, get!(return_probes.uprobe_task_instances))
}

/// A word of kernel memory; 0 where it cannot be read: then the helper fills its destination with zeros
/// (`bpf_probe_read_kernel_common`, `kernel/trace/bpf_trace.c`).
///
/// VERIFIER: no branch and no `Option`. After a branch, the verifier checks the rest of the program twice for each word. For `None`, LLVM
/// does not initialize the register of the number, and the verifier of Linux 6.1 rejects the arithmetic with it.
#[inline(always)]
fn word_at(base: u64, offset: u32) -> u64 {
    let mut word = MaybeUninit::<u64>::uninit();
    let address = base.wrapping_add(u64::from(offset)) as *const c_void;
    // SAFETY: the destination has the bytes of a word; the helper checks the source.
    unsafe { helpers::bpf_probe_read_kernel(word.as_mut_ptr().cast(), WORD_BYTES as u32, address) };
    // SAFETY: the helper has written it.
    unsafe { word.assume_init() }
}
