//! Debug information: the functions inlined at an address, and where in the source it is.

use std::{path::Path, sync::Arc};

use addr2line::{Context, LookupContinuation, LookupResult};
use gimli::{Dwarf, EndianArcSlice, LittleEndian, Reader as _, SectionId};

use super::{
    debug_file::{DebugFiles, FoundFile},
    demangle::cut,
    split_dwarf::SplitDwarf,
};
use crate::{
    address::ElfAddress,
    elf::{Elf, Sections},
    profile::Reason,
};

/// Sections are shared by everything that refers to them, and by threads.
pub(super) type Reader = EndianArcSlice<LittleEndian>;

/// All sections of one module's debug information together, unpacked: they are held in memory.
const MAX_BYTES: u64 = 1 << 30;

/// More functions than any compiler inlines into one another.
const MAX_FRAMES: usize = 512;

/// How deep entries may nest: they are read by recursion, and a file of nothing but beginnings would exhaust
/// the stack. Real code stays below a hundred.
const MAX_NESTING: isize = 512;

/// The debug information of one module.
pub(super) struct DebugInformation {
    context: Context<Reader>,
    split: SplitDwarf,
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
    pub(super) fn load(module: &Elf, path: &Path, debug_files: &DebugFiles) -> Result<Self, Reason> {
        if module.sections()?.has_dwarf() {
            return Self::of_file(module, path, path, debug_files);
        }
        let found = debug_files.find(module, path, Sections::has_dwarf).ok_or(Reason::NoSymbols)?;
        Self::of_file(&found.elf, &found.path, path, debug_files)
    }

    fn of_file(elf: &Elf, path: &Path, module_path: &Path, debug_files: &DebugFiles) -> Result<Self, Reason> {
        let mut loader = SectionLoader { remaining_bytes: MAX_BYTES };
        let sections = elf.sections()?;
        let mut dwarf = Dwarf::load(|id| loader.load(elf, &sections, is_needed(id).then_some(id.name())))?;
        if let Some(link) = elf.alternate_link(&sections)
            && let Some(FoundFile { elf, .. }) = debug_files.find_alternate(&link, path)
        {
            let sections = elf.sections()?;
            dwarf.load_sup(|id| loader.load(&elf, &sections, is_needed(id).then_some(id.name())))?;
        }
        check_nesting(&dwarf)?;
        if let Some(alternate) = dwarf.sup() {
            check_nesting(alternate)?;
        }
        dwarf.populate_abbreviations_cache(gimli::AbbreviationsCacheStrategy::Duplicates);
        let context = Context::from_dwarf(dwarf).map_err(|_| Reason::MalformedFile)?;
        let split = SplitDwarf::new([path, module_path], loader);
        Ok(Self { context, split })
    }

    /// The functions at an address, innermost first. Empty where nothing is known of it. The last may have no
    /// name: code of a known line in no known function.
    pub(super) fn frames(
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
        collect(found).map_err(|_| Reason::MalformedFile)
    }
}

/// Refuses entries that nest too deep, before anything reads them by recursion.
pub(super) fn check_nesting(dwarf: &Dwarf<Reader>) -> Result<(), Reason> {
    let mut units = dwarf.units();
    while let Some(header) = units.next().map_err(|_| Reason::MalformedFile)? {
        // What is malformed inside a unit ends the reading of that unit, here and later.
        let Ok(unit) = dwarf.unit(header) else { continue };
        let Ok(mut entries) = unit.entries_raw(None) else { continue };
        while !entries.is_empty() {
            if entries.next_depth() > MAX_NESTING {
                return Err(Reason::TooLarge);
            }
            match entries.read_abbreviation() {
                Ok(None) => {}
                Ok(Some(entry)) if entries.skip_attributes(entry.attributes()).is_ok() => {}
                _ => break,
            }
        }
    }
    Ok(())
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

/// Reads sections as long as the module's budget lasts.
#[derive(Debug)]
pub(super) struct SectionLoader {
    remaining_bytes: u64,
}

impl SectionLoader {
    /// The section of that name, empty when the file has none.
    pub(super) fn load(
        &mut self,
        elf: &Elf,
        sections: &Sections,
        name: Option<&str>,
    ) -> Result<Reader, Reason> {
        let section = name.and_then(|name| find(sections, name));
        let bytes = match section {
            Some(section) => section.contents(elf.image(), self.remaining_bytes)?,
            None => Arc::default(),
        };
        self.remaining_bytes = self.remaining_bytes.saturating_sub(bytes.len() as u64);
        Ok(EndianArcSlice::new(bytes, LittleEndian))
    }
}

/// A section by its name, or by the one it has in the older packed form.
fn find<'a>(sections: &'a Sections, name: &str) -> Option<crate::elf::Section<'a>> {
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
    use crate::{
        elf::{Image, test_file::TestFile},
        process::root::Root,
    };

    const COMPILE_UNIT: u8 = 1;
    const FUNCTION: u8 = 2;
    const INLINED: u8 = 3;

    /// Tag, children, then pairs of attribute and form, for the three kinds of entries (DWARF 4, section 7.5).
    const ABBREVIATIONS: &[u8] = &[
        COMPILE_UNIT,
        0x11,
        1,
        0x11,
        0x01,
        0x12,
        0x07,
        0,
        0, //
        FUNCTION,
        0x2e,
        1,
        0x03,
        0x08,
        0x11,
        0x01,
        0x12,
        0x07,
        0,
        0, //
        INLINED,
        0x1d,
        1,
        0x03,
        0x08,
        0x11,
        0x01,
        0x12,
        0x07,
        0,
        0, //
        0,
    ];

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
        let length = u32::try_from(entries.len() + 7).unwrap();
        [&length.to_le_bytes()[..], &4_u16.to_le_bytes(), &0_u32.to_le_bytes(), &[8], &entries].concat()
    }

    fn frames(info: Vec<u8>) -> Result<Vec<DwarfFrame>, Reason> {
        let empty = tempfile::tempdir().unwrap();
        let nowhere =
            DebugFiles { target: None, host: Arc::new(Root::open(empty.path()).unwrap()), extra: Vec::new() };
        let file = TestFile::with_code().with(".debug_info", SHT_PROGBITS, info).with(
            ".debug_abbrev",
            SHT_PROGBITS,
            ABBREVIATIONS.to_vec(),
        );
        let elf = Elf::parse(Image::Memory(file.bytes()))?;
        DebugInformation::load(&elf, Path::new("/x"), &nowhere)?.frames(ElfAddress(0x1010), &nowhere)
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
    fn a_file_without_information_has_no_symbols_to_give() {
        assert_eq!(frames(Vec::new()), Err(Reason::NoSymbols));
    }
}
