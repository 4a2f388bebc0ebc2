//! Tests of the listener with a simulated runtime.

use std::{
    io::{Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    sync::mpsc::{Sender, channel},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use profiler_addresses::MonotonicTime;
use profiler_dotnet_symbols::{
    eventpipe::testing::{
        METHOD_IN_RUNDOWN, METHOD_LOADED, METHOD_UNLOADED, MODULE_IN_RUNDOWN, TestStream, method_payload,
        module_payload,
    },
    managed::Tier,
};
use profiler_processes::root_directory::RootDirectory;
use profiler_profile::Reason;

use super::{listener::STOP_TIMEOUT, *};

pub(super) const OK: &[u8] = b"DOTNET_IPC_V1\0\x1c\0\xff\0\0\0\x07\0\0\0\0\0\0\0";
const UNKNOWN_COMMAND: &[u8] = b"DOTNET_IPC_V1\0\x18\0\xff\xff\0\0\x85\x13\x13\x80";
pub(super) const STOP: u8 = 1;
const COLLECT_2: u8 = 3;
const PROCESS_INFO_2: u8 = 4;

/// Far more time than a test takes.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A process whose simulated runtime accepts this many connections, and calls `serve` with each and its command. Its socket
/// is in the directory.
pub(super) fn simulate_runtime(
    connections: usize,
    mut serve: impl FnMut(UnixStream, u8) + Send + 'static,
) -> (tempfile::TempDir, RuntimeProcess, JoinHandle<()>) {
    let directory = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(directory.path().join(SIMULATED_SOCKET_NAME)).unwrap();
    let process = RuntimeProcess::simulated(RootDirectory::open(directory.path()).unwrap());
    let runtime = std::thread::spawn(move || {
        for stream in listener.incoming().take(connections) {
            let mut stream = stream.unwrap();
            let mut header = [0; 20];
            stream.read_exact(&mut header).unwrap();
            let size = usize::from(u16::from_le_bytes([header[14], header[15]]));
            let mut body = vec![0; size - header.len()];
            stream.read_exact(&mut body).unwrap();
            serve(stream, header[17]);
        }
    });
    (directory, process, runtime)
}

struct Fixture {
    _directory: tempfile::TempDir,
    names: RuntimeNames,
    runtime: JoinHandle<()>,
}

impl Fixture {
    /// A process with a [simulated runtime](simulate_runtime).
    fn new(connections: usize, serve: impl FnMut(UnixStream, u8) + Send + 'static) -> Self {
        let (_directory, process, runtime) = simulate_runtime(connections, serve);
        Self { _directory, names: RuntimeNames::new(process, MemoryBudget::default()), runtime }
    }

    /// Starts the listener and receives its last report.
    fn receive_last_report(&mut self, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        self.names.start_listener();
        assert!(self.names.is_listening());
        self.names.request_report(ReportScope::Last, deadline);
        self.names.receive_report(deadline, usize::MAX);
    }

    fn name(&self, address: u64, time_ns: u64) -> Option<String> {
        Some(self.names.methods.lookup(address, MonotonicTime(time_ns))?.name)
    }
}

pub(super) fn write(mut stream: &UnixStream, bytes: &[u8]) {
    // The listener may have closed the connection.
    let _ = stream.write_all(bytes);
}

fn loaded() -> Vec<u8> {
    let payload = method_payload(3, 0x1000, 16, ["A", "Late", "void  ()"]);
    TestStream::new(0).events(&[(METHOD_LOADED, 1, 9, payload)]).sequence_point(1).end()
}

fn rundown() -> Vec<u8> {
    let payload = method_payload(3, 0x1000, 16, ["A", "Early", "void  ()"]);
    TestStream::new(0)
        .events(&[(METHOD_IN_RUNDOWN, 1, 0, payload)])
        .events(&[(MODULE_IN_RUNDOWN, 2, 0, module_payload(3, "/app.dll"))])
        .end()
}

/// A runtime that knows one version of the collect command. It reports one method in the rundown, and later another one
/// at the same address.
fn runtime_with_command(known_command: u8) -> impl FnMut(UnixStream, u8) + Send + 'static {
    let mut sessions = Vec::new();
    move |stream, command| match command {
        STOP => {
            let session: UnixStream = sessions.pop().unwrap();
            // The session that was opened first is stopped last.
            write(&session, &if sessions.is_empty() { loaded() } else { rundown() });
            write(&stream, OK);
        }
        _ if command == known_command => {
            write(&stream, OK);
            sessions.push(stream);
        }
        _ => write(&stream, UNKNOWN_COMMAND),
    }
}

#[test]
fn methods_from_before_and_during_the_session_have_names() {
    for (known_command, refusals) in [(5, 0), (4, 1), (COLLECT_2, 2), (2, 3)] {
        let (sender, commands) = channel();
        let mut serve = runtime_with_command(known_command);
        // Before each command that an old runtime knows, it must reply to another one.
        let pings = [0, 2, 3][usize::from(COLLECT_2 + 1).saturating_sub(known_command.into())];
        let connections = refusals + 4 + pings;
        let mut fixture = Fixture::new(connections, move |stream, command| {
            serve(stream, command);
            sender.send(command).unwrap();
        });
        fixture.names.start_listener();
        // The rundown of old runtimes waits for a pause of the compiler.
        while commands.recv_timeout(TIMEOUT).unwrap() != STOP {}
        fixture.receive_last_report(TIMEOUT);
        fixture.runtime.join().unwrap();
        let names = &fixture.names;
        let early = names.methods.lookup(0x1000, MonotonicTime(0)).unwrap();
        assert_eq!((&*early.name, early.tier), ("app!A.Early()", Tier::QuickJitted));
        assert_eq!(names.methods.lookup(0x100f, MonotonicTime::MAX).unwrap().name, "app!A.Late()");
        assert_eq!(names.methods.lookup(0x1010, MonotonicTime(0)), None);
        assert_eq!(names.reason(), Some(Reason::NoJitEntry));
        let completeness = &names.methods.completeness;
        assert_eq!((completeness.malformed_events, completeness.dropped_events), (0, 0));
        assert!(
            completeness.is_complete_at(MonotonicTime(0))
                && completeness.is_complete_at(MonotonicTime(u64::MAX - 1))
        );
    }
}

#[test]
fn a_runtime_that_a_rundown_can_block_gets_none_while_it_compiles_many_methods() {
    let (sender, commands) = channel();
    let mut fixture = Fixture::new(5, move |stream, command| {
        sender.send(command).unwrap();
        if command != COLLECT_2 {
            return write(&stream, if command == STOP { OK } else { UNKNOWN_COMMAND });
        }
        write_endlessly(stream);
    });
    fixture.receive_last_report(Duration::from_secs(2));
    assert_eq!(fixture.name(0x1000, u64::MAX).as_deref(), Some("A.Late()"));
    assert_eq!(fixture.names.reason(), Some(Reason::RuntimeSilent));
    fixture.runtime.join().unwrap();
    assert_eq!(commands.try_iter().collect::<Vec<_>>(), [5, 4, PROCESS_INFO_2, COLLECT_2, STOP]);
}

#[test]
fn a_listener_that_is_dropped_stops_its_session() {
    let (sender, received) = channel();
    let mut serve = runtime_with_command(5);
    let mut fixture = Fixture::new(4, move |stream, command| {
        sender.send(command).unwrap();
        serve(stream, command);
    });
    fixture.names.start_listener();
    // The method session and the rundown session are open, the rundown session is stopped.
    let commands: Vec<u8> = (0..3).map(|_| received.recv_timeout(TIMEOUT).unwrap()).collect();
    assert_eq!(commands, [5, 5, STOP]);
    drop(fixture.names);
    assert_eq!(received.recv_timeout(TIMEOUT), Ok(STOP));
    fixture.runtime.join().unwrap();
}

#[test]
fn a_report_that_is_not_the_last_one_leaves_a_session_open() {
    let mut commands = Vec::new();
    let (sender, received) = channel();
    let mut sessions = std::collections::VecDeque::new();
    let mut fixture = Fixture::new(7, move |stream, command| {
        sender.send(command).unwrap();
        if command == STOP {
            let stops_rundown = sessions.len() == 2 && commands == [5, 5];
            let session = if stops_rundown { sessions.pop_back() } else { sessions.pop_front() };
            let bytes = if stops_rundown { rundown() } else { loaded() };
            write(&session.unwrap(), &bytes);
        } else {
            write(&stream, OK);
            sessions.push_back(stream);
        }
        commands.push(command);
    });
    fixture.names.start_listener();
    for scope in [ReportScope::UpToNow, ReportScope::Last] {
        let deadline = Instant::now() + TIMEOUT;
        fixture.names.request_report(scope, deadline);
        fixture.names.receive_report(deadline, usize::MAX);
        assert_eq!(fixture.name(0x1000, u64::MAX).as_deref(), Some("app!A.Late()"));
    }
    assert_eq!(received.iter().take(6).collect::<Vec<_>>(), [5, 5, STOP, 5, STOP, STOP]);
}

/// A runtime that writes these events to the method session at once, and never ends it: it does not serve the stop
/// command. Sends the commands that it receives.
fn runtime_that_does_not_stop(events: TestStream, commands: Sender<u8>) -> Fixture {
    let (mut events, mut sessions) = (Some(events.0), Vec::new());
    Fixture::new(4, move |stream, command| {
        if command == STOP {
            // The rundown is the second session. Nothing ends the first one.
            if sessions.len() == 2 {
                write(&sessions.pop().unwrap(), &rundown());
            }
            write(&stream, if sessions.is_empty() { UNKNOWN_COMMAND } else { OK });
        } else {
            write(&stream, OK);
            write(&stream, &events.take().unwrap_or_default());
            sessions.push(stream);
        }
        // Some tests do not read them.
        let _ = commands.send(command);
    })
}

fn receive_received(fixture: &mut Fixture) {
    let deadline = Instant::now() + TIMEOUT;
    fixture.names.start_listener();
    fixture.names.request_report(ReportScope::Received, deadline);
    fixture.names.receive_report(deadline, usize::MAX);
}

fn late_method() -> TestStream {
    let payload = method_payload(3, 0x1000, 16, ["A", "Late", "void  ()"]);
    TestStream::new(0).events(&[(METHOD_LOADED, 1, 9, payload)])
}

#[test]
fn received_methods_are_final_without_the_end_of_the_session() {
    let (sender, commands) = channel();
    let mut fixture = runtime_that_does_not_stop(late_method(), sender);
    receive_received(&mut fixture);
    // The runtime notes a command after its reply.
    let received: Vec<u8> = (0..3).map(|_| commands.recv_timeout(TIMEOUT).unwrap()).collect();
    assert_eq!(received, [5, 5, STOP]);
    assert!(commands.try_recv().is_err(), "the method session is open");
    assert_eq!(fixture.name(0x1000, u64::MAX).as_deref(), Some("app!A.Late()"));
    assert!(fixture.names.methods.is_final(0x1000, MonotonicTime::MAX));
    // The runtime may not have written a method that was compiled just now.
    assert!(!fixture.names.methods.is_final(0x2000, MonotonicTime::MAX));
    assert!(!fixture.names.methods.is_stub(0x2000, MonotonicTime::MAX));
    // The address was a stub in a complete report, and no code was unloaded since.
    assert!(
        fixture.names.methods.is_final(0x2000, MonotonicTime(1))
            && fixture.names.methods.is_final(0x2000, MonotonicTime::MAX)
    );
    assert!(fixture.names.methods.is_stub(0x2000, MonotonicTime::MAX));

    drop(fixture.names);
    assert_eq!(commands.recv_timeout(TIMEOUT), Ok(STOP));
    fixture.runtime.join().unwrap();
}

#[test]
fn nothing_is_awaited_after_the_stop_command_of_a_session() {
    let time_of_drop = || {
        let (sender, _commands) = channel();
        let mut fixture = runtime_that_does_not_stop(late_method(), sender);
        receive_received(&mut fixture);
        let begin = Instant::now();
        drop(fixture.names);
        begin.elapsed()
    };
    // A wait would take this time each time; this thread can lose its CPU once.
    const ATTEMPTS: usize = 10;
    assert!((0..ATTEMPTS).any(|_| time_of_drop() < STOP_TIMEOUT));
}

#[test]
fn methods_are_provisional_once_code_was_unloaded_or_events_were_dropped() {
    let payload = method_payload(3, 0x4000, 16, ["A", "Gone", "void  ()"]);
    let unloaded = late_method().events(&[(METHOD_UNLOADED, 2, 10, payload)]);
    for (stream, is_final_before) in [(unloaded, true), (late_method().sequence_point(5), false)] {
        let mut fixture = runtime_that_does_not_stop(stream, channel().0);
        receive_received(&mut fixture);
        assert_eq!(fixture.name(0x1000, u64::MAX).as_deref(), Some("app!A.Late()"));
        assert!(!fixture.names.methods.is_final(0x1000, MonotonicTime::MAX));
        assert_eq!(fixture.names.methods.is_final(0x1000, MonotonicTime(1)), is_final_before);
        assert_eq!(fixture.names.methods.is_final(0x2000, MonotonicTime(1)), is_final_before);
        assert!(!fixture.names.methods.is_final(0x2000, MonotonicTime::MAX));
    }
}

#[test]
fn another_rundown_replaces_dropped_events() {
    let mut stops = 0;
    let mut sessions = Vec::new();
    let mut fixture = Fixture::new(6, move |stream, command| {
        if command == STOP {
            stops += 1;
            let session: UnixStream = sessions.pop().unwrap();
            let bytes = match stops {
                1 => rundown(),
                2 => TestStream::new(0).sequence_point(5).end(),
                _ => {
                    let payload = method_payload(3, 0x5000, 16, ["A", "Missed", "void  ()"]);
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
    fixture.receive_last_report(TIMEOUT);
    assert_eq!(fixture.name(0x5000, u64::MAX).as_deref(), Some("app!A.Missed()"));
    assert_eq!(fixture.names.methods.completeness.dropped_events, 0);
}

#[test]
fn a_rundown_that_takes_longer_than_the_first_profile_is_requested_again() {
    let mut sessions: Vec<UnixStream> = Vec::new();
    let (mut late, mut stops) = (Some(late_method().0), 0);
    let mut fixture = Fixture::new(usize::MAX, move |stream, command| {
        if command != STOP {
            write(&stream, OK);
            write(&stream, &late.take().unwrap_or_default());
            return sessions.push(stream);
        }
        stops += 1;
        // The first one is that of the rundown, which the runtime begins and does not end.
        if stops > 1 {
            sessions.drain(..).for_each(|session| write(&session, &rundown()));
        }
        write(&stream, OK);
    });
    fixture.names.start_listener();
    let mut receive = |scope, timeout| {
        let deadline = Instant::now() + timeout;
        fixture.names.request_report(scope, deadline);
        fixture.names.receive_report(deadline, usize::MAX);
        (fixture.name(0x1000, u64::MAX), fixture.names.methods.is_final(0x1000, MonotonicTime::MAX))
    };
    // The first report has the method without its module.
    let first = receive(ReportScope::Received, Duration::from_secs(3));
    assert_eq!(first, (Some("A.Late()".to_owned()), false));
    let (name, is_final) = receive(ReportScope::UpToNow, TIMEOUT);
    assert!(name.is_some_and(|name| name.starts_with("app!")) && is_final);
}

#[test]
fn a_rundown_that_breaks_off_is_used_as_far_as_it_came() {
    let mut sessions = Vec::new();
    let mut fixture = Fixture::new(4, move |stream, command| {
        if command == STOP {
            let session: UnixStream = sessions.pop().unwrap();
            let whole = if sessions.is_empty() { loaded() } else { rundown() };
            write(&session, &whole[..whole.len() - 2]);
            return;
        }
        write(&stream, OK);
        sessions.push(stream);
    });
    fixture.receive_last_report(TIMEOUT);
    assert_eq!(fixture.name(0x1000, 0).as_deref(), Some("A.Early()"));
    assert_eq!(fixture.names.reason(), Some(Reason::RuntimeSilent));
    assert!(!fixture.names.methods.completeness.is_complete_at(MonotonicTime(u64::MAX - 1)));
}

#[test]
fn a_session_that_breaks_off_is_not_complete() {
    // With the rundown, or when it is stopped.
    for connections in [3, 4] {
        let mut sessions: Vec<UnixStream> = Vec::new();
        let mut fixture = Fixture::new(connections, move |stream, command| {
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
        fixture.receive_last_report(TIMEOUT);
        assert_eq!(fixture.name(0x1000, 0).as_deref(), Some("app!A.Early()"));
        assert!(!fixture.names.methods.completeness.is_complete_at(MonotonicTime(u64::MAX - 1)));
    }
}

#[test]
fn a_runtime_that_never_replies_takes_no_more_than_the_deadline() {
    let mut kept = Vec::new();
    let mut fixture = Fixture::new(1, move |stream, _| kept.push(stream));
    // Without a deadline it would never end.
    fixture.receive_last_report(Duration::from_millis(200));
    assert_eq!(fixture.names.reason(), Some(Reason::RuntimeSilent));
}

#[test]
fn a_garbage_reply_is_a_reason() {
    let no_stream = [OK, b"no stream at all"].concat();
    // A runtime with a valid first reply also gets the rundown session and its stop command.
    for (garbage, connections) in
        [(&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], 1), (&[0; 64], 1), (&no_stream, 3)]
    {
        let bytes = garbage.to_vec();
        let mut fixture = Fixture::new(connections, move |stream, _| write(&stream, &bytes));
        fixture.receive_last_report(TIMEOUT);
        assert_eq!(fixture.names.reason(), Some(Reason::RuntimeRefused), "{garbage:?}");
    }
}

#[test]
fn an_endless_stream_is_read_to_the_deadline() {
    let mut fixture = Fixture::new(2, move |stream, _| {
        write_endlessly(stream);
    });
    // Without a deadline it would never end.
    fixture.receive_last_report(Duration::from_millis(300));
    assert_eq!(fixture.names.reason(), Some(Reason::RuntimeSilent));
}

/// Replies to a command, and writes one method and then blocks until the connection is closed.
fn write_endlessly(mut stream: UnixStream) {
    let start = late_method();
    let start_bytes = start.0.len();
    // The content of a block begins at a multiple of four bytes of the stream. This one ends as it begins.
    let blocks = start.block("StackBlock", &[0; 7][..4 + (start_bytes + 3) % 4]).0;
    std::thread::spawn(move || {
        let mut is_open = stream.write_all(OK).and_then(|()| stream.write_all(&blocks)).is_ok();
        while is_open {
            is_open = stream.write_all(&blocks[start_bytes..]).is_ok();
        }
    });
}
