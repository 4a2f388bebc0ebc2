//! Serializes privileged tests, and decides whether a test that cannot run is skipped or fails.

use std::{
    env,
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
};

use profiler::{Profiler, Target};

/// With this variable in the environment a test fails where it would be skipped for want of privileges or programs.
const REQUIRED: &str = "PROFILER_REQUIRE_PRIVILEGED";

/// With this variable in the environment privileged tests are left to another run.
const LEFT_OUT: &str = "PROFILER_SKIP_PRIVILEGED";

/// Continuous integration sets it. There every test that is started must run.
const CI: &str = "CI";

/// Waits until no other privileged test runs: tests that measure shares and times must not disturb each other. `None`,
/// with a notice, where the machine does not allow to sample.
///
/// # Panics
/// When it does not, and privileged tests are required.
#[must_use]
pub fn privileged() -> Option<MutexGuard<'static, ()>> {
    static TURN: Mutex<()> = Mutex::new(());
    static OBSTACLE: OnceLock<Option<String>> = OnceLock::new();
    if is_set(LEFT_OUT) {
        eprintln!("left out by {LEFT_OUT}");
        return None;
    }
    // A test that failed in its turn says nothing about the next.
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(obstacle) = OBSTACLE.get_or_init(obstacle) else { return Some(turn) };
    skip_unless_required(&format!("a privileged test cannot run: {obstacle}"));
    None
}

/// Skips a test for which a program is missing that `cargo xtask setup` installs.
///
/// # Panics
/// When it has to run.
pub fn skip_unless_required(reason: &str) {
    assert!(!is_set(REQUIRED) && !is_set(CI), "{reason}");
    eprintln!("skipped, {reason}");
}

/// Skips a test that the kernel or the hardware of this machine does not allow.
///
/// # Panics
/// In continuous integration, whose machine has to allow it.
pub fn skip_on_this_machine(reason: &str) {
    assert!(!is_set(CI), "this test cannot run on this machine: {reason}");
    eprintln!("skipped, {reason}");
}

fn is_set(variable: &str) -> bool {
    env::var_os(variable).is_some_and(|value| !value.is_empty() && value != "0" && value != "false")
}

fn obstacle() -> Option<String> {
    let own = Profiler::builder().target(Target::Pid(std::process::id()));
    let started = own.build().and_then(Profiler::start);
    started.err().map(|error| error.to_string())
}
