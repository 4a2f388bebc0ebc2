//! Runs the tests inside the packages: all of them, or those that are quick.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::end_to_end::{SKIP_PRIVILEGED, with_privileges};
use crate::{
    shell,
    workspace::{bpf_cargo, test_workspace},
};

/// Tests that read many files of this machine or write the largest profiles. `cargo xtask test` runs them, `cargo xtask
/// test --quick` does not.
const SLOW_TESTS: [&str; 3] =
    ["a_million_stacks_once_are_valid", "unwind_info_agrees_with_the_code_of_prologues", CFI_COMPARISON];

/// The test that compares unwind tables with gimli's evaluation, by default those of a sample of files.
const CFI_COMPARISON: &str = "unwind_tables_agree_with_the_call_frame_information";

/// The test that checks random OTLP requests by the rules of the backends, by default few of them.
const OTLP_RULES: &str = "random_windows_follow_the_rules_of_the_backends";

/// The modules of the library whose tests load BPF programs or create BPF maps.
const PRIVILEGED_MODULES: [&str; 2] = ["sampler::", "session::"];

/// Runs the quick tests of libraries and programs, without those in documentation.
pub(super) fn run_quick() -> Result<()> {
    ensure_slow_tests_exist()?;
    let mut test = test_workspace(&["--lib", "--bins", "--quiet"]);
    test.env(SKIP_PRIVILEGED, "1").arg("--");
    shell::run(test.args(SLOW_TESTS.iter().flat_map(|name| ["--skip", name])))
}

/// Runs all tests, also those in documentation. One that cannot run fails.
pub(super) fn run_all() -> Result<()> {
    shell::run(with_privileges(&mut test_workspace(&["--lib", "--bins"]))?)?;
    shell::run(&mut test_workspace(&["--doc"]))
}

/// Runs the tests that load BPF programs or create BPF maps. One that cannot run fails.
pub(super) fn run_privileged() -> Result<()> {
    let mut test = test_workspace(&["--lib", "--"]);
    shell::run(with_privileges(test.args(PRIVILEGED_MODULES))?)
}

/// Compares the unwind tables of every ELF file below `/usr` with gimli's evaluation.
pub(crate) fn compare_all_unwind_tables() -> Result<()> {
    ensure_slow_tests_exist()?;
    shell::run(test_workspace(&["--lib", CFI_COMPARISON]).env("PROFILER_COMPARE", "/usr"))
}

/// Checks a million random OTLP requests by the rules of the backends.
pub(crate) fn check_a_million_otlp_requests() -> Result<()> {
    ensure_slow_tests_exist()?;
    shell::run(test_workspace(&["--lib", OTLP_RULES]).env("PROFILER_RANDOM_WINDOWS", "1000000"))
}

/// Runs the tests of the BPF program that need no kernel.
pub(super) fn run_bpf_program() -> Result<()> {
    shell::run(&mut bpf_cargo(&["test", "--lib", "--locked"]))
}

/// A name that fits no test would leave a slow test in the quick tier, and run none alone.
fn ensure_slow_tests_exist() -> Result<()> {
    let mut list: Command = test_workspace(&["--lib", "--bins", "--quiet", "--", "--list"]);
    let list = shell::read(&mut list).context("failed to list the unit tests")?;
    for name in SLOW_TESTS.iter().chain([&OTLP_RULES]) {
        ensure!(list.contains(name), "xtask/src/test/unit_tests.rs: no test is named {name}");
    }
    Ok(())
}
