//! The edges of a function: its prologue and its epilogue, as x86-64 instructions.
//!
//! From an instruction in a prologue or an epilogue, the instructions up to its end say exactly where the return address is,
//! without any unwind information. The BPF program scans the edges of JIT code, one instruction a step.

/// The bytes of an instruction that decide what it does to the frame: the longest has eight.
pub const INSTRUCTION_BYTES: usize = 8;

/// The most instructions of an edge that are scanned: six pushes or pops, and what compilers place between them.
pub const MAX_INSTRUCTIONS: u32 = 16;

const WORD: i32 = 8;

/// Where the caller's registers are at an instruction near an edge, in bytes above the stack pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionEdge {
    /// What is known of it.
    pub kind: EdgeKind,
    /// The slot of the return address.
    pub return_address_offset: u64,
    /// The slot from which the frame pointer will be popped, where it will.
    pub frame_pointer_offset: Option<u64>,
}

/// What is known of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EdgeKind {
    /// The instruction is in the prologue. The function has not set its frame pointer yet: the register is its caller's, and unless
    /// nothing was pushed yet, the slot below the return address has a copy of it.
    Prologue,
    /// The instruction is in the epilogue, or in code without a frame just before it.
    Epilogue,
    /// An epilogue is further on, behind instructions that were not decoded.
    LikelyEpilogue,
}

/// A scan from an instruction to the end of the edge that it is in.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EdgeScan {
    /// The bytes of the instructions so far.
    pub scanned: u32,
    phase: u32,
    /// By how much they raise the stack pointer, bytes.
    height: i32,
    /// The slot to which they push the frame pointer, or from which they pop it, plus 1; 0 where they do not.
    frame_pointer_slot: i32,
}

/// What the instructions so far are.
mod phase {
    /// Neither a push nor a pop.
    pub(super) const START: u32 = 0;
    pub(super) const PROLOGUE: u32 = 1;
    pub(super) const EPILOGUE: u32 = 2;
    pub(super) const PROLOGUE_END: u32 = 3;
    pub(super) const EPILOGUE_END: u32 = 4;
    /// The instruction is at no edge.
    pub(super) const NONE: u32 = 5;
}

/// What an instruction does to the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// It changes neither the stack pointer nor the frame pointer, and the next one follows.
    Nothing,
    Push {
        is_frame_pointer: bool,
    },
    Pop {
        is_frame_pointer: bool,
    },
    /// It raises the stack pointer by so many bytes.
    Raise(i32),
    /// The frame pointer is so many bytes above the stack pointer from here on.
    SetFramePointer(i32),
    Return,
    /// Anything else.
    Other,
}

impl EdgeScan {
    /// Whether no further instruction changes the result.
    #[inline(always)]
    #[must_use]
    pub fn is_decided(&self) -> bool {
        self.phase >= phase::PROLOGUE_END
    }

    /// The edge, once its end was found.
    #[inline(always)]
    #[must_use]
    pub fn edge(&self) -> Option<FunctionEdge> {
        let return_address_offset = u64::try_from(self.height).ok()?;
        let kind = match self.phase {
            phase::PROLOGUE_END => EdgeKind::Prologue,
            phase::EPILOGUE_END => EdgeKind::Epilogue,
            _ => return None,
        };
        let is_popped = kind == EdgeKind::Epilogue && self.frame_pointer_slot > 0;
        let frame_pointer_offset = if is_popped { Some(self.frame_pointer_slot as u64 - 1) } else { None };
        Some(FunctionEdge { kind, return_address_offset, frame_pointer_offset })
    }

    /// Scans the next instruction: its first bytes, the first one lowest. `runs`: the first instruction of the scan is about to run,
    /// and is no return address, to which only an epilogue can be near.
    #[inline(always)]
    pub fn scan(&mut self, code: u64, runs: bool) {
        let (bytes, effect) = decode(code);
        self.scanned += bytes;
        let may_be_prologue = runs && self.phase <= phase::PROLOGUE;
        let may_be_epilogue = self.phase == phase::START || self.phase == phase::EPILOGUE;
        match effect {
            Effect::Nothing => {}
            Effect::Push { is_frame_pointer } if may_be_prologue => {
                self.height -= WORD;
                self.enter(phase::PROLOGUE, is_frame_pointer, self.height);
            }
            Effect::Raise(by) if may_be_prologue && by < 0 => {
                self.height += by;
                self.enter(phase::PROLOGUE, false, 0);
            }
            Effect::SetFramePointer(above) if may_be_prologue => self.end_prologue(above),
            Effect::Pop { is_frame_pointer } if may_be_epilogue => {
                self.enter(phase::EPILOGUE, is_frame_pointer, self.height);
                self.height += WORD;
            }
            Effect::Raise(by) if may_be_epilogue && by > 0 => {
                self.height += by;
                self.enter(phase::EPILOGUE, false, 0);
            }
            Effect::Return if may_be_epilogue => self.phase = phase::EPILOGUE_END,
            _ => self.phase = phase::NONE,
        }
    }

