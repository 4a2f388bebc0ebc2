//! Compiles call frame information (`.eh_frame`, `.debug_frame`) to the rows of an unwind table.
//!
//! The first pass reads each section from its start to its end and evaluates each FDE. The second pass sorts the functions by
//! address and writes their rows in that order.

use std::ops::Range;

use gimli::{BaseAddresses, DebugFrame, EhFrame, LittleEndian, UnwindContext, UnwindSection};
use profiler_common::unwind::{CfaRule, PAGE_BITS, Rule};

use profiler_binary_reader::ParseError;
use profiler_elf_symbols::{CallFrameKind, CallFrames};

use crate::{
    architecture::Architecture,
    cfi_entries::{EntryReader, HashedSection, MAX_ENTRY_BYTES},
    cfi_excerpt::{Cie, Excerpt, ExcerptFde},
    go_rows::GoRows,
    instruction_rows::Instructions,
    managed_code::ManagedCode,
    packed_rows::{push_pair, take_pair},
    row_writer::RowWriter,
    rule::{self, CfiReader, RowStorage, RuleCompiler},
    rule_set::{RuleSet, UNKNOWN},
    small_gaps::SmallGaps,
    table::{TableStatistics, UnwindTable},
};

/// The number of CIEs. Most linkers merge them to a handful; some keep one for each object file.
const MAX_CIES_PER_SECTION: usize = 16 << 10;

/// The bytes of CIEs and FDEs that are evaluated. The instructions of the CIE are evaluated for each of its FDEs, and a
/// hostile CIE can be as long as the section.
const MAX_EVALUATED_BYTES: u64 = 64 << 20;

/// The rows of all functions, packed: several times those of the largest libraries.
const MAX_PACKED_BYTES: usize = 24 << 20;

/// The mean length of an FDE of most files is larger.
const MEAN_FDE_BYTES: usize = 32;

/// The evaluated bytes between two calls of the callback that can cancel the compilation.
const BYTES_BETWEEN_CANCEL_CHECKS: u64 = 64 << 10;

/// The alignment of functions that are aligned.
const FUNCTION_ALIGNMENT_BYTES: u64 = 16;

/// The code for which a table is compiled.
pub(crate) struct CodeLayout {
    pub(crate) architecture: &'static Architecture,
    /// The address ranges of code.
    pub(crate) code_ranges: Vec<Range<u64>>,
    /// The address ranges of PLTs and of a known entry point, and the rule of each in case that no FDE covers it.
    pub(crate) known_code: Vec<(Range<u64>, Rule)>,
    /// Of a file whose call frame information does not describe most of its code.
    pub(crate) instructions: Option<Box<Instructions>>,
    /// Of a file whose call frame information describes nearly all of its code.
    pub(crate) small_gaps: Option<Box<SmallGaps>>,
    /// Of a NativeAOT program.
    pub(crate) managed_code: Option<ManagedCode>,
    /// Of a Go program.
    pub(crate) go: Option<GoRows>,
}

impl CodeLayout {
    /// Compiles the table of some sections. Where several cover an address, the first of them is used.
    /// [`ParseError::TooLarge`] when a limit is exceeded or `should_continue` returns `false`.
    pub(crate) fn compile(
        &self,
        sections: &[HashedSection],
        should_continue: &dyn Fn() -> bool,
    ) -> Result<UnwindTable, ParseError> {
        let compiler = || Compiler::new(self, sections, should_continue);
        let mut compiler = Compiler::filled(compiler, |compiler| compiler.add_functions(sections))?;
        compiler.add_known_code()?;
        if let Some(code) = &self.managed_code {
            compiler.replace_epilogues(code)?;
        }
        // Last: what it takes too long for is left out, and the rest of the table is complete.
        if let Some(instructions) = &self.instructions {
            compiler.add_gaps(instructions)?;
        }
        if let Some(gaps) = &self.small_gaps {
            compiler.add_rows_of_gaps(gaps.ranges(), &gaps.rows(should_continue))?;
        }
        compiler.write_rows()
    }

