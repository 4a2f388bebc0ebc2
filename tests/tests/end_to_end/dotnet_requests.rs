//! Tests the events about HTTP requests with an ASP.NET Core server that answers a known number of them.

use std::{
    collections::BTreeMap,
    io::{Read as _, Write as _},
    net::TcpStream,
    ops::RangeInclusive,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use profiler::{
    EventSet, Profile, Session,
    profile::{FieldValue, RuntimeEvent, RuntimeEventKind},
};
use profiler_tests::{Workload, run_beside_others, sample_pid, wait_until, workload_path};

use crate::dotnet_events::{await_sessions, events, text};

const KESTREL: &str = "Microsoft-AspNetCore-Server-Kestrel/RequestStart";
const HTTP_CLIENT: &str = "System.Net.Http/RequestStart";

/// A little less than the time for which `/sleep` waits: a timer can end early by its resolution.
const LEAST_SLEEP: Duration = Duration::from_millis(95);

/// A request that shows that the runtime reports requests. The path of its answer, and the way to it through `HttpClient`.
const PROBE: &str = "/json";
const FORWARDED_PROBE: &str = "/forward/json";

/// A server whose runtime reports these events.
struct Measurement {
    server: Workload,
    port: u16,
    session: Session,
}

impl Measurement {
    fn start(sets: &[EventSet]) -> Self {
        let mut command = Command::new(workload_path("dotnet/run"));
        let mut server = Workload::run(command.args(["aspnet", "serve", "600"]).env("PERF_MAP", "0"));
        let port = server.wait_for("port ").trim().parse().unwrap();
        let before = server.sockets();
        let builder = sample_pid(server.pid()).runtime_events(sets.iter().copied());
        let session = builder.build().unwrap().start().unwrap();
        await_sessions(&server, before);
        Self { server, port, session }
    }

    /// Requests the probe until it is an event with this name.
    fn await_event(&mut self, probe: &str, name: &str) {
        wait_until("an event of a request", || {
            request(self.port, probe);
            let profile = self.session.take_profile(Duration::from_millis(100)).unwrap();
            durations(&profile).contains_key(&(name, PROBE)).then_some(())
        });
    }

    fn stop(self) -> Profile {
        let profile = self.session.stop().unwrap();
        drop(self.server);
        assert_eq!(profile.ledger().dropped_runtime_events, 0);
        assert_eq!(profile.ledger().malformed_jit_entries, 0);
        profile
    }
}

/// Sends a request and returns the time until the server has closed the connection, which is after the end of the request.
fn request(port: u16, path: &str) -> Duration {
    let begin = Instant::now();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(stream, "GET {path}?key=secret HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    begin.elapsed()
}

/// Sends a request on each of several threads, and returns the longest time.
fn request_at_once(count: usize, port: u16, path: &str) -> Duration {
    let times: Vec<_> = thread::scope(|scope| {
        let started: Vec<_> = (0..count).map(|_| scope.spawn(|| request(port, path))).collect();
        started.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    times.into_iter().max().unwrap()
}

/// The durations of the requests by name of the event and path.
fn durations(profile: &Profile) -> BTreeMap<(&str, &str), Vec<Duration>> {
    let mut durations = BTreeMap::<_, Vec<_>>::new();
    for request in requests(profile) {
        let key = (profile.string(request.name), text(profile, request, "path"));
        durations.entry(key).or_default().push(Duration::from_nanos(request.duration_ns));
    }
    durations
}

fn requests(profile: &Profile) -> Vec<&RuntimeEvent> {
    events(profile, RuntimeEventKind::Request)
}

/// The requests that are no probes.
fn counted_requests(profile: &Profile) -> Vec<&RuntimeEvent> {
    let mut requests = requests(profile);
    requests.retain(|event| ![PROBE, FORWARDED_PROBE].contains(&text(profile, event, "path")));
    requests
}

fn assert_within(durations: &[Duration], count: usize, limits: RangeInclusive<Duration>) {
    assert_eq!(durations.len(), count, "{durations:?}");
    assert!(
        durations.iter().all(|duration| limits.contains(duration)),
        "{durations:?} are not in {limits:?}"
    );
}

#[test]
fn each_request_that_a_server_answers_is_an_event_with_its_duration() {
    const SEQUENTIAL: usize = 30;
    const AT_ONCE: usize = 8;
    let Some(_lock) = run_beside_others() else { return };
    let mut measurement = Measurement::start(&[EventSet::ServerRequests]);
    measurement.await_event(PROBE, KESTREL);
    let port = measurement.port;
    let plain = (0..SEQUENTIAL).map(|_| request(port, "/plaintext")).max().unwrap();
    let sleep = request_at_once(AT_ONCE, port, "/sleep");
    let profile = measurement.stop();
    let durations = durations(&profile);
    assert_within(&durations[&(KESTREL, "/plaintext")], SEQUENTIAL, Duration::from_nanos(1)..=plain);
    assert_within(&durations[&(KESTREL, "/sleep")], AT_ONCE, LEAST_SLEEP..=sleep);
    assert_eq!(profile.runtime_events().len(), requests(&profile).len(), "no other event of the provider");
    let counted = counted_requests(&profile);
    assert_eq!(counted.len(), SEQUENTIAL + AT_ONCE);
    for request in counted {
        assert_eq!(text(&profile, request, "method"), "GET");
        assert_eq!(text(&profile, request, "httpVersion"), "HTTP/1.1");
        assert!(request.thread.is_some(), "{request:?}");
    }
}

#[test]
fn each_request_of_an_http_client_is_an_event_within_that_of_its_server() {
    const FORWARDED: usize = 12;
    let Some(_lock) = run_beside_others() else { return };
    let mut measurement = Measurement::start(&[EventSet::ServerRequests, EventSet::ClientRequests]);
    measurement.await_event(FORWARDED_PROBE, HTTP_CLIENT);
    let port = measurement.port;
    let first = request(port, "/forward/plaintext");
    let longest = request_at_once(FORWARDED - 1, port, "/forward/plaintext").max(first);
    let profile = measurement.stop();
    let durations = durations(&profile);
    for request in [(KESTREL, "/forward/plaintext"), (KESTREL, "/plaintext"), (HTTP_CLIENT, "/plaintext")] {
        assert_within(&durations[&request], FORWARDED, Duration::from_nanos(1)..=longest);
    }
    let counted = counted_requests(&profile);
    assert_eq!(counted.len(), 3 * FORWARDED);
    let sent = counted.iter().copied().filter(|event| profile.string(event.name) == HTTP_CLIENT);
    for event in sent {
        assert_eq!(text(&profile, event, "host"), "127.0.0.1");
        assert_eq!(event.field(&profile, "port"), Some(FieldValue::Signed(port.into())));
        assert_eq!(event.field(&profile, "statusCode"), Some(FieldValue::Signed(200)));
        let is_around = |outer: &&RuntimeEvent| {
            let is_forward = text(&profile, outer, "path") == "/forward/plaintext";
            is_forward && outer.time_ns <= event.time_ns && outer.end_ns() >= event.end_ns()
        };
        assert!(counted.iter().any(is_around), "{event:?}");
    }
}

#[test]
fn requests_are_no_events_of_the_default_sets() {
    let Some(_lock) = run_beside_others() else { return };
    let measurement = Measurement::start(EventSet::DEFAULT);
    request(measurement.port, "/plaintext");
    let profile = measurement.stop();
    assert!(requests(&profile).is_empty(), "{:?}", requests(&profile));
}
