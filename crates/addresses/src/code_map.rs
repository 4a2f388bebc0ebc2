//! Maps addresses and times to code: JIT runtimes free code and reuse its addresses.
//!
//! ```text
//!  time ^            +-----C-----+            pieces:    0    2    4    6    9
//!       |       +----B----+      :            newest:    A    B    C    C    -
//!       |  +----A----+    :      :            before:    -    A    B,A  -
//!       +--0----2----4----6------9--> address
//! ```
//!
//! The bounds of entries divide the address space into pieces. Each piece has a chain of versions, newest first: the
//! entries that cover it, each valid until the next one begins. Of entries that begin at the same time, only the last
//! one is kept.

use std::collections::{BTreeMap, HashMap};

use crate::MonotonicTime;

/// Entries per map. The largest .NET programs write a hundred thousand, all tiers included.
const MAX_ENTRIES: usize = 1 << 18;

/// Versions of all pieces. An entry in free space adds one. An entry over older ones adds one for each piece that it
/// covers, so a few entries over all others would multiply without a limit.
const MAX_VERSIONS: usize = 2 * MAX_ENTRIES;

/// Assumed size of an entry of unknown size that no other entry follows.
const MAX_UNKNOWN_SIZE_BYTES: u64 = 64 << 10;

/// Fewer replaced versions are not worth a copy of the map.
const MIN_RETIRED_VERSIONS: usize = 4096;

/// Memory of a piece in the tree: key and value, with a third of each node empty.
const PIECE_BYTES: usize = 24;

/// No version: the end of a chain.
const NONE: u32 = u32::MAX;

/// Entries by address and time, each with a payload.
#[derive(Debug)]
pub struct CodeMap<T> {
    /// All entries in the order in which they were added.
    entries: Vec<Entry<T>>,
    versions: Vec<Version>,
    /// The newest version of each piece by its start address. A piece ends with the entry of that version, or where the
    /// next piece starts.
    pieces: BTreeMap<u64, u32>,
    /// Times at which an entry replaced another one, ascending and distinct.
    replacement_times: Vec<MonotonicTime>,
    /// The epoch before the first replacement.
    first_epoch: u32,
    /// The time from which on the newest entry exists.
    newest_time: MonotonicTime,
    /// Whether a limit was reached. No entry is added afterwards, because each check would cost as much as an insertion.
    is_full: bool,
}

/// Code at an address from a time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<T> {
    /// Its first address.
    pub start: u64,
    /// The address after its last one. Equal to `start` if the size is unknown.
    pub end: u64,
    /// The time from which on it exists.
    pub exists_from: MonotonicTime,
    /// The data of the source.
    pub payload: T,
}

/// An entry that was found out later than others.
#[derive(Clone, Copy, Debug)]
pub struct LateEntry<T> {
    /// As in [`Entry`].
    pub start: u64,
    /// The number of its bytes, 0 if unknown.
    pub size: u64,
    /// As in [`Entry`].
    pub exists_from: MonotonicTime,
    /// As in [`Entry`].
    pub payload: T,
}

/// One version in the chain of a piece. `jump` skips several versions, so that a chain is searched in logarithmic time
/// (Myers, "An applicative random-access stack").
#[derive(Clone, Copy, Debug)]
struct Version {
    entry: u32,
    older: u32,
    jump: u32,
    depth: u32,
}

/// Why an entry was not inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InsertError {
    /// It extends beyond the last address.
    Wraps,
    /// The map is full.
    Full,
}

impl<T> Entry<T> {
    /// The address after the last one that certainly belongs to the entry: one of unknown size has its first byte.
    fn covered_end(&self) -> u64 {
        self.end.max(self.start.saturating_add(1))
    }

    fn has_unknown_size(&self) -> bool {
        self.end == self.start
    }
}

impl<T> Default for CodeMap<T> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            versions: Vec::new(),
            pieces: BTreeMap::new(),
            replacement_times: Vec::new(),
            first_epoch: 0,
            newest_time: MonotonicTime::ZERO,
            is_full: false,
        }
    }
}

impl<T> CodeMap<T> {
    /// Inserts an entry at `start..start + size` that exists from `exists_from` on.
    ///
    /// Entries are inserted in the order in which they were written. An entry with an earlier time than the one before it
    /// gets the time of that one.
    pub fn insert(
        &mut self,
        start: u64,
        size: u64,
        exists_from: MonotonicTime,
        payload: T,
    ) -> Result<(), InsertError> {
        start.checked_add(size.max(1)).ok_or(InsertError::Wraps)?;
        self.is_full |= self.entries.len() >= MAX_ENTRIES || self.versions.len() >= MAX_VERSIONS;
        if self.is_full {
            return Err(InsertError::Full);
        }
        self.newest_time = self.newest_time.max(exists_from);
        let entry = Entry { start, end: start + size, exists_from: self.newest_time, payload };
        let end = entry.covered_end();
        let covers_others = self.covers_others(start, end);
        self.entries.push(entry);
        if covers_others {
            self.overlay(start, end)
        } else {
            let version = self.push_version(NONE);
            self.pieces.insert(start, version);
            Ok(())
        }
    }

