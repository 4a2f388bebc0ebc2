//! How a function takes down what it has on the stack, read from the code ahead.
//!
//! Code that is made at run time has no tables. .NET's compiler keeps a frame pointer, but not in small functions: there
//! the register still points to the caller's frame, and who follows it loses the caller. Where a method was replaced while
//! it ran (on-stack replacement), what is left of it has lost its frame pointer too. The way out says where the return
//! address is: `add rsp, n`, pops and a return, a few instructions from anywhere in a small function. What looks so by
//! chance does not have a return address in that place on the stack too.

/// Bytes of code ahead that are looked at: most functions without a frame are no longer.
pub const CODE_BYTES: usize = 128;

/// Bytes before a return address that can hold the call.
pub const CALL_BYTES: usize = 8;

const WORD: u64 = 8;

const RETURN: u8 = 0xc3;
const POP_FRAME_POINTER: u8 = 0x5d;
const BREAK: u8 = 0xcc;

/// What was seen of the code so far, in one word: the [`phase`], [`POPS_FRAME_POINTER`], the last byte, and how many bytes
/// the way out has released.
///
/// VERIFIER: the walker keeps it in a map value between two bytes, so that all ways through one byte look the same
/// behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen(pub u32);

/// Where in an instruction, or in the way out, the last byte was.
mod phase {
    /// Before the instruction at hand.
    pub const START: u32 = 0;
    /// In nothing that matters.
    pub const ELSEWHERE: u32 = 16;
    /// `48`: an instruction on whole words.
    pub const WHOLE_WORDS: u32 = 1;
    /// `48 8d`
    pub const ADDRESS: u32 = 2;
    /// `48 83`
    pub const ADD: u32 = 3;
    /// `48 83 c4`: the number that is added to the stack pointer comes next.
    pub const ADD_TO_STACK: u32 = 4;
    /// `48 81`
    pub const ADD_FAR: u32 = 5;
    /// `48 81 c4`: the number comes next, its lowest byte first.
    pub const ADD_FAR_TO_STACK: u32 = 6;
    pub const SECOND_BYTE: u32 = 7;
    pub const THIRD_BYTE: u32 = 8;
    pub const FOURTH_BYTE: u32 = 9;
    /// `41`: the pop of a register from `r8` on may come next.
    pub const PREFIX: u32 = 10;
    /// Behind an instruction of the way out.
    pub const RELEASED: u32 = 11;
    /// Behind one and a prefix.
    pub const RELEASED_PREFIX: u32 = 12;
    /// Behind one and `ff`, which may be a jump.
    pub const RELEASED_JUMP: u32 = 13;
    /// The way out was found.
    pub const FOUND: u32 = 14;
    /// There is none.
    pub const NONE: u32 = 15;
}

const PHASE: u32 = 0x7f;
const POPS_FRAME_POINTER: u32 = 0x80;
const PREVIOUS_SHIFT: u32 = 8;
const RELEASED_SHIFT: u32 = 16;

/// Where the caller's registers are, in bytes above the stack pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WayOut {
    /// The return address.
    pub return_address: u64,
    /// The frame pointer, where the function saved it.
    pub frame_pointer: Option<u64>,
}

impl Seen {
    #[inline(always)]
    fn phase(self) -> u32 {
        self.0 & PHASE
    }

    #[inline(always)]
    fn previous(self) -> u8 {
        (self.0 >> PREVIOUS_SHIFT) as u8
    }

    /// Whether no further byte changes anything.
    #[inline(always)]
    #[must_use]
    pub fn is_decided(self) -> bool {
        self.phase() == phase::FOUND || self.phase() == phase::NONE
    }

    /// The way out, where there is one.
    #[inline(always)]
    #[must_use]
    pub fn way_out(self) -> Option<WayOut> {
        if self.phase() != phase::FOUND {
            return None;
        }
        let return_address = u64::from(self.0 >> RELEASED_SHIFT);
        let is_saved = self.0 & POPS_FRAME_POINTER != 0;
        let frame_pointer = if is_saved { Some(return_address.wrapping_sub(WORD)) } else { None };
        Some(WayOut { return_address, frame_pointer })
    }

