//! Compiles a CFI row to an unwind rule of the BPF program.

use gimli::{
    Encoding, EndianSlice, Expression, LittleEndian, Operation, Register, RegisterRule, UnwindContextStorage,
    UnwindSection, UnwindTableRow,
};
use profiler_common::unwind::{CfaRule, FramePointerRule, RbxRule, Rule};

use crate::architecture::Architecture;

pub(crate) type CfiReader<'a> = EndianSlice<'a, LittleEndian>;
pub(crate) type Cie<'a> = gimli::CommonInformationEntry<CfiReader<'a>>;
pub(crate) type CfiRow = UnwindTableRow<usize, RowStorage>;

/// The registers with a rule in one row, which bounds the cost of an instruction. Fewer registers than this have to be
/// restored on any machine.
const MAX_REGISTER_RULES: usize = 64;

/// The nesting of `DW_CFA_remember_state`. Compilers need one.
const MAX_REMEMBERED_ROWS: usize = 8;

/// The memory for the evaluation of rows.
#[derive(Clone, Debug)]
pub(crate) struct RowStorage;

impl UnwindContextStorage<usize> for RowStorage {
    type Rules = [(Register, RegisterRule<usize>); MAX_REGISTER_RULES];
    type Stack = Box<[CfiRow; MAX_REMEMBERED_ROWS]>;
}

const UNSUPPORTED: Rule = rule_without_offsets(CfaRule::Unsupported);
const SIGNAL_FRAME: Rule = rule_without_offsets(CfaRule::SignalFrame);
const ROOT: Rule = rule_without_offsets(CfaRule::Root);

/// A rule without offsets: the kind of its CFA rule is complete.
pub(crate) const fn rule_without_offsets(cfa: CfaRule) -> Rule {
    Rule {
        cfa: cfa as u8,
        frame_pointer: FramePointerRule::Same as u8,
        return_address: 0,
        rbx: RbxRule::UNDEFINED,
        frame_pointer_offset: 0,
        return_address_offset: 0,
        cfa_offset: 0,
    }
}

/// Compiles the rows of one section.
pub(crate) struct RuleCompiler<'a, S> {
    pub(crate) architecture: &'static Architecture,
    /// The section that contains the expressions.
    pub(crate) section: &'a S,
    /// Whether rules restore rbx, which needs more rows. Few files have code that needs it.
    pub(crate) restores_rbx: bool,
}

