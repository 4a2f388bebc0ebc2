//! AArch64: the call leaves the return address in the link register, and the function stores it when it likes.
//!
//! Where the function signs the return address (`DW_CFA_AARCH64_negate_ra_state`), what it stored has a
//! signature in the bits that no address uses. That makes no row of its own: who reads the return address
//! takes these bits away, signed or not.

use gimli::{AArch64 as Registers, RegisterRule, Vendor};
use profiler_common::unwind::{CfaRule, FramePointerRule, ReturnAddressRule, Rule};

use super::Architecture;

pub(super) const AARCH64: Architecture = Architecture {
    stack_pointer: Registers::SP,
    frame_pointer: Registers::X29,
    vendor: Vendor::AArch64,
    return_address,
    // An entry neither pushes nor calls: its code is always the same, and linkers describe none of it.
    linkage_table: |_| None,
    linkage_sections: &[(b".plt", ENTRY), (b".iplt", ENTRY)],
};

const ENTRY: Rule = Rule {
    cfa: CfaRule::StackPointer as u8,
    frame_pointer: FramePointerRule::Same as u8,
    return_address: ReturnAddressRule::LinkRegister as u8,
    reserved: 0,
    frame_pointer_offset: 0,
    return_address_offset: 0,
    cfa_offset: 0,
};

fn return_address(rule: Option<&RegisterRule<usize>>) -> Option<(ReturnAddressRule, i16)> {
    match rule {
        None | Some(RegisterRule::SameValue) => Some((ReturnAddressRule::LinkRegister, 0)),
        Some(RegisterRule::Offset(offset)) => Some((ReturnAddressRule::AtCfa, (*offset).try_into().ok()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use object::elf::EM_AARCH64;

    use super::{
        super::super::test_frames::{CODE_ADDRESS, TestFrames, linked, whole},
        *,
    };

    const IN_REGISTER: (ReturnAddressRule, i16) = (ReturnAddressRule::LinkRegister, 0);
    const SAME: (FramePointerRule, i16) = (FramePointerRule::Same, 0);

    #[test]
    fn a_function_returns_by_the_link_register_until_it_has_stored_it() {
        // stp x29, x30, [sp, #-32]!; mov x29, sp; ...; ldp x29, x30, [sp], #32; ret
        let instructions = [
            [0x44, 0x0e, 32, 0x9d, 4, 0x9e, 3].as_slice(), // behind 4 bytes: cfa at 32, x29 at -32, x30 at -24
            &[0x44, 0x0d, 29],                             // behind 4: cfa by x29
            &[0x44, 0x0c, 31, 0, 0xdd, 0xde],              // behind 4: all as it was
        ];
        let frames = TestFrames::aarch64().function(CODE_ADDRESS, 16, &instructions.concat());
        let rules = frames.rules(EM_AARCH64, 16);
        let stored = linked(32, (FramePointerRule::AtCfa, -32), (ReturnAddressRule::AtCfa, -24));
        assert_eq!(rules[0], linked(0, SAME, IN_REGISTER));
        assert_eq!(rules[4], stored);
        assert_eq!(rules[8], Rule { cfa: CfaRule::FramePointer as u8, ..stored });
        assert_eq!(rules[12], linked(0, SAME, IN_REGISTER));
    }

    #[test]
    fn a_signed_return_address_is_where_one_that_is_not_would_be() {
        // paciasp; str x30, [sp, #-16]!; ...; ldr x30, [sp], #16; autiasp
        let instructions = [0x44, 0x2d, 0x44, 0x0e, 16, 0x9e, 2, 0x44, 0x0e, 0, 0xde, 0x44, 0x2d];
        let frames = TestFrames::aarch64().function(CODE_ADDRESS, 20, &instructions);
        let rules = frames.rules(EM_AARCH64, 20);
        let in_register = linked(0, SAME, IN_REGISTER);
        assert_eq!(
            (rules[0], rules[4], rules[12], rules[16]),
            (in_register, in_register, in_register, in_register)
        );
        assert_eq!(rules[8], linked(16, SAME, (ReturnAddressRule::AtCfa, -16)));
    }

    #[test]
    fn the_outermost_function_has_no_return_address() {
        let frames = TestFrames::aarch64().function(CODE_ADDRESS, 8, &[0x07, 30]);
        assert_eq!(frames.rules(EM_AARCH64, 8), [whole(CfaRule::Root); 8]);
    }

    #[test]
    fn a_return_address_in_another_register_is_not_supported() {
        let frames = TestFrames::aarch64().function(CODE_ADDRESS, 8, &[0x09, 30, 15]);
        assert_eq!(frames.rules(EM_AARCH64, 8), [whole(CfaRule::Unsupported); 8]);
    }

    #[test]
    fn signal_frames_are_the_kernel_s_on_every_machine() {
        let frames = TestFrames::default().shared("zRS", 30, &[0x0c, 31, 0]);
        let frames = frames.function(CODE_ADDRESS, 8, &[]);
        assert_eq!(frames.rules(EM_AARCH64, 8), [whole(CfaRule::SignalFrame); 8]);
    }
}
