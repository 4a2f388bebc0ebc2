//! One unwind step, from a frame to its caller: by CFI rule, signal frame, frame pointer or epilogue.

use core::ptr::read_volatile;

use profiler_common::{
    function_edge::{EdgeKind, FunctionEdge},
    unwind::{
        CfaRule, FramePointerRule, GoLayout, LeafRegister, RbxRule, ReturnAddressRule, Rule, RuleFlags,
        StackEndReason,
    },
};

/// Bytes of a stack slot.
const WORD: u64 = 8;

/// The most bytes by which a valid frame pointer is above the stack pointer: the default limit of a stack.
const MAX_FRAME_BYTES: u64 = 8 << 20;

/// Offsets of registers in a signal frame (`struct rt_sigframe`, `arch/x86/include/asm/sigframe.h`, the return address
/// popped): `uc_mcontext` of `struct ucontext` (`include/uapi/asm-generic/ucontext.h`).
/// `rbx` is the next word.
const SIGNAL_FRAME_RBP: u64 = 120;
/// `rip` is the next word.
const SIGNAL_FRAME_RSP: u64 = 160;

const EXECUTED_GOROUTINE: u8 = CfaRule::ExecutedGoroutine as u8;
const STORED_GOROUTINE: u8 = CfaRule::StoredGoroutine as u8;
const SUSPENDED_GOROUTINE: u8 = CfaRule::SuspendedGoroutine as u8;

/// The registers of a frame that the unwinder restores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// The instruction that runs, or the return address to which the callee returns.
    pub instruction_pointer: u64,
    /// Its value at that instruction.
    pub stack_pointer: u64,
    /// Its value at that instruction.
    pub frame_pointer: u64,
    /// Its value at that instruction, 0 when it is unknown.
    pub rbx: u64,
}

/// The registers of the leaf, by their positions in `struct pt_regs`. The last word is the number of the system call.
pub type LeafRegisters = [u64; LeafRegister::COUNT + 1];

/// The frame whose caller is restored.
#[derive(Clone, Copy)]
pub struct CalleeFrame<'a> {
    /// Its registers.
    pub registers: Registers,
    /// Where in its function the frame is.
    pub position: FramePosition,
    /// All registers of the leaf of its stack.
    pub leaf: &'a LeafRegisters,
}

/// Where in its function a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FramePosition {
    /// At the instruction that runs.
    Leaf,
    /// At the instruction that a signal has interrupted.
    Interrupted,
    /// Behind a call instruction.
    Call,
}

impl CalleeFrame<'_> {
    /// The value of a register of the leaf.
    #[inline(always)]
    fn leaf_register(&self, rule: u8) -> Option<u64> {
        if self.position != FramePosition::Leaf {
            return None;
        }
        Some(self.leaf[usize::from(rule & LeafRegister::POSITION)])
    }
}

/// How a caller was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundBy {
    /// By the unwind rule compiled from CFI.
    Cfi,
    /// By the unwind rule computed from the instructions of the code.
    Instructions,
    /// By frame pointer, because the code has no CFI.
    FramePointer,
    /// By a scan of the code at an edge of the function, which has neither CFI nor a frame there.
    EpilogueScan,
    /// In a signal frame: it was interrupted, and did not call.
    SignalFrame,
}

/// The result of a step.
///
/// VERIFIER: every field has a value, also where it has no meaning. What the compiler may leave undefined it
/// writes to the stack on one path and reads back on all, and 5.10 refuses to read what was never written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The caller's registers; those of the callee when there is no caller.
    pub caller: Registers,
    /// How it was found.
    pub found_by: FoundBy,
    /// Why the stack ends here, `None` when there is a caller.
    pub end_reason: Option<StackEndReason>,
}

/// The target's stack memory. A read returns false, and leaves its destination as it was, where the memory is not
/// readable.
pub trait StackMemory {
    /// Whether it belongs to the running task, whose code can be read as well.
    const IS_OF_RUNNING_TASK: bool;
    /// Reads two words at an address.
    fn read_pair(&self, address: u64, words: &mut [u64; 2]) -> bool;
    /// Reads one word.
    fn read_word(&self, address: u64, word: &mut u64) -> bool;
}

