//! What a row of call frame information says, as one of the rules that the kernel side knows.

use gimli::{
    Encoding, EndianSlice, Expression, LittleEndian, Operation, Register, RegisterRule, UnwindContextStorage,
    UnwindSection, UnwindTableRow,
};
use profiler_common::unwind::{CfaRule, FramePointerRule, Rule};

use super::architecture::Architecture;

pub(super) type ByteCursor<'a> = EndianSlice<'a, LittleEndian>;
pub(super) type Cie<'a> = gimli::CommonInformationEntry<ByteCursor<'a>>;
pub(super) type CfiRow = UnwindTableRow<usize, RowStorage>;

/// More registers than a machine has whose rules matter: their number bounds what an instruction costs.
const MAX_REGISTER_RULES: usize = 64;

/// How deep rows are remembered. Compilers need one.
const MAX_REMEMBERED_ROWS: usize = 8;

/// Where rows are made.
#[derive(Clone, Debug)]
pub(super) struct RowStorage;

impl UnwindContextStorage<usize> for RowStorage {
    type Rules = [(Register, RegisterRule<usize>); MAX_REGISTER_RULES];
    type Stack = Box<[CfiRow; MAX_REMEMBERED_ROWS]>;
}

const UNSUPPORTED: Rule = of_code(CfaRule::Unsupported);
const SIGNAL_FRAME: Rule = of_code(CfaRule::SignalFrame);
const ROOT: Rule = of_code(CfaRule::Root);

/// A rule that says everything of the code.
pub(super) const fn of_code(cfa: CfaRule) -> Rule {
    Rule {
        cfa: cfa as u8,
        frame_pointer: FramePointerRule::Same as u8,
        return_address: 0,
        reserved: 0,
        frame_pointer_offset: 0,
        return_address_offset: 0,
        cfa_offset: 0,
    }
}

/// Makes rules of rows.
pub(super) struct Rules<'a, S> {
    pub(super) architecture: &'static Architecture,
    /// Where expressions stand.
    pub(super) section: &'a S,
}

