//! Runs a profiler and measures its CPU time, memory, start and end from outside, the same way for each.

use std::{
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant, UNIX_EPOCH},
};

use anyhow::{Context as _, Result, bail, ensure};
use fs_err as fs;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{
        Pid, PidfdFlags, Signal, getpriority_process, pidfd_open, pidfd_send_signal, setpriority_process,
    },
};
use wait4::Wait4 as _;

use super::{log, run_time, target::cpu_time};
use crate::process;

/// The interval of checks whether a starting profiler has opened a perf event.
const FIRST_EVENT_POLL: Duration = Duration::from_micros(250);
/// The interval of memory readings after a profiler has stopped sampling.
const MEMORY_POLL: Duration = Duration::from_millis(2);
/// The longest that a profiler may take beyond its sampling time.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(60);
/// The part of the sampling time after which the run time of its BPF programs and its memory are read.
const LAST_READING: f64 = 0.9;

/// The time after which a profiler has finished its work at the start of a session.
pub(crate) fn settled_after(sampling: Duration) -> Duration {
    const LONGEST: Duration = Duration::from_secs(2);
    LONGEST.min(sampling / 2)
}

/// The measurements of one run.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// User and system time of the profiler and its children.
    pub(crate) cpu: Duration,
    /// The part of the CPU time after [`settled_after`].
    pub(crate) settled_cpu: Duration,
    /// The peak memory of the largest of its processes, in bytes.
    pub(crate) peak_bytes: u64,
    /// From the first open perf event to the exit of the process, without the sampling time.
    pub(crate) post: Duration,
    /// The start time since the epoch.
    started: Duration,
    /// From process start to exit.
    took: Duration,
    /// The run time of its BPF programs per second of sampling. `None` if it has none.
    pub(crate) run_time_a_second: Option<Duration>,
    /// Its standard error.
    pub(crate) messages: String,
}

impl Run {
    /// From process start to the first log line with this text.
    pub(crate) fn time_to(&self, words: &str) -> Option<Duration> {
        log::time_to(&self.messages, words, self.started)
    }

    /// From the end of sampling, by its log, to its exit.
    pub(crate) fn end(&self) -> Option<Duration> {
        self.took.checked_sub(self.time_to("sampling ends")?)
    }
}

/// How the sampling of a profiler is ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// By the profiler itself, after a time.
    Itself,
    /// By Ctrl-C.
    Interrupt,
}

/// Runs `command`, which samples for a time and writes to `output`.
pub(crate) fn measure(command: &mut Command, sampling: Duration, end: End, output: &Path) -> Result<Run> {
    let messages = output.with_extension("messages");
    command
        .stdin(Stdio::null())
        .stdout(fs::File::create(output)?.into_file())
        .stderr(fs::File::create(&messages)?.into_file());
    let (started, started_since_epoch) = (Instant::now(), UNIX_EPOCH.elapsed()?);
    let child = command.spawn().with_context(|| format!("failed to start {:?}", command.get_program()))?;
    let watch = Watch {
        started,
        started_since_epoch,
        sampling,
        end,
        pid: child.id(),
        descriptor: descriptor(child.id())?,
    };
    let _priority = Priority::raise()?;
    watch.measure_until_exit(child, &messages)
}

/// Raises the priority of this process, so that it measures in time on a busy machine; its children start with the
/// normal one.
struct Priority {
    before: i32,
}

impl Priority {
    fn raise() -> Result<Self> {
        const HIGHEST: i32 = -20;
        let before = getpriority_process(None)?;
        setpriority_process(None, HIGHEST).context("failed to raise the priority: root is needed")?;
        Ok(Self { before })
    }
}

impl Drop for Priority {
    fn drop(&mut self) {
        // Lowering the priority is always permitted.
        let _ = setpriority_process(None, self.before);
    }
}

fn descriptor(pid: u32) -> Result<OwnedFd> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).context("a process has an id")?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

struct Watch {
    started: Instant,
    started_since_epoch: Duration,
    sampling: Duration,
    end: End,
    pid: u32,
    descriptor: OwnedFd,
}

