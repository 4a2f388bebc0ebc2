//! Finds the end of a function whose symbol has no size.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, OpKind};

/// The offset behind the last instruction of a function whose first byte has an address; `None` if `code`, which can be
/// longer, does not show an end.
///
/// A function ends behind an instruction after which execution continues elsewhere, if no jump before leads further. A
/// table of jumps can, so that the end can be too early.
pub fn end_of_function(code: &[u8], address: u64) -> Option<usize> {
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    let mut last_target = address;
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            return None;
        }
        if instruction.op0_kind() == OpKind::NearBranch64 && !instruction.is_call_near() {
            last_target = last_target.max(instruction.near_branch_target());
        }
        let continues_elsewhere = matches!(
            instruction.flow_control(),
            FlowControl::Return
                | FlowControl::UnconditionalBranch
                | FlowControl::IndirectBranch
                | FlowControl::Exception
        );
        if continues_elsewhere && last_target < instruction.next_ip() {
            return Some(decoder.position());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const RET: &[u8] = &[0xc3];
    const NOP: &[u8] = &[0x90];
    const NOT_AN_INSTRUCTION: &[u8] = &[0x06];

    fn end(code: &[&[u8]]) -> Option<usize> {
        end_of_function(&code.concat(), 0x1000)
    }

    #[test]
    fn a_function_ends_behind_the_instruction_after_which_execution_continues_elsewhere() {
        let (jump_back, jump_by_register, trap): (&[u8], &[u8], &[u8]) =
            (&[0xeb, 0xee], &[0xff, 0xe0], &[0x0f, 0x0b]);
        for exit in [RET, jump_back, jump_by_register, trap] {
            assert_eq!(end(&[NOP, exit, NOP, RET]), Some(1 + exit.len()), "{exit:x?}");
            assert_eq!(end(&[NOP, exit]), Some(1 + exit.len()), "{exit:x?}");
        }
        let call_behind: &[u8] = &[0xe8, 0, 1, 0, 0];
        assert_eq!(end(&[call_behind, RET, NOP]), Some(6));
    }

    #[test]
    fn code_to_which_a_jump_leads_is_of_the_function() {
        let jump_over_return: &[u8] = &[0x74, 1];
        assert_eq!(end(&[jump_over_return, RET, NOP, RET, NOP]), Some(5));
        let long_jump: &[u8] = &[0xe9, 0, 1, 0, 0];
        assert_eq!(end(&[long_jump, RET, NOP]), None, "it can be within the function");
    }

    #[test]
    fn code_without_an_end_has_none() {
        assert_eq!(end(&[]), None);
        assert_eq!(end(&[&[0x90; 64]]), None);
        assert_eq!(end(&[NOT_AN_INSTRUCTION, RET]), None);
    }
}
