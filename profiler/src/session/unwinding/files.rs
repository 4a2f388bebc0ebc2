//! The tables of files, each in the kernel once, as long as a process maps it.

use std::{
    collections::HashMap,
    fs::File,
    hash::{BuildHasher, RandomState},
    io,
    os::unix::fs::MetadataExt,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use profiler_common::unwind::MappingEntry;

use crate::{
    sampler::ebpf::{InstallError, InstalledFile, UnwindMaps},
    sys::usage::thread_cpu_time,
};
use profiler_binary_reader::{Image, ParseError, SegmentLayout};
use profiler_processes::{Backing, FileId, Mapping, ProcFs, root_directory::RootDirectory};
use profiler_unwind_tables::{TableSource, UnwindTable};

/// The most of the kernel's memory that tables take.
const MAX_BYTES: usize = 64 << 20;

/// How long a table stays that nothing maps: the next process is often one of the same program.
const KEPT: Duration = Duration::from_secs(10);

/// How many files are remembered, with a table or without: they are looked at again when they were forgotten.
const MAX_FILES: usize = 64 * 1024;

/// How many tables there are.
const MAX_TABLES: usize = 16 * 1024;

/// CPU time that the table of one file may take: many times that of the largest real ones.
const MAX_BUILD_TIME: Duration = Duration::from_secs(1);

/// Names a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FileKey(u32);

/// The tables.
#[derive(Debug)]
pub(super) struct Files {
    proc: Arc<ProcFs>,
    host: RootDirectory,
    tables: HashMap<FileKey, Table>,
    /// The table of what was looked at; `None` when it has none.
    seen: HashMap<Identity, Option<FileKey>>,
    /// The table of what tables are made of, by its hash. Files that say the same share one; a build id alone is only
    /// what a file claims.
    by_source: HashMap<u64, FileKey>,
    hasher: RandomState,
    bytes: usize,
    next_key: u32,
}

/// A file with certain contents, as far as can be told without reading them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Identity {
    File { id: FileId, bytes: u64, changed_ns: i128 },
    Vdso,
}

/// One table.
#[derive(Debug)]
struct Table {
    /// Where a mapping of the file begins in its table.
    layout: SegmentLayout,
    is_managed: bool,
    source: u64,
    installed: InstalledFile,
    /// How many sets of mappings in the kernel lead to it.
    users: u32,
    unused_since: Instant,
}

impl Files {
    /// No file.
    pub(super) fn new(proc: Arc<ProcFs>, host: RootDirectory) -> Self {
        Self {
            proc,
            host,
            tables: HashMap::new(),
            seen: HashMap::new(),
            by_source: HashMap::new(),
            hasher: RandomState::new(),
            bytes: 0,
            next_key: 0,
        }
    }

    /// The table of the file behind a mapping of a process; `None` when it has none.
    pub(super) fn of_mapping(
        &mut self,
        maps: &mut UnwindMaps,
        pid: u32,
        mapping: &Mapping,
        stop: &dyn Fn() -> bool,
    ) -> Option<FileKey> {
        let Backing::File { id, path } = &mapping.backing else { return None };
        let file = self.open(pid, mapping, *id, Path::new(&**path));
        let file = file.inspect_err(|error| log::debug!("no unwind table of `{path}`: {error}")).ok()?;
        let metadata = file.metadata().ok()?;
        const NS_PER_S: i128 = 1_000_000_000;
        let changed_ns = i128::from(metadata.ctime()) * NS_PER_S + i128::from(metadata.ctime_nsec());
        let identity = Identity::File { id: *id, bytes: metadata.len(), changed_ns };
        self.of_image(maps, identity, path, || Image::from_file(file), stop)
    }

    /// The table of the kernel's code in every process.
    pub(super) fn vdso(&mut self, maps: &mut UnwindMaps, stop: &dyn Fn() -> bool) -> Option<FileKey> {
        let proc = Arc::clone(&self.proc);
        let image = || proc.vdso().map(Image::Memory).map_err(|_| ParseError::Malformed);
        self.of_image(maps, Identity::Vdso, "[vdso]", image, stop)
    }