    /// The entry at `address` at `time`.
    ///
    /// If all entries at the address begin later, the first one is returned: runtimes buffer what they write, so their
    /// entries can be late.
    pub fn lookup(&self, address: u64, time: MonotonicTime) -> Option<&Entry<T>> {
        let (&start, &newest) = self.pieces.range(..=address).next_back()?;
        let entry = self.entry(self.version_at(newest, time));
        if address < self.entry(newest).covered_end() {
            return Some(entry);
        }
        let is_within_assumed_size =
            entry.has_unknown_size() && entry.start == start && address - start < MAX_UNKNOWN_SIZE_BYTES;
        is_within_assumed_size.then_some(entry)
    }

    /// The newest entry at an address, if it has exactly this range and no newer entry overlaps it.
    pub fn newest_exactly(&self, start: u64, size: u64) -> Option<&Entry<T>> {
        let entry = self.entry(*self.pieces.get(&start)?);
        let has_range = entry.start == start && entry.end.checked_sub(start)? == size;
        let mut other_pieces = self.pieces.range(start..entry.covered_end()).skip(1);
        (has_range && other_pieces.next().is_none()).then_some(entry)
    }

    /// The newest entries in `start..start + size`.
    pub fn newest_in(&self, start: u64, size: u64) -> impl Iterator<Item = &Entry<T>> {
        let before_end = self.pieces.range(..start.saturating_add(size.max(1))).rev();
        let newest = before_end.map(|(piece, version)| (*piece, self.entry(*version)));
        // Only the first piece before the start can extend over it.
        let until_start = newest.scan(false, move |is_done, (piece, entry)| {
            (!std::mem::replace(is_done, piece <= start)).then_some(entry)
        });
        until_start.filter(move |entry| entry.covered_end() > start)
    }

    /// The newest entry that starts at `start`.
    pub fn newest_from(&self, start: u64) -> Option<&Entry<T>> {
        let entry = self.entry(*self.pieces.get(&start)?);
        (entry.start == start).then_some(entry)
    }

    /// Whether most versions are of replaced entries.
    pub fn has_mostly_replaced(&self) -> bool {
        self.is_full || self.versions.len() > 2 * self.pieces.len().max(MIN_RETIRED_VERSIONS)
    }

    /// A map without the entries that were replaced before a time: lookups for later times have the same results. `copy`
    /// copies a payload; entries for which it returns `None` are dropped.
    pub fn retained(&self, from: MonotonicTime, mut copy: impl FnMut(&T) -> Option<T>) -> Self {
        let mut is_needed = vec![false; self.entries.len()];
        for newest in self.pieces.values() {
            let mut version = self.versions.get(*newest as usize);
            while let Some(Version { entry, older, .. }) = version {
                is_needed[*entry as usize] = true;
                let is_later = self.entries[*entry as usize].exists_from > from;
                version = if is_later { self.versions.get(*older as usize) } else { None };
            }
        }
        let mut retained = Self::default();
        for (entry, _) in self.entries.iter().zip(is_needed).filter(|(_, is_needed)| *is_needed) {
            if let Some(payload) = copy(&entry.payload) {
                // It has fewer entries than this map.
                let _ = retained.insert(entry.start, entry.end - entry.start, entry.exists_from, payload);
            }
        }
        retained
    }

    /// A map with late entries in addition, in the order of their times. One that `is_same` as the newest entry at its start
    /// replaces that one. Epochs differ from all epochs of this map.
    pub fn with_late_entries(
        &self,
        late: &[LateEntry<T>],
        is_same: impl Fn(&T, &T) -> bool,
    ) -> Result<Self, InsertError>
    where
        T: Copy,
    {
        let with_size = |entry: &Entry<T>| LateEntry {
            start: entry.start,
            size: entry.end - entry.start,
            exists_from: entry.exists_from,
            payload: entry.payload,
        };
        let mut entries: Vec<_> = self.entries.iter().map(with_size).collect();
        let newest: HashMap<u64, usize> =
            entries.iter().enumerate().map(|(index, entry)| (entry.start, index)).collect();
        for late in late {
            let known = newest.get(&late.start).and_then(|index| entries.get_mut(*index));
            match known.filter(|known| known.size == late.size && is_same(&known.payload, &late.payload)) {
                Some(known) => *known = *late,
                None => entries.push(*late),
            }
        }
        entries.sort_by_key(|entry| entry.exists_from);
        let mut map =
            Self { first_epoch: self.epoch(MonotonicTime::MAX).saturating_add(1), ..Self::default() };
        for LateEntry { start, size, exists_from, payload } in entries {
            map.insert(start, size, exists_from, payload)?;
        }
        Ok(map)
    }

