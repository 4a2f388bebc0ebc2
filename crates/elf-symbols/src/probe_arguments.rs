//! The arguments of static probes: operands of x86-64 in AT&T syntax, each with the size of its value.
//!
//! Format: "Argument Format" of "User Space Probe Implementation", SystemTap wiki: `N@OP`, separated by spaces, with a negative
//! `N` for a value with a sign.

/// The value of an argument of a static probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProbeArgument {
    /// 1, 2, 4 or 8.
    pub bytes: u32,
    /// Whether the value has a sign.
    pub is_signed: bool,
    /// The place of the value.
    pub operand: Operand,
}

/// The place of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// The value itself.
    Constant(i32),
    /// The lower bytes of a register.
    Register(Register),
    /// The memory at an offset from the address in a register.
    Memory {
        /// The register.
        base: Register,
        /// In bytes.
        offset: i32,
    },
}

/// A general register of x86-64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are those of the registers")]
pub enum Register {
    Rax,
    Rbx,
    Rcx,
    Rdx,
    Rsi,
    Rdi,
    Rbp,
    Rsp,
    R8,
    R9,
    R10,
    R11,
    R12,
    R13,
    R14,
    R15,
}

/// The names of each register, by the number of bytes: 8, 4, 2, 1.
const REGISTER_NAMES: [(Register, [&str; 4]); 16] = [
    (Register::Rax, ["rax", "eax", "ax", "al"]),
    (Register::Rbx, ["rbx", "ebx", "bx", "bl"]),
    (Register::Rcx, ["rcx", "ecx", "cx", "cl"]),
    (Register::Rdx, ["rdx", "edx", "dx", "dl"]),
    (Register::Rsi, ["rsi", "esi", "si", "sil"]),
    (Register::Rdi, ["rdi", "edi", "di", "dil"]),
    (Register::Rbp, ["rbp", "ebp", "bp", "bpl"]),
    (Register::Rsp, ["rsp", "esp", "sp", "spl"]),
    (Register::R8, ["r8", "r8d", "r8w", "r8b"]),
    (Register::R9, ["r9", "r9d", "r9w", "r9b"]),
    (Register::R10, ["r10", "r10d", "r10w", "r10b"]),
    (Register::R11, ["r11", "r11d", "r11w", "r11b"]),
    (Register::R12, ["r12", "r12d", "r12w", "r12b"]),
    (Register::R13, ["r13", "r13d", "r13w", "r13b"]),
    (Register::R14, ["r14", "r14d", "r14w", "r14b"]),
    (Register::R15, ["r15", "r15d", "r15w", "r15b"]),
];

impl ProbeArgument {
    /// Parses an argument; `None` where its value is a floating-point number, or its address has an index or is relative to the
    /// instruction.
    pub fn parse(text: &str) -> Option<Self> {
        let (size, operand) = text.split_once('@')?;
        let bytes: i32 = size.parse().ok()?;
        let is_signed = bytes < 0;
        let bytes = bytes.unsigned_abs();
        let operand = parse_operand(operand)?;
        matches!(bytes, 1 | 2 | 4 | 8).then_some(Self { bytes, is_signed, operand })
    }
}

fn parse_operand(text: &str) -> Option<Operand> {
    if let Some(number) = text.strip_prefix('$') {
        return parse_number(number).map(Operand::Constant);
    }
    if text.starts_with('%') {
        return parse_register(text).map(|(register, _)| Operand::Register(register));
    }
    let (offset, base) = text.strip_suffix(')')?.split_once('(')?;
    let offset = if offset.is_empty() { 0 } else { parse_number(offset)? };
    let (base, is_whole) = parse_register(base)?;
    is_whole.then_some(Operand::Memory { base, offset })
}

/// A register by a name, and whether this is the name of all its bytes.
fn parse_register(text: &str) -> Option<(Register, bool)> {
    let name = text.strip_prefix('%')?;
    let (register, names) = REGISTER_NAMES.iter().find(|(_, names)| names.contains(&name))?;
    Some((*register, names[0] == name))
}

/// Parses a decimal number, or a hexadecimal one that starts with `0x`.
fn parse_number(text: &str) -> Option<i32> {
    let (digits, is_negative) = text.strip_prefix('-').map_or((text, false), |digits| (digits, true));
    let number = match digits.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).ok()?,
        None => digits.parse().ok()?,
    };
    i32::try_from(if is_negative { number.checked_neg()? } else { number }).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<(u32, bool, Operand)> {
        ProbeArgument::parse(text).map(|argument| (argument.bytes, argument.is_signed, argument.operand))
    }

    #[test]
    fn constants_registers_and_memory_are_operands() {
        assert_eq!(parsed("4@$17"), Some((4, false, Operand::Constant(17))));
        assert_eq!(parsed("-4@$-1"), Some((4, true, Operand::Constant(-1))));
        assert_eq!(parsed("8@%rdi"), Some((8, false, Operand::Register(Register::Rdi))));
        assert_eq!(parsed("-1@%r12b"), Some((1, true, Operand::Register(Register::R12))));
        assert_eq!(parsed("2@%ax"), Some((2, false, Operand::Register(Register::Rax))));
        let memory = |base, offset| Operand::Memory { base, offset };
        assert_eq!(parsed("-4@-20(%rbp)"), Some((4, true, memory(Register::Rbp, -20))));
        assert_eq!(parsed("8@(%r10)"), Some((8, false, memory(Register::R10, 0))));
        assert_eq!(parsed("8@0x10(%rsp)"), Some((8, false, memory(Register::Rsp, 16))));
    }

    #[test]
    fn other_operands_are_not_supported() {
        for text in [
            "",
            "8@",
            "%rdi",
            "3@%rdi",
            "8f@%xmm0",
            "4@%ah",
            "8@counter(%rip)",
            "8@(%rax,%rbx,8)",
            "8@4(%eax)",
            "8@4(%r8d)",
            "8@4(%rax",
            "8@$0x100000000",
            "-9223372036854775808@$1",
        ] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }
}
