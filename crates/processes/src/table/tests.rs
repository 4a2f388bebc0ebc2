//! Tests of the process table.

use std::{fs, path::Path};

use profiler_addresses::FileOffset;

use super::*;
use crate::{FileId, TimeOrdered};

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
    SidebandEvent { time_ns, pid, tid: pid, kind }
}

fn inode(table: &ProcessTable, key: ProcessKey, time_ns: u64) -> Result<u64, LookupError> {
    match &table.get(key).unwrap().find_mapping(RuntimeAddress(0x1800), time_ns)?.backing {
        Backing::File { id, .. } => Ok(id.inode),
        _ => Ok(0),
    }
}

#[test]
fn events_of_targets_and_followed_children_are_relevant() {
    let directory = tempfile::tempdir().unwrap();
    for children in [false, true] {
        let filter = ProcessFilter::Only { pids: HashSet::from([7]), children };
        let mut table = table(directory.path(), filter);
        assert!(table.is_relevant(&event(1, 7, SidebandEventKind::Exit)));
        assert!(!table.is_relevant(&event(1, 9, SidebandEventKind::Fork { parent: 8 })));
        let fork = event(1, 8, SidebandEventKind::Fork { parent: 7 });
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
    let key = table.process_of_sample(7, 100, "thread");
    assert_eq!(inode(&table, key, 100), Ok(5));
    let process = table.get(key).unwrap();
    assert_eq!(process.comm, "app");
    assert_eq!(process.identity.as_ref().unwrap().status.innermost_pid, 1);
    assert_eq!(table.process_of_sample(7, 200, "thread"), key);
}

#[test]
fn a_process_that_has_ended_has_the_name_of_its_sample() {
    let directory = tempfile::tempdir().unwrap();
    let mut table = table(directory.path(), ProcessFilter::All);
    let key = table.process_of_sample(9, 100, "gone");
    assert_eq!(table.get(key).unwrap().comm, "gone");
    assert_eq!(inode(&table, key, 100), Err(LookupError::ProcessGone));
}

#[test]
fn after_an_exec_the_mappings_come_from_sideband_events() {
    let directory = tempfile::tempdir().unwrap();
    write_process(directory.path(), 7, "sh", 5);
    let mut table = table(directory.path(), ProcessFilter::All);
    let shell = table.process_of_sample(7, 10, "sh");
    table.apply(event(50, 7, SidebandEventKind::Execute("ls".to_owned())));
    table.apply(event(51, 7, SidebandEventKind::Map(mapping(6))));
    fs::remove_dir_all(directory.path().join("7")).unwrap();
    let ls = table.process_of_sample(7, 60, "ls");
    assert_ne!(shell, ls);
    assert_eq!(table.get(ls).unwrap().comm, "ls");
    assert_eq!(inode(&table, ls, 60), Ok(6));
    assert_eq!(table.process_of_sample(7, 40, "sh"), shell);
    assert_eq!(inode(&table, shell, 40), Ok(5));
}

#[test]
fn a_reused_pid_has_another_key() {
    let directory = tempfile::tempdir().unwrap();
    write_process(directory.path(), 7, "old", 5);
    let mut table = table(directory.path(), ProcessFilter::All);
    let old = table.process_of_sample(7, 10, "old");
    table.apply(event(20, 7, SidebandEventKind::Exit));
    table.apply(event(30, 7, SidebandEventKind::Fork { parent: 3 }));
    let new = table.process_of_sample(7, 40, "new");
    assert_ne!(old, new);
    assert_eq!(table.process_of_sample(7, 15, "old"), old);
}

#[test]
fn a_forked_child_that_has_ended_has_the_mappings_of_its_parent() {
    let directory = tempfile::tempdir().unwrap();
    write_process(directory.path(), 7, "app", 5);
    let mut table = table(directory.path(), ProcessFilter::All);
    table.process_of_sample(7, 10, "app");
    table.apply(event(20, 8, SidebandEventKind::Fork { parent: 7 }));
    table.apply(event(21, 7, SidebandEventKind::Map(mapping(6))));
    table.apply(event(25, 8, SidebandEventKind::Exit));
    let child = table.process_of_sample(8, 22, "app");
    assert_eq!(inode(&table, child, 22), Ok(5));
    assert_eq!(table.get(child).unwrap().comm, "app");
}

#[test]
fn the_mappings_of_an_unread_parent_are_read_for_its_ended_child() {
    let directory = tempfile::tempdir().unwrap();
    write_process(directory.path(), 7, "app", 5);
    let mut table = table(directory.path(), ProcessFilter::All);
    table.apply(event(20, 8, SidebandEventKind::Fork { parent: 7 }));
    table.apply(event(25, 8, SidebandEventKind::Exit));
    let child = table.process_of_sample(8, 22, "app");
    assert_eq!(inode(&table, child, 22), Ok(5));
}

#[test]
fn only_the_target_and_its_followed_children_are_in_the_table() {
    let directory = tempfile::tempdir().unwrap();
    write_process(directory.path(), 7, "app", 5);
    let pids = HashSet::from([7]);
    for (children, count) in [(true, 2), (false, 1)] {
        let filter = ProcessFilter::Only { pids: pids.clone(), children };
        let mut table = table(directory.path(), filter);
        table.prefetch(7);
        table.apply(event(20, 8, SidebandEventKind::Fork { parent: 7 }));
        table.apply(event(20, 9, SidebandEventKind::Fork { parent: 3 }));
        table.apply(event(21, 9, SidebandEventKind::Execute("other".to_owned())));
        assert_eq!(table.processes.len(), count);
    }
}

#[test]
fn unsampled_processes_are_evicted_after_they_end() {
    let directory = tempfile::tempdir().unwrap();
    let mut table = table(directory.path(), ProcessFilter::All);
    for pid in 100..200 {
        table.apply(event(10, pid, SidebandEventKind::Fork { parent: 1 }));
        table.apply(event(20, pid, SidebandEventKind::Exit));
    }
    table.process_of_sample(150, 15, "x");
    table.evict_unsampled(30);
    assert_eq!(table.processes.len(), 1);
    table.evict_ended();
    assert_eq!((table.processes.len(), table.by_pid.len()), (0, 0));
}

#[test]
fn events_of_other_threads_neither_end_nor_rename_the_process() {
    let directory = tempfile::tempdir().unwrap();
    write_process(directory.path(), 7, "app", 5);
    let mut table = table(directory.path(), ProcessFilter::All);
    let key = table.process_of_sample(7, 10, "app");
    let thread = |kind| SidebandEvent { time_ns: 20, pid: 7, tid: 8, kind };
    table.apply(thread(SidebandEventKind::Rename("worker".to_owned())));
    table.apply(thread(SidebandEventKind::Exit));
    let process = table.get(key).unwrap();
    assert_eq!(process.comm, "app");
    assert!(!process.has_ended());
}

/// The next number of a linear congruential generator, below `limit`.
fn random_below(state: &mut u64, limit: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % limit
}

const CPUS: u64 = 4;
const LAST_NS: u64 = 1_000;

/// Events in time order, each with its CPU: few process ids are forked, execute, map files, exit and are reused.
fn random_events(random: &mut u64) -> Vec<(u64, SidebandEvent)> {
    const PIDS: u64 = 5;
    let pid = |random: &mut u64| 10 + u32::try_from(random_below(random, PIDS)).unwrap();
    let times = (1..LAST_NS).step_by(7);
    let events = times.map(|time_ns| {
        let kind = match random_below(random, 5) {
            0 => SidebandEventKind::Fork { parent: pid(random) },
            1 => SidebandEventKind::Execute(format!("program {time_ns}")),
            2 => SidebandEventKind::Exit,
            3 => SidebandEventKind::Rename(format!("name {time_ns}")),
            _ => SidebandEventKind::Map(mapping(time_ns)),
        };
        (random_below(random, CPUS), event(time_ns, pid(random), kind))
    });
    events.collect()
}

/// What the table has for each process id over time.
fn contents(table: &mut ProcessTable) -> Vec<(String, Result<u64, LookupError>, Option<u64>)> {
    let mut contents = Vec::new();
    for pid in 10..15 {
        for time_ns in (0..LAST_NS).step_by(3) {
            let key = table.process_of_sample(pid, time_ns, "sampled");
            let process = table.get(key).unwrap();
            let (comm, until_ns) = (process.comm.clone(), process.until_ns);
            contents.push((comm, inode(table, key, time_ns), until_ns));
        }
    }
    contents
}

#[test]
fn the_order_in_which_cpus_are_drained_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    for seed in 0..100 {
        let mut random = seed;
        let events = random_events(&mut random);
        let mut expected = table(directory.path(), ProcessFilter::All);
        events.iter().for_each(|(_, event)| expected.apply(event.clone()));

        let mut drained = table(directory.path(), ProcessFilter::All);
        let mut queue = TimeOrdered::new(|event: &SidebandEvent| event.time_ns);
        let mut positions = [0; CPUS as usize];
        let mut drain = |cpu: u64, now_ns: u64| {
            let position = &mut positions[cpu as usize];
            let written = events.iter().filter(|(on, event)| *on == cpu && event.time_ns < now_ns);
            let new: Vec<_> = written.skip(*position).map(|(_, event)| event.clone()).collect();
            *position += new.len();
            new
        };
        let mut now_ns = 0;
        while now_ns < LAST_NS {
            now_ns += 1 + random_below(&mut random, 60);
            let watermark_ns = now_ns;
            let first = random_below(&mut random, CPUS);
            for cpu in (0..CPUS).map(|number| (first + number) % CPUS) {
                // While one ring is drained, the other CPUs go on writing.
                now_ns += random_below(&mut random, 30);
                queue.push(drain(cpu, now_ns));
            }
            queue.release_before(watermark_ns).into_iter().for_each(|event| drained.apply(event));
        }
        (0..CPUS).for_each(|cpu| queue.push(drain(cpu, u64::MAX)));
        queue.release_before(u64::MAX).into_iter().for_each(|event| drained.apply(event));
        assert_eq!(queue.late(), 0);
        assert!(contents(&mut drained) == contents(&mut expected), "seed {seed}");
    }
}
