//! Finds the epilogues of a function by one linear pass over its instructions, for call frame information that does not
//! describe them.
//!
//! An epilogue is the instructions that release the frame (`pop`, `add rsp`, `lea rsp`, `mov rsp, rbp`, `leave`) directly
//! before a `ret`, or before a jump that can be a tail call. At the exit the stack pointer is CFA - 8, so that the frame before
//! each instruction follows from those after it. It is used if it agrees with the frame before the epilogue, which the caller
//! knows otherwise: a wrong start of an instruction or a jump within the function does not lead to a wrong frame.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

use crate::row::{Cfa, Frame, SavedFramePointer};

/// The distance from the stack pointer to the CFA at the exit of a function, bytes.
const CFA_AT_EXIT: i32 = 8;

const WORD_BYTES: i32 = 8;

/// The instructions that one epilogue has at most: a release, and a `pop` of each general register.
const MAX_RELEASES: usize = 17;

/// The end of one path through a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Epilogue {
    /// The instructions that release the frame.
    releases: Vec<(u64, Release)>,
    /// The address of the `ret` or the jump.
    exit: u64,
    /// The address of the next instruction.
    end: u64,
    is_return: bool,
}

/// The effect of an instruction on the stack pointer and the frame pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Release {
    Pop,
    PopFramePointer,
    /// Adds bytes to the stack pointer.
    Add(i32),
    /// Sets the stack pointer to the frame pointer plus bytes.
    ToFramePointer(i32),
    /// Sets the stack pointer to the frame pointer, and pops the frame pointer.
    Leave,
}

/// Finds the epilogues in the code of one function, whose first byte has an address. `each` is called in ascending order.
pub fn for_each_epilogue(code: &[u8], address: u64, mut each: impl FnMut(&Epilogue)) {
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    let mut epilogue = Epilogue { releases: Vec::new(), exit: 0, end: 0, is_return: false };
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        if let Some(release) = Release::of(&instruction) {
            if epilogue.releases.len() == MAX_RELEASES {
                epilogue.releases.clear();
            }
            epilogue.releases.push((instruction.ip(), release));
            continue;
        }
        let is_return = instruction.mnemonic() == Mnemonic::Ret;
        if is_return || is_jump(&instruction) {
            (epilogue.exit, epilogue.end) = (instruction.ip(), instruction.next_ip());
            epilogue.is_return = is_return;
            each(&epilogue);
        }
        epilogue.releases.clear();
    }
}

fn is_jump(instruction: &Instruction) -> bool {
    matches!(instruction.flow_control(), FlowControl::UnconditionalBranch | FlowControl::IndirectBranch)
}

impl Epilogue {
    /// The address of the first instruction that releases the frame, or else of the exit.
    pub fn start(&self) -> u64 {
        self.releases.first().map_or(self.exit, |(address, _)| *address)
    }

    /// The address of the `ret`; `None` where the epilogue ends with a jump.
    pub fn return_address(&self) -> Option<u64> {
        self.is_return.then_some(self.exit)
    }

    /// The address of the instruction behind the exit. It is reached by a jump from elsewhere, and has the frame of the
    /// function.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// The frame after each instruction that releases a part of it, by the address of the next instruction; empty without such
    /// an instruction. `None` if they do not release `before`, the frame at [`start`](Self::start).
    pub fn frames(&self, before: Frame) -> Option<Vec<(u64, Frame)>> {
        let mut from_stack_pointer = CFA_AT_EXIT;
        let mut saved = SavedFramePointer::Same;
        let mut frames = Vec::with_capacity(self.releases.len());
        let mut next = self.exit;
        for (index, (address, release)) in self.releases.iter().enumerate().rev() {
            let cfa = Cfa::StackPointer(from_stack_pointer);
            frames.push((next, Frame { cfa, frame_pointer: saved }));
            next = *address;
            match release {
                Release::Pop => from_stack_pointer += WORD_BYTES,
                Release::PopFramePointer => {
                    from_stack_pointer += WORD_BYTES;
                    saved = saved_at(saved, from_stack_pointer)?;
                }
                Release::Add(bytes) => from_stack_pointer = from_stack_pointer.checked_add(*bytes)?,
                Release::ToFramePointer(_) | Release::Leave if index > 0 => return None,
                Release::ToFramePointer(bytes) => {
                    let cfa = Cfa::FramePointer(from_stack_pointer.checked_add(*bytes)?);
                    return self.agreed(frames, Frame { cfa, frame_pointer: saved }, before);
                }
                Release::Leave => {
                    from_stack_pointer += WORD_BYTES;
                    let frame_pointer = saved_at(saved, from_stack_pointer)?;
                    let cfa = Cfa::FramePointer(from_stack_pointer);
                    return self.agreed(frames, Frame { cfa, frame_pointer }, before);
                }
            }
        }
        let cfa = Cfa::StackPointer(from_stack_pointer);
        self.agreed(frames, Frame { cfa, frame_pointer: saved }, before)
    }

