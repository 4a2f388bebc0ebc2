//! Profiles the tasks of a tokio runtime from a task of the same runtime.

use std::{
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use profiler::{Error, Profile, Profiler, Target};

/// The interval at which the samples are counted.
const INTERVAL: Duration = Duration::from_millis(50);

/// Samples this process until a profile has `samples` samples, while a task of the current runtime computes.
///
/// # Errors
/// When sampling is not allowed or fails.
///
/// # Panics
/// When a task panics.
pub async fn profile_own_tasks(samples: u64) -> Result<Profile, Error> {
    let has_ended = Arc::new(AtomicBool::new(false));
    let computation = tokio::spawn({
        let has_ended = Arc::clone(&has_ended);
        async move { compute_until(&has_ended) }
    });
    // The calls of a session block, like file operations.
    let sampled = tokio::task::spawn_blocking(move || {
        let target = Target::Pid(std::process::id());
        let mut session = Profiler::builder().target(target).frequency_hz(999).build()?.start()?;
        while session.progress().samples < samples {
            session.wait(Some(INTERVAL));
        }
        session.stop()
    });
    let profile = sampled.await.expect("the sampling task does not panic");
    has_ended.store(true, Ordering::Relaxed);
    computation.await.expect("the computing task does not panic");
    profile
}

/// A function to find in the profile.
#[inline(never)]
fn compute_until(has_ended: &AtomicBool) {
    let mut state = 1_u64;
    while !has_ended.load(Ordering::Relaxed) {
        for _ in 0..10_000 {
            state = black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
    }
}
