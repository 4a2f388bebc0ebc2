//! Finds debug files in the directories that gdb and perf search, and verifies them.
//!
//! A debug file must have the build id of the module, or the checksum in `.gnu_debuglink` when the module has no build id.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use profiler_binary_reader::{Image, WorkBudget};
use profiler_dotnet_symbols::readytorun::AssemblyFiles;
use profiler_elf_symbols::{
    AlternateLink, BuildId, DebugFile, DebugFileFinder, Elf, Sections, compute_crc32,
};
use profiler_processes::{FileVersion, Pid, ProcFs, root_directory::RootDirectory, tenants::Tenant};

use crate::{debug_paths, symbol_server::SymbolServers};

/// The CPU time for checksums of debug files with call frame information. Most modules have a build id, and need none.
const MAX_CHECKSUM_TIME: Duration = Duration::from_millis(50);

/// The directories in which the files of one process are searched.
#[derive(Clone, Debug)]
pub struct DebugFiles {
    /// The root directory of the target.
    pub target: Option<Arc<RootDirectory>>,
    /// The tenant for which debug files are downloaded.
    pub(crate) tenant: Tenant,
    /// The directories of all processes.
    pub shared: Arc<DebugDirectories>,
    /// The capture to which files that are found are copied, and the process to which they belong.
    pub capture: Option<(Arc<ProcFs>, Pid)>,
}

/// The directories in which the files of all processes are searched.
#[derive(Debug)]
pub struct DebugDirectories {
    /// Directories from the user (`--debug-dir`).
    pub configured: Vec<Arc<RootDirectory>>,
    /// The root directory of the profiler.
    pub host: Arc<RootDirectory>,
    /// The caches of symbol server clients.
    pub caches: Vec<Arc<RootDirectory>>,
    /// The symbol servers for files that are not on this machine.
    pub servers: Option<Arc<SymbolServers>>,
}

impl DebugDirectories {
    /// A host root directory and nothing else.
    pub fn with_host(host: RootDirectory) -> Self {
        Self { configured: Vec::new(), host: Arc::new(host), caches: Vec::new(), servers: None }
    }

    /// Finds the debug file of the module at `path` that has call frame information (`.debug_frame`). The root directory of the
    /// target is not searched: an unwind table is shared by all processes that map the module, and a container can write a
    /// debug file for a module that it shares with others. Files of symbol servers are not downloaded.
    pub fn find_call_frames(self: &Arc<Self>, module: &Elf, path: &Path) -> Option<Elf> {
        let budget = WorkBudget::default();
        budget.limit_time(MAX_CHECKSUM_TIME);
        let files = DebugFiles { target: None, tenant: None, shared: Arc::clone(self), capture: None };
        files.find(module, path, Sections::has_debug_frame, &budget).map(|found| found.elf)
    }
}

impl AssemblyFiles for DebugFiles {
    /// Opens a file in the root directory of the target, or on the host when that is not open.
    fn open(&self, path: &Path) -> Option<Image> {
        let root = self.target.as_ref().unwrap_or(&self.shared.host);
        open_image(root, path)
    }

    fn accepted(&self, path: &Path, image: &Image) {
        self.copy_to_capture(image, path);
    }
}

impl DebugFileFinder for DebugFiles {
    fn find_debug_file(&self, module: &Elf, path: &Path, budget: &WorkBudget) -> Option<DebugFile> {
        self.find(module, path, Sections::has_dwarf, budget)
    }

    fn find_alternate_file(&self, link: &AlternateLink, debug_file_path: &Path) -> Option<Elf> {
        let configured = debug_paths::alternate_in_configured(link);
        let system = debug_paths::alternate_in_system(link, debug_file_path);
        let is_match = |elf: &Elf| elf.build_id() == Some(&link.build_id);
        let found = self.find_first(&configured, &system, is_match);
        found.or_else(|| self.find_in_caches(&link.build_id, is_match)).map(|found| found.elf)
    }

    fn find_split_file(&self, paths: &[PathBuf], is_match: &dyn Fn(&Elf) -> bool) -> Option<Elf> {
        let names = paths.iter().filter_map(|path| path.file_name());
        let names = names.map(|name| debug_paths::absolute(Path::new(name)));
        let configured: Vec<_> = paths.iter().cloned().chain(names).collect();
        self.find_first(&configured, paths, is_match).map(|found| found.elf)
    }
}

