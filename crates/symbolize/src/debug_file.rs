//! Finding the debug file that was split off from a file, as gdb and perf do, and proving it is the one.
//!
//! A file counts only when its build id is the module's; where the module has none, its checksum must be the
//! one in `.gnu_debuglink`.

use profiler_binary_reader::{Image, WorkBudget};
use profiler_dotnet_symbols::readytorun::AssemblyFiles;
use profiler_elf_symbols::{self, AlternateLink, BuildId, Elf, Sections};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{debug_paths, symbol_server::SymbolServers};
use profiler_processes::{ProcFs, root_directory::RootDirectory};

/// Where the files of one process may be looked for.
#[derive(Clone, Debug)]
pub struct DebugFiles {
    /// The target's root.
    pub target: Option<Arc<RootDirectory>>,
    /// Where those of any process may be.
    pub common: Arc<CommonPlaces>,
    /// Into whose part of a capture the files go that are found, when one is recorded.
    pub capture: Option<(Arc<ProcFs>, u32)>,
}

/// Where files of any process may be looked for.
#[derive(Debug)]
pub struct CommonPlaces {
    /// Directories the user gave.
    pub given: Vec<Arc<RootDirectory>>,
    /// The profiler's own root.
    pub host: Arc<RootDirectory>,
    /// What clients of symbol servers have downloaded.
    pub caches: Vec<Arc<RootDirectory>>,
    /// Who may be asked for what is nowhere on this machine.
    pub servers: Option<Arc<SymbolServers>>,
}

/// A file that was found, and its path in the root it was found in.
#[derive(Debug)]
pub(super) struct FoundFile {
    pub(super) elf: Elf,
    pub(super) path: PathBuf,
}

impl CommonPlaces {
    /// A root and nothing else.
    pub fn of_host(host: RootDirectory) -> Self {
        Self { given: Vec::new(), host: Arc::new(host), caches: Vec::new(), servers: None }
    }
}

impl AssemblyFiles for DebugFiles {
    /// A file of the target's own; on the host only where the target's root is not open.
    fn open(&self, path: &Path) -> Option<Image> {
        let root = self.target.as_ref().unwrap_or(&self.common.host);
        let image = Image::of_file(root.open_file(path).ok()?).ok()?;
        self.keep(root, path, path);
        Some(image)
    }
}

impl DebugFiles {
    /// The common places and nothing else.
    #[cfg(any(test, fuzzing))]
    pub fn of_host(host: RootDirectory) -> Self {
        Self { target: None, common: Arc::new(CommonPlaces::of_host(host)), capture: None }
    }

    /// The debug file of the module at `path` that has what is wanted of it.
    pub(super) fn find(
        &self,
        module: &Elf,
        path: &Path,
        is_wanted: impl Fn(&Sections) -> bool,
        budget: &WorkBudget,
    ) -> Option<FoundFile> {
        let link = module.sections().ok().and_then(|sections| module.debug_link(&sections));
        let id = module.build_id();
        let proof = match (id, &link) {
            (Some(id), _) => Proof::BuildId(id),
            (None, Some(link)) => Proof::Checksum(link.crc32),
            (None, None) => return None,
        };
        let is_right =
            |elf: &Elf| elf.sections().is_ok_and(|found| is_wanted(&found)) && proof.holds(elf, budget);
        let given = debug_paths::in_given(path, id, link.as_ref());
        let system = debug_paths::in_system(path, id, link.as_ref());
        self.first(&given, &system, is_right).or_else(|| self.find_in_caches(id?, is_right))
    }

    /// The module at `path` itself or its debug file, by its build id alone: the one with a symbol table before others.
    pub(super) fn find_by_id(&self, id: &BuildId, path: &Path) -> Option<FoundFile> {
        let given = debug_paths::in_given(path, Some(id), None);
        let system = [debug_paths::in_system(path, Some(id), None), vec![path.to_owned()]].concat();
        let is_it = |elf: &Elf| elf.build_id() == Some(id);
        let has_table = |elf: &Elf| elf.sections().is_ok_and(|sections| sections.has_symbol_table());
        self.first(&given, &system, |elf| is_it(elf) && has_table(elf))
            .or_else(|| self.find_in_caches(id, |elf| is_it(elf) && has_table(elf)))
            .or_else(|| self.first(&given, &system, is_it))
    }

    /// The file that `dwz` moved shared debug information to, from the debug file at `path`.
    pub(super) fn find_alternate(&self, link: &AlternateLink, path: &Path) -> Option<FoundFile> {
        let given = debug_paths::alternate_in_given(link);
        let system = debug_paths::alternate_in_system(link, path);
        let is_right = |elf: &Elf| elf.build_id() == Some(&link.build_id);
        self.first(&given, &system, is_right).or_else(|| self.find_in_caches(&link.build_id, is_right))
    }

    /// A file at any of some paths that needs another proof than a build id.
    pub(super) fn find_at(&self, paths: &[PathBuf], is_right: impl Fn(&Elf) -> bool) -> Option<FoundFile> {
        let names = paths.iter().filter_map(|path| path.file_name());
        let names = names.map(|name| debug_paths::absolute(Path::new(name)));
        let given: Vec<_> = paths.iter().cloned().chain(names).collect();
        self.first(&given, paths, is_right)
    }

    /// What the user gave goes first, then each path in the target's root and on the host.
    fn first(
        &self,
        given: &[PathBuf],
        system: &[PathBuf],
        is_right: impl Fn(&Elf) -> bool,
    ) -> Option<FoundFile> {
        let given = self.common.given.iter().flat_map(|root| given.iter().map(move |path| (root, path)));
        let roots = || self.target.iter().chain([&self.common.host]);
        let system = system.iter().flat_map(|path| roots().map(move |root| (root, path)));
        given.chain(system).find_map(|(root, path)| {
            let elf = open(root, path).filter(&is_right)?;
            self.keep(root, path, path);
            Some(FoundFile { elf, path: path.clone() })
        })
    }