impl Step {
    #[inline(always)]
    fn to_caller(caller: Registers, found_by: FoundBy) -> Self {
        Self { caller, found_by, end_reason: None }
    }

    #[inline(always)]
    fn stack_end(registers: Registers, reason: StackEndReason) -> Self {
        Self { caller: registers, found_by: FoundBy::Cfi, end_reason: Some(reason) }
    }
}

/// Restores the caller's registers near an edge of a function. `None` where the stack contradicts it. The result holds only if the
/// caller's instruction pointer follows a call instruction, which the caller of this function checks.
#[inline(always)]
pub fn step_by_edge(edge: FunctionEdge, registers: Registers, stack: &impl StackMemory) -> Option<Step> {
    let address = |offset: u64| registers.stack_pointer.wrapping_add(offset);
    let mut frame_pointer = registers.frame_pointer;
    if let Some(saved) = edge.frame_pointer_offset {
        // Then a step by frame pointer is right, and bytes that look like an epilogue may not be one.
        let is_own_frame = address(saved) == registers.frame_pointer;
        if edge.kind == EdgeKind::LikelyEpilogue && is_own_frame {
            return None;
        }
        if !stack.read_word(address(saved), &mut frame_pointer) {
            return None;
        }
    }
    let mut return_address = 0;
    if !stack.read_word(address(edge.return_address_offset), &mut return_address) {
        return None;
    }
    if edge.kind == EdgeKind::Prologue && edge.return_address_offset != 0 {
        let mut pushed = 0;
        let slot = address(edge.return_address_offset).wrapping_sub(WORD);
        if !stack.read_word(slot, &mut pushed) || pushed != frame_pointer {
            return None;
        }
    }
    let stack_pointer = address(edge.return_address_offset).wrapping_add(WORD);
    let caller = Registers {
        instruction_pointer: return_address,
        stack_pointer,
        frame_pointer,
        ..Registers::default()
    };
    Some(Step::to_caller(caller, FoundBy::EpilogueScan))
}

/// Restores the caller's registers by the unwind rule of the code; one of a goroutine needs [`return_to_goroutine`] before.
#[inline(always)]
pub fn step_by_rule(rule: Rule, frame: CalleeFrame<'_>, stack: &impl StackMemory) -> Step {
    const UNKNOWN: u8 = CfaRule::Unknown as u8;
    const SIGNAL_FRAME: u8 = CfaRule::SignalFrame as u8;
    const ROOT: u8 = CfaRule::Root as u8;
    match rule.cfa {
        UNKNOWN => step_by_frame_pointer(frame.registers, stack),
        SIGNAL_FRAME => step_by_signal_frame(frame.registers, stack),
        ROOT => Step::stack_end(frame.registers, StackEndReason::Root),
        _ => step_by_row(rule, frame, stack),
    }
}

/// Whether a rule leads from the scheduling stack of Go's runtime to the stack of a goroutine.
#[inline(always)]
pub fn is_of_goroutine(rule: Rule) -> bool {
    matches!(rule.cfa, EXECUTED_GOROUTINE | STORED_GOROUTINE | SUSPENDED_GOROUTINE)
}

/// A goroutine that has left its stack: what Go's runtime keeps of it, 0 where it cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SavedGoroutine {
    /// The lowest address of its stack, and the end.
    pub stack: [u64; 2],
    /// Its stack pointer, and its instruction pointer.
    pub stack_and_instruction_pointer: [u64; 2],
    /// Its frame pointer.
    pub frame_pointer: u64,
    /// The address of what is read next.
    next: u64,
    /// The thread that executes it, and the thread that it has noted.
    threads: [u64; 2],
    /// 1 where the thread may have left it for other work: its stack is known, or the thread waits.
    may_have_left: u64,
}

