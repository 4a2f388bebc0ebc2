//! Runs a profiler on the threads and counts its samples between two readings of their CPU time.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use fs_err as fs;
use rustix::time::{ClockId, clock_gettime};

use super::{
    load::{Load, Sleepers},
    ratios::Counted,
};
use crate::{
    bench::tool::Tool,
    process::{self, OwnedChild},
    shell,
};

/// A profiler samples for so much longer than the window, so that it ends after the window.
const MARGIN: Duration = Duration::from_millis(1_500);

/// A profiler and what it attaches its timers to.
#[derive(Clone)]
pub(super) struct Sampler {
    pub(super) tool: Tool,
    pub(super) timers: Timers,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Timers {
    Profiler,
    /// One on each CPU.
    PerfOfMachine,
    /// One for each thread.
    PerfOfThreads,
    /// One on each CPU.
    Bpftrace,
}

impl Sampler {
    pub(super) fn title(&self) -> &'static str {
        match self.timers {
            Timers::Profiler => "**profiler** -p",
            Timers::PerfOfMachine => "perf record -a",
            Timers::PerfOfThreads => "perf record -p",
            Timers::Bpftrace => "bpftrace",
        }
    }

    /// Counts the samples of the threads in a window of this length.
    pub(super) fn run(
        &self,
        sleepers: &Sleepers,
        load: &Load,
        seconds: u64,
        folder: &Path,
    ) -> Result<Counted> {
        let window = Duration::from_secs(seconds);
        let mut running = self.start(Some(sleepers.pid()), load.frequency_hz, window + MARGIN, folder)?;
        let before = Reading::now(sleepers)?;
        thread::sleep(window);
        let after = Reading::now(sleepers)?;
        ensure!(running.child.try_wait()?.is_none(), "it ended before its time");
        running.finish()?;
        let times = self.sample_times(sleepers.pid(), &running.output, folder)?;
        let cpu_seconds = (after.cpu - before.cpu).as_secs_f64();
        let cpus = thread::available_parallelism()?.get() as f64;
        Ok(Counted {
            samples: times.iter().filter(|time| (before.time..after.time).contains(time)).count(),
            cpu_seconds,
            busy: cpu_seconds / (after.time - before.time) / cpus,
        })
    }

    /// Starts to sample a process or the whole machine for `time`, and returns when the timers run.
    pub(super) fn start(
        &self,
        pid: Option<u32>,
        frequency_hz: u64,
        time: Duration,
        folder: &Path,
    ) -> Result<Running> {
        let (output, messages) = (folder.join("bias.output"), folder.join("bias.messages"));
        let mut command = self.command(pid, frequency_hz, time)?;
        command.current_dir(folder).stdin(Stdio::null());
        command
            .stdout(fs::File::create(&output)?.into_file())
            .stderr(fs::File::create(&messages)?.into_file());
        let child =
            OwnedChild::spawn(&mut command).with_context(|| format!("failed to start {}", self.title()))?;
        let mut running = Running { child, output, messages };
        running.wait_for(self.begins())?;
        Ok(running)
    }

    fn command(&self, pid: Option<u32>, frequency_hz: u64, time: Duration) -> Result<Command> {
        let seconds = time.as_secs_f64();
        let mut command = Command::new(self.tool.program()?);
        let target = pid.map_or_else(|| "-a".to_owned(), |pid| format!("-p {pid}"));
        let perf =
            |target: &str| format!("record -q -e cpu-clock -F {frequency_hz} -k CLOCK_MONOTONIC {target}");
        match self.timers {
            Timers::Profiler => {
                let arguments =
                    format!("-vv {target} -F {frequency_hz} -d {seconds} --format perf-script -o -");
                return Ok(with_arguments(command, &arguments));
            }
            Timers::PerfOfMachine => command = with_arguments(command, &perf("-a")),
            Timers::PerfOfThreads => command = with_arguments(command, &perf(&target)),
            Timers::Bpftrace => {
                let filter = pid.map_or_else(|| "true".to_owned(), |pid| format!("pid == {pid}"));
                let milliseconds = time.as_millis();
                let program = format!(
                    "profile:hz:{frequency_hz} /{filter}/ {{ printf(\"%llu\\n\", nsecs); }} \
                     interval:ms:50 {{ printf(\"{TIMERS_RUN}\\n\"); }} interval:ms:{milliseconds} {{ exit(); }}"
                );
                command.args(["-B", "line", "-e", &program]);
                return Ok(command);
            }
        }
        // perf starts its timers before this command.
        let script = format!("echo {TIMERS_RUN}; exec sleep {seconds}");
        command.args(["-o", "bias.data", "--", "sh", "-c", &script]);
        Ok(command)
    }

