//! What an image states of a function's frame (`UNWIND_INFO`): what each instruction of its prologue does to the stack.
//!
//! Source: Microsoft, "x64 exception handling"; dotnet/runtime, `src/coreclr/inc/win64unwind.h`, for frame pointers far
//! above the stack pointer. The registers have Windows' numbers, the code calls as System V's does.

use profiler_common::unwind::{CfaRule, FramePointerRule, Rule};

use profiler_binary_reader::{ByteCursor, ParseError};

/// Descriptions that continue another one. Windows ends at as many.
const MAX_CHAIN: usize = 32;

const FRAME_POINTER: u8 = 5;
const WORD: u32 = 8;

/// What the codes of one machine instruction are, by their number.
const PUSH: u8 = 0;
const ALLOCATE_LARGE: u8 = 1;
const ALLOCATE_SMALL: u8 = 2;
const SET_FRAME_POINTER: u8 = 3;
const SAVE: u8 = 4;
const SAVE_FAR: u8 = 5;
const SAVE_VECTOR: u8 = 8;
const SAVE_VECTOR_FAR: u8 = 9;
const SET_FRAME_POINTER_FAR: u8 = 11;

/// The bytes of an image that all descriptions are in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Descriptions {
    /// Where they begin in the image.
    pub(super) address: u32,
    pub(super) bytes: Vec<u8>,
}

/// How a function builds its frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Prologue {
    /// The frame from each offset in the function on, the first one at 0.
    pub(super) frames: Vec<(u8, Frame)>,
    /// The registers that it pushes, in this order, before it allocates anything.
    pub(super) pushed: Vec<u8>,
    /// Whether it allocates more.
    pub(super) allocates: bool,
    /// It pushes again after that: what takes its frame down is not the same backwards.
    pub(super) is_mixed: bool,
}

/// The frame of a function at one of its instructions. All numbers are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// From the stack pointer up to the canonical frame address.
    pub(super) size: u32,
    /// Where the caller's frame pointer is, below the canonical frame address.
    pub(super) saved_frame_pointer: Option<u32>,
    /// From the frame pointer up to the canonical frame address, where the stack pointer may move.
    pub(super) above_frame_pointer: Option<u32>,
}

impl Frame {
    pub(super) const AT_ENTRY: Self =
        Self { size: WORD, saved_frame_pointer: None, above_frame_pointer: None };

