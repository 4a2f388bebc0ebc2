//! Compiles call frame information (`.eh_frame`, `.debug_frame`) to the rows of an unwind table.
//!
//! The first pass finds the FDE of each function. The second pass evaluates the FDEs by ascending address, so that rows are
//! written once and in their final order.

use std::ops::Range;

use gimli::{
    BaseAddresses, CieOrFde, DebugFrame, EhFrame, LittleEndian, UnwindContext, UnwindOffset, UnwindSection,
};
use profiler_common::unwind::{CfaRule, PAGE_BITS, Rule};

use profiler_binary_reader::ParseError;
use profiler_elf_symbols::{CallFrameKind, CallFrames};

use crate::{
    architecture::Architecture,
    row_writer::RowWriter,
    rule::{CfiReader, Cie, RowStorage, RuleCompiler},
    table::{TableStatistics, UnwindTable},
};

/// The number of CIEs. Most linkers merge them to a handful; some keep one for each object file.
const MAX_CIES_PER_SECTION: usize = 16 << 10;

/// The bytes of CIEs and FDEs that are evaluated. The instructions of the CIE are evaluated for each of its FDEs, and a
/// hostile CIE can be as long as the section.
const MAX_EVALUATED_BYTES: u64 = 64 << 20;

/// The length of a CIE or FDE. The longest real ones have some kilobytes. One of this length is evaluated in a few
/// milliseconds.
const MAX_ENTRY_BYTES: usize = 256 << 10;

/// The evaluated bytes between two calls of the callback that can cancel the compilation.
const BYTES_BETWEEN_CANCEL_CHECKS: u64 = 64 << 10;

/// The alignment of functions that are aligned.
const FUNCTION_ALIGNMENT_BYTES: u64 = 16;

/// The code for which a table is compiled.
pub(crate) struct CodeLayout {
    pub(crate) architecture: &'static Architecture,
    /// The address ranges of code.
    pub(crate) code_ranges: Vec<Range<u64>>,
    /// The address ranges of PLTs, and the rule of each in case that no FDE covers it.
    pub(crate) plts: Vec<(Range<u64>, Rule)>,
}

impl CodeLayout {
    /// Compiles the table. [`ParseError::TooLarge`] when a limit is exceeded or `should_continue` returns `false`.
    pub(crate) fn compile(
        &self,
        call_frames: &CallFrames,
        should_continue: &dyn Fn() -> bool,
    ) -> Result<UnwindTable, ParseError> {
        match call_frames.kind {
            CallFrameKind::EhFrame => {
                let mut section = EhFrame::new(&call_frames.bytes, LittleEndian);
                section.set_vendor(self.architecture.vendor);
                Compiler::new(self, &section, call_frames.address.0, should_continue).compile()
            }
            CallFrameKind::DebugFrame => {
                let mut section = DebugFrame::new(&call_frames.bytes, LittleEndian);
                section.set_vendor(self.architecture.vendor);
                Compiler::new(self, &section, call_frames.address.0, should_continue).compile()
            }
        }
    }

    fn code_range_at(&self, address: u64) -> Option<&Range<u64>> {
        self.code_ranges.iter().find(|range| range.contains(&address))
    }
}

/// A function or a PLT.
#[derive(Clone, Copy)]
struct Function {
    start: u64,
    end: u64,
    rules: RuleSource,
}

/// The source of the rules of a function.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum RuleSource {
    /// The index of a PLT without an FDE.
    Plt(u32),
    /// The offset of an FDE in the section.
    Fde(u32),
}

/// Compiles bytes as a section of both formats and for both machines.
#[cfg(fuzzing)]
pub fn compile_section(bytes: &[u8]) -> Vec<UnwindTable> {
    use profiler_addresses::ElfAddress;
    use profiler_elf_symbols::Machine;

    const CODE: Range<u64> = 0x1000..0x10_0000;
    const SECTION_ADDRESS: ElfAddress = ElfAddress(0x2000);

    let mut tables = Vec::new();
    for architecture in [Machine::X86_64, Machine::Aarch64].map(Architecture::for_machine) {
        let rules = architecture.plt_sections.iter().map(|(_, rule)| *rule);
        let plts = (CODE.start..).step_by(0x100).map(|start| start..start + 0x20).zip(rules).collect();
        let code = CodeLayout { architecture, code_ranges: vec![CODE], plts };
        for kind in [CallFrameKind::EhFrame, CallFrameKind::DebugFrame] {
            let call_frames = CallFrames { kind, bytes: bytes.into(), address: SECTION_ADDRESS };
            tables.extend(code.compile(&call_frames, &|| true));
        }
    }
    tables
}