    /// Compiles the table of functions that have a section each. A section describes no other code.
    /// [`ParseError::TooLarge`] when a limit is exceeded or `should_continue` returns `false`.
    pub(crate) fn compile_each(
        &self,
        functions: &[(Range<u64>, HashedSection)],
        should_continue: &dyn Fn() -> bool,
    ) -> Result<UnwindTable, ParseError> {
        let compiler = || Compiler::new(self, &[], should_continue);
        let mut compiler = Compiler::filled(compiler, |compiler| {
            functions.iter().try_for_each(|(code, section)| compiler.add_function(code, section))
        })?;
        compiler.functions.sort_unstable();
        compiler.write_rows()
    }

    /// The parts of sorted ranges of code that no FDE and no PLT covers, without padding.
    pub(crate) fn gaps(
        &self,
        sections: &[HashedSection],
        text: &[Range<u64>],
    ) -> Result<Vec<Range<u64>>, ParseError> {
        let mut compiler = Compiler { without_rows: true, ..Compiler::new(self, sections, &|| true) };
        compiler.add_functions(sections)?;
        compiler.add_known_code()?;
        Ok(compiler.gaps(text))
    }

    fn code_range_at(&self, address: u64) -> Option<&Range<u64>> {
        self.code_ranges.iter().find(|range| range.contains(&address))
    }
}

/// A function, a PLT, or other code with rows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Function {
    start: u64,
    bytes: u32,
    /// The position of its rows in [`Compiler::packed_rows`].
    rows: u32,
}

impl Function {
    fn end(&self) -> u64 {
        self.start.saturating_add(self.bytes.into())
    }
}

/// Compiles bytes as a section of both formats and for both machines.
#[cfg(fuzzing)]
pub fn compile_section(bytes: &[u8]) -> Vec<UnwindTable> {
    use profiler_addresses::ElfAddress;
    use profiler_binary_reader::Image;
    use profiler_elf_symbols::Machine;

    const CODE: Range<u64> = 0x1000..0x10_0000;
    const SECTION_ADDRESS: ElfAddress = ElfAddress(0x2000);

    let mut tables = Vec::new();
    for architecture in [Machine::X86_64, Machine::Aarch64].map(Architecture::for_machine) {
        let rules = architecture.plt_sections.iter().map(|(_, rule)| *rule);
        let known_code = (CODE.start..).step_by(0x100).map(|start| start..start + 0x20).zip(rules).collect();
        let code = CodeLayout {
            architecture,
            code_ranges: vec![CODE],
            known_code,
            instructions: None,
            small_gaps: None,
            managed_code: None,
            go: None,
        };
        for kind in [CallFrameKind::EhFrame, CallFrameKind::DebugFrame] {
            let content = Image::Memory(bytes.into());
            let section = HashedSection::read(CallFrames { kind, content, address: SECTION_ADDRESS });
            tables.extend(section.and_then(|section| code.compile(&[section], &|| true)));
        }
    }
    tables
}

struct Compiler<'a> {
    code: &'a CodeLayout,
    /// Those of the section that is read, by their offset in it.
    cies: Vec<Cie>,
    functions: Vec<Function>,
    /// The rows of each function: the distance to the row before plus 1, and the index of the rule. Two
    /// zeros are the end.
    packed_rows: Vec<u8>,
    rules: RuleSet,
    /// Whether a row has its CFA at rbx.
    needs_rbx: bool,
    /// See [`RuleCompiler::restores_rbx`].
    restores_rbx: bool,
    /// Whether only the ranges of functions are read.
    without_rows: bool,
    statistics: TableStatistics,
    evaluated_bytes: u64,
    should_continue: &'a dyn Fn() -> bool,
    /// The number of evaluated bytes at which `should_continue` is called next.
    next_cancel_check: u64,
}

