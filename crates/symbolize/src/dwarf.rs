//! Debug information: the functions inlined at an address, and where in the source it is.

use crate::reasons;
use profiler_binary_reader::WorkBudget;
use profiler_elf_symbols::{Elf, Sections, cut};
use std::{path::Path, sync::Arc};

use addr2line::{Context, LookupContinuation, LookupResult};
use gimli::{Dwarf, Reader as _, Section as _, SectionId};

use super::{
    debug_file::{DebugFiles, FoundFile},
    dwarf_reader::Reader,
    split_dwarf::SplitDwarf,
};
use profiler_addresses::ElfAddress;
use profiler_profile::Reason;

/// The table of abbreviations in bytes; it becomes thirty times as much in memory, and real ones are far below.
const MAX_ABBREVIATIONS_BYTES: usize = 8 << 20;

/// Each unit takes almost a kilobyte. Whole browsers have fewer.
const MAX_UNITS: usize = 1 << 17;

/// More attributes than an entry has: those that take no bytes would cost time alone.
const MAX_ATTRIBUTES: usize = 256;

/// What checking a byte may cost: no byte of real information is read twice.
const CHECK_WORK_PER_BYTE: u64 = 32;

/// What a look-up in tables that are parsed already costs at most.
const LOOKUP_WORK: u64 = 4096;

/// More functions than any compiler inlines into one another.
const MAX_FRAMES: usize = 512;

/// How deep entries may nest: they are read by recursion, and a file of nothing but beginnings would exhaust
/// the stack. Real code stays below a hundred.
const MAX_NESTING: isize = 512;

/// The debug information of one module.
pub(super) struct DebugInformation {
    context: Context<Reader>,
    split: SplitDwarf,
    budget: Arc<WorkBudget>,
}

/// One function at an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DwarfFrame {
    /// The symbol, mangled where the compiler gave one.
    pub(super) name: Option<Vec<u8>>,
    /// File and line; 0: the compiler names none.
    pub(super) location: Option<(String, u32)>,
}

impl DebugInformation {
    /// The information in the module itself, or else in its debug file.
    pub(super) fn load(
        module: &Elf,
        path: &Path,
        debug_files: &DebugFiles,
        budget: &Arc<WorkBudget>,
    ) -> Result<Self, Reason> {
        let loader = SectionLoader { budget: Arc::clone(budget) };
        if module.sections().map_err(reasons::parse_error_reason)?.has_dwarf() {
            return Self::of_file(module, path, path, debug_files, loader);
        }
        let found = debug_files.find(module, path, Sections::has_dwarf, budget).ok_or(Reason::NoSymbols)?;
        Self::of_file(&found.elf, &found.path, path, debug_files, loader)
    }

    fn of_file(
        elf: &Elf,
        path: &Path,
        module_path: &Path,
        debug_files: &DebugFiles,
        loader: SectionLoader,
    ) -> Result<Self, Reason> {
        let sections = elf.sections().map_err(reasons::parse_error_reason)?;
        let mut dwarf = Dwarf::load(|id| loader.load(elf, &sections, is_needed(id).then_some(id.name())))?;
        if let Some(link) = elf.alternate_link(&sections)
            && let Some(FoundFile { elf, .. }) = debug_files.find_alternate(&link, path)
        {
            let sections = elf.sections().map_err(reasons::parse_error_reason)?;
            let mut alternate =
                Dwarf::load(|id| loader.load(&elf, &sections, is_needed(id).then_some(id.name())))?;
            check(&mut alternate, &loader.budget)?;
            dwarf.set_sup(alternate);
        }
        check(&mut dwarf, &loader.budget)?;
        let budget = Arc::clone(&loader.budget);
        let context = Context::from_dwarf(dwarf).map_err(|error| reason(&error))?;
        let split = SplitDwarf::new([path, module_path], loader);
        Ok(Self { context, split, budget })
    }

    /// The functions at an address, innermost first. Empty where nothing is known of it. The last may have no
    /// name: code of a known line in no known function.
    pub(super) fn frames(
        &mut self,
        address: ElfAddress,
        debug_files: &DebugFiles,
    ) -> Result<Vec<DwarfFrame>, Reason> {
        // The address behind it, which the library computes, does not exist.
        if address.0 == u64::MAX {
            return Ok(Vec::new());
        }
        let budget = Arc::clone(&self.budget);
        budget.with_free_work(LOOKUP_WORK, || self.find_frames(address, debug_files))
    }

    fn find_frames(
        &mut self,
        address: ElfAddress,
        debug_files: &DebugFiles,
    ) -> Result<Vec<DwarfFrame>, Reason> {
        let mut lookup = self.context.find_frames(address.0);
        let found = loop {
            match lookup {
                LookupResult::Output(found) => break found,
                LookupResult::Load { load, continuation } => {
                    lookup = continuation.resume(self.split.load(&load, debug_files).map(Arc::new));
                }
            }
        };
        collect(found).map_err(|error| reason(&error))
    }
}