    /// Whether a table is still there.
    pub(super) fn has(&self, key: FileKey) -> bool {
        self.tables.contains_key(&key)
    }

    /// Whether the file is one of precompiled .NET code.
    pub(super) fn is_managed(&self, key: FileKey) -> bool {
        self.tables.get(&key).is_some_and(|table| table.is_managed)
    }

    /// A mapping as the kernel side reads it.
    pub(super) fn entry(&self, key: FileKey, mapping: &Mapping) -> Option<MappingEntry> {
        let table = self.tables.get(&key)?;
        let bytes = mapping.end.0.checked_sub(mapping.start.0)?;
        let bias = table.layout.load_bias(mapping.start, mapping.offset, bytes)?;
        Some(table.installed.mapping(mapping.start.0, mapping.end.0, bias))
    }

    /// Mappings in the kernel lead to this table, or soon will.
    pub(super) fn keep(&mut self, key: FileKey) {
        if let Some(table) = self.tables.get_mut(&key) {
            table.users += 1;
        }
    }

    /// Mappings that led to these tables are gone.
    pub(super) fn release(&mut self, keys: &[FileKey]) {
        for key in keys {
            if let Some(table) = self.tables.get_mut(key) {
                table.users = table.users.saturating_sub(1);
                table.unused_since = Instant::now();
            }
        }
    }

    /// Whether there are tables that nothing leads to.
    pub(super) fn have_unused(&self) -> bool {
        self.tables.values().any(|table| table.users == 0)
    }

    /// Frees tables that nothing has led to for a while.
    pub(super) fn free_unused(&mut self, maps: &mut UnwindMaps, now: Instant) {
        let old =
            |table: &Table| table.users == 0 && now.saturating_duration_since(table.unused_since) >= KEPT;
        let keys: Vec<FileKey> =
            self.tables.iter().filter(|(_, table)| old(table)).map(|(key, _)| *key).collect();
        for key in &keys {
            self.remove(maps, *key);
        }
        if !keys.is_empty() {
            self.forget_removed();
        }
    }

    fn of_image(
        &mut self,
        maps: &mut UnwindMaps,
        identity: Identity,
        path: &str,
        image: impl FnOnce() -> Result<Image, ParseError>,
        stop: &dyn Fn() -> bool,
    ) -> Option<FileKey> {
        if let Some(key) = self.seen.get(&identity) {
            return *key;
        }
        let key = match image().and_then(TableSource::read) {
            Ok(made_of) => made_of.and_then(|made_of| self.of_source(maps, &made_of, path, stop)),
            Err(defect) => {
                log::debug!("no unwind table of `{path}`: {defect:?}");
                None
            }
        };
        if self.seen.len() >= MAX_FILES {
            self.seen.clear();
        }
        self.seen.insert(identity, key);
        key
    }

    fn of_source(
        &mut self,
        maps: &mut UnwindMaps,
        made_of: &TableSource,
        path: &str,
        stop: &dyn Fn() -> bool,
    ) -> Option<FileKey> {
        let told = |defect: &ParseError| log::debug!("no unwind table of `{path}`: {defect:?}");
        let source = self.hasher.hash_one(made_of);
        if let Some(key) = self.by_source.get(&source) {
            return Some(*key);
        }
        let begin = thread_cpu_time();
        let may_go_on = || !stop() && thread_cpu_time().saturating_sub(begin) < MAX_BUILD_TIME;
        let table = made_of.compile(&may_go_on).inspect_err(told).ok()?;
        let built_in = thread_cpu_time().saturating_sub(begin);
        if table.row_count() == 0 {
            return None;
        }
        let installed = self.install(maps, &table);
        let installed =
            installed.inspect_err(|refusal| log::info!("no unwind table of `{path}`: {refusal}")).ok()?;
        // `cargo xtask bench` reads this line.
        log::debug!(
            "unwind table of `{path}`: {} rows, {} bytes, built in {:.1} ms, {:?}",
            table.row_count(),
            installed.bytes(),
            built_in.as_secs_f64() * 1e3,
            table.statistics()
        );
        let key = FileKey(self.next_key);
        self.next_key = self.next_key.wrapping_add(1);
        self.bytes += installed.bytes();
        let unused_since = Instant::now();
        let (layout, is_managed) = (made_of.layout().clone(), made_of.is_managed());
        self.tables.insert(key, Table { layout, is_managed, source, installed, users: 0, unused_since });
        self.by_source.insert(source, key);
        Some(key)
    }

