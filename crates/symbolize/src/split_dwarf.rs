//! Debug information that was left in files of its own: `.dwo`, one for each unit, and `.dwp`, all in one.

use profiler_elf_symbols::Sections;
use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use addr2line::SplitDwarfLoad;
use gimli::{Dwarf, DwarfPackage, DwoId, Reader as _};

use super::{
    debug_file::{DebugFiles, FoundFile},
    debug_paths::with_suffix,
    dwarf::{SectionLoader, check, is_needed},
    dwarf_reader::Reader,
};
use profiler_profile::Reason;

/// Finds and reads the split parts of a module's debug information.
pub(super) struct SplitDwarf {
    /// Where the package may be.
    package_paths: Vec<PathBuf>,
    /// Looked for when the first part is asked for.
    package: Option<Option<DwarfPackage<Reader>>>,
    loader: SectionLoader,
}

impl SplitDwarf {
    /// The parts of the debug information in one of `files`.
    pub(super) fn new(files: [&Path; 2], loader: SectionLoader) -> Self {
        let mut package_paths = files.map(|path| with_suffix(path, ".dwp")).to_vec();
        package_paths.dedup();
        Self { package_paths, package: None, loader }
    }

    /// The part that is asked for, from the package or from its own file.
    pub(super) fn load(
        &mut self,
        wanted: &SplitDwarfLoad<Reader>,
        debug_files: &DebugFiles,
    ) -> Option<Dwarf<Reader>> {
        if self.package.is_none() {
            self.package = Some(self.load_package(debug_files));
        }
        let package = self.package.as_ref().and_then(Option::as_ref);
        let packed =
            package.and_then(|package| package.find_cu(wanted.dwo_id, &wanted.parent).ok().flatten());
        let mut part = packed.or_else(|| self.load_file(wanted, debug_files))?;
        check(&mut part, &self.loader.budget).ok()?;
        Some(part)
    }

    fn load_package(&mut self, debug_files: &DebugFiles) -> Option<DwarfPackage<Reader>> {
        let is_package = |sections: &Sections| sections.find(b".debug_cu_index").is_some();
        let FoundFile { elf, .. } = debug_files
            .find_at(&self.package_paths, |elf| elf.sections().is_ok_and(|found| is_package(&found)))?;
        let sections = elf.sections().ok()?;
        let empty = Reader::new(Arc::default(), Arc::clone(&self.loader.budget));
        // The index of a package refers to all of its sections, needed or not.
        let load = |id: gimli::SectionId| -> Result<Reader, gimli::Error> {
            self.loader.load(&elf, &sections, id.dwo_name()).map_err(|_: Reason| gimli::Error::Io)
        };
        DwarfPackage::load(load, empty).ok()
    }

    fn load_file(
        &mut self,
        wanted: &SplitDwarfLoad<Reader>,
        debug_files: &DebugFiles,
    ) -> Option<Dwarf<Reader>> {
        let directory = wanted.comp_dir.as_ref().and_then(path_of).unwrap_or_default();
        let path = Path::new("/").join(directory).join(path_of(wanted.path.as_ref()?)?);
        let FoundFile { elf, .. } = debug_files.find_at(&[path], |elf| {
            elf.sections().is_ok_and(|found| found.find(b".debug_info.dwo").is_some())
        })?;
        let sections = elf.sections().ok()?;
        let mut dwarf = Dwarf::load(|id| {
            let name = id.dwo_name().filter(|_| is_needed(id));
            self.loader.load(&elf, &sections, name)
        })
        .ok()?;
        if dwo_id(&dwarf) != Some(wanted.dwo_id) {
            return None;
        }
        dwarf.make_dwo(&wanted.parent);
        Some(dwarf)
    }
}

/// The id by which a file proves to be the one that is asked for.
fn dwo_id(dwarf: &Dwarf<Reader>) -> Option<DwoId> {
    let header = dwarf.units().next().ok()??;
    dwarf.unit(header).ok()?.dwo_id
}

fn path_of(text: &Reader) -> Option<PathBuf> {
    Some(PathBuf::from(OsStr::from_bytes(&text.to_slice().ok()?)))
}
