//! From `.eh_frame` or `.debug_frame` to the rows of a table.
//!
//! Two passes: the first finds where each function's description is, the second evaluates them by rising address,
//! so that rows are written in their final order and only once.

use std::ops::Range;

use gimli::{
    BaseAddresses, CieOrFde, DebugFrame, EhFrame, LittleEndian, UnwindContext, UnwindOffset, UnwindSection,
};
use profiler_common::unwind::{CfaRule, PAGE_BITS, Rule};

use super::{
    architecture::Architecture,
    row_writer::RowWriter,
    rule::{ByteCursor, Cie, RowStorage, Rules},
    table::{Statistics, UnwindTable},
};
use profiler_binary_reader::ParseError;
use profiler_elf_symbols::{CallFrameKind, CallFrames};

/// Descriptions that functions share. Linkers leave a handful, but some merge none: one for each object file.
const MAX_SHARED_DESCRIPTIONS: usize = 16 << 10;

/// Bytes of descriptions that are evaluated. Each function's begins with the one it shares with others, which a
/// file that lies can make as long as the section.
const MAX_EVALUATED_BYTES: u64 = 64 << 20;

/// One description. The longest real ones have some kilobytes, and the longest are evaluated in a few milliseconds.
const MAX_DESCRIPTION_BYTES: usize = 256 << 10;

/// After so much was evaluated, whether to go on is asked again.
const EVALUATED_BYTES_BETWEEN_ASKING: u64 = 64 << 10;

/// Functions begin at multiples of this, where they are aligned.
const FUNCTION_ALIGNMENT_BYTES: u64 = 16;

/// What there is to describe.
pub(super) struct Code {
    pub(super) architecture: &'static Architecture,
    /// Where code is.
    pub(super) addresses: Vec<Range<u64>>,
    /// Where procedure linkage tables are, and their rules should nothing else describe them.
    pub(super) linkage_tables: Vec<(Range<u64>, Rule)>,
}

impl Code {
    /// The table that call frame information gives; [`ParseError::TooLarge`] when it may not go on.
    pub(super) fn table(
        &self,
        frames: &CallFrames,
        may_go_on: &dyn Fn() -> bool,
    ) -> Result<UnwindTable, ParseError> {
        match frames.kind {
            CallFrameKind::EhFrame => {
                let mut section = EhFrame::new(&frames.bytes, LittleEndian);
                section.set_vendor(self.architecture.vendor);
                Builder::new(self, &section, frames.address.0, may_go_on).build()
            }
            CallFrameKind::DebugFrame => {
                let mut section = DebugFrame::new(&frames.bytes, LittleEndian);
                section.set_vendor(self.architecture.vendor);
                Builder::new(self, &section, frames.address.0, may_go_on).build()
            }
        }
    }

    fn range_at(&self, address: u64) -> Option<&Range<u64>> {
        self.addresses.iter().find(|range| range.contains(&address))
    }
}

/// A piece of code that has a description.
#[derive(Clone, Copy)]
struct Function {
    start: u64,
    end: u64,
    description: Description,
}

/// Where a description is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Description {
    /// It is one of the linkage tables, and nothing describes it.
    LinkageTable(u32),
    /// At this offset in the section.
    Entry(u32),
}

/// The tables that bytes give as a section of either kind, for either machine.
#[cfg(fuzzing)]
pub fn tables_of_section(bytes: &[u8]) -> Vec<UnwindTable> {
    use object::elf::{EM_AARCH64, EM_X86_64};

    use profiler_addresses::ElfAddress;

    const CODE: Range<u64> = 0x1000..0x10_0000;
    const SECTION_ADDRESS: ElfAddress = ElfAddress(0x2000);

    let mut tables = Vec::new();
    for architecture in [EM_X86_64, EM_AARCH64].into_iter().filter_map(Architecture::of_machine) {
        let rules = architecture.linkage_sections.iter().map(|(_, rule)| *rule);
        let linkage_tables =
            (CODE.start..).step_by(0x100).map(|start| start..start + 0x20).zip(rules).collect();
        let code = Code { architecture, addresses: vec![CODE], linkage_tables };
        for kind in [CallFrameKind::EhFrame, CallFrameKind::DebugFrame] {
            let frames = CallFrames { kind, bytes: bytes.into(), address: SECTION_ADDRESS };
            tables.extend(code.table(&frames, &|| true));
        }
    }
    tables
}