    /// The frames in ascending order, if the frame that they lead to is the one before the epilogue.
    fn agreed(
        &self,
        mut frames: Vec<(u64, Frame)>,
        computed: Frame,
        before: Frame,
    ) -> Option<Vec<(u64, Frame)>> {
        let is_same_cfa = match (computed.cfa, before.cfa) {
            // The CFA is at the frame pointer until the caller's one is popped. Both are the same frame if the place that it is
            // popped from is the one that it was saved to.
            (Cfa::StackPointer(_), Cfa::FramePointer(_)) => {
                matches!(computed.frame_pointer, SavedFramePointer::AtCfa(_))
            }
            (computed, before) => computed == before,
        };
        let is_agreed = is_same_cfa && computed.frame_pointer == before.frame_pointer;
        frames.reverse();
        is_agreed.then_some(frames)
    }
}

/// Where the frame pointer is saved that is popped at this distance from the CFA; `None` if it is popped again afterwards.
fn saved_at(after: SavedFramePointer, from_cfa: i32) -> Option<SavedFramePointer> {
    let offset = i16::try_from(-from_cfa).ok()?;
    (after == SavedFramePointer::Same).then_some(SavedFramePointer::AtCfa(offset))
}

impl Release {
    fn of(instruction: &Instruction) -> Option<Self> {
        let is_of_stack_pointer =
            instruction.op0_kind() == OpKind::Register && instruction.op0_register() == Register::RSP;
        match instruction.mnemonic() {
            Mnemonic::Pop if !is_of_stack_pointer && instruction.op0_kind() == OpKind::Register => {
                match instruction.op0_register() {
                    Register::RBP => Some(Self::PopFramePointer),
                    register => register.is_gpr64().then_some(Self::Pop),
                }
            }
            Mnemonic::Leave => Some(Self::Leave),
            Mnemonic::Add if is_of_stack_pointer => {
                let bytes = immediate(instruction)?;
                (bytes > 0).then_some(Self::Add(bytes))
            }
            Mnemonic::Mov
                if is_of_stack_pointer
                    && instruction.op1_kind() == OpKind::Register
                    && instruction.op1_register() == Register::RBP =>
            {
                Some(Self::ToFramePointer(0))
            }
            Mnemonic::Lea if is_of_stack_pointer && instruction.memory_index() == Register::None => {
                let bytes = i32::try_from(instruction.memory_displacement64().cast_signed()).ok()?;
                match instruction.memory_base() {
                    Register::RBP => Some(Self::ToFramePointer(bytes)),
                    Register::RSP => (bytes > 0).then_some(Self::Add(bytes)),
                    _ => None,
                }
            }
            _ => None,
        }
    }
}

