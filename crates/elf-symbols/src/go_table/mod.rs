//! The function table of Go programs (`.gopclntab`): the name of each function, the size of its frame, and file and line of each instruction. Stripping
//! leaves it, because the runtime needs it to unwind stacks.
//!
//! Format: "Go 1.2 Runtime Symbol Table Information" (golang.org/s/go12symtab), and `pcHeader`, `_func` and `pcvalue` in
//! `runtime/symtab.go` and `runtime/runtime2.go` of the versions 1.16, 1.18 and 1.20, which have a header of their own each.
//! A header, then tables at offsets from it: functions by address, each with an offset to its record; names; files; and
//! for each function the differences of file and line from instruction to instruction.

mod frames;
mod layout;
mod locate;
mod names;
mod pc_values;
#[cfg(test)]
mod tests;

pub use self::frames::GoFrame;
use profiler_addresses::ElfAddress;
use profiler_binary_reader::{ByteCursor, Image, ParseError, WorkBudget, text_of};

use self::{
    layout::{Layout, Version},
    locate::Location,
    pc_values::PcValues,
};
use crate::{elf::Elf, section::Sections};

/// The number of functions. The largest programs have some hundred thousand.
const MAX_FUNCTIONS: u64 = 1 << 22;

/// The function table of one file.
#[derive(Debug)]
pub struct GoTable {
    /// Where the table is.
    place: Location,
    layout: Layout,
    /// The address of the code of Go, to which addresses are relative.
    text: u64,
    /// The start of each function, relative to `text`, and the offset of its record; by start.
    functions: Vec<(u32, u32)>,
    /// The end of the last function, relative to `text`.
    end: u32,
}

/// A function of a Go program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoFunction {
    /// The address of the function.
    pub start: ElfAddress,
    /// The name, with its package: `main.(*Server).Serve`.
    pub name: String,
    /// File and line of the instruction, if the table has them.
    pub location: Option<(String, u32)>,
}

impl GoTable {
    /// Reads the table of a file; `None` when the file is not a Go program. Functions are subtracted from the symbols of
    /// `budget`.
    ///
    /// # Errors
    /// When the table is malformed or exceeds a limit.
    pub fn read(elf: &Elf, sections: &Sections, budget: &WorkBudget) -> Result<Option<Self>, ParseError> {
        match Location::find(elf, sections, budget)? {
            Some(place) => Self::read_at(elf, sections, place, budget).map(Some),
            None => Ok(None),
        }
    }

    fn read_at(
        elf: &Elf,
        sections: &Sections,
        place: Location,
        budget: &WorkBudget,
    ) -> Result<Self, ParseError> {
        let layout = Layout::read(elf.image(), &place)?;
        let count = layout.functions;
        budget.read_symbols(|left| {
            *left = left.checked_sub(count).filter(|_| count <= MAX_FUNCTIONS).ok_or(ParseError::TooLarge)?;
            Ok(())
        })?;
        let entries = read_entries(elf.image(), &place, &layout)?;
        let (&(first, _), &(last, _)) = entries.first().zip(entries.last()).ok_or(ParseError::Malformed)?;
        // Before 1.18, entries are addresses.
        let (text, base) = match layout.version {
            Version::V2 | Version::V16 => (first, first),
            Version::V18 | Version::V20 => {
                let length = u32::try_from(last).map_err(|_| ParseError::Malformed)?;
                (locate::text_address(elf, sections, &place, &layout, length)?, 0)
            }
        };
        let relative = |address: u64| {
            let relative = address.checked_sub(base).ok_or(ParseError::Malformed)?;
            u32::try_from(relative).map_err(|_| ParseError::Malformed)
        };
        let end = relative(last)?;
        let starts = entries.iter().take(entries.len() - 1);
        let functions =
            starts.map(|(start, record)| Ok((relative(*start)?, *record))).collect::<Result<Vec<_>, _>>()?;
        if !functions.is_sorted_by_key(|(start, _)| *start) || !is_code(elf, text) {
            return Err(ParseError::Malformed);
        }
        Ok(Self { place, layout, text, functions, end })
    }

    /// Finds the function that contains `address`.
    ///
    /// # Errors
    /// When its record or its name is malformed.
    pub fn find(&self, elf: &Elf, address: ElfAddress) -> Result<Option<GoFunction>, ParseError> {
        let Some(relative) = address.0.checked_sub(self.text).filter(|at| *at < self.end.into()) else {
            return Ok(None);
        };
        let until = self.functions.partition_point(|(start, _)| u64::from(*start) <= relative);
        let Some(&(start, record)) = until.checked_sub(1).and_then(|index| self.functions.get(index)) else {
            return Ok(None);
        };
        let record = self.record(elf.image(), record)?;
        let name = self.string(elf.image(), self.layout.names, record.name)?;
        if name.is_empty() {
            return Ok(None);
        }
        let within = relative - u64::from(start);
        // A name without a line is of use.
        let location = self.location(elf.image(), &record, within).ok().flatten();
        Ok(Some(GoFunction { start: ElfAddress(self.text + u64::from(start)), name, location }))
    }

