//! Parses `UNWIND_INFO`: the effect of each instruction of a prologue on the frame.
//!
//! Sources: Microsoft, "x64 exception handling"; dotnet/runtime, `src/coreclr/inc/win64unwind.h`, for
//! `UWOP_SET_FPREG_LARGE`. Registers have the numbers of Windows, although the code follows the System V calling convention.

use profiler_binary_reader::{ByteCursor, ParseError};
use profiler_common::unwind::{CfaRule, FramePointerRule, Rule};

/// The length of a chain of `UNWIND_INFO`. Windows has the same limit.
const MAX_CHAIN_LENGTH: usize = 32;

/// The register number of `rbp`.
const RBP: u8 = 5;

/// The size of a stack slot.
const WORD_BYTES: u32 = 8;

// Unwind operation codes (`UNWIND_OP_CODES`).
const UWOP_PUSH_NONVOL: u8 = 0;
const UWOP_ALLOC_LARGE: u8 = 1;
const UWOP_ALLOC_SMALL: u8 = 2;
const UWOP_SET_FPREG: u8 = 3;
const UWOP_SAVE_NONVOL: u8 = 4;
const UWOP_SAVE_NONVOL_FAR: u8 = 5;
const UWOP_SAVE_XMM128: u8 = 8;
const UWOP_SAVE_XMM128_FAR: u8 = 9;
const UWOP_SET_FPREG_LARGE: u8 = 11;

/// The part of an image that contains all `UNWIND_INFO`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct UnwindInfoSection {
    /// The address of the first byte in the image (RVA).
    pub(crate) address: u32,
    pub(crate) bytes: Vec<u8>,
}

/// The prologue of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Prologue {
    /// The offset in the function from which each frame is valid, in ascending order from 0, and the frame.
    pub(crate) frames: Vec<(u8, Frame)>,
    /// The registers that are pushed, in order.
    pub(crate) pushed: Vec<u8>,
    /// Whether stack is allocated otherwise.
    pub(crate) allocates: bool,
    /// Whether a register is pushed after an allocation. The epilogue is then not the reverse of the prologue.
    pub(crate) pushes_after_allocation: bool,
}

/// The frame of a function at one instruction. All numbers are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// The distance from the stack pointer up to the CFA.
    pub(crate) size: u32,
    /// The distance from the caller's frame pointer on the stack up to the CFA.
    pub(crate) saved_frame_pointer: Option<u32>,
    /// The distance from the frame pointer up to the CFA, in functions that set a frame pointer.
    pub(crate) frame_pointer_to_cfa: Option<u32>,
}

impl Frame {
    pub(crate) const AT_ENTRY: Self =
        Self { size: WORD_BYTES, saved_frame_pointer: None, frame_pointer_to_cfa: None };

    /// The unwind rule; `None` when the BPF program has no rule for it.
    pub(crate) fn rule(self) -> Option<Rule> {
        let (cfa, cfa_offset) = match self.frame_pointer_to_cfa {
            Some(bytes) => (CfaRule::FramePointer, bytes),
            None => (CfaRule::StackPointer, self.size),
        };
        let (frame_pointer, frame_pointer_offset) = match self.saved_frame_pointer {
            Some(below) => (FramePointerRule::AtCfa, i16::try_from(below).ok()?.checked_neg()?),
            None => (FramePointerRule::Same, 0),
        };
        Some(Rule {
            cfa: cfa as u8,
            cfa_offset: cfa_offset.try_into().ok()?,
            frame_pointer: frame_pointer as u8,
            frame_pointer_offset,
            return_address_offset: -8,
            ..Rule::default()
        })
    }
}

/// The effect of one unwind operation.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Push(u8),
    Allocate(u32),
    /// The frame pointer is set to this distance above the stack pointer.
    SetFramePointer(u32),
    /// A register is stored at this distance above the stack pointer.
    Save(u8, u32),
}

