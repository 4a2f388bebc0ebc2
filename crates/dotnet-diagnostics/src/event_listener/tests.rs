//! Tests of the listener for events with a simulated runtime.

use std::{
    collections::VecDeque,
    io::Write,
    os::unix::net::UnixStream,
    sync::mpsc::{Receiver, channel},
    thread::JoinHandle,
    time::Duration,
};

use profiler_addresses::MonotonicTime;
use profiler_dotnet_symbols::eventpipe::{
    code_events::RUNTIME_PROVIDER,
    testing::{TestEvent, TestStream, stack_block, text},
};
use profiler_processes::Pid;
use profiler_profile::RuntimeEventKind;

use super::*;
use crate::{
    StreamEnd,
    event_request::EventSet,
    event_source::EventSource,
    memory_budget::MemoryReservation,
    tests::{OK, STOP, simulate_runtime, write},
};

/// Far more time than a test takes.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The time that a listener has for what a runtime has written, where the runtime does not end its stream.
const TIME_TO_READ: Duration = Duration::from_secs(3);

/// The command `CollectTracing5`.
const COLLECT: u8 = 6;

/// The metadata ids of the events in the streams.
const COLLECTION: u8 = 10;
const COLLECTION_END: u8 = 11;
const EXCEPTION: u8 = 12;

struct Fixture {
    _directory: tempfile::TempDir,
    listener: EventListener,
    runtime: JoinHandle<()>,
}

impl Fixture {
    /// A listener for the default sets, which has a session for collections and one for exceptions.
    fn new(connections: usize, serve: impl FnMut(UnixStream, u8) + Send + 'static) -> Self {
        let (_directory, process, runtime) = simulate_runtime(connections, serve);
        let request = EventRequest { sets: EventSet::DEFAULT.to_vec(), ..EventRequest::default() };
        let source = EventSource::new(process);
        let listener = source.listen(Arc::new(request), MemoryBudget::default()).unwrap();
        Self { _directory, listener, runtime }
    }

    /// Stops the sessions and returns kind, duration and number of frames of each event.
    fn stop(&mut self, timeout: Duration) -> Vec<(RuntimeEventKind, u64, usize)> {
        self.listener.begin_stop(Instant::now() + timeout);
        self.listener.wait_until_stopped();
        let events = self.listener.take_events(MonotonicTime::MAX, true).events;
        events.into_iter().map(|event| (event.kind, event.duration_ns, event.stack.len())).collect()
    }
}

fn stream() -> TestStream {
    TestStream::new(0)
        .kind(COLLECTION, RUNTIME_PROVIDER, 1, &[])
        .kind(COLLECTION_END, RUNTIME_PROVIDER, 2, &[])
        .kind(EXCEPTION, RUNTIME_PROVIDER, 80, &[])
        .block("StackBlock", &stack_block(1, &[&[0x10, 0x20]]))
}

fn collection() -> TestStream {
    let words = |values: &[u32]| values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let event = |kind, number, time_ns, payload| TestEvent {
        kind,
        thread: 1,
        number,
        stack: 1,
        time_ns,
        activity: 0,
        payload,
    };
    stream().event(&event(COLLECTION, 1, 100, words(&[7, 2, 1, 0]))).event(&event(
        COLLECTION_END,
        2,
        400,
        words(&[7, 2]),
    ))
}

fn exception() -> TestStream {
    let payload = [text("T"), text("message"), vec![0; 14]].concat();
    let kind = EXCEPTION;
    stream().event(&TestEvent { kind, thread: 1, number: 1, stack: 1, time_ns: 50, activity: 0, payload })
}

/// A runtime that writes one of these streams to each session when it is stopped, and the commands that it received.
fn runtime_with(streams: [Vec<u8>; 2]) -> (impl FnMut(UnixStream, u8) + Send + 'static, Receiver<u8>) {
    let (sender, commands) = channel();
    let (mut sessions, mut streams) = (VecDeque::new(), VecDeque::from(streams));
    let serve = move |stream: UnixStream, command| {
        if command == STOP {
            let session: UnixStream = sessions.pop_front().unwrap();
            write(&session, &streams.pop_front().unwrap());
        } else {
            sessions.push_back(stream.try_clone().unwrap());
        }
        write(&stream, OK);
        sender.send(command).unwrap();
    };
    (serve, commands)
}

