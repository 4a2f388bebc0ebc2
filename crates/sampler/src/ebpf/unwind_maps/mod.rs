//! Writes unwind tables into BPF maps, and allocates their pages, rows, rules and mappings.
//!
//! The unwinder reads these maps while they are written. So a range that was in use is reused only after an RCU grace
//! period, when no program can still read it, and an entry is written before the entries that refer to it.

#[cfg(any(test, feature = "testing"))]
mod test_access;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    io,
    ops::Range,
    os::fd::{AsFd, OwnedFd},
};

use profiler_addresses::MonotonicTime;
use profiler_common::unwind::{
    FileSegment, MAX_MAPPINGS, MAX_MAPPINGS_PER_PROCESS, MAX_PAGES, MAX_PROCESSES, MAX_ROW_CHUNKS, MAX_RULES,
    MappingEntry, PageEntry, ProcessEntry, ROWS_PER_CHUNK, Row, Rule, SegmentTable,
};
use profiler_processes::{Pid, monotonic_time};
use zerocopy::{Immutable, IntoBytes};

use super::{
    free_ranges::FreeRanges,
    row_chunks::{FirstChunks, add_chunks, insert_chunk},
};
use crate::sys::{bpf, bpf_array};

/// The budget of kernel memory for rows, in chunks of 256 KiB: a whole machine of real programs has some 13 MB.
const ROW_CHUNK_BUDGET: usize = 256;
/// The chunks that are added together, 2 MiB: enough for a .NET program. An RCU grace period for each chunk would be most of
/// the time until its stacks are whole.
pub(super) const CHUNKS_AT_ONCE: usize = 8;
const _: () = assert!(ROW_CHUNK_BUDGET <= MAX_ROW_CHUNKS as usize);

/// The file descriptors of the maps.
#[derive(Debug)]
pub(super) struct UnwindMapFds {
    pub(super) processes: OwnedFd,
    pub(super) segments: OwnedFd,
    pub(super) mappings: OwnedFd,
    pub(super) pages: OwnedFd,
    pub(super) rules: OwnedFd,
    pub(super) rows: OwnedFd,
}

/// The unwind maps and the allocators of their entries.
#[derive(Debug)]
pub struct UnwindMaps {
    maps: UnwindMapFds,
    free_mappings: FreeRanges,
    free_pages: FreeRanges,
    chunks: Vec<Chunk>,
    /// The first chunks, until they are used.
    first_chunks: Option<FirstChunks>,
    rule_ids: HashMap<Rule, u16>,
    /// The number of files that use each rule.
    rule_users: Vec<u32>,
    free_rules: Vec<u16>,
    retired: Retired,
    /// The number of the last installation of mappings.
    generation: u32,
    searches_vmas: bool,
}

/// An array of rows, shared by several files.
#[derive(Debug)]
struct Chunk {
    array: OwnedFd,
    free: FreeRanges,
}

/// Ranges that programs may still read until the next grace period.
#[derive(Debug, Default)]
struct Retired {
    mappings: Vec<Range<u32>>,
    pages: Vec<Range<u32>>,
    rows: Vec<Rows>,
}

/// A range of rows in one chunk.
#[derive(Clone, Debug)]
struct Rows {
    chunk: u16,
    range: Range<u32>,
}

/// A file's unwind table in the maps, to be passed to [`UnwindMaps::remove_file`].
#[derive(Debug)]
pub struct InstalledFile {
    first_page: u32,
    pages: Range<u32>,
    rows: Vec<Rows>,
    rules: Vec<u16>,
}

/// A process's mappings in the maps, to be passed to [`UnwindMaps::remove_mappings`].
#[derive(Debug)]
pub struct InstalledMappings {
    range: Range<u32>,
    /// The [`MappingFlags`](profiler_common::unwind::MappingFlags) of any of them.
    flags: u32,
    /// The number of this installation.
    generation: u32,
}

/// Why a table or mappings could not be installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// A map is full.
    #[error("the BPF maps for unwind tables are full")]
    CapacityExceeded,
    /// A system call failed.
    #[error("failed to write unwind tables: {0}")]
    Io(#[from] io::Error),
}

impl InstalledFile {
    /// The entry for a mapping of this file.
    pub fn mapping(&self, start: u64, end: u64, bias: u64) -> MappingEntry {
        MappingEntry {
            start,
            end,
            bias,
            page_entry: self.pages.start,
            first_page: self.first_page,
            pages: self.pages.end - self.pages.start,
            flags: 0,
        }
    }

    /// The table of a segment of this file, which begins at an ELF address.
    fn segment_table(&self, address: u64) -> SegmentTable {
        let MappingEntry { page_entry, first_page, pages, .. } = self.mapping(0, 0, 0);
        SegmentTable { address, used_ns: 0, page_entry, first_page, pages, reserved: 0 }
    }

