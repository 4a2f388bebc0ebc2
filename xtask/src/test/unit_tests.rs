//! Runs the tests inside the packages: all of them, or those that are quick.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::end_to_end::{SKIP_PRIVILEGED, with_privileges};
use crate::{
    shell,
    workspace::{bpf_cargo, cargo},
};

/// Tests that take seconds, because they read many files of this machine or millions of samples. `cargo xtask test` runs
/// them, `cargo xtask test --quick` does not. Parts of a name are enough.
const SLOW_TESTS: [&str; 0] = [];

/// Runs the quick tests of libraries and programs, without those in documentation.
pub(super) fn run_quick() -> Result<()> {
    ensure_slow_tests_exist()?;
    let mut test = of_packages(&[]);
    test.args(["--lib", "--bins", "--quiet"]).env(SKIP_PRIVILEGED, "1").arg("--");
    shell::run(test.args(SLOW_TESTS.iter().flat_map(|name| ["--skip", name])))
}

/// Runs all tests. One that cannot run fails.
pub(super) fn run_all() -> Result<()> {
    // The tests of this package list files with git, which refuses to serve root in the folder of another user.
    shell::run(with_privileges(&mut of_packages(&["xtask"]))?)?;
    shell::run(&mut cargo(&["test", "--package", "xtask", "--locked"]))
}

/// Runs the tests of the library that load BPF programs or create BPF maps, among others. One that cannot run fails.
pub(super) fn run_privileged() -> Result<()> {
    shell::run(with_privileges(&mut cargo(&["test", "--package", "profiler", "--lib", "--locked"]))?)
}

/// Runs the tests of the BPF program that need no kernel.
pub(super) fn run_bpf_program() -> Result<()> {
    shell::run(&mut bpf_cargo(&["test", "--lib", "--locked"]))
}

/// `cargo test` of all packages but those with end-to-end tests and `excluded`.
fn of_packages(excluded: &[&str]) -> Command {
    let mut test = cargo(&["test", "--workspace", "--locked"]);
    test.args(["--exclude", "profiler-tests", "--exclude", "profiler-embedder"]);
    test.args(excluded.iter().flat_map(|name| ["--exclude", name]));
    test
}

/// A name that fits no test would leave a slow test in the quick tier.
fn ensure_slow_tests_exist() -> Result<()> {
    let mut list = of_packages(&[]);
    list.args(["--lib", "--bins", "--quiet", "--", "--list"]);
    let list = shell::read(&mut list).context("failed to list the unit tests")?;
    for name in SLOW_TESTS {
        ensure!(list.contains(name), "SLOW_TESTS in xtask/src/test/unit_tests.rs: no test is named {name}");
    }
    Ok(())
}
