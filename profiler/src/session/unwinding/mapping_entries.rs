//! Makes the mapping entries of a process that the BPF program reads, with the unwind tables of the mapped files.

use std::{
    collections::{BTreeSet, HashMap},
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use profiler_addresses::{MonotonicTime, RuntimeAddress};
use profiler_common::unwind::{MappingEntry, MappingFlags};
use profiler_processes::{AddressSpace, Backing, FileId, Mapping};
use profiler_sampler::UnwindMaps;
use profiler_symbolize::{JitCallFrames, JitFunctionFrames};

use super::{
    cached_table::CachedTable,
    cached_table::TableKey,
    table_cache::{TableCache, TableOwner},
};

/// The time after which finished tables are installed before the remaining ones are built, and after which new changes
/// are applied: a program maps more files while it starts.
pub(super) const INSTALL_INTERVAL: Duration = Duration::from_millis(20);

/// The tables of the files that a process maps.
#[derive(Clone, Debug, Default)]
pub(super) struct FileTables {
    tables: HashMap<FileId, CachedTable>,
    as_of: MonotonicTime,
    /// The call frame information of JIT code, in ascending order.
    jit_functions: Arc<[JitFunctionFrames]>,
    /// [`JitCallFrames::as_of`]; `None` without such information.
    jit_code_as_of: Option<MonotonicTime>,
    /// Their tables, by the mapping.
    jit_tables: HashMap<Range<RuntimeAddress>, CachedTable>,
}

/// Mapping entries to install.
#[derive(Debug, Default)]
pub(super) struct Entries {
    pub(super) entries: Vec<MappingEntry>,
    /// The tables that the entries refer to, with a reference each.
    pub(super) tables: Vec<TableKey>,
    /// Whether the tables of all files have been built, or have failed.
    pub(super) is_complete: bool,
    /// When a table that failed is built again.
    pub(super) retry_at: Option<Instant>,
}

impl FileTables {
    /// Forgets the files that were mapped since the last call: they may have been modified since their table was built.
    pub(super) fn forget_changed(&mut self, mappings: &AddressSpace, as_of: MonotonicTime) {
        for mapping in mappings.current_since(self.as_of) {
            if let Backing::File { id, .. } = &mapping.backing {
                self.tables.remove(id);
            }
        }
        self.as_of = as_of;
    }

    /// Replaces the call frame information of JIT code.
    pub(super) fn set_jit_call_frames(&mut self, JitCallFrames { functions, as_of }: JitCallFrames) {
        self.jit_functions = functions.into();
        self.jit_code_as_of = Some(as_of);
        self.jit_tables.clear();
    }

    /// The time of the call frame information of JIT code.
    pub(super) fn jit_code_as_of(&self) -> Option<MonotonicTime> {
        self.jit_code_as_of
    }

    /// Forgets the tables of the mappings in which JIT code begins at these addresses.
    pub(super) fn forget_jit_tables(&mut self, starts: impl Iterator<Item = RuntimeAddress>) {
        let starts: BTreeSet<RuntimeAddress> = starts.collect();
        self.jit_tables.retain(|memory, _| starts.range(memory.clone()).next().is_none());
    }

    /// The entries of mappings. After [`INSTALL_INTERVAL`] no further table of a file is built. A table that failed is built again if
    /// its back-off had passed at `due`.
    pub(super) fn entries(
        &mut self,
        tables: &mut TableCache,
        maps: &mut UnwindMaps,
        owner: TableOwner<'_>,
        mappings: &AddressSpace,
        due: Instant,
        stop: &dyn Fn() -> bool,
    ) -> Entries {
        let mut known = std::mem::take(&mut self.tables);
        let mut known_jit = std::mem::take(&mut self.jit_tables);
        known.retain(|_, table| table.key().is_none_or(|key| tables.contains(key)));
        known_jit.retain(|_, table| table.key().is_none_or(|key| tables.contains(key)));
        let mut result = Entries { is_complete: true, ..Entries::default() };
        let (begin, mut built_tables) = (Instant::now(), 0);
        for mapping in mappings.current().filter(|mapping| is_unwound(mapping)) {
            let mut flags = 0;
            let table = match &mapping.backing {
                Backing::File { id, .. } => {
                    // Files that are no longer mapped are dropped.
                    let previous = self.tables.get(id).or_else(|| known.get(id)).copied();
                    let cached = previous.filter(|table| !table.must_retry(due));
                    let is_late = built_tables > 0 && begin.elapsed() >= INSTALL_INTERVAL;
                    result.is_complete &= cached.is_some() || !is_late;
                    let table = match cached {
                        None if is_late || stop() => previous,
                        None => {
                            built_tables += 1;
                            Some(tables.table_for_mapping(maps, owner, mapping, previous, stop))
                        }
                        cached => cached,
                    };
                    self.tables.extend(table.map(|table| (*id, table)));
                    table
                }
                Backing::Vdso => Some(tables.vdso(maps, stop)),
                Backing::Jit | Backing::DotnetJit => {
                    let memory = mapping.start..mapping.end;
                    let functions = functions_in(&self.jit_functions, mapping);
                    let is_managed =
                        functions.is_empty() && owner.managed_functions(&memory).next().is_some();
                    if is_managed {
                        // Methods that were not sampled yet, and code that can be freed, have no rows.
                        flags = MappingFlags::SCAN_EPILOGUES;
                    }
                    let table = match known_jit.get(&memory).filter(|table| !table.must_retry(due)) {
                        Some(table) => Some(*table),
                        None if is_managed => Some(tables.managed_code(maps, owner, mapping, stop)),
                        None if functions.is_empty() => None,
                        None => Some(tables.jit_code(maps, owner, mapping, functions, stop)),
                    };
                    self.jit_tables.extend(table.map(|table| (memory, table)));
                    table
                }
                Backing::Special(_) => None,
            };
            let retry_at = table.and_then(CachedTable::retry_at);
            result.retry_at = result.retry_at.into_iter().chain(retry_at).min();
            let key = table.and_then(CachedTable::key);
            let entry = key.and_then(|key| tables.mapping_entry(key, mapping));
            if let (Some(key), Some(_)) = (key, entry) {
                tables.retain(key);
                result.tables.push(key);
            }
            let entry = entry.map(|entry| MappingEntry { flags, ..entry });
            push_merged(&mut result.entries, entry.unwrap_or_else(|| without_table(mapping)));
        }
        if result.tables.iter().any(|key| tables.is_managed(*key)) {
            // A process with precompiled .NET code has JIT code as well.
            let jit_code = result.entries.iter_mut().filter(|entry| entry.pages == 0);
            jit_code.for_each(|entry| entry.flags |= MappingFlags::SCAN_EPILOGUES);
        }
        result
    }

    /// The number of files.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.tables.len()
    }
}