    /// What was downloaded once; its path is the one where a system would have it.
    fn find_in_caches(&self, id: &BuildId, is_right: impl Fn(&Elf) -> bool) -> Option<FoundFile> {
        let paths = debug_paths::in_cache(id);
        let places = self.common.caches.iter().flat_map(|root| paths.iter().map(move |path| (root, path)));
        places.into_iter().find_map(|(root, path)| {
            let elf = open(root, path).filter(&is_right)?;
            let system_path = debug_paths::in_system_by_id(id);
            self.keep(root, path, &system_path);
            Some(FoundFile { elf, path: system_path })
        })
    }

    /// Whoever replays the capture finds it in the target's root, at `kept_path`, wherever it was.
    fn keep(&self, root: &RootDirectory, path: &Path, kept_path: &Path) {
        let Some((proc, pid)) = &self.capture else { return };
        if let Err(error) =
            root.open_file(path).and_then(|file| proc.capture_root_file(*pid, kept_path, &file))
        {
            log::warn!("the capture lacks the debug file `{}`: {error}", path.display());
        }
    }
}

fn open(root: &RootDirectory, path: &Path) -> Option<Elf> {
    Elf::parse(Image::of_file(root.open_file(path).ok()?).ok()?).ok()
}

enum Proof<'a> {
    BuildId(&'a BuildId),
    Checksum(u32),
}

impl Proof<'_> {
    fn holds(&self, candidate: &Elf, budget: &WorkBudget) -> bool {
        match self {
            Self::BuildId(id) => candidate.build_id() == Some(id),
            Self::Checksum(crc32) => {
                let image = candidate.image();
                budget.spend_on_checksum(image.length()) && profiler_elf_symbols::crc32(image) == Ok(*crc32)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use object::elf::{SHT_PROGBITS, SHT_SYMTAB};
    use tempfile::TempDir;

    use super::*;
    use profiler_elf_symbols::test_file::{TestFile, function};

    const ID: [u8; 4] = [0xab, 0xcd, 0xef, 0x01];
    const MODULE: &str = "/opt/app/libx.so";

    /// A target, a host, a directory the user gave and a cache, all empty.
    struct Places {
        target: TempDir,
        host: TempDir,
        given: TempDir,
        cache: TempDir,
    }

    impl Places {
        fn new() -> Self {
            let directory = || tempfile::tempdir().unwrap();
            Self { target: directory(), host: directory(), given: directory(), cache: directory() }
        }

        fn put(root: &TempDir, path: &str, bytes: &[u8]) {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }

        fn find(&self, module: TestFile) -> Option<PathBuf> {
            self.find_for(module, None)
        }

        fn find_for(&self, module: TestFile, capture: Option<(Arc<ProcFs>, u32)>) -> Option<PathBuf> {
            let open = |root: &TempDir| Arc::new(RootDirectory::open(root.path()).unwrap());
            let common = CommonPlaces {
                given: vec![open(&self.given)],
                host: open(&self.host),
                caches: vec![open(&self.cache)],
                servers: None,
            };
            let files = DebugFiles { target: Some(open(&self.target)), common: Arc::new(common), capture };
            let module = Elf::parse(Image::Memory(module.bytes())).unwrap();
            files
                .find(&module, Path::new(MODULE), Sections::has_symbol_table, &WorkBudget::default())
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
            "opt/app/.debug/libx.so",
            "usr/lib/debug/opt/app/libx.so",
            "usr/lib/debug/opt/app/libx.so.debug",
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
            "abcdef01/debuginfo",
            "_.debug/elf-buildid-sym-abcdef0100000000000000000000000000000000/_.debug",
        ] {
            let places = Places::new();
            Places::put(&places.given, path, &debug_file(&ID));
            Places::put(&places.target, "usr/lib/debug/.build-id/ab/cdef01.debug", &debug_file(&ID));
            assert_eq!(places.find(linked(stripped(), 0)), Some(Path::new("/").join(path)));
        }
    }

    #[test]
    fn what_was_downloaded_before_is_found_and_its_build_id_looked_at() {
        for path in
            ["abcdef01/debuginfo", "_.debug/elf-buildid-sym-abcdef0100000000000000000000000000000000/_.debug"]
        {
            let places = Places::new();
            Places::put(&places.cache, path, &debug_file(&[1, 2, 3, 4]));
            assert_eq!(places.find(stripped()), None);
            Places::put(&places.cache, path, &debug_file(&ID));
            let by_id = Path::new("/usr/lib/debug/.build-id/ab/cdef01.debug");
            assert_eq!(places.find(stripped()).as_deref(), Some(by_id));
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
        let proc = Arc::new(ProcFs::with_capture(capture.path().to_owned()));
        assert!(places.find_for(stripped(), Some((proc, 7))).is_some());
        assert_eq!(fs::read(capture.path().join("7/root/opt/app/libx.so.dbg")).unwrap(), debug_file(&ID));
    }

    #[test]
    fn a_file_from_a_cache_goes_into_the_capture_where_a_replay_finds_it() {
        let (places, capture) = (Places::new(), tempfile::tempdir().unwrap());
        Places::put(&places.cache, "abcdef01/debuginfo", &debug_file(&ID));
        let proc = Arc::new(ProcFs::with_capture(capture.path().to_owned()));
        let found = places.find_for(stripped(), Some((proc, 7))).unwrap();
        assert!(capture.path().join("7/root").join(found.strip_prefix("/").unwrap()).exists());
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
