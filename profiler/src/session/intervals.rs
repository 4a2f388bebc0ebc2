//! Profiles of consecutive intervals.

use std::{
    iter::FusedIterator,
    time::{Duration, Instant},
};

use profiler_profile::Profile;

use super::{Ended, Session, Stopper};
use crate::error::Result;

/// The profiles of consecutive intervals of a session, until its target ends or a [`Stopper`] is used:
/// [`Session::intervals`]. Each sample is in one of them. Dropping the iterator ends the session.
#[derive(Debug)]
pub struct Intervals {
    /// `None` after the last interval, and after an error.
    session: Option<Session>,
    period: Duration,
    next_end: Instant,
    ended: Option<Ended>,
}

impl Intervals {
    pub(super) fn new(session: Session, period: Duration) -> Self {
        Self { session: Some(session), period, next_end: Instant::now() + period, ended: None }
    }

    /// Why the session has ended; `None` while it runs, and after an error.
    #[must_use]
    pub fn ended(&self) -> Option<Ended> {
        self.ended
    }

    /// A handle that ends the session from another thread; `None` once it has ended.
    #[must_use]
    pub fn stopper(&self) -> Option<Stopper> {
        self.session.as_ref().map(Session::stopper)
    }

    /// The end of the next interval: intervals do not drift, and a caller that takes longer than one gets a longer one.
    fn advance(&mut self) {
        self.next_end = (self.next_end + self.period).max(Instant::now());
    }
}

impl Iterator for Intervals {
    type Item = Result<Profile>;

    /// Waits for the end of an interval. The last one ends with the session and can be shorter; an error ends the session.
    fn next(&mut self) -> Option<Self::Item> {
        let mut session = self.session.take()?;
        let ended = session.wait(Some(self.next_end.saturating_duration_since(Instant::now())));
        if ended != Ended::Elapsed {
            self.ended = Some(ended);
            return Some(session.stop());
        }
        self.advance();
        let profile = session.take_profile(Duration::ZERO);
        if profile.is_ok() {
            self.session = Some(session);
        }
        Some(profile)
    }
}

impl FusedIterator for Intervals {}
