//! One step of a walk, from a frame to its caller, over plain values: tested on the host.

use profiler_common::unwind::{CfaRule, FramePointerRule, ReturnAddressRule, Rule, WalkEnd};

use crate::way_out::WayOut;

/// Bytes of a stack slot.
const WORD: u64 = 8;

/// How far above the stack pointer a frame pointer is believed: the usual limit of a stack.
const MAX_FRAME_BYTES: u64 = 8 << 20;

/// Where a signal frame (`struct rt_sigframe`, `arch/x86/include/asm/sigframe.h`, the return address popped)
/// holds the registers: `uc_mcontext` of `struct ucontext` (`include/uapi/asm-generic/ucontext.h`).
const SIGNAL_FRAME_RBP: u64 = 120;
const SIGNAL_FRAME_RSP: u64 = 160;

/// What a walk needs of a frame's registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    /// The instruction that runs, or to which the callee returns.
    pub instruction_pointer: u64,
    /// As it is there.
    pub stack_pointer: u64,
    /// As it is there.
    pub frame_pointer: u64,
}

/// How a caller was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// By the rule of the code.
    ByRule,
    /// By the frame pointer, because there is no rule.
    ByFramePointer,
    /// By the code ahead, because there is neither rule nor frame.
    ByCode,
    /// In a signal frame: interrupted, not called from.
    Interrupted,
}

/// What came of a step.
///
/// VERIFIER: all of it has a value, also where only a part means something. What the compiler may leave undefined it
/// keeps on the stack on one way and reads back on all, and 5.10 refuses to read what was never written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The caller's registers; those at hand when there is none.
    pub caller: Registers,
    /// How it was found.
    pub found: Found,
    /// Why there is no caller to be found.
    pub end: Option<WalkEnd>,
}

/// The memory of the task. False, and nothing read, where it cannot be read.
pub trait Stack {
    /// Two words at an address.
    fn pair(&self, address: u64, words: &mut [u64; 2]) -> bool;
    /// One word.
    fn word(&self, address: u64, word: &mut u64) -> bool;
}

impl Step {
    #[inline(always)]
    fn to(caller: Registers, found: Found) -> Self {
        Self { caller, found, end: None }
    }

    #[inline(always)]
    fn ends(at: Registers, end: WalkEnd) -> Self {
        Self { caller: at, found: Found::ByRule, end: Some(end) }
    }
}

/// The caller's registers, by the way out of the function that runs, where its frame pointer is not its own. Not more than
/// a guess: the caller's instruction pointer has to be looked at, whether it is behind a call.
#[inline(always)]
pub fn by_way_out(way_out: WayOut, at: Registers, stack: &impl Stack) -> Option<Step> {
    let place = |offset: u64| at.stack_pointer.wrapping_add(offset);
    let mut frame_pointer = at.frame_pointer;
    if let Some(saved) = way_out.frame_pointer {
        let is_own = place(saved) == at.frame_pointer;
        if is_own || !stack.word(place(saved), &mut frame_pointer) {
            return None;
        }
    }
    let mut return_address = 0;
    if !stack.word(place(way_out.return_address), &mut return_address) {
        return None;
    }
    let stack_pointer = place(way_out.return_address).wrapping_add(WORD);
    let caller = Registers { instruction_pointer: return_address, stack_pointer, frame_pointer };
    Some(Step::to(caller, Found::ByCode))
}

/// The caller's registers, by the rule of the code that runs.
#[inline(always)]
pub fn step(rule: Rule, at: Registers, stack: &impl Stack) -> Step {
    const UNKNOWN: u8 = CfaRule::Unknown as u8;
    const SIGNAL_FRAME: u8 = CfaRule::SignalFrame as u8;
    const ROOT: u8 = CfaRule::Root as u8;
    match rule.cfa {
        UNKNOWN => by_frame_pointer(at, stack),
        SIGNAL_FRAME => by_signal_frame(at, stack),
        ROOT => Step::ends(at, WalkEnd::Root),
        _ => by_rule(rule, at, stack),
    }
}

#[inline(always)]
fn by_rule(rule: Rule, at: Registers, stack: &impl Stack) -> Step {
    let mut cfa = 0;
    if let Some(end) = canonical_frame_address(rule, at, stack, &mut cfa) {
        return Step::ends(at, end);
    }
    if cfa <= at.stack_pointer {
        return Step::ends(at, WalkEnd::Backwards);
    }
    if rule.return_address != ReturnAddressRule::AtCfa as u8 {
        return Step::ends(at, WalkEnd::UnsupportedRule);
    }
    let mut saved = [0; 2];
    if !read_saved(rule, cfa, at, stack, &mut saved) {
        return Step::ends(at, WalkEnd::UnreadableStack);
    }
    let [frame_pointer, return_address] = saved;
    if return_address == 0 {
        return Step::ends(at, WalkEnd::NoCaller);
    }
    let caller = Registers { instruction_pointer: return_address, stack_pointer: cfa, frame_pointer };
    Step::to(caller, Found::ByRule)
}

