//! Locks for privileged tests, and the decision whether a test that cannot run is skipped or fails.

use std::{
    env,
    sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use profiler::{Profiler, Target};

/// The environment variable with which a test fails instead of being skipped if privileges or programs are missing.
const REQUIRE_PRIVILEGED: &str = "PROFILER_REQUIRE_PRIVILEGED";

/// The environment variable with which privileged tests are skipped, because another run executes them.
const SKIP_PRIVILEGED: &str = "PROFILER_SKIP_PRIVILEGED";

/// Set by continuous integration, where every started test must run.
const CI: &str = "CI";

/// Held by each privileged test: alone by one that measures shares, losses, times or memory, which others disturb.
static LOCK: RwLock<()> = RwLock::new(());

/// Waits until no other privileged test runs. Returns `None` and prints a notice if the machine does not permit sampling.
///
/// # Panics
/// Panics if the machine does not permit sampling and privileged tests are required.
#[must_use]
pub fn lock_privileged() -> Option<RwLockWriteGuard<'static, ()>> {
    // A failed test does not affect the next one.
    can_run().then(|| LOCK.write().unwrap_or_else(PoisonError::into_inner))
}

/// As [`lock_privileged`], for a test whose result other tests do not disturb: it runs beside others of this kind.
///
/// # Panics
/// As [`lock_privileged`].
#[must_use]
pub fn share_privileged() -> Option<RwLockReadGuard<'static, ()>> {
    can_run().then(|| LOCK.read().unwrap_or_else(PoisonError::into_inner))
}

fn can_run() -> bool {
    static OBSTACLE: OnceLock<Option<String>> = OnceLock::new();
    if is_set(SKIP_PRIVILEGED) {
        eprintln!("skipped because of {SKIP_PRIVILEGED}");
        return false;
    }
    let Some(obstacle) = OBSTACLE.get_or_init(obstacle) else { return true };
    skip_unless_required(&format!("a privileged test cannot run: {obstacle}"));
    false
}

/// Skips a test that needs a missing program, which `cargo xtask setup` installs.
///
/// # Panics
/// Panics if privileged tests are required.
pub fn skip_unless_required(reason: &str) {
    assert!(!is_set(REQUIRE_PRIVILEGED) && !is_set(CI), "{reason}");
    eprintln!("skipped, {reason}");
}

/// Skips a test that the kernel or the hardware of this machine does not support.
///
/// # Panics
/// Panics in continuous integration, whose machine must support it.
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
