//! `cargo xtask fuzz`: feeds the parsers random bytes, with the stable compiler.
//!
//! libFuzzer needs coverage counters, which a compiler pass of stable Rust puts in; only the address sanitizer, of
//! little use to code without `unsafe`, would need nightly.

use std::{fs, path::PathBuf, process::Command};

use anyhow::{Result, ensure};
use clap::Args;

use crate::{project, shell};

/// Feed the parsers random bytes.
#[derive(Args)]
pub(crate) struct Fuzz {
    /// Only this target.
    target: Option<String>,
    /// How long each target runs, in seconds.
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// A few seconds each: enough to see that all targets build and hold on first contact.
    #[arg(long)]
    smoke: bool,
}

const SMOKE_SECONDS: u32 = 3;

/// No input may make a parser take longer than this or use more than this.
const INPUT_SECONDS_LIMIT: u32 = 5;
const MEMORY_MIB_LIMIT: u32 = 1024;

const COVERAGE_FLAGS: &str = "--cfg fuzzing -C passes=sancov-module -C llvm-args=-sanitizer-coverage-level=4 \
    -C llvm-args=-sanitizer-coverage-inline-8bit-counters -C llvm-args=-sanitizer-coverage-pc-table \
    -C llvm-args=-sanitizer-coverage-trace-compares -C debug-assertions -C codegen-units=1";

impl Fuzz {
    pub(crate) fn run(&self) -> Result<()> {
        let seconds = if self.smoke { SMOKE_SECONDS } else { self.seconds };
        let mut targets = targets()?;
        if let Some(name) = &self.target {
            targets.retain(|target| target == name);
            ensure!(!targets.is_empty(), "no fuzz target is named {name}");
        }
        targets.iter().try_for_each(|target| fuzz(target, seconds))
    }
}

/// Builds every target and runs it for a moment.
pub(crate) fn smoke() -> Result<()> {
    Fuzz { target: None, seconds: SMOKE_SECONDS, smoke: true }.run()
}

fn targets() -> Result<Vec<String>> {
    let folder = project::root().join("tests/fuzz/fuzz_targets");
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let name = |path: PathBuf| Some(path.file_stem()?.to_string_lossy().into_owned());
    Ok(project::files_below(&folder)?.into_iter().filter_map(name).collect())
}

fn fuzz(target: &str, seconds: u32) -> Result<()> {
    println!("fuzz {target}: {seconds} s");
    let corpus = project::root().join("target/fuzz/corpus").join(target);
    fs::create_dir_all(&corpus)?;
    let mut cargo = Command::new("cargo");
    cargo.args(["run", "--quiet", "--release", "--locked", "--bin", target, "--target-dir"]);
    cargo.arg(project::root().join("target/fuzz")).args(["--target", &shell::host_target()?]).arg("--");
    cargo.arg(format!("-max_total_time={seconds}")).arg(format!("-timeout={INPUT_SECONDS_LIMIT}"));
    cargo.arg(format!("-rss_limit_mb={MEMORY_MIB_LIMIT}")).arg(corpus);
    cargo.env("RUSTFLAGS", COVERAGE_FLAGS).current_dir(project::root().join("tests/fuzz"));
    shell::run_quietly(&mut cargo)
}