    /// Bytes of kernel memory that the table takes.
    pub fn bytes(&self) -> usize {
        let rows: u32 = self.rows.iter().map(Rows::length).sum();
        rows as usize * size_of::<Row>() + self.pages.len() * size_of::<PageEntry>()
    }
}

impl UnwindMaps {
    /// Takes over maps that were just created and are empty, except for the first chunks of rows.
    pub(super) fn new(maps: UnwindMapFds, first_chunks: Option<FirstChunks>, searches_vmas: bool) -> Self {
        Self {
            free_mappings: FreeRanges::new(MAX_MAPPINGS),
            free_pages: FreeRanges::new(MAX_PAGES),
            chunks: Vec::new(),
            first_chunks,
            rule_ids: HashMap::new(),
            rule_users: Vec::new(),
            free_rules: Vec::new(),
            retired: Retired::default(),
            generation: 0,
            searches_vmas,
            maps,
        }
    }

    /// Whether the unwinder finds mappings that are not installed among the VMAs of a process.
    pub fn searches_vmas(&self) -> bool {
        self.searches_vmas
    }

    /// Installs a file's unwind table. `pages` are the rows of each page from `first_page` on; they refer to `rules` by
    /// index.
    pub fn add_file<R: AsRef<[Row]>>(
        &mut self,
        first_page: u32,
        page_count: u32,
        pages: impl Iterator<Item = R>,
        rules: &[Rule],
    ) -> Result<InstalledFile, InstallError> {
        let entries = match self.free_pages.allocate(page_count) {
            Some(entries) => entries,
            None => {
                self.reclaim()?;
                self.free_pages.allocate(page_count).ok_or(InstallError::CapacityExceeded)?
            }
        };
        let mut file = InstalledFile { first_page, pages: entries, rows: Vec::new(), rules: Vec::new() };
        match self.fill(&mut file, pages, rules) {
            Ok(()) => Ok(file),
            Err(error) => {
                self.remove_file(file);
                Err(error)
            }
        }
    }

    fn fill<R: AsRef<[Row]>>(
        &mut self,
        file: &mut InstalledFile,
        pages: impl Iterator<Item = R>,
        rules: &[Rule],
    ) -> Result<(), InstallError> {
        let mut new = Vec::new();
        let known: Result<(), InstallError> = rules.iter().try_for_each(|rule| {
            file.rules.push(self.rule_id(*rule, &mut new)?);
            Ok(())
        });
        self.write_rules(new)?;
        known?;
        let mut allocated = Rows { chunk: 0, range: 0..0 };
        let mut entries = Vec::with_capacity(file.pages.len());
        let mut pending: Vec<Row> = Vec::new();
        for rows in pages.take(file.pages.len()) {
            let rows = rows.as_ref();
            let needed = u32::try_from(rows.len()).map_err(|_| InstallError::CapacityExceeded)?;
            let filled = u32::try_from(pending.len()).map_err(|_| InstallError::CapacityExceeded)?;
            if allocated.length() < filled + needed {
                self.write_rows(file, allocated, &mut pending)?;
                allocated = self.allocate_rows(needed)?;
            }
            let first_row = allocated.range.start
                + u32::try_from(pending.len()).map_err(|_| InstallError::CapacityExceeded)?;
            let rows_entry = u16::try_from(needed).map_err(|_| InstallError::CapacityExceeded)?;
            entries.push(PageEntry { chunk: allocated.chunk, rows: rows_entry, first_row });
            pending.extend(rows.iter().map(|row| {
                let rule = file.rules.get(row.rule() as usize).copied().unwrap_or_default();
                Row::new(row.offset() as u16, rule)
            }));
        }
        self.write_rows(file, allocated, &mut pending)?;
        entries.resize(file.pages.len(), PageEntry::default());
        write(&self.maps.pages, file.pages.start, &entries)?;
        Ok(())
    }

    /// Writes rows to the start of an allocated range, records that part in the file, and frees the rest.
    fn write_rows(
        &mut self,
        file: &mut InstalledFile,
        allocated: Rows,
        rows: &mut Vec<Row>,
    ) -> Result<(), InstallError> {
        let Rows { chunk: index, range } = allocated;
        let used = range.start
            ..range.start + u32::try_from(rows.len()).map_err(|_| InstallError::CapacityExceeded)?;
        self.free_rows(Rows { chunk: index, range: used.end..range.end });
        if let Some(chunk) = self.chunks.get(usize::from(index)).filter(|_| !used.is_empty()) {
            file.rows.push(Rows { chunk: index, range: used.clone() });
            write(&chunk.array, used.start, rows)?;
        }
        rows.clear();
        Ok(())
    }

