//! From the precompiled .NET code of an image (ReadyToRun) to the rows of a table.
//!
//! ```text
//! functions, by address ── description of each (unwind_info) ─┬─> rows
//! code ── where frames are taken down again (epilogue) ───────┘
//! ```
//!
//! Half of the framework's methods keep no frame pointer, and who steps over one by the frame pointer loses its caller.

mod epilogue;
mod unwind_info;

use std::{ops::Range, sync::Arc};

use profiler_common::unwind::{CfaRule, PAGE_BITS, Rule};

use self::unwind_info::{Descriptions, Prologue};
use super::{
    row_writer::RowWriter,
    rule::of_code,
    table::{Statistics, UnwindTable},
};
use profiler_binary_reader::{ByteCursor, Image, PagedImage, ParseError, SegmentLayout};
use profiler_dotnet_symbols::pe::{
    Pe,
    precompiled::{RUNTIME_FUNCTIONS, ReadyToRunHeader},
};

/// The largest table of functions that real images have takes a megabyte.
const MAX_FUNCTIONS_BYTES: u64 = 16 << 20;

/// From the first description to the last one: those of the largest image lie in less than a megabyte.
const MAX_DESCRIPTIONS_BYTES: u64 = 32 << 20;

/// A description and all it can have behind it.
const MAX_DESCRIPTION_BYTES: u32 = 4 + 2 * 256 + 12;

/// Code is read in pieces of this size, or by functions that are larger.
const CODE_PIECE_BYTES: u32 = 256 << 10;

/// In longer functions it is not looked for where they take their frames down.
const MAX_FUNCTION_BYTES: u32 = 4 << 20;

/// After so many functions, whether to go on is asked again.
const FUNCTIONS_BETWEEN_ASKING: usize = 4096;

/// Functions begin at multiples of this: what lies between two of them up to there never runs.
const FUNCTION_ALIGNMENT_BYTES: u32 = 16;

/// Everything of an image that its table depends on.
#[derive(Debug, Hash)]
pub(super) struct Precompiled {
    functions: Vec<Function>,
    descriptions: Descriptions,
    /// Where frames are taken down again, sorted.
    epilogues: Vec<u32>,
    malformed_functions: u32,
}

/// A function: its addresses in the image, and that of its description.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Function {
    start: u32,
    end: u32,
    description: u32,
}

impl Function {
    fn addresses(self) -> Range<u32> {
        self.start..self.end
    }
}

impl Precompiled {
    /// Reads it; `None` where there is no precompiled code for this machine.
    pub(super) fn read(image: Image) -> Result<Option<(Self, SegmentLayout)>, ParseError> {
        let mut pieces = PagedImage::new(image, Arc::default())?;
        let pe = Pe::read(&mut pieces)?;
        if pe.native_header.len() == 0 || !pe.is_of_this_machine {
            return Ok(None);
        }
        let Some(header) = ReadyToRunHeader::read(&mut pieces, pe.native_header)? else { return Ok(None) };
        let Some(table) = header.sections.directory(RUNTIME_FUNCTIONS) else { return Ok(None) };
        let table = pieces.read_all(pe.span(table)?, MAX_FUNCTIONS_BYTES)?;
        let (functions, malformed_functions) = read_functions(&table);
        let descriptions = read_descriptions(&pieces, &pe, &functions)?;
        let mut precompiled = Self { functions, descriptions, epilogues: Vec::new(), malformed_functions };
        precompiled.find_epilogues(&pieces, &pe)?;
        Ok(Some((precompiled, pe.layout())))
    }

