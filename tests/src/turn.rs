//! Who may sample, and when: tests that measure shares and times must not disturb each other.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use profiler::{Profiler, Target};

/// With this variable in the environment a privileged test fails where it would be skipped.
const REQUIRED: &str = "PROFILER_REQUIRE_PRIVILEGED";

/// Waits for this test's turn. `None`, with a notice, where the machine does not allow to sample.
///
/// # Panics
/// When it does not, and privileged tests are required.
#[must_use]
pub fn privileged() -> Option<MutexGuard<'static, ()>> {
    static TURN: Mutex<()> = Mutex::new(());
    static OBSTACLE: OnceLock<Option<String>> = OnceLock::new();
    // A test that failed in its turn says nothing about the next.
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(obstacle) = OBSTACLE.get_or_init(obstacle) else { return Some(turn) };
    assert!(std::env::var_os(REQUIRED).is_none(), "a privileged test cannot run: {obstacle}");
    eprintln!("skipped, a privileged test cannot run: {obstacle}");
    None
}

fn obstacle() -> Option<String> {
    let own = Profiler::builder().target(Target::Pid(std::process::id()));
    let started = own.build().and_then(Profiler::start);
    started.err().map(|error| error.to_string())
}
