//! A session that samples.

use std::time::Duration;

use profiler::Ended;

use crate::{Error, Profile, error::give_result, pointer::take};

/// A session that samples. [`profiler_session_stop`] consumes it.
#[derive(Debug)]
pub struct Session(profiler::Session);

impl Session {
    pub(crate) fn new(session: profiler::Session) -> Self {
        Self(session)
    }
}

/// Waits, and returns the profile since the start or the last profile; sampling goes on. Null after an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn profiler_session_take_profile(
    session: &mut Session,
    wait_ns: u64,
    error: *mut *mut Error,
) -> *mut Profile {
    let profile = session.0.take_profile(Duration::from_nanos(wait_ns)).map(Profile::new);
    // SAFETY: see the crate.
    unsafe { give_result(profile, error) }
}

/// Whether the target has exited. Waits for it for `wait_ns` nanoseconds at most.
#[unsafe(no_mangle)]
pub extern "C" fn profiler_session_has_ended(session: &mut Session, wait_ns: u64) -> bool {
    session.0.wait(Some(Duration::from_nanos(wait_ns))) != Ended::Elapsed
}

/// Stops sampling and returns the profile since the start or the last profile. Consumes the session; null after an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn profiler_session_stop(
    session: Box<Session>,
    error: *mut *mut Error,
) -> *mut Profile {
    let profile = session.0.stop().map(Profile::new);
    // SAFETY: see the crate.
    unsafe { give_result(profile, error) }
}

/// Ends a session without a profile, or does nothing with null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn profiler_session_free(session: *mut Session) {
    // SAFETY: see the crate.
    drop(unsafe { take(session) });
}