/// Refuses what a file should not have, before anything is made of it: above all entries that nest too deep,
/// which are read by recursion. Tables that several units share are read once.
pub(super) fn check(dwarf: &mut Dwarf<Reader>, budget: &WorkBudget) -> Result<(), Reason> {
    let abbreviation_bytes = dwarf.debug_abbrev.reader().len();
    if abbreviation_bytes > MAX_ABBREVIATIONS_BYTES {
        return Err(Reason::TooLarge);
    }
    dwarf.populate_abbreviations_cache(gimli::AbbreviationsCacheStrategy::Duplicates);
    let bytes = (dwarf.debug_info.reader().len() + abbreviation_bytes) as u64;
    budget.apart(bytes * CHECK_WORK_PER_BYTE, || check_units(dwarf))
}

fn check_units(dwarf: &Dwarf<Reader>) -> Result<(), Reason> {
    let mut units = dwarf.units();
    let mut count = 0;
    while let Some(header) = units.next().map_err(|error| reason(&error))? {
        count += 1;
        if count > MAX_UNITS {
            return Err(Reason::TooLarge);
        }
        // What is malformed inside a unit ends the reading of that unit, here and later.
        let abbreviations = match dwarf.abbreviations(&header) {
            Err(gimli::Error::Io) => return Err(Reason::TooLarge),
            Err(_) => continue,
            Ok(abbreviations) => abbreviations,
        };
        let Ok(mut entries) = header.entries_raw(&abbreviations, None) else { continue };
        while !entries.is_empty() {
            if entries.next_depth() > MAX_NESTING {
                return Err(Reason::TooLarge);
            }
            match entries.read_abbreviation() {
                Ok(None) => {}
                Ok(Some(entry)) if entry.attributes().len() > MAX_ATTRIBUTES => return Err(Reason::TooLarge),
                Ok(Some(entry)) if entries.skip_attributes(entry.attributes()).is_ok() => {}
                _ => break,
            }
        }
    }
    Ok(())
}

/// Only a spent budget fails a read: the bytes are all in memory.
fn reason(error: &gimli::Error) -> Reason {
    if *error == gimli::Error::Io { Reason::TooLarge } else { Reason::MalformedFile }
}

fn collect(found: gimli::Result<addr2line::FrameIter<'_, Reader>>) -> gimli::Result<Vec<DwarfFrame>> {
    let mut iterator = found?;
    let mut frames = Vec::new();
    while let Some(frame) = iterator.next()? {
        if frames.len() == MAX_FRAMES {
            return Ok(Vec::new());
        }
        let name = frame.function.map(|function| function.name.to_slice().map(|name| name.into_owned()));
        let location = frame
            .location
            .and_then(|location| Some((cut(location.file?.to_owned()), location.line.unwrap_or_default())));
        frames.push(DwarfFrame { name: name.transpose()?, location });
    }
    Ok(frames)
}

/// Reads sections as long as the budget lasts.
#[derive(Debug)]
pub(super) struct SectionLoader {
    pub(super) budget: Arc<WorkBudget>,
}

impl SectionLoader {
    /// The section of that name, empty when the file has none.
    pub(super) fn load(&self, elf: &Elf, sections: &Sections, name: Option<&str>) -> Result<Reader, Reason> {
        let section = name.and_then(|name| find(sections, name));
        let bytes = match section {
            Some(section) => section
                .contents(elf.image(), self.budget.bytes_left())
                .map_err(reasons::parse_error_reason)?,
            None => Arc::default(),
        };
        self.budget.take_bytes(bytes.len() as u64);
        Ok(Reader::new(bytes, Arc::clone(&self.budget)))
    }
}

/// A section by its name, or by the one it has in the older packed form.
fn find<'a>(sections: &'a Sections, name: &str) -> Option<profiler_elf_symbols::Section<'a>> {
    let packed = || sections.find(name.replacen(".debug_", ".zdebug_", 1).as_bytes());
    sections.find(name.as_bytes()).or_else(packed)
}

/// Where variables are and what macros mean fills a third of a file, and is not asked for here.
pub(super) fn is_needed(id: SectionId) -> bool {
    !matches!(
        id,
        SectionId::DebugLoc
            | SectionId::DebugLocLists
            | SectionId::DebugMacinfo
            | SectionId::DebugMacro
            | SectionId::DebugNames
            | SectionId::DebugTypes
    )
}

#[cfg(test)]
mod tests {
    use object::elf::SHT_PROGBITS;

    use super::*;
    use profiler_binary_reader::Image;
    use profiler_elf_symbols::test_file::TestFile;
    use profiler_processes::root_directory::RootDirectory;

    const COMPILE_UNIT: u8 = 1;
    const FUNCTION: u8 = 2;
    const INLINED: u8 = 3;

    /// Code, tag, children, then pairs of attribute and form, for the three kinds of entries (DWARF 4, section 7.5):
    /// all have a range of code, two a name before it.
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

    /// A unit with one function `f`, into which `i` is inlined, into itself, that many times.
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