    /// The table; [`ParseError::TooLarge`] when it may not go on.
    pub(super) fn table(&self, may_go_on: &dyn Fn() -> bool) -> Result<UnwindTable, ParseError> {
        let mut statistics =
            Statistics { malformed_functions: self.malformed_functions, ..Statistics::default() };
        let mut rows =
            RowWriter::new(self.functions.first().map_or(0, |function| function.start >> PAGE_BITS));
        for (index, function) in self.functions.iter().enumerate() {
            if index.is_multiple_of(FUNCTIONS_BETWEEN_ASKING) && !may_go_on() {
                return Err(ParseError::TooLarge);
            }
            match self.descriptions.prologue(function.description) {
                Ok(prologue) => {
                    statistics.functions += 1;
                    statistics.unsupported_rows += self.write(*function, &prologue, &mut rows)?;
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

    /// Writes the rows of a function, and tells how many of them have no rule.
    fn write(
        &self,
        function: Function,
        prologue: &Prologue,
        rows: &mut RowWriter,
    ) -> Result<u32, ParseError> {
        let building = prologue.frames.iter().map(|(offset, frame)| (u32::from(*offset), *frame));
        let building = building.map(|(offset, frame)| (function.start.saturating_add(offset), frame));
        let way_back = epilogue::frames(prologue);
        let taking_down = self.epilogues_in(function).iter().flat_map(|start| {
            way_back.iter().map(|(distance, frame)| (start.saturating_add(*distance), *frame))
        });
        let mut unsupported = 0;
        let mut unwritten = function.start..function.end;
        for (address, frame) in building.chain(taking_down) {
            // Descriptions that lie.
            if !unwritten.contains(&address) {
                continue;
            }
            unwritten.start = address + 1;
            unsupported += u32::from(frame.rule().is_none());
            rows.write(address.into(), frame.rule().unwrap_or(of_code(CfaRule::Unsupported)))?;
        }
        Ok(unsupported)
    }

    fn epilogues_in(&self, function: Function) -> &[u32] {
        let place = |address| self.epilogues.partition_point(|epilogue| *epilogue < address);
        self.epilogues.get(place(function.start)..place(function.end)).unwrap_or_default()
    }

    fn find_epilogues(&mut self, pieces: &PagedImage, pe: &Pe) -> Result<(), ParseError> {
        let mut code = CodePiece::default();
        for function in &self.functions {
            let Range { start, end } = function.addresses();
            let Ok(prologue) = self.descriptions.prologue(function.description) else { continue };
            if end - start > MAX_FUNCTION_BYTES {
                continue;
            }
            // What is not in the file has no epilogues.
            let Ok(code) = code.of_function(pieces, pe, *function) else { continue };
            let found = epilogue::find(code, &prologue);
            self.epilogues.extend(found.into_iter().map(|offset| start + offset as u32));
        }
        Ok(())
    }
}

/// Code that was read last.
#[derive(Default)]
struct CodePiece {
    start: u32,
    bytes: Vec<u8>,
}

impl CodePiece {
    fn of_function(&mut self, pieces: &PagedImage, pe: &Pe, function: Function) -> Result<&[u8], ParseError> {
        let bytes = (function.end - function.start) as usize;
        let at = |piece: &Self| function.start.checked_sub(piece.start).map(|at| at as usize);
        let is_read = at(self).is_some_and(|at| self.bytes.get(at..at + bytes).is_some());
        if !is_read {
            let rest = pe.rest_from(function.start)?;
            let span = rest.first(rest.len().min(CODE_PIECE_BYTES.max(bytes as u32).into()))?;
            *self = Self { start: function.start, bytes: pieces.read_all(span, MAX_FUNCTION_BYTES.into())? };
        }
        at(self).and_then(|at| self.bytes.get(at..at + bytes)).ok_or(ParseError::Malformed)
    }
}

/// The functions of a table, and how many entries of it are none: functions are in the order of their addresses.
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
    let mut fields = ByteCursor::at(entry, 0);
    Ok(Function { start: fields.u32()?, end: fields.u32()?, description: fields.u32()? })
}

fn read_descriptions(
    pieces: &PagedImage,
    pe: &Pe,
    functions: &[Function],
) -> Result<Descriptions, ParseError> {
    let addresses = || functions.iter().map(|function| function.description);
    let (Some(first), Some(last)) = (addresses().min(), addresses().max()) else {
        return Ok(Descriptions::default());
    };
    let rest = pe.rest_from(first)?;
    let bytes = u64::from(last - first) + u64::from(MAX_DESCRIPTION_BYTES);
    let bytes = pieces.read_all(rest.first(rest.len().min(bytes))?, MAX_DESCRIPTIONS_BYTES)?;
    Ok(Descriptions { address: first, bytes })
}

/// The table of functions that begin one after the other, of which the bytes are both the descriptions and the code.
#[cfg(fuzzing)]
pub fn table_of_descriptions(bytes: &[u8]) -> Option<UnwindTable> {
    const ADDRESS: u32 = 0x1000;
    const FUNCTION_BYTES: u32 = 0x40;
    let descriptions = Descriptions { address: ADDRESS, bytes: bytes.to_vec() };
    let starts = (ADDRESS..ADDRESS + bytes.len() as u32).step_by(FUNCTION_BYTES as usize);
    let functions: Vec<Function> =
        starts.map(|start| Function { start, end: start + FUNCTION_BYTES, description: start }).collect();
    let mut epilogues = Vec::new();
    for function in &functions {
        let code = bytes.get((function.start - ADDRESS) as usize..).unwrap_or_default();
        if let Ok(prologue) = descriptions.prologue(function.description) {
            epilogues
                .extend(epilogue::find(code, &prologue).into_iter().map(|at| function.start + at as u32));
        }
    }
    epilogues.sort_unstable();
    Precompiled { functions, descriptions, epilogues, malformed_functions: 0 }.table(&|| true).ok()
}

#[cfg(test)]
mod comparison;

#[cfg(test)]
#[cfg(target_arch = "x86_64")]
mod tests {
    use profiler_common::unwind::FramePointerRule;

    use super::{
        super::{
            source::TableSource,
            test_frames::{plain, saved},
        },
        *,
    };
    use profiler_addresses::{FileOffset, RuntimeAddress};

    /// An image of one section, which is 0xe00 lower in the file than in memory, with three functions.
    const IMAGE: &[u8] = include_bytes!("../../../../tests/fuzz/seeds/unwind_info/image");

    const FUNCTIONS: usize = 0x2a0;
    const CODE: u64 = 0x1100;

    const fn at_stack_pointer(bytes: i32) -> Rule {
        plain(CfaRule::StackPointer, bytes)
    }

    const fn with_frame_pointer(bytes: i32) -> Rule {
        saved(CfaRule::StackPointer, bytes, FramePointerRule::AtCfa, -16)
    }

    fn changed(changes: &[(usize, &[u8])]) -> Vec<u8> {
        let mut image = IMAGE.to_vec();
        for (position, bytes) in changes {
            image[*position..position + bytes.len()].copy_from_slice(bytes);
        }
        image
    }

    fn table(image: Vec<u8>) -> Option<UnwindTable> {
        let table = TableSource::read(Image::Memory(image)).ok()??.table(&|| true).ok()?;
        table.check();
        Some(table)
    }

    fn rules(table: &UnwindTable, bytes: u64) -> Vec<Rule> {
        let pages: Vec<_> = table.pages().collect();
        (CODE..CODE + bytes).map(|address| table.rule_in(&pages, address)).collect()
    }

    #[test]
    fn every_instruction_of_a_function_has_the_rule_of_its_frame() {
        let table = table(IMAGE.to_vec()).unwrap();
        assert_eq!(table.statistics(), Statistics { functions: 3, ..Statistics::default() });
        let rules = rules(&table, 0x41);
        // push rbp; sub rsp, 16; ...; add rsp, 16; pop rbp; ret; ...
        assert_eq!(rules[0], at_stack_pointer(8));
        assert_eq!(rules[1..5], [with_frame_pointer(16); 4]);
        assert_eq!(rules[5..14], [with_frame_pointer(32); 9]);
        assert_eq!((rules[14], rules[15]), (with_frame_pointer(16), at_stack_pointer(8)));
        assert_eq!(rules[16..0x20], [with_frame_pointer(32); 0x10], "behind the return the function goes on");
        assert_eq!(rules[0x20..0x30], [at_stack_pointer(8); 0x10], "a function without a frame, and padding");
        // push rbx; ...; pop rbx; jmp [rax]
        assert_eq!(
            (rules[0x30], rules[0x31], rules[0x3d]),
            (at_stack_pointer(8), at_stack_pointer(16), at_stack_pointer(8))
        );
        assert_eq!(rules[0x40], Rule::default());
    }

    #[test]
    fn a_mapping_of_the_code_leads_to_the_image_s_own_addresses() {
        let source = TableSource::read(Image::Memory(IMAGE.to_vec())).unwrap().unwrap();
        let start = 0x7f00_0000_0000;
        let bias = source.layout().load_bias(RuntimeAddress(start), FileOffset(0), 0x1000);
        assert_eq!(bias, Some(start - 0xe00));
    }

    #[test]
    fn images_without_code_for_this_machine_have_no_table() {
        for (what, position, bytes) in [
            ("for another system", 0x44, &[0x64, 0x86][..]),
            ("not precompiled", 0x240, &[0; 8]),
            ("not as is known", 0x250, b"NGEN"),
            ("without functions", 0x260, &[99]),
        ] {
            let source = TableSource::read(Image::Memory(changed(&[(position, bytes)])));
            assert!(source.unwrap().is_none(), "{what}");
        }
    }

    #[test]
    fn functions_that_are_none_are_counted_and_left_out() {
        let unsorted = changed(&[(FUNCTIONS + 12, &[0x08, 0x11])]);
        let overlapping = table(unsorted).unwrap();
        let expected = Statistics { functions: 2, malformed_functions: 1, ..Statistics::default() };
        assert_eq!(overlapping.statistics(), expected);
        assert_eq!(rules(&overlapping, 0x20)[8], with_frame_pointer(32));

        let described_by_something_else = changed(&[(0x540, &[7])]);
        let table = table(described_by_something_else).unwrap();
        assert_eq!(table.statistics(), expected);
        assert_eq!(rules(&table, 0x20), [Rule::default(); 0x20]);
    }

    #[test]
    fn descriptions_outside_of_the_section_are_none() {
        let apart = table(changed(&[(FUNCTIONS + 8, &[0, 0, 0, 0xf0])])).unwrap();
        let expected = Statistics { functions: 2, malformed_functions: 1, ..Statistics::default() };
        assert_eq!(apart.statistics(), expected);
        let before_all = changed(&[(FUNCTIONS + 8, &[0, 0, 0, 0])]);
        assert!(matches!(TableSource::read(Image::Memory(before_all)), Err(ParseError::Malformed)));
    }

    #[test]
    fn who_may_not_go_on_gets_no_table() {
        let source = TableSource::read(Image::Memory(IMAGE.to_vec())).unwrap().unwrap();
        assert_eq!(source.table(&|| false).unwrap_err(), ParseError::TooLarge);
    }

    #[test]
    fn an_image_that_ends_or_differs_anywhere_is_an_answer_and_no_panic() {
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
