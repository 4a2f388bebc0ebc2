//! Starts and stops the workloads that tests profile.

use std::{
    fs,
    io::{self, BufRead, BufReader, Read as _, Write},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio},
    time::{Duration, SystemTime},
};

use crate::{
    deadline::{DEADLINE, ends_within, wait_until},
    runtime_files,
};

/// How long a workload may run after its input was closed where nothing asks how it exits.
const EXIT_LIMIT: Duration = Duration::from_secs(5);

/// How long a workload runs whose input is not closed, seconds: longer than any test.
const LIFETIME_SECONDS: &str = "600";

/// The path of a built workload.
///
/// # Panics
/// Panics if it is not built.
#[must_use]
pub fn workload_path(name: &str) -> PathBuf {
    let path = crate::file("../target/workloads").join(name);
    assert!(path.exists(), "{} is missing: run `cargo xtask workloads`", path.display());
    path.canonicalize().expect("the workload is there")
}

/// Writes an executable file.
///
/// # Panics
/// Panics if writing fails.
pub fn write_program(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).expect("the folder takes files");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("it is the test's own");
}

/// A running workload. Dropping it stops it.
#[derive(Debug)]
pub struct Workload {
    child: Child,
    pid: u32,
    /// Closing this pipe makes the workload exit.
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Workload {
    /// Starts a workload that runs until it is stopped.
    #[must_use]
    pub fn start(name: &str) -> Self {
        Self::start_with(name, &[LIFETIME_SECONDS])
    }

    /// Starts a workload with these arguments.
    #[must_use]
    pub fn start_with(name: &str, arguments: &[&str]) -> Self {
        Self::run(Command::new(workload_path(name)).args(arguments))
    }

    /// Starts a workload with a low priority, so that the test can start a session beside its threads.
    #[must_use]
    pub fn start_nice(name: &str) -> Self {
        Self::run(Command::new("nice").args(["-n", "19"]).arg(workload_path(name)).arg(LIFETIME_SECONDS))
    }

    /// Starts a workload with a high priority: it has most of a CPU, however many other programs run.
    #[must_use]
    pub fn start_first(name: &str) -> Self {
        Self::run(Command::new("nice").args(["-n", "-20"]).arg(workload_path(name)).arg(LIFETIME_SECONDS))
    }

    /// Starts the .NET workload with this version of the runtime.
    #[must_use]
    pub fn dotnet(version: &str, mode: &str) -> Self {
        Self::run(&mut Self::dotnet_command(version, mode))
    }

    /// Starts the .NET workload without a perf map: with this version of the runtime, or as the single-file program of this
    /// name.
    #[must_use]
    pub fn dotnet_program(program: &str, mode: &str) -> Self {
        Self::run(&mut Self::dotnet_program_command(program, mode))
    }

    /// The command of [`dotnet_program`](Self::dotnet_program).
    #[must_use]
    pub fn dotnet_program_command(program: &str, mode: &str) -> Command {
        if program.starts_with("single-file") {
            let mut command = Command::new(workload_path("dotnet").join(program));
            command.args([mode, LIFETIME_SECONDS]);
            return command;
        }
        let mut command = Self::dotnet_command(program, mode);
        command.env("PERF_MAP", "0");
        command
    }

    /// The command that starts the .NET workload.
    #[must_use]
    pub fn dotnet_command(version: &str, mode: &str) -> Command {
        let mut command = Command::new(workload_path("dotnet/run"));
        command.args([version, mode, LIFETIME_SECONDS]);
        command
    }

    /// Starts a program that prints `ready PID` and exits when its standard input is closed.
    ///
    /// # Panics
    /// Panics if it does not start or exits before it is ready.
    pub fn run(command: &mut Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let start = SystemTime::now();
        // Another thread's child, which has not executed its program yet, can hold a file open that was just written.
        let spawned = wait_until("a program that can be executed", || match command.spawn() {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => None,
            spawned => Some(spawned),
        });
        let mut child = spawned.unwrap_or_else(|error| panic!("failed to start {command:?}: {error}"));
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("its output is a pipe"));
        let mut workload = Self { pid: 0, child, input, output };
        let pid = workload.wait_for("ready ");
        workload.pid = pid.trim().parse().expect("a pid follows");
        runtime_files::remove_older(workload.child.id(), start);
        workload
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The thread ids.
    ///
    /// # Panics
    /// Panics if the process has exited.
    #[must_use]
    pub fn tids(&self) -> Vec<u32> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid)).expect("the workload runs");
        tasks.filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok()).collect()
    }

    /// The CPU time of the main thread, from `/proc/PID/schedstat`.
    ///
    /// # Panics
    /// Panics if the process has exited.
    #[must_use]
    pub fn cpu_time(&self) -> Duration {
        cpu_time(self.pid, self.pid).expect("the workload runs")
    }

    /// The CPU time of the thread with this name.
    ///
    /// # Panics
    /// Panics if there is no such thread.
    #[must_use]
    pub fn cpu_time_of(&self, thread: &str) -> Duration {
        let is_it = |tid: &u32| {
            let comm = fs::read_to_string(format!("/proc/{}/task/{tid}/comm", self.pid));
            comm.is_ok_and(|comm| comm.trim_end() == thread)
        };
        let tid = self.tids().into_iter().find(is_it);
        tid.and_then(|tid| cpu_time(self.pid, tid)).unwrap_or_else(|| panic!("there is no thread {thread}"))
    }

    /// The CPU time of all threads.
    #[must_use]
    pub fn cpu_time_of_threads(&self) -> Duration {
        // A thread may exit meanwhile.
        self.tids().into_iter().filter_map(|tid| cpu_time(self.pid, tid)).sum()
    }

    /// Waits for a line of output with this prefix and returns the rest of the line.
    ///
    /// # Panics
    /// Panics if the process exits before it prints such a line.
    pub fn wait_for(&mut self, beginning: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let read = self.output.read_line(&mut line).expect("the workload speaks UTF-8");
            assert!(read > 0, "the workload exited before it printed `{beginning}`");
            if let Some(rest) = line.strip_prefix(beginning) {
                return rest.to_owned();
            }
        }
    }

    /// Writes a line to the standard input of the process.
    ///
    /// # Panics
    /// Panics if the process has closed its input.
    pub fn write_line(&mut self, line: &str) {
        let input = self.input.as_mut().expect("its input is open");
        writeln!(input, "{line}").expect("the workload listens");
    }

    /// The number of sockets that the process has open. An EventPipe session is one more.
    #[must_use]
    pub fn sockets(&self) -> usize {
        let descriptors = fs::read_dir(format!("/proc/{}/fd", self.pid)).into_iter().flatten().flatten();
        let links = descriptors.filter_map(|descriptor| fs::read_link(descriptor.path()).ok());
        links.filter(|link| link.to_string_lossy().starts_with("socket:")).count()
    }

    /// Closes the input of the process and waits until it exits.
    ///
    /// # Panics
    /// Panics if waiting fails, or if it does not exit by the deadline.
    pub fn end(mut self) -> ExitStatus {
        self.input = None;
        assert!(ends_within(&self.child, DEADLINE), "the workload does not exit");
        self.child.wait().expect("a child can be waited for")
    }

    /// Closes the input of the process, and returns what it still prints.
    ///
    /// # Panics
    /// Panics if its output cannot be read.
    #[must_use]
    pub fn end_with_output(mut self) -> String {
        self.input = None;
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).expect("the workload speaks UTF-8");
        rest
    }

    fn stop(&mut self) {
        self.input = None;
        if !ends_within(&self.child, EXIT_LIMIT) {
            self.child.kill().expect("a child can be killed");
        }
    }
}

/// The time of a thread on a CPU: the first number of its `schedstat`.
fn cpu_time(pid: u32, tid: u32) -> Option<Duration> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
    text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

impl Drop for Workload {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            self.stop();
            // The process has exited or was killed.
            let _ = self.child.wait();
        }
        runtime_files::remove_all(self.child.id());
    }
}
