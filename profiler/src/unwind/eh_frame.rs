//! From `.eh_frame` or `.debug_frame` to the table of a file.
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
    rule::{Bytes, Cie, RowStorage, Rules},
    table::{Statistics, UnwindTable},
};
use crate::elf::{CallFrameKind, CallFrames, Defect, Elf};

/// Call frame information of one file: ten times that of the largest libraries.
const MAX_SECTION_BYTES: u64 = 64 << 20;

/// Descriptions that functions share. Linkers leave a handful, but some merge none: one for each object file.
const MAX_SHARED_DESCRIPTIONS: usize = 16 << 10;

/// Bytes of descriptions that are evaluated. Each function's begins with the one it shares with others, which a
/// file that lies can make as long as the section.
const MAX_EVALUATED_BYTES: u64 = 2 * MAX_SECTION_BYTES;

/// What lies between functions is padding up to this size: it never runs, and needs no rows of its own.
const MAX_PADDING_BYTES: u64 = 32;

impl UnwindTable {
    /// The table of a file. It is empty where the file has no call frame information.
    pub(crate) fn build(elf: &Elf) -> Result<Self, Defect> {
        let architecture = Architecture::of_machine(elf.machine()).ok_or(Defect::NotElf)?;
        // Without sections there are segments still.
        let sections = elf.sections().unwrap_or_default();
        let Some(frames) = elf.call_frames(&sections, MAX_SECTION_BYTES)? else { return Ok(Self::default()) };
        let linkage = architecture.linkage_sections.iter();
        let linkage = linkage.filter_map(|(name, rule)| Some((sections.find(name)?.addresses(), *rule)));
        let code = Code { architecture, addresses: elf.code().collect(), linkage_tables: linkage.collect() };
        code.table(&frames)
    }
}

/// What there is to describe.
pub(super) struct Code {
    pub(super) architecture: &'static Architecture,
    /// Where code is.
    pub(super) addresses: Vec<Range<u64>>,
    /// Where procedure linkage tables are, and their rules should nothing else describe them.
    pub(super) linkage_tables: Vec<(Range<u64>, Rule)>,
}

impl Code {
    /// The table that call frame information gives.
    pub(super) fn table(&self, frames: &CallFrames) -> Result<UnwindTable, Defect> {
        match frames.kind {
            CallFrameKind::EhFrame => {
                let mut section = EhFrame::new(&frames.bytes, LittleEndian);
                section.set_vendor(self.architecture.vendor);
                Builder::new(self, &section, frames.address.0).build()
            }
            CallFrameKind::DebugFrame => {
                let mut section = DebugFrame::new(&frames.bytes, LittleEndian);
                section.set_vendor(self.architecture.vendor);
                Builder::new(self, &section, frames.address.0).build()
            }
        }
    }

    fn holds(&self, start: u64) -> Option<&Range<u64>> {
        self.addresses.iter().find(|range| range.contains(&start))
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

struct Builder<'a, S> {
    code: &'a Code,
    section: &'a S,
    bases: BaseAddresses,
    /// Descriptions that functions share, by their offset in the section.
    shared: Vec<(usize, Cie<'a>)>,
    functions: Vec<Function>,
    statistics: Statistics,
    evaluated_bytes: u64,
}

impl<'a, S: UnwindSection<Bytes<'a>>> Builder<'a, S> {
    fn new(code: &'a Code, section: &'a S, section_address: u64) -> Self {
        Self {
            code,
            section,
            bases: BaseAddresses::default().set_eh_frame(section_address),
            shared: Vec::new(),
            functions: Vec::new(),
            statistics: Statistics::default(),
            evaluated_bytes: 0,
        }
    }

    fn build(mut self) -> Result<UnwindTable, Defect> {
        self.find_functions()?;
        self.add_linkage_tables();
        self.write_rows()
    }

    /// The first pass.
    fn find_functions(&mut self) -> Result<(), Defect> {
        let bases = self.bases.clone();
        let mut entries = self.section.entries(&bases);
        loop {
            match entries.next() {
                Ok(Some(CieOrFde::Cie(cie))) if self.shared.len() < MAX_SHARED_DESCRIPTIONS => {
                    self.shared.push((cie.offset(), cie));
                }
                Ok(Some(CieOrFde::Cie(_))) => return Err(Defect::TooLarge),
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

    fn add_function(&mut self, offset: usize, start: u64, bytes: u64) -> Result<(), Defect> {
        // Linkers that drop a function leave the description, at an address where nothing is.
        let Some(code) = self.code.holds(start).filter(|_| bytes > 0) else {
            self.statistics.misplaced_functions += 1;
            return Ok(());
        };
        let end = start.saturating_add(bytes).min(code.end);
        let offset = u32::try_from(offset).map_err(|_| Defect::TooLarge)?;
        self.functions.push(Function { start, end, description: Description::Entry(offset) });
        Ok(())
    }

    /// Sorts the functions, the longest last of those that begin at the same place: it is the one that counts.
    fn add_linkage_tables(&mut self) {
        let order = |function: &Function| (function.start, function.end, function.description);
        self.functions.sort_by_key(order);
        for (index, (addresses, _)) in (0..).zip(&self.code.linkage_tables) {
            let is_code = self.code.holds(addresses.start).is_some_and(|code| code.end >= addresses.end);
            let before = self.functions.partition_point(|function| function.start < addresses.end);
            let is_described =
                before.checked_sub(1).is_some_and(|last| self.functions[last].end > addresses.start);
            if is_code && !is_described && !addresses.is_empty() {
                let description = Description::LinkageTable(index);
                self.functions.push(Function { start: addresses.start, end: addresses.end, description });
            }
        }
        self.functions.sort_by_key(order);
    }

    /// The second pass. A function ends where the next one begins.
    fn write_rows(mut self) -> Result<UnwindTable, Defect> {
        let functions = std::mem::take(&mut self.functions);
        let first_page = functions.first().map_or(0, |function| function.start >> PAGE_BITS);
        let mut rows = RowWriter::new(u32::try_from(first_page).map_err(|_| Defect::TooLarge)?);
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
            if next_start - end > MAX_PADDING_BYTES {
                rows.write(end, Rule::default())?;
            }
        }
        Ok(rows.finish(self.statistics))
    }

    /// Writes the rows of one function, as far as it makes sense.
    fn evaluate(
        &mut self,
        offset: usize,
        end: u64,
        context: &mut UnwindContext<usize, RowStorage>,
        rows: &mut RowWriter,
    ) -> Result<(), Defect> {
        let find_shared = |_: &S, _: &BaseAddresses, offset: S::Offset| {
            find_shared(&self.shared, UnwindOffset::into(offset))
        };
        let Ok(fde) = self.section.fde_from_offset(&self.bases, offset.into(), find_shared) else {
            // The first pass has read it.
            return Ok(());
        };
        self.evaluated_bytes += (fde.cie().entry_len() + fde.entry_len()) as u64;
        if self.evaluated_bytes > MAX_EVALUATED_BYTES {
            return Err(Defect::TooLarge);
        }
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

/// Those that are shared stand before the functions that share them.
fn find_shared<'a>(shared: &[(usize, Cie<'a>)], offset: usize) -> gimli::Result<Cie<'a>> {
    let found = shared.binary_search_by_key(&offset, |(offset, _)| *offset);
    found.map(|index| shared[index].1.clone()).map_err(|_| gimli::Error::NotCiePointer(offset as u64))
}
