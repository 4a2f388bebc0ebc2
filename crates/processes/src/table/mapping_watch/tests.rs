//! Tests that a reader of mapping changes gets the mappings of watched processes, in time order.

use std::{
    cell::Cell,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use profiler_addresses::{FileOffset, RuntimeAddress};

use super::*;
use crate::{
    Backing, FileId, LookupError, Mapping, ProcFs, ProcessFilter, SidebandEvent, SidebandEventKind, Tid,
    process_reader::{ProcessReader, Reading},
    table::TEARDOWN_TIME,
};

thread_local! {
    static NOW_NS: Cell<u64> = const { Cell::new(0) };
}

/// A table with a clock that the test sets.
struct Fixture {
    directory: tempfile::TempDir,
    table: ProcessTable,
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let proc = Arc::new(ProcFs::from_capture(directory.path().to_owned()));
        let mut table = ProcessTable::new(Arc::clone(&proc), ProcessFilter::All);
        NOW_NS.set(0);
        table.reader = ProcessReader::with_clock(proc, || MonotonicTime(NOW_NS.get()));
        table.advance(MonotonicTime(0));
        Self { directory, table }
    }

    /// With process 7, which is watched and has a file mapped at page 1.
    fn watching() -> Self {
        let mut fixture = Self::new();
        fixture.write(7, &[1]);
        fixture.table.request_mappings(Pid(7));
        fixture.advance(10);
        assert_eq!(fixture.changes(), ["7 has [1]"]);
        fixture
    }

    /// Writes what `/proc` shows of a process, with files mapped at these pages.
    fn write(&self, pid: u32, pages: &[u64]) {
        let directory = self.path(pid);
        fs::create_dir_all(&directory).unwrap();
        let fields: Vec<String> = (4..=52).map(|field| field.to_string()).collect();
        fs::write(directory.join("stat"), format!("{pid} (x) R {}", fields.join(" "))).unwrap();
        fs::write(directory.join("status"), format!("State:\tR\nTgid:\t{pid}\nUid:\t0\t0\nVmSize:\t1 kB\n"))
            .unwrap();
        let lines = pages.iter().map(|page| format!("{page}000-{page}fff r-xp 0 00:01 {page} /{page}\n"));
        fs::write(directory.join("maps"), lines.collect::<String>()).unwrap();
    }

    fn path(&self, pid: u32) -> PathBuf {
        Path::join(self.directory.path(), pid.to_string())
    }

    fn apply(&mut self, time_ns: u64, pid: u32, kind: SidebandEventKind) {
        let pid = Pid(pid);
        self.table.apply(SidebandEvent { time: MonotonicTime(time_ns), pid, tid: Tid::leader_of(pid), kind });
    }

    /// All events up to a time have been applied, and it is a moment later.
    fn advance(&mut self, watermark_ns: u64) {
        NOW_NS.set(watermark_ns + 1);
        self.table.advance(MonotonicTime(watermark_ns));
    }

    /// The changes since the last call; the pages of mappings.
    fn changes(&mut self) -> Vec<String> {
        let changes = self.table.take_mapping_changes().into_iter();
        changes
            .map(|change| match change {
                MappingChange::Current(MappingSnapshot { pid, mappings, .. }) => {
                    let pages: Vec<u64> = mappings.current().map(|mapping| mapping.start.0 >> 12).collect();
                    format!("{pid} has {pages:?}")
                }
                MappingChange::Forked { pid, parent, .. } => format!("{parent} forks {pid}"),
                MappingChange::Ended { pid } => format!("{pid} ends"),
                MappingChange::EventsLost => "events lost".to_owned(),
            })
            .collect()
    }
}

fn map(page: u64) -> SidebandEventKind {
    map_file(page, page)
}

fn map_file(page: u64, inode: u64) -> SidebandEventKind {
    let id = FileId { major: 0, minor: 1, inode };
    let (start, end) = (RuntimeAddress(page << 12), RuntimeAddress((page << 12) + 0xfff));
    let backing = Backing::File { id, path: format!("/{page}").into() };
    SidebandEventKind::Map(Mapping { start, end, offset: FileOffset(0), backing })
}

#[test]
fn mappings_are_reported_when_the_events_up_to_the_request_are_known() {
    let mut fixture = Fixture::new();
    fixture.write(7, &[1, 2]);
    fixture.advance(10);
    fixture.table.request_mappings(Pid(7));
    assert_eq!(fixture.changes(), [""; 0]);
    fixture.advance(20);
    assert_eq!(fixture.changes(), ["7 has [1, 2]"]);
    fixture.apply(30, 7, map(4));
    fixture.apply(31, 7, map(5));
    assert_eq!(fixture.changes(), ["7 has [1, 2, 4, 5]"]);
    assert_eq!(fixture.changes(), [""; 0]);
}

