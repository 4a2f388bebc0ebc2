//! Tests that the installed mappings follow mmap, fork, exec and exit.

use std::{
    io::{Read as _, Write as _},
    iter,
    process::{Child, Command, Stdio},
};

use profiler_addresses::{FileOffset, MonotonicTime, RuntimeAddress};
use profiler_common::unwind::{CfaRule, MAX_MAPPINGS_PER_PROCESS, MappingFlags, ProcessEntry, Rule};
use profiler_processes::{
    Backing, FileId, Mapping, ProcessFilter, ProcessTable, SidebandEvent, SidebandEventKind, Tid,
};
use profiler_sampler::test_maps::unwind_maps;
use profiler_symbolize::JitFunctionFrames;
use profiler_unwind_tables::test_cfi::TestCfi;

use super::*;
use crate::session::unwinding::{
    back_off::MAX_RETRY_INTERVAL,
    test_files::{debug_directories, mapped_files},
};

/// Pids of processes that do not exist: pids are at most 2^22.
const CHILD: Pid = Pid(1 << 23);
const GRANDCHILD: Pid = Pid(CHILD.0 + 1);

/// The table of processes and the installer that it reports to. This process is watched.
struct Fixture {
    table: ProcessTable,
    installer: MappingInstaller,
}

impl Fixture {
    fn new() -> Option<Self> {
        let mut fixture = Self::empty()?;
        fixture.request(Pid::own());
        assert!(fixture.process(Pid::own()).is_some());
        Some(fixture)
    }

    /// Without a watched process.
    fn empty() -> Option<Self> {
        let (files, directories) = (mapped_files(), debug_directories());
        let installer = MappingInstaller::new(unwind_maps()?, files, directories, Arc::default()).unwrap();
        let mut table = ProcessTable::new(Arc::new(ProcFs::live()), ProcessFilter::All);
        table.watch_forks();
        Some(Self { table, installer })
    }

    fn request(&mut self, pid: Pid) {
        self.table.request_mappings(pid);
        self.update();
        self.settle();
    }

    fn apply(&mut self, pid: Pid, kind: SidebandEventKind) {
        self.apply_unsettled(pid, kind);
        self.settle();
    }

    fn apply_unsettled(&mut self, pid: Pid, kind: SidebandEventKind) {
        self.table.apply(SidebandEvent {
            time: MonotonicTime(u64::MAX / 2),
            pid,
            tid: Tid::leader_of(pid),
            kind,
        });
        self.update();
    }

    /// Applies the exit of a process after which no samples of it follow.
    fn end(&mut self, pid: Pid) {
        self.apply(pid, SidebandEventKind::Exit);
        self.table.retire_ended(|_| false);
        self.update();
    }

    fn update(&mut self) {
        self.table.take_mapping_changes().into_iter().for_each(|change| self.installer.apply(change));
    }

    fn settle(&mut self) {
        while self.installer.is_outdated() {
            self.installer.install_outdated(|| false);
        }
    }

    /// The entry of a process in the BPF map.
    fn process(&self, pid: Pid) -> Option<ProcessEntry> {
        self.installer.maps.process(pid)
    }

    fn is_suspended(&self) -> bool {
        self.installer.processes[&Pid::own()].is_suspended
    }

    /// Makes the last attempt to install the mappings older.
    fn advance(&mut self, time: Duration) {
        let process = self.installer.processes.get_mut(&Pid::own()).unwrap();
        process.back_off = process.back_off.map(|back_off| back_off.earlier_by(time));
    }

    /// Installs mappings until the map is full.
    fn fill(&mut self) -> Vec<InstalledMappings> {
        let many = vec![MappingEntry::default(); MAX_MAPPINGS_PER_PROCESS as usize];
        let maps = &mut self.installer.maps;
        let add = |count: usize| iter::from_fn(|| maps.add_mappings(&many[..count]).ok()).collect::<Vec<_>>();
        [many.len(), 100, 1].into_iter().flat_map(add).collect()
    }

    fn release(&mut self, mappings: Vec<InstalledMappings>) {
        mappings.into_iter().for_each(|mappings| self.installer.maps.remove_mappings(mappings));
    }
}

fn jit(start: u64) -> SidebandEventKind {
    let (start, end) = (RuntimeAddress(start), RuntimeAddress(start + 0x1000));
    SidebandEventKind::Map(Mapping { start, end, offset: FileOffset(0), backing: Backing::Jit })
}

