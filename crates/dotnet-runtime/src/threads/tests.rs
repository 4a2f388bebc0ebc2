//! Tests lists of threads and monitors in the memory of a runtime that is built here.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use profiler_addresses::RuntimeAddress;

use crate::{
    DescriptorError, DotNetRuntime, GcMode, HeldMonitor, Listing, ManagedThread, Memory, ReadError,
    ReadLimits, StateError,
    test_image::{self, Place, TYPES, Version},
    test_memory::TestMemory,
    test_threads::{
        EXCEPTION, HELD, HELD_TOO, MAIN, MONITOR_TABLE, NAME, STRING_TYPE, TABLE, WORKER, block,
        first_link_field, handle, link, locked_object, managed_id, os_id, thread, thread_object, write_name,
        write_owner,
    },
    tests::open,
};

const VERSIONS: [Version; 2] = [Version::Net9, Version::Net10];

/// A runtime after a change of its memory.
fn changed(version: Version, change: impl FnOnce(&mut TestMemory)) -> DotNetRuntime {
    let (mut memory, symbols) = test_image::build(version, Place::LoadedImage);
    change(&mut memory);
    open(memory, symbols)
}

fn threads_after(change: impl FnOnce(&mut TestMemory)) -> Listing<ManagedThread> {
    changed(Version::Net10, change).threads().unwrap()
}

/// The threads with their names and exceptions.
fn described(threads: &Listing<ManagedThread>) -> Vec<(u32, Option<&str>, Option<&str>)> {
    threads
        .entries
        .iter()
        .map(|thread| (thread.os_id, thread.name.as_deref(), thread.exception.as_deref()))
        .collect()
}

fn monitors_after(version: Version, change: impl FnOnce(&mut TestMemory)) -> Listing<HeldMonitor> {
    changed(version, change).monitors().unwrap()
}

fn monitor(entry: u64, owner: u64, recursion: u32, waiters: u32) -> HeldMonitor {
    HeldMonitor {
        lock: RuntimeAddress(block(entry)),
        owner_os_id: os_id(owner),
        owner_managed_id: managed_id(owner),
        recursion,
        waiters,
    }
}

fn both() -> [HeldMonitor; 2] {
    [monitor(HELD, WORKER, 2, 3), monitor(HELD_TOO, MAIN, 1, 0)]
}

#[test]
fn threads_have_their_ids_names_modes_and_exceptions_in_each_version() {
    for version in VERSIONS {
        let threads = changed(version, |_| ()).threads().unwrap();
        let main = ManagedThread {
            os_id: 100,
            managed_id: 1,
            name: None,
            gc_mode: GcMode::Preemptive,
            exception: Some("N.Outer".to_owned()),
        };
        let worker = ManagedThread {
            os_id: 101,
            managed_id: 4,
            name: Some("worker".to_owned()),
            gc_mode: GcMode::Cooperative,
            exception: None,
        };
        assert_eq!(threads, Listing { entries: vec![main, worker], is_complete: true }, "{version:?}");
    }
}

#[test]
fn held_monitors_have_their_owners_and_waiters_in_each_version() {
    for version in VERSIONS {
        let monitors = monitors_after(version, |_| ());
        assert_eq!(monitors, Listing { entries: both().to_vec(), is_complete: true }, "{version:?}");
    }
}

#[test]
fn the_owners_of_monitors_are_described_without_the_other_threads() {
    for version in VERSIONS {
        let mut runtime = changed(version, |_| ());
        for (monitors, expected) in [
            (&both()[..], vec![(100, None, Some("N.Outer")), (101, Some("worker"), None)]),
            (&both()[..1], vec![(101, Some("worker"), None)]),
            (&[], vec![]),
        ] {
            let owners = runtime.owners(monitors).unwrap();
            assert!(owners.is_complete, "{version:?}");
            assert_eq!(described(&owners), expected, "{version:?}");
        }
        // The id of the operating system is that of another thread meanwhile.
        let other = HeldMonitor { owner_managed_id: 77, ..both()[0] };
        assert_eq!(described(&runtime.owners(&[other]).unwrap()), []);
    }
}

