//! A running session: a reader thread drains the kernel's ring buffers, a pipeline thread symbolizes and builds profiles.

mod account;
mod after_target;
mod batch_queue;
#[cfg(feature = "capture")]
pub(crate) mod capture;
#[cfg(not(feature = "capture"))]
#[path = "no_capture.rs"]
mod capture;
mod debug_directories;
mod interval;
mod intervals;
mod measures;
mod memory_shortage;
mod message;
mod named_process;
mod pipeline;
mod poll;
mod poll_readings;
mod polled_intervals;
mod polling_interval;
mod pre_exec;
mod probe_places;
mod profile_assembler;
mod reader;
mod retained_stacks;
mod sample_events;
#[cfg(feature = "testing")]
pub mod simulation;
mod start;
mod symbolizer;
mod target;
#[cfg(test)]
mod test_symbolizer;
mod threads;
mod unwinding;
mod wait_partners;
mod wait_readings;

use std::{
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use profiler_binary_reader::WorkBudget;
use profiler_blocking::Deadline;
use profiler_profile::{Cost, Header, Profile};
use profiler_symbolize::symbol_server::{Download, SymbolServers};
use rustix::event::{PollFd, PollFlags, poll};

pub use self::intervals::Intervals;
pub use self::memory_shortage::MemoryShortage;
pub use self::polled_intervals::PolledIntervals;
pub(crate) use self::start::start;
pub use self::target::MeasuredTarget;
use self::target::TargetWatch;
pub(crate) use self::target::find_target;
pub use self::wait_partners::analyze_running;
pub(crate) use self::{debug_directories::debug_file_directories, symbolizer::new_symbolizer};
use crate::{
    error::{Error, ErrorKind, Result},
    sys::usage::cpu_time,
};

/// After the end of sampling, operations that targets block are given up after this time.
const MAX_BLOCKED_TIME: Duration = Duration::from_millis(500);

/// After the end of sampling, reading symbols takes at most this CPU time.
const MAX_SYMBOL_TIME: Duration = Duration::from_millis(1500);

/// A running session. Dropping it detaches the BPF programs and removes everything that it has created.
///
/// ```no_run
/// # #[cfg(feature = "formats")] {
/// use std::time::Duration;
/// use profiler::{Format, Profiler, Target};
///
/// let session = Profiler::builder().target(Target::Pid(1234)).build()?.start()?;
/// let profile = session.run_for(Duration::from_secs(10))?;
/// Format::Folded.write(&profile, std::io::stdout().lock())?;
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Session {
    shared: Arc<Shared>,
    requests: Sender<Request>,
    reader: Option<JoinHandle<()>>,
    pipeline: Option<JoinHandle<()>>,
    watch: TargetWatch,
    command: Option<std::process::Child>,
    servers: Option<Arc<SymbolServers>>,
    /// What reading symbols may cost. `None`, without a limit, with symbol servers, whose files are read at the end,
    /// and for a replay.
    symbol_budget: Option<Arc<WorkBudget>>,
    header: Header,
    adjustment: Adjustment,
    /// The frequency of CPU samples at the start, for which the maps have their sizes; `None` where it cannot change.
    max_frequency_hz: Option<u64>,
    /// The CPUs that are sampled; empty where these are all.
    selected_cpus: Vec<u32>,
    started: Instant,
}

/// State that the threads of a session share.
#[derive(Debug)]
struct Shared {
    /// Wakes the reader for a request.
    reader_waker: Arc<OwnedFd>,
    /// Wakes [`Session::wait`].
    end_waker: OwnedFd,
    stop: AtomicBool,
    exhausted: AtomicBool,
    samples: AtomicU64,
    lost: AtomicU64,
    memory_shortage: MemoryShortage,
    /// The deadline of operations of the pipeline that a target can block.
    pipeline_deadline: Deadline,
    /// The first error of a thread.
    failure: Mutex<Option<Error>>,
}

/// What changes at the end of an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Adjustment {
    /// The frequency of CPU samples from then on, hertz.
    pub(crate) frequency_hz: Option<u64>,
    /// Whether the stacks that are kept for later samples are evicted.
    pub(crate) evicts_stacks: bool,
}

/// A request for a profile, for measures, or for both.
#[derive(Debug)]
struct Request {
    parts: Parts,
    header: Header,
    adjustment: Adjustment,
    is_last: bool,
    /// Whether the target has ended before the request.
    target_has_ended: bool,
    /// Whether a [`Stopper`] had ended sampling before the request: using it again skips waiting for symbols.
    was_stopped: bool,
    reply: Sender<Taken>,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parts {
    /// The profile of the samples since the last one.
    Profile,
    /// The runtime events and the occurrences of counted events since they were taken last, without stacks: the interval of the
    /// next profile goes on.
    Measures,
    /// Both, up to the same time. The profile is joined with others, and has no findings.
    ProfileAndMeasures,
}

impl Parts {
    fn has_profile(self) -> bool {
        self != Self::Measures
    }