    /// With the next byte. A return that nothing was released before is one only in a function that `runs`: one that has
    /// called another has room on the stack.
    #[inline(always)]
    #[must_use]
    pub fn and(self, byte: u8, runs: bool) -> Self {
        let released = self.0 & (POPS_FRAME_POINTER | 0xffff << RELEASED_SHIFT);
        let (phase, released) = match (self.phase(), byte) {
            // A register is only pushed where a function begins.
            (phase::START, 0x50..=0x57) if runs => (phase::FOUND, 0),
            (phase::ADD_TO_STACK, 8..=0x78) if byte.is_multiple_of(8) => {
                (phase::RELEASED, u32::from(byte) << RELEASED_SHIFT)
            }
            (phase::ADD_FAR_TO_STACK, _) => (phase::SECOND_BYTE, u32::from(byte) << RELEASED_SHIFT),
            (phase::SECOND_BYTE, _) => {
                (phase::THIRD_BYTE, released | u32::from(byte) << (RELEASED_SHIFT + 8))
            }
            (phase::THIRD_BYTE, 0) => (phase::FOURTH_BYTE, released),
            (phase::FOURTH_BYTE, 0) => (phase::RELEASED, released),
            // `ff /4`: to where a register or the memory says.
            (phase::RELEASED_JUMP, _) if byte >> 3 & 7 == 4 => (phase::FOUND, released),
            (phase::RELEASED, RETURN | 0xe9) => (phase::FOUND, released),
            (phase::RELEASED | phase::RELEASED_PREFIX, 0xff) => (phase::RELEASED_JUMP, released),
            (phase::RELEASED, 0x41 | 0x48 | 0x49) => (phase::RELEASED_PREFIX, released),
            (phase::RELEASED_PREFIX, 0x58..=0x5f) => (phase::RELEASED, one_more_word(released)),
            (phase::PREFIX, 0x58..=0x5f) => (phase::RELEASED, one_more_word(0)),
            (phase::RELEASED, POP_FRAME_POINTER) => {
                (phase::RELEASED, one_more_word(released) | POPS_FRAME_POINTER)
            }
            (phase::RELEASED, 0x58..=0x5f) => (phase::RELEASED, one_more_word(released)),
            (phase::WHOLE_WORDS | phase::RELEASED_PREFIX, 0x83) => (phase::ADD, 0),
            (phase::WHOLE_WORDS | phase::RELEASED_PREFIX, 0x81) => (phase::ADD_FAR, 0),
            (phase::WHOLE_WORDS, 0x8d) => (phase::ADDRESS, 0),
            (phase::ADD, 0xc4) => (phase::ADD_TO_STACK, 0),
            (phase::ADD_FAR, 0xc4) => (phase::ADD_FAR_TO_STACK, 0),
            // `lea rsp, [rbp + n]`: the frame pointer is needed and right.
            (phase::ADDRESS, 0x65 | 0xa5) => (phase::NONE, 0),
            (phase::ADD_TO_STACK | phase::THIRD_BYTE | phase::FOURTH_BYTE, _) => (phase::ELSEWHERE, 0),
            (_, POP_FRAME_POINTER) => (phase::RELEASED, one_more_word(0) | POPS_FRAME_POINTER),
            (_, 0x58..=0x5f) => (phase::RELEASED, one_more_word(0)),
            (_, RETURN) if runs && !takes_registers(self.previous()) => (phase::FOUND, 0),
            // Between two functions.
            (_, BREAK) if self.previous() == BREAK => (phase::NONE, 0),
            (_, 0x48) => (phase::WHOLE_WORDS, 0),
            (_, 0x41) => (phase::PREFIX, 0),
            _ => (phase::ELSEWHERE, 0),
        };
        Self(phase | released | u32::from(byte) << PREVIOUS_SHIFT)
    }
}

#[inline(always)]
fn one_more_word(released: u32) -> u32 {
    released.wrapping_add((WORD as u32) << RELEASED_SHIFT)
}

