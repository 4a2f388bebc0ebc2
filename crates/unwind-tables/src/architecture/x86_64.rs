//! x86-64: the call pushes the return address.

use gimli::{RegisterRule, Vendor, X86_64 as Registers};
use profiler_common::unwind::{CfaRule, FramePointerRule, ReturnAddressRule, Rule};

use super::Architecture;

pub(super) const X86_64: Architecture = Architecture {
    stack_pointer: Registers::RSP,
    frame_pointer: Registers::RBP,
    vendor: Vendor::Default,
    return_address,
    linkage_table,
    linkage_sections: &[
        (b".plt", entry_that_pushes(PUSH_END)),
        (b".iplt", entry_that_pushes(PUSH_END)),
        (b".plt.sec", ENTRY_THAT_JUMPS),
        (b".plt.got", ENTRY_THAT_JUMPS),
    ],
};

/// Where the return address is below the canonical frame address.
const RETURN_ADDRESS_OFFSET: i16 = -8;

/// In `jmp *slot; push index; jmp first`, where the push ends.
const PUSH_END: i32 = 11;

const ENTRY_THAT_JUMPS: Rule = Rule {
    cfa: CfaRule::StackPointer as u8,
    frame_pointer: FramePointerRule::Same as u8,
    return_address: ReturnAddressRule::AtCfa as u8,
    reserved: 0,
    frame_pointer_offset: 0,
    return_address_offset: RETURN_ADDRESS_OFFSET,
    cfa_offset: 8,
};

const fn entry_that_pushes(push_end: i32) -> Rule {
    Rule { cfa: CfaRule::Plt as u8, cfa_offset: push_end, ..ENTRY_THAT_JUMPS }
}

fn return_address(rule: Option<&RegisterRule<usize>>) -> Option<(ReturnAddressRule, i16)> {
    (rule == Some(&RegisterRule::Offset(RETURN_ADDRESS_OFFSET.into())))
        .then_some((ReturnAddressRule::AtCfa, RETURN_ADDRESS_OFFSET))
}

/// `rsp + 8 + ((rip & 15) >= n) << 3`, as every linker spells it.
fn linkage_table(expression: &[u8]) -> Option<Rule> {
    const BREG7_8_BREG16_0_LIT15_AND: [u8; 6] = [0x77, 8, 0x80, 0, 0x3f, 0x1a];
    const GE_LIT3_SHL_PLUS: [u8; 4] = [0x2a, 0x33, 0x24, 0x22];
    const LIT0: u8 = 0x30;
    const LIT15: u8 = 0x3f;
    let [literal, rest @ ..] = expression.strip_prefix(&BREG7_8_BREG16_0_LIT15_AND)? else { return None };
    let is_literal = (LIT0..=LIT15).contains(literal);
    (is_literal && rest == GE_LIT3_SHL_PLUS).then(|| entry_that_pushes((literal - LIT0).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINKAGE_TABLE: [u8; 11] = [0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22];

    #[test]
    fn the_expression_of_linkage_tables_says_where_the_push_ends() {
        assert_eq!(linkage_table(&LINKAGE_TABLE), Some(entry_that_pushes(11)));
        let mut with_branch_tracking = LINKAGE_TABLE;
        with_branch_tracking[6] = 0x39;
        assert_eq!(linkage_table(&with_branch_tracking), Some(entry_that_pushes(9)));
    }

    #[test]
    fn an_expression_that_differs_in_anything_is_none() {
        for position in 0..LINKAGE_TABLE.len() {
            let mut changed = LINKAGE_TABLE;
            changed[position] ^= 0x40;
            assert_eq!(linkage_table(&changed), None, "{position}");
            assert_eq!(linkage_table(&LINKAGE_TABLE[..position]), None);
        }
        assert_eq!(linkage_table(&[&LINKAGE_TABLE[..], &[0x22]].concat()), None);
    }

    #[test]
    fn a_return_address_is_where_the_call_pushed_it() {
        assert_eq!(return_address(Some(&RegisterRule::Offset(-8))), Some((ReturnAddressRule::AtCfa, -8)));
        for other in [None, Some(RegisterRule::SameValue), Some(RegisterRule::Offset(-16))] {
            assert_eq!(return_address(other.as_ref()), None);
        }
    }
}