struct Compiler<'a, S> {
    code: &'a CodeLayout,
    section: &'a S,
    bases: BaseAddresses,
    /// Parsed CIEs by their offset in the section.
    cies: Vec<(usize, Cie<'a>)>,
    functions: Vec<Function>,
    statistics: TableStatistics,
    evaluated_bytes: u64,
    should_continue: &'a dyn Fn() -> bool,
    /// The number of evaluated bytes at which `should_continue` is called next.
    next_cancel_check: u64,
}

impl<'a, S: UnwindSection<CfiReader<'a>>> Compiler<'a, S> {
    fn new(
        code: &'a CodeLayout,
        section: &'a S,
        section_address: u64,
        should_continue: &'a dyn Fn() -> bool,
    ) -> Self {
        Self {
            code,
            section,
            bases: BaseAddresses::default().set_eh_frame(section_address),
            cies: Vec::new(),
            functions: Vec::new(),
            statistics: TableStatistics::default(),
            evaluated_bytes: 0,
            should_continue,
            next_cancel_check: 0,
        }
    }

    fn compile(mut self) -> Result<UnwindTable, ParseError> {
        self.find_functions()?;
        self.add_plts();
        self.write_rows()
    }

    /// The first pass: finds FDEs.
    fn find_functions(&mut self) -> Result<(), ParseError> {
        let bases = self.bases.clone();
        let mut entries = self.section.entries(&bases);
        loop {
            match entries.next() {
                Ok(Some(CieOrFde::Cie(cie))) if self.cies.len() < MAX_CIES_PER_SECTION => {
                    self.cies.push((cie.offset(), cie));
                }
                Ok(Some(CieOrFde::Cie(_))) => return Err(ParseError::TooLarge),
                Ok(Some(CieOrFde::Fde(entry))) => {
                    match entry.parse(|_, _, offset| find_cie(&self.cies, UnwindOffset::into(offset))) {
                        Ok(fde) => self.add_function(fde.offset(), fde.initial_address(), fde.len())?,
                        Err(_) => self.statistics.malformed_functions += 1,
                    }
                }
                Ok(None) => return Ok(()),
                Err(_) => {
                    // The start of the next entry is unknown.
                    self.statistics.malformed_functions += 1;
                    return Ok(());
                }
            }
        }
    }

    fn add_function(&mut self, offset: usize, start: u64, bytes: u64) -> Result<(), ParseError> {
        // A linker that discards a function can keep its FDE, with an address outside of the code.
        let Some(code) = self.code.code_range_at(start).filter(|_| bytes > 0) else {
            self.statistics.misplaced_functions += 1;
            return Ok(());
        };
        let end = start.saturating_add(bytes).min(code.end);
        let offset = u32::try_from(offset).map_err(|_| ParseError::TooLarge)?;
        self.functions.push(Function { start, end, rules: RuleSource::Fde(offset) });
        Ok(())
    }

    /// Adds PLTs that no FDE covers, and sorts the functions. Of functions with the same start, the longest is last: its rules
    /// are used.
    fn add_plts(&mut self) {
        let order = |function: &Function| (function.start, function.end, function.rules);
        self.functions.sort_unstable_by_key(order);
        for (index, (plt, _)) in (0..).zip(&self.code.plts) {
            let is_code = self.code.code_range_at(plt.start).is_some_and(|code| code.end >= plt.end);
            let before = self.functions.partition_point(|function| function.start < plt.end);
            let is_covered = before.checked_sub(1).is_some_and(|last| self.functions[last].end > plt.start);
            if is_code && !is_covered && !plt.is_empty() {
                self.functions.push(Function {
                    start: plt.start,
                    end: plt.end,
                    rules: RuleSource::Plt(index),
                });
            }
        }
        self.functions.sort_unstable_by_key(order);
    }

    /// The second pass: evaluates FDEs. A function ends at the start of the next one at the latest.
    fn write_rows(mut self) -> Result<UnwindTable, ParseError> {
        let functions = std::mem::take(&mut self.functions);
        let first_page = functions.first().map_or(0, |function| function.start >> PAGE_BITS);
        let mut rows = RowWriter::new(u32::try_from(first_page).map_err(|_| ParseError::TooLarge)?);
        let mut context = UnwindContext::new_in();
        for (index, function) in functions.iter().enumerate() {
            let next_start = functions.get(index + 1).map_or(u64::MAX, |next| next.start);
            let end = function.end.min(next_start);
            if end == function.start {
                continue;
            }
            self.statistics.functions += 1;
            match function.rules {
                RuleSource::Plt(index) => {
                    let rule = self.code.plts.get(index as usize).map(|(_, rule)| *rule);
                    rows.write(function.start, rule.unwrap_or_default())?;
                }
                RuleSource::Fde(offset) => self.evaluate(offset as usize, end, &mut context, &mut rows)?,
            }
            if !is_padding(end..next_start) {
                rows.write(end, Rule::default())?;
            }
        }
        Ok(rows.finish(self.statistics))
    }

    /// Counts evaluated bytes. Fails at the limit and on cancellation.
    fn count_evaluated(&mut self, bytes: u64) -> Result<(), ParseError> {
        self.evaluated_bytes += bytes;
        if self.evaluated_bytes > MAX_EVALUATED_BYTES {
            return Err(ParseError::TooLarge);
        }
        if self.evaluated_bytes >= self.next_cancel_check {
            self.next_cancel_check = self.evaluated_bytes + BYTES_BETWEEN_CANCEL_CHECKS;
            if !(self.should_continue)() {
                return Err(ParseError::TooLarge);
            }
        }
        Ok(())
    }

    /// Writes the rows of one FDE, up to the first malformed instruction.
    fn evaluate(
        &mut self,
        offset: usize,
        end: u64,
        context: &mut UnwindContext<usize, RowStorage>,
        rows: &mut RowWriter,
    ) -> Result<(), ParseError> {
        let find_cie =
            |_: &S, _: &BaseAddresses, offset: S::Offset| find_cie(&self.cies, UnwindOffset::into(offset));
        let fde = self.section.fde_from_offset(&self.bases, offset.into(), find_cie);
        let fde = fde.map_err(|_| ParseError::Malformed)?;
        if fde.cie().entry_len().max(fde.entry_len()) > MAX_ENTRY_BYTES {
            self.statistics.malformed_functions += 1;
            return rows.write(fde.initial_address(), Rule::default());
        }
        self.count_evaluated((fde.cie().entry_len() + fde.entry_len()) as u64)?;
        let compiler = RuleCompiler { architecture: self.code.architecture, section: self.section };
        let mut known_until = fde.initial_address();
        let Ok(mut table) = fde.rows(self.section, &self.bases, context) else {
            self.statistics.malformed_functions += 1;
            return rows.write(known_until, Rule::default());
        };
        loop {
            match table.next_row() {
                Ok(Some(row)) if row.start_address() < row.end_address() && row.start_address() < end => {
                    let rule = compiler.compile(fde.cie(), row);
                    self.statistics.unsupported_rows += u32::from(rule.cfa == CfaRule::Unsupported as u8);
                    rows.write(row.start_address(), rule)?;
                    known_until = row.end_address();
                }
                Ok(Some(_)) => {}
                Ok(None) => return Ok(()),
                Err(_) => {
                    self.statistics.malformed_functions += 1;
                    return if known_until < end { rows.write(known_until, Rule::default()) } else { Ok(()) };
                }
            }
        }
    }
}

