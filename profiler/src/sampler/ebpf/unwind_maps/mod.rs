//! The unwind tables in the kernel: what is in which map, and what is free.
//!
//! Programs read these maps while they are written. So a place that was in use is not used again before every program
//! that may still read it has ended (a grace period of RCU), and what leads to a place is written after the place.

#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    io,
    ops::Range,
    os::fd::{AsFd, OwnedFd},
};

use profiler_common::unwind::{
    CHUNK_ROWS, MAX_CHUNKS, MAX_MAPPINGS, MAX_PAGES, MAX_PROCESS_MAPPINGS, MAX_PROCESSES, MAX_RULES,
    MappingEntry, PageEntry, ProcessEntry, Row, Rule,
};
use zerocopy::{Immutable, IntoBytes};

use super::ranges::FreeRanges;
use crate::sys::{
    bpf::{self, MapShape},
    bpf_array,
};

/// Rows take at most this much of the kernel's memory: a whole machine of real programs has some 13 MB.
const MAX_ROW_CHUNKS: usize = 256;
const _: () = assert!(MAX_ROW_CHUNKS <= MAX_CHUNKS as usize);

/// The maps, as the loader created them.
#[derive(Debug)]
pub(super) struct Maps {
    pub(super) processes: OwnedFd,
    pub(super) mappings: OwnedFd,
    pub(super) pages: OwnedFd,
    pub(super) rules: OwnedFd,
    pub(super) chunks: OwnedFd,
}

/// The tables in the kernel.
#[derive(Debug)]
pub(crate) struct UnwindMaps {
    maps: Maps,
    free_mappings: FreeRanges,
    free_pages: FreeRanges,
    chunks: Vec<Chunk>,
    rule_ids: HashMap<Rule, u16>,
    /// How many files use a rule.
    rule_users: Vec<u32>,
    free_rules: Vec<u16>,
    retired: Retired,
}

/// Rows of several files.
#[derive(Debug)]
struct Chunk {
    /// The kernel holds the array as long as it is in the map of chunks.
    array: OwnedFd,
    free: FreeRanges,
}

/// Places that programs may still read.
#[derive(Debug, Default)]
struct Retired {
    mappings: Vec<Range<u32>>,
    pages: Vec<Range<u32>>,
    rows: Vec<Rows>,
}

/// Some rows of one chunk.
#[derive(Clone, Debug)]
struct Rows {
    chunk: u16,
    range: Range<u32>,
}

/// A file's table in the kernel, to be given back to [`UnwindMaps::remove_file`].
#[derive(Debug)]
pub(crate) struct InstalledFile {
    first_page: u32,
    pages: Range<u32>,
    rows: Vec<Rows>,
    rules: Vec<u16>,
}

/// A process's mappings in the kernel, to be given back to [`UnwindMaps::remove_mappings`].
#[derive(Debug)]
pub(crate) struct InstalledMappings(Range<u32>);

/// Why something is not in the kernel.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// There is no room for it.
    #[error("the kernel side has no room for more unwind tables")]
    Full,
    /// The kernel refused.
    #[error("failed to write unwind tables: {0}")]
    Io(#[from] io::Error),
}

impl InstalledFile {
    /// The entry of a mapping of this file.
    pub(crate) fn mapping(&self, start: u64, end: u64, bias: u64) -> MappingEntry {
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

    /// How much of the kernel's memory it takes.
    pub(crate) fn bytes(&self) -> usize {
        let rows: u32 = self.rows.iter().map(Rows::length).sum();
        rows as usize * size_of::<Row>() + self.pages.len() * size_of::<PageEntry>()
    }
}

impl UnwindMaps {
    /// Empty tables in maps that were just created.
    pub(super) fn new(maps: Maps) -> Self {
        Self {
            free_mappings: FreeRanges::new(MAX_MAPPINGS),
            free_pages: FreeRanges::new(MAX_PAGES),
            chunks: Vec::new(),
            rule_ids: HashMap::new(),
            rule_users: Vec::new(),
            free_rules: Vec::new(),
            retired: Retired::default(),
            maps,
        }
    }

    /// Puts a file's table into the kernel. `pages` are the rows of each page from `first_page` on, with `rules` by
    /// their index.
    pub(crate) fn add_file<R: AsRef<[Row]>>(
        &mut self,
        first_page: u32,
        page_count: u32,
        pages: impl Iterator<Item = R>,
        rules: &[Rule],
    ) -> Result<InstalledFile, Refusal> {
        let entries = match self.free_pages.take(page_count) {
            Some(entries) => entries,
            None => {
                self.reclaim()?;
                self.free_pages.take(page_count).ok_or(Refusal::Full)?
            }
        };
        let mut file = InstalledFile { first_page, pages: entries, rows: Vec::new(), rules: Vec::new() };
        match self.fill(&mut file, pages, rules) {
            Ok(()) => Ok(file),
            Err(refusal) => {
                self.remove_file(file);
                Err(refusal)
            }
        }
    }

