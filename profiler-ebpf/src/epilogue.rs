//! Epilogue scanner for x86-64: finds the return address of a function without a frame from the code that follows.
//!
//! JIT code has no CFI. The JIT compiler of .NET keeps a frame pointer except in small functions: there the register
//! still points to the caller's frame, and a frame-pointer step would skip the caller. After on-stack replacement the
//! rest of a method has lost its frame pointer too. The epilogue shows where the return address is: `add rsp, n`, pops and
//! a return, a few instructions behind every instruction of a small function. Bytes that look like an epilogue by chance
//! are rejected because the stack slot that they lead to does not hold a return address.
//!
//! Where the instruction itself is in the epilogue, [`EdgeScan`](profiler_common::function_edge::EdgeScan) is exact.

use profiler_common::function_edge::{EdgeKind, FunctionEdge};

/// Bytes of code that are scanned: most functions without a frame are shorter.
pub const CODE_BYTES: usize = 128;

/// Bytes before a return address that can contain the call instruction.
pub const CALL_BYTES: usize = 8;

const WORD: u64 = 8;

const RET: u8 = 0xc3;
const POP_RBP: u8 = 0x5d;
const INT3: u8 = 0xcc;

/// The state of the scan after some bytes, in one word: the [`phase`], [`POPS_FRAME_POINTER`], the previous byte, and how
/// many bytes the epilogue has popped.
///
/// VERIFIER: the caller keeps it in a map value between two bytes, so that all paths through one byte look the same
/// afterwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanState(pub u32);

/// The part of an instruction, or of the epilogue, that the previous byte completed.
mod phase {
    /// Before the first byte.
    pub const START: u32 = 0;
    /// No part of an epilogue.
    pub const OTHER: u32 = 16;
    /// `48`: REX.W.
    pub const REX_W: u32 = 1;
    /// `48 8d`: `lea`.
    pub const LEA: u32 = 2;
    /// `48 83`: an operation with an 8-bit immediate.
    pub const OP_IMM8: u32 = 3;
    /// `48 83 c4`: `add rsp, imm8`; the immediate follows.
    pub const ADD_RSP_IMM8: u32 = 4;
    /// `48 81`: an operation with a 32-bit immediate.
    pub const OP_IMM32: u32 = 5;
    /// `48 81 c4`: `add rsp, imm32`; the immediate follows, lowest byte first.
    pub const ADD_RSP_IMM32: u32 = 6;
    /// The first byte of the 32-bit immediate.
    pub const IMM32_BYTE_1: u32 = 7;
    /// The second byte.
    pub const IMM32_BYTE_2: u32 = 8;
    /// The third byte.
    pub const IMM32_BYTE_3: u32 = 9;
    /// `41`: REX.B; a pop of `r8` to `r15` may follow.
    pub const REX_B: u32 = 10;
    /// An instruction of the epilogue.
    pub const IN_EPILOGUE: u32 = 11;
    /// An instruction of the epilogue and a REX prefix.
    pub const IN_EPILOGUE_REX: u32 = 12;
    /// An instruction of the epilogue and `ff`, which may be a jump.
    pub const IN_EPILOGUE_FF: u32 = 13;
    /// The epilogue was found.
    pub const FOUND: u32 = 14;
    /// The code has no epilogue here.
    pub const NONE: u32 = 15;
}

const PHASE_MASK: u32 = 0x7f;
const POPS_FRAME_POINTER: u32 = 0x80;
const PREVIOUS_SHIFT: u32 = 8;
const POPPED_SHIFT: u32 = 16;

impl ScanState {
    #[inline(always)]
    fn phase(self) -> u32 {
        self.0 & PHASE_MASK
    }

    #[inline(always)]
    fn previous(self) -> u8 {
        (self.0 >> PREVIOUS_SHIFT) as u8
    }