impl UnwindInfoSection {
    /// Parses the `UNWIND_INFO` at an address of the image.
    pub(crate) fn prologue(&self, address: u32) -> Result<Prologue, ParseError> {
        let mut chain = vec![self.read(address)?];
        while let Some(next) = chain.last().and_then(|info| info.chained) {
            if chain.len() >= MAX_CHAIN_LENGTH {
                return Err(ParseError::TooLarge);
            }
            chain.push(self.read(next)?);
        }
        let own = chain.remove(0);
        let mut prologue = Prologue::default();
        let mut frame = Frame::AT_ENTRY;
        // The prologues of chained functions were executed before.
        for info in chain.iter().rev() {
            info.operations.iter().try_for_each(|(_, operation)| prologue.apply(&mut frame, *operation))?;
        }
        prologue.frames.push((0, frame));
        for (end, operation) in own.operations {
            if prologue.frames.last().is_some_and(|(before, _)| *before > end) {
                return Err(ParseError::Malformed);
            }
            prologue.apply(&mut frame, operation)?;
            // One instruction can have several operations.
            prologue.frames.pop_if(|(before, _)| *before == end);
            prologue.frames.push((end, frame));
        }
        Ok(prologue)
    }

    fn read(&self, address: u32) -> Result<UnwindInfo, ParseError> {
        let offset = address.checked_sub(self.address).ok_or(ParseError::Malformed)?;
        let mut fields = ByteCursor::new(&self.bytes, offset as usize);
        UnwindInfo::read(&mut fields)
    }
}

/// One `UNWIND_INFO`.
struct UnwindInfo {
    /// The operations in the order of execution, each with the offset in the function behind its instruction.
    operations: Vec<(u8, Operation)>,
    /// The address of the chained `UNWIND_INFO`, whose operations were executed before.
    chained: Option<u32>,
}

impl UnwindInfo {
    fn read(fields: &mut ByteCursor<'_>) -> Result<Self, ParseError> {
        const VERSION: u8 = 1;
        const UNW_FLAG_CHAININFO: u8 = 4 << 3;
        let [version_and_flags, _prologue_bytes, slots, frame] = fields.array()?;
        if version_and_flags & 7 != VERSION {
            return Err(ParseError::Malformed);
        }
        let codes = fields.position();
        let end = codes + 2 * usize::from(slots);
        let mut operations = Vec::with_capacity(slots.into());
        while fields.position() < end {
            let offset = fields.u8()?;
            if let Some(operation) = read_operation(fields, frame)? {
                operations.push((offset, operation));
            }
        }
        if fields.position() != end {
            return Err(ParseError::Malformed);
        }
        // The operations are stored in reverse order.
        operations.reverse();
        let chained = if version_and_flags & UNW_FLAG_CHAININFO == 0 {
            None
        } else {
            // After an even number of slots follows the `RUNTIME_FUNCTION`: start, end, `UNWIND_INFO`.
            fields.skip(2 * usize::from(slots % 2) + 8);
            Some(fields.u32()?)
        };
        Ok(Self { operations, chained })
    }
}

/// Reads one operation; `None` for one that does not affect the frame. `frame` is the field of the frame register (low 4
/// bits) and its offset in units of 16 bytes (high 4 bits).
fn read_operation(fields: &mut ByteCursor<'_>, frame: u8) -> Result<Option<Operation>, ParseError> {
    let [code] = fields.array()?;
    let (code, information) = (code & 15, code >> 4);
    let set_frame_pointer = |bytes: u32| {
        if frame & 15 == RBP {
            Ok(Some(Operation::SetFramePointer(bytes)))
        } else {
            Err(ParseError::Malformed)
        }
    };
    let words = |count: u32| count.checked_mul(WORD_BYTES).ok_or(ParseError::Malformed);
    match code {
        UWOP_PUSH_NONVOL => Ok(Some(Operation::Push(information))),
        UWOP_ALLOC_LARGE if information == 0 => Ok(Some(Operation::Allocate(words(fields.u16()?.into())?))),
        UWOP_ALLOC_LARGE => Ok(Some(Operation::Allocate(fields.u32()?))),
        UWOP_ALLOC_SMALL => Ok(Some(Operation::Allocate(words(u32::from(information) + 1)?))),
        UWOP_SET_FPREG => set_frame_pointer(u32::from(frame >> 4) * 16),
        UWOP_SET_FPREG_LARGE => {
            set_frame_pointer(fields.u32()?.checked_mul(16).ok_or(ParseError::Malformed)?)
        }
        UWOP_SAVE_NONVOL => Ok(Some(Operation::Save(information, words(fields.u16()?.into())?))),
        UWOP_SAVE_NONVOL_FAR => Ok(Some(Operation::Save(information, fields.u32()?))),
        UWOP_SAVE_XMM128 => fields.u16().map(|_| None),
        UWOP_SAVE_XMM128_FAR => fields.u32().map(|_| None),
        _ => Err(ParseError::Malformed),
    }
}

