//! Caches the unwind tables that are installed in BPF maps: one for each mapped file, evicted when no process maps it.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    io,
    ops::Range,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use profiler_addresses::{MonotonicTime, RuntimeAddress};
use profiler_binary_reader::{Image, ParseError, SegmentLayout};
use profiler_common::unwind::{FileSegment, MappingEntry, PageEntry, Row};
use profiler_elf_symbols::{Elf, Machine};
use profiler_processes::monotonic_time;
use profiler_processes::{
    Backing, FileId, FileVersion, MappedFile, MappedFiles, Mapping, MappingOwner, Pid, ProcFs,
    root_directory::RootDirectory,
};
use profiler_sampler::{InstallError, InstalledFile, UnwindMaps};
use profiler_symbolize::{JitFunctionFrames, debug_file::DebugDirectories};
use profiler_unwind_tables::{JitFunction, ManagedFunction, TableSource, UnwindTable};
use thiserror::Error;

use super::{
    cached_table::{CachedTable, TableKey},
    generations::Generations,
    managed_functions::FunctionsByStart,
    tenant::{SharedCapacity, Tenant},
};
use crate::sys::usage::thread_cpu_time;

/// The most kernel memory that all tables use.
const MAX_INSTALLED_BYTES: usize = 64 << 20;

/// The time for which an unused table is kept, because the next process is often one of the same program.
const EVICTION_DELAY: Duration = Duration::from_secs(10);

/// The most installed tables.
const MAX_TABLES: usize = 16 * 1024;

/// The most CPU time for building one table: many times that of the largest known file.
const MAX_BUILD_TIME: Duration = Duration::from_secs(1);

/// The installed unwind tables.
#[derive(Debug)]
pub(super) struct TableCache {
    files: Arc<MappedFiles>,
    debug_directories: Arc<DebugDirectories>,
    tables: HashMap<TableKey, Table>,
    /// The results for files that were read.
    by_file: Generations<TableFile, CachedTable>,
    /// Tables by the hash of their source. Files with equal sources share a table. A build id is not enough: a file can
    /// claim any.
    by_source: HashMap<u64, TableKey>,
    hasher: RandomState,
    /// The segments by which the unwinder finds tables without the mappings of a process.
    segments: HashMap<FileSegment, TableKey>,
    /// The number of tables without references.
    unused: usize,
    /// Bytes of kernel memory, and the number of tables.
    byte_capacity: SharedCapacity,
    table_capacity: SharedCapacity,
    next_key: u32,
}

/// The process for which a table is built.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableOwner<'a> {
    pub(super) pid: Pid,
    pub(super) root: Option<&'a RootDirectory>,
    /// The tenant that the table is charged to.
    pub(super) tenant: Tenant,
    /// The functions of its JIT code of .NET.
    pub(super) managed: Option<&'a FunctionsByStart>,
}

impl<'a> TableOwner<'a> {
    /// The functions of JIT code of .NET that begin in a range of memory.
    pub(super) fn managed_functions(
        self,
        memory: &Range<RuntimeAddress>,
    ) -> impl Iterator<Item = &'a ManagedFunction> {
        self.managed.into_iter().flat_map(|functions| functions.starting_in(memory))
    }
}

/// What a table is built from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum TableFile {
    File(FileVersion),
    Vdso,
}

/// A file whose table is built, and the tenant that it is charged to.
#[derive(Clone, Copy, Debug)]
struct NamedFile<'a> {
    file: TableFile,
    path: &'a str,
    tenant: Tenant,
}

/// An installed table.
#[derive(Debug)]
struct Table {
    /// Translates mappings of the file to addresses in the table.
    layout: SegmentLayout,
    is_managed: bool,
    is_of_jit_code: bool,
    /// That in [`TableCache::by_source`], if other files can share the table.
    source_hash: Option<u64>,
    tenant: Tenant,
    charged_bytes: usize,
    installed: InstalledFile,
    /// The number of installed sets of mappings that refer to the table.
    references: u32,
    unused_since: Instant,
}