/// Whether the BPF unwinder unwinds a mapping; `[vsyscall]` is in the kernel's half of the address space.
fn is_unwound(mapping: &Mapping) -> bool {
    mapping.start < RuntimeAddress::KERNEL_START
}

/// The functions that begin in a mapping.
fn functions_in<'a>(functions: &'a [JitFunctionFrames], mapping: &Mapping) -> &'a [JitFunctionFrames] {
    let first = functions.partition_point(|function| function.code.start < mapping.start);
    let end = functions.partition_point(|function| function.code.start < mapping.end);
    functions.get(first..end).unwrap_or_default()
}

fn without_table(mapping: &Mapping) -> MappingEntry {
    MappingEntry { start: mapping.start.0, end: mapping.end.0, ..MappingEntry::default() }
}

/// Adds an entry. Adjacent entries without a table are merged, because runtimes map JIT code in many small pieces.
fn push_merged(entries: &mut Vec<MappingEntry>, entry: MappingEntry) {
    match entries.last_mut() {
        Some(last) if last.end == entry.start && last.pages == 0 && entry.pages == 0 => last.end = entry.end,
        _ => entries.push(entry),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(start: u64, end: u64, pages: u32) -> MappingEntry {
        MappingEntry { start, end, pages, ..MappingEntry::default() }
    }

    #[test]
    fn adjacent_mappings_without_a_table_are_one_entry() {
        let mut entries = Vec::new();
        for piece in [
            entry(0x1000, 0x2000, 0),
            entry(0x2000, 0x3000, 0),
            entry(0x3000, 0x4000, 1),
            entry(0x4000, 0x5000, 0),
            entry(0x6000, 0x7000, 0),
        ] {
            push_merged(&mut entries, piece);
        }
        let expected = [
            entry(0x1000, 0x3000, 0),
            entry(0x3000, 0x4000, 1),
            entry(0x4000, 0x5000, 0),
            entry(0x6000, 0x7000, 0),
        ];
        assert_eq!(entries, expected);
    }
}