/// Works the canonical frame address out, or says why it cannot.
#[inline(always)]
fn canonical_frame_address(rule: Rule, at: Registers, stack: &impl Stack, cfa: &mut u64) -> Option<WalkEnd> {
    const STACK_POINTER: u8 = CfaRule::StackPointer as u8;
    const FRAME_POINTER: u8 = CfaRule::FramePointer as u8;
    const AT_STACK_POINTER: u8 = CfaRule::StoredAtStackPointer as u8;
    const AT_FRAME_POINTER: u8 = CfaRule::StoredAtFramePointer as u8;
    const LINKAGE_TABLE: u8 = CfaRule::LinkageTable as u8;
    match rule.cfa {
        STACK_POINTER => *cfa = offset(at.stack_pointer, rule.cfa_offset),
        FRAME_POINTER => *cfa = offset(at.frame_pointer, rule.cfa_offset),
        AT_STACK_POINTER | AT_FRAME_POINTER => {
            let base = if rule.cfa == AT_STACK_POINTER { at.stack_pointer } else { at.frame_pointer };
            let mut stored = 0;
            if !stack.word(offset(base, i32::from(rule.cfa_offset as i16)), &mut stored) {
                return Some(WalkEnd::UnreadableStack);
            }
            *cfa = offset(stored, rule.cfa_offset >> 16);
        }
        LINKAGE_TABLE => {
            let has_pushed = at.instruction_pointer & 15 >= u64::from(rule.cfa_offset as u8);
            *cfa = at.stack_pointer.wrapping_add(if has_pushed { 2 * WORD } else { WORD });
        }
        _ => return Some(WalkEnd::UnsupportedRule),
    }
    None
}

/// Reads the caller's frame pointer and the return address.
#[inline(always)]
fn read_saved(rule: Rule, cfa: u64, at: Registers, stack: &impl Stack, saved: &mut [u64; 2]) -> bool {
    let return_address_at = offset(cfa, i32::from(rule.return_address_offset));
    let is_at_cfa = rule.frame_pointer == FramePointerRule::AtCfa as u8;
    let place = offset(if is_at_cfa { cfa } else { at.frame_pointer }, i32::from(rule.frame_pointer_offset));
    if is_at_cfa && place.wrapping_add(WORD) == return_address_at {
        return stack.pair(place, saved);
    }
    let [frame_pointer, return_address] = saved;
    *frame_pointer = if rule.frame_pointer == FramePointerRule::Same as u8 { at.frame_pointer } else { 0 };
    let is_stored = is_at_cfa || rule.frame_pointer == FramePointerRule::AtFramePointer as u8;
    (!is_stored || stack.word(place, frame_pointer)) && stack.word(return_address_at, return_address)
}

#[inline(always)]
fn by_frame_pointer(at: Registers, stack: &impl Stack) -> Step {
    let frame = at.frame_pointer;
    if frame == 0 {
        // The outermost frame, System V ABI AMD64 3.4.1.
        return Step::ends(at, WalkEnd::NoCaller);
    }
    let is_plausible = frame >= at.stack_pointer
        && frame.wrapping_sub(at.stack_pointer) <= MAX_FRAME_BYTES
        && frame.is_multiple_of(WORD);
    let mut saved = [0; 2];
    if !is_plausible || !stack.pair(frame, &mut saved) {
        return Step::ends(at, WalkEnd::BrokenFramePointer);
    }
    let [frame_pointer, return_address] = saved;
    if return_address == 0 {
        return Step::ends(at, WalkEnd::NoCaller);
    }
    let stack_pointer = frame.wrapping_add(2 * WORD);
    let caller = Registers { instruction_pointer: return_address, stack_pointer, frame_pointer };
    Step::to(caller, Found::ByFramePointer)
}

#[inline(always)]
fn by_signal_frame(at: Registers, stack: &impl Stack) -> Step {
    let (mut frame_pointer, mut others) = (0, [0; 2]);
    let is_read = stack.word(at.stack_pointer.wrapping_add(SIGNAL_FRAME_RBP), &mut frame_pointer)
        && stack.pair(at.stack_pointer.wrapping_add(SIGNAL_FRAME_RSP), &mut others);
    if !is_read {
        return Step::ends(at, WalkEnd::UnreadableStack);
    }
    let [stack_pointer, instruction_pointer] = others;
    let interrupted = Registers { instruction_pointer, stack_pointer, frame_pointer };
    Step::to(interrupted, Found::Interrupted)
}

