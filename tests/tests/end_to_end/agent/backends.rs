//! Tests what backends of each protocol receive from `profiler agent`: gRPC, Pyroscope, and HTTP over TLS with a token.

#[path = "../../../../crates/agent/tests/delivery/certificate.rs"]
mod certificate;
#[path = "../../../../crates/agent/tests/delivery/grpc_server.rs"]
mod grpc_server;
#[path = "../../../../crates/agent/src/pyroscope/tests/server.rs"]
mod pyroscope_server;
/// For [`pyroscope_server`].
#[expect(dead_code, reason = "the numbers of all fields are for tests of the encoder")]
#[path = "../../../../crates/agent/src/tests/wire.rs"]
mod wire;

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, BufReader, Read, Write},
    path::Path,
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender},
    },
    time::Instant,
};

use profiler_tests::{DEADLINE, LoopbackServer, ReceivedRequest, run_beside_others, wait_until};
use rustix::process::Signal;
use tokio_rustls::rustls::{ServerConnection, StreamOwned};

use self::{
    certificate::Certificate,
    pyroscope_server::{Stored, accept},
};
use super::{
    process::{Agent, agent, assert_exact, get, metric, number, path_text, recordings, samples, seconds},
    totals::{Totals, has_service, of_workload, received_totals, recorded_totals, service},
};

/// Reads the requests of a connection and accepts them.
fn accept_requests(stream: impl Read + Write, received: &Sender<ReceivedRequest>) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    while let Some(request) = ReceivedRequest::read(&mut stream)? {
        // The test has ended if it receives no more.
        let _ = received.send(request);
        stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")?;
        stream.get_mut().flush()?;
    }
    Ok(())
}

/// A server of HTTP over TLS, its URL, and what it receives.
fn start_https(certificate: &Certificate) -> (LoopbackServer, String, Receiver<ReceivedRequest>) {
    let (sender, received) = mpsc::channel();
    let config = Arc::clone(&certificate.config);
    let server = LoopbackServer::start("127.0.0.1:0", move |stream| {
        let connection = ServerConnection::new(Arc::clone(&config)).map_err(io::Error::other)?;
        accept_requests(StreamOwned::new(connection, stream), &sender)
    });
    let url = server.url().replace("http://", "https://");
    (server, url, received)
}

/// The last line of an agent, after a check that all samples of the recordings were delivered.
fn assert_all_delivered(lines: &[String], directory: &Path) {
    let stopped = lines.iter().find(|line| line.contains("event=stopped")).unwrap();
    assert_exact(stopped);
    let samples = samples(&recordings(directory));
    assert_eq!((number(stopped, "sampled"), number(stopped, "delivered")), (samples, samples), "{stopped}");
}

#[test]
fn a_grpc_server_receives_what_the_recordings_of_the_run_have() {
    let Some(_guard) = run_beside_others() else { return };
    let workload = service();
    let directory = tempfile::tempdir().unwrap();
    let (port, received) = grpc_server::start(None, |_| Some(Ok(Vec::new())));
    let url = format!("grpc://127.0.0.1:{port}");
    let arguments = ["--otlp", &url, "--header", "x-scope-orgid=shop", "--write-dir", path_text(&directory)];
    let lines = Agent::start(&arguments).finish_after(&workload);
    assert_all_delivered(&lines, directory.path());
    let calls = received.lock().unwrap();
    for call in &*calls {
        assert!(call.path.ends_with("ProfilesService/Export"), "{}", call.path);
        assert_eq!(call.headers["x-scope-orgid"], "shop");
    }
    let Some(received) = received_totals(calls.iter().map(|call| &*call.message)) else { return };
    let received = of_workload(received);
    assert_eq!(received, of_workload(recorded_totals(recordings(directory.path()))));
    assert!(has_service(&received), "{received:?}");
}

/// What a Pyroscope server stores of requests, as totals of nanoseconds.
fn stored_totals(stored: &[Stored]) -> Totals {
    let mut totals = Totals::new();
    for Stored { labels, samples, .. } in stored {
        for sample in samples {
            let functions: Vec<_> = sample.functions.iter().rev().map(String::as_str).collect();
            let key = (labels["service_name"].clone(), functions.join(";"));
            *totals.entry(key).or_default() += u64::try_from(sample.value).unwrap();
        }
    }
    totals
}

