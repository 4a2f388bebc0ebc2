//! Tests of modules: which file a mapping shows, and who shares its names.

use std::{fs, os::unix::fs::symlink};

use object::elf::{SHT_DYNSYM, SHT_SYMTAB};
use profiler_addresses::MonotonicTime;
use profiler_elf_symbols::test_file::{TestFile, function};
use profiler_processes::{Pid, ProcessFilter, ProcessTable, SidebandEvent, SidebandEventKind, Tid};

use super::*;

const BUILD_ID: [u8; 2] = [0xab, 0xcd];
const FUNCTION: u64 = 0x1000;

/// A proc file system with processes in containers, and the modules of their files.
struct Fixture {
    directory: tempfile::TempDir,
    processes: ProcessTable,
    modules: Modules,
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("host")).unwrap();
        let host = RootDirectory::open(&directory.path().join("host")).unwrap();
        let proc = Arc::new(ProcFs::from_capture(directory.path().to_owned()));
        let places = Arc::new(DebugDirectories::with_host(host));
        let modules = Modules::new(Arc::clone(&proc), NativeOptions::default(), places);
        Self { directory, processes: ProcessTable::new(proc, ProcessFilter::All), modules }
    }

    fn write(&self, path: &str, bytes: &[u8]) {
        let path = self.directory.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// A process in a container of its own. Its mappings show one device and inode for all files.
    fn start(&self, pid: u32, files: &[&str]) {
        let process = self.directory.path().join(pid.to_string());
        fs::create_dir_all(process.join("root")).unwrap();
        fs::create_dir_all(process.join("map_files")).unwrap();
        let fields: Vec<String> = (4..=52).map(|field| field.to_string()).collect();
        fs::write(process.join("stat"), format!("{pid} (x) R {}", fields.join(" "))).unwrap();
        fs::write(process.join("status"), format!("Tgid:\t{pid}\nUid:\t0\t0\t0\t0\nVmSize:\t1 kB\n"))
            .unwrap();
        let mut maps = String::new();
        for (file, number) in files.iter().zip(1_u64..) {
            let (start, end) = (number << 20, (number << 20) + 0x1000);
            let link = process.join(format!("map_files/{start:x}-{end:x}"));
            symlink(Path::new("../..").join(file), link).unwrap();
            maps += &format!("{start:x}-{end:x} r-xp 00001000 00:2a 257 /{file}\n");
        }
        fs::write(process.join("maps"), maps).unwrap();
    }

    fn module(&mut self, pid: u32, number: usize) -> ModuleKey {
        let key = self.processes.prefetch(Pid(pid));
        let process = self.processes.get(key).unwrap();
        let mapping = process.mappings().nth(number).unwrap();
        self.modules.module_of(process, mapping).unwrap()
    }

    /// The name of the function in a mapping of a process.
    fn name(&mut self, pid: u32, number: usize) -> Result<String, Reason> {
        let key = self.module(pid, number);
        let process = self.processes.prefetch(Pid(pid));
        let process = self.processes.get(process).unwrap();
        let target = process.identity.as_ref().and_then(|identity| identity.root.clone());
        let files = DebugFiles { target, ..self.modules.shared_files() };
        let code = self.modules.symbolize(key, ElfAddress(FUNCTION), NativeOptions::default(), &files);
        code.names.map(|names| names.functions[0].name.clone())
    }
}

fn with_symbols(name: &'static str) -> Vec<u8> {
    TestFile::with_code().build_id(&BUILD_ID).symbols(SHT_SYMTAB, &[function(name, FUNCTION, 0x10)]).bytes()
}

fn stripped() -> Vec<u8> {
    TestFile::with_code()
        .build_id(&BUILD_ID)
        .symbols(SHT_DYNSYM, &[function("exported", FUNCTION + 0x20, 8)])
        .bytes()
}

#[test]
fn containers_share_a_file_that_has_its_own_names() {
    let mut fixture = Fixture::new();
    fixture.write("lib.so", &with_symbols("own"));
    fixture.start(7, &["lib.so"]);
    fixture.start(8, &["lib.so"]);
    assert_eq!([7, 8].map(|pid| fixture.name(pid, 0)), [Ok("own".to_owned()), Ok("own".to_owned())]);
    assert_eq!(fixture.module(7, 0), fixture.module(8, 0));
}

#[test]
fn a_capture_has_the_files_of_a_process_that_has_ended() {
    let mut fixture = Fixture::new();
    fixture.write("lib.so", &with_symbols("own"));
    fixture.start(7, &["lib.so"]);
    let key = fixture.processes.prefetch(Pid(7));
    let kind = SidebandEventKind::Exit;
    fixture.processes.apply(SidebandEvent { time: MonotonicTime(1), pid: Pid(7), tid: Tid(7), kind });
    let process = fixture.processes.get(key).unwrap();
    assert!(process.has_ended());
    let mapping = process.mappings().next().unwrap();
    assert!(fixture.modules.module_of(process, mapping).is_ok());
}

