//! Compiles a CFI row to an unwind rule of the BPF program.

use gimli::{
    Encoding, EndianSlice, Expression, LittleEndian, Operation, Register, RegisterRule, UnwindContextStorage,
    UnwindSection, UnwindTableRow,
};
use profiler_common::unwind::{CfaRule, FramePointerRule, LeafRegister, RbxRule, Rule, RuleFlags};

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
        let interrupts_caller = cie.is_signal_trampoline();
        let cfa = self.cfa(cie.encoding(), row);
        if interrupts_caller && (self.architecture.is_signal_frame)(cfa) {
            return SIGNAL_FRAME;
        }
        let return_address = row.register(cie.return_address_register());
        if return_address == Some(RegisterRule::Undefined) {
            return ROOT;
        }
        let rule = cfa.and_then(|cfa| self.complete(cfa, cie.encoding(), row, return_address.as_ref()));
        let Some(mut rule) = rule else { return UNSUPPORTED };
        if interrupts_caller {
            rule.return_address |= RuleFlags::INTERRUPTS_CALLER;
        }
        rule
    }

    /// The rule of the CFA alone.
    fn cfa(&self, encoding: Encoding, row: &CfiRow) -> Option<Rule> {
        match row.cfa() {
            gimli::CfaRule::RegisterAndOffset { register, offset } => {
                self.cfa_at_register(*register, (*offset).try_into().ok()?)
            }
            gimli::CfaRule::Expression(expression) => {
                let expression = expression.get(self.section).ok()?;
                let plt_rule = (self.architecture.plt_rule)(expression.0.slice());
                plt_rule.or_else(|| self.stored_cfa(expression, encoding))
            }
        }
    }

    /// Adds the return address and the saved registers to the rule of the CFA.
    fn complete(
        &self,
        cfa: Rule,
        encoding: Encoding,
        row: &CfiRow,
        return_address: Option<&RegisterRule<usize>>,
    ) -> Option<Rule> {
        let (return_address, return_address_offset) = (self.architecture.return_address)(return_address)?;
        let (frame_pointer, frame_pointer_offset) =
            self.frame_pointer(row, encoding).unwrap_or((FramePointerRule::Undefined as u8, 0));
        let rbx = if self.restores_rbx { rbx_rule(row) } else { RbxRule::UNDEFINED };
        let rule =
            Rule { return_address, return_address_offset, frame_pointer, frame_pointer_offset, rbx, ..cfa };
        self.with_stack_pointer(rule, row)
    }

    /// Adds the caller's stack pointer, which is the CFA unless the row has a rule for it, as that of `setcontext` has. A leaf that has
    /// its return address in a register can have the stack pointer in another.
    fn with_stack_pointer(&self, rule: Rule, row: &CfiRow) -> Option<Rule> {
        let can_be_in_a_register = rule.return_address & LeafRegister::FLAG != 0
            && rule.frame_pointer != FramePointerRule::AtCfa as u8;
        match row.register(self.architecture.stack_pointer) {
            None | Some(RegisterRule::ValOffset(0)) => Some(rule),
            Some(RegisterRule::Register(register)) if can_be_in_a_register => {
                Some(Rule { cfa: (self.architecture.leaf_register)(register)?, cfa_offset: 0, ..rule })
            }
            Some(_) => None,
        }
    }

    fn cfa_at_register(&self, register: Register, cfa_offset: i32) -> Option<Rule> {
        let mut registers = self.architecture.cfa_registers.iter();
        let cfa = match registers.find(|(base, _)| *base == register) {
            Some((_, cfa)) => *cfa as u8,
            None => (self.architecture.leaf_register)(register)?,
        };
        Some(Rule { cfa, cfa_offset, ..Rule::default() })
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

    fn frame_pointer(&self, row: &CfiRow, encoding: Encoding) -> Option<(u8, i16)> {
        match row.register(self.architecture.frame_pointer) {
            None | Some(RegisterRule::SameValue) => Some((FramePointerRule::Same as u8, 0)),
            Some(RegisterRule::Offset(offset)) => {
                Some((FramePointerRule::AtCfa as u8, offset.try_into().ok()?))
            }
            Some(RegisterRule::Register(register)) => Some(((self.architecture.leaf_register)(register)?, 0)),
            Some(RegisterRule::Expression(expression)) => {
                let mut operations = expression.get(self.section).ok()?.operations(encoding);
                match (operations.next().ok()??, operations.next().ok()?) {
                    (Operation::RegisterOffset { register, offset, .. }, None)
                        if register == self.architecture.frame_pointer =>
                    {
                        Some((FramePointerRule::AtFramePointer as u8, offset.try_into().ok()?))
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
pub(crate) fn pack_offsets(low: i16, high: i16) -> i32 {
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
    fn the_cfa_is_an_offset_from_a_register_of_the_leaf() {
        let at =
            |position| Rule { cfa: LeafRegister::FLAG | position, ..x86_64_rule(CfaRule::StackPointer, 8) };
        for (dwarf, position) in [(10, 7), (11, 6), (9, 8), (0, 10), (4, 13), (15, 0)] {
            assert_eq!(rule(&[0x0c, dwarf, 8]), at(position), "register {dwarf}");
        }
        let by_rbx = Rule { rbx: RbxRule::SAME, ..x86_64_rule(CfaRule::Rbx, 16) };
        assert_eq!(rule(&[0x0c, 3, 16]), by_rbx);
    }

    #[test]
    fn a_leaf_can_have_its_return_address_in_a_register() {
        // `vfork` of glibc: pop %rdi; the CFA is the stack pointer, the return address in rdi.
        let in_rdi = Rule {
            return_address: LeafRegister::FLAG | 14,
            return_address_offset: 0,
            ..x86_64_rule(CfaRule::StackPointer, 0)
        };
        assert_eq!(rule(&[0x0e, 0, 0x09, 16, 5]), in_rdi);
        // `__longjmp` of glibc: the buffer at rdi is the CFA, the caller's rsp is in r8, its rbp in r9, its rip in rdx.
        let restored = Rule {
            cfa: LeafRegister::FLAG | 9,
            frame_pointer: LeafRegister::FLAG | 8,
            return_address: LeafRegister::FLAG | 12,
            ..Rule::default()
        };
        assert_eq!(rule(&[0x0c, 5, 0, 0x09, 7, 8, 0x09, 6, 9, 0x09, 16, 1]), restored);
        let stack_pointer_in_memory = [0x0c, 5, 0, 0x87, 2, 0x09, 16, 1];
        assert_eq!(rule(&stack_pointer_in_memory), rule_without_offsets(CfaRule::Unsupported));
    }

    /// `setcontext` of glibc: its CFA is the context at rdi, which has the caller's registers.
    #[test]
    fn a_row_whose_callers_stack_pointer_is_not_the_cfa_is_unsupported() {
        let return_address_in_context = [0x0c, 5, 0, 0x11, 16, 0x6b];
        let with_stack_pointer = |rule: &[u8]| [&return_address_in_context[..], rule].concat();
        let in_context = Rule {
            cfa: LeafRegister::FLAG | 14,
            return_address_offset: 168,
            ..x86_64_rule(CfaRule::Unknown, 0)
        };
        for cfa in [&[][..], &[0x14, 7, 0]] {
            assert_eq!(rule(&with_stack_pointer(cfa)), in_context);
        }
        let (in_memory, in_a_register, above_the_cfa) = ([0x11, 7, 0x6c], [0x09, 7, 2], [0x14, 7, 1]);
        let (not_changed, by_an_expression) = ([0x08, 7, 0], [0x16, 7, 2, 0x77, 8]);
        let stated: [&[u8]; 5] =
            [&in_memory, &in_a_register, &above_the_cfa, &not_changed, &by_an_expression];
        for stack_pointer in stated {
            let instructions = with_stack_pointer(stack_pointer);
            assert_eq!(rule(&instructions), rule_without_offsets(CfaRule::Unsupported), "{stack_pointer:x?}");
        }
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
        let in_a_vector_register = [0x09, 6, 17];
        let beside_rsp = [0x10, 6, 2, 0x77, 8];
        let far_away = [0x05, 6, 0x80, 0x80, 4];
        for instructions in [&undefined[..], &in_a_vector_register, &beside_rsp, &far_away] {
            assert_eq!(rule(instructions), undefined_rule, "{instructions:x?}");
        }
        assert_eq!(rule(&[0x08, 6]), x86_64_rule(CfaRule::StackPointer, 8));
    }

    #[test]
    fn a_row_without_a_rule_of_the_bpf_program_is_unsupported() {
        let by_a_vector_register = [0x0c, 17, 0];
        let far_away = [0x0e, 0x80, 0x80, 0x80, 0x80, 0x10];
        let stored_beside_r10 = [0x0f, 3, 0x7a, 0x78, 0x06];
        let a_constant = [0x0f, 1, 0x31];
        let loaded_twice = [0x0f, 4, 0x76, 0x78, 0x06, 0x06];
        let half_loaded = [0x0f, 4, 0x76, 0x78, 0x94, 4];
        let no_operation = [0x0f, 1, 0xff];
        let nothing = [0x0f, 0];
        let return_address_not_saved = [0x08, 16];
        for instructions in [
            &by_a_vector_register[..],
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

    /// The rule at the start of a function whose CIE has the augmentation `S`.
    fn rule_of_signal_frame(instructions: &[u8]) -> Rule {
        let cfi = TestCfi::default().cie("zRS", 16, &[0x0c, 7, 8, 0x90, 1]);
        cfi.function(CODE_ADDRESS, 1, instructions).rules(X86_64, 1)[0]
    }

    #[test]
    fn the_signal_frame_of_the_kernel_is_recognized_by_its_cfa() {
        // CFA: the word at rsp + 160; the return address at rsp + 168.
        let restore_rt = [0x0f, 4, 0x77, 0xa0, 1, 0x06, 0x10, 16, 3, 0x77, 0xa8, 1];
        assert_eq!(rule_of_signal_frame(&restore_rt), rule_without_offsets(CfaRule::SignalFrame));
        let elsewhere = [0x0f, 4, 0x77, 0xa8, 1, 0x06, 0x10, 16, 3, 0x77, 0xa0, 1];
        assert_eq!(rule_of_signal_frame(&elsewhere), rule_without_offsets(CfaRule::Unsupported));
    }

    #[test]
    fn an_ordinary_rule_in_a_signal_frame_interrupts_the_caller() {
        let interrupts = |rule: Rule| Rule { return_address: RuleFlags::INTERRUPTS_CALLER, ..rule };
        assert_eq!(rule_of_signal_frame(&[]), interrupts(x86_64_rule(CfaRule::StackPointer, 8)));
        assert_eq!(rule_of_signal_frame(&[0x0e, 32]), interrupts(x86_64_rule(CfaRule::StackPointer, 32)));
    }

    #[test]
    fn packed_offsets_are_signed() {
        assert_eq!(pack_offsets(-8, 0), 0xfff8);
        assert_eq!(pack_offsets(16, -1), i32::from_le_bytes([16, 0, 0xff, 0xff]));
    }
}
