//! Runs the program under test with arguments, and captures its exit status and output.

use std::{
    io::Read,
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::OnceLock,
    thread::JoinHandle,
};

use crate::{
    deadline::{DEADLINE, ends_within, wait_until},
    workload::Workload,
};

/// The result of a run.
#[derive(Debug)]
pub struct Outcome {
    /// Exit status.
    pub status: ExitStatus,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// The bytes that its system calls have read: `rchar` of proc_pid_io(5).
    pub read_bytes: u64,
}

impl Outcome {
    /// The exit code.
    ///
    /// # Panics
    /// Panics if a signal ended the program.
    #[must_use]
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| panic!("ended by a signal: {self:?}"))
    }

    /// Peak memory in MB, from the summary of the program with `-v`.
    ///
    /// # Panics
    /// Panics if the summary does not contain it.
    #[must_use]
    pub fn peak_memory_mb(&self) -> f64 {
        let before = self.stderr.split(" MB peak memory").next().unwrap_or_default();
        let number = before.rsplit(' ').next().unwrap_or_default();
        number.parse().unwrap_or_else(|_| panic!("no peak memory in {}", self.stderr))
    }
}

/// The program under test with arguments.
///
/// # Panics
/// Panics if the path of the test program is unknown.
#[must_use]
pub fn profiler(arguments: &[&str]) -> Command {
    // Cargo builds tests one folder below the binaries of their package.
    let test = std::env::current_exe().expect("a test has a file");
    let program: PathBuf = test.ancestors().nth(2).expect("a folder").join("profiler-under-test");
    let mut command = Command::new(program);
    // Tests that `sudo` runs would start commands as another user.
    command.env_remove("SUDO_UID").args(arguments);
    command
}

/// Runs a command until it exits.
///
/// # Panics
/// Panics if it does not start, or does not exit by the deadline.
pub fn run_command(command: &mut Command) -> Outcome {
    let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = spawned.unwrap_or_else(|error| panic!("failed to start {command:?}: {error}"));
    let stdout = child.stdout.take().map(read);
    let stderr = child.stderr.take().map(read);
    let has_ended = ends_within(&child, DEADLINE);
    if !has_ended {
        child.kill().expect("a child can be killed");
    }
    let read_bytes = read_bytes(child.id());
    let status = child.wait().expect("a child can be waited for");
    let text = |reader: Option<JoinHandle<String>>| reader.map(|reader| reader.join().expect("a reader"));
    let [stdout, stderr] = [stdout, stderr].map(|reader| text(reader).unwrap_or_default());
    assert!(has_ended, "{command:?} hangs; it said:\n{stderr}");
    Outcome { status, stdout, stderr, read_bytes }
}

/// The bytes that a process has read which was not collected yet.
fn read_bytes(pid: u32) -> u64 {
    let statistics = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    let bytes = statistics.lines().find_map(|line| line.strip_prefix("rchar: "));
    // A process of another user can hide them.
    bytes.and_then(|bytes| bytes.parse().ok()).unwrap_or_default()
}

/// Peak memory of the program in MB while it profiles a small process: most of it is the code of the debug build.
///
/// # Panics
/// Panics if the program fails.
#[must_use]
pub fn base_memory_mb() -> f64 {
    static BASE: OnceLock<f64> = OnceLock::new();
    *BASE.get_or_init(|| {
        let target = Workload::start("shares");
        let run =
            run_command(&mut profiler(&["-v", "-p", &target.pid().to_string(), "-F", "999", "-d", "1"]));
        assert_eq!(run.code(), 0, "{}", run.stderr);
        run.peak_memory_mb()
    })
}

/// Starts the program and waits until it samples, which its thread for signals shows.
///
/// # Panics
/// Panics if it does not sample by the deadline.
pub fn start_sampling(command: &mut Command) -> Child {
    let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = spawned.unwrap_or_else(|error| panic!("failed to start {command:?}: {error}"));
    let tasks = format!("/proc/{}/task", child.id());
    let is_listener = |task: std::fs::DirEntry| {
        std::fs::read(task.path().join("comm")).is_ok_and(|name| name == b"signals\n")
    };
    wait_until("the program to sample", || {
        std::fs::read_dir(&tasks).ok()?.flatten().any(is_listener).then_some(())
    });
    child
}

fn read(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).expect("a pipe can be read");
        String::from_utf8(bytes).expect("the program writes UTF-8")
    })
}
