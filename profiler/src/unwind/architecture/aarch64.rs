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

fn return_address(rule: Option<RegisterRule<usize>>) -> Option<(ReturnAddressRule, i16)> {
    match rule {
        None | Some(RegisterRule::SameValue) => Some((ReturnAddressRule::LinkRegister, 0)),
        Some(RegisterRule::Offset(offset)) => Some((ReturnAddressRule::AtCfa, offset.try_into().ok()?)),
        _ => None,
    }
}