#[inline(always)]
fn offset(address: u64, by: i32) -> u64 {
    address.wrapping_add(i64::from(by) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 0x7fff_0000;
    const CODE: u64 = 0x40_0000;

    /// Memory from [`BASE`] on, and nothing around it.
    struct Words(Vec<u64>);

    impl Stack for Words {
        fn pair(&self, address: u64, words: &mut [u64; 2]) -> bool {
            let read = || Some([self.at(address)?, self.at(address.checked_add(WORD)?)?]);
            read().inspect(|read| *words = *read).is_some()
        }

        fn word(&self, address: u64, word: &mut u64) -> bool {
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

    /// Can be read word by word only.
    struct NoPairs(Words);

    impl Stack for NoPairs {
        fn pair(&self, _: u64, _: &mut [u64; 2]) -> bool {
            false
        }

        fn word(&self, address: u64, word: &mut u64) -> bool {
            self.0.word(address, word)
        }
    }

    /// Words each of which says which one it is, but for those given.
    fn memory(given: &[(usize, u64)]) -> Words {
        let mut words: Vec<u64> = (0x1000..0x1020).collect();
        for (index, word) in given {
            words[*index] = *word;
        }
        Words(words)
    }

    /// Registers that point to these words.
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

    /// The offset of a canonical frame address that is loaded from memory.
    fn stored_at(place: i16, then: i16) -> i32 {
        i32::from(then) << 16 | i32::from(place as u16)
    }

    /// The caller's registers.
    fn caller(rule: Rule, at: Registers, stack: &impl Stack) -> Result<(Registers, Found), WalkEnd> {
        let Step { caller, found, end } = step(rule, at, stack);
        end.map_or(Ok((caller, found)), Err)
    }

    /// The caller's return address and frame pointer, and the word that its stack pointer points to.
    fn frame(rule: Rule, at: Registers, stack: &impl Stack) -> Result<(u64, u64, u64), WalkEnd> {
        let (caller, found) = caller(rule, at, stack)?;
        assert_eq!(found, Found::ByRule);
        let stack_pointer = caller.stack_pointer.wrapping_sub(BASE) / WORD;
        Ok((caller.instruction_pointer, caller.frame_pointer, stack_pointer))
    }

    /// The words of the caller's return address and of its stack pointer.
    fn by_cfa(rule: Rule, at: Registers, stack: &Words) -> Result<(u64, u64), WalkEnd> {
        frame(rule, at, stack).map(|(return_address, _, stack_pointer)| (return_address, stack_pointer))
    }

    #[test]
    fn the_frame_begins_where_a_register_and_an_offset_say() {
        let (stack, at) = (memory(&[]), at(2, 6));
        assert_eq!(by_cfa(rule(CfaRule::StackPointer, 8), at, &stack), Ok((0x1002, 3)));
        assert_eq!(by_cfa(rule(CfaRule::StackPointer, 80), at, &stack), Ok((0x100b, 12)));
        assert_eq!(by_cfa(rule(CfaRule::FramePointer, 16), at, &stack), Ok((0x1007, 8)));
        assert_eq!(by_cfa(rule(CfaRule::FramePointer, -24), at, &stack), Ok((0x1002, 3)));
    }

    #[test]
    fn the_frame_begins_where_the_memory_at_a_register_says() {
        let (stack, at) = (memory(&[(1, BASE + 64), (5, BASE + 80)]), at(2, 6));
        let stored_below = stored_at(-8, 16);
        assert_eq!(by_cfa(rule(CfaRule::StoredAtStackPointer, stored_below), at, &stack), Ok((0x1009, 10)));
        assert_eq!(by_cfa(rule(CfaRule::StoredAtFramePointer, stored_below), at, &stack), Ok((0x100b, 12)));
        let stored_above = stored_at(24, -16);
        assert_eq!(by_cfa(rule(CfaRule::StoredAtStackPointer, stored_above), at, &stack), Ok((0x1007, 8)));
        let outside = rule(CfaRule::StoredAtStackPointer, stored_at(i16::MAX, 0));
        assert_eq!(by_cfa(outside, at, &stack), Err(WalkEnd::UnreadableStack));
    }

    #[test]
    fn an_entry_of_a_linkage_table_has_pushed_a_word_from_an_instruction_on() {
        let linkage = rule(CfaRule::LinkageTable, 11);
        let caller_in = |offset| {
            let at = Registers { instruction_pointer: CODE + 16 + offset, ..at(2, 6) };
            by_cfa(linkage, at, &memory(&[]))
        };
        for before in [0, 6, 10] {
            assert_eq!(caller_in(before), Ok((0x1002, 3)));
        }
        for behind in [11, 15] {
            assert_eq!(caller_in(behind), Ok((0x1003, 4)));
        }
    }

    #[test]
    fn the_frame_pointer_comes_from_where_its_rule_says() {
        let (stack, at) = (memory(&[]), at(2, 9));
        let frame_pointer = |place, offset| {
            frame(saved_in(place, offset), at, &stack).map(|(_, frame_pointer, _)| frame_pointer)
        };
        assert_eq!(frame_pointer(FramePointerRule::Same, -16), Ok(at.frame_pointer));
        assert_eq!(frame_pointer(FramePointerRule::AtCfa, -16), Ok(0x1004));
        assert_eq!(frame_pointer(FramePointerRule::AtCfa, -32), Ok(0x1002));
        assert_eq!(frame_pointer(FramePointerRule::AtFramePointer, 8), Ok(0x100a));
        assert_eq!(frame_pointer(FramePointerRule::AtFramePointer, -16), Ok(0x1007));
        assert_eq!(frame_pointer(FramePointerRule::Lost, -16), Ok(0));
        for place in [FramePointerRule::AtCfa, FramePointerRule::AtFramePointer] {
            assert_eq!(frame_pointer(place, i16::MAX), Err(WalkEnd::UnreadableStack));
        }
    }

    #[test]
    fn two_words_read_at_once_are_those_read_one_by_one() {
        let beside = saved_in(FramePointerRule::AtCfa, -16);
        let no_pairs = NoPairs(memory(&[]));
        assert_eq!(frame(beside, at(2, 9), &no_pairs), Err(WalkEnd::UnreadableStack), "read at once");
        for place in [-8, -15, -24, 0] {
            let apart = saved_in(FramePointerRule::AtCfa, place);
            assert!(frame(apart, at(2, 9), &no_pairs).is_ok(), "read one by one");
        }
        let words = memory(&[]);
        let one_by_one = (words.at(BASE + 40).unwrap(), words.at(BASE + 32).unwrap(), 6);
        assert_eq!(frame(beside, at(2, 9), &words), Ok(one_by_one));
    }

    #[test]
    fn a_caller_that_lies_not_above_is_backwards() {
        let stack = memory(&[]);
        for offset in [0, -8, -0x1000_0000] {
            assert_eq!(
                by_cfa(rule(CfaRule::StackPointer, offset), at(2, 6), &stack),
                Err(WalkEnd::Backwards)
            );
        }
        assert_eq!(by_cfa(rule(CfaRule::FramePointer, 16), at(9, 6), &stack), Err(WalkEnd::Backwards));
        let stored = rule(CfaRule::StoredAtStackPointer, stored_at(0, 0));
        assert_eq!(by_cfa(stored, at(2, 6), &memory(&[(2, BASE + 16)])), Err(WalkEnd::Backwards));
    }

    #[test]
    fn a_return_address_of_0_has_no_caller() {
        let stack = memory(&[(2, 0)]);
        assert_eq!(by_cfa(rule(CfaRule::StackPointer, 8), at(2, 6), &stack), Err(WalkEnd::NoCaller));
    }

    #[test]
    fn a_stack_that_cannot_be_read_is_unreadable() {
        let stack = memory(&[]);
        for stack_pointer in [32, 1 << 20] {
            let result = by_cfa(rule(CfaRule::StackPointer, 8), at(stack_pointer, 6), &stack);
            assert_eq!(result, Err(WalkEnd::UnreadableStack));
        }
        let half_a_word = Registers { stack_pointer: BASE + 31 * WORD + 4, ..at(0, 6) };
        let result = by_cfa(rule(CfaRule::StackPointer, 8), half_a_word, &stack);
        assert_eq!(result, Err(WalkEnd::UnreadableStack));
    }

    #[test]
    fn sums_that_wrap_are_an_answer_and_no_panic() {
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
                    if let Ok((caller, Found::ByRule)) = caller(rule, at, &memory(&[])) {
                        assert!(caller.stack_pointer > stack_pointer);
                    }
                }
            }
        }
    }

    #[test]
    fn code_without_a_rule_that_can_be_followed_says_so() {
        let (stack, at) = (memory(&[]), at(2, 6));
        assert_eq!(caller(rule(CfaRule::Root, 8), at, &stack), Err(WalkEnd::Root));
        assert_eq!(caller(rule(CfaRule::Unsupported, 8), at, &stack), Err(WalkEnd::UnsupportedRule));
        let not_one = Rule { cfa: 99, ..rule(CfaRule::StackPointer, 8) };
        assert_eq!(caller(not_one, at, &stack), Err(WalkEnd::UnsupportedRule));
        let in_a_register = ReturnAddressRule::LinkRegister as u8;
        let linked = Rule { return_address: in_a_register, ..rule(CfaRule::StackPointer, 8) };
        assert_eq!(caller(linked, at, &stack), Err(WalkEnd::UnsupportedRule));
    }

    #[test]
    fn a_signal_frame_holds_what_was_interrupted() {
        let stack = memory(&[(2 + 15, 0x55), (2 + 20, 0x77), (2 + 21, 0x66)]);
        let interrupted = Registers { instruction_pointer: 0x66, stack_pointer: 0x77, frame_pointer: 0x55 };
        let signal_frame = rule(CfaRule::SignalFrame, 0);
        let found = caller(signal_frame, at(2, 6), &stack);
        assert_eq!(found, Ok((interrupted, Found::Interrupted)), "also where it is on another stack, below");
        for cut in [11, 16, 1 << 20] {
            assert_eq!(caller(signal_frame, at(cut, 6), &stack), Err(WalkEnd::UnreadableStack));
        }
    }

    #[test]
    fn code_without_rules_is_left_by_its_frame_pointer() {
        let stack = memory(&[]);
        for stack_pointer in [2, 6] {
            let (caller, found) = caller(Rule::default(), at(stack_pointer, 6), &stack).unwrap();
            let expected =
                Registers { instruction_pointer: 0x1007, stack_pointer: BASE + 64, frame_pointer: 0x1006 };
            assert_eq!((caller, found), (expected, Found::ByFramePointer));
        }
    }

    #[test]
    fn a_frame_pointer_that_points_to_no_frame_is_broken() {
        let end = |frame_pointer| {
            let at = Registers { frame_pointer, ..at(2, 0) };
            caller(Rule::default(), at, &memory(&[])).unwrap_err()
        };
        assert_eq!(end(BASE + 8), WalkEnd::BrokenFramePointer, "below the stack pointer");
        assert_eq!(end(BASE + 20), WalkEnd::BrokenFramePointer, "between two words");
        assert_eq!(end(BASE + 31 * WORD), WalkEnd::BrokenFramePointer, "half of it unreadable");
        assert_eq!(end(0), WalkEnd::NoCaller);
    }

    #[test]
    fn a_frame_pointer_is_believed_as_far_as_a_stack_reaches() {
        let words = usize::try_from(MAX_FRAME_BYTES / WORD).unwrap();
        let stack = Words(vec![CODE; words + 3]);
        let result = |frame_pointer| caller(Rule::default(), at(0, frame_pointer), &stack);
        assert!(result(MAX_FRAME_BYTES / WORD).is_ok());
        assert_eq!(result(MAX_FRAME_BYTES / WORD + 1), Err(WalkEnd::BrokenFramePointer));
    }

    #[test]
    fn a_function_without_a_frame_is_left_by_its_way_out() {
        let stack = memory(&[]);
        let without_frame = WayOut { return_address: 16, frame_pointer: None };
        let found = by_way_out(without_frame, at(2, 9), &stack);
        let caller = Registers { instruction_pointer: 0x1004, ..at(5, 9) };
        assert_eq!(found, Some(Step { caller, found: Found::ByCode, end: None }));
        assert_eq!(by_way_out(without_frame, at(30, 9), &stack), None, "above the stack");
    }

    #[test]
    fn a_frame_pointer_that_is_not_the_function_s_own_is_passed_over() {
        let stack = memory(&[]);
        let framed = WayOut { return_address: 24, frame_pointer: Some(16) };
        assert_eq!(by_way_out(framed, at(2, 4), &stack), None, "it points to where it was saved");
        let found = by_way_out(framed, at(2, 9), &stack).unwrap();
        let caller = Registers { instruction_pointer: 0x1005, frame_pointer: 0x1004, ..at(6, 0) };
        assert_eq!(found.caller, caller);
        assert_eq!(by_way_out(framed, at(30, 9), &stack), None);
        assert_eq!(by_way_out(framed, at(29, 9), &stack), None);
    }

    #[test]
    fn a_frame_that_holds_a_return_address_of_0_has_no_caller() {
        assert_eq!(caller(Rule::default(), at(2, 6), &memory(&[(7, 0)])), Err(WalkEnd::NoCaller));
    }
}
