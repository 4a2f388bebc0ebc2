//! Compiles the unwind information of precompiled .NET code (ReadyToRun) to an unwind table.
//!
//! ```text
//! RUNTIME_FUNCTION table ── UNWIND_INFO of each function (unwind_info) ── prologue ─┬─> rows
//! machine code ── epilogue scan (epilogue) ────────────────────────────── epilogues ┘
//! ```
//!
//! Half of the methods of the framework have no frame pointer. Unwinding such a method by frame pointer loses its caller.

mod epilogue;
mod unwind_info;

use std::{ops::Range, sync::Arc};

use profiler_binary_reader::{ByteCursor, Image, PagedImage, ParseError, SegmentLayout};
use profiler_common::unwind::{CfaRule, PAGE_BITS, Rule};
use profiler_dotnet_symbols::pe::{
    Pe,
    precompiled::{RUNTIME_FUNCTIONS, ReadyToRunHeader},
};

use self::unwind_info::Prologue;
pub(crate) use self::unwind_info::UnwindInfoSection;
use crate::{
    row_writer::RowWriter,
    rule::rule_without_offsets,
    rule_set::RuleSet,
    table::{TableStatistics, UnwindTable},
};

/// The size of the `RUNTIME_FUNCTION` table. That of the largest real image has a megabyte.
const MAX_FUNCTION_TABLE_BYTES: u64 = 16 << 20;

/// The distance from the first to the last `UNWIND_INFO`. That of the largest real image is below a megabyte.
const MAX_UNWIND_INFO_SECTION_BYTES: u64 = 32 << 20;

/// The size of one `UNWIND_INFO`: header, 255 slots, chained function.
const MAX_UNWIND_INFO_BYTES: u32 = 4 + 2 * 256 + 12;

/// The bytes of code of one read, unless a function is larger.
const CODE_CHUNK_BYTES: u32 = 256 << 10;

/// The size of the functions that are scanned for epilogues.
const MAX_FUNCTION_BYTES: u32 = 4 << 20;

/// The number of functions between two calls of the callback that can cancel the compilation.
const FUNCTIONS_BETWEEN_CANCEL_CHECKS: usize = 4096;

/// The alignment of functions. The padding up to it is never executed.
pub(crate) const FUNCTION_ALIGNMENT_BYTES: u32 = 16;

/// Everything of an image that its unwind table depends on.
#[derive(Debug, Hash)]
pub(crate) struct PrecompiledSource {
    functions: Vec<Function>,
    unwind_info: UnwindInfoSection,
    /// The addresses of epilogues, sorted.
    epilogues: Vec<u32>,
    malformed_functions: u32,
}

/// A `RUNTIME_FUNCTION`. All numbers are addresses in the image (RVA).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Function {
    start: u32,
    end: u32,
    unwind_info: u32,
}

impl Function {
    fn range(self) -> Range<u32> {
        self.start..self.end
    }
}

impl PrecompiledSource {
    /// Reads the image; `None` when it has no precompiled code of this machine.
    pub(crate) fn read(image: Image) -> Result<Option<(Self, SegmentLayout)>, ParseError> {
        let mut image = PagedImage::new(image, Arc::default())?;
        let pe = Pe::read(&mut image)?;
        if pe.native_header.is_empty() || !pe.is_of_this_machine {
            return Ok(None);
        }
        let Some(header) = ReadyToRunHeader::read(&mut image, pe.native_header)? else { return Ok(None) };
        let Some(table) = header.sections.directory(RUNTIME_FUNCTIONS) else { return Ok(None) };
        let table = image.read_uncached(pe.span(table)?, MAX_FUNCTION_TABLE_BYTES)?;
        let (functions, malformed_functions) = read_functions(&table);
        let unwind_info = read_unwind_info(&image, &pe, &functions)?;
        let mut precompiled = Self { functions, unwind_info, epilogues: Vec::new(), malformed_functions };
        precompiled.find_epilogues(&image, &pe);
        Ok(Some((precompiled, pe.layout())))
    }

