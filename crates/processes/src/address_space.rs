//! The executable mappings of an address space over time.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use profiler_addresses::{FileOffset, MonotonicTime, RuntimeAddress};

use crate::{Backing, Mapping};

/// Current mappings per address space. Large processes have some thousands. The limit bounds the profiler's memory when
/// a target creates mappings without end.
const MAX_MAPPINGS: usize = 128 * 1024;

/// Replaced mappings per address space. Samples that are older than the replacement need them. The oldest are discarded
/// first.
const MAX_REPLACED_MAPPINGS: usize = 16 * 1024;

/// Executable mappings by address, each with the time from which it is valid.
///
/// A clone is cheap: a forked child shares the mappings of its parent until one of them changes (copy-on-write).
#[derive(Clone, Debug, Default)]
pub struct AddressSpace {
    current: Arc<BTreeMap<RuntimeAddress, CurrentMapping>>,
    /// Sorted by `until`.
    replaced: Arc<Vec<ReplacedMapping>>,
    /// Number of replaced mappings that were discarded.
    discarded: usize,
    version: u64,
}

#[derive(Clone, Debug)]
struct CurrentMapping {
    since: MonotonicTime,
    mapping: Arc<Mapping>,
}

#[derive(Clone, Debug)]
struct ReplacedMapping {
    since: MonotonicTime,
    until: MonotonicTime,
    mapping: Arc<Mapping>,
}

impl AddressSpace {
    /// An address space that has had these mappings since it was created.
    pub fn from_snapshot(mappings: Vec<Mapping>) -> Self {
        let mut space = Self::default();
        for mapping in mappings {
            space.insert(mapping, MonotonicTime::ZERO);
        }
        space
    }

    /// Adds a mapping that is valid from `since` on and replaces what it overlaps. Returns false when the address
    /// space has too many mappings.
    pub fn insert(&mut self, mapping: Mapping, since: MonotonicTime) -> bool {
        if self.current.get(&mapping.start).is_some_and(|current| *current.mapping == mapping) {
            return true;
        }
        if self.current.len() >= MAX_MAPPINGS {
            return false;
        }
        self.replace_range(mapping.start, mapping.end, since);
        let timed = CurrentMapping { since, mapping: Arc::new(mapping) };
        self.version += 1;
        Arc::make_mut(&mut self.current).insert(timed.mapping.start, timed);
        true
    }

    /// Whether it has one of the mapped files of another address space, at the same address.
    pub(crate) fn shares_mapping(&self, other: &Self) -> bool {
        let is_equal = |timed: &CurrentMapping| {
            let is_file = matches!(timed.mapping.backing, Backing::File { .. });
            is_file
                && other.current.get(&timed.mapping.start).is_some_and(|equal| equal.mapping == timed.mapping)
        };
        self.current.values().any(is_equal)
    }

    /// Replaces the current mappings by those of `later`, which were read at some time in `read_during`; what changed
    /// meanwhile is known from events. A mapping that no event reported is taken for an old one, unless it replaces
    /// another.
    pub(crate) fn reconcile(&mut self, later: &Self, read_during: Range<MonotonicTime>) {
        let is_gone = |timed: &&CurrentMapping| {
            let found = later.find(timed.mapping.start, MonotonicTime::MAX);
            timed.since < read_during.start && found.is_none_or(|mapping| mapping.end < timed.mapping.end)
        };
        let gone: Vec<_> = self.current.values().filter(is_gone).cloned().collect();
        let mut replaced = Vec::new();
        for timed in gone {
            self.replace_range(timed.mapping.start, timed.mapping.end, read_during.end);
            replaced.push(timed.mapping.start..timed.mapping.end);
        }
        for mapping in later.current() {
            let overlaps =
                |range: &Range<RuntimeAddress>| mapping.start < range.end && range.start < mapping.end;
            let is_new = replaced.iter().any(overlaps);
            match self.newest_overlapping(mapping) {
                Some(since) if since >= read_during.start => {}
                Some(_) => _ = self.insert(mapping.clone(), read_during.end),
                None => {
                    let since = if is_new { read_during.end } else { MonotonicTime::ZERO };
                    self.insert(mapping.clone(), since);
                }
            }
        }
    }

    /// Whether a file is mapped at the place of a mapping.
    pub(crate) fn has_file_at(&self, mapping: &Mapping) -> bool {
        let before_end = self.current.range(..mapping.end).rev().map(|(_, timed)| &timed.mapping);
        let mut overlapping = before_end.take_while(|other| other.end > mapping.start);
        overlapping.any(|other| matches!(other.backing, Backing::File { .. }))
    }