    #[inline(always)]
    fn enter(&mut self, phase: u32, has_frame_pointer: bool, slot: i32) {
        self.phase = phase;
        if has_frame_pointer {
            self.frame_pointer_slot = slot + 1;
        }
    }

    /// The frame pointer is set to the slot of the caller's, which is below the return address. Where the function pushes it later
    /// than at the scanned instruction, this is the slot of the push.
    #[inline(always)]
    fn end_prologue(&mut self, above: i32) {
        let slot = self.height + above;
        let is_pushed_in_scan = self.frame_pointer_slot != 0;
        let is_valid = if is_pushed_in_scan { self.frame_pointer_slot == slot + 1 } else { slot >= 0 };
        self.height = slot + WORD;
        self.phase = if is_valid { phase::PROLOGUE_END } else { phase::NONE };
    }
}

/// The length of an instruction, and its effect on the frame (Intel SDM, volume 2, appendix A, opcode maps).
#[inline(always)]
fn decode(code: u64) -> (u32, Effect) {
    let byte = |index: u32| (code >> (8 * index)) as u8;
    let immediate = |index: u32| (code >> (8 * index)) as i32;
    let op = |prefixes: u32| (byte(prefixes), byte(prefixes + 1), byte(prefixes + 2));
    let rex = byte(0) & 0xf0 == 0x40;
    let prefixes = rex as u32;
    let is_extended = rex && byte(0) & 1 != 0;
    match (rex && byte(0) & 8 != 0, op(prefixes)) {
        (_, (register @ 0x50..=0x57, ..)) => {
            (prefixes + 1, Effect::Push { is_frame_pointer: register == 0x55 && !is_extended })
        }
        (_, (register @ 0x58..=0x5f, ..)) if register != 0x5c || is_extended => {
            (prefixes + 1, Effect::Pop { is_frame_pointer: register == 0x5d && !is_extended })
        }
        (_, (0xc3, ..)) | (false, (0xf3, 0xc3, _)) => (prefixes + 1, Effect::Return),
        (false, (0x90, ..)) if !rex => (1, Effect::Nothing),
        // `endbr64`.
        (false, (0xf3, 0x0f, 0x1e)) if byte(3) == 0xfa => (4, Effect::Nothing),
        // `vzeroupper`.
        (false, (0xc5, 0xf8, 0x77)) => (3, Effect::Nothing),
        // `add rsp, n` and `sub rsp, n`.
        (true, (0x83, 0xc4, _)) if byte(0) == 0x48 => raise(4, i32::from(byte(3).cast_signed())),
        (true, (0x83, 0xec, _)) if byte(0) == 0x48 => raise(4, -i32::from(byte(3).cast_signed())),
        (true, (0x81, 0xc4, _)) if byte(0) == 0x48 => raise(7, immediate(3)),
        (true, (0x81, 0xec, _)) if byte(0) == 0x48 => raise(7, immediate(3).wrapping_neg()),
        // `mov rbp, rsp` and `lea rbp, [rsp + n]`.
        (true, (0x89, 0xe5, _) | (0x8b, 0xec, _)) if byte(0) == 0x48 => (3, Effect::SetFramePointer(0)),
        (true, (0x8d, 0x6c, 0x24)) if byte(0) == 0x48 => {
            set_frame_pointer(5, i32::from(byte(4).cast_signed()))
        }
        (true, (0x8d, 0xac, 0x24)) if byte(0) == 0x48 => set_frame_pointer(8, immediate(4)),
        (_, (opcode, operands, _)) if is_move_of_registers(opcode, operands) => {
            (prefixes + 2, Effect::Nothing)
        }
        _ => (0, Effect::Other),
    }
}

/// No frame is larger, and a sum of these does not overflow.
const MAX_FRAME_BYTES: i32 = 1 << 15;

#[inline(always)]
fn raise(bytes: u32, by: i32) -> (u32, Effect) {
    let is_possible = by % WORD == 0 && by > -MAX_FRAME_BYTES && by < MAX_FRAME_BYTES;
    (bytes, if is_possible { Effect::Raise(by) } else { Effect::Other })
}

