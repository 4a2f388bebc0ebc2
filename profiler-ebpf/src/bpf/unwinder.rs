//! The unwinder: unwinds a user stack frame by frame, by CFI, function edge or frame pointer.

use core::ptr::{read_volatile, write_volatile};

use aya_ebpf::programs::PerfEventContext;
use profiler_common::{
    Counter, FrameFlags, MAX_FRAMES, StackFlags, StackId,
    unwind::{CfaRule, MappingFlags, ProcessEntry, Rule, RuleFlags, StackEndReason},
};
use profiler_ebpf::{
    edge_cache::ScanMode,
    note_use,
    stack_id::{hash_finish, hash_step},
    unwind_step::{
        CalleeFrame, FoundBy, FramePosition, GoroutineReturn, Registers, StackMemory, Step, is_of_goroutine,
        return_to_goroutine, step_by_frame_pointer, step_by_rule,
    },
};

use super::{
    config::get,
    counters::count,
    edge_scan,
    log::{debug_log, log_caller, log_stack_end},
    maps::PROCESSES,
    return_probes, rule_cache,
    scratch::{PendingSearch, Scratch, UnwindState},
    stack_capture, stale_mappings,
    unwind_table::{Mappings, contains, find_rule, rule_at},
    user_address_space::{UserStackState, user_stack_state},
    user_registers::{interrupted_user_mode, registers_at_kernel_entry, user_registers},
    vma_search,
};

/// The most steps for a stack: each frame has one, one more where Go's runtime switched stacks, and one for each level of the tree where
/// its mapping is searched among the VMAs.
pub(crate) const MAX_STEPS: u32 = (2 + vma_search::MAX_LEVELS) * MAX_FRAMES as u32;

/// Begins a stack with the frame of the user registers. Returns false when the user registers are not available, or when no
/// mapping contains the instruction pointer and the kernel has no VMA search: then `bpf_get_stack` captures the stack.
#[inline(always)]
pub(crate) fn begin(context: &PerfEventContext, scratch: &mut Scratch) -> bool {
    scratch.unwind.depth = 0;
    scratch.unwind.end_reason = UnwindState::RUNNING;
    let Some(registers) = user_registers(context, &mut scratch.unwind.leaf) else { return false };
    if interrupted_user_mode(context) {
        return begin_at(registers, scratch);
    }
    begin_at_kernel_entry(registers, scratch)
}

/// As [`begin`], for the running task, which has entered the kernel.
#[inline(always)]
pub(crate) fn begin_in_kernel(scratch: &mut Scratch) -> bool {
    scratch.unwind.depth = 0;
    scratch.unwind.end_reason = UnwindState::RUNNING;
    let Some(registers) = registers_at_kernel_entry(&mut scratch.unwind.leaf) else { return false };
    begin_at_kernel_entry(registers, scratch)
}

#[inline(always)]
fn begin_at_kernel_entry(registers: Registers, scratch: &mut Scratch) -> bool {
    let stack_state = user_stack_state(registers.stack_pointer);
    if stack_state != UserStackState::Present {
        begin_frames(registers, scratch);
        if stack_state == UserStackState::Exits {
            push_frame(scratch, 0);
        }
        scratch.unwind.end_reason = StackEndReason::NoUserStack as u32;
        return true;
    }
    begin_at(registers, scratch)
}

/// Begins a stack with the frame of these registers, whose stack is in the address space of the process; the scratch has all
/// registers of the leaf. Returns false as [`begin`] does.
#[inline(always)]
pub(crate) fn begin_at(registers: Registers, scratch: &mut Scratch) -> bool {
    begin_frames(registers, scratch);
    let pid = scratch.sample.pid;
    let process = process_entry(pid, scratch.sample.time_ns);
    if return_probes::is_in_uprobes(registers.instruction_pointer) {
        return_probes::restore_leaf(&mut scratch.unwind.registers, &mut scratch.return_probes);
    }
    let address = scratch.unwind.registers.instruction_pointer;
    let Some(mappings) = Mappings::get() else { return false };
    debug_log!("pid {}: unwinds from {:x}", pid, address);
    scratch.unwind.process = process;
    scratch.unwind.hash_of_mappings = rule_cache::hash_of_mappings(process);
    if let Some(mapping) = mappings.find(process, address) {
        scratch.unwind.mapping = mapping;
        push_frame(scratch, 0);
    } else if vma_search::is_possible() {
        search_mapping(scratch);
    } else {
        debug_log!("pid {}: {:x} is in no known mapping: bpf_get_stack", pid, address);
        stale_mappings::report_rate_limited(pid, scratch.sample.time_ns);
        return false;
    }
    true
}

