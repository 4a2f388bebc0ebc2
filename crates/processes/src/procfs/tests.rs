//! Tests of what is read of entries.

use profiler_addresses::MonotonicTime;

use super::*;
use crate::{
    AddressSpace, ProcessKey,
    process::{Completeness, PublishedName},
    process_reader::ProcessReader,
};

fn first_file_mapping(proc: &ProcFs) -> Mapping {
    let text = proc.read(Pid::own(), "maps").unwrap();
    let file = |mapping: &Mapping| matches!(&mapping.backing, Backing::File { .. });
    maps::parse_executable(&text).into_iter().find(file).unwrap()
}

#[test]
fn a_file_that_has_replaced_another_one_is_not_opened() {
    let proc = ProcFs::live();
    let mut mapping = first_file_mapping(&proc);
    assert!(proc.open_mapped(Pid::own(), &mapping).is_ok());
    let Backing::File { id, .. } = &mut mapping.backing else { unreachable!() };
    id.inode += 1;
    let error = proc.open_mapped(Pid::own(), &mapping).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
}

#[test]
fn a_capture_reads_like_the_live_file_system_it_was_taken_from() {
    let pid = Pid::own();
    let directory = tempfile::tempdir().unwrap();
    let live = ProcFs::with_capture(File::open(directory.path()).unwrap().into());
    let mapping = first_file_mapping(&live);
    let Backing::File { path, .. } = &mapping.backing else { unreachable!() };
    let file = Arc::new(live.root(pid).unwrap().open_file(Path::new(&**path)).unwrap());
    live.capture_mapped_file(pid, &mapping, &file).unwrap();
    live.capture_entry(pid, "extra", b"text").unwrap();
    let vdso = live.vdso().unwrap();

    let copy = ProcFs::from_capture(directory.path().to_owned());
    assert_eq!(first_file_mapping(&copy), mapping);
    assert_eq!(copy.read(pid, "extra").unwrap(), b"text");
    assert_eq!(copy.vdso().unwrap(), vdso);
    assert!(vdso.starts_with(b"\x7fELF"));
    let copied = copy.open_mapped(pid, &mapping).unwrap();
    assert_eq!(copied.metadata().unwrap().len(), file.metadata().unwrap().len());
    assert_eq!(copy.processes(10).unwrap(), [pid]);
}

#[test]
fn no_file_is_written_outside_a_capture() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("proc")).unwrap();
    let opened = File::open(directory.path().join("proc")).unwrap();
    let proc = ProcFs::with_capture(opened.into());
    let file = Arc::new(File::open("/proc/self/exe").unwrap());
    for path in ["/../../../escaped", "/tmp/../../../../escaped", "../../../escaped"] {
        assert!(proc.capture_root_file(Pid(7), Path::new(path), &file).is_err());
    }
    proc.capture_root_file(Pid(7), Path::new("/tmp/kept"), &file).unwrap();
    assert!(directory.path().join("proc/7/root/tmp/kept").exists());
    assert!(!directory.path().join("escaped").exists());
}

#[test]
fn entries_are_read_up_to_their_limits() {
    let directory = tempfile::tempdir().unwrap();
    let copy = ProcFs::from_capture(directory.path().to_owned());
    fs::create_dir(directory.path().join("7")).unwrap();
    let short = ["cgroup", "comm", "stat", "status"].map(|entry| (entry, MAX_SHORT_ENTRY_BYTES));
    let long = [("environ", MAX_ENVIRONMENT_BYTES), ("cmdline", MAX_COMMAND_LINE_BYTES)];
    for (entry, limit_bytes) in short.into_iter().chain(long) {
        File::create(directory.path().join("7").join(entry)).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(copy.read(Pid(7), entry).unwrap().len() as u64, limit_bytes, "{entry}");
    }
}

