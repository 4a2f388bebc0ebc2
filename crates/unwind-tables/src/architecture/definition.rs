//! The type that describes a machine to the CFI compiler: registers, return address, PLT sections.

use gimli::{Register, RegisterRule, Vendor};
use profiler_common::unwind::{CfaRule, Rule};

/// The rule of a return address, a `ReturnAddressRule` or a `LeafRegister`, and its offset.
pub(crate) type ReturnAddress = (u8, i16);

/// What the call frame information of a machine means.
pub(crate) struct Architecture {
    pub(crate) stack_pointer: Register,
    pub(crate) frame_pointer: Register,
    /// The registers from which a CFA can be computed, and the rule of each.
    pub(crate) cfa_registers: &'static [(Register, CfaRule)],
    /// The `LeafRegister` rule of a register; `None` when the BPF program does not read it.
    pub(crate) leaf_register: fn(Register) -> Option<u8>,
    /// Whether code that interrupts its caller has the kernel's signal frame, by the rule of its CFA.
    pub(crate) is_signal_frame: fn(cfa: Option<Rule>) -> bool,
    /// The vendor whose CFA instructions are accepted beside those of DWARF.
    pub(crate) vendor: Vendor,
    /// Converts the register rule of the return address; `None` when the BPF program has no rule for it.
    pub(crate) return_address: fn(Option<&RegisterRule<usize>>) -> Option<ReturnAddress>,
    /// Converts the CFA expression that linkers write for the PLT; `None` for other expressions.
    pub(crate) plt_rule: fn(expression: &[u8]) -> Option<Rule>,
    /// The names of PLT sections, and the rule of the code in each, for linkers that write no CFI for them.
    pub(crate) plt_sections: &'static [(&'static [u8], Rule)],
}