/// Sets the state of a stack without frames.
#[inline(always)]
fn begin_frames(registers: Registers, scratch: &mut Scratch) {
    let unwind = &mut scratch.unwind;
    unwind.registers = registers;
    unwind.hash = get!(hash_seed);
    unwind.lookup_offset = 0;
    unwind.pending = PendingSearch::None as u32;
    unwind.next_flag = 0;
    unwind.cached_rule = UnwindState::NOT_CACHED;
    scratch.window.bytes = 0;
    scratch.return_probes.trampoline = 0;
}

/// The installed mappings of a process; none where it is unknown.
#[inline(always)]
fn process_entry(pid: u32, now_ns: u64) -> ProcessEntry {
    let Some(process) = PROCESSES.get_ptr_mut(&pid) else {
        return ProcessEntry {
            first_mapping: 0,
            mappings: 0,
            new_mapping_flags: 0,
            generation: 0,
            used_ns: 0,
        };
    };
    // SAFETY: a live map value. The kernel can give a removed one to another process at once: the map is preallocated. Then the
    // stack has frames of the wrong tables.
    let process = unsafe { &mut *process };
    note_use(&mut process.used_ns, now_ns);
    *process
}

/// Whether the stack is captured. It is not where the code is in no mapping: then `bpf_get_stack` captures it.
#[inline(always)]
pub(crate) fn is_captured(scratch: &Scratch) -> bool {
    scratch.unwind.depth > 0 || scratch.unwind.end_reason == StackEndReason::NoUserStack as u32
}

/// Adds the caller's frame. False at the end of the stack.
///
/// `SCANS_CODE`: the program may call `bpf_loop`, which the scan of code needs.
#[inline(always)]
pub(crate) fn unwind_frame<const SCANS_CODE: bool>(scratch: &mut Scratch, stack: &impl StackMemory) -> bool {
    if scratch.unwind.end_reason != UnwindState::RUNNING {
        return false;
    }
    // VERIFIER: the search is a step of its own. In the middle of another it would be verified once for each way there.
    let result = if scratch.unwind.pending == PendingSearch::Mapping as u32 {
        search_mapping_step(scratch)
    } else {
        try_add_caller::<SCANS_CODE>(scratch, stack)
    };
    match result {
        Ok(()) => true,
        Err(reason) => {
            log_stack_end(reason);
            scratch.unwind.end_reason = reason as u32;
            false
        }
    }
}

/// Adds the caller's frame, or notes which search it needs before.
#[inline(always)]
fn try_add_caller<const SCANS_CODE: bool>(
    scratch: &mut Scratch,
    stack: &impl StackMemory,
) -> Result<(), StackEndReason> {
    if scratch.unwind.pending == PendingSearch::ReturnAddress as u32 {
        return_probes::search_step(&mut scratch.unwind, &mut scratch.return_probes)?;
    } else if scratch.unwind.pending == PendingSearch::Goroutine as u32 {
        find_goroutine(&mut scratch.unwind, stack);
    } else {
        step_to_caller::<SCANS_CODE>(scratch, stack)?;
    }
    // VERIFIER: both ways meet here, so that the search among the mappings is verified once.
    if scratch.unwind.pending != PendingSearch::None as u32 { Ok(()) } else { add_frame(scratch) }
}

