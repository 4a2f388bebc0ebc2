//! Tests of listening, to a runtime of the test's own making.

use profiler_dotnet_symbols::eventpipe::test_stream::{
    METHOD_IN_RUNDOWN, METHOD_LOADED, MODULE_IN_RUNDOWN, TestStream, method, module,
};
use std::{
    io::{Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    thread::JoinHandle,
};

use super::*;
use profiler_dotnet_symbols::managed::Tier;

const OK: &[u8] = b"DOTNET_IPC_V1\0\x1c\0\xff\0\0\0\x07\0\0\0\0\0\0\0";
const UNKNOWN_COMMAND: &[u8] = b"DOTNET_IPC_V1\0\x18\0\xff\xff\0\0\x85\x13\x13\x80";
const STOP: u8 = 1;
const COLLECT_2: u8 = 3;

/// Far more than any of this takes.
const DEADLINE: Duration = Duration::from_secs(20);

struct Scene {
    _directory: tempfile::TempDir,
    names: RuntimeNames,
    runtime: JoinHandle<()>,
}

impl Scene {
    /// A process whose runtime does this with each connection and the command that came through it, until there are no
    /// more.
    fn new(connections: usize, mut answer: impl FnMut(UnixStream, u8) + Send + 'static) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("dotnet-diagnostic-1-77-socket")).unwrap();
        let process = RuntimeProcess {
            root: Arc::new(RootDirectory::open(directory.path()).unwrap()),
            directories: vec!["/".into()],
            pid: std::process::id(),
            namespace_pid: 1,
            uid: rustix::process::geteuid().as_raw(),
            start_ticks: 77,
            perf_map: None,
        };
        let runtime = std::thread::spawn(move || {
            for stream in listener.incoming().take(connections) {
                let mut stream = stream.unwrap();
                let mut header = [0; 20];
                stream.read_exact(&mut header).unwrap();
                let mut body = vec![0; usize::from(header[14]) - header.len()];
                stream.read_exact(&mut body).unwrap();
                answer(stream, header[17]);
            }
        });
        Self { _directory: directory, names: RuntimeNames::new(process, Room::default()), runtime }
    }

    /// Listens, and asks for all there is.
    fn settle(&mut self, within: Duration) {
        let until = Instant::now() + within;
        self.names.listen();
        assert!(self.names.is_listening());
        self.names.ask(true, until);
        self.names.settle(until);
    }

    fn name(&self, address: u64, time_ns: u64) -> Option<String> {
        Some(self.names.lookup(address, time_ns)?.name)
    }
}

fn write(mut stream: &UnixStream, bytes: &[u8]) {
    // The other end may have heard enough.
    let _ = stream.write_all(bytes);
}

fn loaded() -> Vec<u8> {
    let payload = method(3, 0x1000, 16, ["A", "Late", "void  ()"]);
    TestStream::new(0).events(&[(METHOD_LOADED, 1, 9, payload)]).sequence_point(1).end()
}

fn rundown() -> Vec<u8> {
    let payload = method(3, 0x1000, 16, ["A", "Early", "void  ()"]);
    TestStream::new(0)
        .events(&[(METHOD_IN_RUNDOWN, 1, 0, payload)])
        .events(&[(MODULE_IN_RUNDOWN, 2, 0, module(3, "/app.dll"))])
        .end()
}

/// Speaks only `understood`, and tells of one method early and of another one late in the same place.
fn good_runtime(understood: u8) -> impl FnMut(UnixStream, u8) + Send + 'static {
    let mut sessions = Vec::new();
    move |stream, command| match command {
        STOP => {
            let session: UnixStream = sessions.pop().unwrap();
            // The one that was opened first is stopped last.
            write(&session, &if sessions.is_empty() { loaded() } else { rundown() });
            write(&stream, OK);
        }
        _ if command == understood => {
            write(&stream, OK);
            sessions.push(stream);
        }
        _ => write(&stream, UNKNOWN_COMMAND),
    }
}

#[test]
fn methods_have_names_from_before_and_from_while_it_was_listened() {
    for (understood, refusals) in [(5, 0), (4, 1), (COLLECT_2, 2), (2, 3)] {
        let mut scene = Scene::new(refusals + 4, good_runtime(understood));
        scene.settle(DEADLINE);
        scene.runtime.join().unwrap();
        let names = &scene.names;
        let early = names.lookup(0x1000, 0).unwrap();
        assert_eq!((&*early.name, early.tier), ("app!A.Early()", Tier::QuickJitted));
        assert_eq!(names.lookup(0x100f, u64::MAX).unwrap().name, "app!A.Late()");
        assert_eq!(names.lookup(0x1010, 0), None);
        assert_eq!(names.reason(), Some(Reason::NoJitEntry));
        assert_eq!((names.malformed_events(), names.dropped_events()), (0, 0));
        assert!(names.has_all_of(0) && names.has_all_of(u64::MAX - 1));
    }
}

#[test]
fn a_listener_that_is_dropped_stops_its_session() {
    let (stopped, heard) = std::sync::mpsc::channel();
    let mut good = good_runtime(5);
    let mut scene = Scene::new(4, move |stream, command| {
        stopped.send(command).unwrap();
        good(stream, command);
    });
    scene.names.listen();
    // The session and the rundown are open, the rundown is stopped.
    let commands: Vec<u8> = (0..3).map(|_| heard.recv_timeout(DEADLINE).unwrap()).collect();
    assert_eq!(commands, [5, 5, STOP]);
    drop(scene.names);
    assert_eq!(heard.recv_timeout(DEADLINE), Ok(STOP));
    scene.runtime.join().unwrap();
}