    /// The time of the newest current mapping that overlaps another one.
    fn newest_overlapping(&self, mapping: &Mapping) -> Option<MonotonicTime> {
        let before_end = self.current.range(..mapping.end).rev().map(|(_, timed)| timed);
        let overlapping = before_end.take_while(|timed| timed.mapping.end > mapping.start);
        overlapping.map(|timed| timed.since).max()
    }

    /// The mapping that contains an address at a time.
    pub fn find(&self, address: RuntimeAddress, time: MonotonicTime) -> Option<&Arc<Mapping>> {
        let current = self.current.range(..=address).next_back().map(|(_, timed)| timed);
        let current = current.filter(|timed| timed.mapping.contains(address));
        if let Some(timed) = current.filter(|timed| timed.since <= time) {
            return Some(&timed.mapping);
        }
        let later = self.replaced.partition_point(|old| old.until <= time);
        let older =
            self.replaced[later..].iter().find(|old| old.mapping.contains(address) && old.since <= time);
        // The event can be slightly later than the first sample in the new mapping.
        older.map(|old| &old.mapping).or(current.map(|timed| &timed.mapping))
    }

    /// The generation of the mappings at a time: [`find`](Self::find) has the same result for all times of a generation.
    /// It counts the mappings that were replaced before that time. A mapping that replaces nothing does not begin a
    /// generation, because it is also valid for older samples.
    pub fn generation(&self, time: MonotonicTime) -> usize {
        self.discarded + self.replaced.partition_point(|old| old.until <= time)
    }

    /// Drops the mappings that were replaced by a time. Only later times are looked up from now on.
    pub(crate) fn retire_replaced(&mut self, until: MonotonicTime) {
        let count = self.replaced.partition_point(|old| old.until <= until);
        if count > 0 {
            self.discarded += Arc::make_mut(&mut self.replaced).drain(..count).len();
        }
    }

    /// The number of changes so far. Equal versions of one process have equal mappings.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The current mappings that are valid from `since` on or later, by address.
    pub fn current_since(&self, since: MonotonicTime) -> impl Iterator<Item = &Mapping> {
        let later = self.current.values().filter(move |timed| timed.since >= since);
        later.map(|timed| &*timed.mapping)
    }

    /// Whether the mapping of a file that contained an address was replaced after the start of an interval, and until its
    /// end.
    pub fn was_file_replaced(&self, address: RuntimeAddress, during: Range<MonotonicTime>) -> bool {
        self.files_replaced(during).any(|mapping| mapping.contains(address))
    }

    /// Whether mappings of files were replaced after the start of an interval, and until its end.
    pub fn were_files_replaced(&self, during: Range<MonotonicTime>) -> bool {
        self.files_replaced(during).next().is_some()
    }

    fn files_replaced(&self, during: Range<MonotonicTime>) -> impl Iterator<Item = &Mapping> {
        let first = self.replaced.partition_point(|old| old.until <= during.start);
        let replaced = self.replaced[first..].iter().take_while(move |old| old.until <= during.end);
        let files = replaced.filter(|old| matches!(old.mapping.backing, Backing::File { .. }));
        files.map(|old| &*old.mapping)
    }

    /// The current mappings, by address.
    pub fn current(&self) -> impl Iterator<Item = &Mapping> {
        self.current.values().map(|timed| &*timed.mapping)
    }

    /// Cuts `start..end` out of the current mappings and keeps the previous mappings for older samples.
    fn replace_range(&mut self, start: RuntimeAddress, end: RuntimeAddress, now: MonotonicTime) {
        let overlapping: Vec<CurrentMapping> = self
            .current
            .range(..end)
            .rev()
            .take_while(|(_, timed)| timed.mapping.end > start)
            .map(|(_, timed)| timed.clone())
            .collect();
        if overlapping.is_empty() {
            return;
        }
        self.version += 1;
        let current = Arc::make_mut(&mut self.current);
        let replaced = Arc::make_mut(&mut self.replaced);
        for timed in overlapping {
            current.remove(&timed.mapping.start);
            for part in remainders(&timed.mapping, start, end) {
                current.insert(part.start, CurrentMapping { since: timed.since, mapping: Arc::new(part) });
            }
            if replaced.len() >= MAX_REPLACED_MAPPINGS {
                self.discarded += replaced.drain(..MAX_REPLACED_MAPPINGS / 2).len();
            }
            // Events arrive in time order: the list stays sorted.
            replaced.push(ReplacedMapping { since: timed.since, until: now, mapping: timed.mapping });
        }
    }
}