#[test]
fn pyroscope_receives_what_the_recordings_of_the_run_have() {
    let Some(_guard) = run_beside_others() else { return };
    let workload = service();
    let directory = tempfile::tempdir().unwrap();
    let (sender, received) = mpsc::channel();
    let server = LoopbackServer::start("127.0.0.1:0", move |stream| accept_requests(stream, &sender));
    let url = server.url();
    let arguments = ["--pyroscope", &url, "--write-dir", path_text(&directory)];
    let lines = Agent::start(&arguments).finish_after(&workload);
    assert_all_delivered(&lines, directory.path());
    let mut stored = Vec::new();
    for request in received.try_iter() {
        assert_eq!((&*request.method, &*request.path), ("POST", "/push.v1.PusherService/Push"));
        assert_eq!(request.header("content-type"), Some("application/proto"));
        stored.push(accept(&request.body));
    }
    let profiles = recordings(directory.path());
    let starts: BTreeSet<_> = profiles.iter().map(|profile| profile.header().started_unix_ns).collect();
    for Stored { labels, types, time_ns, .. } in &stored {
        assert_eq!(labels["__name__"], "process_cpu");
        let (kind, unit) = &types[0];
        assert_eq!((&**kind, &**unit), ("cpu", "nanoseconds"));
        assert!(starts.contains(time_ns), "{time_ns} {starts:?}");
    }
    let unit_ns = profiles[0].events().next().unwrap().unit_ns().unwrap();
    let mut recorded = of_workload(recorded_totals(profiles));
    recorded.values_mut().for_each(|value| *value *= unit_ns);
    let stored = of_workload(stored_totals(&stored));
    assert_eq!(stored, recorded);
    assert!(has_service(&stored), "{stored:?}");
}

#[test]
fn a_token_is_sent_over_tls_and_read_again_for_each_request() {
    let Some(_guard) = run_beside_others() else { return };
    let certificate = Certificate::new("127.0.0.1", b"http/1.1");
    let (_server, url, received) = start_https(&certificate);
    let token = tempfile::NamedTempFile::new().unwrap();
    fs::write(&token, "first").unwrap();
    let [ca_file, token_file] = [&*certificate.file, token.path()].map(|path| path.to_str().unwrap());
    let agent = Agent::start(&["--otlp", &url, "--ca-file", ca_file, "--bearer-token-file", token_file]);
    let next_token = || {
        let request = received.recv_timeout(DEADLINE).unwrap();
        assert!(!request.body.is_empty());
        request.header("authorization").unwrap().to_owned()
    };
    assert_eq!(next_token(), "Bearer first");
    fs::write(&token, "second").unwrap();
    wait_until("the second token", || (next_token() == "Bearer second").then_some(()));
    agent.signal(Signal::TERM);
    let lines = agent.finish();
    let stopped = lines.iter().find(|line| line.contains("event=stopped")).unwrap();
    assert_exact(stopped);
    assert_eq!(number(stopped, "sampled"), number(stopped, "delivered"), "{stopped}");
}

#[test]
fn a_server_of_another_authority_gets_nothing_and_delays_no_window() {
    let Some(_guard) = run_beside_others() else { return };
    let _workload = service();
    let [certificate, other] = [(); 2].map(|()| Certificate::new("127.0.0.1", b"http/1.1"));
    let (_server, url, received) = start_https(&certificate);
    let directory = tempfile::tempdir().unwrap();
    let log = tempfile::NamedTempFile::new().unwrap();
    let ca_file = other.file.to_str().unwrap();
    let arguments = ["--otlp", &url, "--ca-file", ca_file, "--write-dir", path_text(&directory)];
    let mut command = agent(&[&arguments[..], &["--listen", "127.0.0.1:0"]].concat());
    let begin = Instant::now();
    let agent = Agent::run(command.stderr(File::create(log.path()).unwrap()));
    let started = Instant::now();
    let metrics = wait_until("a refused request", || {
        let metrics = agent.metrics();
        let is_refused = metric(&metrics, "profiler_agent_requests_total") > 0.0
            && metric(&metrics, "profiler_agent_windows_total") > 1.0;
        is_refused.then_some(metrics)
    });
    let given = metric(&metrics, "profiler_agent_received_samples_total");
    assert!(given > 0.0 && metric(&metrics, "profiler_agent_pending_samples") == given, "{metrics}");
    assert_eq!(metric(&metrics, "profiler_agent_last_delivery_timestamp_seconds"), 0.0);
    let is_healthy = || get(&agent.address(), "/healthz").starts_with("HTTP/1.1 200 ");
    wait_until("a window in time", || is_healthy().then_some(()));
    assert!(get(&agent.address(), "/readyz").starts_with("HTTP/1.1 503 "));
    let sampled_s = started.elapsed().as_secs_f64();
    agent.signal(Signal::TERM);
    let lines = agent.finish();
    let elapsed_s = begin.elapsed().as_secs_f64();
    let stopped = lines.iter().find(|line| line.contains("event=stopped")).unwrap();
    assert_exact(stopped);
    let profiles = recordings(directory.path());
    let samples = samples(&profiles);
    let dropped = number(stopped, "dropped-outage");
    assert_eq!((number(stopped, "sampled"), dropped), (samples, samples), "{stopped}");
    let seconds = seconds(&profiles);
    assert!(seconds > 0.9 * sampled_s && seconds < elapsed_s, "{seconds} s: {sampled_s} to {elapsed_s} s");
    assert!(received.try_recv().is_err());
    let log = fs::read_to_string(log.path()).unwrap();
    assert!(log.contains("the TLS handshake failed") && log.contains("certificate"), "{log}");
}