    fn has_measures(self) -> bool {
        self != Self::Profile
    }

    fn has_findings(self) -> bool {
        self == Self::Profile
    }
}

/// The reply to a [`Request`]: those of its parts.
#[derive(Debug, Default)]
struct Taken {
    profile: Option<Profile>,
    measures: Option<Profile>,
}

/// Why [`Session::wait`] returned.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The time limit was reached.
    Elapsed,
    /// The target process, or the command that was started, has exited.
    TargetExited,
    /// A [`Stopper`] was used.
    Stopped,
    /// A capture was replayed to its end, or sampling failed, which [`Session::stop`] reports.
    Exhausted,
}

/// Counts of samples since the start of a session.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Samples taken.
    pub samples: u64,
    /// Samples lost.
    pub lost: u64,
}

/// Shows downloads from symbol servers to another thread while the session ends.
#[derive(Clone, Debug)]
pub struct Downloads {
    servers: Arc<SymbolServers>,
}

impl Downloads {
    /// The download in progress.
    #[must_use]
    pub fn current(&self) -> Option<Download> {
        self.servers.download()
    }
}

/// Ends [`Session::wait`] from another thread.
#[derive(Clone, Debug)]
pub struct Stopper {
    shared: Arc<Shared>,
}

impl Stopper {
    /// Makes [`Session::wait`] return [`Ended::Stopped`].
    pub fn stop(&self) {
        self.shared.stop.store(true, Ordering::Release);
        wake(&self.shared.end_waker);
    }
}

impl Session {
    /// Samples for `duration`, or until the target exits, and stops.
    ///
    /// # Errors
    /// The first error of a thread of the session.
    pub fn run_for(mut self, duration: Duration) -> Result<Profile> {
        self.wait(Some(duration));
        self.stop()
    }

    /// Samples until the target exits or a [`Stopper`] is used, and stops.
    ///
    /// # Errors
    /// The first error of a thread of the session.
    pub fn run(mut self) -> Result<Profile> {
        self.wait(None);
        self.stop()
    }

    /// Waits for the time limit, the exit of the target, or a [`Stopper`], whichever comes first.
    pub fn wait(&mut self, limit: Option<Duration>) -> Ended {
        // `None`, no deadline, where the sum overflows.
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        loop {
            if self.shared.stop.load(Ordering::Acquire) {
                return Ended::Stopped;
            }
            if self.shared.exhausted.load(Ordering::Acquire) {
                return Ended::Exhausted;
            }
            if self.watch.have_all_ended() {
                return Ended::TargetExited;
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ended::Elapsed;
            }
            self.sleep(left);
        }
    }

    /// Stops sampling and returns the profile.
    ///
    /// # Errors
    /// The first error of a thread of the session.
    pub fn stop(mut self) -> Result<Profile> {
        profile_of(self.take(Parts::Profile, true)?)
    }

    /// As [`stop`](Self::stop): the profile, without findings, and the measures since [`take_measures`](Self::take_measures).
    ///
    /// # Errors
    /// The first error of a thread of the session.
    pub fn stop_with_measures(mut self) -> Result<(Profile, Profile)> {
        both_of(self.take(Parts::ProfileAndMeasures, true)?)
    }

    /// Waits for `interval` and returns a profile of it; sampling continues. The profiles of consecutive calls contain
    /// each sample once.
    ///
    /// # Errors
    /// The first error of a thread of the session.
    pub fn take_profile(&mut self, interval: Duration) -> Result<Profile> {
        self.wait(Some(interval));
        profile_of(self.take(Parts::Profile, false)?)
    }

    /// The profiles of consecutive intervals of this length, until the target exits or a [`Stopper`] is used. A length below a
    /// millisecond is one.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use profiler::{Profiler, Target};
    /// let session = Profiler::builder().target(Target::Pid(1234)).build()?.start()?;
    /// for profile in session.intervals(Duration::from_secs(1)) {
    ///     for sample in profile?.sample_views() {
    ///         println!("{:?} {:?}", sample.time(), sample.stack());
    ///     }
    /// }
    /// # Ok::<(), profiler::Error>(())
    /// ```
    #[must_use = "intervals are sampled as they are taken"]
    pub fn intervals(self, period: Duration) -> Intervals {
        Intervals::new(self, period)
    }

