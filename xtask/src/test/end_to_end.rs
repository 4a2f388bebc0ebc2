//! Runs the tests of the package `profiler-tests`: the unprivileged ones alone, or all with root.

use std::process::Command;

use anyhow::{Result, ensure};

use crate::{shell, workspace::cargo};

/// The variable with which a privileged test that cannot run fails.
pub(super) const REQUIRE_PRIVILEGED: &str = "PROFILER_REQUIRE_PRIVILEGED";

/// The variable with which privileged tests are left out: they belong to another tier.
pub(super) const SKIP_PRIVILEGED: &str = "PROFILER_SKIP_PRIVILEGED";

const PACKAGE: [&str; 4] = ["test", "--package", "profiler-tests", "--locked"];

/// Test binaries with tests that load no BPF program.
const UNPRIVILEGED: [&str; 4] = ["command_line", "golden", "recordings", "replay"];

/// Runs the tests that load no BPF program.
pub(crate) fn run_unprivileged() -> Result<()> {
    let mut test = cargo(&PACKAGE);
    test.args(UNPRIVILEGED.iter().flat_map(|name| ["--test", name])).env(SKIP_PRIVILEGED, "1");
    shell::run(&mut test)
}

/// Runs all tests with root. One that cannot run fails.
pub(crate) fn run() -> Result<()> {
    ensure_there_are_tests()?;
    shell::run(with_privileges(&mut cargo(&PACKAGE))?)
}

/// Makes a `cargo test` run its programs as root, and fail where a privileged test cannot run.
pub(super) fn with_privileges(test: &mut Command) -> Result<&mut Command> {
    test.env(REQUIRE_PRIVILEGED, "1").env_remove(SKIP_PRIVILEGED);
    if !shell::is_root() {
        let target = shell::host_target()?.to_uppercase().replace('-', "_");
        test.env(format!("CARGO_TARGET_{target}_RUNNER"), "sudo --preserve-env");
    }
    Ok(test)
}

/// A suite that lost its tests would pass.
fn ensure_there_are_tests() -> Result<()> {
    let list = shell::read(cargo(&PACKAGE).args(["--", "--list"]))?;
    ensure!(list.lines().any(|line| line.ends_with(": test")), "there are no end-to-end tests");
    Ok(())
}