#[test]
fn the_code_of_this_test_has_an_unwind_rule() {
    let Some(fixture) = Fixture::new() else { return };
    let contents = fixture.installer.maps.contents();
    let process = fixture.process(Pid::own()).unwrap();
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
fn jit_code_has_the_rules_of_its_call_frame_information_until_it_is_replaced() {
    let Some(mut fixture) = Fixture::new() else { return };
    fixture.apply(Pid::own(), jit(0x1000));
    let process = fixture.installer.processes[&Pid::own()].process;
    fixture.installer.installations.take();
    fixture.installer.set_jit_call_frames(process, call_frames(5));
    fixture.settle();
    assert_eq!([0x103f, 0x1040, 0x1044, 0x1050].map(|at| cfa_offset_at(&fixture, at)), [0, 8, 32, 0]);
    fixture.apply(Pid::own(), jit(0x2000));
    assert_eq!(cfa_offset_at(&fixture, 0x1044), 32);
    fixture
        .installer
        .set_jit_call_frames(process, JitCallFrames { functions: Vec::new(), as_of: MonotonicTime(7) });
    fixture.settle();
    assert_eq!(cfa_offset_at(&fixture, 0x1044), 0);
    let installed = fixture.installer.installations.take().into_iter();
    let times: Vec<_> = installed.map(|(_, installation)| installation.jit_code_as_of).collect();
    assert_eq!(
        times,
        [5, 5, 7].map(|time| Some(MonotonicTime(time))),
        "code that is written later can have replaced that of the rows"
    );
}

/// A jitdump that does not grow is read once.
#[test]
fn jit_code_has_its_rules_also_if_the_mappings_of_its_process_are_reported_later() {
    let Some(mut fixture) = Fixture::empty() else { return };
    let process = fixture.table.prefetch(Pid::own());
    fixture.installer.set_jit_call_frames(process, call_frames(5));
    fixture.request(Pid::own());
    fixture.apply(Pid::own(), jit(0x1000));
    assert_eq!(cfa_offset_at(&fixture, 0x1044), 32);
}

/// Those of a function of 16 bytes at 0x1040: from its fifth byte on, its frame has 24 bytes more.
fn call_frames(as_of_ns: u64) -> JitCallFrames {
    let eh_frame = TestCfi::x86_64().function(0x40, 16, &[0x44, 0x0e, 32]).bytes.into();
    let code = RuntimeAddress(0x1040)..RuntimeAddress(0x1050);
    JitCallFrames {
        functions: vec![JitFunctionFrames { eh_frame_address: code.end, code, eh_frame }],
        as_of: MonotonicTime(as_of_ns),
    }
}

/// The offset of the CFA that the mapping at 0x1000 has at an address.
fn cfa_offset_at(fixture: &Fixture, address: u64) -> i32 {
    let contents = fixture.installer.maps.contents();
    let mut mappings = contents.mappings(fixture.process(Pid::own()).unwrap()).iter();
    contents.rule(mappings.find(|mapping| mapping.start == 0x1000).unwrap(), address).cfa_offset
}

/// A method that pushes rbp and allocates `bytes` in its first two instructions.
fn managed_function(start: u64, bytes: u8) -> ManagedFunctionFrames {
    let instructions = vec![0x55, 0x48, 0x83, 0xec, bytes, 0x90];
    ManagedFunctionFrames {
        code: RuntimeAddress(start)..RuntimeAddress(start + instructions.len() as u64),
        unwind_info: vec![1, 5, 2, 0, 5, (bytes / 8 - 1) << 4 | 2, 1, 0x50],
        instructions,
    }
}

#[test]
fn dotnet_methods_have_rows_from_their_first_sample_until_their_process_ends() {
    let Some(mut fixture) = Fixture::new() else { return };
    for start in [0x1000, 0x2000] {
        fixture.apply(Pid::own(), jit(start));
    }
    let process = fixture.installer.processes[&Pid::own()].process;
    let look_up = |fixture: &Fixture, addresses: [u64; 4]| {
        let contents = fixture.installer.maps.contents();
        let mappings = contents.mappings(fixture.process(Pid::own()).unwrap());
        addresses.map(|address| {
            let mapping = mappings.iter().find(|mapping| mapping.start <= address && address < mapping.end);
            (contents.rule(mapping.unwrap(), address).cfa_offset, mapping.unwrap().flags)
        })
    };
    let add = |fixture: &mut Fixture, functions| {
        fixture.installer.add_managed_functions(process, functions);
        fixture.settle();
    };
    let tables = |fixture: &Fixture| fixture.installer.tables.len();
    let tables_of_files = tables(&fixture);
    add(&mut fixture, vec![managed_function(0x1040, 16)]);
    let scanned = MappingFlags::SCAN_EPILOGUES;
    assert_eq!(
        look_up(&fixture, [0x103f, 0x1045, 0x1046, 0x2045]),
        [(0, scanned), (32, scanned), (0, scanned), (0, 0)]
    );
    for (start, bytes) in [(0x2040, 32), (0x1080, 64), (0x1f00, 24)] {
        add(&mut fixture, vec![managed_function(start, bytes)]);
    }
    let found = [(32, scanned), (80, scanned), (40, scanned), (48, scanned)];
    assert_eq!(look_up(&fixture, [0x1045, 0x1085, 0x1f05, 0x2045]), found);
    assert_eq!(tables(&fixture), tables_of_files + 2, "each mapping has the last table alone");
    let malformed = ManagedFunctionFrames { unwind_info: vec![9], ..managed_function(0x1040, 48) };
    add(&mut fixture, vec![malformed, managed_function(0x10c0, 16)]);
    assert_eq!(look_up(&fixture, [0x1045, 0x10c5, 0x1f05, 0x2045])[0], (32, scanned));

    // Its mappings are evicted and installed again.
    fixture.installer.remove(Pid::own());
    assert_eq!(tables(&fixture), tables_of_files);
    fixture.table.report_all_mappings();
    fixture.update();
    fixture.settle();
    assert_eq!(look_up(&fixture, [0x1045, 0x1085, 0x1f05, 0x2045]), found);
    fixture.installer.end(Pid::own());
    assert!(fixture.installer.managed.of_process(process).is_none());
}

#[test]
fn dotnet_methods_that_are_found_before_the_mappings_of_their_process_have_rows() {
    let Some(mut fixture) = Fixture::empty() else { return };
    fixture.table.request_mappings(Pid::own());
    let changes = fixture.table.take_mapping_changes();
    let process = changes.iter().find_map(|change| match change {
        MappingChange::Current(snapshot) => Some(snapshot.process),
        _ => None,
    });
    fixture.installer.add_managed_functions(process.unwrap(), vec![managed_function(0x1040, 16)]);
    changes.into_iter().for_each(|change| fixture.installer.apply(change));
    fixture.apply(Pid::own(), jit(0x1000));
    let contents = fixture.installer.maps.contents();
    let mapping = contents.mappings(fixture.process(Pid::own()).unwrap()).first().unwrap();
    assert_eq!(contents.rule(mapping, 0x1045).cfa_offset, 32);
}

#[test]
fn a_child_shares_the_mappings_of_its_parent_until_one_of_them_changes() {
    let Some(mut fixture) = Fixture::new() else { return };
    fixture.apply(CHILD, SidebandEventKind::Fork { parent: Pid::own() });
    let before = fixture.process(Pid::own());
    assert_eq!(fixture.process(CHILD), before);
    fixture.apply(Pid::own(), jit(0x1000));
    let after = fixture.process(Pid::own()).unwrap();
    assert_eq!(after.mappings, before.unwrap().mappings + 1);
    assert_eq!(fixture.process(CHILD), before);
    fixture.apply(GRANDCHILD, SidebandEventKind::Fork { parent: CHILD });
    fixture.apply(CHILD, jit(0x2000));
    assert_eq!(fixture.process(GRANDCHILD), before);
    fixture.end(CHILD);
    assert_eq!((fixture.process(CHILD), fixture.process(GRANDCHILD)), (None, before));
}

#[test]
fn outdated_processes_take_turns() {
    let Some(mut fixture) = Fixture::new() else { return };
    let pids = [Pid::own(), CHILD, GRANDCHILD];
    for pid in [CHILD, GRANDCHILD] {
        fixture.apply(pid, SidebandEventKind::Fork { parent: Pid::own() });
    }
    for (pid, start) in iter::zip(pids, [0x1000, 0x2000, 0x3000]) {
        fixture.apply_unsettled(pid, jit(start));
    }
    for _ in 0..2 {
        let turns: BTreeSet<_> =
            pids.iter().filter_map(|_| fixture.installer.next_outdated()).map(|(_, pid)| pid).collect();
        assert_eq!(turns, pids.into());
    }
    fixture.settle();
    assert_eq!((fixture.installer.is_outdated(), fixture.installer.next_outdated()), (false, None));
}

#[test]
fn a_repeated_fork_event_is_harmless() {
    let Some(mut fixture) = Fixture::new() else { return };
    for _ in 0..2 {
        fixture.apply(CHILD, SidebandEventKind::Fork { parent: Pid::own() });
        assert_eq!(fixture.process(CHILD), fixture.process(Pid::own()));
    }
}

#[test]
fn a_process_beyond_the_share_of_its_tenant_has_no_entry() {
    let Some(mut fixture) = Fixture::new() else { return };
    fixture.installer.process_capacity = SharedCapacity::new(1);
    fixture.apply(CHILD, SidebandEventKind::Fork { parent: Pid::own() });
    fixture.apply(GRANDCHILD, SidebandEventKind::Fork { parent: CHILD });
    assert!(fixture.process(CHILD).is_some() && fixture.process(GRANDCHILD).is_none());
    fixture.end(CHILD);
    fixture.apply(GRANDCHILD, SidebandEventKind::Fork { parent: Pid::own() });
    assert!(fixture.process(GRANDCHILD).is_some());
}

#[test]
fn exec_removes_the_mappings_of_the_previous_program() {
    let Some(mut fixture) = Fixture::new() else { return };
    fixture.apply(CHILD, SidebandEventKind::Fork { parent: Pid::own() });
    fixture.apply(CHILD, SidebandEventKind::Execute("other".to_owned()));
    assert_eq!(fixture.process(CHILD), None);
    fixture.apply(CHILD, jit(0x1000));
    fixture.request(CHILD);
    assert_eq!(fixture.process(CHILD).unwrap().mappings, 1, "those of the new program, from its events");
}

#[test]
fn all_mappings_and_tables_are_removed_with_the_last_process() {
    let Some(mut fixture) = Fixture::new() else { return };
    fixture.apply(CHILD, SidebandEventKind::Fork { parent: Pid::own() });
    fixture.apply(Pid::own(), jit(0x1000));
    fixture.end(CHILD);
    assert!(fixture.process(Pid::own()).is_some());
    fixture.installer.clear();
    let installer = &mut fixture.installer;
    assert!(installer.has_unused_tables() && installer.maps.processes().unwrap().is_empty());
    installer.tables.evict_unused(&mut installer.maps, Instant::now() + Duration::from_secs(3600));
    assert!(!installer.has_unused_tables() && installer.maps.are_empty());
}

#[test]
fn a_child_whose_fork_event_was_lost_is_removed() {
    let Some(mut fixture) = Fixture::new() else { return };
    // The BPF program has copied the mappings to the child.
    let own_mappings = fixture.installer.processes[&Pid::own()].installed.clone().unwrap();
    fixture.installer.maps.set_process(CHILD, &own_mappings.mappings).unwrap();
    drop(own_mappings);
    fixture.installer.apply(MappingChange::EventsLost);
    assert_eq!(fixture.process(CHILD), None);
    assert!(fixture.process(Pid::own()).is_some());
}

#[test]
fn each_installation_is_reported_with_the_time_of_its_mappings() {
    let Some(mut fixture) = Fixture::new() else { return };
    fixture.apply(Pid::own(), jit(0x1000));
    let taken = fixture.installer.installations.take();
    // The tables of the test program's files are installed in steps.
    let [.., (first_process, first), (last_process, last)] = taken[..] else { panic!("{taken:?}") };
    assert_eq!((first_process, last.as_of), (last_process, MonotonicTime(u64::MAX / 2)));
    assert!(last.installed > first.installed && last.as_of > first.as_of);
    assert!(fixture.installer.installations.take().is_empty());
}

#[test]
fn a_process_beyond_the_capacity_is_retried_with_back_off() {
    let Some(mut fixture) = Fixture::new() else { return };
    let taken = fixture.fill();
    fixture.apply(Pid::own(), jit(0x1000));
    let back_off = |fixture: &Fixture| fixture.installer.processes[&Pid::own()].back_off.unwrap();
    let interval = |fixture: &Fixture| back_off(fixture).interval();
    for start in (0x2000..).step_by(0x2000).take(20) {
        let before = interval(&fixture);
        fixture.advance(before);
        fixture.apply(Pid::own(), jit(start));
        assert_eq!(interval(&fixture), (2 * before).min(MAX_RETRY_INTERVAL));
        fixture.apply(Pid::own(), jit(start + 0x100_0000));
        assert!(fixture.is_suspended(), "no retry before the back-off has passed");
    }
    fixture.release(taken);
    fixture.advance(MAX_RETRY_INTERVAL);
    let before = fixture.process(Pid::own());
    fixture.apply(Pid::own(), jit(0x1000_0000));
    assert!(!fixture.is_suspended() && fixture.process(Pid::own()) != before);
}

#[test]
fn tables_that_have_failed_are_installed_without_a_change_of_the_mappings() {
    let Some(mut fixture) = Fixture::empty() else { return };
    let capacity = fixture.installer.tables.replace_table_capacity(SharedCapacity::new(0));
    fixture.request(Pid::own());
    let tables = |fixture: &Fixture| {
        let installed = fixture.installer.processes[&Pid::own()].installed.as_ref();
        installed.map(|installed| installed.tables.len())
    };
    assert_eq!(tables(&fixture), Some(0));
    assert!(fixture.installer.next_retry().is_some());
    fixture.installer.tables.replace_table_capacity(capacity);
    let deadline = Instant::now() + Duration::from_secs(60);
    while fixture.installer.next_retry().is_some() || fixture.installer.is_outdated() {
        assert!(Instant::now() < deadline);
        fixture.installer.install_outdated(|| false);
    }
    assert!(tables(&fixture).is_some_and(|tables| tables > 0));
}

#[test]
fn a_child_builds_the_failed_tables_of_its_parent() {
    let Some(mut fixture) = Fixture::empty() else { return };
    fixture.installer.tables.replace_table_capacity(SharedCapacity::new(0));
    fixture.request(Pid::own());
    fixture.apply(CHILD, SidebandEventKind::Fork { parent: Pid::own() });
    assert!(fixture.installer.processes[&CHILD].retry.is_some());
    let pids: BTreeSet<Pid> = fixture.installer.retries.iter().map(|(_, pid)| *pid).collect();
    assert_eq!(pids, [Pid::own(), CHILD].into());
}

#[test]
fn idle_processes_make_place_for_others() {
    let Some(mut fixture) = Fixture::new() else { return };
    // Together they have more mappings than this process.
    let start = |_| Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut idle: Vec<Child> = (0..3).map(start).collect();
    for child in &mut idle {
        // Once it has copied a byte, its libraries are mapped.
        child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        fixture.request(Pid(child.id()));
    }
    let taken = fixture.fill();
    fixture.apply(Pid::own(), jit(0x1000));
    assert!(fixture.is_suspended(), "all processes were sampled a moment ago");
    idle.iter().for_each(|child| fixture.installer.maps.set_last_use(Pid(child.id()), MonotonicTime(1)));
    fixture.advance(MAX_RETRY_INTERVAL);
    fixture.apply(Pid::own(), jit(0x4000));
    assert!(!fixture.is_suspended());
    assert!(idle.iter().all(|child| fixture.process(Pid(child.id())).is_none()));
    fixture.release(taken);
    for child in &mut idle {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn files_that_are_no_longer_mapped_are_dropped() {
    let Some(mut fixture) = Fixture::new() else { return };
    let known = fixture.installer.processes[&Pid::own()].files.len();
    for inode in 0..100 {
        let id = FileId { major: 0, minor: 0, inode: 1 << 40 | inode };
        let (start, end) = (RuntimeAddress(0x1000), RuntimeAddress(0x2000));
        let backing = Backing::File { id, path: "/nowhere".into() };
        let mapping = Mapping { start, end, offset: FileOffset(0), backing };
        fixture.apply(Pid::own(), SidebandEventKind::Map(mapping));
    }
    assert_eq!(fixture.installer.processes[&Pid::own()].files.len(), known + 1);
}
