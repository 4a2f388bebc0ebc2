//! Split DWARF: `.dwo` files, one for each unit, and `.dwp` packages, one for each module.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use addr2line::SplitDwarfLoad;
use gimli::{Dwarf, DwarfPackage, DwoId, Reader as _};

use crate::dwarf::{
    check::check,
    files::DebugFileFinder,
    reader::Reader,
    section_loader::{SectionLoader, is_needed},
};

/// Finds and loads the split units of a module.
pub(crate) struct SplitDwarf {
    /// Paths where the package may be.
    package_paths: Vec<PathBuf>,
    /// The package, which is searched when the first unit is needed.
    package: Option<Option<DwarfPackage<Reader>>>,
    loader: SectionLoader,
}

impl SplitDwarf {
    /// The split units of a module: of the module itself or of its debug file.
    pub(crate) fn new(files: [&Path; 2], loader: SectionLoader) -> Self {
        let mut package_paths = files.map(package_path).to_vec();
        package_paths.dedup();
        Self { package_paths, package: None, loader }
    }

    /// Loads a unit, from the package or from its own file.
    pub(crate) fn load(
        &mut self,
        unit: &SplitDwarfLoad<Reader>,
        files: &dyn DebugFileFinder,
    ) -> Option<Dwarf<Reader>> {
        if self.package.is_none() {
            self.package = Some(self.load_package(files));
        }
        let package = self.package.as_ref().and_then(Option::as_ref);
        let packaged = package.and_then(|package| package.find_cu(unit.dwo_id, &unit.parent).ok().flatten());
        let mut dwarf = packaged.or_else(|| self.load_dwo_file(unit, files))?;
        check(&mut dwarf, &self.loader.budget).ok()?;
        Some(dwarf)
    }

    fn load_package(&self, files: &dyn DebugFileFinder) -> Option<DwarfPackage<Reader>> {
        let elf = files.find_split_file(&self.package_paths, &|elf| {
            elf.sections().is_ok_and(|sections| sections.find(b".debug_cu_index").is_some())
        })?;
        let sections = elf.sections().ok()?;
        let empty = Reader::new(Arc::default(), Arc::clone(&self.loader.budget));
        // The index of a package refers to all of its sections, needed or not.
        let load = |id: gimli::SectionId| -> Result<Reader, gimli::Error> {
            self.loader.load(&elf, &sections, id.dwo_name()).map_err(|_| gimli::Error::Io)
        };
        DwarfPackage::load(load, empty).ok()
    }

    fn load_dwo_file(
        &self,
        unit: &SplitDwarfLoad<Reader>,
        files: &dyn DebugFileFinder,
    ) -> Option<Dwarf<Reader>> {
        let directory = unit.comp_dir.as_ref().and_then(to_path).unwrap_or_default();
        let path = Path::new("/").join(directory).join(to_path(unit.path.as_ref()?)?);
        let elf = files.find_split_file(&[path], &|elf| {
            elf.sections().is_ok_and(|sections| sections.find(b".debug_info.dwo").is_some())
        })?;
        let sections = elf.sections().ok()?;
        let mut dwarf = Dwarf::load(|id| {
            let name = id.dwo_name().filter(|_| is_needed(id));
            self.loader.load(&elf, &sections, name)
        })
        .ok()?;
        if read_dwo_id(&dwarf) != Some(unit.dwo_id) {
            return None;
        }
        dwarf.make_dwo(&unit.parent);
        Some(dwarf)
    }
}

/// The id that proves that a `.dwo` file belongs to a unit.
fn read_dwo_id(dwarf: &Dwarf<Reader>) -> Option<DwoId> {
    let header = dwarf.units().next().ok()??;
    dwarf.unit(header).ok()?.dwo_id
}

fn to_path(text: &Reader) -> Option<PathBuf> {
    Some(PathBuf::from(OsStr::from_bytes(&text.to_slice().ok()?)))
}

fn package_path(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".dwp");
    PathBuf::from(name)
}
