//! Ctrl-C and other polite requests to end: once stops sampling, twice leaves.

use std::{
    sync::{Arc, atomic::AtomicBool},
    thread,
};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    flag,
    iterator::{SignalsInfo, exfiltrator::origin::WithOrigin},
    low_level::siginfo::{Cause, Origin, Sent},
};

use crate::Stopper;

const POLITE: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// The exit code of a program that a signal ended, as a shell has it.
pub(super) const SIGNALLED: i32 = 128;

/// Stops the session at the first signal, and leaves at the second. A signal that was sent to the profiler
/// alone is passed on to the command it started; the terminal sends its own to both.
pub(super) fn listen(stopper: Stopper, command: Option<u32>) -> Result<()> {
    let second = Arc::new(AtomicBool::new(false));
    for signal in POLITE {
        // In this order: the first signal finds the flag unset, and sets it.
        flag::register_conditional_shutdown(signal, SIGNALLED + signal, Arc::clone(&second))
            .and_then(|_| flag::register(signal, Arc::clone(&second)))
            .context("failed to listen for signals")?;
    }
    each(move |origin| {
        let was_sent = matches!(origin.cause, Cause::Sent(Sent::User | Sent::TKill | Sent::Queue));
        if let Some(pid) = command.filter(|_| was_sent) {
            pass_on(pid, origin.signal);
        }
        stopper.stop();
    })
}

/// Does this for each of the polite signals, in a thread of its own.
pub(super) fn each(mut handle: impl FnMut(Origin) + Send + 'static) -> Result<()> {
    let mut signals = SignalsInfo::<WithOrigin>::new(POLITE).context("failed to listen for signals")?;
    let listen = move || signals.forever().for_each(&mut handle);
    thread::Builder::new().name("signals".to_owned()).spawn(listen)?;
    Ok(())
}

/// Asks the command that was started to end.
pub(super) fn end(command: u32) {
    pass_on(command, SIGTERM);
}

fn pass_on(pid: u32, signal: i32) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    if let (Some(pid), Some(signal)) = (pid, Signal::from_named_raw(signal))
        && let Err(error) = kill_process(pid, signal)
    {
        log::debug!("the command could not be told to end: {error}");
    }
}
