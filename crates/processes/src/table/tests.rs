//! Tests of the process table.

use std::{collections::HashSet, fs, path::Path};

use profiler_addresses::{FileOffset, MonotonicTime, RuntimeAddress};

use super::*;
use crate::{Backing, FileId, Mapping};

mod interleavings;

const STATUS: &str = "State:\tR\nTgid:\t7\nUid:\t0\t0\t0\t0\nNStgid:\t7\t1\nVmSize:\t1 kB\n";

fn mapping(inode: u64) -> Mapping {
    let id = FileId { major: 0, minor: 1, inode };
    let backing = Backing::File { id, path: format!("/bin/{inode}").into() };
    Mapping { start: RuntimeAddress(0x1000), end: RuntimeAddress(0x2000), offset: FileOffset(0), backing }
}

fn write_process(directory: &Path, pid: u32, comm: &str, inode: u64) {
    let directory = directory.join(pid.to_string());
    fs::create_dir_all(directory.join("root")).unwrap();
    fs::write(directory.join("status"), STATUS).unwrap();
    let fields: Vec<String> = (4..=52).map(|field| field.to_string()).collect();
    fs::write(directory.join("stat"), format!("7 (x) R {}", fields.join(" "))).unwrap();
    fs::write(directory.join("comm"), format!("{comm}\n")).unwrap();
    fs::write(directory.join("maps"), format!("1000-2000 r-xp 0 00:01 {inode} /bin/{inode}\n")).unwrap();
}

fn table(directory: &Path, filter: ProcessFilter) -> ProcessTable {
    ProcessTable::new(Arc::new(ProcFs::from_capture(directory.to_owned())), filter)
}

fn event(time_ns: u64, pid: u32, kind: SidebandEventKind) -> SidebandEvent {
    let pid = Pid(pid);
    SidebandEvent { time: MonotonicTime(time_ns), pid, tid: Tid::leader_of(pid), kind }
}

/// The process of a sample of its leader.
fn sampled(table: &mut ProcessTable, pid: u32, time_ns: u64, comm: &str) -> ProcessKey {
    let pid = Pid(pid);
    match table.process_of_sample(pid, Tid::leader_of(pid), MonotonicTime(time_ns), comm) {
        ProcessOfSample::Known(key) => key,
        other => panic!("{other:?}"),
    }
}

fn inode(table: &ProcessTable, key: ProcessKey, time_ns: u64) -> Result<u64, LookupError> {
    match &table.get(key).unwrap().find_mapping(RuntimeAddress(0x1800), MonotonicTime(time_ns))?.backing {
        Backing::File { id, .. } => Ok(id.inode),
        _ => Ok(0),
    }
}

#[test]
fn events_of_targets_and_followed_children_are_relevant() {
    let directory = tempfile::tempdir().unwrap();
    for children in [false, true] {
        let filter = ProcessFilter::Only { pids: HashSet::from([Pid(7)]), children };
        let mut table = table(directory.path(), filter);
        assert!(table.is_relevant(&event(1, 7, SidebandEventKind::Exit)));
        assert!(!table.is_relevant(&event(1, 9, SidebandEventKind::Fork { parent: Pid(8) })));
        let fork = event(1, 8, SidebandEventKind::Fork { parent: Pid(7) });
        assert_eq!(table.is_relevant(&fork), children);
        table.apply(fork);
        assert_eq!(table.is_relevant(&event(2, 8, SidebandEventKind::Exit)), children);
    }
    assert!(table(directory.path(), ProcessFilter::All).is_relevant(&event(1, 8, SidebandEventKind::Exit)));
}

#[test]
fn a_process_is_read_at_its_first_sample() {
    let directory = tempfile::tempdir().unwrap();
    write_process(directory.path(), 7, "app", 5);
    let mut table = table(directory.path(), ProcessFilter::All);
    let key = sampled(&mut table, 7, 100, "thread");
    assert_eq!(inode(&table, key, 100), Ok(5));
    let process = table.get(key).unwrap();
    assert_eq!(process.comm, "app");
    assert_eq!(process.identity.as_ref().unwrap().status.innermost_pid, 1);
    assert_eq!(sampled(&mut table, 7, 200, "thread"), key);
}

#[test]
fn a_process_that_has_ended_has_the_name_of_its_sample() {
    let directory = tempfile::tempdir().unwrap();
    let mut table = table(directory.path(), ProcessFilter::All);
    let key = sampled(&mut table, 9, 100, "gone");
    assert_eq!(table.get(key).unwrap().comm, "gone");
    assert_eq!(inode(&table, key, 100), Err(LookupError::ProcessGone));
}

