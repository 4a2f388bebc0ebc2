//! The unwinder: unwinds a user stack frame by frame, by CFI, epilogue scan or frame pointer.

use core::ptr::read_volatile;

use aya_ebpf::programs::PerfEventContext;
use profiler_common::{
    Counter, FrameFlags, MAX_FRAMES, StackFlags, StackId,
    unwind::{MappingFlags, StackEndReason},
};
use profiler_ebpf::{
    stack_id::{hash_finish, hash_step},
    unwind_step::{FoundBy, Step, step_by_rule},
};

use super::{
    config::get,
    epilogue_scan,
    log::{debug_log, log_caller, log_stack_end},
    maps::PROCESSES,
    scratch::{Scratch, UnwindState},
    stack_capture, stale_mappings,
    unwind_table::{Mappings, rule_for},
    user_memory::UserStack,
    user_registers::user_registers,
};

/// Begins a stack with the frame of the user registers. False where the process or the code has no known mapping:
/// then `bpf_get_stack` captures the stack.
#[inline(always)]
pub(crate) fn begin(context: &PerfEventContext, scratch: &mut Scratch) -> bool {
    let Some(registers) = user_registers(context) else { return false };
    let pid = scratch.sample.pid;
    // SAFETY: user space replaces entries, which the kernel frees after a grace period.
    let Some(process) = (unsafe { PROCESSES.get(&pid) }) else {
        debug_log!("pid {}: no known mappings: bpf_get_stack", pid);
        stale_mappings::report_rate_limited(pid, scratch.sample.time_ns);
        return false;
    };
    let process = *process;
    let address = registers.instruction_pointer;
    let Some(mappings) = Mappings::get() else { return false };
    let Some(mapping) = mappings.find(process.first_mapping, process.mappings, address) else {
        debug_log!("pid {}: {:x} is in no known mapping: bpf_get_stack", pid, address);
        stale_mappings::report_rate_limited(pid, scratch.sample.time_ns);
        return false;
    };
    debug_log!("pid {}: unwinds from {:x}", pid, address);
    scratch.window.bytes = 0;
    scratch.unwind = UnwindState {
        registers,
        hash: get!(hash_seed),
        process,
        mapping,
        depth: 0,
        lookup_offset: 0,
        end_reason: UnwindState::RUNNING,
    };
    push_frame(scratch, 0);
    true
}

/// Adds the caller's frame. False at the end of the stack.
///
/// `SCANS_EPILOGUES`: the program may call `bpf_loop`, which the epilogue scan needs.
#[inline(always)]
pub(crate) fn unwind_frame<const SCANS_EPILOGUES: bool>(scratch: &mut Scratch) -> bool {
    match try_unwind_frame::<SCANS_EPILOGUES>(scratch) {
        Ok(()) => true,
        Err(reason) => {
            log_stack_end(reason);
            scratch.unwind.end_reason = reason as u32;
            false
        }
    }
}

