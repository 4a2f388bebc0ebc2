//! What depends on the machine: its registers, and how its code calls.

mod aarch64;
mod x86_64;

use gimli::{Register, RegisterRule, Vendor};
use object::elf::{self, Machine};
use profiler_common::unwind::{ReturnAddressRule, Rule};

/// Where a return address is, and the offset of that place.
type ReturnAddress = (ReturnAddressRule, i16);

/// What the call frame information of a machine's code means.
pub(super) struct Architecture {
    pub(super) stack_pointer: Register,
    pub(super) frame_pointer: Register,
    /// Whose instructions there are beside those of the standard.
    pub(super) vendor: Vendor,
    /// Where the return address is, and the offset, when its register has that rule.
    pub(super) return_address: fn(Option<&RegisterRule<usize>>) -> Option<ReturnAddress>,
    /// The rule of an expression that linkers write for procedure linkage tables.
    pub(super) linkage_table: fn(expression: &[u8]) -> Option<Rule>,
    /// The sections of procedure linkage tables, and the rule of the code in them. Not every linker describes
    /// them.
    pub(super) linkage_sections: &'static [(&'static [u8], Rule)],
}

impl Architecture {
    /// The one that an ELF file is for.
    pub(super) fn of_machine(machine: Machine) -> Option<&'static Self> {
        match machine {
            elf::EM_X86_64 => Some(&x86_64::X86_64),
            elf::EM_AARCH64 => Some(&aarch64::AARCH64),
            _ => None,
        }
    }
}