#[test]
fn a_process_is_read_again_after_too_many_files_were_open() {
    let directory = tempfile::tempdir().unwrap();
    let mut table = table(directory.path(), ProcessFilter::All);
    let key = table.add_earliest(Pid(7), "app");
    let (identity, space) = (Err(LookupError::TooManyOpenFiles), Err(LookupError::TooManyOpenFiles));
    table.apply_reading(Reading {
        pid: Pid(7),
        began: MonotonicTime(0),
        ended: MonotonicTime(0),
        identity,
        comm: None,
        space,
    });
    assert_eq!(sampled(&mut table, 7, 100, "app"), key);
    assert_eq!(inode(&table, key, 100), Err(LookupError::TooManyOpenFiles));
    write_process(directory.path(), 7, "app", 5);
    table.request_mappings(Pid(7));
    assert_eq!(inode(&table, key, 100), Ok(5));
}

#[test]
fn the_path_of_a_program_that_cannot_be_read_is_not_that_of_another_one() {
    let directory = tempfile::tempdir().unwrap();
    write_process(directory.path(), 7, "app", 5);
    let mut reader = ProcessReader::new(Arc::new(ProcFs::from_capture(directory.path().to_owned())));
    let mut identity = |executable: Option<&str>| {
        let identity = reader.read(Pid(7)).identity.unwrap();
        crate::Identity { executable: executable.map(Into::into), ..identity }
    };
    let known = identity(Some("/bin/app"));
    assert!(known.is_same_program(&identity(Some("/bin/app"))) && known.is_same_program(&identity(None)));
    assert!(!known.is_same_program(&identity(Some("/bin/other"))));
    let later = crate::Identity { start_ticks: known.start_ticks + 1, ..identity(None) };
    assert!(!known.is_same_program(&later));
}

#[test]
fn after_an_exec_the_mappings_come_from_sideband_events() {
    let directory = tempfile::tempdir().unwrap();
    write_process(directory.path(), 7, "sh", 5);
    let mut table = table(directory.path(), ProcessFilter::All);
    let shell = sampled(&mut table, 7, 10, "sh");
    table.apply(event(50, 7, SidebandEventKind::Execute("ls".to_owned())));
    table.apply(event(51, 7, SidebandEventKind::Map(mapping(6))));
    fs::remove_dir_all(directory.path().join("7")).unwrap();
    let ls = sampled(&mut table, 7, 60, "ls");
    assert_ne!(shell, ls);
    assert_eq!(table.get(ls).unwrap().comm, "ls");
    assert_eq!(inode(&table, ls, 60), Ok(6));
    assert_eq!(sampled(&mut table, 7, 40, "sh"), shell);
    assert_eq!(inode(&table, shell, 40), Ok(5));
}

#[test]
fn a_reused_pid_has_another_key() {
    let directory = tempfile::tempdir().unwrap();
    write_process(directory.path(), 7, "old", 5);
    let mut table = table(directory.path(), ProcessFilter::All);
    let old = sampled(&mut table, 7, 10, "old");
    table.apply(event(20, 7, SidebandEventKind::Exit));
    table.apply(event(30, 7, SidebandEventKind::Fork { parent: Pid(3) }));
    let new = sampled(&mut table, 7, 40, "new");
    assert_ne!(old, new);
    assert_eq!(sampled(&mut table, 7, 15, "old"), old);
}

#[test]
fn a_forked_child_that_has_ended_has_the_mappings_of_its_parent() {
    let directory = tempfile::tempdir().unwrap();
    write_process(directory.path(), 7, "app", 5);
    let mut table = table(directory.path(), ProcessFilter::All);
    sampled(&mut table, 7, 10, "app");
    table.apply(event(20, 8, SidebandEventKind::Fork { parent: Pid(7) }));
    table.apply(event(21, 7, SidebandEventKind::Map(mapping(6))));
    table.apply(event(25, 8, SidebandEventKind::Exit));
    let child = sampled(&mut table, 8, 22, "app");
    assert_eq!(inode(&table, child, 22), Ok(5));
    assert_eq!(table.get(child).unwrap().comm, "app");
}

#[test]
fn the_mappings_of_an_unread_parent_are_read_for_its_ended_child() {
    let directory = tempfile::tempdir().unwrap();
    write_process(directory.path(), 7, "app", 5);
    let mut table = table(directory.path(), ProcessFilter::All);
    table.apply(event(20, 8, SidebandEventKind::Fork { parent: Pid(7) }));
    table.apply(event(25, 8, SidebandEventKind::Exit));
    let child = sampled(&mut table, 8, 22, "app");
    assert_eq!(inode(&table, child, 22), Ok(5));
}