    fn frames(info: Vec<u8>) -> Result<Vec<DwarfFrame>, Reason> {
        look_up(&file(info, abbreviations()), &Arc::default(), 0x1010)
    }

    fn file(info: Vec<u8>, abbreviations: Vec<u8>) -> TestFile {
        let file = TestFile::with_code().with(".debug_info", SHT_PROGBITS, info);
        file.with(".debug_abbrev", SHT_PROGBITS, abbreviations)
    }

    fn look_up(file: &TestFile, budget: &Arc<WorkBudget>, address: u64) -> Result<Vec<DwarfFrame>, Reason> {
        let empty = tempfile::tempdir().unwrap();
        let nowhere = DebugFiles::of_host(RootDirectory::open(empty.path()).unwrap());
        let elf = Elf::parse(Image::Memory(file.clone().bytes())).map_err(reasons::parse_error_reason)?;
        DebugInformation::load(&elf, Path::new("/x"), &nowhere, budget)?.frames(ElfAddress(address), &nowhere)
    }

    #[test]
    fn frames_are_innermost_first() {
        let names = frames(unit(2)).unwrap().into_iter().map(|frame| frame.name.unwrap());
        assert_eq!(names.collect::<Vec<_>>(), [b"i", b"i", b"f"]);
    }

    #[test]
    fn entries_that_nest_without_end_are_refused() {
        assert_eq!(frames(unit(100)).unwrap().len(), 101);
        assert_eq!(frames(unit(200_000)), Err(Reason::TooLarge));
    }

    #[test]
    fn information_that_ends_anywhere_or_lies_is_an_answer_and_no_panic() {
        let whole = unit(3);
        for length in 0..whole.len() {
            let _ = frames(whole[..length].to_vec());
        }
        for position in 0..whole.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut changed = whole.clone();
                changed[position] = value;
                let _ = frames(changed);
            }
        }
    }

    #[test]
    fn entries_that_share_a_list_of_ranges_cost_no_more_than_the_budget() {
        const COUNT: usize = 5_000;
        const SHARING: u8 = 2;
        // A unit as above, and functions of which nothing is known but where their list of ranges stands.
        let abbreviations = [&abbreviations()[..9], &[SHARING, 0x2e, 0, 0x55, 0x17, 0, 0, 0]].concat();
        let functions = [SHARING, 0, 0, 0, 0].repeat(COUNT);
        let info = with_header(&[&[COMPILE_UNIT][..], &code_range(), &functions, &[0]].concat());
        let range = [0x1000_u64.to_le_bytes(), 0x1100_u64.to_le_bytes()].concat();
        let with_list_of = |count| {
            let list = [range.repeat(count), vec![0; 16]].concat();
            let file = file(info.clone(), abbreviations.clone()).with(".debug_ranges", SHT_PROGBITS, list);
            look_up(&file, &Arc::new(WorkBudget::of_work(4 << 20)), 0x1010)
        };
        assert!(with_list_of(1).is_ok());
        assert_eq!(with_list_of(COUNT), Err(Reason::TooLarge));
    }

    #[test]
    fn units_that_share_one_table_from_different_places_on_are_refused() {
        const COUNT: u32 = 1 << 14;
        // Codes of three bytes, so that all of the table's entries have the same length.
        let entry = |code: u32| {
            let [a, b, c] = [code, code >> 7, 1].map(|bits| (bits & 0x7f) as u8);
            [a | 0x80, b | 0x80, c, 0x2e, 0, 0, 0]
        };
        let table: Vec<u8> = (0..COUNT).flat_map(entry).chain([0]).collect();
        let unit = |index: u32| {
            [&7_u32.to_le_bytes()[..], &4_u16.to_le_bytes(), &(7 * index).to_le_bytes(), &[8]].concat()
        };
        let units: Vec<u8> = (0..COUNT).flat_map(unit).collect();
        assert_eq!(look_up(&file(units, table), &Arc::default(), 0x1010), Err(Reason::TooLarge));
    }

    #[test]
    fn an_entry_of_countless_attributes_without_bytes_is_refused() {
        let with_attributes = |count| {
            let attributes = [0x3f, 0x19].repeat(count);
            let abbreviations = [&[COMPILE_UNIT, 0x11, 0][..], &attributes, &[0, 0, 0]].concat();
            look_up(&file(with_header(&[COMPILE_UNIT]), abbreviations), &Arc::default(), 0x1010)
        };
        assert_eq!(with_attributes(MAX_ATTRIBUTES), Ok(Vec::new()));
        assert_eq!(with_attributes(MAX_ATTRIBUTES + 1), Err(Reason::TooLarge));
    }

    #[test]
    fn the_last_address_of_all_is_an_answer() {
        let file = file(unit(1), abbreviations());
        assert_eq!(look_up(&file, &Arc::default(), u64::MAX), Ok(Vec::new()));
    }

    #[test]
    fn a_file_without_information_has_no_symbols_to_give() {
        assert_eq!(frames(Vec::new()), Err(Reason::NoSymbols));
    }
}
