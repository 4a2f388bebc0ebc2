//! What is in the kernel follows what processes map, fork, execute and end.

use std::{collections::BTreeSet, iter, sync::mpsc};

use profiler_common::unwind::{CfaRule, MAX_MAPPINGS_PER_PROCESS, Rule};

use super::*;
use crate::sampler::ebpf::test_maps::unwind_maps;
use profiler_addresses::FileOffset;

fn entry(start: u64, end: u64, pages: u32) -> MappingEntry {
    MappingEntry { start, end, pages, ..MappingEntry::default() }
}

#[test]
fn neighbours_without_a_table_are_one_entry() {
    let mut entries = Vec::new();
    for piece in [
        entry(0x1000, 0x2000, 0),
        entry(0x2000, 0x3000, 0),
        entry(0x3000, 0x4000, 1),
        entry(0x4000, 0x5000, 0),
        entry(0x6000, 0x7000, 0),
    ] {
        push(&mut entries, piece);
    }
    let expected = [
        entry(0x1000, 0x3000, 0),
        entry(0x3000, 0x4000, 1),
        entry(0x4000, 0x5000, 0),
        entry(0x6000, 0x7000, 0),
    ];
    assert_eq!(entries, expected);
}

/// Processes that are not there: a kernel counts no further than 2^22.
const CHILD: u32 = 1 << 23;
const GRANDCHILD: u32 = CHILD + 1;

fn spaces() -> Option<Spaces> {
    let mut spaces = Spaces::new(unwind_maps()?, true).unwrap();
    spaces.expect(own());
    settle(&mut spaces);
    assert!(spaces.maps.process(own()).is_some());
    Some(spaces)
}

fn settle(spaces: &mut Spaces) {
    while spaces.are_behind() {
        spaces.settle(|| false);
    }
}

fn own() -> u32 {
    std::process::id()
}

fn happens(spaces: &mut Spaces, pid: u32, kind: SidebandEventKind) {
    spaces.happened(SidebandEvent { time_ns: 1, pid, tid: pid, kind });
    settle(spaces);
}

fn jit(start: u64) -> SidebandEventKind {
    let (start, end) = (RuntimeAddress(start), RuntimeAddress(start + 0x1000));
    SidebandEventKind::Map(Mapping { start, end, offset: FileOffset(0), backing: Backing::Jit })
}

#[test]
fn the_code_that_runs_here_has_a_rule() {
    let Some(spaces) = spaces() else { return };
    let contents = spaces.maps.contents();
    let process = spaces.maps.process(own()).unwrap();
    let address = the_code_that_runs_here_has_a_rule as fn() as usize as u64;
    let mapping =
        contents.mappings(process).iter().find(|mapping| mapping.start <= address && address < mapping.end);
    let at_entry = Rule {
        cfa: CfaRule::StackPointer as u8,
        cfa_offset: 8,
        return_address_offset: -8,
        ..Rule::default()
    };
    assert_eq!(contents.rule(mapping.unwrap(), address), at_entry);
}

#[test]
fn a_child_shares_its_parent_s_mappings_until_one_of_them_changes() {
    let Some(mut spaces) = spaces() else { return };
    happens(&mut spaces, CHILD, SidebandEventKind::Fork { parent: own() });
    let before = spaces.maps.process(own());
    assert_eq!(spaces.maps.process(CHILD), before);
    happens(&mut spaces, own(), jit(0x1000));
    let after = spaces.maps.process(own()).unwrap();
    assert_eq!(after.mappings, before.unwrap().mappings + 1);
    assert_eq!(spaces.maps.process(CHILD), before);
    happens(&mut spaces, GRANDCHILD, SidebandEventKind::Fork { parent: CHILD });
    happens(&mut spaces, CHILD, SidebandEventKind::Exit);
    assert_eq!((spaces.maps.process(CHILD), spaces.maps.process(GRANDCHILD)), (None, before));
}

#[test]
fn each_process_has_its_turn_before_one_has_its_next() {
    let Some(mut spaces) = spaces() else { return };
    let pids = [own(), CHILD, GRANDCHILD];
    for pid in [CHILD, GRANDCHILD] {
        happens(&mut spaces, pid, SidebandEventKind::Fork { parent: own() });
    }
    for (pid, start) in iter::zip(pids, [0x1000, 0x2000, 0x3000]) {
        let kind = jit(start);
        spaces.happened(SidebandEvent { time_ns: 1, pid, tid: pid, kind });
    }
    for _ in 0..2 {
        let turns: BTreeSet<_> = pids.iter().filter_map(|_| spaces.next_behind()).collect();
        assert_eq!(turns, pids.into());
    }
    settle(&mut spaces);
    assert_eq!((spaces.are_behind(), spaces.next_behind()), (false, None));
}

#[test]
fn a_process_that_maps_code_is_looked_at_soon_again() {
    let Some(mut spaces) = spaces() else { return };
    for _ in 0..3 {
        pass(&mut spaces, MAX_LOOK_INTERVAL);
        spaces.unknown_code(own());
    }
    assert!(spaces.spaces[&own()].look_interval > MIN_LOOK_INTERVAL, "what it has is the same");
    happens(&mut spaces, own(), jit(0x1000));
    assert_eq!(spaces.spaces[&own()].look_interval, MIN_LOOK_INTERVAL);
}

