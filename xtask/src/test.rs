//! `cargo xtask test`: installs what is missing and runs every check there is, stopping at the first that fails.

use std::{
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use crate::{build_ebpf, fuzz, kernel_matrix, project, setup, shell, tidy, workloads};

/// Install what is missing and run every check, up to the end-to-end tests with the real kernel.
#[derive(Args)]
pub(crate) struct Test {}

type Step = (&'static str, fn() -> Result<()>);

/// Quick ones first, so that a slip shows at once.
const STEPS: [Step; 14] = [
    ("setup", || setup::install(&setup::FOR_TESTS)),
    ("format", format),
    ("tidy", tidy::check),
    ("clippy", clippy),
    ("documentation", documentation),
    ("dependencies", dependencies),
    ("kernel side", build_ebpf::check),
    ("unit, golden, replay and command-line tests", tests),
    ("fuzz smoke", fuzz::smoke),
    ("a second build does nothing", second_build),
    ("man pages and completions", || shell::run(&mut cargo(&["xtask", "manual"]))),
    ("workloads", workloads::build),
    ("end-to-end tests", end_to_end),
    ("kernel matrix", kernel_matrix::run_if_changed),
];

impl Test {
    pub(crate) fn run(&self) -> Result<()> {
        let mut durations = Vec::new();
        for (name, step) in STEPS {
            println!("\n==> {name}");
            let start = Instant::now();
            step().with_context(|| format!("failed: {name}"))?;
            let duration = start.elapsed();
            println!("<== {name}: {}", seconds(duration));
            durations.push((name, duration));
        }
        let all: Duration = durations.iter().map(|(_, duration)| *duration).sum();
        durations.sort_by_key(|(_, duration)| std::cmp::Reverse(*duration));
        let longest =
            durations.iter().take(3).map(|(name, duration)| format!("{name} {}", seconds(*duration)));
        let longest = longest.collect::<Vec<_>>().join(", ");
        println!("\nall {} checks passed in {} (longest: {longest})", durations.len(), seconds(all));
        Ok(())
    }
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

fn format() -> Result<()> {
    shell::run(&mut cargo(&["fmt", "--all", "--check"]))?;
    shell::run(kernel_side(&mut cargo(&["fmt", "--check"])))?;
    let mut rustfmt = Command::new("rustfmt");
    rustfmt.args(["--edition", "2024", "--check"]).current_dir(project::root());
    let is_rust = |path: &Path| path.extension().is_some_and(|extension| extension == "rs");
    let workloads = project::files_below(&project::root().join("tests/workloads"))?;
    shell::run(rustfmt.args(workloads.iter().filter(|path| is_rust(path))))
}

fn clippy() -> Result<()> {
    shell::run(&mut cargo(&["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"]))?;
    shell::run(kernel_side(&mut cargo(&["clippy", "--lib", "--tests", "--locked", "--", "-D", "warnings"])))
}

fn documentation() -> Result<()> {
    let mut doc = cargo(&["doc", "--package", "profiler", "--no-deps", "--locked"]);
    shell::run(doc.env("RUSTDOCFLAGS", "-D warnings"))
}

fn dependencies() -> Result<()> {
    let config = project::root().join("deny.toml");
    let deny = || {
        let mut deny = cargo(&["deny", "--config"]);
        deny.arg(&config).args(["check", "--hide-inclusion-graph", "bans", "licenses", "sources"]);
        deny
    };
    shell::run(&mut deny())?;
    shell::run(kernel_side(&mut deny()))
}

fn tests() -> Result<()> {
    shell::run(&mut cargo(&["test", "--workspace", "--exclude", "profiler-tests", "--locked"]))?;
    shell::run(kernel_side(&mut cargo(&["test", "--lib", "--locked"])))
}

fn second_build() -> Result<()> {
    shell::run(&mut cargo(&["build", "--locked"]))?;
    let output = cargo(&["build", "--locked"]).stderr(Stdio::piped()).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success() && !said.contains("Compiling"), "a second build is not idle:\n{said}");
    Ok(())
}

/// The tests that need privileges fail instead of being skipped.
fn end_to_end() -> Result<()> {
    ensure_there_are_tests()?;
    let mut test = cargo(&["test", "--package", "profiler-tests", "--locked"]);
    test.env("PROFILER_REQUIRE_PRIVILEGED", "1");
    if !shell::is_root() {
        let target = shell::host_target()?.to_uppercase().replace('-', "_");
        test.env(format!("CARGO_TARGET_{target}_RUNNER"), "sudo --preserve-env");
    }
    shell::run(&mut test)
}

/// A suite that lost its tests would pass.
fn ensure_there_are_tests() -> Result<()> {
    let list = shell::read(&mut cargo(&["test", "--package", "profiler-tests", "--locked", "--", "--list"]))?;
    ensure!(list.lines().any(|line| line.ends_with(": test")), "there are no end-to-end tests");
    Ok(())
}

fn cargo(arguments: &[&str]) -> Command {
    let mut cargo = Command::new("cargo");
    cargo.args(arguments).current_dir(project::root());
    cargo
}

fn kernel_side(command: &mut Command) -> &mut Command {
    command.current_dir(project::root().join("profiler-ebpf"))
}
