//! Finding the debug file that was split off from a file, as gdb and perf do, and proving it is the one.
//!
//! A file counts only when its build id is the module's; where the module has none, its checksum must be the
//! one in `.gnu_debuglink`.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::budget::Budget;
use crate::{
    elf::{self, AlternateLink, BuildId, DebugLink, Elf, Image, Sections},
    process::{Proc, root::Root},
};

/// Where the system keeps debug files (GDB manual, "Separate Debug Files").
const SYSTEM_DIRECTORY: &str = "/usr/lib/debug";

/// Where files that belong to a target may be looked for.
#[derive(Clone, Debug)]
pub(crate) struct DebugFiles {
    /// The target's root.
    pub(crate) target: Option<Arc<Root>>,
    /// The profiler's own root.
    pub(crate) host: Arc<Root>,
    /// Directories the user gave.
    pub(crate) extra: Vec<Arc<Root>>,
    /// Into whose part of a capture the files go that are found, when one is recorded.
    pub(crate) capture: Option<(Arc<Proc>, u32)>,
}

/// A file that was found, and its path in the root it was found in.
#[derive(Debug)]
pub(super) struct FoundFile {
    pub(super) elf: Elf,
    pub(super) path: PathBuf,
}

impl DebugFiles {
    /// The debug file of the module at `path` that has what is wanted of it.
    pub(super) fn find(
        &self,
        module: &Elf,
        path: &Path,
        is_wanted: impl Fn(&Sections) -> bool,
        budget: &Budget,
    ) -> Option<FoundFile> {
        let link = module.sections().ok().and_then(|sections| module.debug_link(&sections));
        let proof = match (module.build_id(), &link) {
            (Some(id), _) => Proof::BuildId(id),
            (None, Some(link)) => Proof::Checksum(link.crc32),
            (None, None) => return None,
        };
        let system = system_candidates(path, module.build_id(), link.as_ref());
        let given = given_candidates(path, module.build_id(), link.as_ref());
        self.first(&given, &system, |elf| {
            elf.sections().is_ok_and(|found| is_wanted(&found)) && proof.holds(elf, budget)
        })
    }

    /// The module at `path` itself or its debug file, by its build id alone: the one with a symbol table before others.
    pub(super) fn find_by_id(&self, id: &BuildId, path: &Path) -> Option<FoundFile> {
        let given = given_candidates(path, Some(id), None);
        let system = [system_candidates(path, Some(id), None), vec![path.to_owned()]].concat();
        let is_it = |elf: &Elf| elf.build_id() == Some(id);
        let has_table = |elf: &Elf| elf.sections().is_ok_and(|sections| sections.has_symbol_table());
        self.first(&given, &system, |elf| is_it(elf) && has_table(elf))
            .or_else(|| self.first(&given, &system, is_it))
    }

    /// The file that `dwz` moved shared debug information to, from the debug file at `path`.
    pub(super) fn find_alternate(&self, link: &AlternateLink, path: &Path) -> Option<FoundFile> {
        let by_id = build_id_path(&link.build_id);
        let mut system = vec![beside(path, link.path.as_os_str()), system_path(&by_id)];
        let mut given = vec![absolute(&by_id)];
        if let Some(name) = link.path.file_name() {
            system.push(Path::new(SYSTEM_DIRECTORY).join(".dwz").join(name));
            given.extend([absolute(&Path::new(".dwz").join(name)), absolute(Path::new(name))]);
        }
        self.first(&given, &system, |elf| elf.build_id() == Some(&link.build_id))
    }

    /// A file at any of some paths that needs another proof than a build id.
    pub(super) fn find_at(&self, paths: &[PathBuf], is_right: impl Fn(&Elf) -> bool) -> Option<FoundFile> {
        let names = paths.iter().filter_map(|path| path.file_name());
        let given: Vec<_> =
            paths.iter().cloned().chain(names.map(|name| absolute(Path::new(name)))).collect();
        self.first(&given, paths, is_right)
    }

    /// What the user gave goes first, then each path in the target's root and on the host.
    fn first(
        &self,
        given: &[PathBuf],
        system: &[PathBuf],
        is_right: impl Fn(&Elf) -> bool,
    ) -> Option<FoundFile> {
        let given = self.extra.iter().flat_map(|root| given.iter().map(move |path| (root, path)));
        let roots = || self.target.iter().chain([&self.host]);
        let system = system.iter().flat_map(|path| roots().map(move |root| (root, path)));
        given.chain(system).find_map(|(root, path)| {
            let elf = Elf::parse(Image::of_file(root.open_file(path).ok()?).ok()?).ok()?;
            if !is_right(&elf) {
                return None;
            }
            self.keep(root, path);
            Some(FoundFile { elf, path: path.clone() })
        })
    }

