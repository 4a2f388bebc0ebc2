//! One unwind step, from a frame to its caller: by CFI rule, signal frame, frame pointer or epilogue.

use profiler_common::unwind::{CfaRule, FramePointerRule, ReturnAddressRule, Rule, StackEndReason};

use crate::epilogue::Epilogue;

/// Bytes of a stack slot.
const WORD: u64 = 8;

/// The most bytes by which a valid frame pointer is above the stack pointer: the default limit of a stack.
const MAX_FRAME_BYTES: u64 = 8 << 20;

/// Offsets of registers in a signal frame (`struct rt_sigframe`, `arch/x86/include/asm/sigframe.h`, the return address
/// popped): `uc_mcontext` of `struct ucontext` (`include/uapi/asm-generic/ucontext.h`).
const SIGNAL_FRAME_RBP: u64 = 120;
/// `rip` is the next word.
const SIGNAL_FRAME_RSP: u64 = 160;

/// The registers of a frame that the unwinder restores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    /// The instruction that runs, or the return address to which the callee returns.
    pub instruction_pointer: u64,
    /// Its value at that instruction.
    pub stack_pointer: u64,
    /// Its value at that instruction.
    pub frame_pointer: u64,
}

/// How a caller was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundBy {
    /// By the unwind rule compiled from CFI.
    Cfi,
    /// By frame pointer, because the code has no CFI.
    FramePointer,
    /// By epilogue scan, because the code has neither CFI nor a frame.
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

/// Restores the caller's registers by the epilogue of a function whose frame pointer register is its caller's. The result
/// is a guess: it holds only if the caller's instruction pointer follows a call instruction, which the caller of this
/// function checks.
#[inline(always)]
pub fn step_by_epilogue(epilogue: Epilogue, registers: Registers, stack: &impl StackMemory) -> Option<Step> {
    let address = |offset: u64| registers.stack_pointer.wrapping_add(offset);
    let mut frame_pointer = registers.frame_pointer;
    if let Some(saved) = epilogue.frame_pointer_offset {
        let is_own_frame = address(saved) == registers.frame_pointer;
        if is_own_frame || !stack.read_word(address(saved), &mut frame_pointer) {
            return None;
        }
    }
    let mut return_address = 0;
    if !stack.read_word(address(epilogue.return_address_offset), &mut return_address) {
        return None;
    }
    let stack_pointer = address(epilogue.return_address_offset).wrapping_add(WORD);
    let caller = Registers { instruction_pointer: return_address, stack_pointer, frame_pointer };
    Some(Step::to_caller(caller, FoundBy::EpilogueScan))
}

/// Restores the caller's registers by the unwind rule of the code.
#[inline(always)]
pub fn step_by_rule(rule: Rule, registers: Registers, stack: &impl StackMemory) -> Step {
    const UNKNOWN: u8 = CfaRule::Unknown as u8;
    const SIGNAL_FRAME: u8 = CfaRule::SignalFrame as u8;
    const ROOT: u8 = CfaRule::Root as u8;
    match rule.cfa {
        UNKNOWN => step_by_frame_pointer(registers, stack),
        SIGNAL_FRAME => step_by_signal_frame(registers, stack),
        ROOT => Step::stack_end(registers, StackEndReason::Root),
        _ => step_by_cfi(rule, registers, stack),
    }
}

#[inline(always)]
fn step_by_cfi(rule: Rule, registers: Registers, stack: &impl StackMemory) -> Step {
    let mut cfa = 0;
    if let Some(end) = compute_cfa(rule, registers, stack, &mut cfa) {
        return Step::stack_end(registers, end);
    }
    if cfa <= registers.stack_pointer {
        return Step::stack_end(registers, StackEndReason::Backwards);
    }
    if rule.return_address != ReturnAddressRule::AtCfa as u8 {
        return Step::stack_end(registers, StackEndReason::UnsupportedRule);
    }
    let mut saved = [0; 2];
    if !read_saved(rule, cfa, registers, stack, &mut saved) {
        return Step::stack_end(registers, StackEndReason::UnreadableStack);
    }
    let [frame_pointer, return_address] = saved;
    if return_address == 0 {
        return Step::stack_end(registers, StackEndReason::NullCaller);
    }
    let caller = Registers { instruction_pointer: return_address, stack_pointer: cfa, frame_pointer };
    Step::to_caller(caller, FoundBy::Cfi)
}

