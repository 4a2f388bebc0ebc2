//! Which tests a command runs, and in which environment.

use std::process::Command;

use anyhow::{Result, ensure};

use super::{
    junit::TestCase,
    nextest::{Nextest, Profile},
    suite,
};
use crate::{
    project, setup, shell,
    workspace::{bpf_cargo, cargo},
};

/// The variable with which a privileged test that cannot run fails.
const REQUIRE_PRIVILEGED: &str = "PROFILER_REQUIRE_PRIVILEGED";

/// The variable with which privileged tests are left out: they belong to another tier.
const SKIP_PRIVILEGED: &str = "PROFILER_SKIP_PRIVILEGED";

/// Test programs with tests that load no BPF program.
const UNPRIVILEGED: [&str; 4] = ["command_line", "golden", "recordings", "replay"];

/// Tests that load BPF programs or create BPF maps: those of two modules of the library, and test programs except those
/// that read files and outputs.
const PRIVILEGED: &str = "(package(ebpf-profiler) & test(/^(sampler|session)::/)) \
    + (kind(test) & not binary(/^(documents|dotnet_libraries|golden|html_page|other_tools|otlp_node|otlp_reader)$/))";

/// Tests that read many files of this machine or write the largest profiles. `cargo xtask test` runs them, `cargo xtask
/// test --quick` does not.
const SLOW_TESTS: [&str; 3] =
    ["many_stacks_once_are_valid", "unwind_info_agrees_with_the_code_of_prologues", CFI_COMPARISON];

/// The test that compares unwind tables with gimli's evaluation, by default those of a sample of files.
pub(crate) const CFI_COMPARISON: &str = "unwind_tables_agree_with_the_call_frame_information";

/// The test that checks random OTLP requests by the rules of the backends, by default few of them.
pub(crate) const OTLP_RULES: &str = "random_windows_follow_the_rules_of_the_backends";

/// The test that records a server under load, by default for seconds.
pub(crate) const HEALTHY_SERVER: &str = "a_healthy_server_under_load_has_no_incident";

/// The test of findings on healthy programs, by default few of them.
const HEALTHY_PROGRAMS: &str = "healthy_programs_have_no_finding";

/// The test of findings on programs with known problems, by default few of them.
const KNOWN_CAUSES: &str = "known_causes_are_found_and_no_other_ones";

/// The variable with which the tests of findings have all of their programs.
const SITUATIONS: &str = "PROFILER_SITUATIONS";

/// Runs the tests that need no root and are quick.
pub(super) fn run_quick() -> Result<()> {
    let targets =
        ["--lib", "--bins"].into_iter().chain(UNPRIVILEGED.iter().flat_map(|name| ["--test", name]));
    let without_slow = SLOW_TESTS.map(|name| format!("not test(/{name}$/)")).join(" & ");
    let tests = Nextest::new(Profile::Default).args(targets).filter(&without_slow);
    suite::run(tests.env(SKIP_PRIVILEGED, "1"), Ok).map(drop)
}

/// Runs all tests with root. One that cannot run fails.
pub(super) fn run_all() -> Result<()> {
    let cases = suite::run(Nextest::new(Profile::Default), privileged)?;
    ensure_named_tests_exist(&cases)
}

/// Runs the tests that load BPF programs or create BPF maps. One that cannot run fails.
pub(super) fn run_privileged() -> Result<()> {
    suite::run(Nextest::new(Profile::Default).filter(PRIVILEGED), privileged).map(drop)
}

/// Runs the tests in documentation.
pub(super) fn run_documentation_tests() -> Result<()> {
    shell::run(&mut cargo(&["test", "--workspace", "--locked", "--quiet", "--doc"]))
}

/// Runs the tests of cgroups as targets where cgroup version 2 alone is mounted.
pub(super) fn run_on_cgroup2() -> Result<()> {
    let script = project::root().join("xtask/src/test/cgroup2-only.sh");
    let as_root = if shell::is_root() { "" } else { "sudo --preserve-env " };
    let tests =
        Nextest::new(Profile::Cgroup2Only).filter("binary(containers) & test(/^(measured::)?cgroups::/)");
    let runner = runner_variable()?;
    suite::run(tests, |tests| {
        Ok(privileged(tests)?.env(&runner, &format!("{as_root}sh {}", script.display())))
    })
    .map(drop)
}

