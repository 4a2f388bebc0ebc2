//! Admits privileged tests: those that measure run alone, the others side by side; decides what a test that cannot run does.

use std::{
    env,
    sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    thread,
};

use profiler::{Profiler, Target};

use crate::machine_load::MachineLoad;

/// The environment variable with which a test fails instead of being skipped if privileges or programs are missing.
const REQUIRE_PRIVILEGED: &str = "PROFILER_REQUIRE_PRIVILEGED";

/// The environment variable with which privileged tests are skipped, because another run executes them.
const SKIP_PRIVILEGED: &str = "PROFILER_SKIP_PRIVILEGED";

/// Set by continuous integration, where every started test must run.
const CI: &str = "CI";

/// The module of the tests that measure. `.config/nextest.toml` runs a test below a module of this name alone.
const MEASURED: &str = "measured";

/// Separates the tests of one process, as `cargo test` runs them. `cargo nextest` gives each a process of its own.
static LOCK: RwLock<()> = RwLock::new(());

/// Held by a test that measures. If the test fails, dropping it prints how busy the machine was.
#[derive(Debug)]
pub struct Alone {
    _lock: RwLockWriteGuard<'static, ()>,
    before: MachineLoad,
}

impl Drop for Alone {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("the machine during this test: {}", MachineLoad::now().since(self.before));
        }
    }
}

/// Admits a privileged test that asserts shares, losses, costs or deadlines, which other tests disturb. Returns `None` and
/// prints a notice if the machine does not permit sampling.
///
/// # Panics
/// Panics if the test is not below a module `measured`, or if the machine does not permit sampling and privileged tests are
/// required.
#[must_use]
pub fn measure_alone() -> Option<Alone> {
    assert!(is_measured() != Some(false), "a test that measures belongs into a module `{MEASURED}`");
    can_run().then(|| Alone {
        // A failed test does not affect the next one.
        _lock: LOCK.write().unwrap_or_else(PoisonError::into_inner),
        before: MachineLoad::now(),
    })
}

/// Admits a privileged test that asserts names, chains, messages, files or formats: it runs beside others of this kind.
///
/// # Panics
/// Panics if the test is below a module `measured`, or if the machine does not permit sampling and privileged tests are
/// required.
#[must_use]
pub fn run_beside_others() -> Option<RwLockReadGuard<'static, ()>> {
    assert!(is_measured() != Some(true), "a test in a module `{MEASURED}` runs alone");
    can_run().then(|| LOCK.read().unwrap_or_else(PoisonError::into_inner))
}

/// Whether this test is below a module `measured`. `None` in a thread that does not have the name of a test.
fn is_measured() -> Option<bool> {
    let thread = thread::current();
    let name = thread.name().filter(|name| *name != "main")?;
    Some(name.split("::").any(|module| module == MEASURED))
}

fn can_run() -> bool {
    static OBSTACLE: OnceLock<Option<String>> = OnceLock::new();
    if is_set(SKIP_PRIVILEGED) {
        eprintln!("skipped because of {SKIP_PRIVILEGED}");
        return false;
    }
    // A test that must run needs no trial: it fails with an error of its own.
    if is_set(REQUIRE_PRIVILEGED) {
        return true;
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
