//! Tests of finding, trusting and reading the files of one process.

use std::os::unix::fs::MetadataExt;

use super::*;

struct Scene {
    directory: tempfile::TempDir,
    root: RootDirectory,
    names: JitNames,
}

impl Scene {
    fn new(environ: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let uid = directory.path().metadata().unwrap().uid();
        let environ = environ.as_bytes();
        let process = JitProcess { namespace_pid: 7, uid, started_unix_ns: 0, environ };
        let root = RootDirectory::open(directory.path()).unwrap();
        Self { directory, root, names: JitNames::new(&process, None) }
    }

    fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.directory.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    fn poll(&mut self, now_ns: u64) {
        assert!(!self.names.poll(&self.root, now_ns, usize::MAX));
    }

    fn name(&self, address: u64, time_ns: u64) -> Result<String, Reason> {
        let symbolized = self.names.lookup(RuntimeAddress(address), time_ns)?;
        Ok(symbolized.functions[0].name.clone())
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
    let mut scene = Scene::new("");
    scene.write("tmp/perf-7.map", "1000 10 int32 [app] A.B::C(int32)[QuickJitted]\n");
    scene.write("tmp/perf-8.map", "2000 10 other\n");
    assert_eq!(scene.name(0x1000, 5), Err(Reason::NoJitMap));
    scene.poll(10);
    assert_eq!(scene.name(0x1000, 5), Ok("app!A.B.C(int32)".to_owned()));
    assert_eq!(scene.name(0x2000, 5), Err(Reason::NoJitEntry));
}

#[test]
fn the_environment_moves_the_files() {
    let mut scene = Scene::new("TMPDIR=/var/tmp\0DOTNET_PerfMapJitDumpPath=/maps");
    scene.write("var/tmp/perf-7.map", "1000 10 first\n");
    scene.write("maps/jit-7.dump", jit_dump(1, 0x2000, "void [app] A::B()[PreJIT]"));
    scene.poll(10);
    assert_eq!(scene.name(0x1000, 5), Ok("first".to_owned()));
    assert_eq!(scene.name(0x2000, 5), Ok("app!A.B()".to_owned()));
}

#[test]
fn a_mapped_jitdump_is_found_where_it_is() {
    let mut scene = Scene::new("");
    scene.write("app/jit-7.dump", jit_dump(1, 0x2000, "f"));
    for path in ["/app/jit-8.dump", "jit-7.dump", "/app/libx.so", "/app/jit-7.dump", "/app/jit-7.dump"] {
        scene.names.see_mapping(Path::new(path));
    }
    assert_eq!(scene.names.jit_dumps.len(), 2);
    scene.poll(10);
    assert_eq!(scene.name(0x2000, 5), Ok("f".to_owned()));
    for index in 0..100 {
        scene.names.see_mapping(Path::new(&format!("/{index}/jit-7.dump")));
    }
    assert_eq!(scene.names.jit_dumps.len(), MAX_JIT_DUMPS);
}

#[test]
fn a_map_that_grows_and_uses_addresses_again_is_followed_by_time() {
    let mut scene = Scene::new("");
    scene.write("tmp/perf-7.map", "1000 10 old\n");
    scene.poll(10);
    scene.write("tmp/perf-7.map", "1000 10 old\n1000 10 new\n");
    scene.poll(20);
    assert_eq!(scene.name(0x1000, 10), Ok("old".to_owned()));
    assert_eq!(scene.name(0x1000, 11), Ok("new".to_owned()));
    assert_eq!([10, 11].map(|time_ns| scene.names.epoch(time_ns)), [0, 1]);
}

#[test]
fn names_of_a_map_that_was_begun_again_hold_for_the_time_before() {
    let mut scene = Scene::new("");
    scene.write("tmp/perf-7.map", "1000 10 gone later\n2000 10 stays\n");
    scene.poll(10);
    scene.write("tmp/perf-7.map", "2000 10 stays\n");
    scene.poll(20);
    assert_eq!(scene.name(0x1000, 5), Ok("gone later".to_owned()));
    assert_eq!(scene.name(0x2000, 25), Ok("stays".to_owned()));
    assert_eq!(scene.names.epoch(u64::MAX), 0);
}

#[test]
fn a_jitdump_is_preferred_unless_the_map_names_later_code() {
    let mut scene = Scene::new("");
    scene.write("tmp/jit-7.dump", jit_dump(5, 0x1000, "from dump"));
    scene.write("tmp/perf-7.map", "1000 10 from map\n");
    scene.poll(10);
    assert_eq!(scene.name(0x1000, 10), Ok("from dump".to_owned()));
    scene.write("tmp/perf-7.map", "1000 10 from map\n1000 10 later\n");
    scene.poll(20);
    assert_eq!(scene.name(0x1000, 10), Ok("from dump".to_owned()));
    assert_eq!(scene.name(0x1000, 11), Ok("later".to_owned()));
}

#[test]
fn a_refused_map_says_so() {
    let mut scene = Scene::new("");
    std::fs::create_dir_all(scene.directory.path().join("tmp/perf-7.map")).unwrap();
    scene.poll(10);
    assert_eq!(scene.name(0x1000, 5), Err(Reason::JitMapRefused));
}

#[test]
fn what_is_no_entry_is_counted() {
    let mut scene = Scene::new("");
    scene.write("tmp/jit-7.dump", "This is text, and longer than the header of forty bytes.");
    scene.write("tmp/perf-7.map", "nonsense\n\x7fELF\n");
    scene.poll(10);
    assert_eq!(scene.names.malformed_entries(), 3);
    assert_eq!(scene.name(0x1000, 5), Err(Reason::NoJitEntry));
}

#[test]
fn names_can_be_handed_to_another_thread() {
    fn assert_send<T: Send>() {}
    assert_send::<JitNames>();
    assert_send::<crate::kernel::KernelSymbols>();
}

#[test]
fn names_that_fill_the_memory_are_cut_off_and_said_so() {
    const ROOM_BYTES: usize = 1 << 20;
    let mut scene = Scene::new("");
    let lines: String = (0..200_000_u32).map(|line| format!("{:x} 1 a\n", 2 * line)).collect();
    scene.write("tmp/perf-7.map", &lines);
    while scene.names.poll(&scene.root, 10, ROOM_BYTES) {}
    let taken_bytes = scene.names.memory_bytes();
    assert!(taken_bytes < 6 * ROOM_BYTES, "{taken_bytes}");
    assert_eq!(scene.name(0, 20), Ok("a".to_owned()));
    assert_eq!(scene.name(2 * 199_999, 20), Err(Reason::TooLarge));
}