    /// Compiles the table. [`ParseError::TooLarge`] when a limit is exceeded or `should_continue` returns `false`.
    pub(crate) fn compile(&self, should_continue: &dyn Fn() -> bool) -> Result<UnwindTable, ParseError> {
        let mut statistics =
            TableStatistics { malformed_functions: self.malformed_functions, ..TableStatistics::default() };
        let mut rows = RowWriter::new(
            self.functions.first().map_or(0, |function| function.start >> PAGE_BITS),
            RuleSet::new(),
        );
        for (index, function) in self.functions.iter().enumerate() {
            if index.is_multiple_of(FUNCTIONS_BETWEEN_CANCEL_CHECKS) && !should_continue() {
                return Err(ParseError::TooLarge);
            }
            match self.unwind_info.prologue(function.unwind_info) {
                Ok(prologue) => {
                    statistics.functions += 1;
                    statistics.unsupported_rows += self.write_rows(*function, &prologue, &mut rows)?;
                }
                Err(_) => {
                    statistics.malformed_functions += 1;
                    rows.write(function.start.into(), Rule::default())?;
                }
            }
            let next = self.functions.get(index + 1).map_or(u32::MAX, |next| next.start);
            if next - function.end >= FUNCTION_ALIGNMENT_BYTES {
                rows.write(function.end.into(), Rule::default())?;
            }
        }
        Ok(rows.finish(statistics))
    }

    /// Writes the rows of a function, and returns the number of unsupported rows.
    fn write_rows(
        &self,
        function: Function,
        prologue: &Prologue,
        rows: &mut RowWriter,
    ) -> Result<u32, ParseError> {
        let in_prologue = prologue.frames.iter().map(|(offset, frame)| (u32::from(*offset), *frame));
        let in_prologue = in_prologue.map(|(offset, frame)| (function.start.saturating_add(offset), frame));
        let epilogue_frames = epilogue::frames(prologue);
        let in_epilogues = self.epilogues_in(function).iter().flat_map(|start| {
            epilogue_frames.iter().map(|(offset, frame)| (start.saturating_add(*offset), *frame))
        });
        let mut unsupported = 0;
        let mut unwritten = function.start..function.end;
        for (address, frame) in in_prologue.chain(in_epilogues) {
            // A hostile prologue can be longer than its function.
            if !unwritten.contains(&address) {
                continue;
            }
            unwritten.start = address + 1;
            unsupported += u32::from(frame.rule().is_none());
            rows.write(address.into(), frame.rule().unwrap_or(rule_without_offsets(CfaRule::Unsupported)))?;
        }
        Ok(unsupported)
    }

    fn epilogues_in(&self, function: Function) -> &[u32] {
        let index = |address| self.epilogues.partition_point(|epilogue| *epilogue < address);
        self.epilogues.get(index(function.start)..index(function.end)).unwrap_or_default()
    }

    fn find_epilogues(&mut self, image: &PagedImage, pe: &Pe) {
        let mut reader = CodeReader::default();
        for function in &self.functions {
            let Range { start, end } = function.range();
            let Ok(prologue) = self.unwind_info.prologue(function.unwind_info) else { continue };
            if end - start > MAX_FUNCTION_BYTES {
                continue;
            }
            // Code that is not in the file has no epilogues.
            let Ok(code) = reader.read_function(image, pe, *function) else { continue };
            let found = epilogue::find(code, &prologue);
            self.epilogues.extend(found.into_iter().map(|offset| start + offset as u32));
        }
    }
}

/// Reads the code of functions in chunks.
#[derive(Default)]
struct CodeReader {
    start: u32,
    bytes: Vec<u8>,
}

impl CodeReader {
    fn read_function(
        &mut self,
        image: &PagedImage,
        pe: &Pe,
        function: Function,
    ) -> Result<&[u8], ParseError> {
        let bytes = (function.end - function.start) as usize;
        let offset = |chunk: &Self| function.start.checked_sub(chunk.start).map(|offset| offset as usize);
        let is_read = offset(self).is_some_and(|start| self.bytes.get(start..start + bytes).is_some());
        if !is_read {
            let rest = pe.rest_from(function.start)?;
            let range = rest.prefix(rest.len().min(CODE_CHUNK_BYTES.max(bytes as u32).into()))?;
            *self =
                Self { start: function.start, bytes: image.read_uncached(range, MAX_FUNCTION_BYTES.into())? };
        }
        offset(self).and_then(|start| self.bytes.get(start..start + bytes)).ok_or(ParseError::Malformed)
    }
}

