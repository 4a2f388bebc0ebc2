//! The running thing: a reader thread that empties the kernel's buffers, and a pipeline thread that names.

mod assembly;
mod launcher;
mod outbox;
mod pace;
mod pipeline;
mod priority;
mod reader;
mod start;
mod target;
mod unwinding;

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

use rustix::event::{PollFd, PollFlags, poll};

pub(crate) use self::start::{Settings, start};
pub use self::target::Target;
use self::target::Watched;
use crate::{
    error::{Error, ErrorKind, Result},
    sys::usage::cpu_time,
};
use profiler_profile::{Cost, Header, Profile};
use profiler_symbolize::symbol_server::{Download, SymbolServers};

/// A running session. Dropped, it detaches and leaves nothing behind.
///
/// ```no_run
/// use std::time::Duration;
/// use profiler::{Format, Profiler, Target};
///
/// let session = Profiler::builder().target(Target::Pid(1234)).build()?.start()?;
/// let profile = session.run_for(Duration::from_secs(10))?;
/// profile.write(Format::Folded, std::io::stdout().lock())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Session {
    shared: Arc<Shared>,
    requests: Sender<Request>,
    reader: Option<JoinHandle<()>>,
    pipeline: Option<JoinHandle<()>>,
    watched: Watched,
    command: Option<std::process::Child>,
    servers: Option<Arc<SymbolServers>>,
    header: Header,
    started: Instant,
}

/// What the threads of a session share.
#[derive(Debug)]
struct Shared {
    /// Wakes the reader: it is asked for something.
    reader_waker: Arc<OwnedFd>,
    /// Wakes who waits for the end.
    end_waker: OwnedFd,
    stop: AtomicBool,
    exhausted: AtomicBool,
    samples: AtomicU64,
    lost: AtomicU64,
    /// What went wrong in a thread.
    failure: Mutex<Option<Error>>,
}

/// What the reader is asked for.
#[derive(Debug)]
struct Request {
    header: Header,
    is_last: bool,
    /// Whether a [`Stopper`] has ended sampling: who uses it once more does not want to wait for names.
    was_stopped: bool,
    reply: Sender<Profile>,
}

/// Why waiting came to an end.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The time is over.
    Elapsed,
    /// The target, or the command that was started, has ended.
    TargetExited,
    /// A [`Stopper`] said so.
    Stopped,
    /// A capture was replayed to its end, or sampling failed: [`Session::stop`] tells.
    Exhausted,
}

/// What a session has so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Samples taken.
    pub samples: u64,
    /// Samples lost.
    pub lost: u64,
}

/// What a session downloads from symbol servers, to look at from another thread while the session ends.
#[derive(Clone, Debug)]
pub struct Downloads {
    servers: Arc<SymbolServers>,
}

impl Downloads {
    /// What is downloaded right now.
    #[must_use]
    pub fn current(&self) -> Option<Download> {
        self.servers.download()
    }
}

/// Ends the waiting of a session from another thread or a signal handler's thread.
#[derive(Clone, Debug)]
pub struct Stopper {
    shared: Arc<Shared>,
}

impl Stopper {
    /// Ends it.
    pub fn stop(&self) {
        self.shared.stop.store(true, Ordering::Release);
        wake(&self.shared.end_waker);
    }
}

impl Session {
    /// Samples for a time, or until the target ends, and stops.
    ///
    /// # Errors
    /// What went wrong while sampling.
    pub fn run_for(mut self, duration: Duration) -> Result<Profile> {
        self.wait(Some(duration));
        self.stop()
    }

    /// Samples until the target ends or a [`Stopper`] says so, and stops.
    ///
    /// # Errors
    /// What went wrong while sampling.
    pub fn run(mut self) -> Result<Profile> {
        self.wait(None);
        self.stop()
    }

    /// Waits for the end of the time, of the target, or for a [`Stopper`].
    pub fn wait(&mut self, limit: Option<Duration>) -> Ended {
        let deadline = limit.map(|limit| Instant::now() + limit);
        loop {
            if self.shared.stop.load(Ordering::Acquire) {
                return Ended::Stopped;
            }
            if self.shared.exhausted.load(Ordering::Acquire) {
                return Ended::Exhausted;
            }
            if self.watched.have_all_ended() {
                return Ended::TargetExited;
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ended::Elapsed;
            }
            self.sleep(left);
        }
    }

    /// Stops sampling and hands over the profile.
    ///
    /// # Errors
    /// What went wrong while sampling.
    pub fn stop(mut self) -> Result<Profile> {
        self.profile(true)
    }