#[test]
fn threads_and_open_files_are_counted() {
    let (proc, pid) = (ProcFs::live(), Pid::own());
    let before = proc.open_files(pid).unwrap();
    let files: Vec<_> = (0..100).map(|_| File::open("/proc/self/exe").unwrap()).collect();
    assert!(before > 0 && proc.open_files(pid).unwrap() >= files.len() as u64);
    assert!(proc.threads(pid, usize::MAX).unwrap().contains(&Tid::leader_of(pid)));
    assert_eq!(proc.threads(pid, 1).unwrap().len(), 1);
    assert!(proc.threads(Pid(u32::MAX), 1).is_err() && proc.open_files(Pid(u32::MAX)).is_err());

    let directory = tempfile::tempdir().unwrap();
    for entry in ["7/task/7", "7/task/8", "7/fd/0", "7/fd/1", "7/fd/20"] {
        fs::create_dir_all(directory.path().join(entry)).unwrap();
    }
    let copy = ProcFs::from_capture(directory.path().to_owned());
    assert_eq!((copy.threads(Pid(7), 10).unwrap().len(), copy.open_files(Pid(7)).unwrap()), (2, 3));
}

#[test]
fn reading_an_entry_of_a_missing_process_is_an_error() {
    assert!(ProcFs::live().read(Pid(u32::MAX), "maps").is_err());
    assert!(!ProcFs::live().exists(Tid(u32::MAX)));
}

#[test]
fn memory_of_a_process_is_read_and_is_in_captures() {
    let proc = Arc::new(ProcFs::live());
    let process = own_process(&proc);
    let text = b"in the memory of this test".to_vec();
    let address = RuntimeAddress(text.as_ptr() as u64);
    assert_eq!(proc.read_memory(&process, address, text.len()).unwrap(), text);
    assert!(proc.read_memory(&process, RuntimeAddress(0), 1).is_err());
    let directory = tempfile::tempdir().unwrap();
    let recorded = ProcFs::with_capture(File::open(directory.path()).unwrap().into());
    assert_eq!(recorded.read_memory(&process, address, text.len()).unwrap(), text);
    let copy = ProcFs::from_capture(directory.path().to_owned());
    assert_eq!(copy.read_memory(&process, address, text.len()).unwrap(), text);
    let other = copy.read_memory(&process, address, text.len() - 1);
    assert_eq!(other.unwrap_err().kind(), io::ErrorKind::NotFound);
    let too_much = proc.read_memory(&process, address, MAX_MEMORY_BYTES + 1);
    assert_eq!(too_much.unwrap_err().kind(), io::ErrorKind::Unsupported);
    assert_eq!(copy.open_memory(&process).unwrap_err().kind(), io::ErrorKind::Unsupported);
}

#[test]
fn memory_of_a_process_that_has_ended_or_was_replaced_is_not_returned() {
    let proc = Arc::new(ProcFs::live());
    let text = b"x".to_vec();
    let read = |process: &Process| proc.read_memory(process, RuntimeAddress(text.as_ptr() as u64), 1);
    let ended = Process { until: Some(MonotonicTime(1)), ..own_process(&proc) };
    assert_eq!(read(&ended).unwrap_err().kind(), io::ErrorKind::NotFound);
    let mut replaced = own_process(&proc);
    let identity = replaced.identity.as_mut().and_then(Arc::get_mut).unwrap();
    identity.start_ticks += 1;
    assert_eq!(read(&replaced).unwrap_err().kind(), io::ErrorKind::NotFound);
}

/// The process of this test.
fn own_process(proc: &Arc<ProcFs>) -> Process {
    let pid = Pid::own();
    let mut reader = ProcessReader::new(Arc::clone(proc));
    let identity = reader.read(pid).identity.ok().map(Arc::new);
    Process {
        key: ProcessKey(1),
        pid,
        comm: String::new(),
        identity,
        space: AddressSpace::from_snapshot(Vec::new()),
        completeness: Completeness::All,
        parent: None,
        forks: Vec::new(),
        since: MonotonicTime(0),
        until: None,
        threads: None,
        is_read: true,
        sampled_in: 0,
        published: PublishedName::default(),
        losses_seen: 0,
        watch: None,
    }
}
