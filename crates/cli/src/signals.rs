//! Handles the signals that would end the program without outputs: the first one stops sampling, the second exits.

use std::{
    sync::{Arc, atomic::AtomicBool},
    thread,
};

use anyhow::{Context, Result};
use profiler::Stopper;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU, SIGXFSZ},
    flag,
    iterator::{SignalsInfo, exfiltrator::origin::WithOrigin},
    low_level::siginfo::{Cause, Origin, Sent},
};

/// The signals that end a session.
pub(super) const OF_SESSION: &[i32] = &[SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGXCPU];

/// The signals that end a recorder, for which SIGUSR2 is a condition.
pub(super) const OF_RECORDER: &[i32] = &[SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGXCPU];

/// The signals that end a recorder with a file of conditions, which SIGHUP has it read again.
pub(super) const OF_RELOADING_RECORDER: &[i32] = &[SIGINT, SIGTERM, SIGQUIT, SIGUSR1, SIGXCPU];

/// Has a write beyond the limit of file sizes (`ulimit -f`) fail, in place of ending the program. Commands that are started do
/// not inherit that, unlike an ignored signal.
pub(super) fn survive_file_size_limit() -> Result<()> {
    survive(SIGXFSZ)
}

/// Has SIGUSR2 end no recorder, also before it evaluates conditions.
pub(super) fn survive_condition_signal() -> Result<()> {
    survive(SIGUSR2)
}

fn survive(signal: i32) -> Result<()> {
    flag::register(signal, Arc::default()).map(drop).context("failed to listen for signals")
}

/// Shells add this to the signal number for the exit code of a program that a signal ended.
pub(super) const SIGNAL_EXIT_BASE: i32 = 128;

/// Stops the session at the first of these signals, and exits at the second. A signal from a process is forwarded to the
/// command; the terminal sends its signals to both.
pub(super) fn listen(signals: &[i32], stopper: Stopper, command: Option<u32>) -> Result<()> {
    let second = Arc::new(AtomicBool::new(false));
    // The kernel sends SIGXCPU again after each further second of CPU time, while outputs are written.
    for &signal in signals.iter().filter(|signal| **signal != SIGXCPU) {
        // The order matters: the first signal finds the flag unset, and then sets it.
        flag::register_conditional_shutdown(signal, SIGNAL_EXIT_BASE + signal, Arc::clone(&second))
            .and_then(|_| flag::register(signal, Arc::clone(&second)))
            .context("failed to listen for signals")?;
    }
    for_each_signal(signals, move |origin| {
        let was_sent = matches!(origin.cause, Cause::Sent(Sent::User | Sent::TKill | Sent::Queue));
        if let Some(pid) = command.filter(|_| was_sent) {
            forward(pid, origin.signal);
        }
        stopper.stop();
    })
}

/// Calls `handle` for each of these signals, in a thread of its own.
pub(super) fn for_each_signal(
    signals: &[i32],
    mut handle: impl FnMut(Origin) + Send + 'static,
) -> Result<()> {
    let mut signals = SignalsInfo::<WithOrigin>::new(signals).context("failed to listen for signals")?;
    let listen = move || signals.forever().for_each(&mut handle);
    thread::Builder::new().name("signals".to_owned()).spawn(listen)?;
    Ok(())
}

/// Sends SIGTERM to the command.
pub(super) fn terminate(command: u32) {
    forward(command, SIGTERM);
}

/// Sends a signal to a process that this one has started.
pub(super) fn forward(pid: u32, signal: i32) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    if let (Some(pid), Some(signal)) = (pid, Signal::from_named_raw(signal))
        && let Err(error) = kill_process(pid, signal)
    {
        log::debug!("failed to send a signal to the command: {error}");
    }
}