/// Parses a `RUNTIME_FUNCTION` table. Returns the functions and the number of malformed entries. Functions must be in
/// ascending order and must not overlap.
fn read_functions(table: &[u8]) -> (Vec<Function>, u32) {
    const ENTRY_BYTES: usize = 12;
    let (mut functions, mut malformed, mut end) = (Vec::new(), 0, 0);
    for entry in table.as_chunks::<ENTRY_BYTES>().0 {
        match read_function(entry) {
            Ok(function) if function.start >= end && function.start < function.end => {
                end = function.end;
                functions.push(function);
            }
            _ => malformed += 1,
        }
    }
    (functions, malformed)
}

fn read_function(entry: &[u8]) -> Result<Function, ParseError> {
    let mut fields = ByteCursor::new(entry, 0);
    Ok(Function { start: fields.u32()?, end: fields.u32()?, unwind_info: fields.u32()? })
}

fn read_unwind_info(
    image: &PagedImage,
    pe: &Pe,
    functions: &[Function],
) -> Result<UnwindInfoSection, ParseError> {
    let addresses = || functions.iter().map(|function| function.unwind_info);
    let (Some(first), Some(last)) = (addresses().min(), addresses().max()) else {
        return Ok(UnwindInfoSection::default());
    };
    let rest = pe.rest_from(first)?;
    let bytes = u64::from(last - first) + u64::from(MAX_UNWIND_INFO_BYTES);
    let bytes = image.read_uncached(rest.prefix(rest.len().min(bytes))?, MAX_UNWIND_INFO_SECTION_BYTES)?;
    Ok(UnwindInfoSection { address: first, bytes })
}

/// Compiles a table of adjacent functions. The bytes are both the `UNWIND_INFO` section and the code.
#[cfg(fuzzing)]
pub fn compile_unwind_info(bytes: &[u8]) -> Option<UnwindTable> {
    const ADDRESS: u32 = 0x1000;
    const FUNCTION_BYTES: u32 = 0x40;
    let unwind_info = UnwindInfoSection { address: ADDRESS, bytes: bytes.to_vec() };
    let starts = (ADDRESS..ADDRESS + bytes.len() as u32).step_by(FUNCTION_BYTES as usize);
    let functions: Vec<Function> =
        starts.map(|start| Function { start, end: start + FUNCTION_BYTES, unwind_info: start }).collect();
    let mut epilogues = Vec::new();
    for function in &functions {
        let code = bytes.get((function.start - ADDRESS) as usize..).unwrap_or_default();
        if let Ok(prologue) = unwind_info.prologue(function.unwind_info) {
            epilogues.extend(
                epilogue::find(code, &prologue).into_iter().map(|offset| function.start + offset as u32),
            );
        }
    }
    epilogues.sort_unstable();
    PrecompiledSource { functions, unwind_info, epilogues, malformed_functions: 0 }.compile(&|| true).ok()
}

#[cfg(test)]
#[cfg(target_arch = "x86_64")]
mod tests {
    mod prologue_comparison;

    use profiler_addresses::{FileMapping, FileOffset, RuntimeAddress};
    use profiler_common::unwind::FramePointerRule;

    use super::*;
    use crate::{
        source::TableSource,
        test_cfi::{x86_64_rule, x86_64_rule_with_frame_pointer},
    };

    /// An image with three functions and one section, whose file offset is 0xe00 lower than its address.
    const IMAGE: &[u8] = include_bytes!("../../../../tests/fuzz/seeds/unwind_info/image");

    const FUNCTIONS: usize = 0x2a0;
    const CODE: u64 = 0x1100;

    const fn cfa_at_stack_pointer(bytes: i32) -> Rule {
        x86_64_rule(CfaRule::StackPointer, bytes)
    }

    const fn with_frame_pointer(bytes: i32) -> Rule {
        x86_64_rule_with_frame_pointer(CfaRule::StackPointer, bytes, FramePointerRule::AtCfa, -16)
    }

    fn changed(changes: &[(usize, &[u8])]) -> Vec<u8> {
        let mut image = IMAGE.to_vec();
        for (position, bytes) in changes {
            image[*position..position + bytes.len()].copy_from_slice(bytes);
        }
        image
    }

    fn table(image: Vec<u8>) -> Option<UnwindTable> {
        let table = TableSource::read(Image::Memory(image)).ok()??.compile(&|| true).ok()?;
        table.assert_valid();
        Some(table)
    }

    fn rules(table: &UnwindTable, bytes: u64) -> Vec<Rule> {
        let pages: Vec<_> = table.pages().collect();
        (CODE..CODE + bytes).map(|address| table.find_rule(&pages, address)).collect()
    }

