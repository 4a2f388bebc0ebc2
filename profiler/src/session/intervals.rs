//! Profiles of consecutive intervals.

use std::{
    iter::FusedIterator,
    time::{Duration, Instant},
};

use profiler_profile::Profile;

use super::{Ended, Session, Stopper};
use crate::error::Result;

/// The shortest interval. A profile of less has few samples, and takes longer to build.
const MIN_PERIOD: Duration = Duration::from_millis(1);

/// The profiles of consecutive intervals of a session, until its target ends or a [`Stopper`] is used:
/// [`Session::intervals`]. Each sample is in one of them. Dropping the iterator ends the session.
#[derive(Debug)]
pub struct Intervals {
    /// `None` after the last interval, and after an error.
    session: Option<Session>,
    period: Duration,
    /// `None`, no deadline, where the sum of now and the period overflows.
    next_end: Option<Instant>,
    ended: Option<Ended>,
}

impl Intervals {
    pub(super) fn new(session: Session, period: Duration) -> Self {
        let period = period.max(MIN_PERIOD);
        Self { session: Some(session), period, next_end: Instant::now().checked_add(period), ended: None }
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

    /// Waits for the end of an interval or of the session; `None` if the session has ended before.
    pub(super) fn wait_for_end(&mut self) -> Option<Ended> {
        let left = self.next_end.map(|end| end.saturating_duration_since(Instant::now()));
        self.session.as_mut().map(|session| session.wait(left))
    }

    /// The profile of an interval that has ended for this reason.
    pub(super) fn take_interval(&mut self, ended: Ended) -> Option<Result<Profile>> {
        let mut session = self.session.take()?;
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

    /// The end of the next interval: intervals do not drift, and a caller that takes longer than one gets a longer one.
    fn advance(&mut self) {
        let next_end = self.next_end.and_then(|end| end.checked_add(self.period));
        self.next_end = next_end.map(|end| end.max(Instant::now()));
    }
}

impl Iterator for Intervals {
    type Item = Result<Profile>;

    /// Waits for the end of an interval. The last one ends with the session and can be shorter; an error ends the session.
    fn next(&mut self) -> Option<Self::Item> {
        let ended = self.wait_for_end()?;
        self.take_interval(ended)
    }
}

impl FusedIterator for Intervals {}
