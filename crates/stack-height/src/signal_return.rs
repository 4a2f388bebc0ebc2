//! Recognizes return trampolines of signal handlers.
//!
//! A handler returns to them. The stack pointer is then that of the signal frame of the kernel, which holds all registers
//! (`arch/x86/kernel/signal_64.c`), and the unwinder of the BPF program reads them there.

use std::ops::Range;

use crate::{
    Error,
    knowledge::Knowledge,
    row::{Confidence, Frame},
    run::Run,
};

/// `mov $15, %rax; syscall`, as glibc, musl and Go write the number of `rt_sigreturn`, and `mov $15, %eax; syscall`.
const TRAMPOLINES: [&[u8]; 2] =
    [&[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05], &[0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05]];

/// The instruction before a trampoline.
const NOP: &[u8] = &[0x90];

/// Whether code begins with the return trampoline of a signal handler.
pub fn signal_return_at(code: &[u8]) -> bool {
    TRAMPOLINES.iter().any(|trampoline| code.starts_with(trampoline))
}

/// The runs of all trampolines in a window. Unwinders look a return address up one byte before it: that of a handler is the start of the
/// trampoline, which therefore has a `nop` before it.
pub(crate) fn signal_return_runs(
    knowledge: &mut Knowledge<'_>,
    window: &Range<u64>,
) -> Result<Vec<Run>, Error> {
    let mut runs = Vec::new();
    for trampoline in TRAMPOLINES {
        let behind_nop = [NOP, trampoline].concat();
        let nops = knowledge.addresses_of(&behind_nop, window)?.into_iter();
        let nops = nops.map(|start| start..start + NOP.len() as u64);
        let trampolines = knowledge.addresses_of(trampoline, window)?.into_iter();
        let trampolines = trampolines.map(|start| start..start + trampoline.len() as u64);
        for Range { start, end } in nops.chain(trampolines) {
            runs.push(Run { start, end, frame: Frame::SIGNAL, confidence: Confidence::Full });
        }
    }
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_system_call_that_returns_from_a_signal_is_recognized() {
        assert!(signal_return_at(&[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05]));
        assert!(signal_return_at(&[0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05, 0x90]));
        assert!(!signal_return_at(&[0xb8, 0x10, 0, 0, 0, 0x0f, 0x05]));
        assert!(!signal_return_at(&[0xb8, 0x0f, 0, 0, 0, 0x0f]));
    }
}