/// Computes the CFA, or returns why it cannot.
#[inline(always)]
fn compute_cfa(
    rule: Rule,
    registers: Registers,
    stack: &impl StackMemory,
    cfa: &mut u64,
) -> Option<StackEndReason> {
    const STACK_POINTER: u8 = CfaRule::StackPointer as u8;
    const FRAME_POINTER: u8 = CfaRule::FramePointer as u8;
    const AT_STACK_POINTER: u8 = CfaRule::StoredAtStackPointer as u8;
    const AT_FRAME_POINTER: u8 = CfaRule::StoredAtFramePointer as u8;
    const PLT: u8 = CfaRule::Plt as u8;
    match rule.cfa {
        STACK_POINTER => *cfa = add_offset(registers.stack_pointer, rule.cfa_offset),
        FRAME_POINTER => *cfa = add_offset(registers.frame_pointer, rule.cfa_offset),
        AT_STACK_POINTER | AT_FRAME_POINTER => {
            let base =
                if rule.cfa == AT_STACK_POINTER { registers.stack_pointer } else { registers.frame_pointer };
            let mut stored = 0;
            if !stack.read_word(add_offset(base, i32::from(rule.cfa_offset as i16)), &mut stored) {
                return Some(StackEndReason::UnreadableStack);
            }
            *cfa = add_offset(stored, rule.cfa_offset >> 16);
        }
        PLT => {
            let has_pushed = registers.instruction_pointer & 15 >= u64::from(rule.cfa_offset as u8);
            *cfa = registers.stack_pointer.wrapping_add(if has_pushed { 2 * WORD } else { WORD });
        }
        _ => return Some(StackEndReason::UnsupportedRule),
    }
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

#[inline(always)]
fn step_by_frame_pointer(registers: Registers, stack: &impl StackMemory) -> Step {
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
    let stack_pointer = frame.wrapping_add(2 * WORD);
    let caller = Registers { instruction_pointer: return_address, stack_pointer, frame_pointer };
    Step::to_caller(caller, FoundBy::FramePointer)
}

#[inline(always)]
fn step_by_signal_frame(registers: Registers, stack: &impl StackMemory) -> Step {
    let (mut frame_pointer, mut others) = (0, [0; 2]);
    let is_read = stack.read_word(registers.stack_pointer.wrapping_add(SIGNAL_FRAME_RBP), &mut frame_pointer)
        && stack.read_pair(registers.stack_pointer.wrapping_add(SIGNAL_FRAME_RSP), &mut others);
    if !is_read {
        return Step::stack_end(registers, StackEndReason::UnreadableStack);
    }
    let [stack_pointer, instruction_pointer] = others;
    let interrupted = Registers { instruction_pointer, stack_pointer, frame_pointer };
    Step::to_caller(interrupted, FoundBy::SignalFrame)
}

#[inline(always)]
fn add_offset(address: u64, by: i32) -> u64 {
    address.wrapping_add(i64::from(by) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 0x7fff_0000;
    const CODE: u64 = 0x40_0000;

    /// Stack memory from [`BASE`] on; everything else is unreadable.
    struct Words(Vec<u64>);

    impl StackMemory for Words {
        fn read_pair(&self, address: u64, words: &mut [u64; 2]) -> bool {
            let read = || Some([self.at(address)?, self.at(address.checked_add(WORD)?)?]);
            read().inspect(|read| *words = *read).is_some()
        }

        fn read_word(&self, address: u64, word: &mut u64) -> bool {
            self.at(address).inspect(|read| *word = *read).is_some()
        }
    }

    impl Words {
        fn at(&self, address: u64) -> Option<u64> {
            let at = address.checked_sub(BASE)?;
            let index = usize::try_from(at / WORD).ok()?;
            let bits = 8 * (at % WORD) as u32;
            let low = *self.0.get(index)? >> bits;
            if bits == 0 {
                return Some(low);
            }
            Some(low | *self.0.get(index.checked_add(1)?)? << (64 - bits))
        }
    }

    /// Stack memory that cannot be read in pairs.
    struct WithoutPairs(Words);

    impl StackMemory for WithoutPairs {
        fn read_pair(&self, _: u64, _: &mut [u64; 2]) -> bool {
            false
        }

        fn read_word(&self, address: u64, word: &mut u64) -> bool {
            self.0.read_word(address, word)
        }
    }

    /// Words `0x1000 + index`, except for those given.
    fn memory(given: &[(usize, u64)]) -> Words {
        let mut words: Vec<u64> = (0x1000..0x1020).collect();
        for (index, word) in given {
            words[*index] = *word;
        }
        Words(words)
    }

    /// Registers that point to the words with these indexes.
    fn at(stack_pointer: u64, frame_pointer: u64) -> Registers {
        Registers {
            instruction_pointer: CODE,
            stack_pointer: BASE + WORD * stack_pointer,
            frame_pointer: BASE + WORD * frame_pointer,
        }
    }

    fn rule(cfa: CfaRule, cfa_offset: i32) -> Rule {
        Rule { cfa: cfa as u8, cfa_offset, return_address_offset: -8, ..Rule::default() }
    }

    fn saved_in(frame_pointer: FramePointerRule, offset: i16) -> Rule {
        let rule = rule(CfaRule::StackPointer, 32);
        Rule { frame_pointer: frame_pointer as u8, frame_pointer_offset: offset, ..rule }
    }

    /// The offset of a CFA that is loaded from memory: the slot, and what is added to its value.
    fn stored_at(slot: i16, added: i16) -> i32 {
        i32::from(added) << 16 | i32::from(slot as u16)
    }

    /// The caller's registers.
    fn caller(
        rule: Rule,
        at: Registers,
        stack: &impl StackMemory,
    ) -> Result<(Registers, FoundBy), StackEndReason> {
        let Step { caller, found_by, end_reason } = step_by_rule(rule, at, stack);
        end_reason.map_or(Ok((caller, found_by)), Err)
    }

    /// The caller's return address and frame pointer, and the index of the word that its stack pointer points to.
    fn frame(rule: Rule, at: Registers, stack: &impl StackMemory) -> Result<(u64, u64, u64), StackEndReason> {
        let (caller, found) = caller(rule, at, stack)?;
        assert_eq!(found, FoundBy::Cfi);
        let stack_pointer = caller.stack_pointer.wrapping_sub(BASE) / WORD;
        Ok((caller.instruction_pointer, caller.frame_pointer, stack_pointer))
    }

    /// The caller's return address, and the index of the word that its stack pointer points to.
    fn by_cfa(rule: Rule, at: Registers, stack: &Words) -> Result<(u64, u64), StackEndReason> {
        frame(rule, at, stack).map(|(return_address, _, stack_pointer)| (return_address, stack_pointer))
    }

    #[test]
    fn the_cfa_is_a_register_plus_an_offset() {
        let (stack, at) = (memory(&[]), at(2, 6));
        assert_eq!(by_cfa(rule(CfaRule::StackPointer, 8), at, &stack), Ok((0x1002, 3)));
        assert_eq!(by_cfa(rule(CfaRule::StackPointer, 80), at, &stack), Ok((0x100b, 12)));
        assert_eq!(by_cfa(rule(CfaRule::FramePointer, 16), at, &stack), Ok((0x1007, 8)));
        assert_eq!(by_cfa(rule(CfaRule::FramePointer, -24), at, &stack), Ok((0x1002, 3)));
    }

    #[test]
    fn the_cfa_is_loaded_from_memory_at_a_register() {
        let (stack, at) = (memory(&[(1, BASE + 64), (5, BASE + 80)]), at(2, 6));
        let stored_below = stored_at(-8, 16);
        assert_eq!(by_cfa(rule(CfaRule::StoredAtStackPointer, stored_below), at, &stack), Ok((0x1009, 10)));
        assert_eq!(by_cfa(rule(CfaRule::StoredAtFramePointer, stored_below), at, &stack), Ok((0x100b, 12)));
        let stored_above = stored_at(24, -16);
        assert_eq!(by_cfa(rule(CfaRule::StoredAtStackPointer, stored_above), at, &stack), Ok((0x1007, 8)));
        let outside = rule(CfaRule::StoredAtStackPointer, stored_at(i16::MAX, 0));
        assert_eq!(by_cfa(outside, at, &stack), Err(StackEndReason::UnreadableStack));
    }

    #[test]
    fn a_plt_entry_has_pushed_a_word_from_the_end_of_its_push_on() {
        let plt = rule(CfaRule::Plt, 11);
        let caller_in = |offset| {
            let at = Registers { instruction_pointer: CODE + 16 + offset, ..at(2, 6) };
            by_cfa(plt, at, &memory(&[]))
        };
        for before in [0, 6, 10] {
            assert_eq!(caller_in(before), Ok((0x1002, 3)));
        }
        for behind in [11, 15] {
            assert_eq!(caller_in(behind), Ok((0x1003, 4)));
        }
    }

    #[test]
    fn the_frame_pointer_is_restored_by_its_rule() {
        let (stack, at) = (memory(&[]), at(2, 9));
        let frame_pointer = |place, offset| {
            frame(saved_in(place, offset), at, &stack).map(|(_, frame_pointer, _)| frame_pointer)
        };
        assert_eq!(frame_pointer(FramePointerRule::Same, -16), Ok(at.frame_pointer));
        assert_eq!(frame_pointer(FramePointerRule::AtCfa, -16), Ok(0x1004));
        assert_eq!(frame_pointer(FramePointerRule::AtCfa, -32), Ok(0x1002));
        assert_eq!(frame_pointer(FramePointerRule::AtFramePointer, 8), Ok(0x100a));
        assert_eq!(frame_pointer(FramePointerRule::AtFramePointer, -16), Ok(0x1007));
        assert_eq!(frame_pointer(FramePointerRule::Undefined, -16), Ok(0));
        for place in [FramePointerRule::AtCfa, FramePointerRule::AtFramePointer] {
            assert_eq!(frame_pointer(place, i16::MAX), Err(StackEndReason::UnreadableStack));
        }
    }

    #[test]
    fn adjacent_slots_are_read_as_a_pair_with_the_same_result() {
        let beside = saved_in(FramePointerRule::AtCfa, -16);
        let without_pairs = WithoutPairs(memory(&[]));
        assert_eq!(
            frame(beside, at(2, 9), &without_pairs),
            Err(StackEndReason::UnreadableStack),
            "read at once"
        );
        for place in [-8, -15, -24, 0] {
            let apart = saved_in(FramePointerRule::AtCfa, place);
            assert!(frame(apart, at(2, 9), &without_pairs).is_ok(), "read one by one");
        }
        let words = memory(&[]);
        let one_by_one = (words.at(BASE + 40).unwrap(), words.at(BASE + 32).unwrap(), 6);
        assert_eq!(frame(beside, at(2, 9), &words), Ok(one_by_one));
    }

    #[test]
    fn a_cfa_that_is_not_above_the_stack_pointer_ends_the_stack() {
        let stack = memory(&[]);
        for offset in [0, -8, -0x1000_0000] {
            assert_eq!(
                by_cfa(rule(CfaRule::StackPointer, offset), at(2, 6), &stack),
                Err(StackEndReason::Backwards)
            );
        }
        assert_eq!(by_cfa(rule(CfaRule::FramePointer, 16), at(9, 6), &stack), Err(StackEndReason::Backwards));
        let stored = rule(CfaRule::StoredAtStackPointer, stored_at(0, 0));
        assert_eq!(by_cfa(stored, at(2, 6), &memory(&[(2, BASE + 16)])), Err(StackEndReason::Backwards));
    }

    #[test]
    fn a_return_address_of_0_ends_the_stack() {
        let stack = memory(&[(2, 0)]);
        assert_eq!(by_cfa(rule(CfaRule::StackPointer, 8), at(2, 6), &stack), Err(StackEndReason::NullCaller));
    }

    #[test]
    fn unreadable_stack_memory_ends_the_stack() {
        let stack = memory(&[]);
        for stack_pointer in [32, 1 << 20] {
            let result = by_cfa(rule(CfaRule::StackPointer, 8), at(stack_pointer, 6), &stack);
            assert_eq!(result, Err(StackEndReason::UnreadableStack));
        }
        let half_a_word = Registers { stack_pointer: BASE + 31 * WORD + 4, ..at(0, 6) };
        let result = by_cfa(rule(CfaRule::StackPointer, 8), half_a_word, &stack);
        assert_eq!(result, Err(StackEndReason::UnreadableStack));
    }

    #[test]
    fn offsets_that_wrap_do_not_panic() {
        let everywhere = [0, 1, 7, BASE, i64::MAX as u64, i64::MIN as u64, u64::MAX - 7, u64::MAX];
        let offsets = [i32::MIN, -8, 0, 8, i32::MAX];
        for cfa in 0..=u8::MAX {
            for (stack_pointer, frame_pointer) in
                everywhere.iter().flat_map(|stack| everywhere.map(|frame| (*stack, frame)))
            {
                let at = Registers { instruction_pointer: u64::MAX, stack_pointer, frame_pointer };
                for (offset, place) in offsets.iter().flat_map(|offset| (0..=4).map(|place| (*offset, place)))
                {
                    let (frame_pointer_offset, return_address_offset) = (offset as i16, !offset as i16);
                    let rule = Rule {
                        cfa,
                        cfa_offset: offset,
                        frame_pointer: place,
                        frame_pointer_offset,
                        return_address_offset,
                        ..Rule::default()
                    };
                    if let Ok((caller, FoundBy::Cfi)) = caller(rule, at, &memory(&[])) {
                        assert!(caller.stack_pointer > stack_pointer);
                    }
                }
            }
        }
    }

    #[test]
    fn root_and_unsupported_rules_end_the_stack() {
        let (stack, at) = (memory(&[]), at(2, 6));
        assert_eq!(caller(rule(CfaRule::Root, 8), at, &stack), Err(StackEndReason::Root));
        assert_eq!(caller(rule(CfaRule::Unsupported, 8), at, &stack), Err(StackEndReason::UnsupportedRule));
        let no_rule = Rule { cfa: 99, ..rule(CfaRule::StackPointer, 8) };
        assert_eq!(caller(no_rule, at, &stack), Err(StackEndReason::UnsupportedRule));
        let in_a_register = ReturnAddressRule::LinkRegister as u8;
        let linked = Rule { return_address: in_a_register, ..rule(CfaRule::StackPointer, 8) };
        assert_eq!(caller(linked, at, &stack), Err(StackEndReason::UnsupportedRule));
    }

    #[test]
    fn a_signal_frame_holds_the_interrupted_registers() {
        let stack = memory(&[(2 + 15, 0x55), (2 + 20, 0x77), (2 + 21, 0x66)]);
        let interrupted = Registers { instruction_pointer: 0x66, stack_pointer: 0x77, frame_pointer: 0x55 };
        let signal_frame = rule(CfaRule::SignalFrame, 0);
        let found = caller(signal_frame, at(2, 6), &stack);
        assert_eq!(
            found,
            Ok((interrupted, FoundBy::SignalFrame)),
            "also where it is on another stack, at a lower address"
        );
        for cut in [11, 16, 1 << 20] {
            assert_eq!(caller(signal_frame, at(cut, 6), &stack), Err(StackEndReason::UnreadableStack));
        }
    }

    #[test]
    fn code_without_cfi_is_unwound_by_frame_pointer() {
        let stack = memory(&[]);
        for stack_pointer in [2, 6] {
            let (caller, found) = caller(Rule::default(), at(stack_pointer, 6), &stack).unwrap();
            let expected =
                Registers { instruction_pointer: 0x1007, stack_pointer: BASE + 64, frame_pointer: 0x1006 };
            assert_eq!((caller, found), (expected, FoundBy::FramePointer));
        }
    }

    #[test]
    fn a_frame_pointer_that_points_to_no_frame_ends_the_stack() {
        let end = |frame_pointer| {
            let at = Registers { frame_pointer, ..at(2, 0) };
            caller(Rule::default(), at, &memory(&[])).unwrap_err()
        };
        assert_eq!(end(BASE + 8), StackEndReason::BrokenFramePointer, "below the stack pointer");
        assert_eq!(end(BASE + 20), StackEndReason::BrokenFramePointer, "between two words");
        assert_eq!(end(BASE + 31 * WORD), StackEndReason::BrokenFramePointer, "half of it unreadable");
        assert_eq!(end(0), StackEndReason::NullCaller);
    }

    #[test]
    fn a_frame_pointer_is_valid_up_to_the_stack_limit() {
        let words = usize::try_from(MAX_FRAME_BYTES / WORD).unwrap();
        let stack = Words(vec![CODE; words + 3]);
        let result = |frame_pointer| caller(Rule::default(), at(0, frame_pointer), &stack);
        assert!(result(MAX_FRAME_BYTES / WORD).is_ok());
        assert_eq!(result(MAX_FRAME_BYTES / WORD + 1), Err(StackEndReason::BrokenFramePointer));
    }

    #[test]
    fn a_function_without_a_frame_is_unwound_by_its_epilogue() {
        let stack = memory(&[]);
        let without_frame = Epilogue { return_address_offset: 16, frame_pointer_offset: None };
        let found = step_by_epilogue(without_frame, at(2, 9), &stack);
        let caller = Registers { instruction_pointer: 0x1004, ..at(5, 9) };
        assert_eq!(found, Some(Step { caller, found_by: FoundBy::EpilogueScan, end_reason: None }));
        assert_eq!(step_by_epilogue(without_frame, at(30, 9), &stack), None, "above the stack");
    }

    #[test]
    fn a_saved_frame_pointer_is_restored_unless_the_register_points_to_it() {
        let stack = memory(&[]);
        let framed = Epilogue { return_address_offset: 24, frame_pointer_offset: Some(16) };
        assert_eq!(step_by_epilogue(framed, at(2, 4), &stack), None, "it points to where it was saved");
        let found = step_by_epilogue(framed, at(2, 9), &stack).unwrap();
        let caller = Registers { instruction_pointer: 0x1005, frame_pointer: 0x1004, ..at(6, 0) };
        assert_eq!(found.caller, caller);
        assert_eq!(step_by_epilogue(framed, at(30, 9), &stack), None);
        assert_eq!(step_by_epilogue(framed, at(29, 9), &stack), None);
    }

    #[test]
    fn a_frame_with_a_return_address_of_0_ends_the_stack() {
        assert_eq!(caller(Rule::default(), at(2, 6), &memory(&[(7, 0)])), Err(StackEndReason::NullCaller));
    }
}