impl<'a> Compiler<'a> {
    fn new(code: &'a CodeLayout, sections: &[HashedSection], should_continue: &'a dyn Fn() -> bool) -> Self {
        // An allocation that grows leaves its old pages to the heap. Pages that are never written take no memory.
        let bytes = sections.iter().map(|section| section.frames.content.length()).sum::<u64>();
        let bytes = usize::try_from(bytes).unwrap_or_default();
        Self {
            code,
            cies: Vec::new(),
            functions: Vec::with_capacity(bytes / MEAN_FDE_BYTES),
            packed_rows: Vec::with_capacity(bytes / 2),
            rules: RuleSet::new(),
            needs_rbx: false,
            restores_rbx: false,
            without_rows: false,
            statistics: TableStatistics::default(),
            evaluated_bytes: 0,
            should_continue,
            next_cancel_check: 0,
        }
    }

    /// A compiler to which `add` has added functions: twice, if a row has its CFA at rbx, since the rows of callers have to restore
    /// it then.
    fn filled(
        new: impl Fn() -> Self,
        add: impl Fn(&mut Self) -> Result<(), ParseError>,
    ) -> Result<Self, ParseError> {
        let mut compiler = new();
        add(&mut compiler)?;
        if compiler.needs_rbx {
            compiler = Self { restores_rbx: true, ..new() };
            add(&mut compiler)?;
        }
        Ok(compiler)
    }

    /// The first pass: adds the functions of Go, and evaluates the FDEs of all sections.
    fn add_functions(&mut self, sections: &[HashedSection]) -> Result<(), ParseError> {
        if let Some(go) = &self.code.go {
            go.for_each_function(self.should_continue, |start, end, rows| {
                let function = self.begin_function(start, end)?;
                self.push_rules(function, rows)
            })?;
        }
        for section in sections {
            let covering = std::mem::take(&mut self.functions);
            self.evaluate_section(section)?;
            self.functions.sort_unstable();
            self.add_covering(covering)?;
        }
        Ok(())
    }

    /// Evaluates the section of one function.
    fn add_function(&mut self, code: &Range<u64>, section: &HashedSection) -> Result<(), ParseError> {
        let first = self.functions.len();
        self.evaluate_section(section)?;
        let mut functions = self.functions.split_off(first);
        functions.retain(|function| code.contains(&function.start));
        for function in &mut functions {
            function.bytes = function.bytes.min((code.end - function.start) as u32);
        }
        self.functions.extend(functions);
        Ok(())
    }

    /// Evaluates the FDEs of a section. A table is shared by all files with the hash of its content, so that it must not be of
    /// another one.
    fn evaluate_section(&mut self, section: &HashedSection) -> Result<(), ParseError> {
        self.cies.clear();
        let mut entries = EntryReader::new(&section.frames);
        self.evaluate_entries(&mut entries, &section.frames)?;
        if entries.finish()? == section.content_hash { Ok(()) } else { Err(ParseError::Malformed) }
    }

    fn evaluate_entries(
        &mut self,
        entries: &mut EntryReader<'_>,
        section: &CallFrames,
    ) -> Result<(), ParseError> {
        let mut excerpt = Excerpt::of(section);
        let mut context = UnwindContext::new_in();
        loop {
            let entry = match entries.next() {
                Ok(Some(entry)) => entry,
                Ok(None) => break,
                Err(_) => {
                    // The start of the next entry is unknown.
                    self.statistics.malformed_functions += 1;
                    break;
                }
            };
            let bytes = entries.bytes_of(entry)?;
            let Some(cie) = entry.cie else {
                let cie = Cie { entry, bytes: bytes.into() };
                if !self.add_cie(section, cie)? {
                    self.statistics.malformed_functions += 1;
                    break;
                }
                continue;
            };
            let index = self.cies.binary_search_by_key(&cie, |cie| cie.entry.offset);
            let Some(index) = index.ok().filter(|index| *index < self.cies.len()) else {
                self.statistics.malformed_functions += 1;
                continue;
            };
            let cie_bytes = self.cies[index].entry.bytes;
            self.count_evaluated(cie_bytes + entry.bytes)?;
            if !excerpt.has_place_for(&self.cies[index]) {
                self.evaluate(&excerpt, &mut context)?;
                excerpt.restart(&self.cies[index]);
            }
            let is_too_long = cie_bytes.max(entry.bytes) > MAX_ENTRY_BYTES as u64;
            excerpt.push(entry, bytes, is_too_long);
        }
        self.evaluate(&excerpt, &mut context)
    }