    fn fill<R: AsRef<[Row]>>(
        &mut self,
        file: &mut InstalledFile,
        pages: impl Iterator<Item = R>,
        rules: &[Rule],
    ) -> Result<(), Refusal> {
        let mut new = Vec::new();
        let known: Result<(), Refusal> = rules.iter().try_for_each(|rule| {
            file.rules.push(self.rule_id(*rule, &mut new)?);
            Ok(())
        });
        self.write_rules(new)?;
        known?;
        let mut space = Rows { chunk: 0, range: 0..0 };
        let mut entries = Vec::with_capacity(file.pages.len());
        let mut together: Vec<Row> = Vec::new();
        for rows in pages.take(file.pages.len()) {
            let rows = rows.as_ref();
            let needed = u32::try_from(rows.len()).map_err(|_| Refusal::Full)?;
            let filled = u32::try_from(together.len()).map_err(|_| Refusal::Full)?;
            if space.length() < filled + needed {
                self.write_rows(file, space, &mut together)?;
                space = self.take_rows(needed)?;
            }
            let first_row = space.range.start + u32::try_from(together.len()).map_err(|_| Refusal::Full)?;
            let rows_entry = u16::try_from(needed).map_err(|_| Refusal::Full)?;
            entries.push(PageEntry { chunk: space.chunk, rows: rows_entry, first_row });
            together.extend(rows.iter().map(|row| {
                let rule = file.rules.get(row.rule() as usize).copied().unwrap_or_default();
                Row::new(row.offset() as u16, rule)
            }));
        }
        self.write_rows(file, space, &mut together)?;
        entries.resize(file.pages.len(), PageEntry::default());
        write(&self.maps.pages, file.pages.start, &entries)?;
        Ok(())
    }

    /// Writes rows at the beginning of a space, notes that part as the file's, and gives the rest back.
    fn write_rows(
        &mut self,
        file: &mut InstalledFile,
        space: Rows,
        rows: &mut Vec<Row>,
    ) -> Result<(), Refusal> {
        let Rows { chunk: index, range } = space;
        let used = range.start..range.start + u32::try_from(rows.len()).map_err(|_| Refusal::Full)?;
        self.give_back_rows(Rows { chunk: index, range: used.end..range.end });
        if let Some(chunk) = self.chunks.get(usize::from(index)).filter(|_| !used.is_empty()) {
            file.rows.push(Rows { chunk: index, range: used.clone() });
            write(&chunk.array, used.start, rows)?;
        }
        rows.clear();
        Ok(())
    }

    /// Takes a file's table out of the kernel. No mapping may lead to it any more.
    pub(crate) fn remove_file(&mut self, file: InstalledFile) {
        self.retired.pages.push(file.pages);
        self.retired.rows.extend(file.rows);
        for id in file.rules {
            if let Some(users) = self.rule_users.get_mut(usize::from(id)) {
                *users = users.saturating_sub(1);
            }
        }
    }

    /// Puts mappings, sorted by address, into the kernel.
    pub(crate) fn add_mappings(&mut self, entries: &[MappingEntry]) -> Result<InstalledMappings, Refusal> {
        let count = u32::try_from(entries.len()).map_err(|_| Refusal::Full)?;
        if count > MAX_PROCESS_MAPPINGS {
            return Err(Refusal::Full);
        }
        let range = match self.free_mappings.take(count) {
            Some(range) => range,
            None => {
                self.reclaim()?;
                self.free_mappings.take(count).ok_or(Refusal::Full)?
            }
        };
        if let Err(error) = write(&self.maps.mappings, range.start, entries) {
            self.free_mappings.give_back(range);
            return Err(error.into());
        }
        Ok(InstalledMappings(range))
    }

    /// Takes mappings out of the kernel. No process may lead to them any more.
    pub(crate) fn remove_mappings(&mut self, mappings: InstalledMappings) {
        if !mappings.0.is_empty() {
            self.retired.mappings.push(mappings.0);
        }
    }

    /// Walks the stacks of a process through these mappings from now on.
    pub(crate) fn set_process(&mut self, pid: u32, mappings: &InstalledMappings) -> Result<(), Refusal> {
        let entry =
            ProcessEntry { first_mapping: mappings.0.start, mappings: mappings.0.end - mappings.0.start };
        bpf::update_element(self.maps.processes.as_fd(), &pid.to_ne_bytes(), entry.as_bytes()).map_err(
            |error| match error.raw_os_error() {
                Some(libc::E2BIG) => Refusal::Full,
                _ => Refusal::Io(error),
            },
        )
    }

    /// The processes whose stacks are walked by tables. The kernel side adds those that are forked from one.
    pub(crate) fn processes(&self) -> io::Result<Vec<u32>> {
        let mut pids = Vec::new();
        let mut next = [0; size_of::<u32>()];
        // Bound: some may be seen again when others come and go meanwhile.
        while pids.len() < 2 * MAX_PROCESSES as usize {
            let last = pids.last().map(|pid: &u32| pid.to_ne_bytes());
            let last = last.as_ref().map(<[u8; 4]>::as_slice);
            if !bpf::next_key(self.maps.processes.as_fd(), last, &mut next)? {
                break;
            }
            pids.push(u32::from_ne_bytes(next));
        }
        Ok(pids)
    }