#[test]
fn a_runtime_without_threads_or_held_monitors_has_none() {
    let no_threads = threads_after(|memory| memory.write_u64(first_link_field(Version::Net10), 0));
    assert_eq!(no_threads, Listing { entries: Vec::new(), is_complete: true });
    let released = |memory: &mut TestMemory| {
        for entry in [HELD, HELD_TOO] {
            memory.write_u32(block(entry), 0);
        }
        // The threads are not needed.
        memory.write_u64(first_link_field(Version::Net10), 0x9999_0000);
    };
    let monitors = monitors_after(Version::Net10, released);
    assert_eq!(monitors, Listing { entries: Vec::new(), is_complete: true });
}

#[test]
fn an_entry_is_a_monitor_only_with_its_index_in_the_object_and_in_the_block() {
    let object = locked_object(HELD) - 4;
    for (what, at, value) in [
        ("no index in the object", object, 1),
        ("a hash", object, 0x0c00_0001),
        ("another index in the object", object, 0x0800_0002),
        ("another index in the block", block(HELD) + 28, 0x8000_0002),
        ("not entered", block(HELD) + 4, 0),
        ("not locked", block(HELD), 3 << 6),
        ("no object", TABLE + HELD * 16 + 8, 0),
        ("not an object", TABLE + HELD * 16 + 8, 0x1234),
    ] {
        let monitors = monitors_after(Version::Net10, |memory| memory.write_u32(at, value));
        assert_eq!(monitors, Listing { entries: both()[1..].to_vec(), is_complete: true }, "{what}");
    }
}

#[test]
fn an_owner_is_a_thread_with_both_ids() {
    for version in VERSIONS {
        for (what, at, value) in [
            ("no thread of the runtime", block(HELD) + 16, 77),
            ("the other thread", block(HELD) + 16, os_id(MAIN)),
            ("another id", block(HELD) + 8, managed_id(MAIN)),
            ("another thread", block(HELD) + 8, thread(MAIN) as u32),
            ("no owner yet", block(HELD) + 16, 0),
        ] {
            let monitors = monitors_after(version, |memory| memory.write_u32(at, value));
            let expected = Listing { entries: both()[1..].to_vec(), is_complete: false };
            assert_eq!(monitors, expected, "{version:?}: {what}");
        }
    }
}

#[test]
fn the_table_ends_where_its_content_does() {
    let random_behind = |memory: &mut TestMemory| {
        let mut random = fastrand::Rng::with_seed(3);
        (9..300).for_each(|entry| memory.write_u64(TABLE + entry * 16, random.u64(..)));
    };
    for version in VERSIONS {
        let monitors = monitors_after(version, random_behind);
        assert_eq!(monitors, Listing { entries: both().to_vec(), is_complete: true });
    }
    // An entry that is being made is none yet, and no end.
    let made = monitors_after(Version::Net10, |memory| memory.write_u64(TABLE + 5 * 16 + 8, 0));
    assert_eq!(made, Listing { entries: both().to_vec(), is_complete: true });
}

#[test]
fn tables_lists_and_names_are_bounded() {
    let endless_table = monitors_after(Version::Net10, |memory| {
        (9..10_000).for_each(|entry| memory.write_u64(TABLE + entry * 16 + 8, 1));
    });
    assert_eq!(endless_table, Listing { entries: both().to_vec(), is_complete: false });
    let many_held = monitors_after(Version::Net10, |memory| {
        for entry in 9..600 {
            memory.write_u64(TABLE + entry * 16, block(entry));
            memory.write_u64(TABLE + entry * 16 + 8, locked_object(entry));
            memory.write_u32(locked_object(entry) - 4, 0x0800_0000 | entry as u32);
            memory.write_u32(block(entry) + 28, entry as u32);
            write_owner(memory, Version::Net10, entry, MAIN);
        }
    });
    assert_eq!((many_held.entries.len(), many_held.is_complete), (256, false));
    let endless_list = threads_after(|memory| memory.write_u64(link(WORKER), link(MAIN)));
    assert!((500..3_000).contains(&endless_list.entries.len()), "{}", endless_list.entries.len());
    assert!(!endless_list.is_complete);
    let monitors_of_endless_list =
        monitors_after(Version::Net10, |memory| memory.write_u64(link(WORKER), link(MAIN)));
    assert_eq!(monitors_of_endless_list.entries, both());
    let long_name = threads_after(|memory| write_name(memory, &"n".repeat(10_000)));
    assert_eq!(long_name.entries[1].name.as_ref().map(String::len), Some(256));
}

