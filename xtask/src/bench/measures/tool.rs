//! Finds and starts the compared profilers, and reads their outputs.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow, ensure};
use clap::ValueEnum;
use fs_err as fs;
use wait4::Wait4 as _;

use super::{
    run::{self, End, Run},
    samply,
    stacks::{self, Entry, KnownCall, Stack},
};
use crate::{setup, shell};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ToolName {
    Profiler,
    Perf,
    ProfileBpfcc,
    Bpftrace,
    ProfileBee,
    Samply,
    Lightswitch,
}

/// A profiler, its options, and its path.
#[derive(Clone)]
pub(crate) struct Tool {
    pub(crate) name: ToolName,
    /// Options beyond those of the job.
    pub(crate) options: &'static str,
    program: Option<PathBuf>,
}

/// The task of a profiler.
pub(crate) struct Job<'a> {
    /// `None` for every process.
    pub(crate) pid: Option<u32>,
    pub(crate) frequency_hz: u64,
    pub(crate) seconds: u64,
    /// What is known about the target's stacks.
    pub(crate) known: KnownStacks<'a>,
    /// The folder for its output files.
    pub(crate) folder: &'a Path,
}

/// What is known about a target's stacks.
#[derive(Clone, Copy)]
pub(crate) enum KnownStacks<'a> {
    Nothing,
    /// The target is the workload `chain`.
    Chain,
    /// The entry point of the target, and calls that only one function makes.
    Entry(&'a Entry, &'a [KnownCall]),
}

/// The result of a job.
pub(crate) struct JobResult {
    pub(crate) run: Run,
    /// `None` if its format is not read here.
    pub(crate) stacks: Option<Vec<Stack>>,
}

impl ToolName {
    /// All profilers but this project's.
    pub(crate) const PEERS: [Self; 6] =
        [Self::Perf, Self::ProfileBpfcc, Self::Bpftrace, Self::ProfileBee, Self::Samply, Self::Lightswitch];

    pub(crate) fn program(self) -> &'static str {
        match self {
            Self::Profiler => "profiler",
            Self::Perf => "perf",
            Self::ProfileBpfcc => "profile-bpfcc",
            Self::Bpftrace => "bpftrace",
            Self::ProfileBee => "probee",
            Self::Samply => "samply",
            Self::Lightswitch => "lightswitch",
        }
    }

    /// The name of the profiler, which may differ from the name of its program.
    pub(crate) fn name(self) -> &'static str {
        if self == Self::ProfileBee { "profile-bee" } else { self.program() }
    }

    /// The name with its options.
    pub(crate) fn title(self, options: &str) -> String {
        let with = |name: &str| format!("{name} {options}").trim_end().to_owned();
        match self {
            Self::Profiler => with("**profiler**"),
            Self::Perf => format!("perf record {options}, perf script"),
            name => with(name.name()),
        }
    }

    /// Unwinding by frame pointers if it can choose; the defaults for this project's profiler.
    fn options(self) -> &'static str {
        if self == Self::Perf { "-g" } else { "" }
    }
}

impl Tool {
    pub(crate) fn new(name: ToolName, program: PathBuf) -> Self {
        Self { name, options: name.options(), program: Some(program) }
    }

    pub(crate) fn find(name: ToolName) -> Self {
        let installed = setup::peers_folder().join("bin").join(name.program());
        let program = if installed.is_file() { Some(installed) } else { shell::find(name.program()) };
        Self { name, options: name.options(), program }
    }

    /// The same profiler with other options.
    pub(crate) fn with_options(&self, options: &'static str) -> Self {
        Self { options, ..self.clone() }
    }

    /// The path of its program.
    ///
    /// # Errors
    /// It is not installed.
    pub(crate) fn program(&self) -> Result<&Path> {
        self.program.as_deref().ok_or_else(|| anyhow!("not installed (`cargo xtask setup --bench`)"))
    }

    /// Runs a job, including symbolization.
    pub(crate) fn work(&self, job: &Job<'_>) -> Result<JobResult> {
        let program = self.program()?;
        let output = job.folder.join(self.name.program()).with_extension("output");
        let mut record = self.record(program, job)?;
        // Its option for a time is ignored for a process that already runs.
        let end = if self.name == ToolName::Samply { End::Interrupt } else { End::Itself };
        let mut run = run::measure(&mut record, Duration::from_secs(job.seconds), end, &output)?;
        if self.name == ToolName::Perf {
            script(program, job, &output, &mut run)?;
        }
        Ok(JobResult { run, stacks: self.stacks(job, &output)? })
    }