    /// Puts a table into the kernel; those that were unused for longest make room for it.
    fn install(&mut self, maps: &mut UnwindMaps, table: &UnwindTable) -> Result<InstalledFile, InstallError> {
        loop {
            let has_room = self.tables.len() < MAX_TABLES
                && self.bytes + size_of_val(table.rules()) + 4 * table.row_count() <= MAX_BYTES;
            let result = if has_room {
                let page_count =
                    u32::try_from(table.pages().len()).map_err(|_| InstallError::CapacityExceeded)?;
                maps.add_file(table.first_page(), page_count, table.pages(), table.rules())
            } else {
                Err(InstallError::CapacityExceeded)
            };
            let is_full = matches!(result, Err(InstallError::CapacityExceeded));
            let Some(key) = self.longest_unused().filter(|_| is_full) else { return result };
            self.remove(maps, key);
            self.forget_removed();
        }
    }

    fn longest_unused(&self) -> Option<FileKey> {
        let unused = self.tables.iter().filter(|(_, table)| table.users == 0);
        unused.min_by_key(|(_, table)| table.unused_since).map(|(key, _)| *key)
    }

    fn remove(&mut self, maps: &mut UnwindMaps, key: FileKey) {
        let Some(table) = self.tables.remove(&key) else { return };
        self.bytes = self.bytes.saturating_sub(table.installed.bytes());
        maps.remove_file(table.installed);
        self.by_source.remove(&table.source);
    }

    fn forget_removed(&mut self) {
        let tables = &self.tables;
        self.seen.retain(|_, key| key.is_none_or(|key| tables.contains_key(&key)));
    }

    /// The very file that is mapped; else the one at its path, in the process's root or in ours, when it has the same
    /// inode.
    fn open(&self, pid: u32, mapping: &Mapping, id: FileId, path: &Path) -> io::Result<File> {
        let mapped = match self.proc.open_mapped(pid, mapping) {
            Ok(file) => return Ok(file),
            Err(error) => error,
        };
        let target = self.proc.root(pid).ok();
        let same = |file: &File| file.metadata().is_ok_and(|metadata| metadata.ino() == id.inode);
        target
            .iter()
            .chain([&self.host])
            .filter_map(|root| root.open_file(path).ok())
            .find(same)
            .ok_or(mapped)
    }
}

#[cfg(test)]
mod tests {
    use object::elf;
    use profiler_common::unwind::CfaRule;

    use super::*;
    use crate::sampler::ebpf::test_maps::unwind_maps;
    use profiler_addresses::{FileOffset, RuntimeAddress};
    use profiler_elf_symbols::test_file::TestFile;
    use profiler_unwind_tables::test_cfi::{CODE_ADDRESS, TestCfi};

    struct Fixture {
        files: Files,
        maps: UnwindMaps,
    }

    impl Fixture {
        fn new() -> Option<Self> {
            let files = Files::new(Arc::new(ProcFs::live()), RootDirectory::open(Path::new("/")).unwrap());
            Some(Self { files, maps: unwind_maps()? })
        }

        /// The table of a file of that name.
        fn key(&mut self, inode: u64, bytes: &[u8]) -> Option<FileKey> {
            let id = FileId { major: 1, minor: 2, inode };
            let identity = Identity::File { id, bytes: bytes.len() as u64, changed_ns: 0 };
            let image = || Ok(Image::Memory(bytes.to_vec()));
            self.files.of_image(&mut self.maps, identity, "file", image, &|| false)
        }
    }