#[inline(always)]
fn try_unwind_frame<const SCANS_EPILOGUES: bool>(scratch: &mut Scratch) -> Result<(), StackEndReason> {
    if scratch.unwind.depth >= MAX_FRAMES as u32 {
        return Err(StackEndReason::DepthLimit);
    }
    let mappings = Mappings::get().ok_or(StackEndReason::NoMapping)?;
    let window = &raw mut scratch.window;
    let unwind = &scratch.unwind;
    let lookup_address = unwind.registers.instruction_pointer.wrapping_sub(u64::from(unwind.lookup_offset));
    let mapping = mappings.at(unwind.mapping);
    let rule = rule_for(mapping, lookup_address);
    // SAFETY: `at` stays within the value.
    let scans_epilogues = unsafe { (*mapping).flags } & MappingFlags::SCAN_EPILOGUES != 0;
    let (registers, is_leaf) = (unwind.registers, unwind.lookup_offset == 0);
    debug_log!(
        "  {:x} in mapping {}: CFA rule {}, offset {}, frame pointer rule {}",
        lookup_address,
        unwind.mapping,
        rule.cfa,
        rule.cfa_offset,
        rule.frame_pointer
    );
    let by_epilogue = if SCANS_EPILOGUES && scans_epilogues {
        epilogue_scan::unwind_step(&mut scratch.epilogue, registers, is_leaf, &UserStack(window))
    } else {
        None
    };
    let step = match by_epilogue {
        Some(step) => step,
        None => step_by_rule(rule, registers, &UserStack(window)),
    };
    let Step { caller, found_by, end_reason } = step;
    let unwind = &mut scratch.unwind;
    if let Some(reason) = end_reason {
        // SAFETY: `at` stays within the value.
        let has_cfi = unsafe { (*mapping).pages } > 0;
        return Err(if reason == StackEndReason::NullCaller && has_cfi {
            StackEndReason::Root
        } else {
            reason
        });
    }
    if matches!(found_by, FoundBy::FramePointer | FoundBy::EpilogueScan) && get!(cfi_only) != 0 {
        return Err(StackEndReason::UnsupportedRule);
    }
    let lookup_offset = if found_by == FoundBy::SignalFrame { 0 } else { 1 };
    let address = caller.instruction_pointer.wrapping_sub(u64::from(lookup_offset));
    let is_mapped = mappings.contains(unwind.mapping, address)
        || match mappings.find(unwind.process.first_mapping, unwind.process.mappings, address) {
            Some(mapping) => {
                unwind.mapping = mapping;
                true
            }
            None => false,
        };
    if !is_mapped && found_by == FoundBy::FramePointer {
        // A frame whose return address is not in code was no frame.
        return Err(StackEndReason::BrokenFramePointer);
    }
    log_caller(caller.instruction_pointer, found_by);
    unwind.registers = caller;
    unwind.lookup_offset = lookup_offset;
    let flag = match found_by {
        FoundBy::Cfi => 0,
        FoundBy::FramePointer => FrameFlags::BY_FRAME_POINTER,
        FoundBy::EpilogueScan => FrameFlags::BY_EPILOGUE_SCAN,
        FoundBy::SignalFrame => FrameFlags::INTERRUPTED,
    };
    push_frame(scratch, flag);
    if is_mapped { Ok(()) } else { Err(StackEndReason::NoMapping) }
}

/// Adds the frame of the current registers.
#[inline(always)]
fn push_frame(scratch: &mut Scratch, flag: u64) {
    let unwind = &mut scratch.unwind;
    let address = unwind.registers.instruction_pointer & !FrameFlags::ALL | flag;
    // VERIFIER: read anew, or the compiler knows of the check before and drops the mask, which the verifier of 5.10
    // needs: it forgets the bounds of a number that was spilled to the stack in between.
    // SAFETY: the field is in bounds of a live map value that this CPU owns.
    let depth = unsafe { read_volatile(&raw const unwind.depth) } as usize & (MAX_FRAMES - 1);
    let frames = (&raw mut scratch.stack.frames).cast::<u64>();
    // SAFETY: the mask keeps the index within the array.
    unsafe { *frames.add(depth) = address };
    unwind.hash = hash_step(unwind.hash, address);
    unwind.depth += 1;
}

/// Ends a stack, and sends it when it is new.
///
/// # Errors
/// The counter of the loss when it does not fit into the ring buffer.
#[inline(always)]
pub(crate) fn finish(scratch: &mut Scratch) -> Result<StackId, Counter> {
    if scratch.unwind.end_reason == UnwindState::RUNNING {
        scratch.unwind.end_reason = StackEndReason::DepthLimit as u32;
    }
    let end_reason = scratch.unwind.end_reason;
    // JIT code of .NET has frame pointers: one that leads to no known mapping leads to newly compiled code.
    if end_reason == StackEndReason::NoMapping as u32
        || end_reason == StackEndReason::BrokenFramePointer as u32 && is_in_jit_code(scratch)
    {
        stale_mappings::report_rate_limited(scratch.sample.pid, scratch.sample.time_ns);
    }
    let depth = scratch.unwind.depth;
    debug_log!("pid {}: {} frames", scratch.sample.pid, depth);
    let id = hash_finish(scratch.unwind.hash, u64::from(depth) | u64::from(end_reason) << 32);
    scratch.stack.header.frames = depth as u16;
    stack_capture::send_if_new(scratch, id, StackFlags::UNWOUND, end_reason as u8)
}

#[inline(always)]
fn is_in_jit_code(scratch: &Scratch) -> bool {
    let Some(mappings) = Mappings::get() else { return false };
    // SAFETY: `at` stays within the value.
    unsafe { (*mappings.at(scratch.unwind.mapping)).flags & MappingFlags::SCAN_EPILOGUES != 0 }
}
