//! `--follow`: one recorder after the other, each for the process, cgroup or pod that has the name then.
//!
//! A recorder gives up the rights that its successor needs, so that each of them is a process of its own.

use std::{
    env,
    process::{self, Child, Command},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use signal_hook::{
    consts::{SIGHUP, SIGUSR2},
    low_level::siginfo::{Cause, Sent},
};

use super::super::{
    arguments::{CommonArguments, RecordArguments},
    event_log::EventLog,
    exit,
    service::ServiceManager,
    signals,
    wrong_arguments::{self, WrongArguments},
};

/// The argument of the follower, in whose place its recorders have the other one with its process id.
const FOLLOW: &str = "--follow";
const FOLLOWED: &str = "--followed";

/// The time between two searches for the process, and the least one between two recorders.
const INTERVAL: Duration = Duration::from_millis(500);

/// Runs recorders until one of them ends for another reason than that its target has ended. Returns its exit code.
pub(super) fn run(arguments: &RecordArguments, common: &CommonArguments) -> Result<u8> {
    let Some(builder) = arguments.builder().filter(|_| arguments.has_named_target()) else {
        bail!(WrongArguments::new(
            "--follow needs --process NAME, --cgroup PATH or --pod NAME: what has the name is recorded, one after the other"
        ));
    };
    let target = wrong_arguments::build(builder)?;
    let log = EventLog::new(arguments.log_format, common.quiet);
    let service = ServiceManager::connect();
    let requests = Requests::listen(arguments.trigger_file.is_some())?;
    service.notify_ready();
    let mut reason = String::new();
    loop {
        let searched = Instant::now();
        match target.find_target() {
            Ok(()) => {
                reason.clear();
                match requests.forward_until_end(start()?)? {
                    exit::TARGET_ENDED => {}
                    code => return Ok(code),
                }
            }
            Err(error) if error.to_string() != reason => {
                reason = error.to_string();
                log.write("waiting", &[("reason", &reason)]);
            }
            Err(_) => {}
        }
        if requests.ends_within(INTERVAL.saturating_sub(searched.elapsed())) {
            service.notify_stopping();
            return Ok(0);
        }
    }
}

/// Starts a recorder with the arguments of this process.
fn start() -> Result<Child> {
    let followed = format!("{FOLLOWED}={}", process::id());
    let arguments = env::args_os().skip(1);
    let arguments = arguments.map(|argument| if argument == FOLLOW { (&followed).into() } else { argument });
    let mut command = Command::new("/proc/self/exe");
    command.args(arguments).env_remove(ServiceManager::VARIABLE);
    command.spawn().context("failed to start a recorder")
}

/// The signals that arrive: those that end the follower, and those for its recorder.
struct Requests {
    /// The process id of the recorder, 0 while none runs.
    recorder: Arc<AtomicU32>,
    is_ended: Arc<AtomicBool>,
    ends: Receiver<()>,
}

impl Requests {
    /// `reloads`: SIGHUP is for the recorder.
    fn listen(reloads: bool) -> Result<Self> {
        let (end, ends) = mpsc::channel();
        let requests = Self { recorder: Arc::default(), is_ended: Arc::default(), ends };
        let (recorder, is_ended) = (Arc::clone(&requests.recorder), Arc::clone(&requests.is_ended));
        let all = [signals::OF_RECORDER, &[SIGUSR2]].concat();
        signals::for_each_signal(&all, move |origin| {
            let is_for_recorder = origin.signal == SIGUSR2 || reloads && origin.signal == SIGHUP;
            if !is_for_recorder {
                is_ended.store(true, Ordering::Release);
                // The receiver has ended with its process.
                let _ = end.send(());
            }
            // The terminal sends its signals to both.
            let was_sent = matches!(origin.cause, Cause::Sent(Sent::User | Sent::TKill | Sent::Queue));
            match recorder.load(Ordering::Acquire) {
                pid @ 1.. if was_sent => signals::forward(pid, origin.signal),
                _ => {}
            }
        })?;
        Ok(requests)
    }

    /// Waits for a recorder, which gets the signals meanwhile. Returns its exit code.
    fn forward_until_end(&self, mut recorder: Child) -> Result<u8> {
        self.recorder.store(recorder.id(), Ordering::Release);
        if self.is_ended.load(Ordering::Acquire) {
            // The signal arrived before the recorder was there.
            signals::terminate(recorder.id());
        }
        let status = recorder.wait().context("failed to wait for a recorder")?;
        self.recorder.store(0, Ordering::Release);
        Ok(exit::code_of_command(status))
    }

    /// Whether a signal ends the follower within a time.
    fn ends_within(&self, limit: Duration) -> bool {
        self.ends.recv_timeout(limit) != Err(RecvTimeoutError::Timeout)
    }
}