fn await_commands(commands: &Receiver<u8>, count: usize) -> Vec<u8> {
    (0..count).map(|_| commands.recv_timeout(TIMEOUT).unwrap()).collect()
}

#[test]
fn the_events_of_all_sessions_are_collected_until_they_are_stopped() {
    let (serve, commands) = runtime_with([collection().end(), exception().end()]);
    let mut fixture = Fixture::new(4, serve);
    assert_eq!(await_commands(&commands, 2), [COLLECT, COLLECT]);
    let mut events = fixture.stop(TIMEOUT);
    events.sort_unstable();
    // Stacks are kept of exceptions alone.
    let expected = [(RuntimeEventKind::GarbageCollection, 300, 0), (RuntimeEventKind::Exception, 0, 2)];
    assert_eq!(events, expected);
    assert_eq!(await_commands(&commands, 2), [STOP, STOP]);
    assert_eq!(fixture.listener.lost_events(), LostEvents::default());
    assert!(fixture.listener.has_ended());
    fixture.runtime.join().unwrap();
}

#[test]
fn a_listener_that_is_dropped_stops_its_sessions() {
    let (serve, commands) = runtime_with([collection().end(), exception().end()]);
    let fixture = Fixture::new(4, serve);
    await_commands(&commands, 2);
    drop(fixture.listener);
    assert_eq!(await_commands(&commands, 2), [STOP, STOP]);
    fixture.runtime.join().unwrap();
}

#[test]
fn a_stream_that_is_kept_has_the_bytes_of_the_only_session() {
    let sent = collection().end();
    let (serve, commands) = runtime_with([sent.clone(), Vec::new()]);
    let (_directory, process, runtime) = simulate_runtime(2, serve);
    let (sets, stream) = (vec![EventSet::Collections], EventStream::default());
    let request = EventRequest { sets, stream: Some(stream.clone()), ..EventRequest::default() };
    let source = EventSource::new(process);
    let mut listener = source.listen(Arc::new(request), MemoryBudget::default()).unwrap();
    assert_eq!(await_commands(&commands, 1), [COLLECT]);
    listener.begin_stop(Instant::now() + TIMEOUT);
    listener.wait_until_stopped();
    assert_eq!(listener.take_events(MonotonicTime::MAX, true).events.len(), 1);
    let mut kept = Vec::new();
    stream.write(&mut kept).unwrap();
    assert_eq!((kept, stream.end(), stream.pid()), (sent, StreamEnd::Complete, Some(Pid::own())));
    runtime.join().unwrap();
}

#[test]
fn events_that_the_runtime_dropped_are_counted() {
    let (serve, commands) = runtime_with([collection().sequence_point(4).end(), exception().end()]);
    let mut fixture = Fixture::new(4, serve);
    await_commands(&commands, 2);
    assert_eq!(fixture.stop(TIMEOUT).len(), 2);
    assert_eq!(fixture.listener.lost_events(), LostEvents { dropped: 4, malformed: 0 });
}

#[test]
fn a_runtime_that_does_not_stop_takes_no_more_than_the_deadline() {
    let (sender, commands) = channel();
    let mut kept = Vec::new();
    let mut fixture = Fixture::new(4, move |stream, command| {
        if command != STOP {
            write(&stream, OK);
            write(&stream, &collection().0);
        }
        kept.push(stream);
        sender.send(command).unwrap();
    });
    await_commands(&commands, 2);
    // Without a deadline it would never end.
    let events = fixture.stop(TIME_TO_READ);
    assert!(events.contains(&(RuntimeEventKind::GarbageCollection, 300, 0)), "{events:?}");
}

#[test]
fn a_runtime_that_never_replies_takes_no_more_than_the_deadline() {
    let mut kept = Vec::new();
    let mut fixture = Fixture::new(1, move |stream, _| kept.push(stream));
    // Without a deadline it would never end.
    assert!(fixture.stop(Duration::from_millis(200)).is_empty());
}