    /// Whoever replays the capture finds it in the target's root, wherever it was.
    fn keep(&self, root: &Root, path: &Path) {
        let Some((proc, pid)) = &self.capture else { return };
        if let Err(error) = root.open_file(path).and_then(|file| proc.keep_in_root(*pid, path, &file)) {
            log::warn!("the capture lacks the debug file `{}`: {error}", path.display());
        }
    }
}

enum Proof<'a> {
    BuildId(&'a BuildId),
    Checksum(u32),
}

impl Proof<'_> {
    fn holds(&self, candidate: &Elf, budget: &Budget) -> bool {
        match self {
            Self::BuildId(id) => candidate.build_id() == Some(id),
            Self::Checksum(crc32) => {
                let image = candidate.image();
                budget.spend_on_checksum(image.length()) && elf::crc32(image) == Ok(*crc32)
            }
        }
    }
}

/// Where a debug file may be in a whole file system.
fn system_candidates(path: &Path, id: Option<&BuildId>, link: Option<&DebugLink>) -> Vec<PathBuf> {
    let mut candidates: Vec<_> = id.map(|id| system_path(&build_id_path(id))).into_iter().collect();
    if let (Some(link), Some(directory)) = (link, path.parent()) {
        candidates.push(directory.join(&link.name));
        candidates.push(directory.join(".debug").join(&link.name));
        candidates.push(system_path(directory).join(&link.name));
    }
    candidates.extend([with_suffix(path, ".dbg"), with_suffix(path, ".debug")]);
    candidates
}

