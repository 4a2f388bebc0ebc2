//! Checks of the sources that run no test: format, lints, dependencies, a second build.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Result, ensure};

use crate::{
    project, shell,
    workspace::{bpf_cargo, cargo},
};

/// Compares the format of all Rust files with `rustfmt`'s.
pub(super) fn format() -> Result<()> {
    shell::run(&mut cargo(&["fmt", "--all", "--check"]))?;
    shell::run(&mut bpf_cargo(&["fmt", "--check"]))?;
    let mut rustfmt = Command::new("rustfmt");
    rustfmt.args(["--edition", "2024", "--check"]).current_dir(project::root());
    let is_rust = |path: &Path| path.extension().is_some_and(|extension| extension == "rs");
    let workloads = project::files_below(&project::root().join("tests/workloads"))?;
    shell::run(rustfmt.args(workloads.iter().filter(|path| is_rust(path))))
}

/// Runs the lints. `clippy::incompatible_msrv`, which is among them, compares the standard library's items with
/// `rust-version`.
pub(super) fn clippy() -> Result<()> {
    let denied = ["--", "-D", "warnings", "-D", "clippy::incompatible_msrv"];
    shell::run(cargo(&["clippy", "--workspace", "--all-targets", "--locked"]).args(denied))?;
    shell::run(bpf_cargo(&["clippy", "--lib", "--tests", "--locked"]).args(denied))
}

/// Checks licences and sources of the dependencies.
pub(super) fn dependencies() -> Result<()> {
    let config = project::root().join("deny.toml");
    let deny = |mut deny: Command| {
        deny.arg("--config").arg(&config);
        shell::run(deny.args(["check", "--hide-inclusion-graph", "bans", "licenses", "sources"]))
    };
    deny(cargo(&["deny"]))?;
    deny(bpf_cargo(&["deny"]))
}

/// Builds all tests, and fails if a second build compiles anything.
pub(crate) fn second_build() -> Result<()> {
    let build = || cargo(&["nextest", "run", "--workspace", "--locked", "--no-run"]);
    shell::run(&mut build())?;
    let output = build().stderr(Stdio::piped()).output()?;
    let messages = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success() && !messages.contains("Compiling"),
        "a second build compiles again:\n{messages}"
    );
    Ok(())
}