#[test]
fn garbage_and_endless_streams_end_their_session_alone() {
    let garbage = [OK, b"no stream at all"].concat();
    let (sender, commands) = channel();
    let mut sessions = 0;
    let mut fixture = Fixture::new(3, move |stream, command| {
        sessions += 1;
        sender.send(command).unwrap();
        match (command, sessions) {
            (STOP, _) => {}
            (_, 1) => write(&stream, &garbage),
            _ => {
                write(&stream, OK);
                std::thread::spawn(move || {
                    let mut stream = stream;
                    if stream.write_all(&exception().0).is_ok() {
                        let block = TestStream(Vec::new()).block("StackBlock", &[0; 3]).0;
                        while stream.write_all(&block).is_ok() {}
                    }
                });
            }
        }
    });
    await_commands(&commands, 2);
    // Without a deadline it would never end.
    assert_eq!(fixture.stop(TIME_TO_READ), [(RuntimeEventKind::Exception, 0, 2)]);
}

#[test]
fn a_stream_that_always_has_bytes_delays_no_other_one() {
    let (sender, opened) = channel();
    let (_directory, process, _runtime) = simulate_runtime(4, move |stream, command| {
        write(&stream, OK);
        if command != STOP {
            // A test that fails has dropped the receiver.
            let _ = sender.send(stream);
        }
    });
    let request = EventRequest { sets: EventSet::DEFAULT.to_vec(), ..EventRequest::default() };
    let budget = MemoryBudget::default();
    let listener = EventSource::new(process).listen(Arc::new(request), budget.clone()).unwrap();
    let [storm, other] = [(); 2].map(|()| opened.recv_timeout(TIMEOUT).unwrap());
    let _other_processes = reserve_all_but(4 << 10, &budget);
    // The listener waits with the first bytes of the storm until the rest and the other stream have arrived.
    let buffer = lock(&listener.buffer);
    write(&storm, &late_storm());
    write(&other, &exception().0);
    drop(buffer);
    let begin = Instant::now();
    while listener.lost_events().dropped == 0 {
        assert!(begin.elapsed() < TIMEOUT, "the end of the storm was not read");
        std::thread::park_timeout(Duration::from_millis(1));
    }
    drop([storm, other]);
    let events = listener.take_events(MonotonicTime::MAX, true).events;
    let kinds: Vec<_> = events.iter().map(|event| event.kind).collect();
    assert!(kinds.contains(&RuntimeEventKind::Exception), "{kinds:?}");
}

/// More bytes than are read at once, and behind them collections that need more memory than 4 KiB.
fn late_storm() -> Vec<u8> {
    let mut storm = stream();
    while storm.0.len() < BUFFER_BYTES * 3 / 2 {
        storm = storm.block("StackBlock", &[0; 1 << 10]);
    }
    let collections = (1..=200).map(|number: u8| {
        let payload = [number.into(), 2, 1, 0].map(u32::to_le_bytes).concat();
        let (kind, thread, stack, time_ns, activity) = (COLLECTION, 1, 1, 100, 0);
        TestEvent { kind, thread, number, stack, time_ns, activity, payload }
    });
    collections.fold(storm, |storm, event| storm.event(&event)).0
}

/// Leaves `bytes` of a budget.
fn reserve_all_but(bytes: usize, budget: &MemoryBudget) -> MemoryReservation {
    let [mut rest, mut others] = [(); 2].map(|()| MemoryReservation::new(budget));
    assert!(rest.reserve(bytes));
    while others.reserve(1 << 10) {}
    others
}

#[test]
fn a_listener_ends_with_its_runtime() {
    let mut fixture = Fixture::new(2, |stream, _| {
        write(&stream, OK);
        write(&stream, &collection().0);
    });
    fixture.runtime.join().unwrap();
    let begin = Instant::now();
    while !fixture.listener.has_ended() && begin.elapsed() < TIMEOUT {
        std::thread::park_timeout(Duration::from_millis(1));
    }
    assert!(fixture.listener.has_ended());
    let events = fixture.listener.take_events(MonotonicTime::MAX, true).events;
    assert_eq!(events.len(), 1, "collections were requested of one session alone");
    fixture.listener.begin_stop(Instant::now());
}
