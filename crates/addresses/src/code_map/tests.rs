//! Tests of the map of code.

use super::*;

#[test]
fn retired_entries_change_no_later_lookup() {
    const TIMES: u64 = 2_000;
    let mut map = CodeMap::default();
    let mut random = 1_u64;
    for time in 0..TIMES {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (start, size) = (random >> 50, (random >> 40) & 0x3ff);
        map.insert(start, size, MonotonicTime(time), time).unwrap();
    }
    let from = TIMES - 100;
    let retained = map.retained(MonotonicTime(from), |payload| Some(*payload));
    assert!(retained.entries.len() < 500, "{} entries", retained.entries.len());
    for address in 0..1 << 14 {
        for time in [from, from + 50, TIMES] {
            let found =
                |map: &CodeMap<u64>| map.lookup(address, MonotonicTime(time)).map(|entry| entry.payload);
            assert_eq!(found(&retained), found(&map), "{address} at {time}");
        }
    }
}

fn map(entries: &[(u64, u64, u64)]) -> CodeMap<usize> {
    let mut map = CodeMap::default();
    for (index, &(start, size, exists_from)) in entries.iter().enumerate() {
        map.insert(start, size, MonotonicTime(exists_from), index).unwrap();
    }
    map
}

fn at(map: &CodeMap<usize>, address: u64, time: u64) -> Option<usize> {
    map.lookup(address, MonotonicTime(time)).map(|entry| entry.payload)
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
    assert_eq!([10, 20, 30].map(|time| at(&map, 3, time)), [Some(0), Some(1), Some(1)]);
    assert_eq!([10, 20, 30].map(|time| at(&map, 5, time)), [Some(1), Some(1), Some(2)]);
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
    assert_eq!(map.epoch(MonotonicTime::MAX), 0);
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
    assert_eq!(map.insert(u64::MAX, 0, MonotonicTime(0), 0), Err(InsertError::Wraps));
    assert_eq!(map.insert(u64::MAX - 4, 5, MonotonicTime(0), 1), Err(InsertError::Wraps));
    assert_eq!(map.insert(1, u64::MAX, MonotonicTime(0), 2), Err(InsertError::Wraps));
    assert_eq!(map.insert(u64::MAX - 4, 4, MonotonicTime(0), 3), Ok(()));
    assert_eq!(at(&map, u64::MAX - 1, 0), Some(3));
    assert_eq!(at(&map, u64::MAX, 0), None);
    assert_eq!(map.insert(0, u64::MAX, MonotonicTime(1), 4), Ok(()));
    assert_eq!(at(&map, u64::MAX - 1, 1), Some(4));
}

#[test]
fn epochs_count_the_times_of_replacements() {
    let map = map(&[(0, 4, 10), (8, 4, 20), (0, 4, 30), (8, 4, 30), (0, 1, 40)]);
    assert_eq!([0, 29, 30, 39, 40, u64::MAX].map(|time| map.epoch(MonotonicTime(time))), [0, 0, 1, 1, 2, 2]);
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
    let late = |exists_from, payload| LateEntry {
        start: 0,
        size: 8,
        exists_from: MonotonicTime(exists_from),
        payload,
    };
    // The second entry began at 40, and before the first one there was another.
    let changed = map.with_late_entries(&[late(40, 1), late(5, 7)], usize::eq).unwrap();
    assert_eq!([5, 10, 39, 40].map(|time| at(&changed, 4, time)), [Some(7), Some(0), Some(0), Some(1)]);
    let epochs = |map: &CodeMap<usize>| [0, 10, 30, 40].map(|time| map.epoch(MonotonicTime(time)));
    assert!(epochs(&changed).iter().all(|epoch| !epochs(&map).contains(epoch)));
}

#[test]
fn a_long_chain_is_searched_quickly() {
    let count = 200_000;
    let mut map = CodeMap::default();
    for time in 0..count {
        map.insert(0x1000, 16, MonotonicTime(time), time).unwrap();
    }
    for time in (0..count).step_by(7) {
        assert_eq!(map.lookup(0x1008, MonotonicTime(time)).map(|entry| entry.payload), Some(time));
    }
}

#[test]
fn entries_over_all_others_are_limited() {
    let mut map = CodeMap::default();
    for index in 0..10_000 {
        map.insert(index * 16, 16, MonotonicTime(0), 0).unwrap();
    }
    let rejected = (1..1_000).find_map(|time| map.insert(0, 160_000, MonotonicTime(time), 1).err());
    assert_eq!(rejected, Some(InsertError::Full));
    assert_eq!(
        map.insert(u64::MAX / 2, 1, MonotonicTime(1_000), 1),
        Err(InsertError::Full),
        "full stays full"
    );
    assert!(map.versions.len() <= MAX_VERSIONS);
}

/// Looks up by a search through all entries.
fn model(entries: &[(u64, u64, u64)], address: u64, time: u64) -> Option<usize> {
    let mut covering = entries
        .iter()
        .enumerate()
        .filter(|(_, (start, size, _))| (*start..start + size).contains(&address))
        .map(|(index, entry)| (index, entry.2));
    let first = covering.clone().next()?.1;
    let visible_from = time.max(first);
    covering.rfind(|(_, exists_from)| *exists_from <= visible_from).map(|(index, _)| index)
}

#[test]
fn random_overlaps_give_the_result_of_a_full_search() {
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..300 {
        let mut time = 0;
        let entries: Vec<_> = (0..random.u64(0..40))
            .map(|_| {
                time += random.u64(0..2);
                (random.u64(0..60), 1 + random.u64(0..20), time)
            })
            .collect();
        let map = map(&entries);
        for address in 0..80 {
            for time in 0..=time {
                let found = at(&map, address, time);
                assert_eq!(found, model(&entries, address, time), "{entries:?} {address} {time}");
                if map.epoch(MonotonicTime(time)) == map.epoch(MonotonicTime(time + 1)) {
                    assert_eq!(found, at(&map, address, time + 1), "{entries:?} {address} {time}");
                }
            }
        }
    }
}