/// The parts of a mapping before and after `start..end`.
fn remainders(mapping: &Mapping, start: RuntimeAddress, end: RuntimeAddress) -> Vec<Mapping> {
    let mut parts = Vec::new();
    if mapping.start < start {
        parts.push(Mapping { end: start, ..mapping.clone() });
    }
    if end < mapping.end {
        let skipped = end.0 - mapping.start.0;
        let offset = FileOffset(mapping.offset.0.saturating_add(skipped));
        parts.push(Mapping { start: end, offset, ..mapping.clone() });
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FileId;

    fn mapping(start: u64, end: u64, inode: u64) -> Mapping {
        let id = FileId { major: 1, minor: 2, inode };
        Mapping {
            start: RuntimeAddress(start),
            end: RuntimeAddress(end),
            offset: FileOffset(0x1000),
            backing: Backing::File { id, path: format!("/lib/{inode}").into() },
        }
    }

    fn inode(space: &AddressSpace, address: u64, time_ns: u64) -> Option<u64> {
        space.find(RuntimeAddress(address), MonotonicTime(time_ns)).map(|mapping| match &mapping.backing {
            Backing::File { id, .. } => id.inode,
            _ => 0,
        })
    }

    #[test]
    fn an_address_belongs_to_the_mapping_that_contains_it() {
        let space = AddressSpace::from_snapshot(vec![mapping(0x1000, 0x2000, 1), mapping(0x3000, 0x4000, 2)]);
        assert_eq!(inode(&space, 0xfff, 0), None);
        assert_eq!(inode(&space, 0x1000, 0), Some(1));
        assert_eq!(inode(&space, 0x1fff, 0), Some(1));
        assert_eq!(inode(&space, 0x2000, 0), None);
        assert_eq!(inode(&space, 0x3abc, 0), Some(2));
    }

    #[test]
    fn a_sample_sees_the_mapping_of_its_own_time() {
        let mut space = AddressSpace::from_snapshot(vec![mapping(0x1000, 0x3000, 1)]);
        space.insert(mapping(0x1000, 0x3000, 2), MonotonicTime(100));
        space.insert(mapping(0x1000, 0x3000, 3), MonotonicTime(200));
        assert_eq!(inode(&space, 0x2000, 99), Some(1));
        assert_eq!(inode(&space, 0x2000, 100), Some(2));
        assert_eq!(inode(&space, 0x2000, 199), Some(2));
        assert_eq!(inode(&space, 0x2000, 200), Some(3));
        assert_eq!([0, 100, 150, 200].map(|time| space.generation(MonotonicTime(time))), [0, 1, 1, 2]);
    }

    #[test]
    fn a_new_mapping_replaces_the_part_of_an_old_one_that_it_covers() {
        let mut space = AddressSpace::from_snapshot(vec![mapping(0x1000, 0x9000, 1)]);
        space.insert(mapping(0x3000, 0x5000, 2), MonotonicTime(10));
        assert_eq!(inode(&space, 0x2fff, 20), Some(1));
        assert_eq!(inode(&space, 0x3000, 20), Some(2));
        assert_eq!(inode(&space, 0x4fff, 5), Some(1));
        assert_eq!(inode(&space, 0x5000, 20), Some(1));
        let right = space.find(RuntimeAddress(0x5000), MonotonicTime(20)).unwrap();
        assert_eq!((right.start, right.offset), (RuntimeAddress(0x5000), FileOffset(0x5000)));
    }

    #[test]
    fn one_mapping_over_many_replaces_them_all() {
        let mut space =
            AddressSpace::from_snapshot((1..9).map(|i| mapping(i << 12, (i + 1) << 12, i)).collect());
        space.insert(mapping(0x2800, 0x5800, 99), MonotonicTime(10));
        assert_eq!(inode(&space, 0x27ff, 20), Some(2));
        assert_eq!(inode(&space, 0x4000, 20), Some(99));
        assert_eq!(inode(&space, 0x5800, 20), Some(5));
    }

    #[test]
    fn inserting_the_same_mapping_again_changes_nothing() {
        let mut space = AddressSpace::from_snapshot(vec![mapping(0x1000, 0x2000, 1)]);
        assert!(space.insert(mapping(0x1000, 0x2000, 1), MonotonicTime(50)));
        assert_eq!(space.generation(MonotonicTime::MAX), 0);
    }

    #[test]
    fn a_mapping_is_valid_for_samples_that_are_slightly_older_than_its_event() {
        let mut space = AddressSpace::default();
        space.insert(mapping(0x1000, 0x2000, 1), MonotonicTime(100));
        assert_eq!(inode(&space, 0x1000, 99), Some(1));
    }

    #[test]
    fn a_later_snapshot_replaces_what_differs() {
        let mut space = AddressSpace::from_snapshot(vec![
            mapping(0x1000, 0x2000, 1),
            mapping(0x3000, 0x4000, 2),
            mapping(0x5000, 0x7000, 3),
        ]);
        let later = AddressSpace::from_snapshot(vec![
            mapping(0x1000, 0x2000, 1),
            mapping(0x3000, 0x4000, 9),
            mapping(0x5000, 0x6000, 3),
        ]);
        assert!(space.shares_mapping(&later));
        space.reconcile(&later, MonotonicTime(90)..MonotonicTime(100));
        let inodes =
            |time_ns| [0x1000, 0x3000, 0x5000, 0x6000].map(|address| inode(&space, address, time_ns));
        assert_eq!(inodes(99), [Some(1), Some(2), Some(3), Some(3)]);
        assert_eq!(inodes(100), [Some(1), Some(9), Some(3), None]);
        assert_eq!(space.generation(MonotonicTime(100)) - space.generation(MonotonicTime(99)), 2);
        assert!(!space.shares_mapping(&AddressSpace::from_snapshot(vec![mapping(0x1000, 0x2000, 5)])));
    }

    #[test]
    fn what_was_mapped_while_a_snapshot_was_read_stays() {
        let mut space =
            AddressSpace::from_snapshot(vec![mapping(0x1000, 0x2000, 1), mapping(0x3000, 0x4000, 2)]);
        let later = space.clone();
        space.insert(mapping(0x3000, 0x4000, 9), MonotonicTime(95));
        space.insert(mapping(0x5000, 0x6000, 3), MonotonicTime(95));
        space.reconcile(&later, MonotonicTime(90)..MonotonicTime(100));
        let inodes = [0x1000, 0x3000, 0x5000].map(|address| inode(&space, address, 100));
        assert_eq!(inodes, [Some(1), Some(9), Some(3)]);
    }

    #[test]
    fn a_clone_does_not_see_later_changes() {
        let mut parent = AddressSpace::from_snapshot(vec![mapping(0x1000, 0x2000, 1)]);
        let child = parent.clone();
        parent.insert(mapping(0x1000, 0x2000, 2), MonotonicTime(10));
        assert_eq!(inode(&child, 0x1000, 20), Some(1));
        assert_eq!(inode(&parent, 0x1000, 20), Some(2));
    }

    #[test]
    fn the_number_of_mappings_is_limited() {
        let mut space = AddressSpace::default();
        for i in 0..(MAX_MAPPINGS as u64 + 100) {
            space.insert(mapping(i << 12, (i << 12) + 0x800, 1), MonotonicTime(i));
        }
        assert_eq!(space.current().count(), MAX_MAPPINGS);
    }

    #[test]
    fn mappings_that_were_replaced_before_a_time_are_retired_and_generations_go_on() {
        let mut space = AddressSpace::default();
        for time in 0..10 {
            space.insert(mapping(0x1000, 0x2000, time), MonotonicTime(10 * time));
        }
        let generations = [60, 90].map(|time| space.generation(MonotonicTime(time)));
        space.retire_replaced(MonotonicTime(50));
        assert_eq!(space.replaced.len(), 4);
        assert_eq!([60, 90].map(|time| space.generation(MonotonicTime(time))), generations);
        assert_eq!([65, 95].map(|time| inode(&space, 0x1000, time)), [Some(6), Some(9)]);
    }

    #[test]
    fn the_number_of_replaced_mappings_is_limited_and_the_latest_are_kept() {
        let mut space = AddressSpace::default();
        for time in 0..(MAX_REPLACED_MAPPINGS as u64 + 100) {
            space.insert(mapping(0x1000, 0x1800, time), MonotonicTime(time));
        }
        assert!(space.replaced.len() <= MAX_REPLACED_MAPPINGS);
        let last = MAX_REPLACED_MAPPINGS as u64 + 99;
        assert_eq!(inode(&space, 0x1000, last - 1), Some(last - 1));
        assert_eq!(space.generation(MonotonicTime(last)), space.generation(MonotonicTime(last - 1)) + 1);
    }
}
