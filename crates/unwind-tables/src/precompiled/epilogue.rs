//! Where a function takes its frame down again, found in its code: what an image states ends with the prologue.

use memchr::memmem;

use super::unwind_info::{Frame, Prologue};

/// `add rsp` and `lea rsp, [rbp + ...]`, each with a number of one byte and of four.
const RELEASES: [(&[u8], usize); 4] =
    [(&[0x48, 0x83, 0xc4], 1), (&[0x48, 0x8d, 0x65], 1), (&[0x48, 0x81, 0xc4], 4), (&[0x48, 0x8d, 0xa5], 4)];

/// The instruction that takes a register off the stack again. Those from `r8` on need a prefix.
fn pop(register: u8) -> impl Iterator<Item = u8> {
    let prefix = (register >= 8).then_some(0x41);
    prefix.into_iter().chain([0x58 + register % 8])
}

/// The offsets in a function's code of the places where only what the prologue pushed is on the stack, and is taken off
/// before the function returns or jumps elsewhere.
///
/// The compiler writes the prologue backwards. Bytes that look so by chance would have to be the same, in the same order,
/// with a release before and a way out behind.
pub(super) fn find(code: &[u8], prologue: &Prologue) -> Vec<usize> {
    let pops: Vec<u8> = prologue.pushed.iter().rev().flat_map(|register| pop(*register)).collect();
    let is_last = |at: usize| code.get(at + pops.len()..).is_some_and(leaves);
    if prologue.is_mixed {
        return Vec::new();
    }
    if !prologue.allocates {
        let found = memmem::find_iter(code, &pops).filter(|_| !pops.is_empty());
        return found.filter(|at| is_last(*at)).collect();
    }
    let ends = RELEASES.iter().flat_map(|(release, number_bytes)| {
        memmem::find_iter(code, release).map(move |at| at + release.len() + number_bytes)
    });
    let mut found: Vec<usize> = ends
        .filter(|at| code.get(*at..).is_some_and(|rest| rest.starts_with(&pops)) && is_last(*at))
        .collect();
    found.sort_unstable();
    found
}

/// Whether code begins with a return, or with a jump to where a register or the memory says.
fn leaves(code: &[u8]) -> bool {
    const RETURN: u8 = 0xc3;
    const INDIRECT: u8 = 0xff;
    const JUMP: u8 = 4;
    match code {
        [RETURN, ..] => true,
        [0x40..=0x4f, INDIRECT, operand, ..] | [INDIRECT, operand, ..] => operand >> 3 & 7 == JUMP,
        _ => false,
    }
}

/// The frames in such a place and behind each of its instructions, by their distance from it. The last one is behind the
/// way out: what follows, a jump leads to, and it has the whole frame.
pub(super) fn frames(prologue: &Prologue) -> Vec<(u32, Frame)> {
    const WORD: u32 = 8;
    let whole = prologue.frames.last().map_or(Frame::AT_ENTRY, |(_, frame)| *frame);
    let pushed_bytes = prologue.pushed.iter().map(|_| WORD).sum::<u32>();
    let size = Frame::AT_ENTRY.size + pushed_bytes;
    let mut frame = Frame { size, above_frame_pointer: None, ..whole };
    let mut frames = vec![(0, frame)];
    let mut distance = 0;
    for register in prologue.pushed.iter().rev() {
        distance += pop(*register).count() as u32;
        frame.size -= WORD;
        frame.saved_frame_pointer = frame.saved_frame_pointer.filter(|below| *below <= frame.size);
        frames.push((distance, frame));
    }
    frames.push((distance + 1, whole));
    frames
}

#[cfg(test)]
mod tests {
    use super::{super::unwind_info::Descriptions, *};

    const PUSH_RBP: [u8; 2] = [1, 0x50];
    const PUSH_R15: [u8; 2] = [3, 0xf0];
    const ALLOCATE_24: [u8; 2] = [7, 0x22];

    /// Of a function with these codes, the last instruction's first.
    fn prologue(slots: &[[u8; 2]]) -> Prologue {
        let header = [1, 0, u8::try_from(slots.len()).unwrap(), 0];
        let bytes = [&header, &slots.concat()[..]].concat();
        Descriptions { address: 0, bytes }.prologue(0).unwrap()
    }

    #[test]
    fn a_frame_is_taken_down_backwards() {
        let pushes = prologue(&[PUSH_R15, PUSH_RBP]);
        let code = [0x55, 0x41, 0x57, 0x90, 0x41, 0x5f, 0x5d, 0xc3, 0x90, 0x41, 0x5f, 0x5d, 0x48, 0xff, 0x20];
        assert_eq!(find(&code, &pushes), [4, 9]);
        let allocates = prologue(&[ALLOCATE_24, PUSH_R15, PUSH_RBP]);
        assert!(find(&code, &allocates).is_empty(), "what was allocated is not released");
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
    fn what_is_not_the_whole_way_back_is_none() {
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
        assert!(find(&[0x90, 0xc3], &without_frame).is_empty(), "there is nothing to take down");
        let mixed = prologue(&[PUSH_R15, [2, 0x02], PUSH_RBP]);
        assert!(find(&[0x41, 0x5f, 0x48, 0x83, 0xc4, 8, 0x5d, 0xc3], &mixed).is_empty());
    }

    #[test]
    fn every_instruction_of_the_way_back_changes_the_frame() {
        let allocates = prologue(&[ALLOCATE_24, PUSH_R15, PUSH_RBP]);
        let frames: Vec<_> = frames(&allocates)
            .into_iter()
            .map(|(distance, frame)| (distance, frame.size, frame.saved_frame_pointer))
            .collect();
        assert_eq!(frames, [(0, 24, Some(16)), (2, 16, Some(16)), (3, 8, None), (4, 48, Some(16))]);
    }
}