/// Where a debug file may be in a directory the user gave: by build id, by name, by the module's whole path.
fn given_candidates(path: &Path, id: Option<&BuildId>, link: Option<&DebugLink>) -> Vec<PathBuf> {
    let mut candidates: Vec<_> = id.map(|id| absolute(&build_id_path(id))).into_iter().collect();
    let mut places = vec![path.to_owned()];
    places.extend(path.file_name().map(|name| absolute(Path::new(name))));
    for place in places {
        if let (Some(link), Some(directory)) = (link, place.parent()) {
            candidates.push(directory.join(&link.name));
        }
        candidates.extend([with_suffix(&place, ".dbg"), with_suffix(&place, ".debug"), place]);
    }
    candidates
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

fn absolute(path: &Path) -> PathBuf {
    Path::new("/").join(path)
}

/// The path `name` from the directory of `path` on; an absolute name is its own.
fn beside(path: &Path, name: &OsStr) -> PathBuf {
    path.parent().unwrap_or(Path::new("/")).join(name)
}

pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(OsStr::from_bytes(suffix.as_bytes()));
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use object::elf::{SHT_PROGBITS, SHT_SYMTAB};
    use tempfile::TempDir;

    use super::*;
    use crate::elf::test_file::{TestFile, function};

    const ID: [u8; 4] = [0xab, 0xcd, 0xef, 0x01];
    const MODULE: &str = "/opt/app/libx.so";

    /// A target, a host and a directory the user gave, all empty.
    struct Places {
        target: TempDir,
        host: TempDir,
        given: TempDir,
    }

    impl Places {
        fn new() -> Self {
            let directory = || tempfile::tempdir().unwrap();
            Self { target: directory(), host: directory(), given: directory() }
        }

        fn put(root: &TempDir, path: &str, bytes: &[u8]) {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }

        fn find(&self, module: TestFile) -> Option<PathBuf> {
            self.find_for(module, None)
        }

        fn find_for(&self, module: TestFile, capture: Option<(Arc<Proc>, u32)>) -> Option<PathBuf> {
            let open = |root: &TempDir| Arc::new(Root::open(root.path()).unwrap());
            let files = DebugFiles {
                target: Some(open(&self.target)),
                host: open(&self.host),
                extra: vec![open(&self.given)],
                capture,
            };
            let module = Elf::parse(Image::Memory(module.bytes())).unwrap();
            files
                .find(&module, Path::new(MODULE), Sections::has_symbol_table, &Budget::default())
                .map(|found| found.path)
        }
    }

    fn stripped() -> TestFile {
        TestFile::with_code().build_id(&ID)
    }

    fn debug_file(id: &[u8]) -> Vec<u8> {
        TestFile::with_code().build_id(id).symbols(SHT_SYMTAB, &[function("f", 0x1000, 8)]).bytes()
    }

    fn linked(file: TestFile, crc32: u32) -> TestFile {
        let mut link = b"libx.dbg\0\0\0\0".to_vec();
        link.extend(crc32.to_le_bytes());
        file.with(".gnu_debuglink", SHT_PROGBITS, link)
    }

    #[test]
    fn a_debug_file_is_found_by_build_id_and_by_name_wherever_gdb_finds_it() {
        for path in [
            "usr/lib/debug/.build-id/ab/cdef01.debug",
            "opt/app/libx.dbg",
            "opt/app/.debug/libx.dbg",
            "usr/lib/debug/opt/app/libx.dbg",
            "opt/app/libx.so.dbg",
            "opt/app/libx.so.debug",
        ] {
            let in_target = Places::new();
            Places::put(&in_target.target, path, &debug_file(&ID));
            assert_eq!(in_target.find(linked(stripped(), 0)), Some(Path::new("/").join(path)));
            let on_host = Places::new();
            Places::put(&on_host.host, path, &debug_file(&ID));
            assert_eq!(on_host.find(linked(stripped(), 0)), Some(Path::new("/").join(path)));
        }
    }

    #[test]
    fn a_directory_the_user_gave_goes_first_and_may_be_laid_out_in_any_way() {
        for path in [
            ".build-id/ab/cdef01.debug",
            "libx.dbg",
            "libx.so.dbg",
            "libx.so.debug",
            "libx.so",
            "opt/app/libx.so",
            "opt/app/libx.so.dbg",
            "opt/app/libx.dbg",
        ] {
            let places = Places::new();
            Places::put(&places.given, path, &debug_file(&ID));
            Places::put(&places.target, "usr/lib/debug/.build-id/ab/cdef01.debug", &debug_file(&ID));
            assert_eq!(places.find(linked(stripped(), 0)), Some(Path::new("/").join(path)));
        }
    }

    #[test]
    fn a_file_of_another_build_is_passed_over() {
        let places = Places::new();
        Places::put(&places.target, "opt/app/libx.so.dbg", &debug_file(&[1, 2, 3, 4]));
        assert_eq!(places.find(stripped()), None);
        Places::put(&places.host, "opt/app/libx.so.dbg", &debug_file(&ID));
        assert_eq!(places.find(stripped()), Some("/opt/app/libx.so.dbg".into()));
    }

    #[test]
    fn a_file_of_the_same_build_without_symbols_is_passed_over() {
        let places = Places::new();
        Places::put(&places.target, "opt/app/libx.so.dbg", &stripped().bytes());
        assert_eq!(places.find(stripped()), None);
    }

    #[test]
    fn without_a_build_id_the_checksum_decides() {
        let places = Places::new();
        let bytes = debug_file(&ID);
        Places::put(&places.target, "opt/app/libx.dbg", &bytes);
        let crc32 = crc32fast::hash(&bytes);
        assert!(places.find(linked(TestFile::with_code(), crc32)).is_some());
        assert_eq!(places.find(linked(TestFile::with_code(), crc32 ^ 1)), None);
        assert_eq!(places.find(TestFile::with_code()), None);
    }

    #[test]
    fn a_file_that_is_found_goes_into_the_capture() {
        let (places, capture) = (Places::new(), tempfile::tempdir().unwrap());
        Places::put(&places.host, "opt/app/libx.so.dbg", &debug_file(&ID));
        let proc = Arc::new(Proc::captured_to(capture.path().to_owned()));
        assert!(places.find_for(stripped(), Some((proc, 7))).is_some());
        assert_eq!(fs::read(capture.path().join("7/root/opt/app/libx.so.dbg")).unwrap(), debug_file(&ID));
    }

    #[test]
    fn a_candidate_that_leads_out_of_the_target_is_refused() {
        let places = Places::new();
        let outside = places.given.path().join("outside");
        fs::write(&outside, debug_file(&ID)).unwrap();
        fs::create_dir_all(places.target.path().join("opt/app")).unwrap();
        std::os::unix::fs::symlink(&outside, places.target.path().join("opt/app/libx.so.dbg")).unwrap();
        assert_eq!(places.find(stripped()), None);
    }
}