impl<'a, S: UnwindSection<CfiReader<'a>>> RuleCompiler<'_, S> {
    /// The rule of a row.
    pub(crate) fn compile(&self, cie: &Cie<'a>, row: &CfiRow) -> Rule {
        if cie.is_signal_trampoline() {
            return SIGNAL_FRAME;
        }
        let return_address = row.register(cie.return_address_register());
        if return_address == Some(RegisterRule::Undefined) {
            return ROOT;
        }
        self.compile_call(cie.encoding(), row, return_address.as_ref()).unwrap_or(UNSUPPORTED)
    }

    fn compile_call(
        &self,
        encoding: Encoding,
        row: &CfiRow,
        return_address: Option<&RegisterRule<usize>>,
    ) -> Option<Rule> {
        let mut rule = match row.cfa() {
            gimli::CfaRule::RegisterAndOffset { register, offset } => {
                self.cfa_at_register(*register, (*offset).try_into().ok()?)?
            }
            gimli::CfaRule::Expression(expression) => {
                let expression = expression.get(self.section).ok()?;
                let plt_rule = (self.architecture.plt_rule)(expression.0.slice());
                plt_rule.or_else(|| self.stored_cfa(expression, encoding))?
            }
        };
        let (return_address, offset) = (self.architecture.return_address)(return_address)?;
        rule.return_address = return_address as u8;
        rule.return_address_offset = offset;
        let (frame_pointer, offset) =
            self.frame_pointer(row, encoding).unwrap_or((FramePointerRule::Undefined, 0));
        rule.frame_pointer = frame_pointer as u8;
        rule.frame_pointer_offset = offset;
        if self.restores_rbx {
            rule.rbx = rbx_rule(row);
        }
        Some(rule)
    }

    fn cfa_at_register(&self, register: Register, cfa_offset: i32) -> Option<Rule> {
        let (_, cfa) = self.architecture.cfa_registers.iter().find(|(base, _)| *base == register)?;
        Some(Rule { cfa_offset, ..rule_without_offsets(*cfa) })
    }

    /// Recognizes the CFA expression `*(register + offset) + addend` of functions that realign their stack.
    fn stored_cfa(&self, expression: Expression<CfiReader<'a>>, encoding: Encoding) -> Option<Rule> {
        let mut operations = expression.operations(encoding);
        let Operation::RegisterOffset { register, offset, .. } = operations.next().ok()?? else {
            return None;
        };
        let Operation::Deref { size: 8, space: false, .. } = operations.next().ok()?? else { return None };
        let addend = match operations.next().ok()? {
            None => 0,
            Some(Operation::PlusConstant { value }) => value.try_into().ok()?,
            Some(_) => return None,
        };
        if operations.next().ok()?.is_some() {
            return None;
        }
        let cfa = match register {
            _ if register == self.architecture.stack_pointer => CfaRule::StoredAtStackPointer,
            _ if register == self.architecture.frame_pointer => CfaRule::StoredAtFramePointer,
            _ => return None,
        };
        Some(Rule { cfa_offset: pack_offsets(offset.try_into().ok()?, addend), ..rule_without_offsets(cfa) })
    }

    fn frame_pointer(&self, row: &CfiRow, encoding: Encoding) -> Option<(FramePointerRule, i16)> {
        match row.register(self.architecture.frame_pointer) {
            None | Some(RegisterRule::SameValue) => Some((FramePointerRule::Same, 0)),
            Some(RegisterRule::Offset(offset)) => Some((FramePointerRule::AtCfa, offset.try_into().ok()?)),
            Some(RegisterRule::Expression(expression)) => {
                let mut operations = expression.get(self.section).ok()?.operations(encoding);
                match (operations.next().ok()??, operations.next().ok()?) {
                    (Operation::RegisterOffset { register, offset, .. }, None)
                        if register == self.architecture.frame_pointer =>
                    {
                        Some((FramePointerRule::AtFramePointer, offset.try_into().ok()?))
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }
}

/// The [`RbxRule`] of a row.
fn rbx_rule(row: &CfiRow) -> u8 {
    const WORD_BYTES: i64 = 8;
    match row.register(gimli::X86_64::RBX) {
        None | Some(RegisterRule::SameValue) => RbxRule::SAME,
        Some(RegisterRule::Offset(offset)) if offset < 0 && offset % WORD_BYTES == 0 => {
            let words = u8::try_from(-(offset / WORD_BYTES)).unwrap_or(u8::MAX);
            words.checked_add(RbxRule::SAME).unwrap_or(RbxRule::UNDEFINED)
        }
        _ => RbxRule::UNDEFINED,
    }
}

/// Packs two signed 16-bit offsets into a 32-bit integer.
fn pack_offsets(low: i16, high: i16) -> i32 {
    let ([a, b], [c, d]) = (low.to_le_bytes(), high.to_le_bytes());
    i32::from_le_bytes([a, b, c, d])
}

#[cfg(test)]
mod tests {
    use profiler_elf_symbols::Machine::X86_64;

    use super::*;
    use crate::test_cfi::{CODE_ADDRESS, TestCfi, x86_64_rule, x86_64_rule_with_frame_pointer};

    /// The rule at the start of an x86-64 function with these CFA instructions.
    fn rule(instructions: &[u8]) -> Rule {
        TestCfi::x86_64().function(CODE_ADDRESS, 1, instructions).rules(X86_64, 1)[0]
    }

    #[test]
    fn the_cfa_is_an_offset_from_the_stack_pointer_or_the_frame_pointer() {
        assert_eq!(rule(&[]), x86_64_rule(CfaRule::StackPointer, 8));
        assert_eq!(rule(&[0x0e, 0x80, 0x20]), x86_64_rule(CfaRule::StackPointer, 4096));
        let pushed = x86_64_rule_with_frame_pointer(CfaRule::FramePointer, 16, FramePointerRule::AtCfa, -16);
        assert_eq!(rule(&[0x0c, 6, 16, 0x86, 2]), pushed);
    }

    #[test]
    fn the_cfa_of_a_realigned_stack_is_stored_in_the_frame() {
        // The CFA is stored at rbp - 8, the old rbp at rbp.
        let rbp = [0x10, 6, 2, 0x76, 0];
        let expected =
            |cfa, offset| x86_64_rule_with_frame_pointer(cfa, offset, FramePointerRule::AtFramePointer, 0);
        let below_rbp = [&[0x0f, 3, 0x76, 0x78, 0x06][..], &rbp].concat();
        assert_eq!(rule(&below_rbp), expected(CfaRule::StoredAtFramePointer, pack_offsets(-8, 0)));
        let above_rsp = [&[0x0f, 5, 0x77, 16, 0x06, 0x23, 24][..], &rbp].concat();
        assert_eq!(rule(&above_rsp), expected(CfaRule::StoredAtStackPointer, pack_offsets(16, 24)));
    }

    #[test]
    fn the_cfa_is_an_offset_from_rbx_or_r10() {
        assert_eq!(rule(&[0x0c, 10, 0]), x86_64_rule(CfaRule::R10, 0));
        let by_rbx = Rule { rbx: RbxRule::SAME, ..x86_64_rule(CfaRule::Rbx, 16) };
        assert_eq!(rule(&[0x0c, 3, 16]), by_rbx);
    }

    #[test]
    fn rbx_is_restored_in_files_with_a_cfa_at_rbx() {
        let restored = |instructions: &[u8]| {
            let other = [0x0c, 3, 16];
            let cfi = TestCfi::x86_64().function(CODE_ADDRESS, 1, instructions);
            cfi.function(CODE_ADDRESS + 1, 1, &other).rules(X86_64, 1)[0].rbx
        };
        assert_eq!(restored(&[]), RbxRule::SAME);
        assert_eq!(restored(&[0x83, 2]), 3, "saved two words below the CFA");
        assert_eq!(restored(&[0x83, 0xfe, 1]), u8::MAX);
        let (far_away, undefined, above) = ([0x83, 0xff, 1], [0x07, 3], [0x11, 3, 0x7f]);
        for instructions in [&far_away[..], &undefined, &above] {
            assert_eq!(restored(instructions), RbxRule::UNDEFINED, "{instructions:x?}");
        }
        assert_eq!(rule(&[0x83, 2]), x86_64_rule(CfaRule::StackPointer, 8), "in a file without one");
    }

    #[test]
    fn an_unsupported_frame_pointer_rule_is_undefined() {
        let undefined_rule =
            x86_64_rule_with_frame_pointer(CfaRule::StackPointer, 8, FramePointerRule::Undefined, 0);
        let undefined = [0x07, 6];
        let in_rax = [0x09, 6, 0];
        let beside_rsp = [0x10, 6, 2, 0x77, 8];
        let far_away = [0x05, 6, 0x80, 0x80, 4];
        for instructions in [&undefined[..], &in_rax, &beside_rsp, &far_away] {
            assert_eq!(rule(instructions), undefined_rule, "{instructions:x?}");
        }
        assert_eq!(rule(&[0x08, 6]), x86_64_rule(CfaRule::StackPointer, 8));
    }

    #[test]
    fn a_row_without_a_rule_of_the_bpf_program_is_unsupported() {
        let by_r11 = [0x0c, 11, 0];
        let far_away = [0x0e, 0x80, 0x80, 0x80, 0x80, 0x10];
        let stored_beside_r10 = [0x0f, 3, 0x7a, 0x78, 0x06];
        let a_constant = [0x0f, 1, 0x31];
        let loaded_twice = [0x0f, 4, 0x76, 0x78, 0x06, 0x06];
        let half_loaded = [0x0f, 4, 0x76, 0x78, 0x94, 4];
        let no_operation = [0x0f, 1, 0xff];
        let nothing = [0x0f, 0];
        let return_address_not_saved = [0x08, 16];
        for instructions in [
            &by_r11[..],
            &far_away,
            &stored_beside_r10,
            &a_constant,
            &loaded_twice,
            &half_loaded,
            &no_operation,
            &nothing,
            &return_address_not_saved,
        ] {
            assert_eq!(rule(instructions), rule_without_offsets(CfaRule::Unsupported), "{instructions:x?}");
        }
    }

    #[test]
    fn a_function_without_a_return_address_is_the_root() {
        assert_eq!(rule(&[0x07, 16]), rule_without_offsets(CfaRule::Root));
    }

    #[test]
    fn a_signal_trampoline_is_one_regardless_of_its_instructions() {
        let cfi = TestCfi::default().cie("zRS", 16, &[0x0c, 7, 8, 0x90, 1]);
        let cfi = cfi.function(CODE_ADDRESS, 1, &[0x0f, 3, 0x77, 0x20, 0x06, 0x07, 16]);
        assert_eq!(cfi.rules(X86_64, 1), [rule_without_offsets(CfaRule::SignalFrame)]);
    }

    #[test]
    fn packed_offsets_are_signed() {
        assert_eq!(pack_offsets(-8, 0), 0xfff8);
        assert_eq!(pack_offsets(16, -1), i32::from_le_bytes([16, 0, 0xff, 0xff]));
    }
}
