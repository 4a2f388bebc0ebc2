//! Starting the programs that are profiled, and ending them.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio},
    time::Duration,
};

use crate::deadline::ends_within;

/// How long a workload has to see that its input was closed.
const GRACE: Duration = Duration::from_secs(5);

/// Where a built workload is.
///
/// # Panics
/// When it was not built.
#[must_use]
pub fn built(name: &str) -> PathBuf {
    let path = crate::file("../target/workloads").join(name);
    assert!(path.exists(), "{} is missing: run `cargo xtask workloads`", path.display());
    path.canonicalize().expect("the workload is there")
}

/// Writes a program of the test's own making.
///
/// # Panics
/// When it cannot be written.
pub fn write_program(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).expect("the folder takes files");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("it is the test's own");
}

/// A running workload. It ends when this is dropped.
#[derive(Debug)]
pub struct Workload {
    child: Child,
    pid: u32,
    /// Closing it asks the workload to end.
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Workload {
    /// Starts one of the workloads for at most a minute.
    #[must_use]
    pub fn start(name: &str) -> Self {
        Self::start_with(name, &["60"])
    }

    /// Starts one of the workloads with arguments of its own.
    #[must_use]
    pub fn start_with(name: &str, arguments: &[&str]) -> Self {
        Self::run(Command::new(built(name)).args(arguments))
    }

    /// Starts a workload of 200 busy threads. They are nice: else they leave the test no time to start a session.
    #[must_use]
    pub fn start_threads(name: &str) -> Self {
        Self::run(Command::new("nice").args(["-n", "19"]).arg(built(name)).arg("60"))
    }

    /// Starts the .NET workload in the runtime of a version.
    #[must_use]
    pub fn dotnet(version: &str, mode: &str) -> Self {
        Self::run(&mut Self::dotnet_command(version, mode))
    }

    /// What starts the .NET workload.
    #[must_use]
    pub fn dotnet_command(version: &str, mode: &str) -> Command {
        let mut command = Command::new(built("dotnet/run"));
        command.args([version, mode, "60"]);
        command
    }

    /// Starts a program that says `ready PID` when it is, and ends when its input does.
    ///
    /// # Panics
    /// When it does not start, or does not get ready.
    pub fn run(command: &mut Command) -> Self {
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = spawned.unwrap_or_else(|error| panic!("failed to start {command:?}: {error}"));
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("its output is a pipe"));
        let mut workload = Self { pid: 0, child, input, output };
        let pid = workload.wait_for("ready ");
        workload.pid = pid.trim().parse().expect("a pid follows");
        workload
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Its threads.
    ///
    /// # Panics
    /// When it has ended.
    #[must_use]
    pub fn tids(&self) -> Vec<u32> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid)).expect("the workload runs");
        tasks.filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok()).collect()
    }

    /// The time that its first thread has run on a CPU, by `/proc/PID/schedstat`.
    ///
    /// # Panics
    /// When it has ended.
    #[must_use]
    pub fn cpu_time(&self) -> Duration {
        let text = fs::read_to_string(format!("/proc/{}/schedstat", self.pid)).expect("the workload runs");
        let nanoseconds = text.split(' ').next().and_then(|number| number.parse().ok());
        Duration::from_nanos(nanoseconds.expect("the first number is the time on a CPU"))
    }

    /// Waits until it says a line that begins so, and gives back the rest of it.
    ///
    /// # Panics
    /// When it ends without a word of it.
    pub fn wait_for(&mut self, beginning: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let read = self.output.read_line(&mut line).expect("the workload speaks UTF-8");
            assert!(read > 0, "the workload ended without saying `{beginning}`");
            if let Some(rest) = line.strip_prefix(beginning) {
                return rest.to_owned();
            }
        }
    }

    /// Says a line to it.
    ///
    /// # Panics
    /// When it does not listen.
    pub fn say(&mut self, line: &str) {
        let input = self.input.as_mut().expect("its input is open");
        writeln!(input, "{line}").expect("the workload listens");
    }

    /// Asks it to end, and waits for that.
    ///
    /// # Panics
    /// When it cannot be waited for.
    pub fn end(mut self) -> ExitStatus {
        self.ask_to_end();
        self.child.wait().expect("a child can be waited for")
    }

    fn ask_to_end(&mut self) {
        self.input = None;
        if !ends_within(&self.child, GRACE) {
            self.child.kill().expect("a child can be killed");
        }
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            self.ask_to_end();
            // It is gone either way.
            let _ = self.child.wait();
        }
    }
}