    /// As the kernel side reads it.
    pub(super) fn rule(self) -> Option<Rule> {
        let (cfa, cfa_offset) = match self.above_frame_pointer {
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

/// One step of a prologue.
#[derive(Clone, Copy, Debug)]
enum Step {
    Push(u8),
    Allocate(u32),
    /// The frame pointer points so far above the stack pointer.
    SetFramePointer(u32),
    /// A register is stored so far above the stack pointer.
    Save(u8, u32),
}

impl Descriptions {
    /// What the description at an address of the image says.
    pub(super) fn prologue(&self, address: u32) -> Result<Prologue, ParseError> {
        let mut chain = vec![self.read(address)?];
        while let Some(next) = chain.last().and_then(|description| description.continues) {
            if chain.len() >= MAX_CHAIN {
                return Err(ParseError::TooLarge);
            }
            chain.push(self.read(next)?);
        }
        let own = chain.remove(0);
        let mut prologue = Prologue::default();
        let mut frame = Frame::AT_ENTRY;
        // What it continues has run.
        for description in chain.iter().rev() {
            description.steps.iter().try_for_each(|(_, step)| prologue.apply(&mut frame, *step))?;
        }
        prologue.frames.push((0, frame));
        for (end, step) in own.steps {
            if prologue.frames.last().is_some_and(|(before, _)| *before > end) {
                return Err(ParseError::Malformed);
            }
            prologue.apply(&mut frame, step)?;
            // Several steps can be one instruction.
            prologue.frames.pop_if(|(before, _)| *before == end);
            prologue.frames.push((end, frame));
        }
        Ok(prologue)
    }

    fn read(&self, address: u32) -> Result<Description, ParseError> {
        let at = address.checked_sub(self.address).ok_or(ParseError::Malformed)?;
        let mut fields = ByteCursor::at(&self.bytes, at as usize);
        Description::read(&mut fields)
    }
}

/// One description.
struct Description {
    /// The steps, as they are taken, and the offset in the function behind the instruction of each.
    steps: Vec<(u8, Step)>,
    /// The address of the one whose steps come before.
    continues: Option<u32>,
}

impl Description {
    fn read(fields: &mut ByteCursor<'_>) -> Result<Self, ParseError> {
        const VERSION: u8 = 1;
        const IS_CHAINED: u8 = 4 << 3;
        let [version_and_flags, _prologue_bytes, slots, frame] = fields.array()?;
        if version_and_flags & 7 != VERSION {
            return Err(ParseError::Malformed);
        }
        let codes = fields.position();
        let end = codes + 2 * usize::from(slots);
        let mut steps = Vec::with_capacity(slots.into());
        while fields.position() < end {
            let offset = fields.u8()?;
            if let Some(step) = read_step(fields, frame)? {
                steps.push((offset, step));
            }
        }
        if fields.position() != end {
            return Err(ParseError::Malformed);
        }
        // The last instruction comes first.
        steps.reverse();
        let continues = if version_and_flags & IS_CHAINED == 0 {
            None
        } else {
            // Behind a whole number of double slots: begin, end and description of a function.
            fields.skip(2 * usize::from(slots % 2) + 8);
            Some(fields.u32()?)
        };
        Ok(Self { steps, continues })
    }
}

/// The step that a code says, and nothing for one that matters to no frame. `frame` is the register that points into the
/// frame and how far, in units of 16 bytes.
fn read_step(fields: &mut ByteCursor<'_>, frame: u8) -> Result<Option<Step>, ParseError> {
    let [code] = fields.array()?;
    let (code, information) = (code & 15, code >> 4);
    let points = |bytes: u32| {
        if frame & 15 == FRAME_POINTER {
            Ok(Some(Step::SetFramePointer(bytes)))
        } else {
            Err(ParseError::Malformed)
        }
    };
    let in_words = |count: u32| count.checked_mul(WORD).ok_or(ParseError::Malformed);
    match code {
        PUSH => Ok(Some(Step::Push(information))),
        ALLOCATE_LARGE if information == 0 => Ok(Some(Step::Allocate(in_words(fields.u16()?.into())?))),
        ALLOCATE_LARGE => Ok(Some(Step::Allocate(fields.u32()?))),
        ALLOCATE_SMALL => Ok(Some(Step::Allocate(in_words(u32::from(information) + 1)?))),
        SET_FRAME_POINTER => points(u32::from(frame >> 4) * 16),
        SET_FRAME_POINTER_FAR => points(fields.u32()?.checked_mul(16).ok_or(ParseError::Malformed)?),
        SAVE => Ok(Some(Step::Save(information, in_words(fields.u16()?.into())?))),
        SAVE_FAR => Ok(Some(Step::Save(information, fields.u32()?))),
        SAVE_VECTOR => fields.u16().map(|_| None),
        SAVE_VECTOR_FAR => fields.u32().map(|_| None),
        _ => Err(ParseError::Malformed),
    }
}

impl Prologue {
    fn apply(&mut self, frame: &mut Frame, step: Step) -> Result<(), ParseError> {
        let grown = |by: u32| frame.size.checked_add(by).ok_or(ParseError::Malformed);
        match step {
            Step::Push(register) => {
                frame.size = grown(WORD)?;
                if register == FRAME_POINTER {
                    frame.saved_frame_pointer = Some(frame.size);
                }
                self.is_mixed |= self.allocates;
                self.pushed.push(register);
            }
            Step::Allocate(bytes) => {
                frame.size = grown(bytes)?;
                self.allocates = true;
            }
            Step::SetFramePointer(above) => {
                frame.above_frame_pointer = Some(frame.size.checked_sub(above).ok_or(ParseError::Malformed)?);
            }
            Step::Save(FRAME_POINTER, above) => {
                frame.saved_frame_pointer = Some(frame.size.checked_sub(above).ok_or(ParseError::Malformed)?);
            }
            Step::Save(..) => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::super::test_frames::{plain, saved},
        *,
    };

    const ADDRESS: u32 = 0x1000;

    /// What a description says: its flags, the register that points into the frame, and its slots.
    fn described(flags: u8, frame: u8, slots: &[[u8; 2]], behind: &[u8]) -> Result<Prologue, ParseError> {
        let header = [1 | flags << 3, 0, u8::try_from(slots.len()).unwrap(), frame];
        let bytes = [&header, &slots.concat()[..], behind].concat();
        Descriptions { address: ADDRESS, bytes }.prologue(ADDRESS)
    }

    fn prologue(slots: &[[u8; 2]]) -> Prologue {
        described(3, 0, slots, &[]).unwrap()
    }

    fn rules(prologue: &Prologue) -> Vec<(u8, Rule)> {
        prologue.frames.iter().map(|(offset, frame)| (*offset, frame.rule().unwrap())).collect()
    }

    const ENTRY: (u8, Rule) = (0, plain(CfaRule::StackPointer, 8));

    #[test]
    fn a_function_without_a_frame_has_its_caller_where_the_call_left_it() {
        let leaf = prologue(&[]);
        assert_eq!(rules(&leaf), [ENTRY]);
        assert!(leaf.pushed.is_empty() && !leaf.allocates);
    }

    #[test]
    fn every_instruction_of_a_prologue_changes_the_frame() {
        // push rbp; push r15; push rbx; sub rsp, 24
        let framed = prologue(&[[8, 0x22], [4, 0x30], [3, 0xf0], [1, 0x50]]);
        let expected = |size| saved(CfaRule::StackPointer, size, FramePointerRule::AtCfa, -16);
        assert_eq!(
            rules(&framed),
            [ENTRY, (1, expected(16)), (3, expected(24)), (4, expected(32)), (8, expected(56))]
        );
        assert_eq!((&framed.pushed[..], framed.allocates, framed.is_mixed), (&[5, 15, 3][..], true, false));
    }

    #[test]
    fn large_frames_have_their_size_in_words_or_in_bytes() {
        assert_eq!(prologue(&[[7, 0x01], [0x00, 0x10]]).frames[1].1.size, 8 + 0x1000 * 8);
        assert_eq!(prologue(&[[7, 0x11], [0x10, 0], [1, 0]]).frames[1].1.size, 8 + 0x1_0010);
    }

    #[test]
    fn a_frame_whose_stack_pointer_moves_is_found_by_the_frame_pointer() {
        // push rbp; sub rsp, 48; lea rbp, [rsp + 32]
        let slots = [[10, 0x03], [5, 0x52], [1, 0x50]];
        let near = described(3, 0x25, &slots, &[]).unwrap();
        let rule = near.frames.last().unwrap().1.rule().unwrap();
        assert_eq!(rule, saved(CfaRule::FramePointer, 32, FramePointerRule::AtCfa, -16));
        let far = described(3, 0x05, &[[10, 0x0b], [2, 0], [0, 0], [5, 0x52], [1, 0x50]], &[]).unwrap();
        assert_eq!(far.frames, near.frames);
        assert_eq!(described(3, 0x23, &slots, &[]), Err(ParseError::Malformed), "by another register");
        assert_eq!(described(3, 0xf5, &slots, &[]), Err(ParseError::Malformed), "above the frame");
    }

    #[test]
    fn a_frame_pointer_that_is_stored_and_not_pushed_is_found() {
        // sub rsp, 40; mov [rsp + 16], rbp; mov [rsp + 24], rbx; movaps [rsp], xmm6
        let slots = [[14, 0x68], [0, 0], [9, 0x34], [3, 0], [8, 0x54], [2, 0], [4, 0x42]];
        let stored = prologue(&slots);
        let rule = stored.frames.last().unwrap().1.rule().unwrap();
        assert_eq!(rule, saved(CfaRule::StackPointer, 48, FramePointerRule::AtCfa, -32));
    }

    #[test]
    fn a_description_that_continues_another_begins_with_its_whole_frame() {
        // push rbx, of a function that has pushed rbp: two slots, one of them to fill up, then the other's function.
        let own = [1 | 4 << 3, 0, 1, 0, 1, 0x30, 0, 0];
        let parent = ADDRESS + 20;
        let function = [[0; 4], [0; 4], parent.to_le_bytes()].concat();
        let of_parent = [1, 0, 1, 0, 1, 0x50];
        let descriptions = |bytes| Descriptions { address: ADDRESS, bytes };
        let bytes = [&own, &function[..], &of_parent].concat();
        let chained = descriptions(bytes).prologue(ADDRESS).unwrap();
        assert_eq!(chained.pushed, [5, 3]);
        let sizes: Vec<_> = chained.frames.iter().map(|(offset, frame)| (*offset, frame.size)).collect();
        assert_eq!(sizes, [(0, 16), (1, 24)]);
        let itself = [[0; 4], [0; 4], ADDRESS.to_le_bytes()].concat();
        let endless = descriptions([&own, &itself[..]].concat());
        assert_eq!(endless.prologue(ADDRESS), Err(ParseError::TooLarge));
    }

    #[test]
    fn what_contradicts_itself_is_malformed() {
        for (what, slots) in [
            ("an unknown code", &[[1, 0x06]][..]),
            ("a code that is cut off", &[[1, 0x01]]),
            ("instructions out of order", &[[1, 0x50], [3, 0x30]]),
        ] {
            assert_eq!(described(3, 0, slots, &[0; 8]), Err(ParseError::Malformed), "{what}");
        }
        let other_version = Descriptions { address: 0, bytes: vec![2, 0, 0, 0] };
        assert_eq!(other_version.prologue(0), Err(ParseError::Malformed));
        assert_eq!(other_version.prologue(u32::MAX), Err(ParseError::Malformed));
        let later = Descriptions { address: 9, ..other_version };
        assert_eq!(later.prologue(8), Err(ParseError::Malformed));
    }

    #[test]
    fn sizes_that_no_rule_can_hold_are_no_rule() {
        let huge = prologue(&[[7, 0x11], [0, 0], [0, 0xf0]]);
        assert_eq!(huge.frames[1].1.rule(), None);
        let wraps = [[8, 0x11], [0xff, 0xff], [0xff, 0xff], [7, 0x11], [0, 0], [0, 0xf0]];
        assert_eq!(described(3, 0, &wraps, &[]), Err(ParseError::Malformed));
        let far_away = [[9, 0x50], [7, 0x11], [0, 0], [1, 0]];
        assert_eq!(prologue(&far_away).frames[2].1.rule(), None);
    }
}
