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
    replacements_ns: Vec<u64>,
    /// The epoch before the first replacement.
    first_epoch: u32,
    /// The time from which on the newest entry exists.
    newest_ns: u64,
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
    pub exists_from_ns: u64,
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
    pub exists_from_ns: u64,
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
            replacements_ns: Vec::new(),
            first_epoch: 0,
            newest_ns: 0,
            is_full: false,
        }
    }
}

impl<T> CodeMap<T> {
    /// Inserts an entry at `start..start + size` that exists from `exists_from_ns` on.
    ///
    /// Entries are inserted in the order in which they were written. An entry with an earlier time than the one before it
    /// gets the time of that one.
    pub fn insert(
        &mut self,
        start: u64,
        size: u64,
        exists_from_ns: u64,
        payload: T,
    ) -> Result<(), InsertError> {
        start.checked_add(size.max(1)).ok_or(InsertError::Wraps)?;
        self.is_full |= self.entries.len() >= MAX_ENTRIES || self.versions.len() >= MAX_VERSIONS;
        if self.is_full {
            return Err(InsertError::Full);
        }
        self.newest_ns = self.newest_ns.max(exists_from_ns);
        let entry = Entry { start, end: start + size, exists_from_ns: self.newest_ns, payload };
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

    /// The entry at `address` at `time_ns`.
    ///
    /// If all entries at the address begin later, the first one is returned: runtimes buffer what they write, so their
    /// entries can be late.
    pub fn lookup(&self, address: u64, time_ns: u64) -> Option<&Entry<T>> {
        let (&start, &newest) = self.pieces.range(..=address).next_back()?;
        let entry = self.entry(self.version_at(newest, time_ns));
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
    pub fn retained(&self, from_ns: u64, mut copy: impl FnMut(&T) -> Option<T>) -> Self {
        let mut is_needed = vec![false; self.entries.len()];
        for newest in self.pieces.values() {
            let mut version = self.versions.get(*newest as usize);
            while let Some(Version { entry, older, .. }) = version {
                is_needed[*entry as usize] = true;
                let is_later = self.entries[*entry as usize].exists_from_ns > from_ns;
                version = if is_later { self.versions.get(*older as usize) } else { None };
            }
        }
        let mut retained = Self::default();
        for (entry, _) in self.entries.iter().zip(is_needed).filter(|(_, is_needed)| *is_needed) {
            if let Some(payload) = copy(&entry.payload) {
                // It has fewer entries than this map.
                let _ = retained.insert(entry.start, entry.end - entry.start, entry.exists_from_ns, payload);
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
            exists_from_ns: entry.exists_from_ns,
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
        entries.sort_by_key(|entry| entry.exists_from_ns);
        let mut map = Self { first_epoch: self.epoch(u64::MAX).saturating_add(1), ..Self::default() };
        for LateEntry { start, size, exists_from_ns, payload } in entries {
            map.insert(start, size, exists_from_ns, payload)?;
        }
        Ok(map)
    }

    /// Identifies a period without replacements: lookups of one address at two times of the same epoch have the same
    /// result.
    pub fn epoch(&self, time_ns: u64) -> u32 {
        let replacements = self.replacements_ns.partition_point(|&at_ns| at_ns <= time_ns);
        self.first_epoch.saturating_add(u32::try_from(replacements).unwrap_or(u32::MAX))
    }

    /// All entries in the order in which they were added.
    pub fn entries(&self) -> &[Entry<T>] {
        &self.entries
    }

    /// The time from which on the newest entry exists.
    pub fn newest_ns(&self) -> u64 {
        self.newest_ns
    }

    /// The memory of the map.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&self.entries[..])
            + size_of_val(&self.versions[..])
            + size_of_val(&self.replacements_ns[..])
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
            && self.replacements_ns.last() != Some(&self.newest_ns)
        {
            self.replacements_ns.push(self.newest_ns);
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
        if self.entry(version).exists_from_ns == self.newest_ns {
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

    /// The version of a chain at `time_ns`, or the oldest one if all begin later.
    fn version_at(&self, newest: u32, time_ns: u64) -> u32 {
        let mut id = newest;
        while self.entry(id).exists_from_ns > time_ns {
            let version = self.versions[id as usize];
            if version.older == NONE {
                break;
            }
            let jump_is_later = self.entry(version.jump).exists_from_ns > time_ns;
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
mod tests {
    use super::*;

    #[test]
    fn retired_entries_change_no_later_lookup() {
        const TIMES: u64 = 2_000;
        let mut map = CodeMap::default();
        let mut random = 1_u64;
        for time_ns in 0..TIMES {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (start, size) = (random >> 50, (random >> 40) & 0x3ff);
            map.insert(start, size, time_ns, time_ns).unwrap();
        }
        let from_ns = TIMES - 100;
        let retained = map.retained(from_ns, |payload| Some(*payload));
        assert!(retained.entries.len() < 500, "{} entries", retained.entries.len());
        for address in 0..1 << 14 {
            for time_ns in [from_ns, from_ns + 50, TIMES] {
                let found = |map: &CodeMap<u64>| map.lookup(address, time_ns).map(|entry| entry.payload);
                assert_eq!(found(&retained), found(&map), "{address} at {time_ns}");
            }
        }
    }

    fn map(entries: &[(u64, u64, u64)]) -> CodeMap<usize> {
        let mut map = CodeMap::default();
        for (index, &(start, size, exists_from_ns)) in entries.iter().enumerate() {
            map.insert(start, size, exists_from_ns, index).unwrap();
        }
        map
    }

    fn at(map: &CodeMap<usize>, address: u64, time_ns: u64) -> Option<usize> {
        map.lookup(address, time_ns).map(|entry| entry.payload)
    }

    #[test]
    fn an_entry_covers_its_own_bytes_only() {
        let map = map(&[(100, 10, 0), (110, 5, 0), (200, 1, 0)]);
        let found = [99, 100, 109, 110, 114, 115, 199, 200, 201].map(|address| at(&map, address, 0));
        let expected = [None, Some(0), Some(0), Some(1), Some(1), None, None, Some(2), None];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_lookup_finds_the_entry_of_its_time() {
        let map = map(&[(0, 4, 10), (2, 4, 20), (4, 5, 30)]);
        assert_eq!([10, 20, 30].map(|time_ns| at(&map, 3, time_ns)), [Some(0), Some(1), Some(1)]);
        assert_eq!([10, 20, 30].map(|time_ns| at(&map, 5, time_ns)), [Some(1), Some(1), Some(2)]);
        assert_eq!(at(&map, 1, 30), Some(0));
        assert_eq!(at(&map, 8, 10), Some(2));
    }

    #[test]
    fn a_time_before_all_entries_belongs_to_the_first_one() {
        let map = map(&[(0, 4, 10), (0, 4, 20)]);
        assert_eq!(at(&map, 0, 5), Some(0));
    }

    #[test]
    fn the_last_of_entries_of_the_same_time_is_kept() {
        let map = map(&[(0, 8, 10), (2, 2, 10), (0, 3, 10)]);
        assert_eq!([0, 2, 3, 4].map(|address| at(&map, address, 10)), [Some(2), Some(2), Some(1), Some(0)]);
        assert_eq!(map.epoch(u64::MAX), 0);
    }

    #[test]
    fn an_entry_of_size_0_reaches_to_the_next_entry() {
        let map = map(&[(100, 0, 0), (200, 0, 0)]);
        assert_eq!(at(&map, 199, 0), Some(0));
        assert_eq!(at(&map, 200, 0), Some(1));
        assert_eq!(at(&map, 200 + MAX_UNKNOWN_SIZE_BYTES - 1, 0), Some(1));
        assert_eq!(at(&map, 200 + MAX_UNKNOWN_SIZE_BYTES, 0), None);
        assert_eq!(at(&map, 99, 0), None);
    }

    #[test]
    fn an_entry_of_size_0_covers_one_byte_of_an_entry_of_known_size() {
        let map = map(&[(0, 100, 0), (40, 0, 1)]);
        let found = [39, 40, 41, 99, 100].map(|address| at(&map, address, 1));
        assert_eq!(found, [Some(0), Some(1), Some(0), Some(0), None]);
    }

    #[test]
    fn ranges_at_the_end_of_the_address_space_do_not_wrap() {
        let mut map = CodeMap::default();
        assert_eq!(map.insert(u64::MAX, 0, 0, 0), Err(InsertError::Wraps));
        assert_eq!(map.insert(u64::MAX - 4, 5, 0, 1), Err(InsertError::Wraps));
        assert_eq!(map.insert(1, u64::MAX, 0, 2), Err(InsertError::Wraps));
        assert_eq!(map.insert(u64::MAX - 4, 4, 0, 3), Ok(()));
        assert_eq!(at(&map, u64::MAX - 1, 0), Some(3));
        assert_eq!(at(&map, u64::MAX, 0), None);
        assert_eq!(map.insert(0, u64::MAX, 1, 4), Ok(()));
        assert_eq!(at(&map, u64::MAX - 1, 1), Some(4));
    }

    #[test]
    fn epochs_count_the_times_of_replacements() {
        let map = map(&[(0, 4, 10), (8, 4, 20), (0, 4, 30), (8, 4, 30), (0, 1, 40)]);
        assert_eq!([0, 29, 30, 39, 40, u64::MAX].map(|time_ns| map.epoch(time_ns)), [0, 0, 1, 1, 2, 2]);
    }

    #[test]
    fn a_repeated_entry_is_found() {
        let map = map(&[(0, 4, 10), (10, 4, 10), (12, 1, 11)]);
        assert_eq!(map.newest_exactly(0, 4).map(|entry| entry.payload), Some(0));
        assert!(map.newest_exactly(0, 3).is_none());
        assert!(map.newest_exactly(10, 4).is_none(), "a newer entry overlaps a part");
        assert_eq!(map.newest_from(10).map(|entry| entry.payload), Some(1));
        assert!(map.newest_from(13).is_none(), "the rest of an entry does not start there");
    }

    #[test]
    fn a_late_entry_is_found_at_its_time() {
        let map = map(&[(0, 8, 10), (0, 8, 30)]);
        let late = |exists_from_ns, payload| LateEntry { start: 0, size: 8, exists_from_ns, payload };
        // The second entry began at 40, and before the first one there was another.
        let changed = map.with_late_entries(&[late(40, 1), late(5, 7)], usize::eq).unwrap();
        assert_eq!(
            [5, 10, 39, 40].map(|time_ns| at(&changed, 4, time_ns)),
            [Some(7), Some(0), Some(0), Some(1)]
        );
        let epochs = |map: &CodeMap<usize>| [0, 10, 30, 40].map(|time_ns| map.epoch(time_ns));
        assert!(epochs(&changed).iter().all(|epoch| !epochs(&map).contains(epoch)));
    }

    #[test]
    fn a_long_chain_is_searched_quickly() {
        let count = 200_000;
        let mut map = CodeMap::default();
        for time_ns in 0..count {
            map.insert(0x1000, 16, time_ns, time_ns).unwrap();
        }
        for time_ns in (0..count).step_by(7) {
            assert_eq!(map.lookup(0x1008, time_ns).map(|entry| entry.payload), Some(time_ns));
        }
    }

    #[test]
    fn entries_over_all_others_are_limited() {
        let mut map = CodeMap::default();
        for index in 0..10_000 {
            map.insert(index * 16, 16, 0, 0).unwrap();
        }
        let rejected = (1..1_000).find_map(|time_ns| map.insert(0, 160_000, time_ns, 1).err());
        assert_eq!(rejected, Some(InsertError::Full));
        assert_eq!(map.insert(u64::MAX / 2, 1, 1_000, 1), Err(InsertError::Full), "full stays full");
        assert!(map.versions.len() <= MAX_VERSIONS);
    }

    /// Looks up by a search through all entries.
    fn model(entries: &[(u64, u64, u64)], address: u64, time_ns: u64) -> Option<usize> {
        let mut covering = entries
            .iter()
            .enumerate()
            .filter(|(_, (start, size, _))| (*start..start + size).contains(&address))
            .map(|(index, entry)| (index, entry.2));
        let first_ns = covering.clone().next()?.1;
        let visible_ns = time_ns.max(first_ns);
        covering.rfind(|(_, exists_from_ns)| *exists_from_ns <= visible_ns).map(|(index, _)| index)
    }

    #[test]
    fn random_overlaps_give_the_result_of_a_full_search() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..300 {
            let mut time_ns = 0;
            let entries: Vec<_> = (0..random.u64(0..40))
                .map(|_| {
                    time_ns += random.u64(0..2);
                    (random.u64(0..60), 1 + random.u64(0..20), time_ns)
                })
                .collect();
            let map = map(&entries);
            for address in 0..80 {
                for time_ns in 0..=time_ns {
                    let found = at(&map, address, time_ns);
                    assert_eq!(found, model(&entries, address, time_ns), "{entries:?} {address} {time_ns}");
                    if map.epoch(time_ns) == map.epoch(time_ns + 1) {
                        assert_eq!(found, at(&map, address, time_ns + 1), "{entries:?} {address} {time_ns}");
                    }
                }
            }
        }
    }
}