#[test]
fn only_the_target_and_its_followed_children_are_in_the_table() {
    let directory = tempfile::tempdir().unwrap();
    write_process(directory.path(), 7, "app", 5);
    let pids = HashSet::from([Pid(7)]);
    for (children, count) in [(true, 2), (false, 1)] {
        let filter = ProcessFilter::Only { pids: pids.clone(), children };
        let mut table = table(directory.path(), filter);
        table.prefetch(Pid(7));
        table.apply(event(20, 8, SidebandEventKind::Fork { parent: Pid(7) }));
        table.apply(event(20, 9, SidebandEventKind::Fork { parent: Pid(3) }));
        table.apply(event(21, 9, SidebandEventKind::Execute("other".to_owned())));
        assert_eq!(table.processes.len(), count);
    }
}

#[test]
fn processes_are_retired_after_they_end_unless_they_are_needed() {
    let directory = tempfile::tempdir().unwrap();
    let mut table = table(directory.path(), ProcessFilter::All);
    for pid in 100..200 {
        table.apply(event(10, pid, SidebandEventKind::Fork { parent: Pid(1) }));
        table.apply(event(20, pid, SidebandEventKind::Exit));
    }
    let needed = sampled(&mut table, 150, 15, "x");
    table.advance(MonotonicTime(20 + TEARDOWN_TIME.as_nanos() as u64));
    assert_eq!(table.retire_ended(|_| false), [], "samples of the teardown may follow");
    table.advance(MonotonicTime(21 + TEARDOWN_TIME.as_nanos() as u64));
    assert_eq!(table.retire_ended(|key| key == needed).len(), 99);
    assert_eq!(table.processes.len(), 2, "the one that is needed, and the parent of all");
    table.end_interval(MonotonicTime(0));
    assert_eq!((table.processes.len(), table.by_pid.len(), table.ended.len()), (1, 1, 0));
}

#[test]
fn events_of_other_threads_neither_end_nor_rename_the_process() {
    let directory = tempfile::tempdir().unwrap();
    write_process(directory.path(), 7, "app", 5);
    fs::write(directory.path().join("7/status"), format!("{STATUS}Threads:\t2\n")).unwrap();
    let mut table = table(directory.path(), ProcessFilter::All);
    let key = sampled(&mut table, 7, 10, "app");
    let thread = |kind| SidebandEvent { time: MonotonicTime(20), pid: Pid(7), tid: Tid(8), kind };
    table.apply(thread(SidebandEventKind::Rename("worker".to_owned())));
    table.apply(thread(SidebandEventKind::Exit));
    let process = table.get(key).unwrap();
    assert_eq!(process.comm, "app");
    assert!(!process.has_ended());
}

#[test]
fn a_process_lives_until_its_last_thread_exits() {
    let directory = tempfile::tempdir().unwrap();
    let mut table = table(directory.path(), ProcessFilter::All);
    table.apply(event(10, 7, SidebandEventKind::Fork { parent: Pid(1) }));
    let thread =
        |time_ns, tid, kind| SidebandEvent { time: MonotonicTime(time_ns), pid: Pid(7), tid: Tid(tid), kind };
    table.apply(thread(11, 8, SidebandEventKind::StartThread));
    table.apply(thread(12, 7, SidebandEventKind::Exit));
    let key = sampled(&mut table, 7, 15, "x");
    assert!(!table.get(key).unwrap().has_ended());
    table.apply(thread(20, 8, SidebandEventKind::Exit));
    assert!(table.get(key).unwrap().has_ended());
}

#[test]
fn the_threads_of_a_process_that_was_running_before_are_counted() {
    let directory = tempfile::tempdir().unwrap();
    write_process(directory.path(), 7, "app", 5);
    fs::write(directory.path().join("7/status"), format!("{STATUS}Threads:\t2\n")).unwrap();
    let mut table = table(directory.path(), ProcessFilter::All);
    let key = sampled(&mut table, 7, 10, "app");
    let exit = |time_ns, tid| SidebandEvent {
        time: MonotonicTime(time_ns),
        pid: Pid(7),
        tid: Tid(tid),
        kind: SidebandEventKind::Exit,
    };
    table.apply(exit(20, 7));
    assert!(!table.get(key).unwrap().has_ended());
    table.apply(exit(30, 8));
    assert!(table.get(key).unwrap().has_ended());
}

