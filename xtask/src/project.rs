//! Paths of the project and its files.

#![cfg_attr(not(feature = "commands"), allow(dead_code, reason = "other commands use the rest"))]

use std::{
    fs::Permissions,
    io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::Result;
use fs_err as fs;

/// The root folder of the project.
pub(crate) fn root() -> &'static Path {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    crate_folder.parent().unwrap_or(crate_folder)
}

/// All files below `folder`, sorted by path for reproducible results.
pub(crate) fn files_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        for entry in entries? {
            let list = if entry.file_type()?.is_dir() { &mut folders } else { &mut files };
            list.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

/// Lets everyone execute a file.
pub(crate) fn make_executable(file: &Path) -> io::Result<()> {
    fs::set_permissions(file, Permissions::from_mode(0o755))
}

/// `path` relative to the root folder of the project.
pub(crate) fn relative(path: &Path) -> &Path {
    path.strip_prefix(root()).unwrap_or(path)
}
