//! Samples workloads with the library until a profile has enough samples.

use std::time::{Duration, Instant};

use profiler::{Builder, Ended, Profile, Profiler, Session, Target, profile::StackEnd};

use crate::deadline::DEADLINE;

/// Samples until a profile has this many samples, or the target exits.
///
/// # Panics
/// Panics if sampling fails, or exceeds the deadline.
#[must_use]
pub fn sample(builder: Builder, samples: u64) -> Profile {
    let mut session = start(builder);
    wait_for_samples(&mut session, samples);
    take(session)
}

/// Like [`sample`], without the first samples, which are taken before the unwind tables of all mappings are loaded.
///
/// # Panics
/// Panics if sampling fails, or exceeds the deadline.
#[must_use]
pub fn sample_settled(builder: Builder, samples: u64) -> Profile {
    let mut session = start(builder);
    settle(&mut session);
    wait_for_samples(&mut session, samples);
    take(session)
}

/// Discards samples until the unwind tables of all mappings are loaded.
///
/// # Panics
/// Panics if sampling fails, or exceeds the deadline.
pub fn settle(session: &mut Session) {
    const ROUND: u64 = 500;
    /// A target may have code without unwind information: its samples never get better.
    const MAX_ROUNDS: u64 = 10;
    /// The tables of the mappings arrive one after the other.
    const SETTLED_ROUNDS: u32 = 2;
    let mut settled_rounds = 0;
    for _ in 0..MAX_ROUNDS {
        wait_for_samples(session, ROUND);
        let warm_up = session.take_profile(Duration::ZERO).expect("a profile");
        // Without tables, frame pointers are followed, if there are any.
        let without_tables = [StackEnd::Unknown, StackEnd::BrokenFramePointer];
        let settled = without_tables.iter().all(|end| !warm_up.first_ledger().stacks.contains_key(end));
        settled_rounds = if settled { settled_rounds + 1 } else { 0 };
        if settled_rounds == SETTLED_ROUNDS {
            break;
        }
    }
}

/// The profile up to now. The last one of a session has limited time to read symbols, which a busy machine exceeds; this one
/// has as much as it takes.
fn take(mut session: Session) -> Profile {
    session.take_profile(Duration::ZERO).expect("a profile")
}

fn start(builder: Builder) -> Session {
    builder.build().expect("valid settings").start().expect("a session")
}

/// Waits until a session has taken this many samples more, or its target exits.
///
/// # Panics
/// Panics if there is no sample for as long as the deadline.
pub fn wait_for_samples(session: &mut Session, samples: u64) {
    const LOOK: Duration = Duration::from_millis(20);
    let (mut deadline, mut last) = (Instant::now() + DEADLINE, session.progress().samples);
    let enough = last + samples;
    while last < enough && session.wait(Some(LOOK)) == Ended::Elapsed {
        let now = session.progress().samples;
        if now > last {
            (deadline, last) = (Instant::now() + DEADLINE, now);
        }
        assert!(Instant::now() < deadline, "{:?}, and no more in a minute", session.progress());
    }
}

/// A builder for a process, with a high sampling frequency and without an overhead limit.
pub fn sample_pid(pid: u32) -> Builder {
    Profiler::builder().target(Target::Pid(pid)).frequency_hz(1_999).max_overhead_percent(100.0)
}

/// Like [`sample_pid`], at more than twice the frequency: for tests of stacks and names, to which only the number of samples
/// matters. The target uses less CPU time until there are enough.
pub fn sample_pid_often(pid: u32) -> Builder {
    sample_pid(pid).frequency_hz(4_999)
}
