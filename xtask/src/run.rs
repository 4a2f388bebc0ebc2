//! `cargo xtask run`: builds the profiler with stable Rust and draws a flame graph of a small program.

use std::{
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Error, Result};

use crate::{project, rust_workload, shell, static_binary};

/// Builds the static binary and runs it as root with `arguments`; without any, profiles the demo program.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let profiler = static_binary::build(static_binary::QUICK)?;
    if arguments.is_empty() {
        return profile_demo(&profiler);
    }
    // Replaces this process, so that Ctrl-C and the exit code are the profiler's own.
    let error = shell::as_root(profiler).args(arguments).exec();
    Err(Error::new(error).context("failed to start the profiler"))
}

/// The file that [`profile_demo`] writes.
pub(crate) fn flame_graph() -> PathBuf {
    project::root().join("flame.svg")
}

/// Profiles the demo program for five seconds.
pub(crate) fn profile_demo(profiler: &Path) -> Result<()> {
    const SECONDS: &str = "5";
    let demo = rust_workload::build("demo")?;
    let mut command: Command = shell::as_root(profiler);
    command.args(["-F", "99", "-d", SECONDS, "-o"]).arg(flame_graph()).arg("--");
    shell::run(command.arg(demo).arg(SECONDS))?;
    println!("flame graph: {} (open it in a browser)", flame_graph().display());
    Ok(())
}
