//! The interface through which debug information opens other files: debug files, `dwz` files, split DWARF.

use std::path::{Path, PathBuf};

use profiler_binary_reader::WorkBudget;

use crate::{debug_link::AlternateLink, elf::Elf};

/// A debug file, and its path in the file system that it was found in.
#[derive(Debug)]
pub struct DebugFile {
    /// The file.
    pub elf: Elf,
    /// The path.
    pub path: PathBuf,
}

/// Opens the files that debug information refers to.
///
/// Paths are from untrusted files. The implementation decides in which root directories it looks them up.
pub trait DebugFileFinder {
    /// Finds the debug file of `module`, the file at `path`, with DWARF in it. `budget` bounds the bytes that are read for
    /// checksums.
    fn find_debug_file(&self, module: &Elf, path: &Path, budget: &WorkBudget) -> Option<DebugFile>;

    /// Finds the file that the `.gnu_debugaltlink` of the debug file at `debug_file_path` refers to.
    fn find_alternate_file(&self, link: &AlternateLink, debug_file_path: &Path) -> Option<Elf>;

    /// Finds the file at one of `paths` for which `is_match` holds: a `.dwo` or a `.dwp` file.
    fn find_split_file(&self, paths: &[PathBuf], is_match: &dyn Fn(&Elf) -> bool) -> Option<Elf>;
}

/// A [`DebugFileFinder`] that finds nothing: only debug information in the file itself is used.
#[derive(Clone, Copy, Debug)]
pub struct NoDebugFiles;

impl DebugFileFinder for NoDebugFiles {
    fn find_debug_file(&self, _: &Elf, _: &Path, _: &WorkBudget) -> Option<DebugFile> {
        None
    }

    fn find_alternate_file(&self, _: &AlternateLink, _: &Path) -> Option<Elf> {
        None
    }

    fn find_split_file(&self, _: &[PathBuf], _: &dyn Fn(&Elf) -> bool) -> Option<Elf> {
        None
    }
}