impl DebugFiles {
    /// The files of a host root directory and nothing else.
    #[cfg(any(test, fuzzing))]
    pub fn with_host(host: RootDirectory) -> Self {
        let shared = Arc::new(DebugDirectories::with_host(host));
        Self { target: None, tenant: None, shared, capture: None }
    }

    /// Finds the debug file of the module at `path` whose sections satisfy `is_suitable`.
    pub(super) fn find(
        &self,
        module: &Elf,
        path: &Path,
        is_suitable: impl Fn(&Sections) -> bool,
        budget: &WorkBudget,
    ) -> Option<DebugFile> {
        let link = module.sections().ok().and_then(|sections| module.debug_link(&sections));
        let id = module.build_id();
        let expected = match (id, &link) {
            (Some(id), _) => Identity::BuildId(id),
            (None, Some(link)) => Identity::Checksum(link.crc32),
            (None, None) => return None,
        };
        let is_match = |elf: &Elf| {
            elf.sections().is_ok_and(|found| is_suitable(&found)) && expected.matches(elf, budget)
        };
        let configured = debug_paths::in_configured(path, id, link.as_ref());
        let system = debug_paths::in_system(path, id, link.as_ref());
        self.find_first(&configured, &system, is_match).or_else(|| self.find_in_caches(id?, is_match))
    }

    /// Finds the module at `path` or its debug file by build id, preferably one with a symbol table.
    pub(super) fn find_by_id(&self, id: &BuildId, path: &Path) -> Option<DebugFile> {
        let configured = debug_paths::in_configured(path, Some(id), None);
        let system = [debug_paths::in_system(path, Some(id), None), vec![path.to_owned()]].concat();
        let has_id = |elf: &Elf| elf.build_id() == Some(id);
        let has_table = |elf: &Elf| elf.sections().is_ok_and(|sections| sections.has_symbol_table());
        self.find_first(&configured, &system, |elf| has_id(elf) && has_table(elf))
            .or_else(|| self.find_in_caches(id, |elf| has_id(elf) && has_table(elf)))
            .or_else(|| self.find_first(&configured, &system, has_id))
    }

    /// Searches the configured directories, then the root directories of the target and of the host.
    fn find_first(
        &self,
        configured: &[PathBuf],
        system: &[PathBuf],
        is_match: impl Fn(&Elf) -> bool,
    ) -> Option<DebugFile> {
        let configured =
            self.shared.configured.iter().flat_map(|root| configured.iter().map(move |path| (root, path)));
        let roots = || self.target.iter().chain([&self.shared.host]);
        let system = system.iter().flat_map(|path| roots().map(move |root| (root, path)));
        configured.chain(system).find_map(|(root, path)| {
            let elf = open(root, path).filter(&is_match)?;
            self.copy_to_capture(elf.image(), path);
            Some(DebugFile { elf, path: path.clone() })
        })
    }

    /// Searches the caches of symbol server clients. The path of the result is that of the system's debug directory.
    fn find_in_caches(&self, id: &BuildId, is_match: impl Fn(&Elf) -> bool) -> Option<DebugFile> {
        let paths = debug_paths::in_cache(id);
        let candidates =
            self.shared.caches.iter().flat_map(|root| paths.iter().map(move |path| (root, path)));
        candidates.into_iter().find_map(|(root, path)| {
            let elf = open(root, path).filter(&is_match)?;
            let system_path = debug_paths::in_system_by_id(id);
            self.copy_to_capture(elf.image(), &system_path);
            Some(DebugFile { elf, path: system_path })
        })
    }

    /// Copies the open file of an accepted image to the capture, where a replay finds it in the root directory of the target
    /// at `captured_path`. What is at the path by now may be another file.
    fn copy_to_capture(&self, image: &Image, captured_path: &Path) {
        let (Some((proc, pid)), Image::File { file, .. }) = (&self.capture, image) else { return };
        if let Err(error) = proc.capture_root_file(*pid, captured_path, file) {
            log::warn!("the capture lacks the debug file `{}`: {error}", captured_path.display());
        }
    }
}

