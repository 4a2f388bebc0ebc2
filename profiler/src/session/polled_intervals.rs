//! Profiles of consecutive intervals for a program that must not block.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    task::{Poll, Waker},
    thread::JoinHandle,
};

use profiler_profile::Profile;

use super::{Ended, Intervals, Stopper, new_waker, reset_waker, wake};
use crate::error::{Error, ErrorKind, Result};

/// The profiles of consecutive intervals of a session, from a thread of their own: [`Session::polled_intervals`].
///
/// The file descriptor is readable while [`try_next`](Self::try_next) has an answer. A profile that is not taken is kept, and the
/// interval of the one after the next goes on until it is: a slow program gets fewer and longer intervals, and loses no sample.
/// Dropping it ends the session.
///
/// [`Session::polled_intervals`]: super::Session::polled_intervals
#[derive(Debug)]
pub struct PolledIntervals {
    handover: Arc<Handover>,
    stopper: Option<Stopper>,
    thread: Option<JoinHandle<()>>,
}

/// Between the thread that takes profiles and the program that polls.
#[derive(Debug)]
struct Handover {
    slot: Mutex<Slot>,
    /// Signalled when the slot becomes empty.
    emptied: Condvar,
    /// Readable while the slot is full, and after the last profile.
    readable: OwnedFd,
}

#[derive(Debug, Default)]
struct Slot {
    next: Option<Result<Profile>>,
    /// What follows `next`.
    rest: Rest,
    /// Whether the program has dropped its side.
    is_abandoned: bool,
    /// The task that awaits the next profile.
    waker: Option<Waker>,
}

#[derive(Debug, Default)]
enum Rest {
    /// Another profile.
    #[default]
    Profiles,
    /// No profile: why the session has ended, `None` after an error.
    Nothing(Option<Ended>),
}

impl PolledIntervals {
    pub(super) fn new(intervals: Intervals) -> Result<Self> {
        let handover =
            Arc::new(Handover { slot: Mutex::default(), emptied: Condvar::new(), readable: new_waker()? });
        let stopper = intervals.stopper();
        let taking = Arc::clone(&handover);
        let thread = std::thread::Builder::new()
            .name("intervals".to_owned())
            .spawn(move || taking.take_all(intervals))
            .map_err(|error| Error::with_source(ErrorKind::Io, "failed to start a thread", error))?;
        Ok(Self { handover, stopper, thread: Some(thread) })
    }

    /// The next profile, without waiting for it; `None` after the last one. An error ends the session.
    pub fn try_next(&mut self) -> Poll<Option<Result<Profile>>> {
        self.handover.try_next(None)
    }

    /// The next profile; a task without one is woken when there is one.
    #[cfg(feature = "stream")]
    fn poll_next_with(&mut self, waker: &Waker) -> Poll<Option<Result<Profile>>> {
        self.handover.try_next(Some(waker))
    }

    /// Why the session has ended; `None` before the last profile is taken, and after an error.
    #[must_use]
    pub fn ended(&self) -> Option<Ended> {
        match *self.handover.lock() {
            Slot { next: None, rest: Rest::Nothing(ended), .. } => ended,
            _ => None,
        }
    }

    /// A handle that ends the session from another thread.
    #[must_use]
    pub fn stopper(&self) -> Option<Stopper> {
        self.stopper.clone()
    }
}

impl AsFd for PolledIntervals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handover.readable.as_fd()
    }
}

#[cfg(feature = "stream")]
impl futures_core::Stream for PolledIntervals {
    type Item = Result<Profile>;

    fn poll_next(
        self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_next_with(context.waker())
    }
}

impl Drop for PolledIntervals {
    fn drop(&mut self) {
        self.handover.abandon();
        if let Some(stopper) = &self.stopper {
            stopper.stop();
        }
        if let Some(thread) = self.thread.take() {
            // The thread has no result, and a panic of it has been printed.
            let _ = thread.join();
        }
    }
}

impl Handover {
    /// The thread: takes a profile, and the next one when this one is taken.
    fn take_all(&self, mut intervals: Intervals) {
        let _end = EndAfterPanic(self);
        loop {
            let ended = intervals.wait_for_end();
            if self.lock().is_abandoned {
                return;
            }
            let next = ended.and_then(|ended| intervals.take_interval(ended));
            let is_over = next.is_none() || intervals.stopper().is_none();
            self.put(next, if is_over { Rest::Nothing(intervals.ended()) } else { Rest::Profiles });
            if is_over {
                return;
            }
        }
    }

    /// Waits until the slot is empty and fills it.
    fn put(&self, next: Option<Result<Profile>>, rest: Rest) {
        let is_full = |slot: &mut Slot| slot.next.is_some() && !slot.is_abandoned;
        let slot = self.emptied.wait_while(self.lock(), is_full);
        let mut slot = slot.unwrap_or_else(PoisonError::into_inner);
        slot.next = next;
        slot.rest = rest;
        wake(&self.readable);
        let waker = slot.waker.take();
        // An executor can poll the task at once.
        drop(slot);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn try_next(&self, waker: Option<&Waker>) -> Poll<Option<Result<Profile>>> {
        let mut slot = self.lock();
        match (slot.next.take(), &slot.rest) {
            (Some(profile), rest) => {
                // After the last profile, the descriptor stays readable: the end is an answer.
                if matches!(rest, Rest::Profiles) {
                    reset_waker(&self.readable);
                }
                self.emptied.notify_one();
                Poll::Ready(Some(profile))
            }
            (None, Rest::Nothing(_)) => Poll::Ready(None),
            (None, Rest::Profiles) => {
                slot.waker = waker.cloned();
                Poll::Pending
            }
        }
    }

    fn abandon(&self) {
        self.lock().is_abandoned = true;
        self.emptied.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reports an end where the thread panics: a program that polls would wait for ever.
struct EndAfterPanic<'a>(&'a Handover);

impl Drop for EndAfterPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let error = Error::new(ErrorKind::Io, "the thread that takes profiles has panicked");
            self.0.put(Some(Err(error)), Rest::Nothing(None));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_the_thread_is_an_error_and_the_end() {
        let handover =
            Handover { slot: Mutex::default(), emptied: Condvar::new(), readable: new_waker().unwrap() };
        assert!(handover.try_next(None).is_pending());
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let _end = EndAfterPanic(&handover);
                panic!("a defect");
            });
            assert!(thread.join().is_err());
        });
        let Poll::Ready(Some(Err(error))) = handover.try_next(None) else { panic!("no error") };
        assert_eq!(error.to_string(), "the thread that takes profiles has panicked");
        assert!(matches!(handover.try_next(None), Poll::Ready(None)));
        let mut count = [0; 8];
        assert_eq!(
            rustix::io::read(&handover.readable, &mut count),
            Ok(8),
            "readable until the end is taken"
        );
    }
}