    /// Identifies a period without replacements: lookups of one address at two times of the same epoch have the same
    /// result.
    pub fn epoch(&self, time: MonotonicTime) -> u32 {
        let replacements = self.replacement_times.partition_point(|&at| at <= time);
        self.first_epoch.saturating_add(u32::try_from(replacements).unwrap_or(u32::MAX))
    }

    /// All entries in the order in which they were added.
    pub fn entries(&self) -> &[Entry<T>] {
        &self.entries
    }

    /// The time from which on the newest entry exists.
    pub fn newest_time(&self) -> MonotonicTime {
        self.newest_time
    }

    /// The memory of the map.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&self.entries[..])
            + size_of_val(&self.versions[..])
            + size_of_val(&self.replacement_times[..])
            + self.pieces.len() * PIECE_BYTES
    }

    fn covers_others(&self, start: u64, end: u64) -> bool {
        self.pieces
            .range(..end)
            .next_back()
            .is_some_and(|(&piece, &version)| piece >= start || self.entry(version).covered_end() > start)
    }

    /// Makes the newest entry the newest version of the pieces in `start..end`.
    fn overlay(&mut self, start: u64, end: u64) -> Result<(), InsertError> {
        self.split(start);
        self.split(end);
        let (fragments, covered) = self.fragments(start, end);
        if fragments.len() > MAX_VERSIONS - self.versions.len() {
            self.entries.pop();
            self.is_full = true;
            return Err(InsertError::Full);
        }
        if fragments.iter().any(|fragment| fragment.older != NONE)
            && self.replacement_times.last() != Some(&self.newest_time)
        {
            self.replacement_times.push(self.newest_time);
        }
        for piece in covered {
            self.pieces.remove(&piece);
        }
        for Fragment { start, older } in fragments {
            let version = self.push_version(older);
            self.pieces.insert(start, version);
        }
        Ok(())
    }

    /// Splits the piece over `at` into two.
    fn split(&mut self, at: u64) {
        if let Some((&start, &version)) = self.pieces.range(..=at).next_back()
            && start < at
            && at < self.entry(version).covered_end()
        {
            self.pieces.insert(at, version);
        }
    }

    /// Divides `start..end` into fragments with the same older versions. Also returns the pieces that are there now.
    fn fragments(&self, start: u64, end: u64) -> (Vec<Fragment>, Vec<u64>) {
        let mut fragments = Fragments::default();
        let mut covered = Vec::new();
        let mut free_from = start;
        for (&piece, &version) in self.pieces.range(start..end) {
            if free_from < piece {
                fragments.push(free_from, NONE);
            }
            fragments.push(piece, self.older_than_newest_time(version));
            covered.push(piece);
            let next = self.pieces.range(piece + 1..).next().map_or(u64::MAX, |(&next, _)| next);
            free_from = self.entry(version).covered_end().min(next);
        }
        if free_from < end {
            fragments.push(free_from, NONE);
        }
        (fragments.0, covered)
    }

    /// The version below a new entry: entries of the same time are replaced.
    fn older_than_newest_time(&self, version: u32) -> u32 {
        if self.entry(version).exists_from == self.newest_time {
            self.versions[version as usize].older
        } else {
            version
        }
    }

    /// Adds a version of the newest entry above `older`.
    fn push_version(&mut self, older: u32) -> u32 {
        let id = self.versions.len() as u32;
        let entry = self.entries.len() as u32 - 1;
        let version = match self.versions.get(older as usize) {
            None => Version { entry, older: NONE, jump: id, depth: 0 },
            Some(below) => {
                let landing = self.versions[below.jump as usize];
                let landing_jump = self.versions[landing.jump as usize];
                let is_balanced = below.depth - landing.depth == landing.depth - landing_jump.depth;
                let jump = if is_balanced { landing.jump } else { older };
                Version { entry, older, jump, depth: below.depth + 1 }
            }
        };
        self.versions.push(version);
        id
    }

    /// The version of a chain at `time`, or the oldest one if all begin later.
    fn version_at(&self, newest: u32, time: MonotonicTime) -> u32 {
        let mut id = newest;
        while self.entry(id).exists_from > time {
            let version = self.versions[id as usize];
            if version.older == NONE {
                break;
            }
            let jump_is_later = self.entry(version.jump).exists_from > time;
            id = if jump_is_later { version.jump } else { version.older };
        }
        id
    }

    fn entry(&self, version: u32) -> &Entry<T> {
        &self.entries[self.versions[version as usize].entry as usize]
    }
}

/// A part of the range of a new entry, with the older version below it.
#[derive(Debug)]
struct Fragment {
    start: u64,
    older: u32,
}

/// Fragments by address. Adjacent ones with the same older version are merged.
#[derive(Default)]
struct Fragments(Vec<Fragment>);

impl Fragments {
    fn push(&mut self, start: u64, older: u32) {
        if self.0.last().is_none_or(|last| last.older != older) {
            self.0.push(Fragment { start, older });
        }
    }
}

#[cfg(test)]
mod tests;