    /// Whether no further byte changes the result.
    #[inline(always)]
    #[must_use]
    pub fn is_decided(self) -> bool {
        self.phase() == phase::FOUND || self.phase() == phase::NONE
    }

    /// The epilogue, where one was found.
    #[inline(always)]
    #[must_use]
    pub fn epilogue(self) -> Option<FunctionEdge> {
        if self.phase() != phase::FOUND {
            return None;
        }
        let return_address_offset = u64::from(self.0 >> POPPED_SHIFT);
        let is_saved = self.0 & POPS_FRAME_POINTER != 0;
        let frame_pointer_offset =
            if is_saved { Some(return_address_offset.wrapping_sub(WORD)) } else { None };
        Some(FunctionEdge { kind: EdgeKind::LikelyEpilogue, return_address_offset, frame_pointer_offset })
    }

    /// The state after the next byte. `is_leaf`: the function runs, and is not waiting for a callee. Only then a return
    /// without pops before it is an epilogue: a function that calls adjusts the stack pointer.
    ///
    /// VERIFIER: by tables and without branches, so that a byte is verified once, and not once for each instruction.
    #[inline(always)]
    #[must_use]
    pub fn next(self, byte: u8, is_leaf: bool) -> Self {
        let condition = usize::from(PREVIOUS_BYTES[usize::from(self.previous())] | u8::from(is_leaf));
        let action = usize::from(ACTIONS[self.phase() as usize % PHASES][usize::from(byte)]);
        let change = CHANGES[condition % CONDITIONS][action % MAX_ACTIONS];
        let byte = u32::from(byte);
        let popped =
            (self.0 & change.kept).wrapping_add(change.popped) | (byte & change.immediate) << change.shift;
        Self(popped | change.phase | byte << PREVIOUS_SHIFT)
    }
}

/// What a byte does to the state, as a number; [`CHANGES`] has the effects.
mod action {
    /// No part of an epilogue.
    pub const OTHER: u8 = 0;
    /// Begins an instruction, or continues one: the next phase follows.
    pub const REX_W: u8 = 1;
    pub const REX_B: u8 = 2;
    pub const LEA: u8 = 3;
    pub const OP_IMM8: u8 = 4;
    pub const OP_IMM32: u8 = 5;
    pub const ADD_RSP_IMM8: u8 = 6;
    pub const ADD_RSP_IMM32: u8 = 7;
    /// The bytes of an immediate.
    pub const IMM8: u8 = 8;
    pub const IMM32_BYTE_1: u8 = 9;
    pub const IMM32_BYTE_2: u8 = 10;
    pub const IMM32_BYTE_3: u8 = 11;
    pub const IMM32_BYTE_4: u8 = 12;
    /// A pop that begins an epilogue, and one that continues it.
    pub const FIRST_POP: u8 = 13;
    pub const POP: u8 = 14;
    pub const FIRST_POP_RBP: u8 = 15;
    pub const POP_RBP: u8 = 16;
    /// Prefixes in an epilogue.
    pub const EPILOGUE_REX: u8 = 17;
    pub const EPILOGUE_FF: u8 = 18;
    /// A return or a jump ends the epilogue.
    pub const END: u8 = 19;
    /// A push: where the function runs, at its start.
    pub const PUSH_AT_START: u8 = 20;
    /// A return without an epilogue.
    pub const RETURN: u8 = 21;
    /// `int3`: the second one is padding.
    pub const INT3: u8 = 22;
    /// `lea rsp, [rbp + n]`: the function has a frame pointer of its own.
    pub const LEA_RSP: u8 = 23;
}

/// Powers of two, so that an index is masked.
const PHASES: usize = 32;
const MAX_ACTIONS: usize = 32;
const CONDITIONS: usize = 8;

/// What decides between two effects of an action: the function is the leaf, and what the previous byte was.
const IS_LEAF: u8 = 1;
const AFTER_OPCODE_WITH_MODRM: u8 = 2;
const AFTER_INT3: u8 = 4;