    /// Removes a file's table. No mapping may refer to it any more.
    pub fn remove_file(&mut self, file: InstalledFile) {
        self.retired.pages.push(file.pages);
        self.retired.rows.extend(file.rows);
        for id in file.rules {
            if let Some(users) = self.rule_users.get_mut(usize::from(id)) {
                *users = users.saturating_sub(1);
            }
        }
    }

    /// Lets the unwinder find the table of a file by a segment in the VMAs of any process. `address` is the ELF address of
    /// the segment's first byte.
    pub fn add_segment(
        &mut self,
        segment: FileSegment,
        file: &InstalledFile,
        address: u64,
    ) -> Result<(), InstallError> {
        let table = file.segment_table(address);
        bpf::update_element(self.maps.segments.as_fd(), segment.as_bytes(), table.as_bytes())
            .map_err(full_or_io)
    }

    /// When the unwinder last found a table by this segment.
    pub fn segment_last_use(&self, segment: FileSegment) -> Option<MonotonicTime> {
        let mut table = SegmentTable::default();
        let fd = self.maps.segments.as_fd();
        bpf::look_up_element(fd, segment.as_bytes(), table.as_mut_bytes()).ok()?;
        Some(MonotonicTime(table.used_ns))
    }

    /// Removes a segment, before the table of its file is removed.
    pub fn remove_segment(&mut self, segment: FileSegment) {
        if let Err(error) = bpf::delete_element(self.maps.segments.as_fd(), segment.as_bytes()) {
            log::warn!("cannot remove a segment of a file from the unwind maps: {error}");
        }
    }

    /// Installs mappings, which are sorted by address.
    pub fn add_mappings(&mut self, entries: &[MappingEntry]) -> Result<InstalledMappings, InstallError> {
        let count = u32::try_from(entries.len()).map_err(|_| InstallError::CapacityExceeded)?;
        if count > MAX_MAPPINGS_PER_PROCESS {
            return Err(InstallError::CapacityExceeded);
        }
        let range = match self.free_mappings.allocate(count) {
            Some(range) => range,
            None => {
                self.reclaim()?;
                self.free_mappings.allocate(count).ok_or(InstallError::CapacityExceeded)?
            }
        };
        if let Err(error) = write(&self.maps.mappings, range.start, entries) {
            self.free_mappings.free(range);
            return Err(error.into());
        }
        self.generation = self.generation.wrapping_add(1);
        let flags = entries.iter().fold(0, |flags, entry| flags | entry.flags);
        Ok(InstalledMappings { range, flags, generation: self.generation })
    }

    /// Removes mappings. No process may refer to them any more.
    pub fn remove_mappings(&mut self, mappings: InstalledMappings) {
        if !mappings.range.is_empty() {
            self.retired.mappings.push(mappings.range);
        }
    }

    /// Makes the unwinder capture the stacks of a process, by these mappings.
    pub fn set_process(&mut self, pid: Pid, mappings: &InstalledMappings) -> Result<(), InstallError> {
        let entry = ProcessEntry {
            first_mapping: mappings.range.start,
            mappings: mappings.range.end - mappings.range.start,
            new_mapping_flags: mappings.flags,
            generation: mappings.generation,
            used_ns: monotonic_time().0,
        };
        bpf::update_element(self.maps.processes.as_fd(), &pid.0.to_ne_bytes(), entry.as_bytes())
            .map_err(full_or_io)
    }

    /// The last sample of a process, or its installation.
    pub fn process_last_use(&self, pid: Pid) -> Option<MonotonicTime> {
        let mut entry = ProcessEntry::default();
        let fd = self.maps.processes.as_fd();
        bpf::look_up_element(fd, &pid.0.to_ne_bytes(), entry.as_mut_bytes()).ok()?;
        Some(MonotonicTime(entry.used_ns))
    }

    /// The processes that the unwinder handles. The fork program adds their children.
    pub fn processes(&self) -> io::Result<Vec<Pid>> {
        let mut pids = Vec::new();
        let mut next = [0; size_of::<u32>()];
        // Bound: a pid can appear twice when entries are inserted and removed meanwhile.
        while pids.len() < 2 * MAX_PROCESSES as usize {
            let last = pids.last().map(|pid: &Pid| pid.0.to_ne_bytes());
            let last = last.as_ref().map(<[u8; 4]>::as_slice);
            if !bpf::next_key(self.maps.processes.as_fd(), last, &mut next)? {
                break;
            }
            pids.push(Pid(u32::from_ne_bytes(next)));
        }
        Ok(pids)
    }

