//! Tests `profiler agent`: what a backend receives, its account, a backend that hangs, restarts, metrics and rights.

mod backends;
mod embedded;
mod names;
mod process;
mod prometheus;
mod totals;

use std::{
    fs::{self, DirEntry},
    io::{BufReader, Write as _},
    sync::mpsc,
    time::Instant,
};

use profiler_tests::{
    DEADLINE, LoopbackServer, OtlpReceiver, ReceivedRequest, Reception, Workload, profiler,
    run_beside_others, run_command, wait_until,
};
use rustix::process::Signal;

use self::{
    process::{Agent, assert_exact, get, metric, number, path_text, recordings, samples, seconds},
    totals::{SERVICE, Totals, has_service, of_workload, received_totals, recorded_totals, service},
};

/// What a receiver has received.
fn totals_at(receiver: &OtlpReceiver) -> Option<Totals> {
    let requests = receiver.requests();
    for request in &requests {
        assert_eq!(request.path, "/v1development/profiles");
        assert_eq!(request.header("content-type"), Some("application/x-protobuf"));
    }
    received_totals(requests.iter().map(|request| &*request.body))
}

#[test]
fn each_window_is_a_recording_and_a_line_with_its_account() {
    let Some(_guard) = run_beside_others() else { return };
    let _workload = Workload::start("shares");
    let directory = tempfile::tempdir().unwrap();
    let begin = Instant::now();
    let agent = Agent::start(&["--write-dir", path_text(&directory), "-d", "3.5"]);
    let lines = agent.finish();
    let elapsed_s = begin.elapsed().as_secs_f64();
    let windows: Vec<_> = lines.iter().filter(|line| line.contains("event=window ")).collect();
    let profiles = recordings(directory.path());
    assert_eq!(profiles.len(), windows.len());
    let logged: u64 = windows.iter().map(|line| number(line, "samples")).sum();
    assert_eq!(samples(&profiles), logged);
    assert!(profiles.iter().all(|profile| profile.ledger().adds_up()));
    let seconds = seconds(&profiles);
    assert!(seconds > 3.3 && seconds < elapsed_s, "{seconds} s of {elapsed_s} s");
    // A part of a window at each end.
    let windows = windows.len() as f64;
    assert!(windows > 1.0 && windows <= seconds.ceil() + 1.0, "{lines:?}");
    // One busy thread at 49 Hz, beside all else on the machine.
    assert!(logged as f64 > 0.25 * 49.0 * seconds, "{logged} in {seconds} s");
}

#[test]
fn a_backend_receives_what_the_recordings_of_the_run_have() {
    let Some(_guard) = run_beside_others() else { return };
    let workload = service();
    let directory = tempfile::tempdir().unwrap();
    let receiver = OtlpReceiver::start(Reception::Accept);
    let agent = Agent::start(&["--otlp", &receiver.url(), "--write-dir", path_text(&directory)]);
    let lines = agent.finish_after(&workload);
    let stopped = lines.iter().find(|line| line.contains("event=stopped")).unwrap();
    assert_exact(stopped);
    let profiles = recordings(directory.path());
    let samples = samples(&profiles);
    assert_eq!((number(stopped, "sampled"), number(stopped, "delivered")), (samples, samples), "{stopped}");
    let Some(received) = totals_at(&receiver) else { return };
    let (received, recorded) = (of_workload(received), of_workload(recorded_totals(profiles)));
    assert_eq!(received, recorded);
    assert!(has_service(&received), "{received:?}");
}