/// Runs the tests whose name contains `name` again and again.
pub(super) fn repeat(name: &str, times: u32) -> Result<()> {
    let tests = Nextest::new(Profile::Default).filter(&format!("test({name})"));
    let cases = privileged(tests.args(["--stress-count", &times.to_string()]))?.run()?.cases;
    let failures = cases.iter().filter(|case| case.has_failed).count();
    ensure!(failures == 0, "{failures} of {} runs failed", cases.len());
    Ok(())
}

/// Runs the privileged tests that an expression selects.
pub(super) fn run_selected(expression: &str) -> Result<()> {
    suite::run(Nextest::new(Profile::Default).filter(expression), privileged).map(drop)
}

/// Runs the tests of a program that embeds the library, without the features that other packages enable.
pub(crate) fn run_embedder() -> Result<()> {
    let mut test = cargo(&["test", "--package", "profiler-embedder", "--locked"]);
    shell::run(with_privileges(&mut test)?)
}

/// Checks that servers of Debian's packages have no finding, idle and under load, and that programs with a problem have the finding
/// of its cause.
pub(crate) fn sample_healthy_programs() -> Result<()> {
    setup::install(&[setup::Purpose::Situations])?;
    run_long(HEALTHY_PROGRAMS, SITUATIONS, "all")?;
    run_long(KNOWN_CAUSES, SITUATIONS, "all")
}

/// Runs one test with more work than by default.
pub(crate) fn run_long(name: &str, variable: &str, value: &str) -> Result<()> {
    let tests = Nextest::new(Profile::Long).filter(&format!("test(/{name}$/)")).env(variable, value);
    suite::run(tests, privileged).map(drop)
}

/// Runs the tests of the BPF program that need no kernel.
pub(super) fn run_bpf_program() -> Result<()> {
    shell::run(&mut bpf_cargo(&["test", "--lib", "--locked", "--quiet"]))
}

/// Runs tests as root, and lets those that cannot run fail.
fn privileged(tests: Nextest) -> Result<Nextest> {
    tests.with(|command| with_privileges(command).map(drop))
}

fn with_privileges(test: &mut Command) -> Result<&mut Command> {
    test.env(REQUIRE_PRIVILEGED, "1").env_remove(SKIP_PRIVILEGED);
    // git refuses to list files for root in the folder of another user.
    test.env("GIT_CONFIG_COUNT", "1")
        .env("GIT_CONFIG_KEY_0", "safe.directory")
        .env("GIT_CONFIG_VALUE_0", "*");
    if !shell::is_root() {
        test.env(runner_variable()?, "sudo --preserve-env");
    }
    Ok(test)
}

/// The variable with the command that cargo starts test programs by.
fn runner_variable() -> Result<String> {
    let target = shell::host_target()?.to_uppercase().replace('-', "_");
    Ok(format!("CARGO_TARGET_{target}_RUNNER"))
}

/// A suite that lost its tests would pass, and a name that fits no test would leave a slow test in the quick tier.
fn ensure_named_tests_exist(cases: &[TestCase]) -> Result<()> {
    let has = |name: &str| cases.iter().any(|case| case.name.ends_with(name));
    for name in SLOW_TESTS.iter().chain([&OTLP_RULES, &HEALTHY_SERVER, &HEALTHY_PROGRAMS, &KNOWN_CAUSES]) {
        ensure!(has(name), "{}: no test is named {name}", file!());
    }
    for program in UNPRIVILEGED.iter().chain(&["end_to_end", "containers"]) {
        let has_tests = cases.iter().any(|case| case.binary == format!("profiler-tests::{program}"));
        ensure!(has_tests, "{}: the test program {program} has no test", file!());
    }
    Ok(())
}