/// Replaces the registers by those of the caller.
#[inline(always)]
fn step_to_caller<const SCANS_CODE: bool>(
    scratch: &mut Scratch,
    stack: &impl StackMemory,
) -> Result<(), StackEndReason> {
    if scratch.unwind.depth >= scratch.governor.max_frames() {
        return Err(StackEndReason::DepthLimit);
    }
    if scratch.unwind.pending == PendingSearch::None as u32 {
        let rule = rule_of_code(&scratch.unwind);
        set_rule(&mut scratch.unwind, rule);
        if is_of_goroutine(rule) {
            scratch.unwind.pending = PendingSearch::Goroutine as u32;
            return Ok(());
        }
    }
    let step = step_by_code::<SCANS_CODE>(scratch, stack);
    let Step { caller, found_by, end_reason } = step;
    let unwind = &mut scratch.unwind;
    if let Some(reason) = end_reason {
        return Err(reason);
    }
    if matches!(found_by, FoundBy::FramePointer | FoundBy::EpilogueScan) && get!(cfi_only) != 0 {
        return Err(StackEndReason::UnsupportedRule);
    }
    log_caller(caller.instruction_pointer, found_by);
    let flag = match found_by {
        FoundBy::Cfi => 0,
        FoundBy::FramePointer => FrameFlags::BY_FRAME_POINTER,
        FoundBy::EpilogueScan => FrameFlags::BY_EPILOGUE_SCAN,
        FoundBy::Instructions => FrameFlags::BY_INSTRUCTIONS,
        FoundBy::SignalFrame => FrameFlags::INTERRUPTED,
    };
    unwind.registers = caller;
    unwind.next_flag = flag;
    unwind.lookup_offset = u32::from(next_flag(unwind) != FrameFlags::INTERRUPTED);
    unwind.pending = PendingSearch::None as u32;
    if return_probes::may_have_replaced(caller.instruction_pointer) {
        unwind.pending = PendingSearch::ReturnAddress as u32;
    }
    Ok(())
}

/// Adds the frame of the current registers, unless its mapping has to be searched among the VMAs before. Code whose rule is in the
/// cache is in a mapping.
#[inline(always)]
fn add_frame(scratch: &mut Scratch) -> Result<(), StackEndReason> {
    let mappings = Mappings::get().ok_or(StackEndReason::NoMapping)?;
    let unwind = &mut scratch.unwind;
    let address = address_to_look_up(unwind);
    unwind.cached_rule =
        rule_cache::find(unwind.hash_of_mappings, address).unwrap_or(UnwindState::NOT_CACHED);
    if unwind.cached_rule == UnwindState::NOT_CACHED && !contains(&unwind.mapping, address) {
        match mappings.find(unwind.process, address) {
            Some(mapping) => unwind.mapping = mapping,
            None if vma_search::is_possible() => {
                search_mapping(scratch);
                return Ok(());
            }
            None => return end_unmapped(scratch),
        }
    }
    let flag = next_flag(&scratch.unwind);
    push_frame(scratch, flag);
    Ok(())
}

/// Replaces the rule and the registers of code on the scheduling stack of Go's runtime by those of the call from the goroutine, or the
/// registers by those of the caller.
#[inline(always)]
fn find_goroutine(unwind: &mut UnwindState, stack: &impl StackMemory) {
    let position = position(unwind);
    let UnwindState { registers, leaf, goroutine, rule, .. } = unwind;
    let frame = CalleeFrame { registers: *registers, position, leaf };
    goroutine.read(*rule, frame, stack);
    let GoroutineReturn { rule, registers, is_caller } = return_to_goroutine(*rule, frame, goroutine);
    unwind.registers = registers;
    set_rule(unwind, rule);
    unwind.pending = PendingSearch::Caller as u32;
    if is_caller {
        log_caller(registers.instruction_pointer, FoundBy::Cfi);
        unwind.next_flag = 0;
        unwind.lookup_offset = 1;
        unwind.pending = PendingSearch::None as u32;
    }
}

/// The flag of the frame that is added next.
///
/// VERIFIER: read anew from the map value, where it is an unknown number. In a register it is one of few, and what follows is verified
/// once for each.
#[inline(always)]
fn next_flag(unwind: &UnwindState) -> u64 {
    // SAFETY: a field of a live map value.
    unsafe { read_volatile(&raw const unwind.next_flag) }
}

/// Notes the rule of the frame that was added last. Field by field: the compiler makes of a rule of zeros a call of `memset`, whose stack
/// the verifier of 6.1 adds.
#[inline(always)]
fn set_rule(unwind: &mut UnwindState, rule: Rule) {
    macro_rules! write {
        ($field:ident) => {
            // SAFETY: a field of a live map value that this CPU owns.
            unsafe { write_volatile(&raw mut unwind.rule.$field, rule.$field) }
        };
    }
    write!(cfa);
    write!(frame_pointer);
    write!(return_address);
    write!(rbx);
    write!(frame_pointer_offset);
    write!(return_address_offset);
    write!(cfa_offset);
}