impl SavedGoroutine {
    /// Reads the goroutine of a rule of this kind.
    ///
    /// VERIFIER: each word is read anew from the map value that `self` is. In a register it is known to be 0 after a read that fails,
    /// and what follows is verified once for each such read.
    #[inline(always)]
    pub fn read<M: StackMemory>(&mut self, rule: Rule, frame: CalleeFrame<'_>, stack: &M) {
        let Registers { stack_pointer, .. } = frame.registers;
        let is_stored = rule.cfa == STORED_GOROUTINE;
        if is_stored {
            read_or_zero(stack, add_offset(stack_pointer, rule.cfa_offset), &mut self.next);
        } else {
            let running = frame.leaf[usize::from(GoLayout::G_REGISTER)];
            read_or_zero(stack, running.wrapping_add(GoLayout::G_THREAD), &mut self.threads[0]);
            let thread = anew(&self.threads[0]);
            read_or_zero(stack, add_offset(thread, rule.cfa_offset), &mut self.next);
        }
        let goroutine = anew(&self.next);
        let saved = goroutine.wrapping_add(GoLayout::G_STACK_POINTER);
        if !stack.read_pair(saved, &mut self.stack_and_instruction_pointer) {
            self.stack_and_instruction_pointer[0] = 0;
        }
        let offset = i32::from(rule.frame_pointer_offset);
        read_or_zero(stack, add_offset(goroutine, offset), &mut self.frame_pointer);
        read_or_zero(stack, goroutine.wrapping_add(GoLayout::G_THREAD), &mut self.threads[1]);
        let is_known = stack.read_pair(goroutine.wrapping_add(GoLayout::G_STACK), &mut self.stack);
        if !is_known {
            // Then no address is below its end.
            self.stack[1] = 0;
        }
        self.may_have_left = u64::from(is_stored && is_known || !M::IS_OF_RUNNING_TASK);
    }

    #[inline(always)]
    fn has_on_its_stack(&self, address: u64) -> bool {
        anew(&self.stack[0]) <= address && address < anew(&self.stack[1])
    }
}

/// Reads a word; 0 where it cannot be read, from which the next read fails as well.
#[inline(always)]
fn read_or_zero(stack: &impl StackMemory, address: u64, word: &mut u64) {
    if !stack.read_word(address, word) {
        *word = 0;
    }
}

/// The value of a variable, which the compiler does not take from a register.
#[inline(always)]
fn anew(variable: &u64) -> u64 {
    // SAFETY: a reference is valid.
    unsafe { read_volatile(variable) }
}

/// How the caller of code that Go's runtime executes on its scheduling stack is found.
#[derive(Clone, Copy, Debug)]
pub struct GoroutineReturn {
    /// The rule of the call from the stack of the goroutine.
    pub rule: Rule,
    /// The registers at the call, or those of the caller.
    pub registers: Registers,
    /// Whether the registers are those of the caller, which needs no rule then.
    pub is_caller: bool,
}

