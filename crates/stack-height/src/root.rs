//! Recognizes code that has no caller: the starts of programs and of threads in musl, which has no call frame information.

use std::ops::Range;

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

/// The entry point of a program (`arch/x86_64/crt_arch.h` of musl): `xor %rbp, %rbp; mov %rsp, %rdi; lea _DYNAMIC(%rip), %rsi;
/// and $-16, %rsp; call _start_c`, as two sequences around the address that is loaded.
const PROGRAM_START: [&[u8]; 2] =
    [&[0x48, 0x31, 0xed, 0x48, 0x89, 0xe7, 0x48, 0x8d, 0x35], &[0x48, 0x83, 0xe4, 0xf0, 0xe8]];

/// The bytes of an address in an instruction.
const DISPLACEMENT_BYTES: usize = 4;

/// The length of musl's start of a program, from the entry point on, as far as its instructions.
pub const PROGRAM_START_BYTES: u64 =
    (PROGRAM_START[0].len() + PROGRAM_START[1].len() + 2 * DISPLACEMENT_BYTES) as u64;

/// Whether code begins with musl's start of a program, which has no caller.
pub fn program_start_at(code: &[u8]) -> bool {
    let [before, after] = PROGRAM_START;
    code.starts_with(before)
        && code.get(before.len() + DISPLACEMENT_BYTES..).is_some_and(|rest| rest.starts_with(after))
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

    #[test]
    fn only_an_entry_point_that_aligns_the_stack_and_calls_is_a_start_of_a_program() {
        let start = [
            0x48, 0x31, 0xed, 0x48, 0x89, 0xe7, 0x48, 0x8d, 0x35, 1, 2, 3, 4, 0x48, 0x83, 0xe4, 0xf0, 0xe8,
            5, 6, 7, 8,
        ];
        assert!(program_start_at(&start) && start.len() as u64 == PROGRAM_START_BYTES);
        assert!(!program_start_at(&start[..17]) && !program_start_at(&start[3..]) && !program_start_at(&[]));
        let jumps = start.map(|byte| if byte == 0xe8 { 0xe9 } else { byte });
        assert!(!program_start_at(&jumps));
    }
}