    fn record(&self, image: &Image, offset: u32) -> Result<Record, ParseError> {
        let start_bytes = self.layout.version.record_start_bytes();
        let at = self.layout.records.checked_add(offset.into()).ok_or(ParseError::Malformed)?;
        let bytes = self.place.read_up_to(image, at, Record::MAX_BYTES)?;
        let mut fields = ByteCursor::new(&bytes, start_bytes as usize);
        let name = fields.u32()?;
        let (_arguments, _deferred_return, frame_sizes) = (fields.u32()?, fields.u32()?, fields.u32()?);
        let (files, lines) = (fields.u32()?, fields.u32()?);
        let tables = fields.u32()?;
        let unit = if self.layout.units.is_some() { fields.u32()? } else { 0 };
        let kind_at = start_bytes as usize + self.layout.version.record_words() * 4;
        let flags = bytes.get(kind_at + 1).copied().unwrap_or(0);
        let inlined_at = start_bytes as usize + (self.layout.version.record_words() + 1 + INLINED_TABLE) * 4;
        let has_inlined = tables as usize > INLINED_TABLE;
        let inlined = if has_inlined { ByteCursor::new(&bytes, inlined_at).u32()? } else { 0 };
        Ok(Record { name, frame_sizes, files, lines, unit, inlined, flags })
    }

    /// File and line of the instruction at a distance from the start of a function; `None` in inlined code, whose file and line
    /// are those of another function.
    fn location(
        &self,
        image: &Image,
        record: &Record,
        within: u64,
    ) -> Result<Option<(String, u32)>, ParseError> {
        if self.value(image, record.inlined, within)?.is_some() {
            return Ok(None);
        }
        let Some(file) = self.value(image, record.files, within)? else { return Ok(None) };
        let Some(file) = self.file(image, record.unit, file)? else { return Ok(None) };
        let line = self.value(image, record.lines, within)?;
        Ok(Some((file, line.unwrap_or(0))))
    }

    /// The value of a function's table at a distance from its start; `None` where the table has none.
    fn value(&self, image: &Image, offset: u32, within: u64) -> Result<Option<u32>, ParseError> {
        if offset == 0 {
            return Ok(None);
        }
        let at = self.layout.pc_values.checked_add(offset.into()).ok_or(ParseError::Malformed)?;
        let bytes = self.place.read_up_to(image, at, pc_values::MAX_TABLE_BYTES)?;
        let value = PcValues::new(&bytes, self.layout.quantum).find(within)?;
        Ok(value.and_then(|value| u32::try_from(value).ok()))
    }

    /// The path of the file with a number.
    fn file(&self, image: &Image, unit: u32, number: u32) -> Result<Option<String>, ParseError> {
        const NO_FILE: u32 = u32::MAX;
        let index = match self.layout.units {
            Some(_) => u64::from(unit) + u64::from(number),
            // The first entry is the number of files.
            None if number == 0 => return Ok(None),
            None => number.into(),
        };
        let table = self.layout.units.unwrap_or(self.layout.files);
        let at = table.checked_add(index * 4).ok_or(ParseError::Malformed)?;
        let offset = ByteCursor::new(&self.place.read(image, at, 4)?, 0).u32()?;
        if offset == NO_FILE {
            return Ok(None);
        }
        let strings = if self.layout.units.is_some() { self.layout.files } else { 0 };
        let path = self.string(image, strings, offset)?;
        Ok((!path.is_empty()).then_some(path))
    }

    fn string(&self, image: &Image, table: u64, offset: u32) -> Result<String, ParseError> {
        let at = table.checked_add(offset.into()).ok_or(ParseError::Malformed)?;
        Ok(text_of(&self.place.read_string(image, at)?).into_owned())
    }
}

/// The parts of a function's record that are used: offsets in their tables.
struct Record {
    name: u32,
    frame_sizes: u32,
    files: u32,
    lines: u32,
    /// The index of the first file of the function's compilation unit, from 1.16 on.
    unit: u32,
    /// The number of the inlined call.
    inlined: u32,
    /// Behind the function's kind.
    flags: u8,
}

impl Record {
    /// The start, at most nine words, the word with the function's kind, and the words of tables up to [`INLINED_TABLE`].
    const MAX_BYTES: u64 = 8 + (9 + 1 + INLINED_TABLE as u64 + 1) * 4;
}

/// The index of the table of inlined calls among a function's tables (`PCDATA_InlTreeIndex` in `internal/abi/symtab.go`, since
/// 1.12).
const INLINED_TABLE: usize = 2;

/// The start of each function and the offset of its record, and behind them the end of the last function.
fn read_entries(image: &Image, place: &Location, layout: &Layout) -> Result<Vec<(u64, u32)>, ParseError> {
    let word_bytes = layout.version.entry_word_bytes();
    let bytes = (layout.functions * 2 + 1) * word_bytes;
    let bytes = place.read(image, layout.entries, bytes)?;
    let mut cursor = ByteCursor::new(&bytes, 0);
    let mut word = || if word_bytes == 4 { cursor.u32().map(u64::from) } else { cursor.u64() };
    let mut entries = Vec::with_capacity(usize::try_from(layout.functions).unwrap_or_default() + 1);
    for _ in 0..layout.functions {
        let (start, record) = (word()?, word()?);
        entries.push((start, u32::try_from(record).map_err(|_| ParseError::Malformed)?));
    }
    entries.push((word()?, 0));
    Ok(entries)
}

fn is_code(elf: &Elf, address: u64) -> bool {
    elf.code_ranges().any(|range| range.contains(&address))
}
