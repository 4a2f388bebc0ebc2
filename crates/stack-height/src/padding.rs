//! Recognizes what fills the space between functions.

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind};

/// The length of the instruction if it fills the space between functions. Of zeros it is 1: no function begins with them, and their number
/// can be odd. `bytes` are those of the instruction, and more.
pub(crate) fn padding_length(instruction: &Instruction, bytes: Option<&[u8]>) -> Option<u64> {
    if bytes.is_some_and(|bytes| bytes.starts_with(&[0])) {
        return Some(1);
    }
    let exchanges_nothing = instruction.mnemonic() == Mnemonic::Xchg
        && instruction.op0_kind() == OpKind::Register
        && instruction.op1_kind() == OpKind::Register
        && instruction.op0_register() == instruction.op1_register();
    let is_padding = matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3) || exchanges_nothing;
    is_padding.then_some(instruction.len() as u64)
}

/// The offset of the first instruction of code that is not padding; `None` if all of it is.
pub fn behind_padding(code: &[u8]) -> Option<usize> {
    let mut offset = 0;
    while let Some(rest @ [_, ..]) = code.get(offset..) {
        let instruction = Decoder::new(64, rest, DecoderOptions::NONE).decode();
        let Some(length) = padding_length(&instruction, Some(rest)) else { return Some(offset) };
        offset += length as usize;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_instruction_behind_padding_is_found() {
        let long_nop = [0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0];
        let exchange = [0x66, 0x90];
        for padding in [&[][..], &[0x90], &[0xcc; 5], &[0; 3], &long_nop, &exchange] {
            assert_eq!(behind_padding(padding), None, "{padding:x?}");
            let repeated = padding.repeat(2);
            assert_eq!(behind_padding(&repeated), None, "{padding:x?}");
            assert_eq!(behind_padding(&[&repeated[..], &[0x55]].concat()), Some(repeated.len()));
        }
        let (not_an_instruction, trap) = ([0x90, 0x06], [0x0f, 0x0b]);
        assert_eq!((behind_padding(&not_an_instruction), behind_padding(&trap)), (Some(1), Some(0)));
    }
}