    /// Makes `bpf_get_stack` capture the stacks of a process.
    pub fn remove_process(&mut self, pid: Pid) -> Result<(), InstallError> {
        match bpf::delete_element(self.maps.processes.as_fd(), &pid.0.to_ne_bytes()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// The number of a rule, for one file more; a new one is to be written.
    fn rule_id(&mut self, rule: Rule, new: &mut Vec<(u16, Rule)>) -> Result<u16, InstallError> {
        if let Some(id) = self.rule_ids.get(&rule) {
            self.rule_users[usize::from(*id)] += 1;
            return Ok(*id);
        }
        let id = match self.free_rules.pop() {
            Some(id) => id,
            None if self.rule_users.len() < MAX_RULES as usize => {
                self.rule_users.push(0);
                u16::try_from(self.rule_users.len() - 1).map_err(|_| InstallError::CapacityExceeded)?
            }
            None => {
                self.reclaim()?;
                self.free_rules.pop().ok_or(InstallError::CapacityExceeded)?
            }
        };
        new.push((id, rule));
        self.rule_ids.insert(rule, id);
        self.rule_users[usize::from(id)] = 1;
        Ok(id)
    }

    /// Writes new rules, contiguous ids in one write. When a write fails, none of them is registered.
    fn write_rules(&mut self, mut new: Vec<(u16, Rule)>) -> Result<(), InstallError> {
        new.sort_unstable_by_key(|(id, _)| *id);
        let written = new.chunk_by(|(id, _), (next, _)| id + 1 == *next).try_for_each(|run| {
            let rules: Vec<Rule> = run.iter().map(|(_, rule)| *rule).collect();
            write(&self.maps.rules, run.first().map_or(0, |(id, _)| u32::from(*id)), &rules)
        });
        if written.is_err() {
            for (id, rule) in new {
                self.rule_ids.remove(&rule);
                self.free_rules.push(id);
            }
        }
        Ok(written?)
    }

    /// Allocates at least `min` contiguous rows, and up to a whole chunk.
    fn allocate_rows(&mut self, min: u32) -> Result<Rows, InstallError> {
        if let Some(rows) = self.find_rows(min) {
            return Ok(rows);
        }
        if !self.retired.rows.is_empty() {
            self.reclaim()?;
            if let Some(rows) = self.find_rows(min) {
                return Ok(rows);
            }
        }
        self.add_chunks()?;
        self.find_rows(min).ok_or(InstallError::CapacityExceeded)
    }

    fn find_rows(&mut self, min: u32) -> Option<Rows> {
        self.chunks.iter_mut().zip(0..).find_map(|(chunk, index)| {
            let range = chunk.free.allocate_between(min, ROWS_PER_CHUNK)?;
            Some(Rows { chunk: index, range })
        })
    }

    fn free_rows(&mut self, rows: Rows) {
        if let Some(chunk) = self.chunks.get_mut(usize::from(rows.chunk)) {
            chunk.free.free(rows.range);
        }
    }

    fn add_chunks(&mut self) -> Result<(), InstallError> {
        let index = self.chunks.len();
        if index >= ROW_CHUNK_BUDGET {
            return Err(InstallError::CapacityExceeded);
        }
        let arrays = match self.first_chunks.take() {
            Some(first) => first.wait()?,
            None => add_chunks(self.maps.rows.as_fd(), index, CHUNKS_AT_ONCE.min(ROW_CHUNK_BUDGET - index))?,
        };
        let new = |array| Chunk { array, free: FreeRanges::new(ROWS_PER_CHUNK) };
        self.chunks.extend(arrays.into_iter().map(new));
        Ok(())
    }

    /// Waits for an RCU grace period by inserting a chunk, and frees the retired ranges.
    fn reclaim(&mut self) -> Result<(), InstallError> {
        if self.chunks.is_empty() {
            self.add_chunks()?;
        }
        if let Some(chunk) = self.chunks.first() {
            insert_chunk(self.maps.rows.as_fd(), 0, chunk.array.as_fd())?;
        }
        let retired = std::mem::take(&mut self.retired);
        for range in retired.mappings {
            self.free_mappings.free(range);
        }
        for range in retired.pages {
            self.free_pages.free(range);
        }
        for rows in retired.rows {
            self.free_rows(rows);
        }
        let (rule_users, free_rules) = (&self.rule_users, &mut self.free_rules);
        self.rule_ids.retain(|_, id| {
            let is_used = rule_users[usize::from(*id)] > 0;
            if !is_used {
                free_rules.push(*id);
            }
            is_used
        });
        Ok(())
    }
}

/// The error of an update of a hash map.
fn full_or_io(error: io::Error) -> InstallError {
    match error.raw_os_error() {
        Some(libc::E2BIG) => InstallError::CapacityExceeded,
        _ => InstallError::Io(error),
    }
}

impl Rows {
    fn length(&self) -> u32 {
        self.range.end - self.range.start
    }
}

fn write<T: IntoBytes + Immutable>(array: &OwnedFd, index: u32, values: &[T]) -> io::Result<()> {
    bpf_array::write(array.as_fd(), index as usize * size_of::<T>(), values.as_bytes())
}