#[test]
fn a_process_goes_on_when_its_first_thread_ends_before_another() {
    let Some(mut spaces) = spaces() else { return };
    let before = spaces.maps.process(own());
    let (end, ends) = mpsc::channel::<()>();
    let other = std::thread::spawn(move || ends.recv());
    happens(&mut spaces, own(), SidebandEventKind::Exit);
    assert_eq!(spaces.maps.process(own()), before);
    drop(end);
    assert!(other.join().unwrap().is_err());
    happens(&mut spaces, CHILD, SidebandEventKind::Fork { parent: own() });
    let other_thread =
        SidebandEvent { time_ns: 1, pid: CHILD, tid: CHILD + 1, kind: SidebandEventKind::Exit };
    spaces.happened(other_thread);
    assert_eq!(spaces.maps.process(CHILD), before, "its first thread goes on");
    happens(&mut spaces, CHILD, SidebandEventKind::Exit);
    assert_eq!(spaces.maps.process(CHILD), None);
}

#[test]
fn a_child_that_was_there_before_it_was_told_of_is_found_all_the_same() {
    let Some(mut spaces) = spaces() else { return };
    for _ in 0..2 {
        happens(&mut spaces, CHILD, SidebandEventKind::Fork { parent: own() });
        assert_eq!(spaces.maps.process(CHILD), spaces.maps.process(own()));
    }
}

#[test]
fn another_program_has_its_own_mappings() {
    let Some(mut spaces) = spaces() else { return };
    happens(&mut spaces, own(), jit(0x1000));
    let before = spaces.maps.process(own()).unwrap();
    happens(&mut spaces, own(), SidebandEventKind::Execute("other".to_owned()));
    let after = spaces.maps.process(own()).unwrap();
    assert_eq!(after.mappings, before.mappings - 1, "what was made up is in no program");
    happens(&mut spaces, CHILD, SidebandEventKind::Fork { parent: own() });
    happens(&mut spaces, CHILD, SidebandEventKind::Execute("gone".to_owned()));
    assert_eq!(spaces.maps.process(CHILD), None);
}

#[test]
fn when_all_have_ended_nothing_is_left() {
    let Some(mut spaces) = spaces() else { return };
    happens(&mut spaces, CHILD, SidebandEventKind::Fork { parent: own() });
    happens(&mut spaces, own(), jit(0x1000));
    happens(&mut spaces, CHILD, SidebandEventKind::Exit);
    spaces.forget(own());
    assert!(spaces.have_unused_files() && spaces.maps.processes().unwrap().is_empty());
    spaces.files.free_unused(&mut spaces.maps, Instant::now() + Duration::from_secs(3600));
    assert!(!spaces.have_unused_files());
    assert!(spaces.maps.are_empty());
}

#[test]
fn what_was_not_told_is_found_when_all_is_read_again() {
    let Some(mut spaces) = spaces() else { return };
    let before = spaces.maps.process(own()).unwrap();
    happens(&mut spaces, own(), jit(0x1000));
    // As the kernel side does, and then the event is lost.
    let own_mappings = spaces.spaces[&own()].placed.clone().unwrap();
    spaces.maps.set_process(CHILD, &own_mappings.mappings).unwrap();
    drop(own_mappings);
    spaces.look_again();
    settle(&mut spaces);
    assert_eq!(spaces.maps.process(CHILD), None);
    assert_eq!(spaces.maps.process(own()).unwrap().mappings, before.mappings);
}

/// As if so long had passed since the process was looked at.
fn pass(spaces: &mut Spaces, time: Duration) {
    let space = spaces.spaces.get_mut(&own()).unwrap();
    space.looked = space.looked.checked_sub(time).unwrap();
}

#[test]
fn a_process_that_has_no_room_is_tried_ever_more_rarely() {
    let Some(mut spaces) = spaces() else { return };
    let many = vec![MappingEntry::default(); MAX_MAPPINGS_PER_PROCESS as usize];
    let mut taken: Vec<_> = iter::from_fn(|| spaces.maps.add_mappings(&many).ok()).collect();
    let few = &many[..100];
    taken.extend(iter::from_fn(|| spaces.maps.add_mappings(few).ok()));
    let one = &many[..1];
    taken.extend(iter::from_fn(|| spaces.maps.add_mappings(one).ok()));

    happens(&mut spaces, own(), jit(0x1000));
    let interval = |spaces: &Spaces| spaces.spaces[&own()].look_interval;
    for _ in 0..20 {
        let before = interval(&spaces);
        pass(&mut spaces, before);
        spaces.unknown_code(own());
        settle(&mut spaces);
        assert!(interval(&spaces) == (2 * before).min(MAX_LOOK_INTERVAL));
        happens(&mut spaces, own(), jit(0x1000));
        spaces.unknown_code(own());
        assert!(spaces.spaces[&own()].is_refused, "nothing is tried before its time");
    }
    taken.into_iter().for_each(|mappings| spaces.maps.remove_mappings(mappings));
    pass(&mut spaces, MAX_LOOK_INTERVAL);
    let before = spaces.maps.process(own());
    spaces.unknown_code(own());
    settle(&mut spaces);
    assert!(!spaces.spaces[&own()].is_refused && spaces.maps.process(own()) != before);
}

#[test]
fn files_that_are_mapped_no_more_are_forgotten() {
    let Some(mut spaces) = spaces() else { return };
    let known = spaces.spaces[&own()].files.len();
    for inode in 0..100 {
        let id = FileId { major: 0, minor: 0, inode: 1 << 40 | inode };
        let (start, end) = (RuntimeAddress(0x1000), RuntimeAddress(0x2000));
        let backing = Backing::File { id, path: "/nowhere".into() };
        let mapping = Mapping { start, end, offset: FileOffset(0), backing };
        happens(&mut spaces, own(), SidebandEventKind::Map(mapping));
    }
    assert_eq!(spaces.spaces[&own()].files.len(), known + 1);
}
