//! Epilogue scan: finds the epilogues of a function in its machine code. `UNWIND_INFO` describes the prologue only.

use memchr::memmem;

use crate::precompiled::unwind_info::{Frame, Prologue};

/// The instructions that release the stack, `add rsp, imm` and `lea rsp, [rbp + disp]`: opcode, then the bytes of the
/// operand.
const RELEASES: [(&[u8], usize); 4] =
    [(&[0x48, 0x83, 0xc4], 1), (&[0x48, 0x8d, 0x65], 1), (&[0x48, 0x81, 0xc4], 4), (&[0x48, 0x8d, 0xa5], 4)];

/// The machine code of `pop register`. Registers from `r8` need a prefix.
fn encode_pop(register: u8) -> impl Iterator<Item = u8> {
    let prefix = (register >= 8).then_some(0x41);
    prefix.into_iter().chain([0x58 + register % 8])
}

/// The offsets of the epilogues in a function's code: of the first `pop`, or of the return.
///
/// The compiler emits the reverse of the prologue. A false match would need the same bytes in the same order, with a release
/// before them and a return or an indirect jump after them.
pub(crate) fn find(code: &[u8], prologue: &Prologue) -> Vec<usize> {
    let pops: Vec<u8> = prologue.pushed.iter().rev().flat_map(|register| encode_pop(*register)).collect();
    let is_epilogue = |offset: usize| code.get(offset + pops.len()..).is_some_and(starts_with_exit);
    if prologue.pushes_after_allocation {
        return Vec::new();
    }
    if !prologue.allocates {
        let found = memmem::find_iter(code, &pops).filter(|_| !pops.is_empty());
        return found.filter(|offset| is_epilogue(*offset)).collect();
    }
    let ends = RELEASES.iter().flat_map(|(release, operand_bytes)| {
        memmem::find_iter(code, release).map(move |offset| offset + release.len() + operand_bytes)
    });
    let mut found: Vec<usize> = ends
        .filter(|offset| {
            code.get(*offset..).is_some_and(|rest| rest.starts_with(&pops)) && is_epilogue(*offset)
        })
        .collect();
    found.sort_unstable();
    found
}

/// Whether code starts with a return or an indirect jump.
fn starts_with_exit(code: &[u8]) -> bool {
    const RETURN: u8 = 0xc3;
    const INDIRECT: u8 = 0xff;
    const JUMP: u8 = 4;
    match code {
        [RETURN, ..] => true,
        [0x40..=0x4f, INDIRECT, operand, ..] | [INDIRECT, operand, ..] => operand >> 3 & 7 == JUMP,
        _ => false,
    }
}

/// The frame at the start of an epilogue and after each of its instructions, by the offset in the epilogue. The last one is
/// the frame after the return: code there is reached by a jump and has the whole frame.
pub(crate) fn frames(prologue: &Prologue) -> Vec<(u32, Frame)> {
    const WORD_BYTES: u32 = 8;
    let whole = prologue.frames.last().map_or(Frame::AT_ENTRY, |(_, frame)| *frame);
    let pushed_bytes = prologue.pushed.iter().map(|_| WORD_BYTES).sum::<u32>();
    let size = Frame::AT_ENTRY.size + pushed_bytes;
    let mut frame = Frame { size, frame_pointer_to_cfa: None, ..whole };
    let mut frames = vec![(0, frame)];
    let mut offset = 0;
    for register in prologue.pushed.iter().rev() {
        offset += encode_pop(*register).count() as u32;
        frame.size -= WORD_BYTES;
        frame.saved_frame_pointer = frame.saved_frame_pointer.filter(|distance| *distance <= frame.size);
        frames.push((offset, frame));
    }
    frames.push((offset + 1, whole));
    frames
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::precompiled::unwind_info::UnwindInfoSection;

    const PUSH_RBP: [u8; 2] = [1, 0x50];
    const PUSH_R15: [u8; 2] = [3, 0xf0];
    const ALLOCATE_24: [u8; 2] = [7, 0x22];

    /// The prologue with these codes, in reverse order.
    fn prologue(slots: &[[u8; 2]]) -> Prologue {
        let header = [1, 0, u8::try_from(slots.len()).unwrap(), 0];
        let bytes = [&header, &slots.concat()[..]].concat();
        UnwindInfoSection { address: 0, bytes }.prologue(0).unwrap()
    }

    #[test]
    fn an_epilogue_is_the_reverse_of_the_prologue() {
        let pushes = prologue(&[PUSH_R15, PUSH_RBP]);
        let code = [0x55, 0x41, 0x57, 0x90, 0x41, 0x5f, 0x5d, 0xc3, 0x90, 0x41, 0x5f, 0x5d, 0x48, 0xff, 0x20];
        assert_eq!(find(&code, &pushes), [4, 9]);
        let allocates = prologue(&[ALLOCATE_24, PUSH_R15, PUSH_RBP]);
        assert!(find(&code, &allocates).is_empty(), "the allocation is not released");
        for release in
            [&[0x48, 0x83, 0xc4, 24][..], &[0x48, 0x81, 0xc4, 24, 0, 0, 0], &[0x48, 0x8d, 0x65, 0xf8]]
        {
            let code = [release, &[0x41, 0x5f, 0x5d, 0xc3]].concat();
            assert_eq!(find(&code, &allocates), [release.len()]);
        }
        let only_allocates = prologue(&[ALLOCATE_24]);
        let code = [0x48, 0x83, 0xc4, 24, 0xc3, 0x48, 0x81, 0xc4, 24, 0, 0, 0, 0xc3];
        assert_eq!(find(&code, &only_allocates), [4, 12]);
    }

    #[test]
    fn incomplete_epilogues_are_not_found() {
        let allocates = prologue(&[ALLOCATE_24, PUSH_R15, PUSH_RBP]);
        for code in [
            &[0x48, 0x83, 0xc4, 24, 0x5d, 0x41, 0x5f, 0xc3][..],
            &[0x48, 0x83, 0xc4, 24, 0x41, 0x5f, 0x5d],
            &[0x48, 0x83, 0xc4, 24, 0x41, 0x5f, 0x5d, 0xcc],
            &[0x48, 0x83, 0xc4, 24, 0x41, 0x5f, 0x5d, 0xff, 0xd0],
            &[0x48, 0x83, 0xc4],
            &[],
        ] {
            assert!(find(code, &allocates).is_empty(), "{code:x?}");
        }
        let without_frame = prologue(&[]);
        assert!(find(&[0x90, 0xc3], &without_frame).is_empty(), "there is no frame");
        let pushes_after_allocation = prologue(&[PUSH_R15, [2, 0x02], PUSH_RBP]);
        assert!(find(&[0x41, 0x5f, 0x48, 0x83, 0xc4, 8, 0x5d, 0xc3], &pushes_after_allocation).is_empty());
    }

    #[test]
    fn each_instruction_of_an_epilogue_changes_the_frame() {
        let allocates = prologue(&[ALLOCATE_24, PUSH_R15, PUSH_RBP]);
        let frames: Vec<_> = frames(&allocates)
            .into_iter()
            .map(|(offset, frame)| (offset, frame.size, frame.saved_frame_pointer))
            .collect();
        assert_eq!(frames, [(0, 24, Some(16)), (2, 16, Some(16)), (3, 8, None), (4, 48, Some(16))]);
    }
}
