//! A program that is profiled.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::PathBuf,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use object::Object as _;

use super::stacks::Entry;
use crate::{container::Container, workloads};

/// Longer than any bench, so that nothing stays behind that runs for ever.
pub(super) const SECONDS: &str = "900";

/// A running workload. Dropped, it is gone.
pub(super) struct Target {
    child: Child,
    pid: u32,
    /// A workload ends when this closes.
    lifeline: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Target {
    /// Starts a program of the end-to-end tests and waits until it works.
    pub(super) fn start(name: &str) -> Result<Self> {
        Self::of(Command::new(workloads::output_folder().join(name)).arg(SECONDS))
    }

    /// As [`start`](Self::start), with the least share of the CPUs: what fills them starves no profiler.
    pub(super) fn start_nice(name: &str) -> Result<Self> {
        let program = workloads::output_folder().join(name);
        Self::of(Command::new("nice").args(["-n", "19"]).arg(program).arg(SECONDS))
    }

    /// Starts a program without frame pointers whose stack is about so many frames deep.
    pub(super) fn start_shapes(frames: &str) -> Result<Self> {
        let program = workloads::output_folder().join("unwinding/shapes");
        Self::of(Command::new(program).args([SECONDS, frames]))
    }

    /// Starts the .NET program in a mode, with its perf map.
    pub(super) fn start_dotnet(version: &str, mode: &str) -> Result<Self> {
        let launcher = workloads::output_folder().join("dotnet/run");
        Self::of(Command::new(launcher).args([version, mode, SECONDS]))
    }

    /// Starts a program that says `ready` when it is.
    pub(super) fn of(command: &mut Command) -> Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let lifeline = child.stdin.take();
        let output = BufReader::new(child.stdout.take().context("a workload has an output")?);
        let mut target = Self { pid: child.id(), child, lifeline, output };
        ensure!(target.line()?.starts_with("ready"), "a workload did not start");
        Ok(target)
    }

    /// The next line that it says.
    pub(super) fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line)
    }

    /// Takes over the pid of a container, whose runtime was started in place of its program.
    pub(super) fn is_in(&mut self, container: &Container) -> Result<()> {
        self.pid = container.pid()?;
        Ok(())
    }

    /// Asks it to end and waits for that, so that it removes what it left in folders of the machine's. Dropped, it is
    /// gone either way.
    pub(super) fn ask_to_end(&mut self) {
        const GRACE: Duration = Duration::from_secs(2);
        self.lifeline = None;
        let asked = Instant::now();
        while asked.elapsed() < GRACE && matches!(self.child.try_wait(), Ok(None)) {
            thread::sleep(Duration::from_millis(5));
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Where its program begins.
    pub(super) fn entry(&self) -> Result<Entry> {
        const AT_ENTRY: u64 = 9;
        let folder = PathBuf::from(format!("/proc/{}", self.pid()));
        let words: Vec<u64> = fs::read(folder.join("auxv"))?
            .chunks_exact(size_of::<u64>())
            .filter_map(|word| Some(u64::from_ne_bytes(word.try_into().ok()?)))
            .collect();
        let mut vector = words.chunks_exact(2);
        let runtime_address = vector.find(|pair| pair[0] == AT_ENTRY).context("a process has an entry")?[1];
        let program = fs::read_link(folder.join("exe"))?;
        // In a container the path is another file's, or none's.
        let bytes = fs::read(folder.join("exe"))?;
        let file_name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Entry { file_name, elf_address: object::File::parse(&*bytes)?.entry(), runtime_address })
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The CPU time of all threads of process `pid` that live, as the scheduler counts it.
pub(super) fn cpu_time(pid: u32) -> Result<Duration> {
    let mut nanoseconds = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may end meanwhile.
        let Ok(text) = fs::read_to_string(task?.path().join("schedstat")) else { continue };
        nanoseconds += text.split(' ').next().and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(Duration::from_nanos(nanoseconds))
}