#[test]
fn a_container_gives_no_names_to_another_one() {
    let mut fixture = Fixture::new();
    fixture.write("lib.so", &stripped());
    fixture.start(7, &["lib.so"]);
    fixture.start(8, &["lib.so"]);
    fixture.write("7/root/usr/lib/debug/.build-id/ab/cd.debug", &with_symbols("forged"));
    assert_eq!(fixture.name(7, 0), Ok("forged".to_owned()));
    assert_ne!(fixture.name(8, 0), Ok("forged".to_owned()));
    assert_ne!(fixture.module(7, 0), fixture.module(8, 0));
}

#[test]
fn containers_share_a_file_with_a_debug_file_of_the_host() {
    let mut fixture = Fixture::new();
    fixture.write("lib.so", &stripped());
    fixture.start(7, &["lib.so"]);
    fixture.start(8, &["lib.so"]);
    fixture.write("host/usr/lib/debug/.build-id/ab/cd.debug", &with_symbols("of the host"));
    fixture.write("7/root/usr/lib/debug/.build-id/ab/cd.debug", &with_symbols("forged"));
    assert_eq!([7, 8].map(|pid| fixture.name(pid, 0).unwrap()), ["of the host", "of the host"]);
    assert_eq!(fixture.module(7, 0), fixture.module(8, 0));
}

#[test]
fn files_of_two_subvolumes_with_one_device_and_inode_are_two_modules() {
    let mut fixture = Fixture::new();
    fixture.write("first/lib.so", &with_symbols("first"));
    fixture.write("second/lib.so", &with_symbols("second"));
    fixture.start(7, &["first/lib.so", "second/lib.so"]);
    assert_eq!([0, 1].map(|number| fixture.name(7, number).unwrap()), ["first", "second"]);
}

#[test]
fn a_file_that_changed_is_another_module_for_a_later_process() {
    let mut fixture = Fixture::new();
    fixture.write("lib.so", &with_symbols("old"));
    fixture.start(7, &["lib.so"]);
    fixture.start(8, &["lib.so"]);
    assert_eq!(fixture.name(7, 0).unwrap(), "old");
    fixture.write("lib.so", &with_symbols("new name"));
    assert_eq!(fixture.name(8, 0).unwrap(), "new name");
}

#[test]
fn idle_modules_are_closed_and_opened_again() {
    let mut fixture = Fixture::new();
    fixture.write("lib.so", &with_symbols("own"));
    fixture.start(7, &["lib.so"]);
    let first = fixture.module(7, 0);
    fixture.modules.end_interval();
    assert_eq!(fixture.module(7, 0), first);
    fixture.modules.modules.values_mut().for_each(|module| module.last_used -= 2 * MAX_IDLE_TIME);
    fixture.modules.end_interval();
    let modules = &fixture.modules;
    assert!(modules.modules.is_empty() && modules.by_file.is_empty() && modules.mapped.len() == 0);
    assert_eq!(fixture.name(7, 0).unwrap(), "own");
}

#[test]
fn the_number_of_modules_is_limited() {
    let mut fixture = Fixture::new();
    let names: Vec<String> = (0..MAX_MODULES + 10).map(|number| format!("lib{number}.so")).collect();
    names.iter().for_each(|name| fixture.write(name, &with_symbols("own")));
    fixture.start(7, &names.iter().map(String::as_str).collect::<Vec<_>>());
    let process = fixture.processes.prefetch(Pid(7));
    let process = fixture.processes.get(process).unwrap();
    for mapping in process.mappings() {
        fixture.modules.module_of(process, mapping).unwrap();
        assert!(fixture.modules.modules.len() <= MAX_MODULES);
    }
    assert!(fixture.modules.modules.len() >= MAX_MODULES / 2, "the files in use stay open");
}

#[test]
fn endless_paths_of_one_module_are_evicted_and_those_in_use_stay() {
    let mut fixture = Fixture::new();
    fixture.write("lib.so", &with_symbols("own"));
    fixture.start(7, &["lib.so"]);
    let (module, process) = (fixture.module(7, 0), fixture.processes.prefetch(Pid(7)));
    let id = FileId { major: 0, minor: 42, inode: 257 };
    let file = |path: String| MappedPath { tenant: None, id, path: path.into() };
    let (begin, in_use) = (Instant::now(), file("/in/use".to_owned()));
    let mapped = &mut fixture.modules.mapped;
    mapped.insert(in_use.clone(), module, process, begin);
    for number in 0..3 * mapped_modules::MAX_FILES {
        let now = begin + Duration::from_nanos(number as u64);
        assert_eq!(mapped.find(&in_use, now).map(|found| found.module), Some(module));
        mapped.insert(file(format!("/renamed/{number}")), module, process, now);
        assert!(mapped.len() <= mapped_modules::MAX_FILES);
    }
    assert_eq!(fixture.name(7, 0).unwrap(), "own");
}
