//! AArch64: a call leaves the return address in the link register, and the function may store it on the stack.
//!
//! A function that signs the return address (`DW_CFA_AARCH64_negate_ra_state`) stores it with a signature in the unused
//! address bits. This needs no row: the unwinder clears these bits of every return address.

use gimli::{AArch64 as Registers, RegisterRule, Vendor};
use profiler_common::unwind::{CfaRule, FramePointerRule, RbxRule, ReturnAddressRule, Rule};

use crate::architecture::definition::{Architecture, ReturnAddress};

pub(crate) const AARCH64: Architecture = Architecture {
    stack_pointer: Registers::SP,
    frame_pointer: Registers::X29,
    cfa_registers: &[(Registers::SP, CfaRule::StackPointer), (Registers::X29, CfaRule::FramePointer)],
    // The BPF program reads no registers of a leaf on this machine.
    leaf_register: |_| None,
    is_signal_frame: |_| true,
    vendor: Vendor::AArch64,
    return_address,
    // A PLT entry neither pushes nor calls, and linkers write no CFI for it.
    plt_rule: |_| None,
    plt_sections: &[(b".plt", PLT_ENTRY), (b".iplt", PLT_ENTRY)],
};

const PLT_ENTRY: Rule = Rule {
    cfa: CfaRule::StackPointer as u8,
    frame_pointer: FramePointerRule::Same as u8,
    return_address: ReturnAddressRule::LinkRegister as u8,
    rbx: RbxRule::UNDEFINED,
    frame_pointer_offset: 0,
    return_address_offset: 0,
    cfa_offset: 0,
};

fn return_address(rule: Option<&RegisterRule<usize>>) -> Option<ReturnAddress> {
    match rule {
        None | Some(RegisterRule::SameValue) => Some((ReturnAddressRule::LinkRegister as u8, 0)),
        Some(RegisterRule::Offset(offset)) => {
            Some((ReturnAddressRule::AtCfa as u8, (*offset).try_into().ok()?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use profiler_elf_symbols::Machine::Aarch64;

    use super::*;
    use crate::test_cfi::{CODE_ADDRESS, TestCfi, aarch64_rule, rule_without_offsets};

    const IN_REGISTER: (ReturnAddressRule, i16) = (ReturnAddressRule::LinkRegister, 0);
    const SAME: (FramePointerRule, i16) = (FramePointerRule::Same, 0);

    #[test]
    fn the_return_address_is_in_the_link_register_until_it_is_stored() {
        // stp x29, x30, [sp, #-32]!; mov x29, sp; ...; ldp x29, x30, [sp], #32; ret
        let instructions = [
            [0x44, 0x0e, 32, 0x9d, 4, 0x9e, 3].as_slice(), // after 4 bytes: CFA sp + 32, x29 at -32, x30 at -24
            &[0x44, 0x0d, 29],                             // after 4: CFA by x29
            &[0x44, 0x0c, 31, 0, 0xdd, 0xde],              // after 4: CFA sp, x29 and x30 restored
        ];
        let cfi = TestCfi::aarch64().function(CODE_ADDRESS, 16, &instructions.concat());
        let rules = cfi.rules(Aarch64, 16);
        let stored = aarch64_rule(32, (FramePointerRule::AtCfa, -32), (ReturnAddressRule::AtCfa, -24));
        assert_eq!(rules[0], aarch64_rule(0, SAME, IN_REGISTER));
        assert_eq!(rules[4], stored);
        assert_eq!(rules[8], Rule { cfa: CfaRule::FramePointer as u8, ..stored });
        assert_eq!(rules[12], aarch64_rule(0, SAME, IN_REGISTER));
    }

    #[test]
    fn a_signed_return_address_has_the_rule_of_an_unsigned_one() {
        // paciasp; str x30, [sp, #-16]!; ...; ldr x30, [sp], #16; autiasp
        let instructions = [0x44, 0x2d, 0x44, 0x0e, 16, 0x9e, 2, 0x44, 0x0e, 0, 0xde, 0x44, 0x2d];
        let cfi = TestCfi::aarch64().function(CODE_ADDRESS, 20, &instructions);
        let rules = cfi.rules(Aarch64, 20);
        let in_register = aarch64_rule(0, SAME, IN_REGISTER);
        assert_eq!(
            (rules[0], rules[4], rules[12], rules[16]),
            (in_register, in_register, in_register, in_register)
        );
        assert_eq!(rules[8], aarch64_rule(16, SAME, (ReturnAddressRule::AtCfa, -16)));
    }

    #[test]
    fn the_outermost_function_has_no_return_address() {
        let cfi = TestCfi::aarch64().function(CODE_ADDRESS, 8, &[0x07, 30]);
        assert_eq!(cfi.rules(Aarch64, 8), [rule_without_offsets(CfaRule::Root); 8]);
    }

    #[test]
    fn a_return_address_in_another_register_is_not_supported() {
        let cfi = TestCfi::aarch64().function(CODE_ADDRESS, 8, &[0x09, 30, 15]);
        assert_eq!(cfi.rules(Aarch64, 8), [rule_without_offsets(CfaRule::Unsupported); 8]);
    }

    #[test]
    fn signal_frames_are_recognized_on_every_machine() {
        let cfi = TestCfi::default().cie("zRS", 30, &[0x0c, 31, 0]);
        let cfi = cfi.function(CODE_ADDRESS, 8, &[]);
        assert_eq!(cfi.rules(Aarch64, 8), [rule_without_offsets(CfaRule::SignalFrame); 8]);
    }
}