/// The rule of the frame that was added last.
///
/// VERIFIER: as [`next_flag`]. Field by field: the compiler reads a volatile structure by way of the stack.
#[inline(always)]
fn rule(unwind: &UnwindState) -> Rule {
    macro_rules! read {
        ($field:ident) => {
            // SAFETY: a field of a live map value.
            unsafe { read_volatile(&raw const unwind.rule.$field) }
        };
    }
    Rule {
        cfa: read!(cfa),
        frame_pointer: read!(frame_pointer),
        return_address: read!(return_address),
        rbx: read!(rbx),
        frame_pointer_offset: read!(frame_pointer_offset),
        return_address_offset: read!(return_address_offset),
        cfa_offset: read!(cfa_offset),
    }
}

/// The rule for the code of the frame that was added last.
#[inline(always)]
fn rule_of_code(unwind: &UnwindState) -> Rule {
    let address = address_to_look_up(unwind);
    let index = match cached_rule(unwind) {
        UnwindState::NOT_CACHED => rule_of_table(unwind, address),
        cached => Some(cached),
    };
    let rule = index.and_then(rule_at).unwrap_or_default();
    debug_log!(
        "  {:x}: CFA rule {}, offset {}, frame pointer rule {}",
        address,
        rule.cfa,
        rule.cfa_offset,
        rule.frame_pointer
    );
    rule
}

/// The index of the rule for an address in the mapping of the frame, which the cache keeps from now on. A leaf is elsewhere in each
/// sample, and code without a rule is unwound by its mapping.
#[inline(always)]
fn rule_of_table(unwind: &UnwindState, address: u64) -> Option<u32> {
    let index = find_rule(&unwind.mapping, address)?;
    if unwind.depth > 1 && unwind.hash_of_mappings != rule_cache::NO_MAPPINGS && is_known(rule_at(index)?) {
        rule_cache::insert(unwind.hash_of_mappings, address, index);
    }
    Some(index)
}

#[inline(always)]
fn is_known(rule: Rule) -> bool {
    rule.cfa != CfaRule::Unknown as u8
}

/// As [`next_flag`], for the index of the rule.
#[inline(always)]
fn cached_rule(unwind: &UnwindState) -> u32 {
    // SAFETY: a field of a live map value.
    unsafe { read_volatile(&raw const unwind.cached_rule) }
}

/// The address of the registers by which code is looked up.
#[inline(always)]
fn address_to_look_up(unwind: &UnwindState) -> u64 {
    unwind.registers.instruction_pointer.wrapping_sub(u64::from(unwind.lookup_offset))
}

/// The step by the edge of the function where the code has no rule and is at one, else by the rule.
#[inline(always)]
fn step_by_code<const SCANS_CODE: bool>(scratch: &mut Scratch, stack: &impl StackMemory) -> Step {
    let unwind = &scratch.unwind;
    let rule = rule(unwind);
    let searches_epilogues = unwind.mapping.flags & MappingFlags::SCAN_EPILOGUES != 0;
    let by_edge = if SCANS_CODE && rule.cfa == CfaRule::Unknown as u8 {
        let mode = ScanMode { runs: unwind.lookup_offset == 0, searches: searches_epilogues };
        edge_scan::unwind_step(&mut scratch.code, unwind.registers, mode, stack)
    } else {
        None
    };
    match by_edge {
        Some(step) => step,
        None => step_by_table(&scratch.unwind, rule, stack),
    }
}

/// The step by the rule of the unwind table, or by frame pointer where the rule holds only if the return address follows a call
/// instruction, and that is not confirmed.
#[inline(always)]
fn step_by_table<M: StackMemory>(unwind: &UnwindState, rule: Rule, stack: &M) -> Step {
    let must_follow_call = rule.return_address & RuleFlags::RETURNS_BEHIND_CALL != 0;
    let frame = CalleeFrame { registers: unwind.registers, position: position(unwind), leaf: &unwind.leaf };
    let step = step_by_rule(rule, frame, stack);
    if must_follow_call && !is_confirmed::<M>(unwind, step.caller.instruction_pointer) {
        return step_by_frame_pointer(unwind.registers, stack);
    }
    step
}

