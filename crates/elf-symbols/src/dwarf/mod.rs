//! DWARF debug information: the functions inlined at an address, and their source locations.

mod check;
mod files;
mod reader;
mod section_loader;
mod split;

use std::{path::Path, sync::Arc};

use addr2line::{Context, LookupContinuation, LookupResult};
use gimli::{Dwarf, Reader as _};
use profiler_addresses::ElfAddress;
use profiler_binary_reader::{ParseError, WorkBudget};

pub use self::files::{DebugFile, DebugFileFinder, NoDebugFiles};
use self::{
    check::check,
    reader::{Reader, parse_error},
    section_loader::{SectionLoader, is_needed},
    split::SplitDwarf,
};
use crate::{demangle::truncate_name, elf::Elf};

/// The work of one lookup in parsed tables at most.
const LOOKUP_WORK: u64 = 4096;

/// The frames at one address. No compiler inlines as many functions into one another.
const MAX_FRAMES: usize = 512;

/// The debug information of one module.
pub struct DebugInfo {
    context: Context<Reader>,
    split: SplitDwarf,
    budget: Arc<WorkBudget>,
}

/// One function at an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DwarfFrame {
    /// The linkage name, which may be mangled, or else the name.
    pub name: Option<Vec<u8>>,
    /// File and line. The line is 0 when the compiler states none.
    pub location: Option<(String, u32)>,
}

impl DebugInfo {
    /// Loads the debug information of `module`, the file at `path`: its own, or else that of its debug file. `None` when
    /// neither has any.
    ///
    /// # Errors
    /// When the debug information is malformed or exceeds a limit.
    pub fn load(
        module: &Elf,
        path: &Path,
        files: &dyn DebugFileFinder,
        budget: &Arc<WorkBudget>,
    ) -> Result<Option<Self>, ParseError> {
        if module.sections()?.has_dwarf() {
            return Self::load_from(module, path, path, files, budget).map(Some);
        }
        let Some(found) = files.find_debug_file(module, path, budget) else { return Ok(None) };
        Self::load_from(&found.elf, &found.path, path, files, budget).map(Some)
    }

    fn load_from(
        elf: &Elf,
        path: &Path,
        module_path: &Path,
        files: &dyn DebugFileFinder,
        budget: &Arc<WorkBudget>,
    ) -> Result<Self, ParseError> {
        let loader = SectionLoader { budget: Arc::clone(budget) };
        let sections = elf.sections()?;
        let mut dwarf = Dwarf::load(|id| loader.load(elf, &sections, is_needed(id).then_some(id.name())))?;
        if let Some(link) = elf.alternate_link(&sections)
            && let Some(elf) = files.find_alternate_file(&link, path)
        {
            let sections = elf.sections()?;
            let mut alternate =
                Dwarf::load(|id| loader.load(&elf, &sections, is_needed(id).then_some(id.name())))?;
            check(&mut alternate, budget)?;
            dwarf.set_sup(alternate);
        }
        check(&mut dwarf, budget)?;
        let context = Context::from_dwarf(dwarf).map_err(|error| parse_error(&error))?;
        let split = SplitDwarf::new([path, module_path], loader);
        Ok(Self { context, split, budget: Arc::clone(budget) })
    }

    /// The functions at an address, innermost first; empty when the address is unknown. The last one has no name when only
    /// the line of the address is known. `files` is used to open split DWARF at its first use.
    ///
    /// # Errors
    /// When the debug information is malformed or exceeds a limit.
    pub fn frames(
        &mut self,
        address: ElfAddress,
        files: &dyn DebugFileFinder,
    ) -> Result<Vec<DwarfFrame>, ParseError> {
        // addr2line computes the next address, which does not exist.
        if address.0 == u64::MAX {
            return Ok(Vec::new());
        }
        let budget = Arc::clone(&self.budget);
        budget.with_refund(LOOKUP_WORK, || self.find_frames(address, files))
    }

    fn find_frames(
        &mut self,
        address: ElfAddress,
        files: &dyn DebugFileFinder,
    ) -> Result<Vec<DwarfFrame>, ParseError> {
        let mut lookup = self.context.find_frames(address.0);
        let frames = loop {
            match lookup {
                LookupResult::Output(frames) => break frames,
                LookupResult::Load { load, continuation } => {
                    lookup = continuation.resume(self.split.load(&load, files).map(Arc::new));
                }
            }
        };
        collect_frames(frames).map_err(|error| parse_error(&error))
    }
}