impl Watch {
    fn measure_until_exit(&self, mut child: Child, messages: &Path) -> Result<Run> {
        let arm = self.wait_for_first_event()?;
        let sampling_started = self.started + arm.unwrap_or_default();
        self.wait_until(sampling_started + settled_after(self.sampling))?;
        let start_cpu = cpu_time(self.pid).unwrap_or_default();
        // Before the exit, after which the BPF programs are unloaded.
        self.wait_until(sampling_started + self.sampling.mul_f64(LAST_READING))?;
        let run_time_a_second = run_time::of_process(self.pid)
            .map(|run_time| run_time.div_f64(self.sampling.as_secs_f64() * LAST_READING));
        let last_seen_bytes = process::peak_bytes(self.pid).unwrap_or(0);
        if !self.wait_until(sampling_started + self.sampling)? && self.end == End::Interrupt {
            pidfd_send_signal(&self.descriptor, Signal::INT)?;
        }
        let polled_bytes = last_seen_bytes.max(self.peak_until_end(&mut child)?);
        let (took, post) = (self.started.elapsed(), (sampling_started + self.sampling).elapsed());
        let ended = child.wait4()?;
        let messages = fs::read_to_string(messages)?;
        ensure!(ended.status.success(), "{}", reason(&messages));
        let cpu = ended.rusage.utime + ended.rusage.stime;
        Ok(Run {
            cpu,
            settled_cpu: cpu.saturating_sub(start_cpu),
            peak_bytes: peak_bytes(polled_bytes, ended.rusage.maxrss),
            post,
            started: self.started_since_epoch,
            took,
            run_time_a_second,
            messages,
        })
    }

    /// Waits for the first perf event. A profiler without one within its sampling time has none.
    fn wait_for_first_event(&self) -> Result<Option<Duration>> {
        let descriptors = PathBuf::from(format!("/proc/{}/fd", self.pid));
        while self.started.elapsed() < self.sampling {
            let files = fs::read_dir(&descriptors).into_iter().flatten().flatten();
            let mut links = files.filter_map(|file| fs::read_link(file.path()).ok());
            if links.any(|link| link.as_os_str() == "anon_inode:[perf_event]") {
                return Ok(Some(self.started.elapsed()));
            }
            if self.wait_until(Instant::now() + FIRST_EVENT_POLL)? {
                break;
            }
        }
        Ok(None)
    }

    /// Waits for the exit; the peak memory as read shortly before.
    fn peak_until_end(&self, child: &mut Child) -> Result<u64> {
        let deadline = Instant::now() + SHUTDOWN_LIMIT;
        let mut peak = 0;
        loop {
            peak = peak.max(process::peak_bytes(self.pid).unwrap_or(0));
            if self.wait_until(Instant::now() + MEMORY_POLL)? {
                return Ok(peak);
            }
            if Instant::now() > deadline {
                child.kill()?;
                child.wait()?;
                bail!("it had not ended {SHUTDOWN_LIMIT:?} after its time");
            }
        }
    }

    /// Whether the process exits before this time.
    fn wait_until(&self, time: Instant) -> Result<bool> {
        let timeout = Timespec::try_from(time.saturating_duration_since(Instant::now()))?;
        Ok(poll(&mut [PollFd::new(&self.descriptor, PollFlags::IN)], Some(&timeout))? > 0)
    }
}

/// The kernel's own figure counts from fork on, so it is never below the memory of this process.
fn peak_bytes(polled: u64, of_usage: u64) -> u64 {
    let own = process::peak_bytes(std::process::id()).unwrap_or(0);
    if of_usage > own { of_usage } else { polled }
}

/// The line that most likely states why it failed: the first with a typical word, or the last.
fn reason(messages: &str) -> &str {
    const WORDS: [&str; 4] = ["Unable", "rror", "denied", "not permitted"];
    let mut lines = messages.lines().map(str::trim).filter(|line| !line.is_empty());
    let telling = lines.clone().find(|line| WORDS.iter().any(|word| line.contains(word)));
    telling.or_else(|| lines.next_back()).unwrap_or("it said nothing")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_the_first_line_with_a_typical_word() {
        let trace =
            "modprobe: not found\nUnable to find kernel headers.\nTraceback:\n  File x\nException: y\n";
        assert_eq!(reason(trace), "Unable to find kernel headers.");
        assert_eq!(reason("first\n\n last \n\n"), "last");
        assert_eq!(reason(""), "it said nothing");
    }
}