/// The conditions by the previous byte.
static PREVIOUS_BYTES: [u8; 256] = {
    let mut conditions = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        if has_modrm_byte(byte as u8) {
            conditions[byte] = AFTER_OPCODE_WITH_MODRM;
        }
        byte += 1;
    }
    conditions[INT3 as usize] = AFTER_INT3;
    conditions
};

/// The action of a byte in a phase.
static ACTIONS: [[u8; 256]; PHASES] = {
    let mut actions = [[action::OTHER; 256]; PHASES];
    let mut phase = 0;
    while phase < PHASES {
        let mut byte = 0;
        while byte < 256 {
            actions[phase][byte] = action_of(phase as u32, byte as u8);
            byte += 1;
        }
        phase += 1;
    }
    actions
};

const fn action_of(phase: u32, byte: u8) -> u8 {
    match (phase, byte) {
        (phase::START, 0x50..=0x57) => action::PUSH_AT_START,
        (phase::ADD_RSP_IMM8, 8..=0x78) if byte.is_multiple_of(8) => action::IMM8,
        (phase::ADD_RSP_IMM32, _) => action::IMM32_BYTE_1,
        (phase::IMM32_BYTE_1, _) => action::IMM32_BYTE_2,
        (phase::IMM32_BYTE_2, 0) => action::IMM32_BYTE_3,
        (phase::IMM32_BYTE_3, 0) => action::IMM32_BYTE_4,
        // `ff /4`: an indirect jump.
        (phase::IN_EPILOGUE_FF, _) if byte >> 3 & 7 == 4 => action::END,
        (phase::IN_EPILOGUE, RET | 0xe9) => action::END,
        (phase::IN_EPILOGUE | phase::IN_EPILOGUE_REX, 0xff) => action::EPILOGUE_FF,
        (phase::IN_EPILOGUE, 0x41 | 0x48 | 0x49) => action::EPILOGUE_REX,
        (phase::IN_EPILOGUE_REX, 0x58..=0x5f) => action::POP,
        (phase::REX_B, 0x58..=0x5f) => action::FIRST_POP,
        (phase::IN_EPILOGUE, POP_RBP) => action::POP_RBP,
        (phase::IN_EPILOGUE, 0x58..=0x5f) => action::POP,
        (phase::REX_W | phase::IN_EPILOGUE_REX, 0x83) => action::OP_IMM8,
        (phase::REX_W | phase::IN_EPILOGUE_REX, 0x81) => action::OP_IMM32,
        (phase::REX_W, 0x8d) => action::LEA,
        (phase::OP_IMM8, 0xc4) => action::ADD_RSP_IMM8,
        (phase::OP_IMM32, 0xc4) => action::ADD_RSP_IMM32,
        (phase::LEA, 0x65 | 0xa5) => action::LEA_RSP,
        (phase::ADD_RSP_IMM8 | phase::IMM32_BYTE_2 | phase::IMM32_BYTE_3, _) => action::OTHER,
        (_, POP_RBP) => action::FIRST_POP_RBP,
        (_, 0x58..=0x5f) => action::FIRST_POP,
        (_, RET) => action::RETURN,
        (_, INT3) => action::INT3,
        (_, 0x48) => action::REX_W,
        (_, 0x41) => action::REX_B,
        _ => action::OTHER,
    }
}

/// The effect of an action on the state.
#[derive(Clone, Copy)]
struct Change {
    /// The phase that follows, with [`POPS_FRAME_POINTER`].
    phase: u32,
    /// The bits of what the epilogue has popped so far that are kept.
    kept: u32,
    /// Added to them.
    popped: u32,
    /// The bits of the byte that are part of an immediate, and their position.
    immediate: u32,
    shift: u32,
}

impl Change {
    const fn to(phase: u32) -> Self {
        Self { phase, kept: 0, popped: 0, immediate: 0, shift: 0 }
    }

