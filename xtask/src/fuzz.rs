//! `cargo xtask fuzz`: feeds the parsers random bytes, with the stable compiler.
//!
//! libFuzzer needs coverage counters, which a compiler pass of stable Rust puts in; only the address sanitizer, of
//! little use to code without `unsafe`, would need nightly. These are the flags that cargo-fuzz gives.

#![cfg(feature = "commands")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use crate::{project, shell};

/// Feed the parsers random bytes.
#[derive(Args)]
pub(crate) struct Fuzz {
    /// Only this target.
    target: Option<String>,
    /// How long each target runs, in seconds.
    #[arg(long, default_value_t = DEFAULT_SECONDS)]
    seconds: u32,
    /// Run each target for a second: all targets build and pass their seeds.
    #[arg(long)]
    smoke: bool,
}

const DEFAULT_SECONDS: u32 = 60;
const SMOKE_SECONDS: u32 = 1;

/// No input may make a parser take longer than this or use more than this.
const INPUT_SECONDS_LIMIT: u32 = 5;
const MEMORY_MIB_LIMIT: u32 = 512;

/// Files that matter have a header, a table or two, and little else.
const INPUT_BYTES_LIMIT: u32 = 16 << 10;

const COVERAGE_FLAGS: &str = "--cfg fuzzing -C passes=sancov-module -C llvm-args=-sanitizer-coverage-level=4 \
    -C llvm-args=-sanitizer-coverage-inline-8bit-counters -C llvm-args=-sanitizer-coverage-pc-table \
    -C llvm-args=-sanitizer-coverage-trace-compares";

impl Fuzz {
    pub(crate) fn run(&self) -> Result<()> {
        let mut targets = targets()?;
        if let Some(name) = &self.target {
            targets.retain(|target| target == name);
            ensure!(!targets.is_empty(), "no fuzz target is named {name}");
        }
        let programs = build(self.smoke)?;
        targets.iter().try_for_each(|target| self.fuzz(&programs, target))
    }

    fn fuzz(&self, programs: &Path, target: &str) -> Result<()> {
        // What was found stays for the next time, but a smoke test always begins anew: what fails must be the
        // change at hand.
        let corpus = output(if self.smoke { "smoke" } else { "corpus" }).join(target);
        if self.smoke && corpus.exists() {
            fs::remove_dir_all(&corpus)?;
        }
        let failures = output("failures").join(target);
        fs::create_dir_all(&corpus)?;
        fs::create_dir_all(&failures)?;
        let seconds = if self.smoke { SMOKE_SECONDS } else { self.seconds };
        println!("fuzz {target}: {seconds} s");

        let mut fuzzer = Command::new(programs.join(target));
        fuzzer.arg(format!("-max_total_time={seconds}")).arg(format!("-timeout={INPUT_SECONDS_LIMIT}"));
        // Memory that is reserved and not used costs nothing: only what is used counts.
        fuzzer
            .arg("-malloc_limit_mb=4096")
            .arg(format!("-rss_limit_mb={MEMORY_MIB_LIMIT}"))
            .arg(format!("-max_len={INPUT_BYTES_LIMIT}"));
        fuzzer.arg(format!("-artifact_prefix={}/", failures.display()));
        fuzzer.arg(&corpus).arg(folder().join("seeds").join(target));
        if self.smoke { shell::run_quietly(fuzzer.arg("-seed=1")) } else { shell::run(&mut fuzzer) }
    }
}

/// Builds every target and runs it for a moment.
pub(crate) fn smoke() -> Result<()> {
    Fuzz { target: None, seconds: SMOKE_SECONDS, smoke: true }.run()
}

/// Runs every target for the default time.
pub(crate) fn run_all() -> Result<()> {
    Fuzz { target: None, seconds: DEFAULT_SECONDS, smoke: false }.run()
}

fn targets() -> Result<Vec<String>> {
    let files = project::files_below(&folder().join("fuzz_targets"))?;
    Ok(files.iter().filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned())).collect())
}

/// Builds all targets, without optimization for a smoke test, which is over before that would pay; the folder they are
/// in.
fn build(smoke: bool) -> Result<PathBuf> {
    let host = shell::host_target()?;
    let (profile, profile_folder) = if smoke { ("dev", "debug") } else { ("release", "release") };
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--quiet", "--profile", profile, "--locked", "--bins", "--target", &host]);
    cargo.arg("--target-dir").arg(output("")).env("RUSTFLAGS", COVERAGE_FLAGS).current_dir(folder());
    shell::run_quietly(&mut cargo).context("failed to build the fuzz targets")?;
    Ok(output("").join(host).join(profile_folder))
}

fn folder() -> PathBuf {
    project::root().join("tests/fuzz")
}

fn output(name: &str) -> PathBuf {
    project::root().join("target/fuzz").join(name)
}
