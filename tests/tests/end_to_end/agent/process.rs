//! A running `profiler agent`, its log lines, files and metrics.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
};

use profiler::{
    Profile,
    profile::{FrameId, Sample},
};
use profiler_tests::{Workload, profiler, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::totals::{FUNCTION, SERVICE};

/// An agent that runs, and the lines that it writes.
pub(super) struct Agent {
    pub(super) child: Child,
    lines: BufReader<ChildStdout>,
    /// The line of the start.
    started: String,
}

impl Agent {
    /// Starts an agent with windows of a second, and waits until it samples.
    pub(super) fn start(arguments: &[&str]) -> Self {
        Self::run(&mut agent(arguments))
    }

    /// Starts a command that runs an agent, and waits until it samples.
    pub(super) fn run(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let mut agent = Self { child, lines, started: String::new() };
        agent.started = agent.wait_for("event=started");
        agent
    }

    /// The address of `--listen`.
    pub(super) fn address(&self) -> String {
        self.started.split("listen=").nth(1).unwrap().trim().to_owned()
    }

    /// The text of `/metrics`.
    pub(super) fn metrics(&self) -> String {
        let response = get(&self.address(), "/metrics");
        response.split_once("\r\n\r\n").unwrap().1.to_owned()
    }

    /// Waits for a line that contains a text.
    pub(super) fn wait_for(&mut self, text: &str) -> String {
        self.wait_until(text, |line| line.contains(text))
    }

    pub(super) fn wait_until(&mut self, what: &str, is_wanted: impl Fn(&str) -> bool) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "the agent ended before {what}");
            if is_wanted(&line) {
                return line;
            }
        }
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits until a file of `--write-dir` has a stack of a workload with its function and service, ends the agent, and
    /// returns the remaining lines. On a busy machine a window can end before the agent has read either.
    pub(super) fn finish_after(mut self, workload: &Workload) -> Vec<String> {
        wait_until("a stack of the workload", || {
            let line = self.wait_for("event=written ");
            let path = line.trim_end().rsplit_once("file=").unwrap().1;
            let profile = Profile::read(File::open(path).unwrap()).unwrap();
            let is_named = |frame: &FrameId| profile.string(profile.frame(*frame).name) == FUNCTION;
            let is_wanted = |sample: &Sample| {
                let process = profile.thread(sample.thread).process;
                profile.process(process).pid == workload.pid()
                    && profile.attribute(process, "service.name") == Some(SERVICE)
                    && profile.stack(sample.stack).frames.iter().any(is_named)
            };
            profile.samples().iter().any(is_wanted).then_some(())
        });
        self.signal(Signal::TERM);
        self.finish()
    }

    /// The remaining lines, once the agent has ended with success.
    pub(super) fn finish(mut self) -> Vec<String> {
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

/// The command of an agent with windows of a second.
pub(super) fn agent(arguments: &[&str]) -> Command {
    let mut command = profiler(&["agent", "--window", "1s", "-F", "49"]);
    command.args(arguments);
    command
}

/// The number of a field of a log line.
pub(super) fn number(line: &str, field: &str) -> u64 {
    let value = line.split_whitespace().find_map(|pair| pair.strip_prefix(field)?.strip_prefix('='));
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {field} in {line}"))
}

/// Checks the account of the delivery in a log line.
pub(super) fn assert_exact(line: &str) {
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

/// The files of `--write-dir`, oldest first.
pub(super) fn recordings(directory: &Path) -> Vec<Profile> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| Profile::read(File::open(path).unwrap()).unwrap()).collect()
}

/// The samples of all profiles.
pub(super) fn samples(profiles: &[Profile]) -> u64 {
    profiles.iter().flat_map(|profile| &profile.ledger().events).map(|event| event.reported).sum()
}

/// The duration of all profiles, seconds.
pub(super) fn seconds(profiles: &[Profile]) -> f64 {
    profiles.iter().map(|profile| profile.header().duration_ns as f64 / 1e9).sum()
}

pub(super) fn path_text(directory: &TempDir) -> &str {
    directory.path().to_str().unwrap()
}

/// The response to a GET request by HTTP/1.1, from a server that closes the connection.
pub(super) fn get(address: &str, path: &str) -> String {
    exchange(address, &format!("GET {path} HTTP/1.1\r\nHost: agent\r\n\r\n"))
}

/// What a server sends until it closes the connection.
pub(super) fn exchange(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

/// The sum of the values of a metric, over all labels.
pub(super) fn metric(metrics: &str, name: &str) -> f64 {
    let values = metrics.lines().filter(|line| line.split(['{', ' ']).next() == Some(name));
    values.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
}