    /// A file with one function that has a frame of that size, and a build id that everybody can copy.
    fn file(frame_bytes: u8) -> TestFile {
        let frames = TestCfi::x86_64().function(CODE_ADDRESS, 8, &[0x0e, frame_bytes]);
        TestFile::with_code().code_segment(0, CODE_ADDRESS, 0x100).build_id(&[7; 20]).with(
            ".eh_frame",
            elf::SHT_PROGBITS,
            frames.bytes,
        )
    }

    #[test]
    fn the_same_file_in_two_places_has_one_table() {
        let Some(mut fixture) = Fixture::new() else { return };
        let first = fixture.key(1, &file(16).bytes());
        assert!(first.is_some());
        assert_eq!(fixture.key(2, &file(16).bytes()), first);
        assert_eq!(fixture.key(3, &file(16).with("other", elf::SHT_PROGBITS, vec![1]).bytes()), first);
        assert_eq!(fixture.files.tables.len(), 1);
    }

    #[test]
    fn a_build_id_that_was_copied_gives_no_table_to_others() {
        let Some(mut fixture) = Fixture::new() else { return };
        let files = [file(16), file(32), file(16).code_segment(0x1000, 0x9_0000, 0x100)];
        let keys: Vec<FileKey> = files
            .into_iter()
            .zip(1..)
            .map(|(file, inode)| fixture.key(inode, &file.bytes()).unwrap())
            .collect();
        assert!(keys[0] != keys[1] && keys[0] != keys[2]);
        let mapping = Mapping {
            start: RuntimeAddress(CODE_ADDRESS),
            end: RuntimeAddress(CODE_ADDRESS + 0x1000),
            offset: FileOffset(0),
            backing: Backing::Jit,
        };
        let contents = fixture.maps.contents();
        let frame_bytes = keys.iter().map(|key| {
            let rule = contents.rule(&fixture.files.entry(*key, &mapping).unwrap(), CODE_ADDRESS);
            assert_eq!(rule.cfa, CfaRule::StackPointer as u8);
            rule.cfa_offset
        });
        assert!(frame_bytes.eq([16, 32, 16]));
    }

    #[test]
    fn files_without_a_table_are_looked_at_once() {
        let Some(mut fixture) = Fixture::new() else { return };
        assert_eq!(fixture.key(1, b"no ELF file"), None);
        let again = || panic!("looked at again");
        let id = FileId { major: 1, minor: 2, inode: 1 };
        let identity = Identity::File { id, bytes: 11, changed_ns: 0 };
        assert_eq!(fixture.files.of_image(&mut fixture.maps, identity, "file", again, &|| false), None);
    }

    #[test]
    fn a_table_that_nothing_maps_is_kept_for_a_while() {
        let Some(mut fixture) = Fixture::new() else { return };
        let (used, unused) = (fixture.key(1, &file(16).bytes()), fixture.key(2, &file(32).bytes()));
        fixture.files.keep(used.unwrap());
        let soon = Instant::now();
        fixture.files.free_unused(&mut fixture.maps, soon);
        assert!(fixture.files.have_unused() && fixture.key(2, &file(32).bytes()) == unused);
        fixture.files.free_unused(&mut fixture.maps, soon + 2 * KEPT);
        assert!(!fixture.files.have_unused());
        assert_ne!(fixture.key(2, &file(32).bytes()), unused, "made again");
        assert_eq!(fixture.key(1, &file(16).bytes()), used);
        fixture.files.release(&[used.unwrap()]);
        fixture.files.free_unused(&mut fixture.maps, Instant::now() + 2 * KEPT);
        assert!(fixture.maps.are_empty());
    }

    #[test]
    fn who_is_told_to_stop_makes_no_table() {
        let Some(mut fixture) = Fixture::new() else { return };
        let image = || Ok(Image::Memory(file(16).bytes()));
        let key = fixture.files.of_image(&mut fixture.maps, Identity::Vdso, "file", image, &|| true);
        assert_eq!(key, None);
    }
}