#[test]
fn what_is_no_name_or_exception_is_absent() {
    let main = (100, None, Some("N.Outer"));
    for (what, at, value) in [
        ("an empty name", NAME + 8, 0_u64),
        ("no string", NAME, TYPES),
        ("no strings at all", STRING_TYPE, 0),
        ("an unmapped name", thread_object(WORKER) + 24, 0x9999_0000),
        ("the object of another thread", thread_object(WORKER) + 40, thread(MAIN)),
        ("an object with another id", thread_object(WORKER) + 48, 7 << 32),
        ("no object", handle(WORKER), 0),
        ("no handle", thread(WORKER) + 304, 0),
        ("an unmapped handle", thread(WORKER) + 304, 0x9999_0000),
    ] {
        let threads = threads_after(|memory| memory.write_u64(at, value));
        assert_eq!(described(&threads), [main, (101, None, None)], "{what}");
        assert!(threads.is_complete);
    }
    for (what, at, value) in [
        ("no handle", thread(MAIN) + 336, 0_u64),
        ("no object", handle(MAIN) + 8, 0),
        ("an unmapped object", handle(MAIN) + 8, 0x9999_0000),
        ("no type", EXCEPTION, 0),
        ("a type without a module", EXCEPTION, NAME),
    ] {
        let threads = threads_after(|memory| memory.write_u64(at, value));
        assert_eq!(described(&threads), [(100, None, None), (101, Some("worker"), None)], "{what}");
    }
}

#[test]
fn a_list_that_cannot_be_read_is_an_error() {
    let unmapped = |memory: &mut TestMemory| memory.write_u64(link(MAIN), 0x9999_0000);
    let not_mapped = StateError::Read(ReadError::NotMapped);
    assert_eq!(changed(Version::Net10, unmapped).threads(), Err(not_mapped.clone()));
    assert_eq!(changed(Version::Net10, unmapped).monitors(), Err(not_mapped.clone()));
    let no_table = |memory: &mut TestMemory| memory.write_u64(MONITOR_TABLE, 0x9999_0000);
    assert_eq!(monitors_after(Version::Net10, no_table).entries, []);
    for version in VERSIONS {
        let (memory, symbols) = test_image::build(version, Place::LoadedImage);
        for reads in 2..12 {
            let limits = ReadLimits { reads, ..ReadLimits::default() };
            let memory = Arc::new(memory.clone());
            let Ok(mut runtime) = DotNetRuntime::open(memory, symbols, limits, &Arc::default()) else {
                continue;
            };
            for lists_threads in [true, false] {
                let outcome = match lists_threads {
                    true => runtime.threads().map(drop),
                    false => runtime.monitors().map(drop),
                };
                assert!(matches!(outcome, Ok(()) | Err(StateError::Read(ReadError::LimitExceeded))));
                assert!(runtime.last_cost().reads <= 4 * reads + 10, "{:?}", runtime.last_cost());
            }
        }
    }
}

/// Memory that alternates between two contents at the first reads from an address, and has the first content afterwards.
#[derive(Debug)]
struct RestlessMemory {
    contents: [TestMemory; 2],
    at: u64,
    reads: AtomicU64,
    changes: u64,
}

impl Memory for RestlessMemory {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), ReadError> {
        let is_there = (address..address + into.len() as u64).contains(&self.at);
        let reads = if is_there { self.reads.fetch_add(1, Ordering::Relaxed) } else { 0 };
        let content = if reads < self.changes { reads % 2 } else { 0 };
        self.contents[content as usize].read(address, into)
    }
}

/// A runtime in which a word changes at each of the first reads.
fn restless(at: u64, value: u32, changes: u64) -> DotNetRuntime {
    let (before, symbols) = test_image::build(Version::Net10, Place::LoadedImage);
    let mut after = before.clone();
    after.write_u32(at, value);
    open(RestlessMemory { contents: [before, after], at, reads: AtomicU64::new(0), changes }, symbols)
}

#[test]
fn a_monitor_that_changes_in_each_reading_is_left_out() {
    for (at, value) in [(block(HELD), 4 << 6 | 1), (block(HELD) + 8, 77), (block(HELD) + 4, 1)] {
        let monitors = restless(at, value, u64::MAX).monitors().unwrap();
        assert_eq!(monitors, Listing { entries: both()[1..].to_vec(), is_complete: false });
        // The last change is within the first two readings.
        let monitors = restless(at, value, 3).monitors().unwrap();
        assert_eq!(monitors, Listing { entries: both().to_vec(), is_complete: true });
    }
    // A thread that spins is no change.
    let monitors = restless(block(HELD), 3 << 6 | 4 << 2 | 1, u64::MAX).monitors().unwrap();
    assert_eq!(monitors, Listing { entries: both().to_vec(), is_complete: true });
}

