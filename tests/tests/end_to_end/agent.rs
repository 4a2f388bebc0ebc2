//! Tests `profiler agent`: what a backend receives, its account, a backend that hangs, restarts, metrics and rights.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use profiler::{
    Profile,
    agent::naming::{Naming, NamingOptions},
};
use profiler_tests::{
    DEADLINE, LoopbackServer, OtlpReceiver, ReceivedRequest, Reception, Workload, file, profiler,
    run_command, share_privileged, skip_unless_required, wait_until, workload_path,
};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// An agent that runs, and the lines that it writes.
struct Agent {
    child: Child,
    lines: BufReader<ChildStdout>,
    /// The line of the start.
    started: String,
}

impl Agent {
    /// Starts an agent with windows of a second, and waits until it samples.
    fn start(arguments: &[&str]) -> Self {
        let mut command = profiler(&["agent", "--window", "1s", "-F", "49"]);
        let spawned = command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut child = spawned.unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let mut agent = Self { child, lines, started: String::new() };
        agent.started = agent.wait_for("event=started");
        agent
    }

    /// Waits for a line that contains a text.
    fn wait_for(&mut self, text: &str) -> String {
        self.wait_until(text, |line| line.contains(text))
    }

    fn wait_until(&mut self, what: &str, is_wanted: impl Fn(&str) -> bool) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "the agent ended before {what}");
            if is_wanted(&line) {
                return line;
            }
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// The remaining lines, once the agent has ended with success.
    fn finish(mut self) -> Vec<String> {
        let lines = self.lines.by_ref().lines().map(Result::unwrap).collect();
        assert!(self.child.wait().unwrap().success(), "{lines:?}");
        lines
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // It has ended unless the test failed.
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// The number of a field of a log line.
fn number(line: &str, field: &str) -> u64 {
    let value = line.split_whitespace().find_map(|pair| pair.strip_prefix(field)?.strip_prefix('='));
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {field} in {line}"))
}

/// Checks the account of the delivery in a log line.
fn assert_exact(line: &str) {
    let sum = |fields: &[&str]| fields.iter().map(|field| number(line, field)).sum::<u64>();
    let outcomes = [
        "delivered",
        "queued",
        "spooled",
        "ambiguous",
        "dropped-outage",
        "dropped-too-old",
        "dropped-rejected",
        "dropped-too-large",
    ];
    assert_eq!(sum(&["sampled", "recovered"]), sum(&outcomes), "{line}");
}

fn recordings(directory: &Path) -> Vec<Profile> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| Profile::read(File::open(path).unwrap()).unwrap()).collect()
}

fn samples(profiles: &[Profile]) -> u64 {
    profiles.iter().flat_map(|profile| &profile.ledger().events).map(|event| event.reported).sum()
}

fn path_text(directory: &TempDir) -> &str {
    directory.path().to_str().unwrap()
}

/// The response to a GET request.
fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: agent\r\n\r\n").unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

/// The sum of the values of a metric, over all labels.
fn metric(metrics: &str, name: &str) -> f64 {
    let values = metrics.lines().filter(|line| line.split(['{', ' ']).next() == Some(name));
    values.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
}

#[test]
fn each_window_is_a_recording_and_a_line_with_its_account() {
    let Some(_guard) = share_privileged() else { return };
    let _workload = Workload::start("shares");
    let directory = tempfile::tempdir().unwrap();
    let agent = Agent::start(&["--write-dir", path_text(&directory), "-d", "3.5"]);
    let lines = agent.finish();
    let windows: Vec<_> = lines.iter().filter(|line| line.contains("event=window ")).collect();
    // A part of a window at each end.
    assert!((3..=5).contains(&windows.len()), "{lines:?}");
    let profiles = recordings(directory.path());
    assert_eq!(profiles.len(), windows.len());
    let logged: u64 = windows.iter().map(|line| number(line, "samples")).sum();
    assert_eq!(samples(&profiles), logged);
    assert!(profiles.iter().all(|profile| profile.ledger().adds_up()));
    let seconds: u64 = profiles.iter().map(|profile| profile.header().duration_ns).sum();
    assert!((3_300_000_000..4_500_000_000).contains(&seconds), "{seconds} ns");
    // One busy thread at 49 Hz, beside all else on the machine.
    assert!(logged > 80, "{logged}");
}

/// The samples of each service and stack, frames root first.
type Totals = BTreeMap<(String, String), u64>;

