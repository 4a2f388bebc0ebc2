//! `cargo xtask run`: the way from a fresh clone to a flame graph, with stable Rust alone.

use std::{os::unix::process::CommandExt as _, path::PathBuf, process::Command};

use anyhow::{Error, Result};
use clap::Args;

use crate::{project, shell, workloads};

/// Build the static release binary and run it as root; without arguments, on a small program for five seconds.
#[derive(Args)]
pub(crate) struct Run {
    /// What `profiler` is given.
    #[arg(last = true)]
    arguments: Vec<String>,
}

impl Run {
    pub(crate) fn run(self) -> Result<()> {
        let profiler = build_static()?;
        if self.arguments.is_empty() {
            return profile_demo(profiler);
        }
        // Takes the place of this process, so that Ctrl-C and the exit code are the profiler's own.
        let error = shell::as_root(profiler).args(self.arguments).exec();
        Err(Error::new(error).context("failed to start the profiler"))
    }
}

/// Builds the binary that runs on any Linux, and returns its path.
pub(crate) fn build_static() -> Result<PathBuf> {
    let target = shell::host_target()?;
    let folder = project::root().join("target/static");
    let mut cargo = Command::new("cargo");
    // A target by name, so that build scripts and macros are not linked statically.
    cargo.args([
        "build",
        "--release",
        "--locked",
        "--package",
        "profiler",
        "--target",
        &target,
        "--target-dir",
    ]);
    cargo.arg(&folder).env("RUSTFLAGS", "-C target-feature=+crt-static").current_dir(project::root());
    shell::run(&mut cargo)?;
    Ok(folder.join(target).join("release/profiler"))
}

fn profile_demo(profiler: PathBuf) -> Result<()> {
    const SECONDS: &str = "5";
    workloads::build_rust("demo")?;
    let graph = project::root().join("flame.svg");
    let mut command = shell::as_root(profiler);
    command.args(["-F", "99", "-d", SECONDS, "-o"]).arg(&graph).arg("--");
    shell::run(command.arg(workloads::output_folder().join("demo")).arg(SECONDS))?;
    println!("flame graph: {} (open it in a browser)", graph.display());
    Ok(())
}