    #[test]
    fn every_instruction_of_a_function_has_the_rule_of_its_frame() {
        let table = table(IMAGE.to_vec()).unwrap();
        assert_eq!(table.statistics(), TableStatistics { functions: 3, ..TableStatistics::default() });
        let rules = rules(&table, 0x41);
        // push rbp; sub rsp, 16; ...; add rsp, 16; pop rbp; ret; ...
        assert_eq!(rules[0], cfa_at_stack_pointer(8));
        assert_eq!(rules[1..5], [with_frame_pointer(16); 4]);
        assert_eq!(rules[5..14], [with_frame_pointer(32); 9]);
        assert_eq!((rules[14], rules[15]), (with_frame_pointer(16), cfa_at_stack_pointer(8)));
        assert_eq!(
            rules[16..0x20],
            [with_frame_pointer(32); 0x10],
            "the function continues after the return"
        );
        assert_eq!(
            rules[0x20..0x30],
            [cfa_at_stack_pointer(8); 0x10],
            "a function without a frame, and padding"
        );
        // push rbx; ...; pop rbx; jmp [rax]
        assert_eq!(
            (rules[0x30], rules[0x31], rules[0x3d]),
            (cfa_at_stack_pointer(8), cfa_at_stack_pointer(16), cfa_at_stack_pointer(8))
        );
        assert_eq!(rules[0x40], Rule::default());
    }

    #[test]
    fn the_layout_converts_mapped_addresses_to_those_of_the_image() {
        let source = TableSource::read(Image::Memory(IMAGE.to_vec())).unwrap().unwrap();
        let start = 0x7f00_0000_0000;
        let bias = source
            .layout()
            .load_bias(FileMapping { start: RuntimeAddress(start), offset: FileOffset(0) }, 0x1000);
        assert_eq!(bias, Some(start - 0xe00));
    }

    #[test]
    fn images_without_code_of_this_machine_have_no_table() {
        for (case, position, bytes) in [
            ("for another operating system", 0x44, &[0x64, 0x86][..]),
            ("not precompiled", 0x240, &[0; 8]),
            ("an unknown signature", 0x250, b"NGEN"),
            ("without a function table", 0x260, &[99]),
        ] {
            let source = TableSource::read(Image::Memory(changed(&[(position, bytes)])));
            assert!(source.unwrap().is_none(), "{case}");
        }
    }

    #[test]
    fn malformed_functions_are_counted_and_ignored() {
        let unsorted = changed(&[(FUNCTIONS + 12, &[0x08, 0x11])]);
        let overlapping = table(unsorted).unwrap();
        let expected = TableStatistics { functions: 2, malformed_functions: 1, ..TableStatistics::default() };
        assert_eq!(overlapping.statistics(), expected);
        assert_eq!(rules(&overlapping, 0x20)[8], with_frame_pointer(32));

        let unknown_version = changed(&[(0x540, &[7])]);
        let table = table(unknown_version).unwrap();
        assert_eq!(table.statistics(), expected);
        assert_eq!(rules(&table, 0x20), [Rule::default(); 0x20]);
    }

    #[test]
    fn unwind_info_outside_of_the_section_is_malformed() {
        let far_away = table(changed(&[(FUNCTIONS + 8, &[0, 0, 0, 0xf0])])).unwrap();
        let expected = TableStatistics { functions: 2, malformed_functions: 1, ..TableStatistics::default() };
        assert_eq!(far_away.statistics(), expected);
        let before_all = changed(&[(FUNCTIONS + 8, &[0, 0, 0, 0])]);
        assert!(matches!(TableSource::read(Image::Memory(before_all)), Err(ParseError::Malformed)));
    }

    #[test]
    fn a_cancelled_compilation_returns_no_table() {
        let source = TableSource::read(Image::Memory(IMAGE.to_vec())).unwrap().unwrap();
        assert_eq!(source.compile(&|| false).unwrap_err(), ParseError::TooLarge);
    }

    #[test]
    fn a_truncated_or_changed_image_does_not_panic() {
        for length in 0..IMAGE.len() {
            let _ = table(IMAGE[..length].to_vec());
        }
        for position in 0..IMAGE.len() {
            for value in [0, 1, 2, 0x7f, 0x80, 0xff] {
                let _ = table(changed(&[(position, &[value])]));
            }
        }
    }
}