impl<'a, S: UnwindSection<ByteCursor<'a>>> Rules<'a, S> {
    /// The rule of a row.
    pub(super) fn of_row(&self, cie: &Cie<'a>, row: &CfiRow) -> Rule {
        if cie.is_signal_trampoline() {
            return SIGNAL_FRAME;
        }
        let return_address = row.register(cie.return_address_register());
        if return_address == Some(RegisterRule::Undefined) {
            return ROOT;
        }
        self.of_call(cie.encoding(), row, return_address.as_ref()).unwrap_or(UNSUPPORTED)
    }

    fn of_call(
        &self,
        encoding: Encoding,
        row: &CfiRow,
        return_address: Option<&RegisterRule<usize>>,
    ) -> Option<Rule> {
        let mut rule = match row.cfa() {
            gimli::CfaRule::RegisterAndOffset { register, offset } => {
                self.at_register(*register, (*offset).try_into().ok()?)?
            }
            gimli::CfaRule::Expression(expression) => {
                let expression = expression.get(self.section).ok()?;
                let linkage_table = (self.architecture.linkage_table)(expression.0.slice());
                linkage_table.or_else(|| self.stored(expression, encoding))?
            }
        };
        let (return_address, offset) = (self.architecture.return_address)(return_address)?;
        rule.return_address = return_address as u8;
        rule.return_address_offset = offset;
        let (frame_pointer, offset) =
            self.frame_pointer(row, encoding).unwrap_or((FramePointerRule::Undefined, 0));
        rule.frame_pointer = frame_pointer as u8;
        rule.frame_pointer_offset = offset;
        Some(rule)
    }

    fn at_register(&self, register: Register, cfa_offset: i32) -> Option<Rule> {
        let cfa = match register {
            _ if register == self.architecture.stack_pointer => CfaRule::StackPointer,
            _ if register == self.architecture.frame_pointer => CfaRule::FramePointer,
            _ => return None,
        };
        Some(Rule { cfa_offset, ..of_code(cfa) })
    }

    /// `*(register + offset) + addend`: functions that realign their stack keep the address of their caller's.
    fn stored(&self, expression: Expression<ByteCursor<'a>>, encoding: Encoding) -> Option<Rule> {
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
        Some(Rule { cfa_offset: halves(offset.try_into().ok()?, addend), ..of_code(cfa) })
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

/// Two signed halves in one number.
fn halves(low: i16, high: i16) -> i32 {
    let ([a, b], [c, d]) = (low.to_le_bytes(), high.to_le_bytes());
    i32::from_le_bytes([a, b, c, d])
}

#[cfg(test)]
mod tests {
    use object::elf::EM_X86_64;

    use super::{
        super::test_frames::{CODE_ADDRESS, TestFrames, plain, saved, whole},
        *,
    };

    /// The rule of a function of x86-64 whose description begins with those instructions.
    fn rule(instructions: &[u8]) -> Rule {
        TestFrames::x86_64().function(CODE_ADDRESS, 1, instructions).rules(EM_X86_64, 1)[0]
    }

    #[test]
    fn a_frame_is_found_by_the_stack_pointer_or_the_frame_pointer() {
        assert_eq!(rule(&[]), plain(CfaRule::StackPointer, 8));
        assert_eq!(rule(&[0x0e, 0x80, 0x20]), plain(CfaRule::StackPointer, 4096));
        let pushed = saved(CfaRule::FramePointer, 16, FramePointerRule::AtCfa, -16);
        assert_eq!(rule(&[0x0c, 6, 16, 0x86, 2]), pushed);
    }

    #[test]
    fn a_realigned_stack_keeps_the_address_of_its_caller_s_frame() {
        // The frame address is stored 8 below rbp, and the old rbp where rbp points to.
        let rbp = [0x10, 6, 2, 0x76, 0];
        let expected = |cfa, offset| saved(cfa, offset, FramePointerRule::AtFramePointer, 0);
        let below_rbp = [&[0x0f, 3, 0x76, 0x78, 0x06][..], &rbp].concat();
        assert_eq!(rule(&below_rbp), expected(CfaRule::StoredAtFramePointer, halves(-8, 0)));
        let above_rsp = [&[0x0f, 5, 0x77, 16, 0x06, 0x23, 24][..], &rbp].concat();
        assert_eq!(rule(&above_rsp), expected(CfaRule::StoredAtStackPointer, halves(16, 24)));
    }

    #[test]
    fn a_frame_pointer_that_is_kept_elsewhere_is_lost() {
        let lost = saved(CfaRule::StackPointer, 8, FramePointerRule::Undefined, 0);
        let undefined = [0x07, 6];
        let in_rax = [0x09, 6, 0];
        let beside_rsp = [0x10, 6, 2, 0x77, 8];
        let far_away = [0x05, 6, 0x80, 0x80, 4];
        for instructions in [&undefined[..], &in_rax, &beside_rsp, &far_away] {
            assert_eq!(rule(instructions), lost, "{instructions:x?}");
        }
        assert_eq!(rule(&[0x08, 6]), plain(CfaRule::StackPointer, 8));
    }

    #[test]
    fn what_the_kernel_side_has_no_rule_for_is_unsupported() {
        let by_r10 = [0x0c, 10, 0];
        let far_away = [0x0e, 0x80, 0x80, 0x80, 0x80, 0x10];
        let stored_beside_r10 = [0x0f, 3, 0x7a, 0x78, 0x06];
        let a_constant = [0x0f, 1, 0x31];
        let loaded_twice = [0x0f, 4, 0x76, 0x78, 0x06, 0x06];
        let half_loaded = [0x0f, 4, 0x76, 0x78, 0x94, 4];
        let no_operation = [0x0f, 1, 0xff];
        let nothing = [0x0f, 0];
        let return_address_not_saved = [0x08, 16];
        for instructions in [
            &by_r10[..],
            &far_away,
            &stored_beside_r10,
            &a_constant,
            &loaded_twice,
            &half_loaded,
            &no_operation,
            &nothing,
            &return_address_not_saved,
        ] {
            assert_eq!(rule(instructions), whole(CfaRule::Unsupported), "{instructions:x?}");
        }
    }

    #[test]
    fn a_function_without_a_return_address_is_the_root() {
        assert_eq!(rule(&[0x07, 16]), whole(CfaRule::Root));
    }

    #[test]
    fn the_return_from_a_signal_handler_is_one_whatever_else_it_says() {
        let frames = TestFrames::default().shared("zRS", 16, &[0x0c, 7, 8, 0x90, 1]);
        let frames = frames.function(CODE_ADDRESS, 1, &[0x0f, 3, 0x77, 0x20, 0x06, 0x07, 16]);
        assert_eq!(frames.rules(EM_X86_64, 1), [whole(CfaRule::SignalFrame)]);
    }

    #[test]
    fn halves_are_signed() {
        assert_eq!(halves(-8, 0), 0xfff8);
        assert_eq!(halves(16, -1), i32::from_le_bytes([16, 0, 0xff, 0xff]));
    }
}