    /// The text in its output or messages which shows that the timers run.
    fn begins(&self) -> &'static str {
        if self.timers == Timers::Profiler { "sampling begins" } else { TIMERS_RUN }
    }

    /// The times of its samples of process `pid`, in seconds of `CLOCK_MONOTONIC`.
    fn sample_times(&self, pid: u32, output: &Path, folder: &Path) -> Result<Vec<f64>> {
        const NS_PER_S: f64 = 1e9;
        match self.timers {
            Timers::Profiler => Ok(perf_script_times(&fs::read_to_string(output)?)),
            Timers::PerfOfMachine | Timers::PerfOfThreads => {
                let mut script = Command::new(self.tool.program()?);
                script.args(["script", "-i", "bias.data", "-F", "time", "--ns", "--pid", &pid.to_string()]);
                Ok(perf_script_times(&shell::read(script.current_dir(folder))?))
            }
            Timers::Bpftrace => {
                let text = fs::read_to_string(output)?;
                Ok(text
                    .lines()
                    .filter_map(|line| Some(line.parse::<u64>().ok()? as f64 / NS_PER_S))
                    .collect())
            }
        }
    }
}

/// Printed once the timers of other profilers run.
const TIMERS_RUN: &str = "timers run";

fn with_arguments(mut command: Command, arguments: &str) -> Command {
    command.args(arguments.split_whitespace());
    command
}

/// The times in lines like `comm 12/13 [000] 75332.320114: 10101010 cpu-clock:`. Lines with frames have none.
fn perf_script_times(text: &str) -> Vec<f64> {
    let time = |line: &str| line.split_whitespace().find_map(|word| word.strip_suffix(':')?.parse().ok());
    text.lines().filter_map(time).collect()
}

/// A profiler that samples.
pub(super) struct Running {
    child: OwnedChild,
    output: PathBuf,
    messages: PathBuf,
}

impl Running {
    /// Waits until its output or its messages have a text.
    fn wait_for(&mut self, text: &str) -> Result<()> {
        const LIMIT: Duration = Duration::from_secs(20);
        process::wait_for(LIMIT, "it does not begin to sample", || {
            let has = |file| fs::read_to_string(file).is_ok_and(|content| content.contains(text));
            if [&self.output, &self.messages].into_iter().any(has) {
                return Ok(Some(()));
            }
            ensure!(self.child.try_wait()?.is_none(), "{}", fs::read_to_string(&self.messages)?.trim());
            Ok(None)
        })
    }

    /// Waits for its exit.
    pub(super) fn finish(&mut self) -> Result<()> {
        let status = self.child.wait()?;
        if !status.success() {
            bail!("{status}: {}", fs::read_to_string(&self.messages)?.trim());
        }
        Ok(())
    }
}

/// CPU time at a time.
struct Reading {
    /// Seconds of `CLOCK_MONOTONIC`.
    time: f64,
    cpu: Duration,
}

impl Reading {
    /// Reading the files of many threads takes milliseconds: the time is that in the middle.
    fn now(sleepers: &Sleepers) -> Result<Self> {
        let before = monotonic_seconds();
        let cpu = sleepers.cpu_time()?;
        Ok(Self { time: f64::midpoint(before, monotonic_seconds()), cpu })
    }
}

fn monotonic_seconds() -> f64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_times_are_found_in_outputs_with_and_without_frames() {
        let with_frames =
            "a b 19081/19144 [000] 75332.320114:   10101010 cpu-clock: \n\t 12d8 x::y: (/a)\n\n";
        assert_eq!(perf_script_times(with_frames), [75_332.320_114]);
        assert_eq!(perf_script_times(" 7.000000001: \n8.5: "), [7.000_000_001, 8.5]);
    }
}
