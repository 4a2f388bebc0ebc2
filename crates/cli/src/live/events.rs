//! Events of the live view: profiles of the session, keys and signals, each from a thread of its own.

use std::{
    process,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context, Result};
use profiler::{Ended, Session, Stopper};
use profiler_profile::Profile;
use ratatui::crossterm::event::{self, KeyEvent, KeyEventKind};

use super::terminal;
use crate::signals::{self, SIGNAL_EXIT_BASE};

/// The interval of one profile.
const INTERVAL: Duration = Duration::from_secs(1);

/// Limit of the queue. While it is full, the session continues its current interval.
const MAX_PENDING_EVENTS: usize = 64;

/// An event.
pub(super) enum Event {
    Key(KeyEvent),
    /// The size of the terminal changed.
    Resized,
    /// The profile of the last interval.
    Interval(Box<Profile>),
    /// Sampling ended, for this reason.
    Ended(String),
    /// Sampling failed.
    Failed(profiler::Error),
    /// A signal was received, or the terminal was closed.
    Quit,
}

/// The thread that runs the session.
pub(super) struct SamplingThread {
    stopper: Stopper,
    thread: JoinHandle<()>,
}

impl SamplingThread {
    /// Stops the session, and waits until it is detached.
    pub(super) fn stop(self) {
        self.stopper.stop();
        // A failure was already sent as an event.
        let _ = self.thread.join();
    }
}

/// Starts the threads that send events.
pub(super) fn start(session: Session, limit: Option<Duration>) -> Result<(Receiver<Event>, SamplingThread)> {
    let (sender, receiver) = sync_channel(MAX_PENDING_EVENTS);
    let stopper = session.stopper();
    listen_for_signals(sender.clone())?;
    spawn("keys", {
        let sender = sender.clone();
        move || read_keys(&sender)
    })?;
    let thread = spawn("session", move || sample(session, limit, &sender))?;
    Ok((receiver, SamplingThread { stopper, thread }))
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    thread::Builder::new().name(name.to_owned()).spawn(work).context("failed to start a thread")
}

/// Sends a profile of each interval, until sampling ends or the receiver is dropped.
fn sample(mut session: Session, limit: Option<Duration>, sender: &SyncSender<Event>) {
    loop {
        let left = limit.map(|limit| limit.saturating_sub(session.elapsed()));
        let ended = session.wait(Some(left.map_or(INTERVAL, |left| left.min(INTERVAL))));
        if ended != Ended::Elapsed || left.is_some_and(|left| left <= INTERVAL) {
            return send_end(session, ended, sender);
        }
        if !send_profile(sender, session.take_profile(Duration::ZERO)) {
            return;
        }
    }
}

fn send_end(session: Session, ended: Ended, sender: &SyncSender<Event>) {
    let reason = match ended {
        Ended::Elapsed => "the duration is over",
        Ended::TargetExited => "the target has ended",
        // The view stops the session when it quits, and needs no further profile.
        Ended::Stopped => return,
        _ => "sampling has ended",
    };
    if send_profile(sender, session.stop()) {
        // The receiver is dropped when the view quits.
        let _ = sender.send(Event::Ended(reason.to_owned()));
    }
}

/// Sends the profile or the error. Returns whether sampling can continue.
fn send_profile(sender: &SyncSender<Event>, profile: profiler::Result<Profile>) -> bool {
    let is_ok = profile.is_ok();
    sender.send(profile.map_or_else(Event::Failed, |profile| Event::Interval(Box::new(profile)))).is_ok()
        && is_ok
}

fn read_keys(sender: &SyncSender<Event>) {
    loop {
        let next = match event::read() {
            Ok(event::Event::Key(key)) if key.kind != KeyEventKind::Release => Event::Key(key),
            Ok(event::Event::Resize(..)) => Event::Resized,
            Ok(_) => continue,
            Err(_) => Event::Quit,
        };
        let is_last = matches!(next, Event::Quit);
        if sender.send(next).is_err() || is_last {
            return;
        }
    }
}

/// The first signal requests the view to quit. The second exits the process: the view may hang.
fn listen_for_signals(sender: SyncSender<Event>) -> Result<()> {
    let mut is_quitting = false;
    signals::for_each_signal(signals::OF_SESSION, move |origin| {
        if std::mem::replace(&mut is_quitting, true) || sender.try_send(Event::Quit).is_err() {
            terminal::restore();
            process::exit(SIGNAL_EXIT_BASE + origin.signal);
        }
    })
}
