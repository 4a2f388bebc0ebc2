//! Tests that the installed mappings follow mmap, fork, exec and exit.

use std::{
    collections::BTreeSet,
    iter,
    process::{Child, Command},
    sync::mpsc,
};

use profiler_addresses::FileOffset;
use profiler_common::unwind::{CfaRule, MAX_MAPPINGS_PER_PROCESS, Rule};

use super::*;
use crate::sampler::ebpf::test_maps::unwind_maps;

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

/// Pids of processes that do not exist: pids are at most 2^22.
const CHILD: u32 = 1 << 23;
const GRANDCHILD: u32 = CHILD + 1;

fn installer() -> Option<MappingInstaller> {
    let mut installer = MappingInstaller::new(unwind_maps()?, true).unwrap();
    installer.prefetch(own());
    settle(&mut installer);
    assert!(installer.maps.process(own()).is_some());
    Some(installer)
}

fn settle(installer: &mut MappingInstaller) {
    while installer.is_outdated() {
        installer.install_outdated(|| false);
    }
}

fn own() -> u32 {
    std::process::id()
}

fn apply(installer: &mut MappingInstaller, pid: u32, kind: SidebandEventKind) {
    installer.apply(SidebandEvent { time_ns: 1, pid, tid: pid, kind });
    settle(installer);
}

fn jit(start: u64) -> SidebandEventKind {
    let (start, end) = (RuntimeAddress(start), RuntimeAddress(start + 0x1000));
    SidebandEventKind::Map(Mapping { start, end, offset: FileOffset(0), backing: Backing::Jit })
}

