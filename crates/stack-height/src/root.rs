//! Recognizes code that has no caller: the starts of programs, and of threads in musl, which has no call frame information.

use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Mnemonic, OpKind, Register};

use crate::{
    Error,
    knowledge::Knowledge,
    row::{Confidence, Frame},
    run::Run,
};

/// What a new thread executes in `__clone` (`src/thread/x86_64/clone.s` of musl): `xor %ebp, %ebp; pop %rdi; call *%r9;
/// mov %eax, %edi; xor %eax, %eax; mov $60, %al; syscall`. The system call is `exit`.
const THREAD_START: &[u8] =
    &[0x31, 0xed, 0x5f, 0x41, 0xff, 0xd1, 0x89, 0xc7, 0x31, 0xc0, 0xb0, 0x3c, 0x0f, 0x05];

/// The most bytes of a start of a program that are read. musl's has 22, that of Free Pascal 72, that of glibc's dynamic loader 61.
pub const MAX_PROGRAM_START_BYTES: u64 = 128;

/// The start of a program, from its entry point on: the kernel or the dynamic loader jumps there, and the stack has the arguments
/// (System V ABI AMD64, 3.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramStart {
    /// Its length: up to its first call, and in a dynamic loader up to the jump to the program.
    pub bytes: u64,
    /// Whether it clears the frame pointer without having saved it, as the ABI recommends: no function does that.
    pub clears_frame_pointer: bool,
}

impl ProgramStart {
    /// Decodes the code at an entry point; `None` if it calls nothing, or branches before.
    pub fn decode(code: &[u8]) -> Option<Self> {
        let mut decoder = Decoder::new(64, code, DecoderOptions::NONE);
        let mut saves_frame_pointer = false;
        let (end, clears_frame_pointer) = next_block(&mut decoder, &mut saves_frame_pointer);
        let is_call = |end| matches!(end, Some(FlowControl::Call | FlowControl::IndirectCall));
        if !is_call(end) {
            return None;
        }
        let first_call = Self { bytes: decoder.ip(), clears_frame_pointer };
        // Where the first call does not return, a function may follow, which clears no frame pointer.
        if clears_frame_pointer {
            return Some(first_call);
        }
        let mut is_start = false;
        loop {
            let (end, clears_frame_pointer) = next_block(&mut decoder, &mut saves_frame_pointer);
            is_start |= clears_frame_pointer;
            if end == Some(FlowControl::IndirectBranch) && is_start {
                return Some(Self { bytes: decoder.ip(), clears_frame_pointer: true });
            }
            if !is_call(end) {
                return Some(first_call);
            }
        }
    }
}

/// Decodes one basic block. Returns how it ends, `None` at the end of the code, and whether it clears a frame pointer that was not
/// saved.
fn next_block(decoder: &mut Decoder<'_>, saves_frame_pointer: &mut bool) -> (Option<FlowControl>, bool) {
    let mut clears_frame_pointer = false;
    for instruction in decoder {
        let is_of_frame_pointer = instruction.op0_kind() == OpKind::Register
            && instruction.op0_register().full_register() == Register::RBP;
        *saves_frame_pointer |= is_of_frame_pointer && instruction.mnemonic() == Mnemonic::Push;
        clears_frame_pointer |= is_of_frame_pointer
            && !*saves_frame_pointer
            && instruction.mnemonic() == Mnemonic::Xor
            && instruction.op1_kind() == OpKind::Register
            && instruction.op1_register() == instruction.op0_register();
        if instruction.flow_control() != FlowControl::Next {
            return (Some(instruction.flow_control()), clears_frame_pointer);
        }
    }
    (None, clears_frame_pointer)
}

/// The runs of all starts of threads in a window.
pub(crate) fn thread_start_runs(
    knowledge: &mut Knowledge<'_>,
    window: &Range<u64>,
) -> Result<Vec<Run>, Error> {
    let starts = knowledge.addresses_of(THREAD_START, window)?;
    let run = |start| {
        let end = start + THREAD_START.len() as u64;
        Run { start, end, frame: Frame::ROOT, confidence: Confidence::Full }
    };
    Ok(starts.into_iter().map(run).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(code: &[u8]) -> Option<(u64, bool)> {
        ProgramStart::decode(code).map(|start| (start.bytes, start.clears_frame_pointer))
    }

    #[test]
    fn a_program_starts_with_code_up_to_the_first_call() {
        // musl: xor %rbp, %rbp; mov %rsp, %rdi; lea _DYNAMIC(%rip), %rsi; and $-16, %rsp; call
        let musl = [
            0x48, 0x31, 0xed, 0x48, 0x89, 0xe7, 0x48, 0x8d, 0x35, 1, 2, 3, 4, 0x48, 0x83, 0xe4, 0xf0, 0xe8,
            5, 6, 7, 8,
        ];
        assert_eq!(start(&[&musl[..], &[0xf4]].concat()), Some((22, true)));
        // xor %ebp, %ebp; call *%rax
        assert_eq!(start(&[0x31, 0xed, 0xff, 0xd0]), Some((4, true)));
        // pop %rdi; call *%rax
        assert_eq!(start(&[0x5f, 0xff, 0xd0]), Some((3, false)));
        // push %rbp; xor %ebp, %ebp; call *%rax
        assert_eq!(start(&[0x55, 0x31, 0xed, 0xff, 0xd0]), Some((5, false)), "a function");
        // xor %eax, %ebp; call *%rax
        assert_eq!(start(&[0x31, 0xc5, 0xff, 0xd0]), Some((4, false)));
    }

    #[test]
    fn the_start_of_a_dynamic_loader_ends_with_the_jump_to_the_program() {
        // mov %rsp, %rdi; call _dl_start
        let first = [0x48, 0x89, 0xe7, 0xe8, 1, 2, 3, 4];
        // mov %rax, %r12; mov %rsp, %r13; and $-16, %rsp
        let prepare = [0x49, 0x89, 0xc4, 0x49, 0x89, 0xe5, 0x48, 0x83, 0xe4, 0xf0];
        let clear = [0x31, 0xed];
        // call _dl_init; mov %r13, %rsp; jmp *%r12
        let init_and_jump = [0xe8, 1, 2, 3, 4, 0x4c, 0x89, 0xec, 0x41, 0xff, 0xe4];
        let glibc = [&first[..], &prepare, &clear, &init_and_jump].concat();
        assert_eq!(start(&[&glibc[..], &[0x53, 0xc3]].concat()), Some((31, true)));
        let without_clearing = [&first[..], &prepare, &init_and_jump].concat();
        assert_eq!(start(&without_clearing), Some((8, false)), "a function");
        // push %rbp; pop %rbp
        let saves = [&first[..], &[0x55], &clear, &[0x5d], &init_and_jump].concat();
        assert_eq!(start(&saves), Some((8, false)), "a function");
        let returns = [&first[..], &clear, &[0xc3]].concat();
        assert_eq!(start(&returns), Some((8, false)));
        let is_cut = [&first[..], &clear, &init_and_jump[..7]].concat();
        assert_eq!(start(&is_cut), Some((8, false)));
    }

    #[test]
    fn code_that_calls_nothing_is_no_start_of_a_program() {
        // xor %ebp, %ebp, and: jmp *%rax; je; ret; ud2; a part of an instruction; nothing.
        let rests: [&[u8]; 6] = [&[0xff, 0xe0], &[0x74, 0], &[0xc3], &[0x0f, 0x0b], &[0xe8, 0], &[]];
        for rest in rests {
            assert_eq!(start(&[&[0x31, 0xed][..], rest].concat()), None, "{rest:x?}");
        }
    }
}