fn collect_frames(frames: gimli::Result<addr2line::FrameIter<'_, Reader>>) -> gimli::Result<Vec<DwarfFrame>> {
    let mut iterator = frames?;
    let mut frames = Vec::new();
    while let Some(frame) = iterator.next()? {
        if frames.len() == MAX_FRAMES {
            return Ok(Vec::new());
        }
        let name = frame.function.map(|function| function.name.to_slice().map(|name| name.into_owned()));
        let location = frame.location.and_then(|location| {
            Some((truncate_name(location.file?.to_owned()), location.line.unwrap_or_default()))
        });
        frames.push(DwarfFrame { name: name.transpose()?, location });
    }
    Ok(frames)
}

#[cfg(test)]
mod tests {
    use object::elf::SHT_PROGBITS;
    use profiler_binary_reader::Image;

    use super::{check::MAX_ATTRIBUTES, *};
    use crate::test_file::TestFile;

    const COMPILE_UNIT: u8 = 1;
    const FUNCTION: u8 = 2;
    const INLINED: u8 = 3;

    /// Code, tag, children flag, then pairs of attribute and form, for three kinds of entries (DWARF 4, section 7.5). All
    /// have a code range, two have a name before it.
    fn abbreviations() -> Vec<u8> {
        const NAME: [u8; 2] = [0x03, 0x08];
        const CODE_RANGE_AND_END: [u8; 6] = [0x11, 0x01, 0x12, 0x07, 0, 0];
        let kinds: [(u8, u8, &[u8]); 3] =
            [(COMPILE_UNIT, 0x11, &[]), (FUNCTION, 0x2e, &NAME), (INLINED, 0x1d, &NAME)];
        let kinds = kinds.map(|(code, tag, name)| [&[code, tag, 1], name, &CODE_RANGE_AND_END].concat());
        [kinds.concat(), vec![0]].concat()
    }

    fn code_range() -> Vec<u8> {
        [0x1000_u64.to_le_bytes(), 0x100_u64.to_le_bytes()].concat()
    }

    /// A unit with one function `f`, into which `i` is inlined recursively, `inlined` times.
    fn unit(inlined: usize) -> Vec<u8> {
        let mut entries = [&[COMPILE_UNIT][..], &code_range(), &[FUNCTION], b"f\0", &code_range()].concat();
        for _ in 0..inlined {
            entries.extend([&[INLINED][..], b"i\0", &code_range()].concat());
        }
        entries.resize(entries.len() + inlined + 2, 0);
        with_header(&entries)
    }

    fn with_header(entries: &[u8]) -> Vec<u8> {
        let length = u32::try_from(entries.len() + 7).unwrap();
        [&length.to_le_bytes()[..], &4_u16.to_le_bytes(), &0_u32.to_le_bytes(), &[8], entries].concat()
    }

    fn frames(info: Vec<u8>) -> Result<Vec<DwarfFrame>, ParseError> {
        look_up(&file(info, abbreviations()), &Arc::default(), 0x1010)
    }

    /// As [`frames`], for sections that may be empty.
    fn try_frames(info: Vec<u8>) -> Result<Option<Vec<DwarfFrame>>, ParseError> {
        let debug_info = load(&file(info, abbreviations()), &Arc::default())?;
        debug_info.map(|mut debug_info| debug_info.frames(ElfAddress(0x1010), &NoDebugFiles)).transpose()
    }

    fn file(info: Vec<u8>, abbreviations: Vec<u8>) -> TestFile {
        let file = TestFile::with_code().with(".debug_info", SHT_PROGBITS, info);
        file.with(".debug_abbrev", SHT_PROGBITS, abbreviations)
    }

    fn look_up(
        file: &TestFile,
        budget: &Arc<WorkBudget>,
        address: u64,
    ) -> Result<Vec<DwarfFrame>, ParseError> {
        load(file, budget)?.unwrap().frames(ElfAddress(address), &NoDebugFiles)
    }