#[inline(always)]
fn position(unwind: &UnwindState) -> FramePosition {
    match (unwind.depth, unwind.lookup_offset) {
        (1, _) => FramePosition::Leaf,
        (_, 0) => FramePosition::Interrupted,
        _ => FramePosition::Call,
    }
}

/// Whether a return address follows a call instruction. The code of a task that waits cannot be read: of it, only return addresses
/// in roots are known to.
#[inline(always)]
fn is_confirmed<M: StackMemory>(unwind: &UnwindState, return_address: u64) -> bool {
    if M::IS_OF_RUNNING_TASK {
        edge_scan::follows_call(return_address)
    } else {
        is_in_root(unwind.process, return_address.wrapping_sub(1))
    }
}

#[inline(always)]
fn is_in_root(process: ProcessEntry, address: u64) -> bool {
    let mapping = Mappings::get().and_then(|mappings| mappings.find(process, address));
    let rule = mapping.and_then(|mapping| find_rule(&mapping, address)).and_then(rule_at);
    rule.is_some_and(|rule| rule.cfa == CfaRule::Root as u8)
}

/// Notes that the mapping of the current registers has to be searched among the VMAs. No rule of such a mapping is cached: it can be
/// another file's without another installation.
#[inline(always)]
fn search_mapping(scratch: &mut Scratch) {
    scratch.unwind.hash_of_mappings = rule_cache::NO_MAPPINGS;
    scratch.unwind.pending = PendingSearch::Mapping as u32;
    vma_search::begin(&mut scratch.vma_search);
}

/// One step of the search for the mapping of the current registers among the VMAs. The last one adds their frame.
#[inline(always)]
fn search_mapping_step(scratch: &mut Scratch) -> Result<(), StackEndReason> {
    let address = address_to_look_up(&scratch.unwind);
    match vma_search::descend(&mut scratch.vma_search, address) {
        Some(false) => Ok(()),
        Some(true) => add_frame_of_vma(scratch, address),
        None => end_unmapped(scratch),
    }
}

/// Adds the frame of the current registers, whose address is in the VMA that was found.
#[inline(always)]
fn add_frame_of_vma(scratch: &mut Scratch, address: u64) -> Result<(), StackEndReason> {
    let (pid, now_ns) = (scratch.sample.pid, scratch.sample.time_ns);
    let Some(found) = vma_search::mapping_of(&mut scratch.vma_search, address, now_ns) else {
        return end_unmapped(scratch);
    };
    scratch.unwind.pending = PendingSearch::None as u32;
    debug_log!("  {:x} is in the VMA from {:x} on", address, found.mapping.start);
    scratch.unwind.mapping = found.mapping;
    if found.has_table {
        // Most processes that end within milliseconds are sampled once.
        stale_mappings::report_repeated(pid, now_ns);
    } else {
        scratch.unwind.mapping.flags = scratch.unwind.process.new_mapping_flags;
        stale_mappings::report_rate_limited(pid, now_ns);
    }
    let flag = next_flag(&scratch.unwind);
    push_frame(scratch, flag);
    Ok(())
}

/// Ends a stack whose next frame is in no mapping.
#[inline(always)]
fn end_unmapped(scratch: &mut Scratch) -> Result<(), StackEndReason> {
    let flag = next_flag(&scratch.unwind);
    if flag == FrameFlags::BY_FRAME_POINTER {
        // A frame whose return address is not in code was no frame.
        return Err(StackEndReason::BrokenFramePointer);
    }
    if scratch.unwind.depth > 0 {
        push_frame(scratch, flag);
    }
    Err(StackEndReason::NoMapping)
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
    unwind.hash = hash_step(get!(hash_seed), unwind.hash, address);
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
    if end_reason == StackEndReason::DepthLimit as u32 && scratch.unwind.depth < MAX_FRAMES as u32 {
        count(Counter::CutStacks);
    }
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
    scratch.unwind.mapping.flags & MappingFlags::SCAN_EPILOGUES != 0
}
