//! Sampling through the library until there is enough to judge by.

use std::time::{Duration, Instant};

use profiler::{Builder, Ended, Profile, Profiler, Session, Target};

use crate::deadline::DEADLINE;

/// Samples until there are this many samples, or the target ends.
///
/// # Panics
/// When sampling fails, or takes too long.
#[must_use]
pub fn sample(builder: Builder, samples: u64) -> Profile {
    let mut session = start(builder);
    wait_for(&mut session, samples);
    session.stop().expect("a profile")
}

/// The same, without the first samples: they come before all that the target maps has been looked at.
///
/// # Panics
/// When sampling fails, or takes too long.
#[must_use]
pub fn sample_settled(builder: Builder, samples: u64) -> Profile {
    const FIRST: u64 = 500;
    let mut session = start(builder);
    wait_for(&mut session, FIRST);
    drop(session.take_profile(Duration::ZERO).expect("a profile"));
    wait_for(&mut session, FIRST + samples);
    session.stop().expect("a profile")
}

fn start(builder: Builder) -> Session {
    builder.build().expect("valid settings").start().expect("a session")
}

/// Waits until a session has taken this many samples since it began, or its target ends.
fn wait_for(session: &mut Session, samples: u64) {
    const LOOK: Duration = Duration::from_millis(20);
    let deadline = Instant::now() + DEADLINE;
    while session.progress().samples < samples && session.wait(Some(LOOK)) == Ended::Elapsed {
        assert!(Instant::now() < deadline, "{:?} in a minute", session.progress());
    }
}

/// A builder for a process, at a frequency that gives enough samples soon.
pub fn sample_pid(pid: u32) -> Builder {
    Profiler::builder().target(Target::Pid(pid)).frequency_hz(1_999)
}