    const fn keeping(self) -> Self {
        Self { kept: POPS_FRAME_POINTER | 0xffff << POPPED_SHIFT, ..self }
    }

    const fn popping(self) -> Self {
        Self { popped: (WORD as u32) << POPPED_SHIFT, ..self }
    }

    const fn popping_frame_pointer(self) -> Self {
        Self { phase: self.phase | POPS_FRAME_POINTER, ..self.popping() }
    }

    const fn immediate_at(self, shift: u32) -> Self {
        Self { immediate: 0xff, shift, ..self }
    }
}

/// The effects by condition and action.
static CHANGES: [[Change; MAX_ACTIONS]; CONDITIONS] = {
    let mut changes = [[Change::to(phase::OTHER); MAX_ACTIONS]; CONDITIONS];
    let mut condition = 0;
    while condition < CONDITIONS {
        let mut action = 0;
        while action < MAX_ACTIONS {
            changes[condition][action] = change_of(condition as u8, action as u8);
            action += 1;
        }
        condition += 1;
    }
    changes
};

const fn change_of(condition: u8, action: u8) -> Change {
    let is_leaf = condition & IS_LEAF != 0;
    let begins_instruction = condition & AFTER_OPCODE_WITH_MODRM == 0;
    match action {
        action::REX_W => Change::to(phase::REX_W),
        action::REX_B => Change::to(phase::REX_B),
        action::LEA => Change::to(phase::LEA),
        action::OP_IMM8 => Change::to(phase::OP_IMM8),
        action::OP_IMM32 => Change::to(phase::OP_IMM32),
        action::ADD_RSP_IMM8 => Change::to(phase::ADD_RSP_IMM8),
        action::ADD_RSP_IMM32 => Change::to(phase::ADD_RSP_IMM32),
        action::IMM8 => Change::to(phase::IN_EPILOGUE).immediate_at(POPPED_SHIFT),
        action::IMM32_BYTE_1 => Change::to(phase::IMM32_BYTE_1).immediate_at(POPPED_SHIFT),
        action::IMM32_BYTE_2 => Change::to(phase::IMM32_BYTE_2).keeping().immediate_at(POPPED_SHIFT + 8),
        action::IMM32_BYTE_3 => Change::to(phase::IMM32_BYTE_3).keeping(),
        action::IMM32_BYTE_4 => Change::to(phase::IN_EPILOGUE).keeping(),
        action::FIRST_POP => Change::to(phase::IN_EPILOGUE).popping(),
        action::POP => Change::to(phase::IN_EPILOGUE).keeping().popping(),
        action::FIRST_POP_RBP => Change::to(phase::IN_EPILOGUE).popping_frame_pointer(),
        action::POP_RBP => Change::to(phase::IN_EPILOGUE).keeping().popping_frame_pointer(),
        action::EPILOGUE_REX => Change::to(phase::IN_EPILOGUE_REX).keeping(),
        action::EPILOGUE_FF => Change::to(phase::IN_EPILOGUE_FF).keeping(),
        action::END => Change::to(phase::FOUND).keeping(),
        // Registers are pushed at the start of a function, where the return address is at the stack pointer.
        action::PUSH_AT_START if is_leaf => Change::to(phase::FOUND),
        action::RETURN if is_leaf && begins_instruction => Change::to(phase::FOUND),
        // Padding between two functions.
        action::INT3 if condition & AFTER_INT3 != 0 => Change::to(phase::NONE),
        action::LEA_RSP => Change::to(phase::NONE),
        _ => Change::to(phase::OTHER),
    }
}

/// Whether a ModRM byte follows this opcode, for opcodes that compilers emit often: then the next byte is no instruction
/// of its own.
const fn has_modrm_byte(opcode: u8) -> bool {
    matches!(opcode, 0x03 | 0x0b | 0x23 | 0x2b | 0x33 | 0x3b | 0x63 | 0x84 | 0x85 | 0x89 | 0x8b | 0xaf)
        || matches!(opcode, 0xb6 | 0xb7 | 0xbe | 0xbf)
}

