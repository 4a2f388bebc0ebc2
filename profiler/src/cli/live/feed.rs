//! What the view hears: profiles of a session that runs in a thread of its own, keys, and signals.

use std::{
    process,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context, Result};
use ratatui::crossterm::event::{self, KeyEvent, KeyEventKind};

use super::terminal;
use crate::{
    Ended, Session, Stopper,
    cli::signals::{self, SIGNALLED},
};
use profiler_profile::Profile;

/// How often the view changes.
const INTERVAL: Duration = Duration::from_secs(1);

/// What may wait for a view that is busy. Beyond it the session keeps its samples for a longer interval.
const WAITING: usize = 64;

/// Something new.
pub(super) enum News {
    Key(KeyEvent),
    /// The terminal has another size.
    Resized,
    /// The profile of the last interval.
    Interval(Box<Profile>),
    /// There will be no more samples.
    Ended(String),
    /// Sampling failed.
    Failed(crate::error::Error),
    /// A signal, or a terminal that is gone.
    Leave,
}

/// The session's thread.
pub(super) struct Sampling {
    stopper: Stopper,
    thread: JoinHandle<()>,
}

impl Sampling {
    /// Ends the session, and waits until it has left nothing behind.
    pub(super) fn end(self) {
        self.stopper.stop();
        // It has said what went wrong.
        let _ = self.thread.join();
    }
}

/// Starts to listen to all of them.
pub(super) fn begin(session: Session, limit: Option<Duration>) -> Result<(Receiver<News>, Sampling)> {
    let (news, heard) = sync_channel(WAITING);
    let stopper = session.stopper();
    listen_for_signals(news.clone())?;
    spawn("keys", {
        let news = news.clone();
        move || read_keys(&news)
    })?;
    let thread = spawn("session", move || sample(session, limit, &news))?;
    Ok((heard, Sampling { stopper, thread }))
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    thread::Builder::new().name(name.to_owned()).spawn(work).context("failed to start a thread")
}

/// Takes a profile of every interval, until sampling ends or nobody listens.
fn sample(mut session: Session, limit: Option<Duration>, news: &SyncSender<News>) {
    loop {
        let left = limit.map(|limit| limit.saturating_sub(session.elapsed()));
        let ended = session.wait(Some(left.map_or(INTERVAL, |left| left.min(INTERVAL))));
        if ended != Ended::Elapsed || left.is_some_and(|left| left <= INTERVAL) {
            return end(session, ended, news);
        }
        if !tell(news, session.take_profile(Duration::ZERO)) {
            return;
        }
    }
}

fn end(session: Session, ended: Ended, news: &SyncSender<News>) {
    let reason = match ended {
        Ended::Elapsed => "the time is over",
        Ended::TargetExited => "the target has ended",
        // The view does it when it leaves: it is not interested any more.
        Ended::Stopped => return,
        _ => "sampling has ended",
    };
    if tell(news, session.stop()) {
        // A view that has left does not need to know.
        let _ = news.send(News::Ended(reason.to_owned()));
    }
}

/// Whether it went well, and somebody listens.
fn tell(news: &SyncSender<News>, profile: crate::error::Result<Profile>) -> bool {
    let is_well = profile.is_ok();
    news.send(profile.map_or_else(News::Failed, |profile| News::Interval(Box::new(profile)))).is_ok()
        && is_well
}

fn read_keys(news: &SyncSender<News>) {
    loop {
        let told = match event::read() {
            Ok(event::Event::Key(key)) if key.kind != KeyEventKind::Release => News::Key(key),
            Ok(event::Event::Resize(..)) => News::Resized,
            Ok(_) => continue,
            Err(_) => News::Leave,
        };
        let is_over = matches!(told, News::Leave);
        if news.send(told).is_err() || is_over {
            return;
        }
    }
}

/// The first signal asks the view to leave, the second leaves in its place: it may be busy for good.
fn listen_for_signals(news: SyncSender<News>) -> Result<()> {
    let mut is_second = false;
    signals::each(move |origin| {
        if std::mem::replace(&mut is_second, true) || news.try_send(News::Leave).is_err() {
            terminal::restore();
            process::exit(SIGNALLED + origin.signal);
        }
    })
}