struct Builder<'a, S> {
    code: &'a Code,
    section: &'a S,
    bases: BaseAddresses,
    /// Descriptions that functions share, by their offset in the section.
    shared: Vec<(usize, Cie<'a>)>,
    functions: Vec<Function>,
    statistics: Statistics,
    evaluated_bytes: u64,
    may_go_on: &'a dyn Fn() -> bool,
    /// When this much was evaluated.
    ask_again_at: u64,
}

impl<'a, S: UnwindSection<ByteCursor<'a>>> Builder<'a, S> {
    fn new(code: &'a Code, section: &'a S, section_address: u64, may_go_on: &'a dyn Fn() -> bool) -> Self {
        Self {
            code,
            section,
            bases: BaseAddresses::default().set_eh_frame(section_address),
            shared: Vec::new(),
            functions: Vec::new(),
            statistics: Statistics::default(),
            evaluated_bytes: 0,
            may_go_on,
            ask_again_at: 0,
        }
    }

    fn build(mut self) -> Result<UnwindTable, ParseError> {
        self.find_functions()?;
        self.add_linkage_tables();
        self.write_rows()
    }

    /// The first pass.
    fn find_functions(&mut self) -> Result<(), ParseError> {
        let bases = self.bases.clone();
        let mut entries = self.section.entries(&bases);
        loop {
            match entries.next() {
                Ok(Some(CieOrFde::Cie(cie))) if self.shared.len() < MAX_SHARED_DESCRIPTIONS => {
                    self.shared.push((cie.offset(), cie));
                }
                Ok(Some(CieOrFde::Cie(_))) => return Err(ParseError::TooLarge),
                Ok(Some(CieOrFde::Fde(entry))) => {
                    match entry.parse(|_, _, offset| find_shared(&self.shared, UnwindOffset::into(offset))) {
                        Ok(fde) => self.add_function(fde.offset(), fde.initial_address(), fde.len())?,
                        Err(_) => self.statistics.malformed_functions += 1,
                    }
                }
                Ok(None) => return Ok(()),
                Err(_) => {
                    // Where the next one would begin is not known.
                    self.statistics.malformed_functions += 1;
                    return Ok(());
                }
            }
        }
    }

    fn add_function(&mut self, offset: usize, start: u64, bytes: u64) -> Result<(), ParseError> {
        // Linkers that drop a function leave the description, at an address where nothing is.
        let Some(code) = self.code.range_at(start).filter(|_| bytes > 0) else {
            self.statistics.misplaced_functions += 1;
            return Ok(());
        };
        let end = start.saturating_add(bytes).min(code.end);
        let offset = u32::try_from(offset).map_err(|_| ParseError::TooLarge)?;
        self.functions.push(Function { start, end, description: Description::Entry(offset) });
        Ok(())
    }

    /// Sorts the functions, the longest last of those that begin at the same place: it is the one that counts.
    fn add_linkage_tables(&mut self) {
        let order = |function: &Function| (function.start, function.end, function.description);
        self.functions.sort_unstable_by_key(order);
        for (index, (addresses, _)) in (0..).zip(&self.code.linkage_tables) {
            let is_code = self.code.range_at(addresses.start).is_some_and(|code| code.end >= addresses.end);
            let before = self.functions.partition_point(|function| function.start < addresses.end);
            let is_described =
                before.checked_sub(1).is_some_and(|last| self.functions[last].end > addresses.start);
            if is_code && !is_described && !addresses.is_empty() {
                let description = Description::LinkageTable(index);
                self.functions.push(Function { start: addresses.start, end: addresses.end, description });
            }
        }
        self.functions.sort_unstable_by_key(order);
    }

    /// The second pass. A function ends where the next one begins.
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
            match function.description {
                Description::LinkageTable(table) => {
                    let rule = self.code.linkage_tables.get(table as usize).map(|(_, rule)| *rule);
                    rows.write(function.start, rule.unwrap_or_default())?;
                }
                Description::Entry(offset) => self.evaluate(offset as usize, end, &mut context, &mut rows)?,
            }
            if !is_padding(end..next_start) {
                rows.write(end, Rule::default())?;
            }
        }
        Ok(rows.finish(self.statistics))
    }

    /// Fails when there is no more evaluating to be done.
    fn spend(&mut self, bytes: u64) -> Result<(), ParseError> {
        self.evaluated_bytes += bytes;
        if self.evaluated_bytes > MAX_EVALUATED_BYTES {
            return Err(ParseError::TooLarge);
        }
        if self.evaluated_bytes >= self.ask_again_at {
            self.ask_again_at = self.evaluated_bytes + EVALUATED_BYTES_BETWEEN_ASKING;
            if !(self.may_go_on)() {
                return Err(ParseError::TooLarge);
            }
        }
        Ok(())
    }

    /// Writes the rows of one function, as far as it makes sense.
    fn evaluate(
        &mut self,
        offset: usize,
        end: u64,
        context: &mut UnwindContext<usize, RowStorage>,
        rows: &mut RowWriter,
    ) -> Result<(), ParseError> {
        let find_shared = |_: &S, _: &BaseAddresses, offset: S::Offset| {
            find_shared(&self.shared, UnwindOffset::into(offset))
        };
        let fde = self.section.fde_from_offset(&self.bases, offset.into(), find_shared);
        let fde = fde.map_err(|_| ParseError::Malformed)?;
        if fde.cie().entry_len().max(fde.entry_len()) > MAX_DESCRIPTION_BYTES {
            self.statistics.malformed_functions += 1;
            return rows.write(fde.initial_address(), Rule::default());
        }
        self.spend((fde.cie().entry_len() + fde.entry_len()) as u64)?;
        let rules = Rules { architecture: self.code.architecture, section: self.section };
        let mut known_until = fde.initial_address();
        let Ok(mut table) = fde.rows(self.section, &self.bases, context) else {
            self.statistics.malformed_functions += 1;
            return rows.write(known_until, Rule::default());
        };
        loop {
            match table.next_row() {
                Ok(Some(row)) if row.start_address() < row.end_address() && row.start_address() < end => {
                    let rule = rules.of_row(fde.cie(), row);
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

/// Whether what lies between two functions is there only to align the second: it never runs, and needs no row. More
/// may be a function that nothing describes, such as the first of a program.
fn is_padding(gap: Range<u64>) -> bool {
    let alignment = 1 << gap.end.trailing_zeros().min(FUNCTION_ALIGNMENT_BYTES.trailing_zeros());
    gap.end - gap.start < alignment
}

/// Those that are shared stand before the functions that share them.
fn find_shared<'a>(shared: &[(usize, Cie<'a>)], offset: usize) -> gimli::Result<Cie<'a>> {
    let found = shared.binary_search_by_key(&offset, |(offset, _)| *offset);
    found.map(|index| shared[index].1.clone()).map_err(|_| gimli::Error::NotCiePointer(offset as u64))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use object::elf::EM_X86_64;

    use super::{
        super::test_frames::{CODE_ADDRESS, CODE_BYTES, TestFrames, code, plain, whole},
        *,
    };
    use profiler_addresses::ElfAddress;

    /// Behind one byte, the frame is 16 bytes large.
    const PUSH: [u8; 3] = [0x41, 0x0e, 16];
    const BEFORE_PUSH: Rule = plain(CfaRule::StackPointer, 8);
    const AFTER_PUSH: Rule = plain(CfaRule::StackPointer, 16);
    const UNKNOWN: Rule = whole(CfaRule::Unknown);

    fn at(start: u64) -> u64 {
        CODE_ADDRESS + start
    }

    #[test]
    fn functions_are_found_in_any_order() {
        let frames = TestFrames::x86_64().function(at(4), 4, &PUSH).function(at(0), 4, &PUSH);
        let rules = frames.rules(EM_X86_64, 8);
        let function = [BEFORE_PUSH, AFTER_PUSH, AFTER_PUSH, AFTER_PUSH];
        assert_eq!(rules, [function, function].concat());
    }

    #[test]
    fn padding_goes_with_the_function_before_and_other_gaps_are_not_known() {
        let frames = TestFrames::x86_64().function(at(0), 2, &PUSH);
        let frames = frames.function(at(16), 1, &[]).function(at(24), 8, &PUSH).function(at(48), 1, &[]);
        let rules = frames.rules(EM_X86_64, 50);
        assert_eq!(rules[1..17], [&[AFTER_PUSH; 15][..], &[BEFORE_PUSH]].concat());
        assert_eq!(rules[17..24], [BEFORE_PUSH; 7], "to the next multiple of 8");
        assert_eq!(rules[32..48], [UNKNOWN; 16], "a function has room there");
        assert_eq!(rules[48..], [BEFORE_PUSH, UNKNOWN]);

        let unaligned = TestFrames::x86_64().function(at(0), 2, &PUSH).function(at(5), 1, &[]);
        assert_eq!(unaligned.rules(EM_X86_64, 5)[2..], [UNKNOWN; 3]);
    }

    #[test]
    fn a_function_ends_where_the_next_one_begins() {
        let frames = TestFrames::x86_64().function(at(0), 8, &PUSH).function(at(4), 2, &[]);
        let rules = frames.rules(EM_X86_64, 8);
        assert_eq!(rules[3], AFTER_PUSH);
        assert_eq!(rules[4..], [BEFORE_PUSH, BEFORE_PUSH, UNKNOWN, UNKNOWN]);
    }

    #[test]
    fn of_functions_that_begin_together_the_longest_counts() {
        for order in [[2, 8, 4], [8, 4, 2], [2, 4, 8]] {
            let frames = order.into_iter().fold(TestFrames::x86_64(), |frames, bytes| {
                frames.function(at(0), bytes, if bytes == 8 { &PUSH } else { &[] })
            });
            assert_eq!(frames.rules(EM_X86_64, 8)[1..], [AFTER_PUSH; 7]);
        }
    }

    #[test]
    fn rows_beyond_the_end_of_their_function_do_not_count() {
        let frames = TestFrames::x86_64().function(at(0), 4, &[0x48, 0x0e, 16]);
        assert_eq!(frames.rules(EM_X86_64, 6), [&[BEFORE_PUSH; 4][..], &[UNKNOWN; 2]].concat());
    }

    #[test]
    fn what_lies_outside_of_the_code_is_counted_and_left_out() {
        let frames = TestFrames::x86_64()
            .function(0, 16, &[])
            .function(u64::MAX - 1, u64::MAX, &[])
            .function(at(CODE_BYTES), 16, &[])
            .function(at(0), 0, &[])
            .function(at(CODE_BYTES - 8), 16, &[]);
        let table = frames.table(EM_X86_64).unwrap();
        let expected = Statistics { functions: 1, misplaced_functions: 4, ..Statistics::default() };
        assert_eq!(table.statistics(), expected);
    }

    #[test]
    fn a_description_that_fails_is_used_up_to_there() {
        let bad_instruction = [&PUSH[..], &[0x41, 0x3f]].concat();
        let frames = TestFrames::x86_64().function(at(0), 8, &bad_instruction).function(at(8), 8, &PUSH);
        assert_eq!(frames.rules(EM_X86_64, 4), [BEFORE_PUSH, AFTER_PUSH, UNKNOWN, UNKNOWN]);
        assert_eq!(frames.rules(EM_X86_64, 10)[9], AFTER_PUSH);
        assert_eq!(frames.table(EM_X86_64).unwrap().statistics().malformed_functions, 1);

        let bad_shared = TestFrames::default().shared("zR", 16, &[0x3f]).function(at(0), 8, &PUSH);
        assert_eq!(bad_shared.rules(EM_X86_64, 8), [UNKNOWN; 8]);
    }

    #[test]
    fn linkage_tables_get_rules_when_nothing_describes_them() {
        let mut code = code(EM_X86_64);
        code.linkage_tables = [at(0)..at(32), at(64)..at(96), at(128)..at(128), 0..16]
            .into_iter()
            .map(|addresses| (addresses, plain(CfaRule::Plt, 11)))
            .collect();
        let bytes = TestFrames::x86_64().function(at(80), 8, &[]).bytes.into();
        let frames = CallFrames { kind: CallFrameKind::EhFrame, bytes, address: ElfAddress(0) };
        let table = code.table(&frames, &|| true).unwrap();
        let pages: Vec<_> = table.pages().collect();
        let rule = |start| table.rule_in(&pages, at(start));
        assert_eq!((rule(0), rule(31)), (plain(CfaRule::Plt, 11), plain(CfaRule::Plt, 11)));
        assert_eq!((rule(64), rule(80)), (plain(CfaRule::Plt, 11), BEFORE_PUSH));
    }

    #[test]
    fn a_section_for_debuggers_gives_the_same_rules() {
        // No augmentation, and the shared description is named by its place in the section.
        let shared = [&[12, 0, 0, 0, 0xff, 0xff, 0xff, 0xff][..], &[1, 0, 1, 0x78, 16, 0x0c, 7, 8]].concat();
        let range = [at(0).to_le_bytes(), 8_u64.to_le_bytes()].concat();
        let function = [&[28, 0, 0, 0, 0, 0, 0, 0][..], &range, &[0x90, 1, 0x41, 0x0e, 16, 0, 0, 0]].concat();
        let (kind, address) = (CallFrameKind::DebugFrame, ElfAddress(0));
        let frames = CallFrames { kind, bytes: [shared, function].concat().into(), address };
        let table = code(EM_X86_64).table(&frames, &|| true).unwrap();
        let pages: Vec<_> = table.pages().collect();
        assert_eq!(table.rule_in(&pages, at(7)), AFTER_PUSH);
    }

    #[test]
    fn a_section_that_ends_anywhere_or_lies_is_an_answer_and_no_panic() {
        let realigned = [0x0f, 3, 0x76, 0x78, 0x06, 0x10, 6, 2, 0x76, 0];
        let remembering = [0x41, 0x0a, 0x0e, 32, 0x41, 0x0b];
        let frames = TestFrames::x86_64().function(at(0), 8, &PUSH);
        let whole = frames.function(at(8), 16, &realigned).function(at(64), 8, &remembering);
        let answer = |bytes: &[u8]| {
            let mut frames = TestFrames::default();
            frames.bytes.extend(bytes);
            if let Ok(table) = frames.table(EM_X86_64) {
                table.check();
            }
        };
        for length in 0..whole.bytes.len() {
            answer(&whole.bytes[..length]);
        }
        for position in 0..whole.bytes.len() {
            for value in 0..=255 {
                let mut changed = whole.bytes.clone();
                changed[position] = value;
                answer(&changed);
            }
        }
    }

    #[test]
    fn functions_that_share_a_long_description_cost_no_more_than_the_limit() {
        // What is evaluated fails at once, so that the test is fast: its length counts all the same.
        let with_functions = |count: u64| {
            let mut shared = vec![0; 128 << 10];
            shared[0] = 0x3f;
            let frames = TestFrames::default().shared("zR", 16, &shared);
            (0..count).fold(frames, |frames, index| frames.function(at(index), 1, &[])).table(EM_X86_64)
        };
        assert!(with_functions(500).is_ok());
        assert_eq!(with_functions(520).unwrap_err(), ParseError::TooLarge);
    }

    #[test]
    fn a_description_that_is_too_long_is_not_evaluated() {
        let with_bytes = |bytes| {
            let instructions = [&PUSH[..], &vec![0; bytes]].concat();
            let in_function = TestFrames::x86_64().function(at(0), 2, &instructions);
            let in_shared =
                TestFrames::default().shared("zR", 16, &[&[0x0c, 7, 8, 0x90, 1], &instructions[..]].concat());
            [in_function, in_shared.function(at(0), 2, &[])].map(|frames| frames.rules(EM_X86_64, 2)[0])
        };
        assert_eq!(with_bytes(MAX_DESCRIPTION_BYTES - 100), [BEFORE_PUSH, AFTER_PUSH]);
        assert_eq!(with_bytes(MAX_DESCRIPTION_BYTES), [UNKNOWN; 2]);
    }

    #[test]
    fn who_may_not_go_on_is_asked_often_enough() {
        let asked = Cell::new(0);
        let (kind, address) = (CallFrameKind::EhFrame, ElfAddress(0));
        let long = vec![0; MAX_DESCRIPTION_BYTES - 100];
        let frames = (0..10).fold(TestFrames::x86_64(), |frames, index| frames.function(at(index), 1, &long));
        let frames = CallFrames { kind, bytes: frames.bytes.into(), address };
        let table = |answers: u32| {
            asked.set(0);
            code(EM_X86_64).table(&frames, &|| asked.replace(asked.get() + 1) < answers)
        };
        assert!(table(10).is_ok());
        assert_eq!(table(4).unwrap_err(), ParseError::TooLarge);
        assert_eq!(asked.get(), 5);
    }

    #[test]
    fn descriptions_to_share_without_end_are_too_large() {
        let with_shared =
            |count| (0..count).fold(TestFrames::default(), |frames, _| frames.shared("zR", 16, &[]));
        assert!(with_shared(MAX_SHARED_DESCRIPTIONS).table(EM_X86_64).is_ok());
        let result = with_shared(MAX_SHARED_DESCRIPTIONS + 1).table(EM_X86_64);
        assert_eq!(result.unwrap_err(), ParseError::TooLarge);
    }

    #[test]
    fn code_that_is_spread_too_far_is_too_large() {
        let mut code = code(EM_X86_64);
        let far = 2 << 30;
        code.addresses.push(far..far + 16);
        let bytes = TestFrames::x86_64().function(at(0), 8, &[]).function(far, 8, &[]).bytes.into();
        let frames = CallFrames { kind: CallFrameKind::EhFrame, bytes, address: ElfAddress(0) };
        assert_eq!(code.table(&frames, &|| true).unwrap_err(), ParseError::TooLarge);
    }
}
