//! Candidate paths of debug files: in system directories, in directories from the user, in caches of symbol servers.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use profiler_elf_symbols::{AlternateLink, BuildId, DebugLink};

use crate::symbol_server::SegmentLayout;

/// The debug directory of the system (GDB manual, "Separate Debug Files").
const SYSTEM_DIRECTORY: &str = "/usr/lib/debug";

/// The suffixes of debug files without a debug link: of .NET, and of most other tools.
const SUFFIXES: [&str; 2] = [".dbg", ".debug"];

/// The paths of the debug file of the file at `path` in a root directory.
pub(super) fn in_system(path: &Path, id: Option<&BuildId>, link: Option<&DebugLink>) -> Vec<PathBuf> {
    let mut paths: Vec<_> = id.map(in_system_by_id).into_iter().collect();
    let directory = path.parent().unwrap_or(Path::new("/"));
    let hidden = directory.join(".debug");
    let system = system_path(directory);
    if let Some(link) = link {
        paths.extend([directory, &hidden, &system].map(|directory| directory.join(&link.name)));
    }
    paths.extend(SUFFIXES.map(|suffix| with_suffix(path, suffix)));
    if let Some(name) = path.file_name().map(Path::new) {
        paths.push(hidden.join(name));
        paths.push(system.join(name));
        paths.extend(SUFFIXES.map(|suffix| with_suffix(&system.join(name), suffix)));
    }
    paths
}

/// The paths of the debug file in a directory from the user: by build id, by name, by the full path of the file, or in the
/// layout of a symbol server.
pub(super) fn in_configured(path: &Path, id: Option<&BuildId>, link: Option<&DebugLink>) -> Vec<PathBuf> {
    let mut paths: Vec<_> = id.map(|id| absolute(&build_id_path(id))).into_iter().collect();
    let mut bases = vec![path.to_owned()];
    bases.extend(path.file_name().map(|name| absolute(Path::new(name))));
    for base in bases {
        if let (Some(link), Some(directory)) = (link, base.parent()) {
            paths.push(directory.join(&link.name));
        }
        paths.extend(SUFFIXES.map(|suffix| with_suffix(&base, suffix)));
        paths.push(base);
    }
    paths.extend(id.into_iter().flat_map(in_cache));
    paths
}

/// The paths of the debug file in the cache of a symbol server client.
pub(super) fn in_cache(id: &BuildId) -> Vec<PathBuf> {
    let debuginfod = absolute(&Path::new(&id.to_string()).join("debuginfo"));
    vec![debuginfod, absolute(Path::new(&SegmentLayout::Ssqp.path(id)))]
}

/// The path of the debug file by build id in the debug directory of the system.
pub(super) fn in_system_by_id(id: &BuildId) -> PathBuf {
    system_path(&build_id_path(id))
}

/// The paths of the `dwz` file of the debug file at `path` in a root directory.
pub(super) fn alternate_in_system(link: &AlternateLink, path: &Path) -> Vec<PathBuf> {
    let relative = path.parent().unwrap_or(Path::new("/")).join(&link.path);
    let mut paths = vec![relative, in_system_by_id(&link.build_id)];
    paths.extend(link.path.file_name().map(|name| Path::new(SYSTEM_DIRECTORY).join(".dwz").join(name)));
    paths
}

/// The paths of the `dwz` file in a directory from the user.
pub(super) fn alternate_in_configured(link: &AlternateLink) -> Vec<PathBuf> {
    let mut paths = vec![absolute(&build_id_path(&link.build_id))];
    if let Some(name) = link.path.file_name() {
        paths.extend([absolute(&Path::new(".dwz").join(name)), absolute(Path::new(name))]);
    }
    paths
}

/// `.build-id/ab/cdef.debug` for the build id `abcdef`.
fn build_id_path(id: &BuildId) -> PathBuf {
    let id = id.to_string();
    let (first, rest) = id.split_at_checked(2).unwrap_or((&id, ""));
    PathBuf::from(format!(".build-id/{first}/{rest}.debug"))
}

fn system_path(path: &Path) -> PathBuf {
    Path::new(SYSTEM_DIRECTORY).join(path.strip_prefix("/").unwrap_or(path))
}

/// The path as an absolute one.
pub(super) fn absolute(path: &Path) -> PathBuf {
    Path::new("/").join(path)
}

/// The path with a suffix.
fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(OsStr::from_bytes(suffix.as_bytes()));
    PathBuf::from(name)
}