/// Whether the bytes before an address, the last in the upper byte, end in a call instruction, so that it can be a return
/// address.
#[inline(always)]
#[must_use]
pub fn ends_in_call(code: u64) -> bool {
    const CALL: u64 = 0xe8;
    const INDIRECT: u64 = 0xff;
    let byte = |from_end: u32| code >> (8 * (8 - from_end)) & 0xff;
    // VERIFIER: sums of differences, which are 0 for an equal byte, instead of a branch for each comparison.
    // `ff /2`: an indirect call, by the length of its operand.
    let indirect = |bytes: u32, modes: u64| byte(bytes) ^ INDIRECT | byte(bytes - 1) & 0xf8 ^ modes;
    let with_sib = |bytes: u32, operand: u64| byte(bytes) ^ INDIRECT | byte(bytes - 1) ^ operand;
    let calls = is_zero(byte(5) ^ CALL)
        | is_zero(indirect(2, 0xd0))
        | is_zero(indirect(2, 0x10))
        | is_zero(indirect(3, 0x50))
        | is_zero(indirect(6, 0x90))
        | is_zero(with_sib(6, 0x15))
        | is_zero(with_sib(3, 0x14))
        | is_zero(with_sib(4, 0x54))
        | is_zero(with_sib(7, 0x94));
    calls != 0
}