    /// Leaves the stacks of a process to the kernel's own walk from now on.
    pub(crate) fn remove_process(&mut self, pid: u32) -> Result<(), Refusal> {
        match bpf::delete_element(self.maps.processes.as_fd(), &pid.to_ne_bytes()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// The number of a rule, for one file more; a new one is to be written.
    fn rule_id(&mut self, rule: Rule, new: &mut Vec<(u16, Rule)>) -> Result<u16, Refusal> {
        if let Some(id) = self.rule_ids.get(&rule) {
            self.rule_users[usize::from(*id)] += 1;
            return Ok(*id);
        }
        let id = match self.free_rules.pop() {
            Some(id) => id,
            None if self.rule_users.len() < MAX_RULES as usize => {
                self.rule_users.push(0);
                u16::try_from(self.rule_users.len() - 1).map_err(|_| Refusal::Full)?
            }
            None => {
                self.reclaim()?;
                self.free_rules.pop().ok_or(Refusal::Full)?
            }
        };
        new.push((id, rule));
        self.rule_ids.insert(rule, id);
        self.rule_users[usize::from(id)] = 1;
        Ok(id)
    }

    /// Writes new rules, those with neighbouring numbers at once. When it fails, none of them is known.
    fn write_rules(&mut self, mut new: Vec<(u16, Rule)>) -> Result<(), Refusal> {
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

    /// Room for at least `least` rows, as many as stand together.
    fn take_rows(&mut self, least: u32) -> Result<Rows, Refusal> {
        if let Some(rows) = self.find_rows(least) {
            return Ok(rows);
        }
        if !self.retired.rows.is_empty() {
            self.reclaim()?;
            if let Some(rows) = self.find_rows(least) {
                return Ok(rows);
            }
        }
        self.add_chunk()?;
        self.find_rows(least).ok_or(Refusal::Full)
    }

    fn find_rows(&mut self, least: u32) -> Option<Rows> {
        self.chunks.iter_mut().zip(0..).find_map(|(chunk, index)| {
            let range = chunk.free.take_between(least, CHUNK_ROWS)?;
            Some(Rows { chunk: index, range })
        })
    }

    fn give_back_rows(&mut self, rows: Rows) {
        if let Some(chunk) = self.chunks.get_mut(usize::from(rows.chunk)) {
            chunk.free.give_back(rows.range);
        }
    }

    fn add_chunk(&mut self) -> Result<(), Refusal> {
        let index = self.chunks.len();
        if index >= MAX_ROW_CHUNKS {
            return Err(Refusal::Full);
        }
        let array = create_chunk()?;
        self.show_chunk(index, &array)?;
        self.chunks.push(Chunk { array, free: FreeRanges::new(CHUNK_ROWS) });
        Ok(())
    }

    fn show_chunk(&self, index: usize, array: &OwnedFd) -> io::Result<()> {
        use std::os::fd::AsRawFd;
        let key = u32::try_from(index).map_err(io::Error::other)?;
        let value = array.as_raw_fd().to_ne_bytes();
        bpf::update_element(self.maps.chunks.as_fd(), &key.to_ne_bytes(), &value)
    }

    /// Waits until no program reads what was retired, and frees it.
    ///
    /// An update of a map of maps returns after a grace period (`maybe_wait_bpf_programs`, `kernel/bpf/syscall.c`).
    fn reclaim(&mut self) -> Result<(), Refusal> {
        match self.chunks.first() {
            Some(chunk) => self.show_chunk(0, &chunk.array)?,
            None => self.add_chunk()?,
        }
        let retired = std::mem::take(&mut self.retired);
        for range in retired.mappings {
            self.free_mappings.give_back(range);
        }
        for range in retired.pages {
            self.free_pages.give_back(range);
        }
        for rows in retired.rows {
            self.give_back_rows(rows);
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

impl Rows {
    fn length(&self) -> u32 {
        self.range.end - self.range.start
    }
}

/// One array of rows. All are created alike, or the kernel does not take them into one map.
pub(super) fn create_chunk() -> io::Result<OwnedFd> {
    /// `BPF_MAP_TYPE_ARRAY`, `BPF_F_MMAPABLE` of `include/uapi/linux/bpf.h`.
    const MAP_TYPE_ARRAY: u32 = 2;
    const MAPPABLE: u32 = 1 << 10;
    let shape = MapShape {
        map_type: MAP_TYPE_ARRAY,
        key_bytes: 4,
        value_bytes: CHUNK_ROWS * size_of::<Row>() as u32,
        max_entries: 1,
        flags: MAPPABLE,
    };
    bpf::create_map("ROWS", shape, None)
}

fn write<T: IntoBytes + Immutable>(array: &OwnedFd, index: u32, values: &[T]) -> io::Result<()> {
    bpf_array::write(array.as_fd(), index as usize * size_of::<T>(), values.as_bytes())
}