#[test]
fn the_code_of_this_test_has_an_unwind_rule() {
    let Some(installer) = installer() else { return };
    let contents = installer.maps.contents();
    let process = installer.maps.process(own()).unwrap();
    let address = the_code_of_this_test_has_an_unwind_rule as fn() as usize as u64;
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
fn a_child_shares_the_mappings_of_its_parent_until_one_of_them_changes() {
    let Some(mut installer) = installer() else { return };
    apply(&mut installer, CHILD, SidebandEventKind::Fork { parent: own() });
    let before = installer.maps.process(own());
    assert_eq!(installer.maps.process(CHILD), before);
    apply(&mut installer, own(), jit(0x1000));
    let after = installer.maps.process(own()).unwrap();
    assert_eq!(after.mappings, before.unwrap().mappings + 1);
    assert_eq!(installer.maps.process(CHILD), before);
    apply(&mut installer, GRANDCHILD, SidebandEventKind::Fork { parent: CHILD });
    apply(&mut installer, CHILD, SidebandEventKind::Exit);
    assert_eq!((installer.maps.process(CHILD), installer.maps.process(GRANDCHILD)), (None, before));
}

#[test]
fn outdated_processes_take_turns() {
    let Some(mut installer) = installer() else { return };
    let pids = [own(), CHILD, GRANDCHILD];
    for pid in [CHILD, GRANDCHILD] {
        apply(&mut installer, pid, SidebandEventKind::Fork { parent: own() });
    }
    for (pid, start) in iter::zip(pids, [0x1000, 0x2000, 0x3000]) {
        let kind = jit(start);
        installer.apply(SidebandEvent { time_ns: 1, pid, tid: pid, kind });
    }
    for _ in 0..2 {
        let turns: BTreeSet<_> = pids.iter().filter_map(|_| installer.next_outdated()).collect();
        assert_eq!(turns, pids.into());
    }
    settle(&mut installer);
    assert_eq!((installer.is_outdated(), installer.next_outdated()), (false, None));
}

#[test]
fn a_new_mapping_resets_the_back_off() {
    let Some(mut installer) = installer() else { return };
    for _ in 0..3 {
        advance(&mut installer, MAX_READ_INTERVAL);
        installer.handle_unknown_code(own());
    }
    assert!(installer.processes[&own()].read_interval > MIN_READ_INTERVAL, "the mappings are unchanged");
    apply(&mut installer, own(), jit(0x1000));
    assert_eq!(installer.processes[&own()].read_interval, MIN_READ_INTERVAL);
}

#[test]
fn a_process_is_kept_when_its_leader_exits_before_another_thread() {
    let Some(mut installer) = installer() else { return };
    let before = installer.maps.process(own());
    let (end, ends) = mpsc::channel::<()>();
    let other = std::thread::spawn(move || ends.recv());
    apply(&mut installer, own(), SidebandEventKind::Exit);
    assert_eq!(installer.maps.process(own()), before);
    drop(end);
    assert!(other.join().unwrap().is_err());
    apply(&mut installer, CHILD, SidebandEventKind::Fork { parent: own() });
    let other_thread =
        SidebandEvent { time_ns: 1, pid: CHILD, tid: CHILD + 1, kind: SidebandEventKind::Exit };
    installer.apply(other_thread);
    assert_eq!(installer.maps.process(CHILD), before, "its leader still runs");
    apply(&mut installer, CHILD, SidebandEventKind::Exit);
    assert_eq!(installer.maps.process(CHILD), None);
}

#[test]
fn a_repeated_fork_event_is_harmless() {
    let Some(mut installer) = installer() else { return };
    for _ in 0..2 {
        apply(&mut installer, CHILD, SidebandEventKind::Fork { parent: own() });
        assert_eq!(installer.maps.process(CHILD), installer.maps.process(own()));
    }
}

#[test]
fn exec_replaces_the_mappings() {
    let Some(mut installer) = installer() else { return };
    apply(&mut installer, own(), jit(0x1000));
    let before = installer.maps.process(own()).unwrap();
    apply(&mut installer, own(), SidebandEventKind::Execute("other".to_owned()));
    let after = installer.maps.process(own()).unwrap();
    assert_eq!(after.mappings, before.mappings - 1, "the invented mapping is gone");
    apply(&mut installer, CHILD, SidebandEventKind::Fork { parent: own() });
    apply(&mut installer, CHILD, SidebandEventKind::Execute("gone".to_owned()));
    assert_eq!(installer.maps.process(CHILD), None);
}

#[test]
fn all_mappings_and_tables_are_removed_after_the_last_exit() {
    let Some(mut installer) = installer() else { return };
    apply(&mut installer, CHILD, SidebandEventKind::Fork { parent: own() });
    apply(&mut installer, own(), jit(0x1000));
    apply(&mut installer, CHILD, SidebandEventKind::Exit);
    installer.remove(own());
    assert!(installer.has_unused_tables() && installer.maps.processes().unwrap().is_empty());
    installer.tables.evict_unused(&mut installer.maps, Instant::now() + Duration::from_secs(3600));
    assert!(!installer.has_unused_tables());
    assert!(installer.maps.are_empty());
}

#[test]
fn a_resync_repairs_lost_events() {
    let Some(mut installer) = installer() else { return };
    let before = installer.maps.process(own()).unwrap();
    apply(&mut installer, own(), jit(0x1000));
    // The BPF program has copied the mappings to the child, and the fork event is lost.
    let own_mappings = installer.processes[&own()].installed.clone().unwrap();
    installer.maps.set_process(CHILD, &own_mappings.mappings).unwrap();
    drop(own_mappings);
    installer.resync();
    settle(&mut installer);
    assert_eq!(installer.maps.process(CHILD), None);
    assert_eq!(installer.maps.process(own()).unwrap().mappings, before.mappings);
}

/// Makes the last read of the mappings older.
fn advance(installer: &mut MappingInstaller, time: Duration) {
    let process = installer.processes.get_mut(&own()).unwrap();
    process.read_at = process.read_at.checked_sub(time).unwrap();
}

/// Installs mappings until the map is full.
fn fill(installer: &mut MappingInstaller) -> Vec<InstalledMappings> {
    let many = vec![MappingEntry::default(); MAX_MAPPINGS_PER_PROCESS as usize];
    let add =
        |count: usize| iter::from_fn(|| installer.maps.add_mappings(&many[..count]).ok()).collect::<Vec<_>>();
    [many.len(), 100, 1].into_iter().flat_map(add).collect()
}

#[test]
fn a_process_beyond_the_capacity_is_retried_with_back_off() {
    let Some(mut installer) = installer() else { return };
    let taken = fill(&mut installer);
    apply(&mut installer, own(), jit(0x1000));
    let interval = |installer: &MappingInstaller| installer.processes[&own()].read_interval;
    for _ in 0..20 {
        let before = interval(&installer);
        advance(&mut installer, before);
        installer.handle_unknown_code(own());
        settle(&mut installer);
        assert!(interval(&installer) == (2 * before).min(MAX_READ_INTERVAL));
        apply(&mut installer, own(), jit(0x1000));
        installer.handle_unknown_code(own());
        assert!(installer.processes[&own()].exceeds_capacity, "no retry before the back-off has passed");
    }
    taken.into_iter().for_each(|mappings| installer.maps.remove_mappings(mappings));
    advance(&mut installer, MAX_READ_INTERVAL);
    let before = installer.maps.process(own());
    installer.handle_unknown_code(own());
    settle(&mut installer);
    assert!(!installer.processes[&own()].exceeds_capacity && installer.maps.process(own()) != before);
}

#[test]
fn idle_processes_make_place_for_others() {
    let Some(mut installer) = installer() else { return };
    // Together they have more mappings than this process.
    let mut idle: Vec<Child> = (0..3).map(|_| Command::new("sleep").arg("60").spawn().unwrap()).collect();
    for child in &idle {
        // The kernel starts it with an empty address space.
        while installer.read_mappings(child.id()).is_none_or(|mappings| mappings.is_empty()) {
            std::thread::yield_now();
        }
        installer.prefetch(child.id());
    }
    settle(&mut installer);
    let taken = fill(&mut installer);
    apply(&mut installer, own(), jit(0x1000));
    assert!(installer.processes[&own()].exceeds_capacity, "all processes were sampled a moment ago");
    idle.iter().for_each(|child| installer.maps.set_used_ns(child.id(), 1));
    advance(&mut installer, MAX_READ_INTERVAL);
    installer.handle_unknown_code(own());
    settle(&mut installer);
    assert!(!installer.processes[&own()].exceeds_capacity);
    assert!(idle.iter().all(|child| installer.maps.process(child.id()).is_none()));
    taken.into_iter().for_each(|mappings| installer.maps.remove_mappings(mappings));
    for child in &mut idle {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn files_that_are_no_longer_mapped_are_dropped() {
    let Some(mut installer) = installer() else { return };
    let known = installer.processes[&own()].files.len();
    for inode in 0..100 {
        let id = FileId { major: 0, minor: 0, inode: 1 << 40 | inode };
        let (start, end) = (RuntimeAddress(0x1000), RuntimeAddress(0x2000));
        let backing = Backing::File { id, path: "/nowhere".into() };
        let mapping = Mapping { start, end, offset: FileOffset(0), backing };
        apply(&mut installer, own(), SidebandEventKind::Map(mapping));
    }
    assert_eq!(installer.processes[&own()].files.len(), known + 1);
}

#[test]
fn a_process_that_exits_is_kept_until_it_is_reaped() {
    let Some(mut installer) = installer() else { return };
    // Its exit event has arrived, and it still runs in the kernel.
    let mut process = Command::new("sleep").arg("60").spawn().unwrap();
    let pid = process.id();
    installer.prefetch(pid);
    settle(&mut installer);
    let before = installer.maps.process(pid);
    apply(&mut installer, pid, SidebandEventKind::Exit);
    installer.handle_unknown_code(pid);
    assert!(before.is_some() && installer.maps.process(pid) == before);
    process.kill().unwrap();
    process.wait().unwrap();
    installer.handle_unknown_code(pid);
    assert_eq!(installer.maps.process(pid), None);
    assert!(!installer.processes.contains_key(&pid));
}