/// Whether the gap between two functions is alignment padding, which is never executed and needs no row. A larger gap can
/// be a function without an FDE, such as the entry point of a program.
fn is_padding(gap: Range<u64>) -> bool {
    let alignment = 1 << gap.end.trailing_zeros().min(FUNCTION_ALIGNMENT_BYTES.trailing_zeros());
    gap.end - gap.start < alignment
}

/// Looks up a parsed CIE. Each is parsed once for all of its FDEs, which follow it.
fn find_cie<'a>(cies: &[(usize, Cie<'a>)], offset: usize) -> gimli::Result<Cie<'a>> {
    let found = cies.binary_search_by_key(&offset, |(offset, _)| *offset);
    found.map(|index| cies[index].1.clone()).map_err(|_| gimli::Error::NotCiePointer(offset as u64))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use profiler_addresses::ElfAddress;
    use profiler_elf_symbols::Machine::X86_64;

    use super::*;
    use crate::test_cfi::{
        CODE_ADDRESS, CODE_BYTES, TestCfi, code_layout, rule_without_offsets, x86_64_rule,
    };

    /// After one byte, the CFA is rsp + 16.
    const PUSH: [u8; 3] = [0x41, 0x0e, 16];
    const BEFORE_PUSH: Rule = x86_64_rule(CfaRule::StackPointer, 8);
    const AFTER_PUSH: Rule = x86_64_rule(CfaRule::StackPointer, 16);
    const UNKNOWN: Rule = rule_without_offsets(CfaRule::Unknown);

    fn code_address(offset: u64) -> u64 {
        CODE_ADDRESS + offset
    }

    #[test]
    fn functions_are_found_in_any_order() {
        let cfi = TestCfi::x86_64().function(code_address(4), 4, &PUSH).function(code_address(0), 4, &PUSH);
        let rules = cfi.rules(X86_64, 8);
        let function = [BEFORE_PUSH, AFTER_PUSH, AFTER_PUSH, AFTER_PUSH];
        assert_eq!(rules, [function, function].concat());
    }

    #[test]
    fn padding_has_the_rule_of_the_function_before_it_and_other_gaps_are_unknown() {
        let cfi = TestCfi::x86_64().function(code_address(0), 2, &PUSH);
        let cfi = cfi.function(code_address(16), 1, &[]).function(code_address(24), 8, &PUSH).function(
            code_address(48),
            1,
            &[],
        );
        let rules = cfi.rules(X86_64, 50);
        assert_eq!(rules[1..17], [&[AFTER_PUSH; 15][..], &[BEFORE_PUSH]].concat());
        assert_eq!(rules[17..24], [BEFORE_PUSH; 7], "to the next multiple of 8");
        assert_eq!(rules[32..48], [UNKNOWN; 16], "large enough for a function");
        assert_eq!(rules[48..], [BEFORE_PUSH, UNKNOWN]);

        let unaligned =
            TestCfi::x86_64().function(code_address(0), 2, &PUSH).function(code_address(5), 1, &[]);
        assert_eq!(unaligned.rules(X86_64, 5)[2..], [UNKNOWN; 3]);
    }

    #[test]
    fn a_function_ends_where_the_next_one_begins() {
        let cfi = TestCfi::x86_64().function(code_address(0), 8, &PUSH).function(code_address(4), 2, &[]);
        let rules = cfi.rules(X86_64, 8);
        assert_eq!(rules[3], AFTER_PUSH);
        assert_eq!(rules[4..], [BEFORE_PUSH, BEFORE_PUSH, UNKNOWN, UNKNOWN]);
    }

    #[test]
    fn of_functions_with_one_start_the_longest_is_used() {
        for order in [[2, 8, 4], [8, 4, 2], [2, 4, 8]] {
            let cfi = order.into_iter().fold(TestCfi::x86_64(), |cfi, bytes| {
                cfi.function(code_address(0), bytes, if bytes == 8 { &PUSH } else { &[] })
            });
            assert_eq!(cfi.rules(X86_64, 8)[1..], [AFTER_PUSH; 7]);
        }
    }

    #[test]
    fn rows_beyond_the_end_of_their_function_are_ignored() {
        let cfi = TestCfi::x86_64().function(code_address(0), 4, &[0x48, 0x0e, 16]);
        assert_eq!(cfi.rules(X86_64, 6), [&[BEFORE_PUSH; 4][..], &[UNKNOWN; 2]].concat());
    }

    #[test]
    fn functions_outside_of_the_code_are_counted_and_ignored() {
        let cfi = TestCfi::x86_64()
            .function(0, 16, &[])
            .function(u64::MAX - 1, u64::MAX, &[])
            .function(code_address(CODE_BYTES), 16, &[])
            .function(code_address(0), 0, &[])
            .function(code_address(CODE_BYTES - 8), 16, &[]);
        let table = cfi.compile(X86_64).unwrap();
        let expected = TableStatistics { functions: 1, misplaced_functions: 4, ..TableStatistics::default() };
        assert_eq!(table.statistics(), expected);
    }

    #[test]
    fn an_fde_is_used_up_to_its_first_malformed_instruction() {
        let bad_instruction = [&PUSH[..], &[0x41, 0x3f]].concat();
        let cfi = TestCfi::x86_64().function(code_address(0), 8, &bad_instruction).function(
            code_address(8),
            8,
            &PUSH,
        );
        assert_eq!(cfi.rules(X86_64, 4), [BEFORE_PUSH, AFTER_PUSH, UNKNOWN, UNKNOWN]);
        assert_eq!(cfi.rules(X86_64, 10)[9], AFTER_PUSH);
        assert_eq!(cfi.compile(X86_64).unwrap().statistics().malformed_functions, 1);

        let malformed_cie = TestCfi::default().cie("zR", 16, &[0x3f]).function(code_address(0), 8, &PUSH);
        assert_eq!(malformed_cie.rules(X86_64, 8), [UNKNOWN; 8]);
    }

    #[test]
    fn plts_without_an_fde_have_the_rules_of_the_architecture() {
        let mut code = code_layout(X86_64);
        code.plts = [
            code_address(0)..code_address(32),
            code_address(64)..code_address(96),
            code_address(128)..code_address(128),
            0..16,
        ]
        .into_iter()
        .map(|addresses| (addresses, x86_64_rule(CfaRule::Plt, 11)))
        .collect();
        let bytes = TestCfi::x86_64().function(code_address(80), 8, &[]).bytes.into();
        let call_frames = CallFrames { kind: CallFrameKind::EhFrame, bytes, address: ElfAddress(0) };
        let table = code.compile(&call_frames, &|| true).unwrap();
        let pages: Vec<_> = table.pages().collect();
        let rule = |start| table.find_rule(&pages, code_address(start));
        assert_eq!((rule(0), rule(31)), (x86_64_rule(CfaRule::Plt, 11), x86_64_rule(CfaRule::Plt, 11)));
        assert_eq!((rule(64), rule(80)), (x86_64_rule(CfaRule::Plt, 11), BEFORE_PUSH));
    }

    #[test]
    fn debug_frame_has_the_same_rules() {
        // No augmentation; the CIE pointer is an offset in the section.
        let cie = [&[12, 0, 0, 0, 0xff, 0xff, 0xff, 0xff][..], &[1, 0, 1, 0x78, 16, 0x0c, 7, 8]].concat();
        let range = [code_address(0).to_le_bytes(), 8_u64.to_le_bytes()].concat();
        let function = [&[28, 0, 0, 0, 0, 0, 0, 0][..], &range, &[0x90, 1, 0x41, 0x0e, 16, 0, 0, 0]].concat();
        let (kind, address) = (CallFrameKind::DebugFrame, ElfAddress(0));
        let call_frames = CallFrames { kind, bytes: [cie, function].concat().into(), address };
        let table = code_layout(X86_64).compile(&call_frames, &|| true).unwrap();
        let pages: Vec<_> = table.pages().collect();
        assert_eq!(table.find_rule(&pages, code_address(7)), AFTER_PUSH);
    }

    #[test]
    fn a_truncated_or_changed_section_does_not_panic() {
        let realigned = [0x0f, 3, 0x76, 0x78, 0x06, 0x10, 6, 2, 0x76, 0];
        let remembering = [0x41, 0x0a, 0x0e, 32, 0x41, 0x0b];
        let cfi = TestCfi::x86_64().function(code_address(0), 8, &PUSH);
        let whole = cfi.function(code_address(8), 16, &realigned).function(code_address(64), 8, &remembering);
        let compile = |bytes: &[u8]| {
            let mut cfi = TestCfi::default();
            cfi.bytes.extend(bytes);
            if let Ok(table) = cfi.compile(X86_64) {
                table.assert_valid();
            }
        };
        for length in 0..whole.bytes.len() {
            compile(&whole.bytes[..length]);
        }
        for position in 0..whole.bytes.len() {
            for value in 0..=255 {
                let mut changed = whole.bytes.clone();
                changed[position] = value;
                compile(&changed);
            }
        }
    }

    #[test]
    fn fdes_that_share_a_long_cie_cost_no_more_than_the_limit() {
        // The first instruction fails, so that the test is fast. The length of the CIE counts nevertheless.
        let with_functions = |count: u64| {
            let mut instructions = vec![0; 128 << 10];
            instructions[0] = 0x3f;
            let cfi = TestCfi::default().cie("zR", 16, &instructions);
            (0..count).fold(cfi, |cfi, index| cfi.function(code_address(index), 1, &[])).compile(X86_64)
        };
        assert!(with_functions(500).is_ok());
        assert_eq!(with_functions(520).unwrap_err(), ParseError::TooLarge);
    }

    #[test]
    fn a_too_long_cie_or_fde_is_not_evaluated() {
        let with_bytes = |bytes| {
            let instructions = [&PUSH[..], &vec![0; bytes]].concat();
            let in_function = TestCfi::x86_64().function(code_address(0), 2, &instructions);
            let in_cie =
                TestCfi::default().cie("zR", 16, &[&[0x0c, 7, 8, 0x90, 1], &instructions[..]].concat());
            [in_function, in_cie.function(code_address(0), 2, &[])].map(|cfi| cfi.rules(X86_64, 2)[0])
        };
        assert_eq!(with_bytes(MAX_ENTRY_BYTES - 100), [BEFORE_PUSH, AFTER_PUSH]);
        assert_eq!(with_bytes(MAX_ENTRY_BYTES), [UNKNOWN; 2]);
    }

    #[test]
    fn cancellation_is_checked_regularly() {
        let checks = Cell::new(0);
        let (kind, address) = (CallFrameKind::EhFrame, ElfAddress(0));
        let long = vec![0; MAX_ENTRY_BYTES - 100];
        let cfi = (0..10).fold(TestCfi::x86_64(), |cfi, index| cfi.function(code_address(index), 1, &long));
        let call_frames = CallFrames { kind, bytes: cfi.bytes.into(), address };
        let compile = |limit: u32| {
            checks.set(0);
            code_layout(X86_64).compile(&call_frames, &|| checks.replace(checks.get() + 1) < limit)
        };
        assert!(compile(10).is_ok());
        assert_eq!(compile(4).unwrap_err(), ParseError::TooLarge);
        assert_eq!(checks.get(), 5);
    }

    #[test]
    fn too_many_cies_are_refused() {
        let with_cies = |count| (0..count).fold(TestCfi::default(), |cfi, _| cfi.cie("zR", 16, &[]));
        assert!(with_cies(MAX_CIES_PER_SECTION).compile(X86_64).is_ok());
        let result = with_cies(MAX_CIES_PER_SECTION + 1).compile(X86_64);
        assert_eq!(result.unwrap_err(), ParseError::TooLarge);
    }

    #[test]
    fn code_with_too_large_gaps_is_refused() {
        let mut code = code_layout(X86_64);
        let far = 2 << 30;
        code.code_ranges.push(far..far + 16);
        let bytes = TestCfi::x86_64().function(code_address(0), 8, &[]).function(far, 8, &[]).bytes.into();
        let call_frames = CallFrames { kind: CallFrameKind::EhFrame, bytes, address: ElfAddress(0) };
        assert_eq!(code.compile(&call_frames, &|| true).unwrap_err(), ParseError::TooLarge);
    }
}