    fn load(file: &TestFile, budget: &Arc<WorkBudget>) -> Result<Option<DebugInfo>, ParseError> {
        let elf = Elf::parse(Image::Memory(file.clone().bytes()))?;
        DebugInfo::load(&elf, Path::new("/x"), &NoDebugFiles, budget)
    }

    #[test]
    fn frames_are_innermost_first() {
        let names = frames(unit(2)).unwrap().into_iter().map(|frame| frame.name.unwrap());
        assert_eq!(names.collect::<Vec<_>>(), [b"i", b"i", b"f"]);
    }

    #[test]
    fn entries_that_nest_too_deeply_are_refused() {
        assert_eq!(frames(unit(100)).unwrap().len(), 101);
        assert_eq!(frames(unit(200_000)), Err(ParseError::TooLarge));
    }

    #[test]
    fn truncated_or_changed_debug_info_does_not_panic() {
        let whole = unit(3);
        for length in 0..whole.len() {
            let _ = try_frames(whole[..length].to_vec());
        }
        for position in 0..whole.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut changed = whole.clone();
                changed[position] = value;
                let _ = try_frames(changed);
            }
        }
    }

    #[test]
    fn entries_that_share_a_range_list_cost_no_more_than_the_budget() {
        const COUNT: usize = 5_000;
        const SHARING: u8 = 2;
        // A unit as above, and functions with no attribute but the offset of their range list.
        let abbreviations = [&abbreviations()[..9], &[SHARING, 0x2e, 0, 0x55, 0x17, 0, 0, 0]].concat();
        let functions = [SHARING, 0, 0, 0, 0].repeat(COUNT);
        let info = with_header(&[&[COMPILE_UNIT][..], &code_range(), &functions, &[0]].concat());
        let range = [0x1000_u64.to_le_bytes(), 0x1100_u64.to_le_bytes()].concat();
        let look_up_with_list_of = |count| {
            let list = [range.repeat(count), vec![0; 16]].concat();
            let file = file(info.clone(), abbreviations.clone()).with(".debug_ranges", SHT_PROGBITS, list);
            look_up(&file, &Arc::new(WorkBudget::with_work_limit(4 << 20)), 0x1010)
        };
        assert!(look_up_with_list_of(1).is_ok());
        assert_eq!(look_up_with_list_of(COUNT), Err(ParseError::TooLarge));
    }

    #[test]
    fn units_with_overlapping_abbreviation_tables_are_refused() {
        const COUNT: u32 = 1 << 14;
        // Codes of three bytes, so that all abbreviations have the same length.
        let entry = |code: u32| {
            let [a, b, c] = [code, code >> 7, 1].map(|bits| (bits & 0x7f) as u8);
            [a | 0x80, b | 0x80, c, 0x2e, 0, 0, 0]
        };
        let table: Vec<u8> = (0..COUNT).flat_map(entry).chain([0]).collect();
        let unit = |index: u32| {
            [&7_u32.to_le_bytes()[..], &4_u16.to_le_bytes(), &(7 * index).to_le_bytes(), &[8]].concat()
        };
        let units: Vec<u8> = (0..COUNT).flat_map(unit).collect();
        assert_eq!(look_up(&file(units, table), &Arc::default(), 0x1010), Err(ParseError::TooLarge));
    }

    #[test]
    fn an_entry_with_too_many_attributes_is_refused() {
        let with_attributes = |count| {
            let attributes = [0x3f, 0x19].repeat(count);
            let abbreviations = [&[COMPILE_UNIT, 0x11, 0][..], &attributes, &[0, 0, 0]].concat();
            look_up(&file(with_header(&[COMPILE_UNIT]), abbreviations), &Arc::default(), 0x1010)
        };
        assert_eq!(with_attributes(MAX_ATTRIBUTES), Ok(Vec::new()));
        assert_eq!(with_attributes(MAX_ATTRIBUTES + 1), Err(ParseError::TooLarge));
    }

    #[test]
    fn the_highest_address_has_no_frames() {
        let file = file(unit(1), abbreviations());
        assert_eq!(look_up(&file, &Arc::default(), u64::MAX), Ok(Vec::new()));
    }

    #[test]
    fn a_file_without_debug_info_has_none() {
        assert!(load(&file(Vec::new(), abbreviations()), &Arc::default()).unwrap().is_none());
    }
}