    /// Adds a CIE; `false` if it is malformed.
    fn add_cie(&mut self, section: &CallFrames, cie: Cie) -> Result<bool, ParseError> {
        if self.cies.len() >= MAX_CIES_PER_SECTION {
            return Err(ParseError::TooLarge);
        }
        let mut excerpt = Excerpt::of(section);
        excerpt.restart(&cie);
        let bases = BaseAddresses::default().set_eh_frame(0);
        let is_valid = match excerpt.kind {
            CallFrameKind::EhFrame => self.eh_frame(&excerpt).cie_from_offset(&bases, 0.into()).is_ok(),
            CallFrameKind::DebugFrame => self.debug_frame(&excerpt).cie_from_offset(&bases, 0.into()).is_ok(),
        };
        self.cies.push(cie);
        Ok(is_valid)
    }

    fn eh_frame<'e>(&self, excerpt: &'e Excerpt) -> EhFrame<CfiReader<'e>> {
        let mut section = EhFrame::new(&excerpt.bytes, LittleEndian);
        section.set_vendor(self.code.architecture.vendor);
        section
    }

    fn debug_frame<'e>(&self, excerpt: &'e Excerpt) -> DebugFrame<CfiReader<'e>> {
        let mut section = DebugFrame::new(&excerpt.bytes, LittleEndian);
        section.set_vendor(self.code.architecture.vendor);
        section
    }

    /// Adds the functions of an excerpt, with their rows.
    fn evaluate(
        &mut self,
        excerpt: &Excerpt,
        context: &mut UnwindContext<usize, RowStorage>,
    ) -> Result<(), ParseError> {
        match excerpt.kind {
            CallFrameKind::EhFrame => self.evaluate_in(&self.eh_frame(excerpt), excerpt, context),
            CallFrameKind::DebugFrame => self.evaluate_in(&self.debug_frame(excerpt), excerpt, context),
        }
    }

    fn evaluate_in<'e, S: UnwindSection<CfiReader<'e>>>(
        &mut self,
        section: &S,
        excerpt: &Excerpt,
        context: &mut UnwindContext<usize, RowStorage>,
    ) -> Result<(), ParseError> {
        if excerpt.fdes.is_empty() {
            return Ok(());
        }
        let bases = BaseAddresses::default().set_eh_frame(0);
        let cie = section.cie_from_offset(&bases, 0.into()).map_err(|_| ParseError::Malformed)?;
        for fde in &excerpt.fdes {
            self.evaluate_fde(section, &cie, excerpt.kind, fde, context)?;
        }
        Ok(())
    }

    fn evaluate_fde<'e, S: UnwindSection<CfiReader<'e>>>(
        &mut self,
        section: &S,
        cie: &rule::Cie<'e>,
        kind: CallFrameKind,
        &ExcerptFde { position, excerpt_address, is_too_long }: &ExcerptFde,
        context: &mut UnwindContext<usize, RowStorage>,
    ) -> Result<(), ParseError> {
        let bases = BaseAddresses::default().set_eh_frame(excerpt_address);
        let Ok(fde) = section.fde_from_offset(&bases, position.into(), |_, _, _| Ok(cie.clone())) else {
            self.statistics.malformed_functions += 1;
            return Ok(());
        };
        let start = fde.initial_address();
        // A linker that discards a function can keep its FDE, with an address outside of the code. In `.debug_frame`, it is 0,
        // which is within the first segment of a library if that contains code.
        let is_discarded = kind == CallFrameKind::DebugFrame && start == 0;
        let Some(code) = self.code.code_range_at(start).filter(|_| fde.len() > 0 && !is_discarded) else {
            self.statistics.misplaced_functions += 1;
            return Ok(());
        };
        let end = start.saturating_add(fde.len()).min(code.end);
        let mut rows = self.begin_function(start, end)?;
        if self.without_rows {
            return Ok(());
        }
        if is_too_long {
            self.statistics.malformed_functions += 1;
            return self.end_function(rows);
        }
        let restores_rbx = self.restores_rbx;
        let compiler = RuleCompiler { architecture: self.code.architecture, section, restores_rbx };
        let Ok(mut table) = fde.rows(section, &bases, context) else {
            self.statistics.malformed_functions += 1;
            return self.end_function(rows);
        };
        loop {
            match table.next_row() {
                Ok(Some(row)) if row.start_address() < row.end_address() && row.start_address() < end => {
                    let rule = compiler.compile(fde.cie(), row);
                    self.statistics.unsupported_rows += u32::from(rule.cfa == CfaRule::Unsupported as u8);
                    self.needs_rbx |= rule.cfa == CfaRule::Rbx as u8;
                    if rows.last_rule != Some(rule) {
                        let index = self.rules.index_of(rule)?;
                        self.push_row(&mut rows, row.start_address(), index);
                        rows.last_rule = Some(rule);
                    }
                    rows.known_until = row.end_address();
                }
                Ok(Some(_)) => {}
                Ok(None) => {
                    rows.known_until = end;
                    return self.end_function(rows);
                }
                Err(_) => {
                    self.statistics.malformed_functions += 1;
                    return self.end_function(rows);
                }
            }
        }
    }

    fn begin_function(&mut self, start: u64, end: u64) -> Result<FunctionRows, ParseError> {
        let rows = u32::try_from(self.packed_rows.len()).map_err(|_| ParseError::TooLarge)?;
        let bytes = u32::try_from(end - start).map_err(|_| ParseError::TooLarge)?;
        self.functions.push(Function { start, bytes, rows });
        Ok(FunctionRows { end, last: start, last_rule: None, known_until: start })
    }

    fn push_row(&mut self, rows: &mut FunctionRows, address: u64, rule: u16) {
        let distance = address.saturating_sub(rows.last);
        push_pair(&mut self.packed_rows, (distance as u32).saturating_add(1), rule.into());
        rows.last = address;
    }

    /// Ends the rows of a function. Code behind a malformed instruction has no unwind information.
    fn end_function(&mut self, mut rows: FunctionRows) -> Result<(), ParseError> {
        if rows.known_until < rows.end {
            let known_until = rows.known_until;
            self.push_row(&mut rows, known_until, UNKNOWN);
        }
        push_pair(&mut self.packed_rows, 0, 0);
        if self.packed_rows.len() > MAX_PACKED_BYTES { Err(ParseError::TooLarge) } else { Ok(()) }
    }

    /// The second pass: writes rows. A function ends at the start of the next one at the latest.
    fn write_rows(mut self) -> Result<UnwindTable, ParseError> {
        let first_page = self.functions.first().map_or(0, |function| function.start >> PAGE_BITS);
        let first_page = u32::try_from(first_page).map_err(|_| ParseError::TooLarge)?;
        let mut rows = RowWriter::new(first_page, self.rules);
        rows.reserve(self.packed_rows.len());
        for (index, function) in self.functions.iter().enumerate() {
            let next_start = self.functions.get(index + 1).map_or(u64::MAX, |next| next.start);
            let end = function.end().min(next_start);
            if end == function.start {
                continue;
            }
            self.statistics.functions += 1;
            let mut packed = self.packed_rows.get(function.rows as usize..).unwrap_or_default();
            let mut address = function.start;
            while let Some((next @ 1.., rule)) = take_pair(&mut packed) {
                address += u64::from(next - 1);
                if address >= end {
                    break;
                }
                rows.write_index(address, rule as u16)?;
            }
            if !is_padding(end..next_start) {
                rows.write_index(end, UNKNOWN)?;
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
}

/// The rows of the function that is evaluated.
struct FunctionRows {
    end: u64,
    /// The address of the last row; at first, of the function.
    last: u64,
    last_rule: Option<Rule>,
    /// The end of the last row.
    known_until: u64,
}

/// Whether the gap between two functions is alignment padding, which is never executed and needs no row. A larger gap can
/// be a function without an FDE, such as the entry point of a program.
fn is_padding(gap: Range<u64>) -> bool {
    let alignment = 1 << gap.end.trailing_zeros().min(FUNCTION_ALIGNMENT_BYTES.trailing_zeros());
    gap.end - gap.start < alignment
}

mod additions;
#[cfg(test)]
mod tests;