/// Why the table of a file is not installed.
#[derive(Debug, Error)]
enum BuildError {
    #[error(transparent)]
    Parse(#[from] ParseError),
    #[error(transparent)]
    Install(#[from] InstallError),
}

impl BuildError {
    /// Whether a later attempt can succeed.
    fn is_transient(&self) -> bool {
        match self {
            Self::Parse(defect) => *defect == ParseError::TimedOut,
            Self::Install(_) => true,
        }
    }
}

impl TableCache {
    /// An empty cache.
    pub(super) fn new(files: Arc<MappedFiles>, debug_directories: Arc<DebugDirectories>) -> Self {
        Self {
            files,
            debug_directories,
            tables: HashMap::new(),
            by_file: Generations::new(Instant::now()),
            by_source: HashMap::new(),
            hasher: RandomState::new(),
            segments: HashMap::new(),
            unused: 0,
            byte_capacity: SharedCapacity::new(MAX_INSTALLED_BYTES),
            table_capacity: SharedCapacity::new(MAX_TABLES),
            next_key: 0,
        }
    }

    /// The table of the mapped file of a process. Builds and installs it if necessary. `previous` is the result of the
    /// previous attempt.
    pub(super) fn table_for_mapping(
        &mut self,
        maps: &mut UnwindMaps,
        owner: TableOwner<'_>,
        mapping: &Mapping,
        previous: Option<CachedTable>,
        stop: &dyn Fn() -> bool,
    ) -> CachedTable {
        let Backing::File { id, path } = &mapping.backing else { return CachedTable::Absent };
        let mapping_owner = MappingOwner { pid: Some(owner.pid), root: owner.root };
        let MappedFile { file, version } = match self.files.open(mapping_owner, mapping) {
            Ok(file) => file,
            Err(error) => {
                log::debug!("no unwind table of `{path}`: {error}");
                return CachedTable::without_table(error.is_transient(), previous);
            }
        };
        let image = || Ok(Image::of_target(file, version.bytes()));
        let source = NamedFile { file: TableFile::File(version), path, tenant: owner.tenant };
        let table = self.table_for_image(maps, source, image, stop);
        if let CachedTable::Installed(key) = table {
            self.add_segment(maps, key, segment(*id, version, mapping), mapping);
        }
        table
    }

    /// Lets the unwinder find a table by the VMA of a mapping.
    fn add_segment(&mut self, maps: &mut UnwindMaps, key: TableKey, segment: FileSegment, mapping: &Mapping) {
        let Some(entry) = self.mapping_entry(key, mapping) else { return };
        let Some(table) = self.tables.get(&key) else { return };
        if self.segments.get(&segment) == Some(&key) {
            return;
        }
        let address = mapping.start.0.wrapping_sub(entry.bias);
        match maps.add_segment(segment, &table.installed, address) {
            Ok(()) => {
                self.segments.insert(segment, key);
            }
            Err(error) => {
                log::debug!("code of a file is found by the mappings of its processes alone: {error}");
                self.remove_idle_segments(maps);
            }
        }
    }

    /// Removes segments that were not used for some time, so that files which are mapped later have a place.
    fn remove_idle_segments(&mut self, maps: &mut UnwindMaps) {
        let now = monotonic_time();
        let idle = self.segments.extract_if(|segment, _| idle_time(maps, *segment, now) >= EVICTION_DELAY);
        let idle: Vec<FileSegment> = idle.map(|(segment, _)| segment).collect();
        idle.into_iter().for_each(|segment| maps.remove_segment(segment));
    }

    /// The table of the vDSO.
    pub(super) fn vdso(&mut self, maps: &mut UnwindMaps, stop: &dyn Fn() -> bool) -> CachedTable {
        let image = || ProcFs::live().vdso().map(Image::Memory).map_err(|error| vdso_defect(&error));
        let file = NamedFile { file: TableFile::Vdso, path: "[vdso]", tenant: Tenant::Host };
        self.table_for_image(maps, file, image, stop)
    }

    /// The table of JIT code in a mapping.
    pub(super) fn jit_code(
        &mut self,
        maps: &mut UnwindMaps,
        owner: TableOwner<'_>,
        mapping: &Mapping,
        functions: &[JitFunctionFrames],
        stop: &dyn Fn() -> bool,
    ) -> CachedTable {
        let functions = functions.iter().map(|function| JitFunction {
            code: function.code.clone(),
            eh_frame: &function.eh_frame,
            eh_frame_address: function.eh_frame_address,
        });
        let memory = mapping.start..mapping.end;
        let source = TableSource::of_jit_code(Machine::HOST, memory, mapping.offset, functions);
        self.table_for_jit_source(maps, owner, &source, stop)
    }

    /// The table of JIT code of .NET in a mapping.
    pub(super) fn managed_code(
        &mut self,
        maps: &mut UnwindMaps,
        owner: TableOwner<'_>,
        mapping: &Mapping,
        stop: &dyn Fn() -> bool,
    ) -> CachedTable {
        let memory = mapping.start..mapping.end;
        let functions = owner.managed_functions(&memory);
        let source = TableSource::of_managed_functions(&memory, mapping.offset, functions);
        self.table_for_jit_source(maps, owner, &source, stop)
    }

    fn table_for_jit_source(
        &mut self,
        maps: &mut UnwindMaps,
        owner: TableOwner<'_>,
        source: &TableSource,
        stop: &dyn Fn() -> bool,
    ) -> CachedTable {
        match self.table_for_source(maps, source, "JIT code", owner.tenant, stop) {
            Ok(Some(key)) => CachedTable::Installed(key),
            Ok(None) => CachedTable::Absent,
            Err(error) => {
                log::debug!("no unwind table of the JIT code of process {}: {error}", owner.pid);
                CachedTable::without_table(error.is_transient(), None)
            }
        }
    }

    /// Whether a table is still installed.
    pub(super) fn contains(&self, key: TableKey) -> bool {
        self.tables.contains_key(&key)
    }

    /// Whether the table is of precompiled .NET code.
    pub(super) fn is_managed(&self, key: TableKey) -> bool {
        self.tables.get(&key).is_some_and(|table| table.is_managed)
    }

    /// The entry for a mapping, as the BPF program reads it.
    pub(super) fn mapping_entry(&self, key: TableKey, mapping: &Mapping) -> Option<MappingEntry> {
        let table = self.tables.get(&key)?;
        let bytes = mapping.end.0.checked_sub(mapping.start.0)?;
        let bias = table.layout.load_bias(mapping.file_mapping(), bytes)?;
        Some(table.installed.mapping(mapping.start.0, mapping.end.0, bias))
    }

    /// Adds a reference to a table.
    pub(super) fn retain(&mut self, key: TableKey) {
        if let Some(table) = self.tables.get_mut(&key) {
            self.unused -= usize::from(table.references == 0);
            table.references += 1;
        }
    }

    /// Removes one reference to each table. Tables of JIT code are removed with their last one: the next one of the code differs.
    pub(super) fn release(&mut self, maps: &mut UnwindMaps, keys: &[TableKey]) {
        for key in keys {
            let Some(table) = self.tables.get_mut(key) else { continue };
            table.references = table.references.saturating_sub(1);
            table.unused_since = Instant::now();
            let is_unused = table.references == 0;
            self.unused += usize::from(is_unused);
            if is_unused && table.is_of_jit_code {
                self.remove(maps, *key);
            }
        }
    }

    /// Whether there are tables without references.
    pub(super) fn has_unused(&self) -> bool {
        self.unused > 0
    }

    /// Removes tables that have had no references for [`EVICTION_DELAY`], and were not found by a segment either.
    pub(super) fn evict_unused(&mut self, maps: &mut UnwindMaps, now: Instant) {
        let monotonic_now = monotonic_time();
        for (segment, key) in &self.segments {
            if idle_time(maps, *segment, monotonic_now) < EVICTION_DELAY
                && let Some(table) = self.tables.get_mut(key)
            {
                table.unused_since = now;
            }
        }
        let is_expired = |table: &Table| {
            table.references == 0 && now.saturating_duration_since(table.unused_since) >= EVICTION_DELAY
        };
        let keys: Vec<TableKey> =
            self.tables.iter().filter(|(_, table)| is_expired(table)).map(|(key, _)| *key).collect();
        for key in &keys {
            self.remove(maps, *key);
        }
        if !keys.is_empty() {
            self.forget_removed_tables();
        }
    }

    fn table_for_image(
        &mut self,
        maps: &mut UnwindMaps,
        named: NamedFile<'_>,
        image: impl FnOnce() -> Result<Image, ParseError>,
        stop: &dyn Fn() -> bool,
    ) -> CachedTable {
        let NamedFile { file, path, tenant } = named;
        let previous = self.by_file.get(file);
        if let Some(table) = previous.filter(|table| !table.must_retry(Instant::now())) {
            return table;
        }
        let debug_directories = Arc::clone(&self.debug_directories);
        let find_debug_file = |module: &Elf| debug_directories.find_call_frames(module, Path::new(path));
        let source = image().and_then(|image| TableSource::read_with_debug_file(image, find_debug_file));
        let source = source.map_err(BuildError::from);
        let built = source.and_then(|source| match source {
            Some(source) => self.table_for_source(maps, &source, path, tenant, stop),
            None => Ok(None),
        });
        let table = match built {
            Ok(Some(key)) => CachedTable::Installed(key),
            Ok(None) => CachedTable::Absent,
            Err(error) => {
                let level = match error {
                    BuildError::Install(_) if previous.is_none() => log::Level::Info,
                    _ => log::Level::Debug,
                };
                log::log!(level, "no unwind table of `{path}`: {error}");
                CachedTable::without_table(error.is_transient(), previous)
            }
        };
        self.by_file.insert(file, table, Instant::now());
        table
    }

    fn table_for_source(
        &mut self,
        maps: &mut UnwindMaps,
        source: &TableSource,
        path: &str,
        tenant: Tenant,
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<TableKey>, BuildError> {
        // No other process has the same JIT code.
        let source_hash = (!source.is_of_jit_code()).then(|| self.hasher.hash_one(source));
        if let Some(key) = source_hash.and_then(|hash| self.by_source.get(&hash)) {
            return Ok(Some(*key));
        }
        let begin = thread_cpu_time();
        let may_continue = || !stop() && thread_cpu_time().saturating_sub(begin) < MAX_BUILD_TIME;
        let table = source.compile(&may_continue)?;
        let build_time = thread_cpu_time().saturating_sub(begin);
        if table.row_count() == 0 {
            return Ok(None);
        }
        let charged_bytes = charged_bytes(&table);
        if charged_bytes > self.byte_capacity.limit() {
            return Err(ParseError::TooLarge.into());
        }
        let installed = self.install(maps, &table, tenant)?;
        // `cargo xtask bench` reads this line.
        log::debug!(
            "unwind table of `{path}`: {} rows, {} bytes, built in {:.1} ms, {:?}",
            table.row_count(),
            installed.bytes(),
            build_time.as_secs_f64() * 1e3,
            table.statistics()
        );
        let bytes_left = table.statistics().bytes_not_analysed;
        if bytes_left > 0 {
            log::info!(
                "{bytes_left} bytes of code in `{path}` have no unwind rows: too much code has no call frame information"
            );
        }
        let key = TableKey(self.next_key);
        self.next_key = self.next_key.wrapping_add(1);
        let unused_since = Instant::now();
        let layout = source.layout().clone();
        self.unused += 1;
        let table = Table {
            layout,
            is_managed: source.is_managed(),
            is_of_jit_code: source.is_of_jit_code(),
            source_hash,
            tenant,
            charged_bytes,
            installed,
            references: 0,
            unused_since,
        };
        self.tables.insert(key, table);
        self.by_source.extend(source_hash.map(|hash| (hash, key)));
        Ok(Some(key))
    }

    /// Installs a table. Evicts unused tables, the longest unused first, while there is not enough capacity: those of the
    /// tenant, and for the host those of all.
    fn install(
        &mut self,
        maps: &mut UnwindMaps,
        table: &UnwindTable,
        tenant: Tenant,
    ) -> Result<InstalledFile, InstallError> {
        loop {
            let result = self.try_install(maps, table, tenant);
            let is_full = matches!(result, Err(InstallError::CapacityExceeded));
            let Some(key) = self.longest_unused(tenant).filter(|_| is_full) else { return result };
            self.remove(maps, key);
            self.forget_removed_tables();
        }
    }

    fn try_install(
        &mut self,
        maps: &mut UnwindMaps,
        table: &UnwindTable,
        tenant: Tenant,
    ) -> Result<InstalledFile, InstallError> {
        let bytes = charged_bytes(table);
        if !self.table_capacity.take(tenant, 1) {
            return Err(InstallError::CapacityExceeded);
        }
        if !self.byte_capacity.take(tenant, bytes) {
            self.table_capacity.give_back(tenant, 1);
            return Err(InstallError::CapacityExceeded);
        }
        let page_count = u32::try_from(table.pages().len()).map_err(|_| InstallError::CapacityExceeded);
        let installed = page_count
            .and_then(|count| maps.add_file(table.first_page(), count, table.pages(), table.rules()));
        if installed.is_err() {
            self.table_capacity.give_back(tenant, 1);
            self.byte_capacity.give_back(tenant, bytes);
        }
        installed
    }

    fn longest_unused(&self, tenant: Tenant) -> Option<TableKey> {
        let may_evict = |table: &Table| tenant == Tenant::Host || table.tenant == tenant;
        let unused = self.tables.iter().filter(|(_, table)| table.references == 0 && may_evict(table));
        unused.min_by_key(|(_, table)| table.unused_since).map(|(key, _)| *key)
    }

    fn remove(&mut self, maps: &mut UnwindMaps, key: TableKey) {
        let Some(table) = self.tables.remove(&key) else { return };
        self.unused -= usize::from(table.references == 0);
        self.segments.extract_if(|_, of| *of == key).for_each(|(segment, _)| maps.remove_segment(segment));
        self.byte_capacity.give_back(table.tenant, table.charged_bytes);
        self.table_capacity.give_back(table.tenant, 1);
        maps.remove_file(table.installed);
        if let Some(hash) = table.source_hash {
            self.by_source.remove(&hash);
        }
    }

    fn forget_removed_tables(&mut self) {
        let tables = &self.tables;
        self.by_file.retain(|table| table.key().is_none_or(|key| tables.contains_key(&key)));
    }

    /// The number of installed tables.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.tables.len()
    }

    /// Replaces the number of tables that can be installed. Returns the capacity before.
    #[cfg(test)]
    pub(super) fn replace_table_capacity(&mut self, capacity: SharedCapacity) -> SharedCapacity {
        std::mem::replace(&mut self.table_capacity, capacity)
    }
}

/// The defect of a vDSO that cannot be read. One that does not exist is not searched again.
fn vdso_defect(error: &io::Error) -> ParseError {
    match error.kind() {
        io::ErrorKind::NotFound => ParseError::Malformed,
        _ => ParseError::TimedOut,
    }
}

/// The segment of a file that a mapping shows, as the unwinder reads it from the VMA.
fn segment(file: FileId, version: FileVersion, mapping: &Mapping) -> FileSegment {
    const MINOR_BITS: u32 = 20;
    const PAGE_BITS: u32 = 12;
    let (changed_s, changed_ns) = version.changed();
    FileSegment {
        inode: file.inode,
        changed_s,
        changed_ns,
        device: file.major << MINOR_BITS | file.minor,
        page_offset: mapping.offset.0 >> PAGE_BITS,
    }
}

/// The kernel memory that a tenant is charged for a table.
fn charged_bytes(table: &UnwindTable) -> usize {
    table.row_count() * size_of::<Row>() + table.pages().len() * size_of::<PageEntry>()
}

/// The time since the unwinder last found a table by a segment.
fn idle_time(maps: &UnwindMaps, segment: FileSegment, now: MonotonicTime) -> Duration {
    now.saturating_since(maps.segment_last_use(segment).unwrap_or(MonotonicTime::ZERO))
}

#[cfg(test)]
mod tests;