#[test]
fn the_mappings_of_an_executed_program_are_those_of_its_events() {
    let mut fixture = Fixture::watching();
    // The request comes right after the exec, whose event is not known yet.
    fixture.table.request_mappings(Pid(7));
    fixture.apply(21, 7, SidebandEventKind::Execute("program".to_owned()));
    fixture.apply(21, 7, map(8));
    fixture.advance(40);
    assert_eq!(fixture.changes(), ["7 ends", "7 has [8]"]);
}

#[test]
fn a_process_that_is_not_watched_is_not_reported() {
    let mut fixture = Fixture::new();
    fixture.write(7, &[1]);
    fixture.table.prefetch(Pid(7));
    fixture.apply(5, 7, map(4));
    fixture.apply(6, 7, SidebandEventKind::Execute("x".to_owned()));
    fixture.advance(10);
    assert_eq!(fixture.changes(), [""; 0]);
}

#[test]
fn the_end_is_reported_when_no_samples_can_follow() {
    let mut fixture = Fixture::watching();
    fixture.apply(20, 7, SidebandEventKind::Exit);
    fixture.advance(30);
    assert_eq!(fixture.table.retire_ended(|_| false), []);
    assert_eq!(fixture.changes(), [""; 0], "its address space is torn down");
    fixture.advance(21 + TEARDOWN_TIME.as_nanos() as u64);
    assert_eq!(fixture.table.retire_ended(|_| false).len(), 1);
    assert_eq!(fixture.changes(), ["7 ends"]);
}

#[test]
fn a_process_that_has_ended_meanwhile_is_reported_if_its_mappings_are_known() {
    let mut fixture = Fixture::new();
    fixture.advance(10);
    fixture.table.request_mappings(Pid(7));
    fixture.apply(11, 7, SidebandEventKind::Execute("program".to_owned()));
    fixture.apply(12, 7, map(3));
    fixture.apply(13, 7, SidebandEventKind::Exit);
    fixture.table.request_mappings(Pid(8));
    fixture.apply(14, 8, SidebandEventKind::Exit);
    fixture.advance(20);
    assert_eq!(fixture.changes(), ["7 has [3]"]);
}

#[test]
fn another_process_with_the_pid_ends_the_watch() {
    let mut fixture = Fixture::watching();
    fixture.apply(20, 7, SidebandEventKind::Exit);
    fixture.apply(21, 7, SidebandEventKind::Fork { parent: Pid(1) });
    assert_eq!(fixture.changes(), ["7 ends"]);
}

#[test]
fn a_watched_process_is_ended_by_proc_only_if_it_has_no_entry_there() {
    let mut fixture = Fixture::watching();
    let mut read = |error| {
        let (identity, space) = (Err(error), Err(error));
        let reading = Reading {
            pid: Pid(7),
            began: MonotonicTime(20),
            ended: MonotonicTime(21),
            identity,
            comm: None,
            space,
        };
        fixture.table.apply_reading(reading);
        let process = fixture.table.latest(Pid(7)).unwrap();
        (process.has_ended(), process.check_readable())
    };
    for error in [LookupError::TooManyOpenFiles, LookupError::TimedOut, LookupError::NotReadable] {
        assert_eq!(read(error), (false, Ok(())), "{error:?}");
    }
    assert_eq!(read(LookupError::ProcessGone), (true, Ok(())));
}

#[test]
fn children_are_watched_where_the_reader_needs_them() {
    for (follows_forks, expected) in [(true, vec!["7 forks 8", "8 has [1, 2]"]), (false, vec![])] {
        let mut fixture = Fixture::new();
        if follows_forks {
            fixture.table.watch_forks();
        }
        fixture.write(7, &[1]);
        fixture.table.request_mappings(Pid(7));
        fixture.advance(10);
        fixture.changes();
        fixture.apply(20, 8, SidebandEventKind::Fork { parent: Pid(7) });
        fixture.apply(21, 8, map(2));
        assert_eq!(fixture.changes(), expected);
    }
}

#[test]
fn repeated_requests_compare_with_proc_with_a_back_off() {
    let mut fixture = Fixture::watching();
    let interval = |fixture: &Fixture| {
        let process = fixture.table.latest(Pid(7)).unwrap();
        process.watch.as_ref().unwrap().read_interval
    };
    let mut now_ns = 10;
    for _ in 0..20 {
        let before = interval(&fixture);
        fixture.table.request_mappings(Pid(7));
        fixture.advance(now_ns + 2);
        assert_eq!(fixture.changes(), [""; 0], "the interval has not passed");
        now_ns += before.as_nanos() as u64 + 10;
        NOW_NS.set(now_ns);
        fixture.table.request_mappings(Pid(7));
        fixture.advance(now_ns + 1);
        fixture.advance(now_ns + 3);
        assert_eq!(fixture.changes(), ["7 has [1]"]);
        assert_eq!(interval(&fixture), (2 * before).min(MAX_READ_INTERVAL));
    }
    fixture.apply(now_ns + 2, 7, map(3));
    assert_eq!(interval(&fixture), MIN_READ_INTERVAL);
}

