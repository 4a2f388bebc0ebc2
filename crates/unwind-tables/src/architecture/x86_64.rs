//! x86-64: a call pushes the return address.

use gimli::{Register, RegisterRule, Vendor, X86_64 as Registers};
use profiler_common::unwind::{CfaRule, FramePointerRule, LeafRegister, RbxRule, ReturnAddressRule, Rule};

use crate::architecture::definition::{Architecture, ReturnAddress};

pub(crate) const X86_64: Architecture = Architecture {
    stack_pointer: Registers::RSP,
    frame_pointer: Registers::RBP,
    cfa_registers: &[
        (Registers::RSP, CfaRule::StackPointer),
        (Registers::RBP, CfaRule::FramePointer),
        (Registers::RBX, CfaRule::Rbx),
    ],
    leaf_register,
    is_signal_frame,
    vendor: Vendor::Default,
    return_address,
    plt_rule,
    plt_sections: &[
        (b".plt", pushing_plt_entry(PUSH_END)),
        (b".iplt", pushing_plt_entry(PUSH_END)),
        (b".plt.sec", JUMPING_PLT_ENTRY),
        (b".plt.got", JUMPING_PLT_ENTRY),
    ],
};

/// The offset of the return address from the CFA, except where it is in a register.
const RETURN_ADDRESS_OFFSET: i16 = -8;

/// The offset behind the `push` in a PLT entry (`jmp *slot; push index; jmp first`).
const PUSH_END: i32 = 11;

const JUMPING_PLT_ENTRY: Rule = Rule {
    cfa: CfaRule::StackPointer as u8,
    frame_pointer: FramePointerRule::Same as u8,
    return_address: ReturnAddressRule::AtCfa as u8,
    rbx: RbxRule::UNDEFINED,
    frame_pointer_offset: 0,
    return_address_offset: RETURN_ADDRESS_OFFSET,
    cfa_offset: 8,
};

const fn pushing_plt_entry(push_end: i32) -> Rule {
    Rule { cfa: CfaRule::Plt as u8, cfa_offset: push_end, ..JUMPING_PLT_ENTRY }
}

/// The position of a register in `struct pt_regs` (`arch/x86/include/asm/ptrace.h`).
fn leaf_register(register: Register) -> Option<u8> {
    let position = match register {
        Registers::R15 => 0,
        Registers::R14 => 1,
        Registers::R13 => 2,
        Registers::R12 => 3,
        Registers::RBP => 4,
        Registers::RBX => 5,
        Registers::R11 => 6,
        Registers::R10 => 7,
        Registers::R9 => 8,
        Registers::R8 => 9,
        Registers::RAX => 10,
        Registers::RCX => 11,
        Registers::RDX => 12,
        Registers::RSI => 13,
        Registers::RDI => 14,
        _ => return None,
    };
    Some(LeafRegister::FLAG | position)
}

/// Whether the CFA is the stack pointer that `struct rt_sigframe` holds (`arch/x86/include/asm/sigframe.h`): 160 bytes above the
/// stack pointer of the return trampoline.
fn is_signal_frame(cfa: Option<Rule>) -> bool {
    const SAVED_STACK_POINTER: i32 = 160;
    cfa.is_some_and(|rule| {
        rule.cfa == CfaRule::StoredAtStackPointer as u8 && rule.cfa_offset == SAVED_STACK_POINTER
    })
}

fn return_address(rule: Option<&RegisterRule<usize>>) -> Option<ReturnAddress> {
    match rule? {
        RegisterRule::Offset(offset) => Some((ReturnAddressRule::AtCfa as u8, i16::try_from(*offset).ok()?)),
        RegisterRule::Register(register) => Some((leaf_register(*register)?, 0)),
        _ => None,
    }
}

/// Recognizes `rsp + 8 + ((rip & 15) >= n) << 3`, which every linker writes with the same operations.
fn plt_rule(expression: &[u8]) -> Option<Rule> {
    const BREG7_8_BREG16_0_LIT15_AND: [u8; 6] = [0x77, 8, 0x80, 0, 0x3f, 0x1a];
    const GE_LIT3_SHL_PLUS: [u8; 4] = [0x2a, 0x33, 0x24, 0x22];
    const LIT0: u8 = 0x30;
    const LIT15: u8 = 0x3f;
    let [literal, rest @ ..] = expression.strip_prefix(&BREG7_8_BREG16_0_LIT15_AND)? else { return None };
    let is_literal = (LIT0..=LIT15).contains(literal);
    (is_literal && rest == GE_LIT3_SHL_PLUS).then(|| pushing_plt_entry((literal - LIT0).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLT_EXPRESSION: [u8; 11] = [0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22];

    #[test]
    fn the_plt_expression_states_where_the_push_ends() {
        assert_eq!(plt_rule(&PLT_EXPRESSION), Some(pushing_plt_entry(11)));
        let mut with_branch_tracking = PLT_EXPRESSION;
        with_branch_tracking[6] = 0x39;
        assert_eq!(plt_rule(&with_branch_tracking), Some(pushing_plt_entry(9)));
    }

    #[test]
    fn an_expression_that_differs_in_any_byte_is_not_recognized() {
        for position in 0..PLT_EXPRESSION.len() {
            let mut changed = PLT_EXPRESSION;
            changed[position] ^= 0x40;
            assert_eq!(plt_rule(&changed), None, "{position}");
            assert_eq!(plt_rule(&PLT_EXPRESSION[..position]), None);
        }
        assert_eq!(plt_rule(&[&PLT_EXPRESSION[..], &[0x22]].concat()), None);
    }

    #[test]
    fn the_return_address_is_on_the_stack_or_in_a_register() {
        assert_eq!(
            return_address(Some(&RegisterRule::Offset(-8))),
            Some((ReturnAddressRule::AtCfa as u8, -8))
        );
        assert_eq!(
            return_address(Some(&RegisterRule::Offset(-16))),
            Some((ReturnAddressRule::AtCfa as u8, -16))
        );
        assert_eq!(return_address(Some(&RegisterRule::Register(Registers::RDI))), Some((0x1e, 0)));
        let in_vector_register = RegisterRule::Register(Registers::XMM0);
        for other in [None, Some(RegisterRule::SameValue), Some(in_vector_register)] {
            assert_eq!(return_address(other.as_ref()), None);
        }
    }
}