#[test]
fn a_profile_that_is_not_the_last_one_leaves_a_session_open() {
    let mut commands = Vec::new();
    let (sender, heard) = std::sync::mpsc::channel();
    let mut sessions = std::collections::VecDeque::new();
    let mut scene = Scene::new(7, move |stream, command| {
        sender.send(command).unwrap();
        if command == STOP {
            let rundown_is_stopped = sessions.len() == 2 && commands == [5, 5];
            let session = if rundown_is_stopped { sessions.pop_back() } else { sessions.pop_front() };
            let bytes = if rundown_is_stopped { rundown() } else { loaded() };
            write(&session.unwrap(), &bytes);
        } else {
            write(&stream, OK);
            sessions.push_back(stream);
        }
        commands.push(command);
    });
    scene.names.listen();
    for is_last in [false, true] {
        let until = Instant::now() + DEADLINE;
        scene.names.ask(is_last, until);
        scene.names.settle(until);
        assert_eq!(scene.name(0x1000, u64::MAX).as_deref(), Some("app!A.Late()"));
    }
    assert_eq!(heard.iter().take(6).collect::<Vec<_>>(), [5, 5, STOP, 5, STOP, STOP]);
}

#[test]
fn dropped_events_are_made_good_by_another_rundown() {
    let mut stops = 0;
    let mut sessions = Vec::new();
    let mut scene = Scene::new(6, move |stream, command| {
        if command == STOP {
            stops += 1;
            let session: UnixStream = sessions.pop().unwrap();
            let bytes = match stops {
                1 => rundown(),
                2 => TestStream::new(0).sequence_point(5).end(),
                _ => {
                    let payload = method(3, 0x5000, 16, ["A", "Missed", "void  ()"]);
                    TestStream::new(0).events(&[(METHOD_IN_RUNDOWN, 1, 0, payload)]).end()
                }
            };
            write(&session, &bytes);
            write(&stream, OK);
        } else {
            write(&stream, OK);
            sessions.push(stream);
        }
    });
    scene.settle(DEADLINE);
    assert_eq!(scene.name(0x5000, u64::MAX).as_deref(), Some("app!A.Missed()"));
    assert_eq!(scene.names.dropped_events(), 0);
}

#[test]
fn a_runtime_that_dies_in_the_middle_of_its_rundown_is_heard_so_far() {
    let mut sessions = Vec::new();
    let mut scene = Scene::new(4, move |stream, command| {
        if command == STOP {
            let session: UnixStream = sessions.pop().unwrap();
            let whole = if sessions.is_empty() { loaded() } else { rundown() };
            write(&session, &whole[..whole.len() - 2]);
            return;
        }
        write(&stream, OK);
        sessions.push(stream);
    });
    scene.settle(DEADLINE);
    assert_eq!(scene.name(0x1000, 0).as_deref(), Some("A.Early()"));
    assert_eq!(scene.names.reason(), Some(Reason::RuntimeSilent));
    assert!(!scene.names.has_all_of(u64::MAX - 1));
}

#[test]
fn a_session_that_ends_too_early_tells_not_of_all_that_comes_later() {
    // With the rundown, or when it is asked to stop.
    for connections in [3, 4] {
        let mut sessions: Vec<UnixStream> = Vec::new();
        let mut scene = Scene::new(connections, move |stream, command| {
            if command == STOP {
                let session = sessions.pop().unwrap();
                if !sessions.is_empty() {
                    write(&session, &rundown());
                }
                if connections == 3 {
                    sessions.clear();
                }
                return;
            }
            write(&stream, OK);
            sessions.push(stream);
        });
        scene.settle(DEADLINE);
        assert_eq!(scene.name(0x1000, 0).as_deref(), Some("app!A.Early()"));
        assert!(!scene.names.has_all_of(u64::MAX - 1));
    }
}

#[test]
fn a_runtime_that_never_answers_costs_no_more_than_the_time_it_is_given() {
    let mut kept = Vec::new();
    let mut scene = Scene::new(1, move |stream, _| kept.push(stream));
    let begin = Instant::now();
    scene.settle(Duration::from_millis(200));
    assert!(begin.elapsed() < Duration::from_secs(5));
    assert_eq!(scene.names.reason(), Some(Reason::RuntimeSilent));
}

#[test]
fn garbage_is_refused() {
    let no_stream = [OK, b"no stream at all"].concat();
    // Who answers at first is asked for a rundown too, and to stop it.
    for (garbage, connections) in
        [(&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], 1), (&[0; 64], 1), (&no_stream, 3)]
    {
        let bytes = garbage.to_vec();
        let mut scene = Scene::new(connections, move |stream, _| write(&stream, &bytes));
        scene.settle(DEADLINE);
        assert_eq!(scene.names.reason(), Some(Reason::RuntimeRefused), "{garbage:?}");
    }
}

#[test]
fn a_stream_without_end_is_read_as_long_as_there_is_time() {
    let mut scene = Scene::new(2, move |stream, _| {
        write(&stream, OK);
        std::thread::spawn(move || {
            let mut stream = TestWriter(stream);
            if stream.write(&TestStream::new(0).0) {
                let block = TestStream(Vec::new()).block("StackBlock", &[0; 3]).0;
                while stream.write(&block) {}
            }
        });
    });
    let begin = Instant::now();
    scene.settle(Duration::from_millis(300));
    assert!(begin.elapsed() < Duration::from_secs(5));
    assert!(scene.names.reason().is_some());
}

struct TestWriter(UnixStream);

impl TestWriter {
    fn write(&mut self, bytes: &[u8]) -> bool {
        self.0.write_all(bytes).is_ok()
    }
}