/// What is known of the way out from an instruction, in one word: its address, whether it runs, and the way out.
///
/// The code at an address may become other code. Then what is remembered is as good as what looks so by chance: the stack
/// has to agree.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remembered(u64);

impl Remembered {
    const IS_FOUND: u64 = 1;
    const IS_SAVED: u64 = 2;
    const RETURN_ADDRESS_SHIFT: u32 = 2;
    const RUNS: u64 = 1 << 15;
    const ADDRESS_SHIFT: u32 = 16;

    /// Remembers it.
    #[inline(always)]
    #[must_use]
    pub fn new(address: u64, runs: bool, way_out: Option<WayOut>) -> Self {
        let bits = match way_out {
            None => 0,
            Some(WayOut { return_address, frame_pointer }) => {
                let saved = if frame_pointer.is_some() { Self::IS_SAVED } else { 0 };
                let words = return_address / WORD % (1 << 13);
                words << Self::RETURN_ADDRESS_SHIFT | saved | Self::IS_FOUND
            }
        };
        Self(Self::key(address, runs) | bits)
    }

    /// The way out from an instruction; `None` when something else is remembered.
    #[inline(always)]
    #[must_use]
    pub fn at(self, address: u64, runs: bool) -> Option<Option<WayOut>> {
        if self.0 & !(Self::RUNS - 1) != Self::key(address, runs) {
            return None;
        }
        if self.0 & Self::IS_FOUND == 0 {
            return Some(None);
        }
        let return_address = (self.0 & (Self::RUNS - 1)) >> Self::RETURN_ADDRESS_SHIFT << 3;
        let is_saved = self.0 & Self::IS_SAVED != 0;
        let frame_pointer = if is_saved { Some(return_address.wrapping_sub(WORD)) } else { None };
        Some(Some(WayOut { return_address, frame_pointer }))
    }

    #[inline(always)]
    fn key(address: u64, runs: bool) -> u64 {
        address << Self::ADDRESS_SHIFT | if runs { Self::RUNS } else { 0 }
    }
}

/// Whether the next byte says on which registers this instruction works, as far as compilers write such: then it is no
/// instruction of its own.
#[inline(always)]
fn takes_registers(opcode: u8) -> bool {
    matches!(opcode, 0x03 | 0x0b | 0x23 | 0x2b | 0x33 | 0x3b | 0x63 | 0x84 | 0x85 | 0x89 | 0x8b | 0xaf)
        || matches!(opcode, 0xb6 | 0xb7 | 0xbe | 0xbf)
}