    /// As [`intervals`](Self::intervals), from a thread of their own, for a program that polls a file descriptor or awaits a stream.
    ///
    /// # Errors
    /// When no thread or file descriptor can be created.
    pub fn polled_intervals(self, period: Duration) -> Result<PolledIntervals> {
        PolledIntervals::new(self.intervals(period))
    }

    /// The runtime events since the last call, without their stacks, and a sample of each counted event with the sum of its
    /// values since then. The interval of the next profile, which has them as well, goes on.
    ///
    /// # Errors
    /// The first error of a thread of the session.
    pub fn take_measures(&mut self) -> Result<Profile> {
        self.take(Parts::Measures, false)?.measures.ok_or_else(ended_without_reply)
    }

    /// As [`take_profile`](Self::take_profile) and [`take_measures`](Self::take_measures), up to the same time. The profile has
    /// no findings.
    ///
    /// # Errors
    /// The first error of a thread of the session.
    pub fn take_profile_and_measures(&mut self) -> Result<(Profile, Profile)> {
        both_of(self.take(Parts::ProfileAndMeasures, false)?)
    }

    /// Changes the frequency of CPU samples, hertz, from the end of the interval of the next profile on. A profile has samples of
    /// one frequency alone. 0 takes no CPU sample; the frequency of the [`Builder`](crate::Builder) is the highest. A session
    /// without CPU samples is not changed.
    pub fn set_frequency_hz(&mut self, frequency_hz: u64) {
        self.adjustment.frequency_hz = self.max_frequency_hz.map(|max_hz| frequency_hz.min(max_hz));
    }

    /// The highest frequency of CPU samples, hertz: the frequency of the [`Builder`](crate::Builder). `None` for a session without
    /// CPU samples.
    #[must_use]
    pub fn max_frequency_hz(&self) -> Option<u64> {
        self.max_frequency_hz
    }

    /// Evicts the stacks that are kept for later samples, at the end of the interval of the next profile: they take memory, and
    /// are sent again when they are sampled again.
    pub fn evict_stacks(&mut self) {
        self.adjustment.evicts_stacks = true;
    }

    /// The flag by which another thread makes this session use less memory.
    pub fn memory_shortage(&self) -> MemoryShortage {
        self.shared.memory_shortage.clone()
    }

    /// Whether the target, or the command that was started, has exited. From then on
    /// [`take_profile`](Self::take_profile) returns at once.
    #[must_use]
    pub fn target_has_ended(&self) -> bool {
        self.watch.have_all_ended()
    }

    /// The number of samples so far.
    #[must_use]
    pub fn progress(&self) -> Progress {
        Progress {
            samples: self.shared.samples.load(Ordering::Relaxed),
            lost: self.shared.lost.load(Ordering::Relaxed),
        }
    }