impl Prologue {
    fn apply(&mut self, frame: &mut Frame, operation: Operation) -> Result<(), ParseError> {
        let grown = |by: u32| frame.size.checked_add(by).ok_or(ParseError::Malformed);
        match operation {
            Operation::Push(register) => {
                frame.size = grown(WORD_BYTES)?;
                if register == RBP {
                    frame.saved_frame_pointer = Some(frame.size);
                }
                self.pushes_after_allocation |= self.allocates;
                self.pushed.push(register);
            }
            Operation::Allocate(bytes) => {
                frame.size = grown(bytes)?;
                self.allocates = true;
            }
            Operation::SetFramePointer(above) => {
                frame.frame_pointer_to_cfa =
                    Some(frame.size.checked_sub(above).ok_or(ParseError::Malformed)?);
            }
            Operation::Save(RBP, above) => {
                frame.saved_frame_pointer = Some(frame.size.checked_sub(above).ok_or(ParseError::Malformed)?);
            }
            Operation::Save(..) => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_cfi::{x86_64_rule, x86_64_rule_with_frame_pointer};

    const ADDRESS: u32 = 0x1000;

    /// Parses an `UNWIND_INFO` with these flags, frame register field and slots, followed by `tail`.
    fn parse(flags: u8, frame: u8, slots: &[[u8; 2]], tail: &[u8]) -> Result<Prologue, ParseError> {
        let header = [1 | flags << 3, 0, u8::try_from(slots.len()).unwrap(), frame];
        let bytes = [&header, &slots.concat()[..], tail].concat();
        UnwindInfoSection { address: ADDRESS, bytes }.prologue(ADDRESS)
    }

    fn prologue(slots: &[[u8; 2]]) -> Prologue {
        parse(3, 0, slots, &[]).unwrap()
    }

    fn rules(prologue: &Prologue) -> Vec<(u8, Rule)> {
        prologue.frames.iter().map(|(offset, frame)| (*offset, frame.rule().unwrap())).collect()
    }

    const ENTRY: (u8, Rule) = (0, x86_64_rule(CfaRule::StackPointer, 8));

    #[test]
    fn a_function_without_a_prologue_has_the_frame_of_its_entry() {
        let leaf = prologue(&[]);
        assert_eq!(rules(&leaf), [ENTRY]);
        assert!(leaf.pushed.is_empty() && !leaf.allocates);
    }

    #[test]
    fn each_instruction_of_a_prologue_changes_the_frame() {
        // push rbp; push r15; push rbx; sub rsp, 24
        let framed = prologue(&[[8, 0x22], [4, 0x30], [3, 0xf0], [1, 0x50]]);
        let expected =
            |size| x86_64_rule_with_frame_pointer(CfaRule::StackPointer, size, FramePointerRule::AtCfa, -16);
        assert_eq!(
            rules(&framed),
            [ENTRY, (1, expected(16)), (3, expected(24)), (4, expected(32)), (8, expected(56))]
        );
        assert_eq!(
            (&framed.pushed[..], framed.allocates, framed.pushes_after_allocation),
            (&[5, 15, 3][..], true, false)
        );
    }

    #[test]
    fn the_size_of_large_frames_is_in_words_or_in_bytes() {
        assert_eq!(prologue(&[[7, 0x01], [0x00, 0x10]]).frames[1].1.size, 8 + 0x1000 * 8);
        assert_eq!(prologue(&[[7, 0x11], [0x10, 0], [1, 0]]).frames[1].1.size, 8 + 0x1_0010);
    }

    #[test]
    fn the_cfa_of_a_function_with_a_frame_pointer_is_relative_to_it() {
        // push rbp; sub rsp, 48; lea rbp, [rsp + 32]
        let slots = [[10, 0x03], [5, 0x52], [1, 0x50]];
        let near = parse(3, 0x25, &slots, &[]).unwrap();
        let rule = near.frames.last().unwrap().1.rule().unwrap();
        assert_eq!(
            rule,
            x86_64_rule_with_frame_pointer(CfaRule::FramePointer, 32, FramePointerRule::AtCfa, -16)
        );
        let far = parse(3, 0x05, &[[10, 0x0b], [2, 0], [0, 0], [5, 0x52], [1, 0x50]], &[]).unwrap();
        assert_eq!(far.frames, near.frames);
        assert_eq!(parse(3, 0x23, &slots, &[]), Err(ParseError::Malformed), "by another register");
        assert_eq!(parse(3, 0xf5, &slots, &[]), Err(ParseError::Malformed), "above the frame");
    }

    #[test]
    fn a_frame_pointer_stored_by_mov_is_found() {
        // sub rsp, 40; mov [rsp + 16], rbp; mov [rsp + 24], rbx; movaps [rsp], xmm6
        let slots = [[14, 0x68], [0, 0], [9, 0x34], [3, 0], [8, 0x54], [2, 0], [4, 0x42]];
        let stored = prologue(&slots);
        let rule = stored.frames.last().unwrap().1.rule().unwrap();
        assert_eq!(
            rule,
            x86_64_rule_with_frame_pointer(CfaRule::StackPointer, 48, FramePointerRule::AtCfa, -32)
        );
    }

    #[test]
    fn a_chained_unwind_info_begins_with_the_whole_frame_of_its_parent() {
        // push rbx, in a function whose parent pushed rbp: one slot, one slot of padding, then the parent's function.
        let own = [1 | 4 << 3, 0, 1, 0, 1, 0x30, 0, 0];
        let parent = ADDRESS + 20;
        let function = [[0; 4], [0; 4], parent.to_le_bytes()].concat();
        let parent_info = [1, 0, 1, 0, 1, 0x50];
        let section = |bytes| UnwindInfoSection { address: ADDRESS, bytes };
        let bytes = [&own, &function[..], &parent_info].concat();
        let chained = section(bytes).prologue(ADDRESS).unwrap();
        assert_eq!(chained.pushed, [5, 3]);
        let sizes: Vec<_> = chained.frames.iter().map(|(offset, frame)| (*offset, frame.size)).collect();
        assert_eq!(sizes, [(0, 16), (1, 24)]);
        let itself = [[0; 4], [0; 4], ADDRESS.to_le_bytes()].concat();
        let cyclic = section([&own, &itself[..]].concat());
        assert_eq!(cyclic.prologue(ADDRESS), Err(ParseError::TooLarge));
    }

    #[test]
    fn contradictory_unwind_info_is_malformed() {
        for (case, slots) in [
            ("an unknown code", &[[1, 0x06]][..]),
            ("a truncated code", &[[1, 0x01]]),
            ("instructions out of order", &[[1, 0x50], [3, 0x30]]),
        ] {
            assert_eq!(parse(3, 0, slots, &[0; 8]), Err(ParseError::Malformed), "{case}");
        }
        let other_version = UnwindInfoSection { address: 0, bytes: vec![2, 0, 0, 0] };
        assert_eq!(other_version.prologue(0), Err(ParseError::Malformed));
        assert_eq!(other_version.prologue(u32::MAX), Err(ParseError::Malformed));
        let later = UnwindInfoSection { address: 9, ..other_version };
        assert_eq!(later.prologue(8), Err(ParseError::Malformed));
    }

    #[test]
    fn sizes_beyond_the_range_of_a_rule_have_no_rule() {
        let huge = prologue(&[[7, 0x11], [0, 0], [0, 0xf0]]);
        assert_eq!(huge.frames[1].1.rule(), None);
        let overflow = [[8, 0x11], [0xff, 0xff], [0xff, 0xff], [7, 0x11], [0, 0], [0, 0xf0]];
        assert_eq!(parse(3, 0, &overflow, &[]), Err(ParseError::Malformed));
        let far_away = [[9, 0x50], [7, 0x11], [0, 0], [1, 0]];
        assert_eq!(prologue(&far_away).frames[2].1.rule(), None);
    }
}