/// What requests have, as an independent decoder of OTLP reads them.
fn received_totals(receiver: &OtlpReceiver) -> Option<Totals> {
    let packages = file("../target/readers/opentelemetry-proto");
    if !packages.exists() {
        skip_unless_required("opentelemetry-proto is missing");
        return None;
    }
    let mut totals = Totals::new();
    for request in receiver.requests() {
        assert_eq!(request.path, "/v1development/profiles");
        assert_eq!(request.header("content-type"), Some("application/x-protobuf"));
        let mut body = tempfile::NamedTempFile::new().unwrap();
        body.write_all(&request.body).unwrap();
        let mut python = Command::new("python3");
        python.env("PYTHONPATH", &packages).arg(file("readers/otlp.py")).arg(body.path());
        let output = run_command(&mut python);
        assert_eq!(output.code(), 0, "{}", output.stderr);
        let summary: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
        for resource in summary["resources"].as_array().unwrap() {
            let service = resource["attributes"]["service.name"].as_str().unwrap();
            for profile in resource["profiles"].as_array().unwrap() {
                for (stack, value) in profile["folded"].as_object().unwrap() {
                    *totals.entry((service.to_owned(), stack.clone())).or_default() +=
                        value.as_u64().unwrap();
                }
            }
        }
    }
    Some(totals)
}

/// What recordings have.
fn recorded_totals(profiles: Vec<Profile>) -> Totals {
    let mut naming = Naming::new(NamingOptions::of_node(None).unwrap()).unwrap();
    let mut totals = Totals::new();
    for profile in profiles {
        let window = naming.window(profile);
        let profile = window.profile();
        for sample in profile.samples() {
            let resource = window.resource_of(profile.thread(sample.thread).process);
            let service = window.resources()[resource].attributes["service.name"].clone();
            let frames = profile.stack(sample.stack).frames.iter().rev();
            let names: Vec<_> = frames.map(|frame| profile.string(profile.frame(*frame).name)).collect();
            let names = if names.is_empty() { vec!["[unknown]"] } else { names };
            *totals.entry((service, names.join(";"))).or_default() += sample.value;
        }
    }
    totals
}

/// The name of the service of [`service`].
const SERVICE: &str = "agent-test";

/// A workload with the name of a service: the tests themselves can be in a container, which has one service.
fn service() -> Workload {
    Workload::run(Command::new(workload_path("shares")).arg("60").env("OTEL_SERVICE_NAME", SERVICE))
}

/// What the workload has. Other tests have processes with names that OTLP and folded stacks cannot have.
fn of_workload(mut totals: Totals) -> Totals {
    totals.retain(|(_, stack), _| stack.contains(";round_of_work"));
    totals
}

#[test]
fn a_backend_receives_what_the_recordings_of_the_run_have() {
    let Some(_guard) = share_privileged() else { return };
    let _workload = service();
    let directory = tempfile::tempdir().unwrap();
    let receiver = OtlpReceiver::start(Reception::Accept);
    let agent = Agent::start(&["--otlp", &receiver.url(), "--write-dir", path_text(&directory), "-d", "3.2"]);
    let lines = agent.finish();
    let stopped = lines.iter().find(|line| line.contains("event=stopped")).unwrap();
    assert_exact(stopped);
    let profiles = recordings(directory.path());
    let samples = samples(&profiles);
    assert_eq!((number(stopped, "sampled"), number(stopped, "delivered")), (samples, samples), "{stopped}");
    let Some(received) = received_totals(&receiver) else { return };
    let (received, recorded) = (of_workload(received), of_workload(recorded_totals(profiles)));
    assert_eq!(received, recorded);
    assert!(received.keys().any(|(service, _)| service == SERVICE), "{received:?}");
}

#[test]
fn the_kubelet_is_asked_for_pods() {
    const NO_PODS: &[u8] = b"{\"kind\": \"PodList\", \"apiVersion\": \"v1\", \"items\": []}";
    let Some(_guard) = share_privileged() else { return };
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
    let Some(_guard) = share_privileged() else { return };
    let _workload = service();
    let directory = tempfile::tempdir().unwrap();
    let receiver = OtlpReceiver::start(Reception::Accept);
    let url = receiver.url();
    let selection = ["--only", "service.name=agent-*", "--drop", "service.name=x", "--label", "team=shop"];
    let arguments =
        ["--otlp", &url, "--write-dir", path_text(&directory), "-d", "4.2", "--probability", "0.5"];
    let lines = Agent::start(&[&arguments[..], &selection].concat()).finish();
    let is = |event: &'static str| lines.iter().filter(move |line| line.contains(event));
    let windows: Vec<_> = is("event=window ").collect();
    assert_eq!(recordings(directory.path()).len(), windows.len());
    assert!(windows.len() + is("event=skipped ").count() >= 4, "{lines:?}");
    let weighted: u64 = windows
        .iter()
        .map(|line| (number(line, "samples") - number(line, "filtered")) * number(line, "weight"))
        .sum();
    assert!(windows.iter().all(|line| number(line, "weight") == 2), "{windows:?}");
    let stopped = is("event=stopped").next().unwrap();
    assert_exact(stopped);
    assert_eq!(number(stopped, "sampled"), weighted, "{lines:?}");
    let Some(received) = received_totals(&receiver) else { return };
    assert_eq!(received.values().sum::<u64>(), weighted);
    assert!(received.keys().all(|(service, _)| service == SERVICE), "{received:?}");
}