#[test]
fn the_kubelet_is_asked_for_pods() {
    const NO_PODS: &[u8] = b"{\"kind\": \"PodList\", \"apiVersion\": \"v1\", \"items\": []}";
    let Some(_guard) = run_beside_others() else { return };
    let (sender, paths) = mpsc::channel();
    let kubelet = LoopbackServer::start("127.0.0.1:0", move |mut stream| {
        let Some(request) = ReceivedRequest::read(&mut BufReader::new(stream))? else { return Ok(()) };
        // The test has ended if it receives no more.
        let _ = sender.send(request.path);
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", NO_PODS.len())?;
        stream.write_all(NO_PODS)
    });
    let directory = tempfile::tempdir().unwrap();
    let agent = Agent::start(&["--kubelet", &kubelet.url(), "--write-dir", path_text(&directory), "-d", "2"]);
    assert_eq!(paths.recv_timeout(DEADLINE).unwrap(), "/pods");
    agent.finish();
    let refused =
        run_command(&mut profiler(&["agent", "--write-dir", "/tmp", "--kubelet", "http://node:10255"]));
    assert!(refused.code() == 1 && refused.stderr.contains("https://NODE:10250"), "{}", refused.stderr);
}

#[test]
fn filters_and_a_probability_select_what_is_sent() {
    let Some(_guard) = run_beside_others() else { return };
    let _workload = service();
    let directory = tempfile::tempdir().unwrap();
    let receiver = OtlpReceiver::start(Reception::Accept);
    let url = receiver.url();
    let selection = ["--only", "service.name=agent-*", "--drop", "service.name=x", "--label", "team=shop"];
    let arguments = ["--otlp", &url, "--write-dir", path_text(&directory), "--probability", "0.5"];
    let mut agent = Agent::start(&[&arguments[..], &selection].concat());
    let mut lines = Vec::new();
    for event in ["event=window ", "event=skipped "] {
        while !lines.iter().any(|line: &String| line.contains(event)) {
            lines.push(agent.wait_for(""));
        }
    }
    agent.signal(Signal::TERM);
    lines.extend(agent.finish());
    let is = |event: &'static str| lines.iter().filter(move |line| line.contains(event));
    let windows: Vec<_> = is("event=window ").collect();
    assert_eq!(recordings(directory.path()).len(), windows.len());
    let weighted: u64 = windows
        .iter()
        .map(|line| (number(line, "samples") - number(line, "filtered")) * number(line, "weight"))
        .sum();
    assert!(windows.iter().all(|line| number(line, "weight") == 2), "{windows:?}");
    let stopped = is("event=stopped").next().unwrap();
    assert_exact(stopped);
    assert_eq!(number(stopped, "sampled"), weighted, "{lines:?}");
    let Some(received) = totals_at(&receiver) else { return };
    assert_eq!(received.values().sum::<u64>(), weighted);
    assert!(received.keys().all(|(service, _)| service.starts_with(SERVICE)), "{received:?}");
}

#[test]
fn an_agent_samples_while_its_backend_hangs() {
    let Some(_guard) = run_beside_others() else { return };
    let _workload = Workload::start("shares");
    let directory = tempfile::tempdir().unwrap();
    let receiver = OtlpReceiver::start(Reception::Hang);
    let mut agent = Agent::start(&["--otlp", &receiver.url(), "--write-dir", path_text(&directory)]);
    wait_until("a request", || (!receiver.requests().is_empty()).then_some(()));
    let line = agent.wait_for("event=window ");
    assert_exact(&line);
    agent.wait_for("event=window ");
    assert_eq!(number(&line, "delivered"), 0, "{line}");
    agent.signal(Signal::TERM);
    let lines = agent.finish();
    let stopped = lines.iter().find(|line| line.contains("event=stopped")).unwrap();
    assert_exact(stopped);
    assert_eq!(samples(&recordings(directory.path())), number(stopped, "sampled"));
    assert_eq!(number(stopped, "delivered"), 0, "{stopped}");
}

