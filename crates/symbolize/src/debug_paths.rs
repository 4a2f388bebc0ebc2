//! Where debug files lie: the layouts of systems, of directories that people fill, and of caches.

use profiler_elf_symbols::{AlternateLink, BuildId, DebugLink};
use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use super::symbol_server::ServerProtocol;

/// Where the system keeps debug files (GDB manual, "Separate Debug Files").
const SYSTEM_DIRECTORY: &str = "/usr/lib/debug";

/// What debug files are called that have no link to them: by .NET and by most others.
const SUFFIXES: [&str; 2] = [".dbg", ".debug"];

/// Where the debug file of the file at `path` may be in a whole file system.
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

/// Where it may be in a directory that somebody filled: by build id, by name, by the file's whole path, or as one of
/// the symbol servers has it.
pub(super) fn in_given(path: &Path, id: Option<&BuildId>, link: Option<&DebugLink>) -> Vec<PathBuf> {
    let mut paths: Vec<_> = id.map(|id| absolute(&build_id_path(id))).into_iter().collect();
    let mut places = vec![path.to_owned()];
    places.extend(path.file_name().map(|name| absolute(Path::new(name))));
    for place in places {
        if let (Some(link), Some(directory)) = (link, place.parent()) {
            paths.push(directory.join(&link.name));
        }
        paths.extend(SUFFIXES.map(|suffix| with_suffix(&place, suffix)));
        paths.push(place);
    }
    paths.extend(id.into_iter().flat_map(in_cache));
    paths
}

/// Where it is in what a client of a symbol server has downloaded.
pub(super) fn in_cache(id: &BuildId) -> Vec<PathBuf> {
    let of_debuginfod = absolute(&Path::new(&id.to_string()).join("debuginfo"));
    vec![of_debuginfod, absolute(Path::new(&ServerProtocol::Ssqp.path(id)))]
}

/// Where the system has it when it goes by nothing but the build id.
pub(super) fn in_system_by_id(id: &BuildId) -> PathBuf {
    system_path(&build_id_path(id))
}

/// Where the file that a debug file at `path` shares with others may be in a whole file system.
pub(super) fn alternate_in_system(link: &AlternateLink, path: &Path) -> Vec<PathBuf> {
    let beside = path.parent().unwrap_or(Path::new("/")).join(&link.path);
    let mut paths = vec![beside, in_system_by_id(&link.build_id)];
    paths.extend(link.path.file_name().map(|name| Path::new(SYSTEM_DIRECTORY).join(".dwz").join(name)));
    paths
}

/// Where it may be in a directory that somebody filled.
pub(super) fn alternate_in_given(link: &AlternateLink) -> Vec<PathBuf> {
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

/// The path from a root on.
pub(super) fn absolute(path: &Path) -> PathBuf {
    Path::new("/").join(path)
}

/// The path with something behind it.
pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(OsStr::from_bytes(suffix.as_bytes()));
    PathBuf::from(name)
}