    /// `None` if the format is not read here.
    fn stacks(&self, job: &Job<'_>, output: &Path) -> Result<Option<Vec<Stack>>> {
        let text = fs::read_to_string(output).unwrap_or_default();
        let parse: fn(&str) -> Vec<Stack> = match self.name {
            ToolName::Profiler | ToolName::ProfileBpfcc | ToolName::ProfileBee => stacks::of_folded,
            ToolName::Perf => stacks::of_perf_script,
            ToolName::Bpftrace => stacks::of_bpftrace,
            ToolName::Samply => return samply::stacks(job.folder).map(Some),
            ToolName::Lightswitch => {
                // On a kernel without modules it continues although nothing can be shown.
                ensure!(!text.contains("No stack counts found"), "it found no stacks");
                return Ok(None);
            }
        };
        Ok(Some(parse(&text)))
    }

    fn record(&self, program: &Path, job: &Job<'_>) -> Result<Command> {
        let Job { frequency_hz, seconds, .. } = job;
        let options = self.options;
        let pid = job.pid.map(|pid| pid.to_string());
        let mut command = match self.name {
            ToolName::ProfileBee | ToolName::Lightswitch => with_tracefs(program),
            _ => Command::new(program),
        };
        command.current_dir(job.folder);
        let arguments = match (self.name, pid) {
            // Its log has the times at which sampling begins and ends.
            (ToolName::Profiler, None) => format!("-vv -a -F {frequency_hz} -d {seconds} {options}"),
            (ToolName::Profiler, Some(pid)) => {
                format!("-vv -p {pid} -F {frequency_hz} -d {seconds} {options}")
            }
            (ToolName::Perf, pid) => {
                let target = pid.map_or_else(|| "-a".to_owned(), |pid| format!("-p {pid}"));
                format!(
                    "record -q -e cpu-clock -F {frequency_hz} {target} -o perf.data {options} -- sleep {seconds}"
                )
            }
            (_, None) => return Err(anyhow!("not asked for every process")),
            (ToolName::ProfileBpfcc, Some(pid)) => format!("-F {frequency_hz} -p {pid} -f {seconds}"),
            (ToolName::Bpftrace, Some(pid)) => {
                command.args(["-e", &bpftrace_program(&pid, *frequency_hz, *seconds)]);
                String::new()
            }
            (ToolName::ProfileBee, Some(pid)) => {
                let milliseconds = seconds * 1000;
                format!(
                    "--pid {pid} --frequency {frequency_hz} --time {milliseconds} --collapse probee.output {options}"
                )
            }
            (ToolName::Samply, Some(pid)) => format!(
                "record --save-only --unstable-presymbolicate -o samply.json -r {frequency_hz} -p {pid}"
            ),
            (ToolName::Lightswitch, Some(pid)) => format!(
                "--pids {pid} --sample-freq {} -D {seconds} --profile-path . --profile-name lightswitch.svg",
                lightswitch_frequency(*frequency_hz)
            ),
        };
        command.args(arguments.split_whitespace());
        Ok(command)
    }
}

fn bpftrace_program(pid: &str, frequency_hz: u64, seconds: u64) -> String {
    format!(
        "profile:hz:{frequency_hz} /pid == {pid}/ {{ @[ustack(127), kstack(127)] = count(); }} \
         interval:s:{seconds} {{ exit(); }}"
    )
}

/// Mounts tracefs for the program alone if it is not mounted, and leaves nothing behind. Some profilers look for it
/// at its older path below debugfs.
pub(crate) fn with_tracefs(program: &Path) -> Command {
    const SCRIPT: &str = "mount -t tracefs tracefs /sys/kernel/tracing; \
                          mount -t debugfs debugfs /sys/kernel/debug; exec \"$0\" \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", SCRIPT]).arg(program);
    command
}

/// It rejects frequencies that are not prime.
fn lightswitch_frequency(frequency_hz: u64) -> u64 {
    match frequency_hz {
        99 => 97,
        999 => 997,
        other => other,
    }
}

/// More than any target has: the default limit of perf would truncate the deepest stacks.
const MAX_FRAMES: &str = "2048";

/// The second step of perf, which symbolizes its recording. Its cost counts for perf.
fn script(program: &Path, job: &Job<'_>, output: &Path, run: &mut Run) -> Result<()> {
    let started = Instant::now();
    let mut command = Command::new(program);
    command
        .args(["script", "-i", "perf.data", "-F", "comm,ip,sym", "--no-inline", "--max-stack", MAX_FRAMES])
        .current_dir(job.folder);
    let ended =
        command.stdout(fs::File::create(output)?.into_file()).stderr(Stdio::null()).spawn()?.wait4()?;
    ensure!(ended.status.success(), "perf script: {}", ended.status);
    run.post += started.elapsed();
    let cpu = ended.rusage.utime + ended.rusage.stime;
    run.cpu += cpu;
    run.settled_cpu += cpu;
    run.peak_bytes = run.peak_bytes.max(ended.rusage.maxrss);
    Ok(())
}