    /// The time since sampling began.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// A handle that ends [`wait`](Self::wait) from another thread.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper { shared: Arc::clone(&self.shared) }
    }

    /// Downloads from symbol servers; `None` if no symbol server is configured. [`stop`](Self::stop) waits for them,
    /// at most half a minute, or until a [`Stopper`] is used meanwhile.
    #[must_use]
    pub fn downloads(&self) -> Option<Downloads> {
        self.servers.clone().map(|servers| Downloads { servers })
    }

    /// The target, where the kernel measures its resources as one: no several processes, and no threads.
    pub fn measured_target(&self) -> Option<MeasuredTarget<'_>> {
        self.watch.measured()
    }

    /// The process id of the command that was started, for [`Target::Command`](crate::Target::Command).
    #[must_use]
    pub fn command_pid(&self) -> Option<u32> {
        self.command.as_ref().map(std::process::Child::id)
    }

    /// Takes the process of the command out of the session, to wait for its exit after sampling.
    pub fn take_command(&mut self) -> Option<std::process::Child> {
        self.command.take()
    }

    /// Sleeps until one of the conditions of [`wait`](Self::wait) may hold.
    fn sleep(&self, left: Option<Duration>) {
        let limit = match (left, self.watch.poll_interval()) {
            (Some(left), Some(interval)) => Some(left.min(interval)),
            (left, interval) => left.or(interval),
        };
        let mut fds = vec![PollFd::new(&self.shared.end_waker, PollFlags::IN)];
        fds.extend(self.watch.pidfd().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let timeout = limit.and_then(|limit| rustix::event::Timespec::try_from(limit).ok());
        // The caller checks its conditions again after any outcome.
        let _ = poll(&mut fds, timeout.as_ref());
    }

    fn take(&mut self, parts: Parts, is_last: bool) -> Result<Taken> {
        let (reply, taken) = channel();
        let was_stopped = self.shared.stop.load(Ordering::Acquire);
        // It is of the next profile.
        let adjustment =
            if parts.has_profile() { std::mem::take(&mut self.adjustment) } else { Adjustment::default() };
        let header = self.header.clone();
        let target_has_ended = self.watch.have_all_ended();
        let request = Request { parts, header, adjustment, is_last, target_has_ended, was_stopped, reply };
        if is_last && self.progress().samples == 0 && !target_has_ended {
            after_target::warn_of_other_cpus(&self.watch, &self.selected_cpus);
        }
        if is_last {
            // `cargo xtask bench` reads this line.
            log::debug!("sampling ends");
            self.shared.pipeline_deadline.set(Instant::now() + MAX_BLOCKED_TIME);
            if let Some(budget) = &self.symbol_budget {
                budget.limit_time(MAX_SYMBOL_TIME);
            }
        }
        let taken = self.request(request, &taken);
        if is_last {
            self.join();
        }
        if let Some(error) = self.shared.take_failure() {
            return Err(error);
        }
        let mut taken = taken.ok_or_else(ended_without_reply)?;
        taken.profile.iter_mut().for_each(|profile| profile.set_cost(process_cost()));
        Ok(taken)
    }

    fn request(&self, request: Request, reply: &Receiver<Taken>) -> Option<Taken> {
        self.requests.send(request).ok()?;
        wake(&self.shared.reader_waker);
        reply.recv().ok()
    }

    fn join(&mut self) {
        for thread in [self.reader.take(), self.pipeline.take()].into_iter().flatten() {
            if thread.join().is_err() {
                self.shared.fail(Error::new(ErrorKind::Io, "a thread of the session panicked"));
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let (requests, _) = channel();
        self.shared.pipeline_deadline.set(Instant::now());
        // The reader ends when no sender of requests is left, and the pipeline after it.
        self.requests = requests;
        wake(&self.shared.reader_waker);
        self.join();
    }
}

impl Shared {
    fn new() -> Result<Self> {
        Ok(Self {
            reader_waker: Arc::new(new_waker()?),
            end_waker: new_waker()?,
            stop: AtomicBool::new(false),
            exhausted: AtomicBool::new(false),
            samples: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            memory_shortage: MemoryShortage::default(),
            pipeline_deadline: Deadline::default(),
            failure: Mutex::new(None),
        })
    }

    /// Reports that no more samples will come.
    fn set_exhausted(&self) {
        self.exhausted.store(true, Ordering::Release);
        wake(&self.end_waker);
    }

    /// Keeps the first failure.
    fn fail(&self, error: Error) {
        if let Ok(mut failure) = self.failure.lock() {
            failure.get_or_insert(error);
        }
    }

    fn take_failure(&self) -> Option<Error> {
        self.failure.lock().ok()?.take()
    }
}

fn profile_of(taken: Taken) -> Result<Profile> {
    taken.profile.ok_or_else(ended_without_reply)
}

fn both_of(taken: Taken) -> Result<(Profile, Profile)> {
    taken.profile.zip(taken.measures).ok_or_else(ended_without_reply)
}

fn ended_without_reply() -> Error {
    Error::new(ErrorKind::Io, "the session's threads ended without a profile")
}

fn new_waker() -> Result<OwnedFd> {
    use rustix::event::{EventfdFlags, eventfd};
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
        .map_err(|error| Error::with_source(ErrorKind::Io, "failed to create an eventfd", error))
}

fn wake(waker: &OwnedFd) {
    // A write fails only if the counter is full; then the wake-up is already pending.
    let _ = rustix::io::write(waker, &1_u64.to_ne_bytes());
}

/// Resets pending wake-ups, so that the next poll blocks.
fn reset_waker(waker: &OwnedFd) {
    let mut count = [0; 8];
    let _ = rustix::io::read(waker, &mut count);
}

/// The resources that the profiler's process has used since its start.
fn process_cost() -> Cost {
    let cpu = cpu_time();
    // Not from getrusage(2), whose peak is inherited through fork and exec.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    Cost {
        bpf_run_time_ns: 0,
        user_cpu_ns: cpu.user_ns,
        system_cpu_ns: cpu.system_ns,
        peak_memory_bytes: peak_memory_bytes(&status),
    }
}

fn peak_memory_bytes(status: &str) -> u64 {
    const BYTES_PER_KB: u64 = 1024;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()).unwrap_or(0)
        * BYTES_PER_KB
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_of_this_process_is_measured() {
        let cost = process_cost();
        assert!(cost.peak_memory_bytes > 1 << 20);
        assert_eq!(peak_memory_bytes("VmHWM:\t    12 kB\n"), 12 * 1024);
        assert_eq!(peak_memory_bytes(""), 0);
    }
}