    /// Waits for a time and hands over the profile of it; sampling goes on. The profiles of consecutive calls
    /// hold each sample once.
    ///
    /// # Errors
    /// What went wrong while sampling.
    pub fn take_profile(&mut self, interval: Duration) -> Result<Profile> {
        self.wait(Some(interval));
        self.profile(false)
    }

    /// Whether the target, or the command that was started, has ended: from then on
    /// [`take_profile`](Self::take_profile) does not wait any more.
    #[must_use]
    pub fn target_has_ended(&self) -> bool {
        self.watched.have_all_ended()
    }

    /// What there is so far.
    #[must_use]
    pub fn progress(&self) -> Progress {
        Progress {
            samples: self.shared.samples.load(Ordering::Relaxed),
            lost: self.shared.lost.load(Ordering::Relaxed),
        }
    }

    /// How long it has been sampling.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// A handle that ends [`wait`](Self::wait) from elsewhere.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper { shared: Arc::clone(&self.shared) }
    }

    /// What is downloaded, where symbol servers may be asked: the end of the session waits for it, for half a minute
    /// at most, or until a [`Stopper`] is used then.
    #[must_use]
    pub fn downloads(&self) -> Option<Downloads> {
        self.servers.clone().map(|servers| Downloads { servers })
    }

    /// The process id of the command that was started, for [`Target::Command`].
    #[must_use]
    pub fn command_pid(&self) -> Option<u32> {
        self.command.as_ref().map(std::process::Child::id)
    }

    /// Takes the command that was started out of the session, to wait for its end after sampling.
    pub fn take_command(&mut self) -> Option<std::process::Child> {
        self.command.take()
    }

    /// Sleeps until something may have ended.
    fn sleep(&self, left: Option<Duration>) {
        let limit = match (left, self.watched.look_again_after()) {
            (Some(left), Some(look)) => Some(left.min(look)),
            (left, look) => left.or(look),
        };
        let mut fds: Vec<PollFd<'_>> =
            self.watched.pidfds().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        fds.push(PollFd::new(&self.shared.end_waker, PollFlags::IN));
        let timeout = limit.and_then(|limit| rustix::event::Timespec::try_from(limit).ok());
        // Early or late, the caller looks again.
        let _ = poll(&mut fds, timeout.as_ref());
    }

    fn profile(&mut self, is_last: bool) -> Result<Profile> {
        let (reply, answer) = channel();
        let was_stopped = self.shared.stop.load(Ordering::Acquire);
        let request = Request { header: self.header.clone(), is_last, was_stopped, reply };
        if is_last {
            // `cargo xtask bench` reads this line.
            log::debug!("sampling ends");
        }
        let profile = self.ask(request, &answer);
        if is_last {
            self.join();
        }
        if let Some(error) = self.shared.take_failure() {
            return Err(error);
        }
        let mut profile = profile
            .ok_or_else(|| Error::new(ErrorKind::Io, "the session's threads ended without a profile"))?;
        profile.set_cost(cost());
        Ok(profile)
    }

    fn ask(&self, request: Request, answer: &Receiver<Profile>) -> Option<Profile> {
        self.requests.send(request).ok()?;
        wake(&self.shared.reader_waker);
        answer.recv().ok()
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
        // Without a sender of requests the reader ends, and the pipeline with it.
        self.requests = requests;
        wake(&self.shared.reader_waker);
        self.join();
    }
}

impl Shared {
    fn new() -> Result<Self> {
        Ok(Self {
            reader_waker: Arc::new(waker()?),
            end_waker: waker()?,
            stop: AtomicBool::new(false),
            exhausted: AtomicBool::new(false),
            samples: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            failure: Mutex::new(None),
        })
    }

    /// There will be no more samples.
    fn exhaust(&self) {
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

fn waker() -> Result<OwnedFd> {
    use rustix::event::{EventfdFlags, eventfd};
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
        .map_err(|error| Error::with_source(ErrorKind::Io, "failed to create an eventfd", error))
}

fn wake(waker: &OwnedFd) {
    // A full counter has already woken everybody.
    let _ = rustix::io::write(waker, &1_u64.to_ne_bytes());
}

/// Takes the wake-ups back, so that the next wait waits again.
fn calm(waker: &OwnedFd) {
    let mut count = [0; 8];
    let _ = rustix::io::read(waker, &mut count);
}

/// What the profiler's process has used since it began.
fn cost() -> Cost {
    let cpu = cpu_time();
    // The peak is read from /proc: getrusage(2) inherits it from whoever started this program.
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
    fn the_cost_of_this_process_is_known() {
        let cost = cost();
        assert!(cost.peak_memory_bytes > 1 << 20);
        assert_eq!(peak_memory_bytes("VmHWM:\t    12 kB\n"), 12 * 1024);
        assert_eq!(peak_memory_bytes(""), 0);
    }
}