/// Whether the bytes before an address end in a call, so that it can be a return address.
#[inline(always)]
#[must_use]
pub fn ends_in_call(code: u64) -> bool {
    const CALL: u64 = 0xe8;
    let byte = |from_end: u32| code >> (8 * (8 - from_end)) & 0xff;
    // `ff /2`: to where a register or the memory says, by its operand's length.
    let indirect = |bytes: u32, modes: u64| byte(bytes) == 0xff && byte(bytes - 1) & 0xf8 == modes;
    let with_index = |bytes: u32, operand: u64| byte(bytes) == 0xff && byte(bytes - 1) == operand;
    byte(5) == CALL
        || indirect(2, 0xd0)
        || indirect(2, 0x10)
        || indirect(3, 0x50)
        || indirect(6, 0x90)
        || with_index(6, 0x15)
        || with_index(3, 0x14)
        || with_index(4, 0x54)
        || with_index(7, 0x94)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(code: &[u8], runs: bool) -> Seen {
        code.iter()
            .take(CODE_BYTES)
            .fold(Seen::default(), |seen, byte| if seen.is_decided() { seen } else { seen.and(*byte, runs) })
    }

    /// Of a function that has called another.
    fn way_out(code: &[u8]) -> Option<WayOut> {
        seen(code, false).way_out()
    }

    /// Where the return address is, of one without a frame pointer of its own.
    fn offset(code: &[u8]) -> Option<u64> {
        way_out(code).filter(|found| found.frame_pointer.is_none()).map(|found| found.return_address)
    }

    const ADD_RSP_8: [u8; 4] = [0x48, 0x83, 0xc4, 8];
    const ADD_RSP_0X28: [u8; 4] = [0x48, 0x83, 0xc4, 0x28];
    const POP_RBX: [u8; 1] = [0x5b];
    const POP_R15: [u8; 2] = [0x41, 0x5f];
    const POP_RBP: [u8; 1] = [0x5d];
    const RET: [u8; 1] = [0xc3];
    const INC_RAX: [u8; 3] = [0x48, 0xff, 0xc0];

    #[test]
    fn what_is_released_before_the_return_is_below_the_return_address() {
        assert_eq!(offset(&[&INC_RAX[..], &ADD_RSP_8, &RET].concat()), Some(8));
        assert_eq!(offset(&[&ADD_RSP_0X28[..], &POP_RBX, &POP_R15, &RET].concat()), Some(0x38));
        assert_eq!(offset(&[&POP_RBX[..], &RET].concat()), Some(8));
        assert_eq!(offset(&[&POP_R15[..], &POP_R15, &POP_RBX, &RET].concat()), Some(24));
        for jump in [
            &[0xe9, 0, 0, 0, 0][..],
            &[0xff, 0x25, 0, 0],
            &[0x48, 0xff, 0x20],
            &[0x48, 0xff, 0x60, 8],
            &[0x41, 0xff, 0xe3],
        ] {
            assert_eq!(offset(&[&ADD_RSP_8[..], jump].concat()), Some(8), "{jump:x?}");
        }
    }

    #[test]
    fn a_frame_pointer_that_is_popped_was_saved_below_the_return_address() {
        let found =
            |return_address| Some(WayOut { return_address, frame_pointer: Some(return_address - WORD) });
        assert_eq!(way_out(&[&POP_RBP[..], &RET].concat()), found(8));
        assert_eq!(way_out(&[&ADD_RSP_8[..], &POP_RBP, &RET].concat()), found(16));
        assert_eq!(way_out(&[&ADD_RSP_0X28[..], &POP_RBX, &POP_R15, &POP_RBP, &RET].concat()), found(0x40));
        assert_eq!(way_out(&[&POP_RBP[..], &[0x49, 0xff, 0x23], &ADD_RSP_8, &RET].concat()), found(8));
        let far = [&[0x48, 0x81, 0xc4, 0x60, 2, 0, 0][..], &POP_RBP, &RET].concat();
        assert_eq!(way_out(&far), found(0x268));
        let too_far = [&[0x48, 0x81, 0xc4, 0x60, 2, 1, 0][..], &RET].concat();
        assert_eq!(way_out(&too_far), None);
    }

    #[test]
    fn who_needs_the_frame_pointer_to_get_out_keeps_it() {
        for address in [&[0x48, 0x8d, 0x65, 0xf0][..], &[0x48, 0x8d, 0xa5, 0, 0xff, 0xff, 0xff]] {
            let code = [address, &POP_RBX, &POP_RBP, &RET].concat();
            assert_eq!((way_out(&code), seen(&code, true).is_decided()), (None, true));
        }
    }

    #[test]
    fn the_first_way_out_counts() {
        let frameless_first = [&ADD_RSP_8[..], &RET, &POP_RBP, &RET].concat();
        assert_eq!(offset(&frameless_first), Some(8));
        let interrupted = [&ADD_RSP_8[..], &INC_RAX, &POP_RBX, &RET].concat();
        assert_eq!(offset(&interrupted), Some(8), "what was released before something else is not counted");
    }

    #[test]
    fn a_bare_return_is_one_where_the_function_runs_that_it_ends() {
        let code = [&INC_RAX[..], &RET].concat();
        assert_eq!(seen(&code, true).way_out(), Some(WayOut { return_address: 0, frame_pointer: None }));
        assert_eq!(offset(&[&code[..], &ADD_RSP_8, &RET].concat()), Some(8));
        let moves = [0x48, 0x8b, 0xc3, 0x03, 0xc3, 0x0f, 0xb6, 0xc3];
        assert_eq!(seen(&moves, true).way_out(), None, "operands of other instructions");
    }

    #[test]
    fn a_function_that_begins_has_nothing_on_the_stack_yet() {
        for push in [0x50, 0x53, 0x55] {
            let code = [&[push][..], &INC_RAX, &ADD_RSP_8, &POP_RBP, &RET].concat();
            let nothing = WayOut { return_address: 0, frame_pointer: None };
            assert_eq!(seen(&code, true).way_out(), Some(nothing));
            assert_eq!(way_out(&code).map(|found| found.return_address), Some(16), "a call has run");
            let later = [&INC_RAX[..], &code].concat();
            assert_eq!(seen(&later, true).way_out().map(|found| found.return_address), Some(16));
        }
    }

    #[test]
    fn what_is_remembered_is_what_was_found_there() {
        let address = 0x7f15_4ac0_3850;
        for way_out in [
            None,
            Some(WayOut { return_address: 0, frame_pointer: None }),
            Some(WayOut { return_address: 0x38, frame_pointer: None }),
            Some(WayOut { return_address: 0x268, frame_pointer: Some(0x260) }),
            Some(WayOut { return_address: 0xfff8, frame_pointer: Some(0xfff0) }),
        ] {
            for runs in [false, true] {
                let remembered = Remembered::new(address, runs, way_out);
                assert_eq!(remembered.at(address, runs), Some(way_out));
                assert_eq!(remembered.at(address, !runs), None);
                assert_eq!(remembered.at(address + 1, runs), None);
                assert_eq!(Remembered::default().at(address, runs), None);
            }
        }
    }

    #[test]
    fn beyond_the_end_of_a_function_nothing_is_looked_for() {
        let ends = [&[0xe8, 0, 0, 0, 0, 0xcc, 0xcc][..], &ADD_RSP_8, &RET].concat();
        assert_eq!((way_out(&ends), seen(&ends, true).is_decided()), (None, true));
        assert_eq!(offset(&[0x90; CODE_BYTES + 8]), None);
        assert_eq!(offset(&[]), None);
    }

    #[test]
    fn numbers_that_no_frame_has_are_none() {
        for by in [0, 4, 0x80, 0xf8] {
            assert_eq!(offset(&[0x48, 0x83, 0xc4, by, 0xc3]), None, "{by}");
        }
    }

    #[test]
    fn any_code_is_an_answer_and_no_panic() {
        let mut state = 1_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as u8
        };
        for _ in 0..10_000 {
            let code: Vec<u8> = (0..CODE_BYTES)
                .map(|_| [0x48, 0x83, 0xc4, 0x41, 0x5d, 0x5b, 0xff, random()][usize::from(random() % 8)])
                .collect();
            assert!(seen(&code, true).way_out().is_none_or(|found| found.return_address < 1 << 16));
        }
        for code in [0, u64::MAX, 0x00ff_ffff_ffff_ffff] {
            let _ = ends_in_call(code);
        }
    }

    #[test]
    fn calls_of_every_kind_are_known() {
        let ends = |code: &[u8]| {
            let mut bytes = [0x90; CALL_BYTES];
            bytes[CALL_BYTES - code.len()..].copy_from_slice(code);
            ends_in_call(u64::from_le_bytes(bytes))
        };
        for call in [
            &[0xe8, 1, 2, 3, 4][..],
            &[0xff, 0x15, 1, 2, 3, 4],
            &[0xff, 0xd0],
            &[0x41, 0xff, 0xd3],
            &[0xff, 0x10],
            &[0x41, 0xff, 0x13],
            &[0xff, 0x50, 0x18],
            &[0xff, 0x90, 1, 2, 3, 4],
            &[0xff, 0x14, 0xc8],
            &[0xff, 0x54, 0x24, 8],
            &[0xff, 0x94, 0x24, 1, 2, 3, 4],
        ] {
            assert!(ends(call), "{call:x?}");
        }
        for other in
            [&[0x90][..], &[0xff, 0xe0], &[0xff, 0x25, 1, 2, 3, 4], &[0xe9, 1, 2, 3, 4], &[0xff, 0xc0]]
        {
            assert!(!ends(other), "{other:x?}");
        }
    }
}