#[test]
fn an_agent_samples_while_its_backend_hangs() {
    let Some(_guard) = share_privileged() else { return };
    let _workload = Workload::start("shares");
    let directory = tempfile::tempdir().unwrap();
    let receiver = OtlpReceiver::start(Reception::Hang);
    let mut agent =
        Agent::start(&["--otlp", &receiver.url(), "--write-dir", path_text(&directory), "-d", "3.2"]);
    wait_until("a request", || (!receiver.requests().is_empty()).then_some(()));
    let line = agent.wait_for("event=window ");
    assert_exact(&line);
    agent.wait_for("event=window ");
    assert_eq!(number(&line, "delivered"), 0, "{line}");
    let lines = agent.finish();
    let stopped = lines.iter().find(|line| line.contains("event=stopped")).unwrap();
    assert_exact(stopped);
    assert_eq!(samples(&recordings(directory.path())), number(stopped, "sampled"));
    assert_eq!(number(stopped, "delivered"), 0, "{stopped}");
}

#[test]
fn windows_of_a_killed_agent_are_delivered_by_the_next_one() {
    let Some(_guard) = share_privileged() else { return };
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
    let begin = Instant::now();
    let mut agent = Agent::start(&arguments);
    let restarted = begin.elapsed();
    assert!(restarted < Duration::from_secs(1), "{restarted:?}");
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
    let Some(_guard) = share_privileged() else { return };
    let _workload = Workload::start("shares");
    let receiver = OtlpReceiver::start(Reception::Status(503));
    let url = receiver.url();
    let mut agent = Agent::start(&["--otlp", &url, "--listen", "127.0.0.1:0"]);
    let address = agent.started.split("listen=").nth(1).unwrap().trim().to_owned();
    assert!(get(&address, "/healthz").starts_with("HTTP/1.1 200 "));
    assert!(get(&address, "/readyz").starts_with("HTTP/1.1 503 "));
    receiver.set_reception(Reception::Accept);
    wait_until("a delivery", || get(&address, "/readyz").starts_with("HTTP/1.1 200 ").then_some(()));
    agent.wait_for("event=window ");
    let response = get(&address, "/metrics");
    let (_, metrics) = response.split_once("\r\n\r\n").unwrap();
    assert!(metric(metrics, "profiler_agent_samples_total") > 0.0, "{metrics}");
    assert!(metric(metrics, "profiler_agent_windows_total") >= 1.0, "{metrics}");
    assert_eq!(metric(metrics, "profiler_agent_frequency_hertz"), 49.0, "{metrics}");
    let pending = metric(metrics, "profiler_agent_pending_samples");
    let settled = metric(metrics, "profiler_agent_samples_total");
    assert_eq!(metric(metrics, "profiler_agent_received_samples_total"), pending + settled, "{metrics}");
    check_with_promtool(metrics);
    agent.signal(Signal::TERM);
    agent.finish();
}

/// Checks the text and the names of metrics with the program of Prometheus.
fn check_with_promtool(metrics: &str) {
    let mut command = Command::new("promtool");
    let spawned = command.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let Ok(mut promtool) = spawned else { return skip_unless_required("promtool is missing") };
    promtool.stdin.take().unwrap().write_all(metrics.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && messages.is_empty(), "{messages}");
}

#[test]
fn threads_that_talk_to_strangers_have_no_capabilities() {
    let Some(_guard) = share_privileged() else { return };
    let receiver = OtlpReceiver::start(Reception::Accept);
    let url = receiver.url();
    let agent = Agent::start(&["--otlp", &url, "--listen", "127.0.0.1:0"]);
    let tasks = fs::read_dir(format!("/proc/{}/task", agent.child.id())).unwrap();
    let mut checked = 0;
    for task in tasks {
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
        assert_eq!(field("Seccomp:"), "2", "{status}");
        if ["delivery", "metrics"].contains(&field("Name:")) {
            assert_eq!((field("CapPrm:"), field("CapEff:")), ("0000000000000000", "0000000000000000"));
            checked += 1;
        }
    }
    assert_eq!(checked, 2);
    agent.signal(Signal::TERM);
    agent.finish();
}