/// 1 if a small number is 0, otherwise 0, without a branch.
#[inline(always)]
fn is_zero(number: u64) -> u64 {
    number.wrapping_sub(1) >> 63
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(code: &[u8], is_leaf: bool) -> ScanState {
        code.iter().take(CODE_BYTES).fold(ScanState::default(), |state, byte| {
            if state.is_decided() { state } else { state.next(*byte, is_leaf) }
        })
    }

    fn likely(return_address_offset: u64, frame_pointer_offset: Option<u64>) -> FunctionEdge {
        FunctionEdge { kind: EdgeKind::LikelyEpilogue, return_address_offset, frame_pointer_offset }
    }

    /// The epilogue of a function that has called another.
    fn epilogue(code: &[u8]) -> Option<FunctionEdge> {
        scan(code, false).epilogue()
    }

    /// The offset of the return address, where the function did not save the frame pointer.
    fn offset(code: &[u8]) -> Option<u64> {
        epilogue(code)
            .filter(|found| found.frame_pointer_offset.is_none())
            .map(|found| found.return_address_offset)
    }

    const ADD_RSP_8: [u8; 4] = [0x48, 0x83, 0xc4, 8];
    const ADD_RSP_0X28: [u8; 4] = [0x48, 0x83, 0xc4, 0x28];
    const POP_RBX: [u8; 1] = [0x5b];
    const POP_R15: [u8; 2] = [0x41, 0x5f];
    const POP_RBP: [u8; 1] = [0x5d];
    const RET: [u8; 1] = [0xc3];
    const INC_RAX: [u8; 3] = [0x48, 0xff, 0xc0];

    #[test]
    fn the_return_address_is_above_everything_that_the_epilogue_pops() {
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
    fn a_popped_frame_pointer_was_saved_below_the_return_address() {
        let found =
            |return_address_offset| Some(likely(return_address_offset, Some(return_address_offset - WORD)));
        assert_eq!(epilogue(&[&POP_RBP[..], &RET].concat()), found(8));
        assert_eq!(epilogue(&[&ADD_RSP_8[..], &POP_RBP, &RET].concat()), found(16));
        assert_eq!(epilogue(&[&ADD_RSP_0X28[..], &POP_RBX, &POP_R15, &POP_RBP, &RET].concat()), found(0x40));
        assert_eq!(epilogue(&[&POP_RBP[..], &[0x49, 0xff, 0x23], &ADD_RSP_8, &RET].concat()), found(8));
        let far = [&[0x48, 0x81, 0xc4, 0x60, 2, 0, 0][..], &POP_RBP, &RET].concat();
        assert_eq!(epilogue(&far), found(0x268));
        let too_far = [&[0x48, 0x81, 0xc4, 0x60, 2, 1, 0][..], &RET].concat();
        assert_eq!(epilogue(&too_far), None);
    }

    #[test]
    fn an_epilogue_that_restores_rsp_from_rbp_is_not_used() {
        for address in [&[0x48, 0x8d, 0x65, 0xf0][..], &[0x48, 0x8d, 0xa5, 0, 0xff, 0xff, 0xff]] {
            let code = [address, &POP_RBX, &POP_RBP, &RET].concat();
            assert_eq!((epilogue(&code), scan(&code, true).is_decided()), (None, true));
        }
    }

    #[test]
    fn the_first_epilogue_is_used() {
        let frameless_first = [&ADD_RSP_8[..], &RET, &POP_RBP, &RET].concat();
        assert_eq!(offset(&frameless_first), Some(8));
        let interrupted = [&ADD_RSP_8[..], &INC_RAX, &POP_RBX, &RET].concat();
        assert_eq!(offset(&interrupted), Some(8), "pops before another instruction do not count");
    }

    #[test]
    fn a_return_without_pops_is_an_epilogue_of_a_leaf_only() {
        let code = [&INC_RAX[..], &RET].concat();
        assert_eq!(scan(&code, true).epilogue(), Some(likely(0, None)));
        assert_eq!(offset(&[&code[..], &ADD_RSP_8, &RET].concat()), Some(8));
        let moves = [0x48, 0x8b, 0xc3, 0x03, 0xc3, 0x0f, 0xb6, 0xc3];
        assert_eq!(scan(&moves, true).epilogue(), None, "operands of other instructions");
    }

    #[test]
    fn at_the_start_of_a_function_the_return_address_is_at_the_stack_pointer() {
        for push in [0x50, 0x53, 0x55] {
            let code = [&[push][..], &INC_RAX, &ADD_RSP_8, &POP_RBP, &RET].concat();
            assert_eq!(scan(&code, true).epilogue(), Some(likely(0, None)));
            assert_eq!(epilogue(&code).map(|found| found.return_address_offset), Some(16), "after a call");
            let later = [&INC_RAX[..], &code].concat();
            assert_eq!(scan(&later, true).epilogue().map(|found| found.return_address_offset), Some(16));
        }
    }

    #[test]
    fn the_scan_stops_at_the_padding_behind_a_function() {
        let ends = [&[0xe8, 0, 0, 0, 0, 0xcc, 0xcc][..], &ADD_RSP_8, &RET].concat();
        assert_eq!((epilogue(&ends), scan(&ends, true).is_decided()), (None, true));
        assert_eq!(offset(&[0x90; CODE_BYTES + 8]), None);
        assert_eq!(offset(&[]), None);
    }

    #[test]
    fn stack_adjustments_that_no_frame_has_are_rejected() {
        for by in [0, 4, 0x80, 0xf8] {
            assert_eq!(offset(&[0x48, 0x83, 0xc4, by, 0xc3]), None, "{by}");
        }
    }

    #[test]
    fn arbitrary_code_does_not_panic() {
        let mut state = 1_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as u8
        };
        for _ in 0..10_000 {
            let code: Vec<u8> = (0..CODE_BYTES)
                .map(|_| [0x48, 0x83, 0xc4, 0x41, 0x5d, 0x5b, 0xff, random()][usize::from(random() % 8)])
                .collect();
            assert!(scan(&code, true).epilogue().is_none_or(|found| found.return_address_offset < 1 << 16));
        }
        for code in [0, u64::MAX, 0x00ff_ffff_ffff_ffff] {
            let _ = ends_in_call(code);
        }
    }

    #[test]
    fn every_encoding_of_a_call_is_recognized() {
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