/// The immediate second operand.
fn immediate(instruction: &Instruction) -> Option<i32> {
    match instruction.op1_kind() {
        OpKind::Immediate8to64 | OpKind::Immediate32to64 => {
            i32::try_from(instruction.immediate(1).cast_signed()).ok()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 0x1000;
    const SAVED: SavedFramePointer = SavedFramePointer::AtCfa(-16);

    fn frame(cfa: Cfa, frame_pointer: SavedFramePointer) -> Frame {
        Frame { cfa, frame_pointer }
    }

    fn epilogues(code: &[&[u8]]) -> Vec<Epilogue> {
        let mut found = Vec::new();
        for_each_epilogue(&code.concat(), START, |epilogue| found.push(epilogue.clone()));
        found
    }

    const NOP: &[u8] = &[0x90];
    const ADD_24: &[u8] = &[0x48, 0x83, 0xc4, 24];
    const POP_RBX: &[u8] = &[0x5b];
    const POP_R15: &[u8] = &[0x41, 0x5f];
    const POP_RBP: &[u8] = &[0x5d];
    const LEA_16_BELOW_RBP: &[u8] = &[0x48, 0x8d, 0x65, 0xf0];
    const MOV_RSP_RBP: &[u8] = &[0x48, 0x89, 0xec];
    const LEAVE: &[u8] = &[0xc9];
    const RET: &[u8] = &[0xc3];
    const JUMP: &[u8] = &[0xff, 0xe0];

    #[test]
    fn frames_after_each_release_are_those_of_the_exit_and_what_was_released() {
        let found = epilogues(&[NOP, ADD_24, POP_RBX, POP_R15, POP_RBP, RET, NOP]);
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].start(), found[0].return_address(), found[0].end()),
            (0x1001, Some(0x1009), 0x100a)
        );
        let expected = [
            (0x1005, frame(Cfa::StackPointer(32), SAVED)),
            (0x1006, frame(Cfa::StackPointer(24), SAVED)),
            (0x1008, frame(Cfa::StackPointer(16), SAVED)),
            (0x1009, frame(Cfa::StackPointer(8), SavedFramePointer::Same)),
        ];
        let before = frame(Cfa::StackPointer(56), SAVED);
        assert_eq!(found[0].frames(before).as_deref(), Some(&expected[..]));
        let by_frame_pointer = frame(Cfa::FramePointer(16), SAVED);
        assert_eq!(found[0].frames(by_frame_pointer).as_deref(), Some(&expected[..]));
    }

    #[test]
    fn epilogues_that_release_another_frame_have_no_frames() {
        let found = epilogues(&[ADD_24, POP_RBX, POP_RBP, JUMP]);
        assert_eq!(found[0].return_address(), None);
        assert!(found[0].frames(frame(Cfa::StackPointer(48), SAVED)).is_some());
        for other in [
            frame(Cfa::StackPointer(56), SAVED),
            frame(Cfa::StackPointer(48), SavedFramePointer::Same),
            frame(Cfa::StackPointer(48), SavedFramePointer::AtCfa(-24)),
            frame(Cfa::StackPointer(48), SavedFramePointer::Unknown),
            frame(Cfa::FramePointer(16), SavedFramePointer::AtCfa(-24)),
        ] {
            assert_eq!(found[0].frames(other), None, "{other:?}");
        }
        let twice = epilogues(&[POP_RBP, POP_RBP, RET]);
        assert_eq!(twice[0].frames(frame(Cfa::StackPointer(24), SAVED)), None);
    }

    #[test]
    fn a_frame_is_released_through_the_frame_pointer() {
        let before = frame(Cfa::FramePointer(16), SAVED);
        let frames = |code: &[&[u8]]| epilogues(code)[0].frames(before);
        let after_lea = [
            (0x1004, frame(Cfa::StackPointer(32), SAVED)),
            (0x1005, frame(Cfa::StackPointer(24), SAVED)),
            (0x1007, frame(Cfa::StackPointer(16), SAVED)),
            (0x1008, frame(Cfa::StackPointer(8), SavedFramePointer::Same)),
        ];
        assert_eq!(
            frames(&[LEA_16_BELOW_RBP, POP_RBX, POP_R15, POP_RBP, RET]).as_deref(),
            Some(&after_lea[..])
        );
        assert_eq!(frames(&[LEA_16_BELOW_RBP, POP_RBX, POP_RBP, RET]), None, "one word is left");
        let at_exit = (0x1004, frame(Cfa::StackPointer(8), SavedFramePointer::Same));
        let after_mov = [(0x1003, frame(Cfa::StackPointer(16), SAVED)), at_exit];
        assert_eq!(frames(&[MOV_RSP_RBP, POP_RBP, RET]).as_deref(), Some(&after_mov[..]));
        assert_eq!(frames(&[LEAVE, RET]).unwrap(), [(0x1001, at_exit.1)]);
        assert_eq!(frames(&[ADD_24, LEAVE, RET]), None);
    }

    #[test]
    fn an_exit_without_a_release_leaves_the_frame_as_it_is() {
        let found = epilogues(&[POP_RBX, NOP, RET, POP_RBX, JUMP]);
        assert_eq!(found.iter().map(Epilogue::start).collect::<Vec<_>>(), [0x1002, 0x1003]);
        let at_entry = frame(Cfa::StackPointer(8), SavedFramePointer::Same);
        assert_eq!(found[0].frames(at_entry), Some(Vec::new()));
        assert_eq!(found[0].frames(frame(Cfa::StackPointer(16), SavedFramePointer::Same)), None);
    }

    #[test]
    fn what_is_no_code_has_no_epilogue() {
        assert!(epilogues(&[&[0xff; 32], ADD_24, POP_RBX]).is_empty());
        assert!(epilogues(&[]).is_empty());
        let pops = epilogues(&[&[0x5b; 100], RET]);
        assert!(pops[0].frames(frame(Cfa::StackPointer(808), SavedFramePointer::Same)).is_none());
    }
}
