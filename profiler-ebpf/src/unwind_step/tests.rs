//! Tests of unwind steps on synthetic stacks.

use super::*;

const BASE: u64 = 0x7fff_0000;
const CODE: u64 = 0x40_0000;

/// Stack memory from [`BASE`] on; everything else is unreadable.
struct Words(Vec<u64>);

impl StackMemory for Words {
    const IS_OF_RUNNING_TASK: bool = true;

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

/// The stack of a thread that waits: what is not on it cannot be read.
struct Waiting(Words);

impl Waiting {
    fn is_on_stack(address: u64) -> bool {
        address < GOROUTINE
    }
}

impl StackMemory for Waiting {
    const IS_OF_RUNNING_TASK: bool = false;

    fn read_pair(&self, address: u64, words: &mut [u64; 2]) -> bool {
        Self::is_on_stack(address) && self.0.read_pair(address, words)
    }

    fn read_word(&self, address: u64, word: &mut u64) -> bool {
        Self::is_on_stack(address) && self.0.read_word(address, word)
    }
}

/// Stack memory that cannot be read in pairs.
struct WithoutPairs(Words);

impl StackMemory for WithoutPairs {
    const IS_OF_RUNNING_TASK: bool = true;

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
        ..Registers::default()
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
    let frame = CalleeFrame { registers: at, position: FramePosition::Call, leaf: &LeafRegisters::default() };
    let Step { caller, found_by, end_reason } = step_by_rule(rule, frame, stack);
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
fn the_cfa_is_at_rbx_where_its_value_is_known() {
    let stack = memory(&[]);
    let in_rbx = Registers { rbx: BASE + 6 * WORD, ..at(2, 0) };
    assert_eq!(by_cfa(rule(CfaRule::Rbx, 16), in_rbx, &stack), Ok((0x1007, 8)));
    assert_eq!(by_cfa(rule(CfaRule::Rbx, 16), at(2, 0), &stack), Err(StackEndReason::UnsupportedRule));
}

/// The step from a leaf whose registers are the words from `BASE` on, by their positions.
fn leaf_step(rule: Rule, registers: Registers) -> Step {
    let leaf: LeafRegisters = std::array::from_fn(|position| BASE + WORD * position as u64);
    step_by_rule(rule, CalleeFrame { registers, position: FramePosition::Leaf, leaf: &leaf }, &memory(&[]))
}

const fn leaf_register(position: u8) -> u8 {
    LeafRegister::FLAG | position
}

#[test]
fn the_cfa_is_at_any_register_of_the_leaf() {
    for position in 6..LeafRegister::COUNT as u8 {
        let rule = Rule { cfa: leaf_register(position), ..rule(CfaRule::Unknown, 16) };
        let caller = leaf_step(rule, at(2, 0)).caller;
        assert_eq!(caller.instruction_pointer, 0x1001 + u64::from(position));
        assert_eq!(frame(rule, at(2, 0), &memory(&[])), Err(StackEndReason::UnsupportedRule), "of a caller");
    }
}

#[test]
fn the_return_address_and_the_frame_pointer_are_in_registers_of_the_leaf() {
    let in_register = Rule { return_address: leaf_register(14), ..rule(CfaRule::StackPointer, 0) };
    let step = leaf_step(in_register, at(2, 6));
    let expected = Registers { instruction_pointer: BASE + 14 * WORD, ..at(2, 6) };
    assert_eq!((step.caller, step.end_reason), (expected, None), "the CFA is the stack pointer");
    assert_eq!(frame(in_register, at(2, 6), &memory(&[])), Err(StackEndReason::UnsupportedRule));

    let restored =
        Rule { cfa: leaf_register(9), frame_pointer: leaf_register(8), cfa_offset: 0, ..in_register };
    let expected = Registers { instruction_pointer: BASE + 14 * WORD, ..at(9, 8) };
    assert_eq!(leaf_step(restored, at(2, 6)).caller, expected);

    let saved = Rule { frame_pointer: FramePointerRule::AtCfa as u8, frame_pointer_offset: 8, ..in_register };
    assert_eq!(leaf_step(saved, at(2, 6)).caller.frame_pointer, 0x1003);
    let below = Rule { cfa_offset: -8, ..in_register };
    assert_eq!(leaf_step(below, at(2, 6)).end_reason, Some(StackEndReason::Backwards));
}

#[test]
fn flags_of_a_rule_say_how_the_caller_was_found() {
    let found = |flags| {
        let rule = Rule { return_address: flags, ..rule(CfaRule::StackPointer, 8) };
        caller(rule, at(2, 6), &memory(&[])).unwrap()
    };
    let (registers, _) = found(0);
    assert_eq!(found(RuleFlags::INTERRUPTS_CALLER), (registers, FoundBy::SignalFrame));
    assert_eq!(found(RuleFlags::BY_INSTRUCTIONS), (registers, FoundBy::Instructions));
}

#[test]
fn rbx_is_restored_by_its_rule() {
    let stack = memory(&[]);
    let registers = Registers { rbx: 0x33, ..at(2, 6) };
    let restored = |rbx| {
        let rule = Rule { rbx, ..rule(CfaRule::StackPointer, 32) };
        caller(rule, registers, &stack).unwrap().0.rbx
    };
    assert_eq!(restored(RbxRule::UNDEFINED), 0);
    assert_eq!(restored(RbxRule::SAME), 0x33);
    assert_eq!(restored(RbxRule::SAME + 2), 0x1004);
    assert_eq!(restored(u8::MAX), 0, "unreadable");
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
    let frame_pointer =
        |place, offset| frame(saved_in(place, offset), at, &stack).map(|(_, frame_pointer, _)| frame_pointer);
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
    assert_eq!(frame(beside, at(2, 9), &without_pairs), Err(StackEndReason::UnreadableStack), "read at once");
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
    assert_eq!(by_cfa(rule(CfaRule::FramePointerOfAnyStack, 16), at(9, 6), &stack), Ok((0x1007, 8)));
    let stored = rule(CfaRule::StoredAtStackPointer, stored_at(0, 0));
    assert_eq!(by_cfa(stored, at(2, 6), &memory(&[(2, BASE + 16)])), Err(StackEndReason::Backwards));
}

/// The words of a goroutine, of the thread that executes it and of the scheduling `g` of this thread.
const GOROUTINE: u64 = BASE + 40 * WORD;
const THREAD: u64 = BASE + 60 * WORD;
const SCHEDULING: u64 = BASE + 100 * WORD;
const LAYOUT: GoLayout = GoLayout::SINCE_1_25;
const G_FRAME_POINTER: u64 = GOROUTINE + LAYOUT.g_frame_pointer as u64;
const M_GOROUTINE: u64 = THREAD + LAYOUT.m_goroutine as u64;
const SAVED_INSTRUCTION_POINTER: u64 = 0x2000;

/// A goroutine that has saved the words 4 and 9 as its stack pointer and its frame pointer, and an instruction pointer, with a stack of
/// 20 words. Word 30 is the slot with its address on the scheduling stack.
fn switched(changes: &[(u64, u64)]) -> Words {
    let mut words: Vec<u64> = (0x1000..0x1080).collect();
    let given = [
        (GOROUTINE + GoLayout::G_STACK, BASE),
        (GOROUTINE + GoLayout::G_STACK + WORD, BASE + 20 * WORD),
        (GOROUTINE + GoLayout::G_STACK_POINTER, BASE + 4 * WORD),
        (GOROUTINE + GoLayout::G_STACK_POINTER + WORD, SAVED_INSTRUCTION_POINTER),
        (G_FRAME_POINTER, BASE + 9 * WORD),
        (GOROUTINE + GoLayout::G_THREAD, THREAD),
        (M_GOROUTINE, GOROUTINE),
        (SCHEDULING + GoLayout::G_THREAD, THREAD),
        (BASE + 30 * WORD, GOROUTINE),
    ];
    for (address, word) in given.iter().chain(changes) {
        words[usize::try_from((address - BASE) / WORD).unwrap()] = *word;
    }
    Words(words)
}

/// The return address of the caller of code on the scheduling stack, and the words of its frame pointer and its stack pointer.
fn goroutine_call(
    rule: Rule,
    frame_pointer: u64,
    stack: &impl StackMemory,
) -> Result<(u64, u64, u64), StackEndReason> {
    goroutine_call_at(rule, FramePosition::Call, frame_pointer, stack)
}

fn goroutine_call_at(
    rule: Rule,
    position: FramePosition,
    frame_pointer: u64,
    stack: &impl StackMemory,
) -> Result<(u64, u64, u64), StackEndReason> {
    let mut leaf = LeafRegisters::default();
    leaf[usize::from(GoLayout::G_REGISTER)] = SCHEDULING;
    let frame = CalleeFrame { registers: at(28, frame_pointer), position, leaf: &leaf };
    let mut goroutine = SavedGoroutine::default();
    goroutine.read(rule, frame, stack);
    let GoroutineReturn { rule, registers, is_caller } = return_to_goroutine(rule, frame, &goroutine);
    let step = match is_caller {
        true => Step::to_caller(registers, FoundBy::Cfi),
        false => step_by_rule(rule, CalleeFrame { registers, ..frame }, stack),
    };
    let word = |address: u64| address.wrapping_sub(BASE) / WORD;
    let Registers { instruction_pointer, frame_pointer, stack_pointer, .. } = step.caller;
    step.end_reason.map_or(Ok((instruction_pointer, word(frame_pointer), word(stack_pointer))), Err)
}

fn by_goroutine(cfa: CfaRule, cfa_offset: i32, return_address_offset: i16) -> Rule {
    let frame_pointer_offset = LAYOUT.g_frame_pointer;
    Rule { cfa: cfa as u8, cfa_offset, return_address_offset, frame_pointer_offset, ..Rule::default() }
}

fn executed() -> Rule {
    by_goroutine(CfaRule::ExecutedGoroutine, LAYOUT.m_goroutine, 0)
}

fn suspended() -> Rule {
    by_goroutine(CfaRule::SuspendedGoroutine, LAYOUT.m_goroutine, -8)
}

/// Of a frame pointer at word 9, and at the word 34.
const BY_FRAME_POINTER: u64 = 0x100a;
const BY_ANOTHER_FRAME_POINTER: u64 = 0x1023;

#[test]
fn code_on_the_scheduling_stack_returns_to_where_the_goroutine_called_it() {
    let (executed, suspended) = (executed(), suspended());
    let stored = by_goroutine(CfaRule::StoredGoroutine, 16, 0);
    let stored_by_caller = by_goroutine(CfaRule::StoredGoroutine, 16, -8);
    let stack = switched(&[]);
    assert_eq!(goroutine_call(executed, 9, &stack), Ok((0x1004, 9, 5)));
    assert_eq!(goroutine_call(stored, 9, &stack), Ok((0x1004, 9, 5)));
    assert_eq!(goroutine_call(suspended, 9, &stack), Ok((SAVED_INSTRUCTION_POINTER, 9, 4)));
    assert_eq!(goroutine_call(stored_by_caller, 9, &stack), Ok((0x1003, 9, 4)));
    let all = [executed, suspended, stored, stored_by_caller];
    for position in [FramePosition::Leaf, FramePosition::Interrupted] {
        let calls = all.map(|rule| goroutine_call_at(rule, position, 9, &stack).unwrap().0);
        assert_eq!(calls, [BY_FRAME_POINTER; 4], "the code may not have switched stacks");
    }
    let unreadable = [(M_GOROUTINE, 0), (SCHEDULING + GoLayout::G_THREAD, 0)];
    for change in unreadable {
        for rule in [executed, suspended] {
            assert_eq!(goroutine_call(rule, 9, &switched(&[change])).unwrap().0, BY_FRAME_POINTER);
        }
    }
    // What is at the offset is no goroutine of the thread.
    let other = switched(&[(GOROUTINE + GoLayout::G_THREAD, THREAD + WORD)]);
    assert_eq!(goroutine_call(suspended, 9, &other).unwrap().0, BY_FRAME_POINTER);
    let without_goroutine = switched(&[(BASE + 30 * WORD, 0)]);
    assert_eq!(goroutine_call(stored_by_caller, 9, &without_goroutine).unwrap().0, BY_FRAME_POINTER);
}

/// It is another thread's by then: what its frame pointer leads to are the callers of what it does there.
#[test]
fn a_thread_that_waits_in_the_scheduler_has_no_caller_in_the_goroutine_that_it_has_left() {
    let stored = by_goroutine(CfaRule::StoredGoroutine, 16, 0);
    let stored_by_caller = by_goroutine(CfaRule::StoredGoroutine, 16, -8);
    let stack = Waiting(switched(&[]));
    for rule in [stored_by_caller, suspended()] {
        assert_eq!(goroutine_call(rule, 9, &stack), Err(StackEndReason::Root));
    }
    for rule in [stored, executed()] {
        assert_eq!(goroutine_call(rule, 9, &stack).unwrap().0, BY_FRAME_POINTER, "it executes the goroutine");
    }
}

/// Since Go 1.21. The goroutine saves the frame pointer of the caller.
#[test]
fn a_switch_with_a_frame_pointer_of_its_own_returns_by_it_while_the_goroutine_is_there() {
    let stored_by_caller = by_goroutine(CfaRule::StoredGoroutine, 16, -8);
    let saved = |word: u64| switched(&[(GOROUTINE + GoLayout::G_STACK_POINTER, BASE + word * WORD)]);
    // The frame pointer at word 8: the return address is in word 9, and the caller has its stack pointer at word 10.
    assert_eq!(goroutine_call(stored_by_caller, 8, &saved(10)).unwrap().0, 0x1009);
    for continued in [4, 9, 11] {
        assert_eq!(goroutine_call(stored_by_caller, 8, &saved(continued)), Err(StackEndReason::Root));
    }
    // It has ended: its stack was freed.
    let ended = [(GOROUTINE + GoLayout::G_STACK_POINTER, BASE + 10 * WORD), (GOROUTINE + WORD, 0)];
    assert_eq!(goroutine_call(stored_by_caller, 8, &switched(&ended)), Err(StackEndReason::Root));
}

#[test]
fn a_goroutine_that_was_moved_or_has_continued_has_another_frame_pointer() {
    let (executed, suspended) = (executed(), suspended());
    let stored = by_goroutine(CfaRule::StoredGoroutine, 16, 0);
    let stored_by_caller = by_goroutine(CfaRule::StoredGoroutine, 16, -8);
    // A frame pointer outside of its stack.
    let stack = switched(&[]);
    assert_eq!(goroutine_call(executed, 34, &stack), Ok((0x1004, 9, 5)), "moved");
    assert_eq!(goroutine_call(suspended, 34, &stack), Ok((SAVED_INSTRUCTION_POINTER, 9, 4)), "moved");
    assert_eq!(goroutine_call(stored, 34, &stack).unwrap().0, BY_ANOTHER_FRAME_POINTER);
    assert_eq!(goroutine_call(stored_by_caller, 34, &stack), Err(StackEndReason::Root));
    // Another one of its stack.
    let called_again = switched(&[(G_FRAME_POINTER, BASE + 8 * WORD)]);
    for rule in [executed, stored] {
        assert_eq!(goroutine_call(rule, 9, &called_again).unwrap().0, BY_FRAME_POINTER);
    }
    assert_eq!(goroutine_call(stored_by_caller, 9, &called_again), Err(StackEndReason::Root));
    let ended = switched(&[(GOROUTINE + GoLayout::G_STACK, 0), (GOROUTINE + GoLayout::G_STACK + WORD, 0)]);
    assert_eq!(goroutine_call(stored_by_caller, 9, &ended), Err(StackEndReason::Root));
    for rule in [executed, suspended] {
        assert_eq!(goroutine_call(rule, 9, &ended).unwrap().0, BY_FRAME_POINTER);
    }
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
            let rbx = frame_pointer;
            let at = Registers { instruction_pointer: u64::MAX, stack_pointer, frame_pointer, rbx };
            for (offset, place) in offsets.iter().flat_map(|offset| (0..=4).map(|place| (*offset, place))) {
                let (frame_pointer_offset, return_address_offset) = (offset as i16, !offset as i16);
                let rule = Rule {
                    cfa,
                    cfa_offset: offset,
                    frame_pointer: place,
                    frame_pointer_offset,
                    return_address_offset,
                    rbx: offset as u8,
                    ..Rule::default()
                };
                if let Ok((caller, FoundBy::Cfi)) = caller(rule, at, &memory(&[])) {
                    let can_switch =
                        cfa >= CfaRule::FramePointerOfAnyStack as u8 && cfa <= CfaRule::StoredGoroutine as u8;
                    assert!(can_switch || caller.stack_pointer > stack_pointer);
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
    let stack = memory(&[(2 + 15, 0x55), (2 + 16, 0x33), (2 + 20, 0x77), (2 + 21, 0x66)]);
    let interrupted =
        Registers { instruction_pointer: 0x66, stack_pointer: 0x77, frame_pointer: 0x55, rbx: 0x33 };
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
        let expected = Registers { instruction_pointer: 0x1007, frame_pointer: 0x1006, ..at(8, 0) };
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
    let without_frame = edge(EdgeKind::LikelyEpilogue, 16, None);
    let found = step_by_edge(without_frame, at(2, 9), &stack);
    let caller = Registers { instruction_pointer: 0x1004, ..at(5, 9) };
    assert_eq!(found, Some(Step { caller, found_by: FoundBy::EpilogueScan, end_reason: None }));
    assert_eq!(step_by_edge(without_frame, at(30, 9), &stack), None, "above the stack");
}

#[test]
fn a_saved_frame_pointer_is_restored_unless_the_register_points_to_it() {
    let stack = memory(&[]);
    let likely = edge(EdgeKind::LikelyEpilogue, 24, Some(16));
    assert_eq!(step_by_edge(likely, at(2, 4), &stack), None, "it points to where it was saved");
    let found = step_by_edge(likely, at(2, 9), &stack).unwrap();
    let caller = Registers { instruction_pointer: 0x1005, frame_pointer: 0x1004, ..at(6, 0) };
    assert_eq!(found.caller, caller);
    assert_eq!(step_by_edge(likely, at(30, 9), &stack), None);
    assert_eq!(step_by_edge(likely, at(29, 9), &stack), None);
    let in_epilogue = edge(EdgeKind::Epilogue, 24, Some(16));
    assert_eq!(step_by_edge(in_epilogue, at(2, 4), &stack).unwrap().caller, caller);
}

/// Until a function sets its frame pointer, the register is the caller's, and the function has pushed a copy of it.
#[test]
fn in_a_prologue_the_frame_pointer_is_the_callers() {
    let stack = memory(&[(3, BASE + 9 * WORD)]);
    let found = step_by_edge(edge(EdgeKind::Prologue, 16, None), at(2, 9), &stack).unwrap();
    assert_eq!(found.caller, Registers { instruction_pointer: 0x1004, ..at(5, 9) });
    assert_eq!(step_by_edge(edge(EdgeKind::Prologue, 16, None), at(2, 8), &stack), None, "another copy");
    let nothing_pushed = step_by_edge(edge(EdgeKind::Prologue, 0, None), at(2, 8), &stack).unwrap();
    assert_eq!(nothing_pushed.caller, Registers { instruction_pointer: 0x1002, ..at(3, 8) });
}

fn edge(kind: EdgeKind, return_address_offset: u64, frame_pointer_offset: Option<u64>) -> FunctionEdge {
    FunctionEdge { kind, return_address_offset, frame_pointer_offset }
}

#[test]
fn a_frame_with_a_return_address_of_0_ends_the_stack() {
    assert_eq!(caller(Rule::default(), at(2, 6), &memory(&[(7, 0)])), Err(StackEndReason::NullCaller));
}
