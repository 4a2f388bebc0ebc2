//! Starts and stops the programs that the bench profiles.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::PathBuf,
    process::{ChildStdin, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use fs_err as fs;
use object::Object as _;

use super::stacks::Entry;
use crate::{container::Container, process::OwnedChild, workloads};

/// The maximum run time of a target, longer than any bench.
pub(crate) const SECONDS: &str = "900";

/// A running workload. Dropping it stops it.
pub(crate) struct Target {
    child: OwnedChild,
    pid: u32,
    /// Closing this pipe makes the workload exit.
    lifeline: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Target {
    /// Starts a program of the end-to-end tests, with arguments behind its time, and waits until it is ready.
    pub(crate) fn start(name: &str, arguments: &[&str]) -> Result<Self> {
        let program = workloads::output_folder().join(name);
        Self::from_command(Command::new(program).arg(SECONDS).args(arguments))
    }

    /// Like [`start`](Self::start), with the lowest priority, so that a target with many threads does not starve the
    /// profiler.
    pub(crate) fn start_nice(name: &str) -> Result<Self> {
        let program = workloads::output_folder().join(name);
        Self::from_command(Command::new("nice").args(["-n", "19"]).arg(program).arg(SECONDS))
    }

    /// Starts the .NET program in a mode, with its perf map.
    pub(crate) fn start_dotnet(version: &str, mode: &str) -> Result<Self> {
        let launcher = workloads::output_folder().join("dotnet/run");
        Self::from_command(Command::new(launcher).args([version, mode, SECONDS]))
    }

    /// Starts a program that prints `ready` when it is.
    pub(crate) fn from_command(command: &mut Command) -> Result<Self> {
        let mut child = OwnedChild::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()))?;
        let lifeline = child.stdin.take();
        let output = BufReader::new(child.stdout.take().context("a workload has an output")?);
        let mut target = Self { pid: child.id(), child, lifeline, output };
        ensure!(target.line()?.starts_with("ready"), "a workload did not start");
        Ok(target)
    }

    /// The next line of its output.
    pub(crate) fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line)
    }

    /// Writes a line to its input, and returns the next line of its output.
    pub(crate) fn ask(&mut self) -> Result<String> {
        let input = self.lifeline.as_mut().context("the workload was asked to end")?;
        writeln!(input)?;
        self.line()
    }

    /// Uses the pid of a container, if its runtime was started instead of its program.
    pub(crate) fn is_in(&mut self, container: &Container) -> Result<()> {
        self.pid = container.pid()?;
        Ok(())
    }

    /// Makes the program exit and waits for that, so that it removes its files in folders of the machine. Dropping
    /// the target stops it in any case.
    pub(crate) fn ask_to_end(&mut self) {
        const GRACE: Duration = Duration::from_secs(2);
        self.lifeline = None;
        let asked = Instant::now();
        while asked.elapsed() < GRACE && matches!(self.child.try_wait(), Ok(None)) {
            thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// The entry point of its program. While it executes another one, it has none for a moment.
    pub(crate) fn entry(&self) -> Result<Entry> {
        const AT_ENTRY: u64 = 9;
        let folder = PathBuf::from(format!("/proc/{}", self.pid()));
        let program = fs::read_link(folder.join("exe"))?;
        let words: Vec<u64> = fs::read(folder.join("auxv"))?
            .chunks_exact(size_of::<u64>())
            .filter_map(|word| Some(u64::from_ne_bytes(word.try_into().ok()?)))
            .collect();
        let mut vector = words.chunks_exact(2);
        let runtime_address = vector.find(|pair| pair[0] == AT_ENTRY).context("a process has an entry")?[1];
        // In a container the path is unknown here, or leads to another file.
        let bytes = fs::read(folder.join("exe"))?;
        let file_name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Entry { file_name, elf_address: object::File::parse(&*bytes)?.entry(), runtime_address })
    }
}

/// The CPU time of all living threads of process `pid`, from the scheduler.
pub(crate) fn cpu_time(pid: u32) -> Result<Duration> {
    let mut nanoseconds = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may exit meanwhile.
        let Ok(text) = fs::read_to_string(task?.path().join("schedstat")) else { continue };
        nanoseconds += text.split(' ').next().and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(Duration::from_nanos(nanoseconds))
}
