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

/// All sections of one module's debug information together, unpacked. Whole browsers stay below.
const MAX_BYTES: u64 = 2 << 30;

/// More functions than any compiler inlines into one another.
const MAX_FRAMES: usize = 512;

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
        let mut dwarf = Dwarf::load(|id| loader.load(elf, &sections, Some(id.name()), id))?;
        if let Some(link) = elf.alternate_link(&sections)
            && let Some(FoundFile { elf, .. }) = debug_files.find_alternate(&link, path)
        {
            let sections = elf.sections()?;
            dwarf.load_sup(|id| loader.load(&elf, &sections, Some(id.name()), id))?;
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
    /// A section, empty when the file has none or nobody needs it.
    pub(super) fn load(
        &mut self,
        elf: &Elf,
        sections: &Sections,
        name: Option<&str>,
        id: SectionId,
    ) -> Result<Reader, Reason> {
        let section = name.filter(|_| is_needed(id)).and_then(|name| find(sections, name));
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
fn is_needed(id: SectionId) -> bool {
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