/// Returns from the scheduling stack of Go's runtime to the goroutine.
///
/// A goroutine that called the function has saved the frame pointer that the frame has. Another one means that the collector has moved
/// its stack, that it has continued elsewhere, or that it has called the runtime again, from C. Then the caller is found by frame pointer.
#[inline(always)]
pub fn return_to_goroutine(
    rule: Rule,
    frame: CalleeFrame<'_>,
    goroutine: &SavedGoroutine,
) -> GoroutineReturn {
    let registers = frame.registers;
    let call = Rule { return_address_offset: -(WORD as i16), ..Rule::default() };
    let by_frame_pointer = Rule {
        cfa: CfaRule::FramePointerOfAnyStack as u8,
        cfa_offset: 2 * WORD as i32,
        frame_pointer: FramePointerRule::AtCfa as u8,
        frame_pointer_offset: -2 * WORD as i16,
        ..call
    };
    let by = |rule, registers| GoroutineReturn { rule, registers, is_caller: false };
    if frame.position != FramePosition::Call {
        return by(by_frame_pointer, registers);
    }
    let stack_pointer = anew(&goroutine.stack_and_instruction_pointer[0]);
    let frame_pointer = anew(&goroutine.frame_pointer);
    let is_on_its_stack = goroutine.has_on_its_stack(stack_pointer);
    let may_have_left = anew(&goroutine.may_have_left) != 0;
    if rule.cfa == SUSPENDED_GOROUTINE
        && is_on_its_stack
        && !may_have_left
        && anew(&goroutine.threads[0]) == anew(&goroutine.threads[1])
    {
        let instruction_pointer = anew(&goroutine.stack_and_instruction_pointer[1]);
        let caller = Registers { instruction_pointer, stack_pointer, frame_pointer, rbx: 0 };
        return GoroutineReturn { rule, registers: caller, is_caller: true };
    }
    // Else the thread can execute another goroutine by now.
    let returns = rule.return_address_offset == 0;
    if rule.cfa != SUSPENDED_GOROUTINE
        && is_on_its_stack
        && (frame_pointer == registers.frame_pointer
            || rule.cfa == EXECUTED_GOROUTINE && !goroutine.has_on_its_stack(registers.frame_pointer))
    {
        let stack_pointer = add_offset(stack_pointer, i32::from(rule.return_address_offset));
        let rule = Rule { cfa: CfaRule::StackPointer as u8, cfa_offset: WORD as i32, ..call };
        return by(rule, Registers { stack_pointer, frame_pointer, ..registers });
    }
    // A frame pointer of the function's own: it has pushed that of its caller below the return address.
    let has_own_frame = is_on_its_stack && stack_pointer == registers.frame_pointer.wrapping_add(2 * WORD);
    if !returns && !has_own_frame && may_have_left {
        // Its stack is in use elsewhere, or was freed. A thread that waits in the scheduler has left its goroutine before.
        return by(Rule { cfa: CfaRule::Root as u8, ..call }, registers);
    }
    by(by_frame_pointer, registers)
}

#[inline(always)]
fn step_by_row(rule: Rule, frame: CalleeFrame<'_>, stack: &impl StackMemory) -> Step {
    let registers = frame.registers;
    let mut cfa = 0;
    if let Some(end) = compute_cfa(rule, frame, stack, &mut cfa) {
        return Step::stack_end(registers, end);
    }
    let mut saved = [0; 2];
    if let Some(end) = restore_saved(rule, cfa, frame, stack, &mut saved) {
        return Step::stack_end(registers, end);
    }
    let [frame_pointer, return_address] = saved;
    if return_address == 0 {
        return Step::stack_end(registers, StackEndReason::NullCaller);
    }
    let caller = Registers {
        instruction_pointer: return_address,
        stack_pointer: cfa,
        frame_pointer,
        rbx: restore_rbx(rule, cfa, registers, stack),
    };
    Step::to_caller(caller, found_by(rule.return_address & RuleFlags::ALL))
}

#[inline(always)]
fn found_by(flags: u8) -> FoundBy {
    if flags & RuleFlags::INTERRUPTS_CALLER != 0 {
        FoundBy::SignalFrame
    } else if flags & RuleFlags::BY_INSTRUCTIONS != 0 {
        FoundBy::Instructions
    } else {
        FoundBy::Cfi
    }
}

/// The caller's rbx, 0 when it is unknown.
#[inline(always)]
fn restore_rbx(rule: Rule, cfa: u64, registers: Registers, stack: &impl StackMemory) -> u64 {
    match rule.rbx {
        RbxRule::UNDEFINED => 0,
        RbxRule::SAME => registers.rbx,
        slot => {
            let mut rbx = 0;
            let words = u64::from(slot - RbxRule::SAME);
            if stack.read_word(cfa.wrapping_sub(WORD * words), &mut rbx) { rbx } else { 0 }
        }
    }
}

