//! One run of a profiler, measured from outside in the same way for each of them.

use std::{
    fs::{self, File},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant, UNIX_EPOCH},
};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{
        Pid, PidfdFlags, Signal, getpriority_process, pidfd_open, pidfd_send_signal, setpriority_process,
    },
};
use wait4::Wait4 as _;

use super::{log, run_time, target::cpu_time};

/// How often a starting profiler is asked whether it has opened an event.
const ARM_POLL: Duration = Duration::from_micros(250);
/// How often a profiler is asked for its peak memory once it has stopped sampling.
const MEMORY_POLL: Duration = Duration::from_millis(2);
/// What a profiler may take beyond the time it samples.
const PATIENCE: Duration = Duration::from_secs(60);
/// The part of the time it samples after which its BPF programs are asked how long they ran, and it for its memory.
const LAST_LOOK: f64 = 0.9;

/// Where, in a time of sampling, a profiler has done what it does once.
pub(super) fn settled_after(sampling: Duration) -> Duration {
    const LONGEST: Duration = Duration::from_secs(2);
    LONGEST.min(sampling / 2)
}

/// What one run took.
#[derive(Clone, Debug)]
pub(super) struct Run {
    /// User and system time of the profiler and its children.
    pub(super) cpu: Duration,
    /// The part of it after the first seconds.
    pub(super) settled_cpu: Duration,
    /// The most memory any of its processes had, in bytes.
    pub(super) peak_bytes: u64,
    /// From its start to the first event that is open; `None` when none was seen.
    pub(super) arm: Option<Duration>,
    /// From the first event open to the end of the process, without the time of sampling.
    pub(super) post: Duration,
    /// When it was started, since the epoch.
    started: Duration,
    /// From its start to its end.
    took: Duration,
    /// What its BPF programs ran in a second of sampling; `None` when it has none.
    pub(super) run_time_a_second: Option<Duration>,
    /// What it wrote to standard error.
    pub(super) messages: String,
}

impl Run {
    /// From its start until it said these words in its log.
    pub(super) fn time_to(&self, words: &str) -> Option<Duration> {
        log::time_to(&self.messages, words, self.started)
    }

    /// From the end of its sampling, which it says in its log, to its own.
    pub(super) fn end(&self) -> Option<Duration> {
        self.took.checked_sub(self.time_to("sampling ends")?)
    }
}

/// What ends the sampling of a profiler.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// It looks at the clock itself.
    Itself,
    /// It waits for Ctrl-C.
    Interrupt,
}

/// Runs `command`, which samples for a time and writes to `output`.
pub(super) fn run(command: &mut Command, sampling: Duration, end: End, output: &Path) -> Result<Run> {
    let messages = output.with_extension("messages");
    command.stdin(Stdio::null()).stdout(File::create(output)?).stderr(File::create(&messages)?);
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
    let _priority = Priority::above_all()?;
    watch.to_the_end(child, &messages)
}

/// Who watches looks in time, however busy the machine is; what it starts later does not go first.
struct Priority {
    before: i32,
}

impl Priority {
    fn above_all() -> Result<Self> {
        const HIGHEST: i32 = -20;
        let before = getpriority_process(None)?;
        setpriority_process(None, HIGHEST).context("failed to raise the priority: root is needed")?;
        Ok(Self { before })
    }
}

impl Drop for Priority {
    fn drop(&mut self) {
        // Nobody is refused to step back.
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
    fn to_the_end(&self, mut child: Child, messages: &Path) -> Result<Run> {
        let arm = self.arm()?;
        let sampling_started = self.started + arm.unwrap_or_default();
        self.wait_until(sampling_started + settled_after(self.sampling))?;
        let start_cpu = cpu_time(self.pid).unwrap_or_default();
        // Before the end, after which the programs are gone.
        self.wait_until(sampling_started + self.sampling.mul_f64(LAST_LOOK))?;
        let run_time_a_second = run_time::of_process(self.pid)
            .map(|run_time| run_time.div_f64(self.sampling.as_secs_f64() * LAST_LOOK));
        let last_seen_bytes = polled_peak_bytes(self.pid).unwrap_or(0);
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
            arm,
            post,
            started: self.started_since_epoch,
            took,
            run_time_a_second,
            messages,
        })
    }

    /// Waits for the first event. A profiler without one within the time it samples has none.
    fn arm(&self) -> Result<Option<Duration>> {
        let descriptors = PathBuf::from(format!("/proc/{}/fd", self.pid));
        while self.started.elapsed() < self.sampling {
            let files = fs::read_dir(&descriptors).into_iter().flatten().flatten();
            let mut links = files.filter_map(|file| fs::read_link(file.path()).ok());
            if links.any(|link| link.as_os_str() == "anon_inode:[perf_event]") {
                return Ok(Some(self.started.elapsed()));
            }
            if self.wait_until(Instant::now() + ARM_POLL)? {
                break;
            }
        }
        Ok(None)
    }

    /// Waits for the end; the peak memory as seen until shortly before.
    fn peak_until_end(&self, child: &mut Child) -> Result<u64> {
        let deadline = Instant::now() + PATIENCE;
        let mut peak = 0;
        loop {
            peak = peak.max(polled_peak_bytes(self.pid).unwrap_or(0));
            if self.wait_until(Instant::now() + MEMORY_POLL)? {
                return Ok(peak);
            }
            if Instant::now() > deadline {
                child.kill()?;
                child.wait()?;
                bail!("it had not ended {PATIENCE:?} after its time");
            }
        }
    }

    /// Whether it has ended by then.
    fn wait_until(&self, time: Instant) -> Result<bool> {
        let timeout = Timespec::try_from(time.saturating_duration_since(Instant::now()))?;
        Ok(poll(&mut [PollFd::new(&self.descriptor, PollFlags::IN)], Some(&timeout))? > 0)
    }
}

/// The kernel's own figure counts from fork on: below this process's memory it says nothing.
fn peak_bytes(polled: u64, of_usage: u64) -> u64 {
    let own = polled_peak_bytes(std::process::id()).unwrap_or(0);
    if of_usage > own { of_usage } else { polled }
}

fn polled_peak_bytes(pid: u32) -> Option<u64> {
    const BYTES_PER_KB: u64 = 1024;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * BYTES_PER_KB)
}

/// The line that says most likely why it failed: the first that sounds like it, or the last.
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
    fn the_reason_is_the_line_that_sounds_like_one() {
        let trace =
            "modprobe: not found\nUnable to find kernel headers.\nTraceback:\n  File x\nException: y\n";
        assert_eq!(reason(trace), "Unable to find kernel headers.");
        assert_eq!(reason("first\n\n last \n\n"), "last");
        assert_eq!(reason(""), "it said nothing");
    }
}
