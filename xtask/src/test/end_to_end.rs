//! Runs the tests of the package `profiler-tests`: the unprivileged ones alone, or all with root.

use std::process::Command;

use anyhow::{Result, ensure};

use crate::{
    project, shell,
    workspace::{cargo, packages, test_workspace},
};

/// The variable with which a privileged test that cannot run fails.
pub(super) const REQUIRE_PRIVILEGED: &str = "PROFILER_REQUIRE_PRIVILEGED";

/// The variable with which privileged tests are left out: they belong to another tier.
pub(super) const SKIP_PRIVILEGED: &str = "PROFILER_SKIP_PRIVILEGED";

/// The packages of the end-to-end tests.
const PACKAGES: [&str; 3] = ["profiler-agent", "profiler-embedder", "profiler-tests"];

/// Test programs with tests that load no BPF program.
const UNPRIVILEGED: [&str; 4] = ["command_line", "golden", "recordings", "replay"];

/// Test programs that read files and outputs: at most one of their tests loads a BPF program.
const MOSTLY_UNPRIVILEGED: [&str; 7] =
    ["documents", "dotnet_libraries", "golden", "html_page", "other_tools", "otlp_node", "otlp_reader"];

/// Runs the tests that load no BPF program.
pub(crate) fn run_unprivileged() -> Result<()> {
    let mut test = test_workspace(&[]);
    test.args(UNPRIVILEGED.iter().flat_map(|name| ["--test", name])).env(SKIP_PRIVILEGED, "1");
    shell::run(&mut test)
}

/// Runs all tests with root. One that cannot run fails.
pub(crate) fn run() -> Result<()> {
    run_with_root(|_| true)
}

/// Runs the test programs whose tests load BPF programs, with root. A test that cannot run fails.
pub(super) fn run_privileged() -> Result<()> {
    run_with_root(|name| !MOSTLY_UNPRIVILEGED.contains(&name))
}

fn run_with_root(is_selected: impl Fn(&str) -> bool) -> Result<()> {
    let mut test = test_workspace(&[]);
    for package in packages()?.iter().filter(|package| PACKAGES.contains(&package.name.as_str())) {
        let names = package.tests().filter(|name| is_selected(name));
        test.args(names.flat_map(|name| ["--test", name]));
    }
    ensure_there_are_tests(&mut test)?;
    shell::run(with_privileges(&mut test)?)
}

/// Runs the tests of a program that embeds the library, without the features that other packages enable.
pub(crate) fn run_embedder() -> Result<()> {
    let mut test = cargo(&["test", "--package", "profiler-embedder", "--locked"]);
    shell::run(with_privileges(&mut test)?)
}

/// Records a healthy server for ten minutes, in which no condition may become true.
pub(crate) fn record_healthy_server() -> Result<()> {
    let mut test =
        test_workspace(&["--test", "end_to_end", "--", "a_healthy_server_under_load_has_no_incident"]);
    shell::run(with_privileges(&mut test)?.env("PROFILER_HEALTHY_SECONDS", "600"))
}

/// Runs the tests of cgroups as targets where cgroup version 2 alone is mounted.
pub(super) fn run_on_cgroup2() -> Result<()> {
    let script = project::root().join("xtask/src/test/cgroup2-only.sh");
    let mut test = test_workspace(&["--test", "containers", "--", "cgroups::"]);
    with_privileges(&mut test)?;
    let as_root = if shell::is_root() { "" } else { "sudo --preserve-env " };
    test.env(runner_variable()?, format!("{as_root}sh {}", script.display()));
    shell::run(&mut test)
}

/// The variable with the command that cargo starts test programs by.
fn runner_variable() -> Result<String> {
    let target = shell::host_target()?.to_uppercase().replace('-', "_");
    Ok(format!("CARGO_TARGET_{target}_RUNNER"))
}

/// Makes a `cargo test` run its programs as root, and fail where a privileged test cannot run.
pub(super) fn with_privileges(test: &mut Command) -> Result<&mut Command> {
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

/// A suite that lost its tests would pass.
fn ensure_there_are_tests(test: &mut Command) -> Result<()> {
    let mut list = Command::new(test.get_program());
    list.args(test.get_args()).args(["--", "--list"]).current_dir(project::root());
    let list = shell::read(&mut list)?;
    ensure!(list.lines().any(|line| line.ends_with(": test")), "there are no end-to-end tests");
    Ok(())
}