/// Computes the CFA, or returns why it cannot.
#[inline(always)]
fn compute_cfa(
    rule: Rule,
    frame: CalleeFrame<'_>,
    stack: &impl StackMemory,
    cfa: &mut u64,
) -> Option<StackEndReason> {
    const STACK_POINTER: u8 = CfaRule::StackPointer as u8;
    const FRAME_POINTER: u8 = CfaRule::FramePointer as u8;
    const OF_ANY_STACK: u8 = CfaRule::FramePointerOfAnyStack as u8;
    const AT_STACK_POINTER: u8 = CfaRule::StoredAtStackPointer as u8;
    const AT_FRAME_POINTER: u8 = CfaRule::StoredAtFramePointer as u8;
    const PLT: u8 = CfaRule::Plt as u8;
    const RBX: u8 = CfaRule::Rbx as u8;
    let registers = frame.registers;
    match rule.cfa {
        STACK_POINTER => *cfa = add_offset(registers.stack_pointer, rule.cfa_offset),
        FRAME_POINTER | OF_ANY_STACK => *cfa = add_offset(registers.frame_pointer, rule.cfa_offset),
        AT_STACK_POINTER | AT_FRAME_POINTER => {
            let base =
                if rule.cfa == AT_STACK_POINTER { registers.stack_pointer } else { registers.frame_pointer };
            let mut stored = 0;
            if !stack.read_word(add_offset(base, i32::from(rule.cfa_offset as i16)), &mut stored) {
                return Some(StackEndReason::UnreadableStack);
            }
            *cfa = add_offset(stored, rule.cfa_offset >> 16);
        }
        RBX => {
            if registers.rbx == 0 {
                return Some(StackEndReason::UnsupportedRule);
            }
            *cfa = add_offset(registers.rbx, rule.cfa_offset);
        }
        PLT => {
            let has_pushed = registers.instruction_pointer & 15 >= u64::from(rule.cfa_offset as u8);
            *cfa = registers.stack_pointer.wrapping_add(if has_pushed { 2 * WORD } else { WORD });
        }
        kind if kind & LeafRegister::FLAG != 0 => {
            let Some(base) = frame.leaf_register(kind) else {
                return Some(StackEndReason::UnsupportedRule);
            };
            *cfa = add_offset(base, rule.cfa_offset);
        }
        _ => return Some(StackEndReason::UnsupportedRule),
    }
    None
}

/// Restores the caller's frame pointer and the return address, or returns why it cannot.
#[inline(always)]
fn restore_saved(
    rule: Rule,
    cfa: u64,
    frame: CalleeFrame<'_>,
    stack: &impl StackMemory,
    saved: &mut [u64; 2],
) -> Option<StackEndReason> {
    let kind = rule.return_address & !RuleFlags::ALL;
    if kind & LeafRegister::FLAG != 0 {
        return restore_from_leaf(rule, cfa, frame, stack, saved);
    }
    if cfa <= frame.registers.stack_pointer && rule.cfa != CfaRule::FramePointerOfAnyStack as u8 {
        return Some(StackEndReason::Backwards);
    }
    if kind != ReturnAddressRule::AtCfa as u8 {
        return Some(StackEndReason::UnsupportedRule);
    }
    if !read_saved(rule, cfa, frame.registers, stack, saved) {
        return Some(StackEndReason::UnreadableStack);
    }
    if rule.frame_pointer & LeafRegister::FLAG != 0 {
        saved[0] = frame.leaf_register(rule.frame_pointer).unwrap_or(0);
    }
    None
}

/// As [`restore_saved`], for a leaf that has its return address in a register: its CFA can be its stack pointer.
#[inline(always)]
fn restore_from_leaf(
    rule: Rule,
    cfa: u64,
    frame: CalleeFrame<'_>,
    stack: &impl StackMemory,
    saved: &mut [u64; 2],
) -> Option<StackEndReason> {
    let Some(return_address) = frame.leaf_register(rule.return_address) else {
        return Some(StackEndReason::UnsupportedRule);
    };
    if cfa < frame.registers.stack_pointer {
        return Some(StackEndReason::Backwards);
    }
    let mut frame_pointer = frame.registers.frame_pointer;
    if rule.frame_pointer & LeafRegister::FLAG != 0 {
        frame_pointer = frame.leaf_register(rule.frame_pointer).unwrap_or(0);
    } else if rule.frame_pointer == FramePointerRule::AtCfa as u8 {
        let slot = add_offset(cfa, i32::from(rule.frame_pointer_offset));
        if !stack.read_word(slot, &mut frame_pointer) {
            return Some(StackEndReason::UnreadableStack);
        }
    } else if rule.frame_pointer != FramePointerRule::Same as u8 {
        frame_pointer = 0;
    }
    *saved = [frame_pointer, return_address];
    None
}

