//! Tests of finding, verifying and reading the files of one process.

use std::os::unix::{fs::MetadataExt, net::UnixListener};

use profiler_addresses::MonotonicTime;
use profiler_dotnet_diagnostics::SIMULATED_SOCKET_NAME;
use profiler_processes::Pid;

use super::*;

struct Fixture {
    directory: tempfile::TempDir,
    names: JitNames,
}

impl Fixture {
    fn new(environ: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let uid = directory.path().metadata().unwrap().uid();
        let environ = environ.as_bytes();
        let process = JitProcess { namespace_pid: 7, uid, started_unix_ns: 0, environ };
        let root = Arc::new(RootDirectory::open(directory.path()).unwrap());
        Self { directory, names: JitNames::with_runtime(&process, Some(root), None, Arc::default()) }
    }

    fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.directory.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    fn poll(&mut self, now_ns: u64) {
        assert!(!self.names.poll(MonotonicTime(now_ns), usize::MAX));
    }

    fn name(&self, address: u64, time_ns: u64) -> Result<String, Reason> {
        let found = self.names.lookup(RuntimeAddress(address), MonotonicTime(time_ns))?;
        Ok(found.symbolized.functions[0].name.clone())
    }
}

fn jit_dump(time_ns: u64, address: u64, name: &str) -> Vec<u8> {
    let header = [0x4a69_5444, 1, 40, 62, 0, 7, 0, 0, 0, 0].map(u32::to_ne_bytes).concat();
    let body =
        [&[0, address, address, 16, 1].map(u64::to_ne_bytes).concat(), name.as_bytes(), b"\0"].concat();
    let record = [[0, 16 + body.len() as u32].map(u32::to_ne_bytes).concat(), time_ns.to_ne_bytes().to_vec()];
    [header, record.concat(), body].concat()
}

#[test]
fn the_map_of_the_innermost_pid_is_read_from_the_targets_root() {
    let mut fixture = Fixture::new("");
    fixture.write("tmp/perf-7.map", "1000 10 int32 [app] A.B::C(int32)[QuickJitted]\n");
    fixture.write("tmp/perf-8.map", "2000 10 other\n");
    assert_eq!(fixture.name(0x1000, 5), Err(Reason::NoJitMap));
    fixture.poll(10);
    assert_eq!(fixture.name(0x1000, 5), Ok("app!A.B.C(int32)".to_owned()));
    assert_eq!(fixture.name(0x2000, 5), Err(Reason::NoJitEntry));
}

#[test]
fn the_environment_changes_the_directories() {
    let mut fixture = Fixture::new("TMPDIR=/var/tmp\0DOTNET_PerfMapJitDumpPath=/maps");
    fixture.write("var/tmp/perf-7.map", "1000 10 first\n");
    fixture.write("maps/jit-7.dump", jit_dump(1, 0x2000, "void [app] A::B()[PreJIT]"));
    fixture.poll(10);
    assert_eq!(fixture.name(0x1000, 5), Ok("first".to_owned()));
    assert_eq!(fixture.name(0x2000, 5), Ok("app!A.B()".to_owned()));
}

#[test]
fn a_mapped_jitdump_is_read() {
    let mut fixture = Fixture::new("");
    fixture.write("app/jit-7.dump", jit_dump(1, 0x2000, "f"));
    for path in ["/app/jit-8.dump", "jit-7.dump", "/app/libx.so", "/app/jit-7.dump", "/app/jit-7.dump"] {
        fixture.names.add_mapped_file(Path::new(path));
    }
    assert_eq!(fixture.names.jit_dumps.len(), 2);
    fixture.poll(10);
    assert_eq!(fixture.name(0x2000, 5), Ok("f".to_owned()));
    for index in 0..100 {
        fixture.names.add_mapped_file(Path::new(&format!("/{index}/jit-7.dump")));
    }
    assert_eq!(fixture.names.jit_dumps.len(), MAX_JIT_DUMPS);
}

#[test]
fn reused_addresses_of_a_growing_map_are_resolved_by_time() {
    let mut fixture = Fixture::new("");
    fixture.write("tmp/perf-7.map", "1000 10 old\n");
    fixture.poll(10);
    fixture.write("tmp/perf-7.map", "1000 10 old\n1000 10 new\n");
    fixture.poll(20);
    assert_eq!(fixture.name(0x1000, 10), Ok("old".to_owned()));
    for time_ns in [11, 19] {
        assert_eq!(fixture.name(0x1000, time_ns), Err(Reason::JitCodeReplaced));
    }
    assert_eq!(fixture.name(0x1000, 20), Ok("new".to_owned()));
    assert_eq!([10, 11, 19, 20].map(|time_ns| fixture.names.epoch(MonotonicTime(time_ns))), [0, 1, 1, 2]);
}

#[test]
fn names_before_a_map_was_rewritten_stay_valid_for_that_time() {
    let mut fixture = Fixture::new("");
    fixture.write("tmp/perf-7.map", "1000 10 gone later\n2000 10 stays\n");
    fixture.poll(10);
    fixture.write("tmp/perf-7.map", "2000 10 stays\n");
    fixture.poll(20);
    assert_eq!(fixture.name(0x1000, 5), Ok("gone later".to_owned()));
    assert_eq!(fixture.name(0x2000, 25), Ok("stays".to_owned()));
    assert_eq!(fixture.names.epoch(MonotonicTime::MAX), 0);
}