#[test]
fn windows_of_a_killed_agent_are_delivered_by_the_next_one() {
    let Some(_guard) = run_beside_others() else { return };
    let _workload = Workload::start("shares");
    let spool = tempfile::tempdir().unwrap();
    let receiver = OtlpReceiver::start(Reception::Status(503));
    let url = receiver.url();
    let arguments = ["--otlp", &url, "--spool", path_text(&spool)];
    let mut agent = Agent::start(&arguments);
    agent.wait_until("two windows in the spool", |line| {
        line.contains("event=window ") && number(line, "spooled") > 50
    });
    agent.signal(Signal::KILL);
    agent.child.wait().unwrap();
    receiver.set_reception(Reception::Accept);
    let mut agent = Agent::start(&arguments);
    let line = agent.wait_until("the delivery of the spool", |line| {
        let is_window = line.contains("event=window ");
        is_window && number(line, "spooled") == 0 && number(line, "delivered") >= 50
    });
    assert_exact(&line);
    assert!(number(&line, "recovered") > 50, "{line}");
    agent.signal(Signal::TERM);
    let lines = agent.finish();
    let stopped = lines.iter().find(|line| line.contains("event=stopped")).unwrap();
    assert_exact(stopped);
    assert_eq!(number(stopped, "dropped-outage"), 0, "{stopped}");
}

#[test]
fn metrics_and_checks_have_the_state_of_the_delivery() {
    let Some(_guard) = run_beside_others() else { return };
    let _workload = Workload::start("shares");
    let receiver = OtlpReceiver::start(Reception::Status(503));
    let url = receiver.url();
    let mut agent = Agent::start(&["--otlp", &url, "--listen", "127.0.0.1:0"]);
    let address = agent.address();
    assert!(get(&address, "/healthz").starts_with("HTTP/1.1 200 "));
    assert!(get(&address, "/readyz").starts_with("HTTP/1.1 503 "));
    receiver.set_reception(Reception::Accept);
    wait_until("a delivery", || get(&address, "/readyz").starts_with("HTTP/1.1 200 ").then_some(()));
    agent.wait_for("event=window ");
    let metrics = &agent.metrics();
    assert!(metric(metrics, "profiler_agent_samples_total") > 0.0, "{metrics}");
    assert!(metric(metrics, "profiler_agent_windows_total") >= 1.0, "{metrics}");
    assert_eq!(metric(metrics, "profiler_agent_frequency_hertz"), 49.0, "{metrics}");
    let pending = metric(metrics, "profiler_agent_pending_samples");
    let settled = metric(metrics, "profiler_agent_samples_total");
    assert_eq!(metric(metrics, "profiler_agent_received_samples_total"), pending + settled, "{metrics}");
    prometheus::check_with_promtool(metrics);
    agent.signal(Signal::TERM);
    agent.finish();
}

#[test]
fn threads_with_network_connections_have_no_capabilities() {
    let Some(_guard) = run_beside_others() else { return };
    let receiver = OtlpReceiver::start(Reception::Accept);
    let url = receiver.url();
    let agent = Agent::start(&["--otlp", &url, "--listen", "127.0.0.1:0"]);
    let field = |status: &str, name: &str| {
        status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned()
    };
    let is_connected = |status: &&String| ["delivery", "metrics"].contains(&field(status, "Name:").as_str());
    // A thread sets its name after it was started.
    let threads = wait_until("both threads", || {
        let tasks = fs::read_dir(format!("/proc/{}/task", agent.child.id())).unwrap();
        let read = |task: DirEntry| fs::read_to_string(task.path().join("status")).ok();
        let threads: Vec<_> = tasks.flatten().filter_map(read).collect();
        (threads.iter().filter(is_connected).count() == 2).then_some(threads)
    });
    for status in &threads {
        assert_eq!(field(status, "Seccomp:"), "2", "{status}");
    }
    for status in threads.iter().filter(is_connected) {
        assert_eq!(field(status, "CapPrm:"), "0000000000000000", "{status}");
        assert_eq!(field(status, "CapEff:"), "0000000000000000", "{status}");
    }
    agent.signal(Signal::TERM);
    agent.finish();
}

mod measured {
    mod memory;
}