/// Reads the caller's frame pointer and the return address.
#[inline(always)]
fn read_saved(
    rule: Rule,
    cfa: u64,
    registers: Registers,
    stack: &impl StackMemory,
    saved: &mut [u64; 2],
) -> bool {
    let return_address_slot = add_offset(cfa, i32::from(rule.return_address_offset));
    let is_at_cfa = rule.frame_pointer == FramePointerRule::AtCfa as u8;
    let frame_pointer_slot = add_offset(
        if is_at_cfa { cfa } else { registers.frame_pointer },
        i32::from(rule.frame_pointer_offset),
    );
    if is_at_cfa && frame_pointer_slot.wrapping_add(WORD) == return_address_slot {
        return stack.read_pair(frame_pointer_slot, saved);
    }
    let [frame_pointer, return_address] = saved;
    *frame_pointer =
        if rule.frame_pointer == FramePointerRule::Same as u8 { registers.frame_pointer } else { 0 };
    let is_stored = is_at_cfa || rule.frame_pointer == FramePointerRule::AtFramePointer as u8;
    (!is_stored || stack.read_word(frame_pointer_slot, frame_pointer))
        && stack.read_word(return_address_slot, return_address)
}

/// Restores the caller's registers by frame pointer.
#[inline(always)]
pub fn step_by_frame_pointer(registers: Registers, stack: &impl StackMemory) -> Step {
    let frame = registers.frame_pointer;
    if frame == 0 {
        // The outermost frame, System V ABI AMD64 3.4.1.
        return Step::stack_end(registers, StackEndReason::NullCaller);
    }
    let is_plausible = frame >= registers.stack_pointer
        && frame.wrapping_sub(registers.stack_pointer) <= MAX_FRAME_BYTES
        && frame.is_multiple_of(WORD);
    let mut saved = [0; 2];
    if !is_plausible || !stack.read_pair(frame, &mut saved) {
        return Step::stack_end(registers, StackEndReason::BrokenFramePointer);
    }
    let [frame_pointer, return_address] = saved;
    if return_address == 0 {
        return Step::stack_end(registers, StackEndReason::NullCaller);
    }
    let caller = Registers {
        instruction_pointer: return_address,
        stack_pointer: frame.wrapping_add(2 * WORD),
        frame_pointer,
        ..Registers::default()
    };
    Step::to_caller(caller, FoundBy::FramePointer)
}

#[inline(always)]
fn step_by_signal_frame(registers: Registers, stack: &impl StackMemory) -> Step {
    let (mut bases, mut others) = ([0; 2], [0; 2]);
    let is_read = stack.read_pair(registers.stack_pointer.wrapping_add(SIGNAL_FRAME_RBP), &mut bases)
        && stack.read_pair(registers.stack_pointer.wrapping_add(SIGNAL_FRAME_RSP), &mut others);
    if !is_read {
        return Step::stack_end(registers, StackEndReason::UnreadableStack);
    }
    let ([frame_pointer, rbx], [stack_pointer, instruction_pointer]) = (bases, others);
    let interrupted = Registers { instruction_pointer, stack_pointer, frame_pointer, rbx };
    Step::to_caller(interrupted, FoundBy::SignalFrame)
}

#[inline(always)]
fn add_offset(address: u64, by: i32) -> u64 {
    address.wrapping_add(i64::from(by) as u64)
}

#[cfg(test)]
mod tests;