#[test]
fn a_jitdump_is_preferred_unless_the_map_names_later_code() {
    let mut fixture = Fixture::new("");
    fixture.write("tmp/jit-7.dump", jit_dump(5, 0x1000, "from dump"));
    fixture.write("tmp/perf-7.map", "1000 10 from map\n");
    fixture.poll(10);
    assert_eq!(fixture.name(0x1000, 10), Ok("from dump".to_owned()));
    fixture.write("tmp/perf-7.map", "1000 10 from map\n1000 10 later\n");
    fixture.poll(20);
    assert_eq!(fixture.name(0x1000, 10), Ok("from dump".to_owned()));
    assert_eq!(fixture.name(0x1000, 20), Ok("later".to_owned()));
}

#[test]
fn a_fork_shares_the_code_from_before_it() {
    let mut fixture = Fixture::new("");
    fixture.write("tmp/perf-7.map", "1000 10 before\n3000 10 replaced\n");
    fixture.write(
        "tmp/jit-7.dump",
        [jit_dump(5, 0x4000, "dumped"), jit_dump(30, 0x5000, "too late")[40..].to_vec()].concat(),
    );
    fixture.poll(10);
    fixture.write(
        "tmp/perf-7.map",
        "1000 10 before\n3000 10 replaced\n2000 10 after\n1000 10 after, too\n3000 10 a\n",
    );
    fixture.poll(20);
    let name = |address, forked| {
        let found = fixture.names.lookup_at_fork(RuntimeAddress(address), forked, forked)?;
        Some(found.map(|found| found.symbolized.functions[0].name.clone()))
    };
    assert_eq!(name(0x1000, MonotonicTime(10)), Some(Ok("before".to_owned())));
    assert_eq!(name(0x2000, MonotonicTime(10)), None, "the code came after the fork");
    // It was written before or after the fork.
    assert_eq!(name(0x2000, MonotonicTime(15)), Some(Ok("after".to_owned())));
    assert_eq!(name(0x3000, MonotonicTime(15)), Some(Err(Reason::JitCodeReplaced)));
    assert_eq!(name(0x3000, MonotonicTime(20)), Some(Ok("a".to_owned())));
    let within = fixture.names.lookup_at_fork(RuntimeAddress(0x3000), MonotonicTime(10), MonotonicTime(20));
    assert_eq!(within.map(|found| found.map(|_| ())), Some(Err(Reason::JitCodeReplaced)));
    assert_eq!(
        [0x4000, 0x5000].map(|address| name(address, MonotonicTime(10))),
        [Some(Ok("dumped".to_owned())), None]
    );
}

#[test]
fn a_refused_map_is_a_reason() {
    let mut fixture = Fixture::new("");
    std::fs::create_dir_all(fixture.directory.path().join("tmp/perf-7.map")).unwrap();
    fixture.poll(10);
    assert_eq!(fixture.name(0x1000, 5), Err(Reason::JitMapRefused));
}

#[test]
fn malformed_entries_are_counted() {
    let mut fixture = Fixture::new("");
    fixture.write("tmp/jit-7.dump", "This is text, and longer than the header of forty bytes.");
    fixture.write("tmp/perf-7.map", "nonsense\n\x7fELF\n");
    fixture.poll(10);
    assert_eq!(fixture.names.malformed_entries(), 3);
    assert_eq!(fixture.name(0x1000, 5), Err(Reason::NoJitEntry));
}

/// No event describes the frames of a method.
#[test]
fn memory_is_read_beside_events_where_it_describes_frames() {
    let directory = tempfile::tempdir().unwrap();
    let socket = UnixListener::bind(directory.path().join(SIMULATED_SOCKET_NAME)).unwrap();
    let root = || RootDirectory::open(directory.path()).unwrap();
    let process = JitProcess {
        namespace_pid: 1,
        uid: rustix::process::geteuid().as_raw(),
        started_unix_ns: 0,
        environ: &[],
    };
    for reads_frames in [true, false] {
        let runtime = RuntimeNames::new(RuntimeProcess::simulated(root()), MemoryBudget::default());
        let mut names =
            JitNames::with_runtime(&process, Some(Arc::new(root())), Some(runtime), Arc::default());
        names.language = Some(LanguageRuntime::Dotnet);
        names.method_memory = Some(MethodMemory::new(Pid(1), reads_frames));
        names.note(RuntimeAddress(0x1000));
        let is_noted = |names: &JitNames| names.method_memory.as_ref().is_some_and(MethodMemory::has_noted);
        assert!(is_noted(&names), "the runtime has reported nothing yet");
        names.method_memory = Some(MethodMemory::new(Pid(1), reads_frames));
        tenant_limits::start_listeners(&mut [&mut names]);
        assert!(names.runtime.as_ref().is_some_and(RuntimeNames::reports_methods));
        names.note(RuntimeAddress(0x1000));
        assert_eq!(is_noted(&names), reads_frames);
    }
    // This resets the connections, so that no listener waits for a reply.
    drop(socket);
}

#[test]
fn names_can_be_sent_to_another_thread() {
    fn assert_send<T: Send>() {}
    assert_send::<JitNames>();
    assert_send::<crate::kernel::KernelSymbols>();
}

#[test]
fn reading_stops_at_the_memory_limit_and_gives_the_reason() {
    const LIMIT_BYTES: usize = 1 << 20;
    let mut fixture = Fixture::new("");
    let lines: String = (0..200_000_u32).map(|line| format!("{:x} 1 a\n", 2 * line)).collect();
    fixture.write("tmp/perf-7.map", &lines);
    while fixture.names.poll(MonotonicTime(10), LIMIT_BYTES) {}
    let taken_bytes = fixture.names.memory_bytes();
    assert!(taken_bytes < 6 * LIMIT_BYTES, "{taken_bytes}");
    assert_eq!(fixture.name(0, 20), Ok("a".to_owned()));
    assert_eq!(fixture.name(2 * 199_999, 20), Err(Reason::TooLarge));
}
