//! Sampling through the library until there is enough to judge by.

use std::time::{Duration, Instant};

use profiler::{Builder, Ended, Profile, Profiler, Target};

use crate::deadline::DEADLINE;

/// Samples until there are this many samples, or the target ends.
///
/// # Panics
/// When sampling fails, or takes too long.
#[must_use]
pub fn sample(builder: Builder, samples: u64) -> Profile {
    const LOOK: Duration = Duration::from_millis(20);
    let mut session = builder.build().expect("valid settings").start().expect("a session");
    let deadline = Instant::now() + DEADLINE;
    while session.progress().samples < samples && session.wait(Some(LOOK)) == Ended::Elapsed {
        assert!(Instant::now() < deadline, "{:?} in a minute", session.progress());
    }
    session.stop().expect("a profile")
}

/// A builder for a process, at a frequency that gives enough samples soon.
pub fn sample_pid(pid: u32) -> Builder {
    Profiler::builder().target(Target::Pid(pid)).frequency_hz(1_999)
}