#[test]
fn a_process_that_was_reused_is_not_the_target() {
    let directory = tempfile::tempdir().unwrap();
    write_process(directory.path(), 7, "app", 5);
    write_process(directory.path(), 8, "app", 5);
    let only = ProcessFilter::Only { pids: HashSet::from([Pid(7), Pid(8)]), children: false };
    let threads =
        ProcessFilter::Threads { pids: HashSet::from([Pid(7)]), tids: HashSet::from([Tid(7), Tid(9)]) };
    for filter in [only, threads] {
        let mut table = table(directory.path(), filter);
        sampled(&mut table, 7, 10, "app");
        table.apply(event(20, 7, SidebandEventKind::Exit));
        table.apply(event(30, 7, SidebandEventKind::Fork { parent: Pid(1) }));
        assert_eq!(
            table.process_of_sample(Pid(7), Tid(7), MonotonicTime(40), "other"),
            ProcessOfSample::NotATarget
        );
        assert!(matches!(
            table.process_of_sample(Pid(7), Tid(7), MonotonicTime(15), "app"),
            ProcessOfSample::Known(_)
        ));
    }
    let threads = ProcessFilter::Threads { pids: HashSet::from([Pid(7)]), tids: HashSet::from([Tid(9)]) };
    let mut table = table(directory.path(), threads);
    assert!(matches!(
        table.process_of_sample(Pid(7), Tid(9), MonotonicTime(10), "app"),
        ProcessOfSample::Known(_)
    ));
    assert_eq!(
        table.process_of_sample(Pid(7), Tid(8), MonotonicTime(10), "app"),
        ProcessOfSample::NotATarget
    );
    table.apply(SidebandEvent {
        time: MonotonicTime(20),
        pid: Pid(3),
        tid: Tid(9),
        kind: SidebandEventKind::StartThread,
    });
    assert_eq!(
        table.process_of_sample(Pid(7), Tid(9), MonotonicTime(20), "app"),
        ProcessOfSample::NotATarget
    );
}

#[test]
fn a_process_with_the_reused_id_of_a_target_neither_renames_it_nor_has_followed_children() {
    let directory = tempfile::tempdir().unwrap();
    write_process(directory.path(), 7, "app", 5);
    for children in [false, true] {
        let only = ProcessFilter::Only { pids: HashSet::from([Pid(7), Pid(8)]), children };
        let mut table = table(directory.path(), only);
        let target = sampled(&mut table, 7, 10, "app");
        table.apply(event(20, 7, SidebandEventKind::Exit));
        table.apply(event(30, 7, SidebandEventKind::Fork { parent: Pid(1) }));
        table.apply(event(40, 7, SidebandEventKind::Rename("other".into())));
        table.apply(event(50, 9, SidebandEventKind::Fork { parent: Pid(7) }));
        assert_eq!(&*table.get(target).unwrap().comm, "app");
        assert_eq!(
            table.process_of_sample(Pid(9), Tid(9), MonotonicTime(60), "other"),
            ProcessOfSample::NotATarget
        );
    }
}

#[test]
fn after_lost_events_a_process_is_compared_with_proc() {
    let directory = tempfile::tempdir().unwrap();
    write_process(directory.path(), 7, "app", 5);
    write_process(directory.path(), 8, "app", 5);
    let mut table = table(directory.path(), ProcessFilter::All);
    let (key, other) = (sampled(&mut table, 7, 10, "app"), sampled(&mut table, 8, 10, "app"));
    // Process 7 maps one more file, process 8 executes another program.
    let file = |inode, start| format!("{start}000-{start}fff r-xp 0 00:01 {inode} /lib/{inode}\n");
    fs::write(directory.path().join("7/maps"), file(6, 3) + "1000-2000 r-xp 0 00:01 5 /bin/5\n").unwrap();
    write_process(directory.path(), 8, "program", 9);
    table.lose_events();
    table.advance(MonotonicTime(50));
    assert_eq!(sampled(&mut table, 7, 50, "app"), key);
    let mapping =
        |address| table.get(key).unwrap().find_mapping(RuntimeAddress(address), MonotonicTime(50)).is_ok();
    assert!(mapping(0x3800) && mapping(0x1800));
    let program = sampled(&mut table, 8, 50, "program");
    assert_ne!(program, other);
    assert_eq!((inode(&table, program, 50), inode(&table, other, 10)), (Ok(9), Ok(5)));
    assert_eq!(table.get(program).unwrap().comm, "program");
}

#[test]
fn the_number_of_processes_is_limited() {
    let directory = tempfile::tempdir().unwrap();
    let mut table = table(directory.path(), ProcessFilter::All);
    for pid in 0..3 * MAX_PROCESSES as u32 {
        table.apply(event(u64::from(pid), pid, SidebandEventKind::Fork { parent: Pid(1) }));
    }
    assert!(table.processes.len() <= MAX_PROCESSES);
    assert_eq!(table.by_pid.len(), table.processes.len());
}

#[test]
fn processes_without_samples_are_read_again_after_some_intervals() {
    let directory = tempfile::tempdir().unwrap();
    write_process(directory.path(), 7, "app", 5);
    let mut table = table(directory.path(), ProcessFilter::All);
    let key = sampled(&mut table, 7, 10, "app");
    for _ in 0..=MAX_IDLE_INTERVALS {
        assert!(table.get(key).is_some());
        table.end_interval(MonotonicTime(0));
    }
    assert!(table.get(key).is_none());
    assert_ne!(sampled(&mut table, 7, 20, "app"), key);
}