#[test]
fn a_list_whose_links_change_is_read_again() {
    let other = link(WORKER) as u32;
    let after = |changes| restless(first_link_field(Version::Net10), other, changes).threads();
    assert_eq!(after(u64::MAX), Err(StateError::ThreadsChanged));
    assert_eq!(after(2).unwrap().entries.len(), 2, "the second reading is without a change");
}

#[test]
fn a_thread_that_changes_in_each_reading_is_left_out() {
    for at in [thread(WORKER) + 304, thread(WORKER) + 336] {
        let threads = restless(at, handle(MAIN) as u32, u64::MAX).threads().unwrap();
        assert_eq!((threads.entries.len(), threads.is_complete), (1, false), "{at:x}");
    }
    let ended = restless(thread(WORKER) + 296, 0, u64::MAX).threads().unwrap();
    assert_eq!((ended.entries.len(), ended.is_complete), (1, false));
    let mode = restless(thread(WORKER) + 4, 0, u64::MAX).threads().unwrap();
    assert_eq!((mode.entries.len(), mode.is_complete), (2, true), "the mode changes all the time");
}

#[test]
fn a_runtime_that_describes_threads_or_monitors_in_another_way_has_names_alone() {
    let opened = |from: &str, to: &str| {
        let (mut memory, symbols) = test_image::build(Version::Net10, Place::LoadedImage);
        test_image::replace_json(&mut memory, from, to);
        open(memory, symbols)
    };
    let missing = |what: &str| Some(StateError::NotDescribed(DescriptorError::Missing(what.to_owned())));
    let mut other_version = opened(r#""Thread":1"#, r#""Thread":"c1""#);
    let version = DescriptorError::ContractVersion { contract: "Thread", version: "c1".to_owned() };
    assert_eq!(other_version.threads(), Err(StateError::NotDescribed(version.clone())));
    assert_eq!(other_version.monitors(), Err(StateError::NotDescribed(version)));
    let contract = opened(r#""Thread":1"#, r#""Thread":1,"SyncBlock":1"#).monitors().err();
    assert_eq!(contract, missing("monitors as .NET 9.0 and 10.0 do"));
    let larger_monitor = opened(r#""InteropInfo":56"#, r#""InteropInfo":64"#).monitors().err();
    assert_eq!(larger_monitor, missing("monitors as .NET 9.0 and 10.0 do"));
    let no_link = opened(r#""LinkNext":112"#, r#""Next":112"#).threads().err();
    assert_eq!(no_link, missing("the field Thread.LinkNext"));
    let huge_thread = opened(r#""LinkNext":112"#, r#""LinkNext":112000"#).threads();
    let too_large = DescriptorError::TooLarge("a thread of more than 4 KiB");
    assert_eq!(huge_thread, Err(StateError::NotDescribed(too_large)));
}

#[test]
fn damaged_memory_takes_bounded_reads_and_no_thread_is_invented() {
    let mut random = fastrand::Rng::with_seed(12);
    let limits = ReadLimits::default();
    for round in 0..600 {
        let version = VERSIONS[round % 2];
        let (mut memory, symbols) = test_image::build(version, Place::LoadedImage);
        memory.damage(&mut random, [10_000, 1_000, 100][round / 200]);
        let Ok(mut runtime) = DotNetRuntime::open(Arc::new(memory), symbols, limits, &Arc::default()) else {
            continue;
        };
        let threads = runtime.threads();
        assert!(runtime.last_cost().reads <= 4 * limits.reads + 10);
        let monitors = runtime.monitors();
        assert!(runtime.last_cost().reads <= 4 * limits.reads + 10);
        if let (Ok(threads), Ok(monitors)) = (threads, monitors) {
            let is_thread = |monitor: &HeldMonitor| {
                threads.entries.iter().any(|thread| {
                    (thread.os_id, thread.managed_id) == (monitor.owner_os_id, monitor.owner_managed_id)
                })
            };
            assert!(monitors.entries.iter().all(is_thread));
        }
    }
}