#[inline(always)]
fn set_frame_pointer(bytes: u32, above: i32) -> (u32, Effect) {
    let is_possible = above % WORD == 0 && (0..MAX_FRAME_BYTES).contains(&above);
    (bytes, if is_possible { Effect::SetFramePointer(above) } else { Effect::Other })
}

/// `mov`, `xor` or `test` of two registers that are neither the stack pointer nor the frame pointer. `r12` and `r13`, which have the
/// same numbers, are left out as well.
#[inline(always)]
fn is_move_of_registers(opcode: u8, operands: u8) -> bool {
    let is_other = |register: u8| register & 7 != 4 && register & 7 != 5;
    let is_move = matches!(opcode, 0x31 | 0x33 | 0x85 | 0x89 | 0x8b);
    is_move && operands >= 0xc0 && is_other(operands) && is_other(operands >> 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(code: &[u8], runs: bool) -> Option<FunctionEdge> {
        let mut scan = EdgeScan::default();
        for _ in 0..MAX_INSTRUCTIONS {
            let mut bytes = [0xcc; INSTRUCTION_BYTES];
            let rest = code.get(scan.scanned as usize..).unwrap_or_default();
            let count = rest.len().min(INSTRUCTION_BYTES);
            bytes[..count].copy_from_slice(&rest[..count]);
            scan.scan(u64::from_le_bytes(bytes), runs);
            if scan.is_decided() {
                break;
            }
        }
        scan.edge()
    }

    fn prologue(return_address_offset: u64) -> Option<FunctionEdge> {
        Some(FunctionEdge { kind: EdgeKind::Prologue, return_address_offset, frame_pointer_offset: None })
    }

    fn epilogue(return_address_offset: u64, frame_pointer_offset: Option<u64>) -> Option<FunctionEdge> {
        Some(FunctionEdge { kind: EdgeKind::Epilogue, return_address_offset, frame_pointer_offset })
    }

    const ENDBR: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];
    const PUSH_RBP: &[u8] = &[0x55];
    const PUSH_R15: &[u8] = &[0x41, 0x57];
    const PUSH_RBX: &[u8] = &[0x53];
    const MOV_RBP_RSP: &[u8] = &[0x48, 0x89, 0xe5];
    const SUB_RSP_0X18: &[u8] = &[0x48, 0x83, 0xec, 0x18];
    const SUB_RSP_0X1000: &[u8] = &[0x48, 0x81, 0xec, 0, 0x10, 0, 0];
    const ADD_RSP_8: &[u8] = &[0x48, 0x83, 0xc4, 8];
    const POP_RBP: &[u8] = &[0x5d];
    const POP_RBX: &[u8] = &[0x5b];
    const POP_R14: &[u8] = &[0x41, 0x5e];
    const MOV_EAX_EBX: &[u8] = &[0x89, 0xd8];
    const VZEROUPPER: &[u8] = &[0xc5, 0xf8, 0x77];
    const RET: &[u8] = &[0xc3];

    /// The loop `$s += ($i * 7) % 13`, compiled by PHP 8.2 (`opcache.jit=tracing`): the frame is that of the interpreter, and what
    /// leaves the loop jumps.
    #[test]
    fn a_trace_of_php_has_no_edge_that_leads_to_a_return_address() {
        const LOOP: [u8; 99] = [
            0x4d, 0x8b, 0x46, 0x50, 0x49, 0x8b, 0x7e, 0x70, 0x41, 0x80, 0x7e, 0x68, 0x04, 0x0f, 0x85, 0x3f,
            0xff, 0xff, 0xff, 0x49, 0x8b, 0x76, 0x60, 0x4c, 0x39, 0xc7, 0x0f, 0x8d, 0x4a, 0x02, 0x00, 0x00,
            0x49, 0x89, 0xf9, 0x4d, 0x6b, 0xc9, 0x07, 0x0f, 0x80, 0x2d, 0xff, 0xff, 0xff, 0x4c, 0x89, 0xc8,
            0x48, 0xc7, 0xc1, 0x0d, 0x00, 0x00, 0x00, 0x48, 0x99, 0x48, 0xf7, 0xf9, 0x48, 0x89, 0xd1, 0x48,
            0x89, 0xf0, 0x48, 0x01, 0xc8, 0x70, 0x1c, 0x49, 0x89, 0x46, 0x60, 0x48, 0x83, 0xc7, 0x01, 0x48,
            0xb8, 0x82, 0xb0, 0xf4, 0x82, 0x57, 0x55, 0x00, 0x00, 0x80, 0x38, 0x00, 0x74, 0xaa, 0xe9, 0xfb,
            0xfe, 0xff, 0xff,
        ];
        const INSTRUCTIONS: [usize; 24] =
            [0, 4, 8, 13, 19, 23, 26, 32, 35, 39, 45, 48, 55, 57, 60, 63, 66, 69, 71, 75, 79, 89, 92, 94];
        for start in INSTRUCTIONS {
            let found = [true, false].map(|runs| edge(&LOOP[start..], runs));
            assert_eq!(found, [None; 2], "from byte {start} on");
        }
    }

    /// Each instruction of a prologue that saves registers below the frame pointer, as .NET's do.
    #[test]
    fn each_instruction_of_a_prologue_leads_to_the_return_address() {
        let lea_rbp = &[0x48, 0x8d, 0x6c, 0x24, 0x28][..];
        let instructions = [ENDBR, PUSH_RBP, PUSH_R15, PUSH_RBX, SUB_RSP_0X18, VZEROUPPER, lea_rbp];
        let heights = [0, 0, 8, 16, 24, 48, 48];
        for (first, height) in heights.into_iter().enumerate() {
            let code = instructions[first..].concat();
            assert_eq!(edge(&code, true), prologue(height), "from instruction {first} on");
            assert_eq!(edge(&code, false), None, "no call is in a prologue");
        }
        let far = [PUSH_RBP, SUB_RSP_0X1000, &[0x48, 0x8d, 0xac, 0x24, 0, 0x10, 0, 0]].concat();
        assert_eq!(edge(&far, true), prologue(0));
        assert_eq!(edge(&far[1..], true), prologue(8));
        assert_eq!(edge(&[PUSH_RBP, MOV_RBP_RSP].concat(), true), prologue(0));
        assert_eq!(edge(&[0x48, 0x8b, 0xec], true), prologue(8));
    }

    #[test]
    fn a_frame_pointer_that_is_set_to_another_place_than_its_slot_is_no_prologue() {
        assert_eq!(edge(&[PUSH_RBP, PUSH_RBX, MOV_RBP_RSP].concat(), true), None);
        // An address below the stack pointer at the instruction.
        assert_eq!(edge(&[PUSH_RBX, MOV_RBP_RSP].concat(), true), None);
        assert_eq!(edge(&[PUSH_RBP, RET].concat(), true), None);
        assert_eq!(edge(&[PUSH_RBP, ADD_RSP_8, MOV_RBP_RSP].concat(), true), None);
    }

    #[test]
    fn each_instruction_of_an_epilogue_leads_to_the_return_address() {
        let code = [MOV_EAX_EBX, ADD_RSP_8, POP_RBX, POP_R14, POP_RBP, RET].concat();
        for runs in [false, true] {
            assert_eq!(edge(&code, runs), epilogue(32, Some(24)));
            assert_eq!(edge(&code[2..], runs), epilogue(32, Some(24)));
            assert_eq!(edge(&code[6..], runs), epilogue(24, Some(16)));
            assert_eq!(edge(&code[9..], runs), epilogue(8, Some(0)));
            assert_eq!(edge(RET, runs), epilogue(0, None));
            assert_eq!(edge(&[0xf3, 0xc3], runs), epilogue(0, None));
            assert_eq!(edge(&[ADD_RSP_8, RET].concat(), runs), epilogue(8, None));
            assert_eq!(edge(&[0x48, 0x81, 0xc4, 0, 1, 0, 0, 0xc3], runs), epilogue(0x100, None));
        }
    }

    /// A jump behind an adjusted stack pointer can stay in the function.
    #[test]
    fn other_instructions_are_at_no_edge() {
        for code in [
            &[0xe9, 0, 0, 0, 0][..],
            &[0x48, 0x83, 0xc4, 8, 0xe9, 0, 0, 0, 0],
            &[0xc9, 0xc3],
            &[0x48, 0x89, 0xec, 0x5d, 0xc3],
            &[0x48, 0x8d, 0x65, 0xf0, 0x5b, 0x5d, 0xc3],
            &[0x5c, 0xc3],
            &[0x48, 0x83, 0xc4, 4, 0xc3],
            &[0x48, 0x81, 0xc4, 0, 0, 1, 0, 0xc3],
            &[0x89, 0xec, 0xc3],
            &[0xc2, 8, 0],
            &[],
        ] {
            assert_eq!((edge(code, true), edge(code, false)), (None, None), "{code:x?}");
        }
        let long = [0x90; MAX_INSTRUCTIONS as usize + 1];
        assert_eq!(edge(&long, true), None);
    }
}
