//! The properties of each machine that call frame information depends on.
//!
//! The machine is a value at run time: both architectures are compiled and tested on every host.

mod aarch64;
mod definition;
mod x86_64;

use profiler_elf_symbols::Machine;

pub(crate) use self::definition::Architecture;

impl Architecture {
    /// The architecture of a machine.
    pub(crate) fn for_machine(machine: Machine) -> &'static Self {
        match machine {
            Machine::X86_64 => &x86_64::X86_64,
            Machine::Aarch64 => &aarch64::AARCH64,
        }
    }
}