#[test]
fn after_lost_events_watched_processes_are_compared_with_proc() {
    let mut fixture = Fixture::new();
    let pids: Vec<u32> = (100..150).collect();
    for pid in &pids {
        fixture.write(*pid, &[1]);
        fixture.table.request_mappings(Pid(*pid));
    }
    fixture.advance(10);
    assert_eq!(fixture.changes().len(), pids.len());
    fixture.write(120, &[1, 4]);
    fs::remove_dir_all(fixture.path(130)).unwrap();
    fixture.table.lose_events();
    let mut changes = Vec::new();
    for time_ns in 20..30 {
        fixture.advance(10 * time_ns);
        changes.extend(fixture.changes());
    }
    fixture.advance(300 + TEARDOWN_TIME.as_nanos() as u64);
    fixture.table.retire_ended(|_| false);
    changes.extend(fixture.changes());
    assert_eq!(changes, ["events lost", "120 has [1, 4]", "130 ends"]);
}

#[test]
fn a_reader_that_dropped_its_copies_gets_all_of_them() {
    let mut fixture = Fixture::new();
    for pid in [7, 8] {
        fixture.write(pid, &[u64::from(pid)]);
        fixture.table.request_mappings(Pid(pid));
    }
    fixture.advance(10);
    fixture.apply(20, 8, SidebandEventKind::Execute("x".to_owned()));
    fixture.table.report_all_mappings();
    assert_eq!(fixture.changes(), ["7 has [7]"]);
}

fn installation(as_of_ns: u64, jit_code_as_of_ns: Option<u64>, installed_ns: u64) -> Installation {
    Installation {
        as_of: MonotonicTime(as_of_ns),
        jit_code_as_of: jit_code_as_of_ns.map(MonotonicTime),
        installed: MonotonicTime(installed_ns),
    }
}

#[test]
fn tables_are_outdated_after_the_end_of_an_interval_and_whenever_they_were_installed() {
    const REPLACED_NS: u64 = 1_000;
    let outdated_since = |fixture: &Fixture, time_ns| {
        let process = fixture.table.latest(Pid(7)).unwrap();
        process.unwind_tables_outdated_since(MonotonicTime(time_ns)).map(|since| since.0)
    };
    let mut fixture = Fixture::watching();
    let process = fixture.table.latest(Pid(7)).unwrap().key;
    for installed_ns in (100..500).step_by(20) {
        fixture.table.note_installation(process, installation(installed_ns - 5, None, installed_ns));
    }
    fixture.apply(210, 7, map_file(1, 20));
    fixture.apply(REPLACED_NS, 7, map_file(1, 21));
    let next = installation(REPLACED_NS + 50, None, REPLACED_NS + 100);
    fixture.table.note_installation(process, next);
    assert_eq!(outdated_since(&fixture, 220), Some(95), "all but the first and the last ones are forgotten");
    assert_eq!(outdated_since(&fixture, REPLACED_NS + 99), Some(475));
    fixture.table.end_interval(MonotonicTime(REPLACED_NS + 1));
    assert_eq!(outdated_since(&fixture, REPLACED_NS + 99), Some(475));
    assert_eq!(outdated_since(&fixture, REPLACED_NS + 100), None);
}

#[test]
fn the_time_of_call_frame_information_of_jit_code_is_known_for_all_samples_of_an_interval() {
    let mut fixture = Fixture::watching();
    let process = fixture.table.latest(Pid(7)).unwrap().key;
    let install = |fixture: &mut Fixture, installed_ns, jit_code_as_of_ns| {
        fixture.table.note_installation(process, installation(1, jit_code_as_of_ns, installed_ns));
    };
    let as_of = |fixture: &Fixture, times: [u64; 4]| {
        times.map(|time_ns| {
            fixture.table.latest(Pid(7)).unwrap().jit_code_as_of(MonotonicTime(time_ns)).map(|as_of| as_of.0)
        })
    };
    install(&mut fixture, 90, None);
    for time_ns in (100..1_100).step_by(10) {
        install(&mut fixture, time_ns, Some(time_ns - 5));
    }
    install(&mut fixture, 1_200, Some(1_085));
    assert_eq!(as_of(&fixture, [99, 100, 109, 1_300]), [None, Some(95), Some(95), Some(1_085)]);
    assert_eq!(as_of(&fixture, [500, 555, 1_085, 1_090]), [Some(495), Some(545), Some(1_075), Some(1_085)]);
    fixture.table.end_interval(MonotonicTime(555));
    assert_eq!(as_of(&fixture, [549, 550, 559, 560]), [None, Some(545), Some(545), Some(555)]);
    for time_ns in 2_000..2_000 + 16 * 1024 {
        install(&mut fixture, time_ns, Some(time_ns));
    }
    assert_eq!(
        as_of(&fixture, [600, 2_000, 10_000, 20_000])[..2],
        [None, None],
        "the older half is forgotten"
    );
    assert_eq!(as_of(&fixture, [12_000, 15_000, 18_000, 20_000])[3], Some(2_000 + 16 * 1024 - 1));
}
