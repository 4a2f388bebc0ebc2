//! Frames with the system call that a thread has called.

use profiler_addresses::ElfAddress;
use profiler_common::system_call::SystemCallAbi;
use profiler_profile::{Frame, FrameId, FrameKind, SymbolSource, Symbolization};
use profiler_sampler::{CalledSystemCall, system_calls};

use super::ProfileAssembler;

impl ProfileAssembler {
    /// A frame of the kernel with the name of a system call: `[read]`.
    pub(super) fn system_call_frame(&mut self, call: CalledSystemCall) -> FrameId {
        let name = self.builder.string(&label(call));
        self.builder.frame(Frame {
            name,
            kind: FrameKind::Kernel,
            module: None,
            address: ElfAddress(0),
            location: None,
            symbolization: Symbolization::Symbol(SymbolSource::Kallsyms),
        })
    }
}

fn label(CalledSystemCall { number, abi }: CalledSystemCall) -> String {
    match abi {
        SystemCallAbi::X64 => match system_calls::name(number) {
            Some(name) => format!("[{name}]"),
            None => format!("[system call {number}]"),
        },
        // The same numbers are other system calls.
        SystemCallAbi::I386 => format!("[32-bit system call {number}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_a_name_in_its_own_table_alone() {
        let of = |number, abi| label(CalledSystemCall { number, abi });
        assert_eq!(of(0, SystemCallAbi::X64), "[read]");
        assert_eq!(of(100_000, SystemCallAbi::X64), "[system call 100000]");
        assert_eq!(of(-1, SystemCallAbi::X64), "[system call -1]");
        assert_eq!(of(0, SystemCallAbi::I386), "[32-bit system call 0]");
    }
}