fn open(root: &RootDirectory, path: &Path) -> Option<Elf> {
    Elf::parse(open_image(root, path)?).ok()
}

/// What identifies the debug file of a module.
enum Identity<'a> {
    BuildId(&'a BuildId),
    Checksum(u32),
}

impl Identity<'_> {
    fn matches(&self, candidate: &Elf, budget: &WorkBudget) -> bool {
        match self {
            Self::BuildId(id) => candidate.build_id() == Some(id),
            Self::Checksum(crc32) => {
                let image = candidate.image();
                budget.spend_on_checksum(image.length()) && compute_crc32(image) == Ok(*crc32)
            }
        }
    }
}

fn open_image(root: &RootDirectory, path: &Path) -> Option<Image> {
    let file = root.open_file(path).ok()?;
    let bytes = FileVersion::of(&file).ok()?.bytes();
    Some(Image::of_target(file, bytes))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use object::elf::{SHT_PROGBITS, SHT_SYMTAB};
    use profiler_elf_symbols::test_file::{TestFile, function};
    use tempfile::TempDir;

    use super::*;

    const ID: [u8; 4] = [0xab, 0xcd, 0xef, 0x01];
    const MODULE: &str = "/opt/app/libx.so";

    /// Directories of a target, a host, the user and a cache, all empty.
    struct Directories {
        target: TempDir,
        host: TempDir,
        configured: TempDir,
        cache: TempDir,
    }

    impl Directories {
        fn new() -> Self {
            let directory = || tempfile::tempdir().unwrap();
            Self { target: directory(), host: directory(), configured: directory(), cache: directory() }
        }

        fn put(root: &TempDir, path: &str, bytes: &[u8]) {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }

        fn find(&self, module: TestFile) -> Option<PathBuf> {
            self.find_for(module, None)
        }

        fn find_for(&self, module: TestFile, capture: Option<(Arc<ProcFs>, Pid)>) -> Option<PathBuf> {
            let open = |root: &TempDir| Arc::new(RootDirectory::open(root.path()).unwrap());
            let shared = DebugDirectories {
                configured: vec![open(&self.configured)],
                host: open(&self.host),
                caches: vec![open(&self.cache)],
                servers: None,
            };
            let target = Some(open(&self.target));
            let files = DebugFiles { target, tenant: None, shared: Arc::new(shared), capture };
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

    fn capture_into(directory: &TempDir) -> ProcFs {
        ProcFs::with_capture(fs::File::open(directory.path()).unwrap().into())
    }

    fn linked(file: TestFile, crc32: u32) -> TestFile {
        let mut link = b"libx.dbg\0\0\0\0".to_vec();
        link.extend(crc32.to_le_bytes());
        file.with(".gnu_debuglink", SHT_PROGBITS, link)
    }

    #[test]
    fn a_debug_file_is_found_by_build_id_and_by_name_where_gdb_finds_it() {
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
            let in_target = Directories::new();
            Directories::put(&in_target.target, path, &debug_file(&ID));
            assert_eq!(in_target.find(linked(stripped(), 0)), Some(Path::new("/").join(path)));
            let on_host = Directories::new();
            Directories::put(&on_host.host, path, &debug_file(&ID));
            assert_eq!(on_host.find(linked(stripped(), 0)), Some(Path::new("/").join(path)));
        }
    }

    #[test]
    fn a_configured_directory_is_searched_first_and_may_have_any_layout() {
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
            let directories = Directories::new();
            Directories::put(&directories.configured, path, &debug_file(&ID));
            Directories::put(
                &directories.target,
                "usr/lib/debug/.build-id/ab/cdef01.debug",
                &debug_file(&ID),
            );
            assert_eq!(directories.find(linked(stripped(), 0)), Some(Path::new("/").join(path)));
        }
    }

    #[test]
    fn a_cached_download_is_found_and_its_build_id_is_verified() {
        for path in
            ["abcdef01/debuginfo", "_.debug/elf-buildid-sym-abcdef0100000000000000000000000000000000/_.debug"]
        {
            let directories = Directories::new();
            Directories::put(&directories.cache, path, &debug_file(&[1, 2, 3, 4]));
            assert_eq!(directories.find(stripped()), None);
            Directories::put(&directories.cache, path, &debug_file(&ID));
            let by_id = Path::new("/usr/lib/debug/.build-id/ab/cdef01.debug");
            assert_eq!(directories.find(stripped()).as_deref(), Some(by_id));
        }
    }

    #[test]
    fn a_file_of_another_build_is_skipped() {
        let directories = Directories::new();
        Directories::put(&directories.target, "opt/app/libx.so.dbg", &debug_file(&[1, 2, 3, 4]));
        assert_eq!(directories.find(stripped()), None);
        Directories::put(&directories.host, "opt/app/libx.so.dbg", &debug_file(&ID));
        assert_eq!(directories.find(stripped()), Some("/opt/app/libx.so.dbg".into()));
    }

    #[test]
    fn a_file_of_the_same_build_without_symbols_is_skipped() {
        let directories = Directories::new();
        Directories::put(&directories.target, "opt/app/libx.so.dbg", &stripped().bytes());
        assert_eq!(directories.find(stripped()), None);
    }

    #[test]
    fn without_a_build_id_the_checksum_is_verified() {
        let directories = Directories::new();
        let bytes = debug_file(&ID);
        Directories::put(&directories.target, "opt/app/libx.dbg", &bytes);
        let crc32 = crc32fast::hash(&bytes);
        assert!(directories.find(linked(TestFile::with_code(), crc32)).is_some());
        assert_eq!(directories.find(linked(TestFile::with_code(), crc32 ^ 1)), None);
        assert_eq!(directories.find(TestFile::with_code()), None);
    }

    #[test]
    fn a_file_that_is_found_is_copied_to_the_capture() {
        let (directories, capture) = (Directories::new(), tempfile::tempdir().unwrap());
        Directories::put(&directories.host, "opt/app/libx.so.dbg", &debug_file(&ID));
        let proc = Arc::new(capture_into(&capture));
        assert!(directories.find_for(stripped(), Some((proc, Pid(7)))).is_some());
        assert_eq!(fs::read(capture.path().join("7/root/opt/app/libx.so.dbg")).unwrap(), debug_file(&ID));
    }

    #[test]
    fn a_file_that_a_name_leads_to_is_captured_after_it_was_found_to_be_an_assembly() {
        let (directories, capture) = (Directories::new(), tempfile::tempdir().unwrap());
        Directories::put(&directories.target, "etc/secret", b"secret");
        std::os::unix::fs::symlink("/etc/secret", directories.target.path().join("X.dll")).unwrap();
        let host = RootDirectory::open(directories.target.path()).unwrap();
        let capture_of = Some((Arc::new(capture_into(&capture)), Pid(7)));
        let files = DebugFiles { capture: capture_of, ..DebugFiles::with_host(host) };
        let image = files.open(Path::new("/X.dll")).unwrap();
        assert_eq!(fs::read_dir(capture.path()).unwrap().count(), 0);
        Directories::put(&directories.target, "replaced", b"other");
        fs::rename(directories.target.path().join("replaced"), directories.target.path().join("X.dll"))
            .unwrap();
        files.accepted(Path::new("/X.dll"), &image);
        assert_eq!(fs::read(capture.path().join("7/root/X.dll")).unwrap(), b"secret", "the opened file");
    }

    #[test]
    fn a_file_from_a_cache_is_captured_where_a_replay_finds_it() {
        let (directories, capture) = (Directories::new(), tempfile::tempdir().unwrap());
        Directories::put(&directories.cache, "abcdef01/debuginfo", &debug_file(&ID));
        let proc = Arc::new(capture_into(&capture));
        let found = directories.find_for(stripped(), Some((proc, Pid(7)))).unwrap();
        assert!(capture.path().join("7/root").join(found.strip_prefix("/").unwrap()).exists());
    }

    #[test]
    fn a_symlink_out_of_the_target_is_refused() {
        let directories = Directories::new();
        let outside = directories.configured.path().join("outside");
        fs::write(&outside, debug_file(&ID)).unwrap();
        fs::create_dir_all(directories.target.path().join("opt/app")).unwrap();
        std::os::unix::fs::symlink(&outside, directories.target.path().join("opt/app/libx.so.dbg")).unwrap();
        assert_eq!(directories.find(stripped()), None);
    }
}
