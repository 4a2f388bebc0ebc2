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
    elf::{Defect, Elf, Image, Layout},
    process::{Backing, FileId, Mapping, Proc, root::Root},
    sampler::ebpf::{InstalledFile, Refusal, UnwindMaps},
    unwind::{TableSource, UnwindTable},
};

/// The most of the kernel's memory that tables take.
const MAX_BYTES: usize = 64 << 20;

/// How long a table stays that nothing maps: the next process is often one of the same program.
const KEPT: Duration = Duration::from_secs(10);

/// How many files are remembered, with a table or without.
const MAX_FILES: usize = 64 * 1024;

/// Names a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FileKey(u32);

/// The tables.
#[derive(Debug)]
pub(super) struct Files {
    proc: Arc<Proc>,
    host: Root,
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
    layout: Layout,
    source: u64,
    installed: InstalledFile,
    /// How many sets of mappings in the kernel lead to it.
    users: u32,
    unused_since: Instant,
}

impl Files {
    /// No file.
    pub(super) fn new(proc: Arc<Proc>, host: Root) -> Self {
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
    ) -> Option<FileKey> {
        let Backing::File { id, path } = &mapping.backing else { return None };
        let file = self.open(pid, mapping, *id, Path::new(&**path));
        let file = file.inspect_err(|error| log::debug!("no unwind table of `{path}`: {error}")).ok()?;
        let metadata = file.metadata().ok()?;
        const NS_PER_S: i128 = 1_000_000_000;
        let changed_ns = i128::from(metadata.ctime()) * NS_PER_S + i128::from(metadata.ctime_nsec());
        let identity = Identity::File { id: *id, bytes: metadata.len(), changed_ns };
        self.of_image(maps, identity, path, || Image::of_file(file))
    }

    /// The table of the kernel's code in every process.
    pub(super) fn vdso(&mut self, maps: &mut UnwindMaps) -> Option<FileKey> {
        let proc = Arc::clone(&self.proc);
        let image = || proc.vdso().map(Image::Memory).map_err(|_| Defect::Malformed);
        self.of_image(maps, Identity::Vdso, "[vdso]", image)
    }

    /// Whether a table is still there.
    pub(super) fn has(&self, key: FileKey) -> bool {
        self.tables.contains_key(&key)
    }

    /// A mapping as the kernel side reads it.
    pub(super) fn entry(&self, key: FileKey, mapping: &Mapping) -> Option<MappingEntry> {
        let table = self.tables.get(&key)?;
        let bytes = mapping.end.0.checked_sub(mapping.start.0)?;
        let bias = table.layout.load_bias(mapping.start, mapping.offset, bytes)?;
        Some(table.installed.mapping(mapping.start.0, mapping.end.0, bias))
    }

    /// Mappings in the kernel lead to these tables now.
    pub(super) fn keep(&mut self, keys: &[FileKey]) {
        for key in keys {
            if let Some(table) = self.tables.get_mut(key) {
                table.users += 1;
            }
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
    pub(super) fn free_unused(&mut self, maps: &mut UnwindMaps) {
        let old = |table: &Table| table.users == 0 && table.unused_since.elapsed() >= KEPT;
        let keys: Vec<FileKey> =
            self.tables.iter().filter(|(_, table)| old(table)).map(|(key, _)| *key).collect();
        for key in keys {
            self.free(maps, key);
        }
    }

    fn of_image(
        &mut self,
        maps: &mut UnwindMaps,
        identity: Identity,
        path: &str,
        image: impl FnOnce() -> Result<Image, Defect>,
    ) -> Option<FileKey> {
        if let Some(key) = self.seen.get(&identity) {
            return *key;
        }
        let key = match image().and_then(Elf::parse) {
            Ok(elf) => self.of_elf(maps, &elf, path),
            Err(defect) => {
                log::debug!("no unwind table of `{path}`: {defect:?}");
                None
            }
        };
        if self.seen.len() >= MAX_FILES {
            self.seen.retain(|_, key| key.is_some());
        }
        self.seen.insert(identity, key);
        key
    }

    fn of_elf(&mut self, maps: &mut UnwindMaps, elf: &Elf, path: &str) -> Option<FileKey> {
        let told = |defect: &Defect| log::debug!("no unwind table of `{path}`: {defect:?}");
        let layout = elf.layout();
        let made_of = TableSource::read(elf).inspect_err(told).ok()?;
        let source = self.hasher.hash_one((&made_of, &layout));
        if let Some(key) = self.by_source.get(&source) {
            return Some(*key);
        }
        let started = Instant::now();
        let table = made_of.table().inspect_err(told).ok()?;
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
            started.elapsed().as_secs_f64() * 1e3,
            table.statistics()
        );
        let key = FileKey(self.next_key);
        self.next_key = self.next_key.wrapping_add(1);
        self.bytes += installed.bytes();
        let unused_since = Instant::now();
        self.tables.insert(key, Table { layout, source, installed, users: 0, unused_since });
        self.by_source.insert(source, key);
        Some(key)
    }

    /// Puts a table into the kernel; those that were unused for longest make room for it.
    fn install(&mut self, maps: &mut UnwindMaps, table: &UnwindTable) -> Result<InstalledFile, Refusal> {
        loop {
            let has_room = self.bytes + size_of_val(table.rules()) + 4 * table.row_count() <= MAX_BYTES;
            let result = if has_room {
                let page_count = u32::try_from(table.pages().len()).map_err(|_| Refusal::Full)?;
                maps.add_file(table.first_page(), page_count, table.pages(), table.rules())
            } else {
                Err(Refusal::Full)
            };
            let is_full = matches!(result, Err(Refusal::Full));
            let Some(key) = self.longest_unused().filter(|_| is_full) else { return result };
            self.free(maps, key);
        }
    }

    fn longest_unused(&self) -> Option<FileKey> {
        let unused = self.tables.iter().filter(|(_, table)| table.users == 0);
        unused.min_by_key(|(_, table)| table.unused_since).map(|(key, _)| *key)
    }

    fn free(&mut self, maps: &mut UnwindMaps, key: FileKey) {
        let Some(table) = self.tables.remove(&key) else { return };
        self.bytes = self.bytes.saturating_sub(table.installed.bytes());
        maps.remove_file(table.installed);
        self.seen.retain(|_, seen| *seen != Some(key));
        self.by_source.remove(&table.source);
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
