//! `cargo xtask fuzz`: feeds the parsers random bytes, with the stable compiler.
//!
//! libFuzzer needs coverage counters to make inputs, which a compiler pass of stable Rust puts in; only the address
//! sanitizer, of little use to code without `unsafe`, would need nightly. These are the flags that cargo-fuzz gives.

#![cfg(feature = "commands")]

mod long_run;
mod statistics;

use std::{
    num::NonZero,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use anyhow::{Context as _, Result, anyhow, ensure};
use clap::Args;
use fs_err as fs;

use crate::{project, shell};

/// Feed the parsers random bytes.
#[derive(Args)]
pub(crate) struct Fuzz {
    /// Only this target.
    target: Option<String>,
    /// How long each target runs, in seconds.
    #[arg(long, default_value_t = DEFAULT_SECONDS)]
    seconds: u32,
    /// Run each target on its seeds alone: all targets build and pass them.
    #[arg(long)]
    smoke: bool,
    /// Run for this many minutes, which are divided among the targets, with inputs of up to 1 MiB; prints a table.
    #[arg(long, conflicts_with_all = ["seconds", "smoke"], value_parser = clap::value_parser!(u32).range(1..))]
    minutes: Option<u32>,
}

const DEFAULT_SECONDS: u32 = 60;

/// No input may make a parser take longer than this.
const INPUT_SECONDS_LIMIT: u32 = 5;

/// The inputs of a target.
#[derive(Clone, Copy)]
enum Inputs {
    /// The seeds, each once. Which new inputs the fuzzer makes in a given time depends on the machine and on the layout of the
    /// program: a change would fail by chance.
    Seeds,
    /// What the fuzzer makes of the seeds in this time.
    Generated { seconds: u32 },
}

/// The limits of a run of one target.
struct Limits {
    inputs: Inputs,
    /// Inputs are not longer.
    input_bytes: u32,
    /// Of the process: of one input, and of all inputs of the corpus.
    memory_mib: u32,
}

impl Limits {
    /// Files that matter have a header, a table or two, and little else.
    fn of_short_run(inputs: Inputs) -> Self {
        Self { inputs, input_bytes: 16 << 10, memory_mib: 512 }
    }
}

/// For targets that run on their seeds alone.
const FLAGS: &str = "--cfg fuzzing";

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
        match self.minutes {
            Some(minutes) => long_run::run(&programs, &targets, minutes),
            None if self.smoke => for_each_at_once(&targets, |target| self.fuzz(&programs, target)).map(drop),
            None => targets.iter().try_for_each(|target| self.fuzz(&programs, target)),
        }
    }

    fn fuzz(&self, programs: &Path, target: &str) -> Result<()> {
        // What was found stays for the next time, but a smoke test always begins anew: what fails must be the
        // change at hand.
        let corpus = output(if self.smoke { "smoke" } else { "corpus" }).join(target);
        if self.smoke && corpus.exists() {
            fs::remove_dir_all(&corpus)?;
        }
        let inputs = if self.smoke { Inputs::Seeds } else { Inputs::Generated { seconds: self.seconds } };
        let mut fuzzer = fuzzer(programs, target, &corpus, &Limits::of_short_run(inputs))?;
        println!("fuzz {target}");
        if self.smoke { shell::run_quietly(&mut fuzzer) } else { shell::run(&mut fuzzer) }
    }
}

/// Targets that run at the same time.
fn targets_at_once() -> usize {
    const MAX: usize = 2;
    thread::available_parallelism().map_or(1, NonZero::get).min(MAX)
}

/// Calls `run` for each target, for some at the same time.
fn for_each_at_once<T: Send>(targets: &[String], run: impl Fn(&str) -> Result<T> + Sync) -> Result<Vec<T>> {
    let next = AtomicUsize::new(0);
    let run_next = || targets.get(next.fetch_add(1, Ordering::Relaxed));
    let run_all = || -> Result<Vec<T>> { std::iter::from_fn(run_next).map(|target| run(target)).collect() };
    let results = thread::scope(|scope| {
        let workers: Vec<_> = (0..targets_at_once()).map(|_| scope.spawn(run_all)).collect();
        workers.into_iter().map(thread::ScopedJoinHandle::join).collect::<Result<Result<Vec<_>>, _>>()
    });
    Ok(results.map_err(|_| anyhow!("a thread panicked"))??.into_iter().flatten().collect())
}

/// The command that runs a target, which adds what it finds to `corpus`.
fn fuzzer(programs: &Path, target: &str, corpus: &Path, limits: &Limits) -> Result<Command> {
    let (failures, scratch) = (failures_folder(target), output("scratch").join(target));
    // A run that an input ended has left its files.
    if scratch.exists() {
        fs::remove_dir_all(&scratch)?;
    }
    for folder in [corpus, failures.as_path(), scratch.as_path()] {
        fs::create_dir_all(folder)?;
    }
    let mut fuzzer = Command::new(programs.join(target));
    fuzzer.env("TMPDIR", scratch);
    fuzzer
        .arg(match limits.inputs {
            Inputs::Seeds => "-runs=0".to_owned(),
            Inputs::Generated { seconds } => format!("-max_total_time={seconds}"),
        })
        .arg(format!("-timeout={INPUT_SECONDS_LIMIT}"))
        // Memory that is reserved and not used costs nothing: only what is used counts.
        .arg("-malloc_limit_mb=4096")
        .arg(format!("-rss_limit_mb={}", limits.memory_mib))
        .arg(format!("-max_len={}", limits.input_bytes))
        .arg(format!("-artifact_prefix={}/", failures.display()))
        .arg(corpus)
        .arg(folder().join("seeds").join(target));
    Ok(fuzzer)
}

/// Builds every target and runs it on its seeds.
pub(crate) fn smoke() -> Result<()> {
    Fuzz { target: None, seconds: DEFAULT_SECONDS, smoke: true, minutes: None }.run()
}

/// Runs every target for the default time.
pub(crate) fn run_all() -> Result<()> {
    Fuzz { target: None, seconds: DEFAULT_SECONDS, smoke: false, minutes: None }.run()
}

fn targets() -> Result<Vec<String>> {
    let files = project::files_below(&folder().join("fuzz_targets"))?;
    Ok(files.iter().filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned())).collect())
}

/// Builds all targets; the folder they are in. A smoke test is over before optimization would pay, and needs no coverage
/// counters, which make the build a fifth longer.
fn build(smoke: bool) -> Result<PathBuf> {
    let host = shell::host_target()?;
    let (profile, profile_folder, flags) =
        if smoke { ("dev", "debug", FLAGS) } else { ("release", "release", COVERAGE_FLAGS) };
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--quiet", "--profile", profile, "--locked", "--bins", "--target", &host]);
    cargo.arg("--target-dir").arg(output("")).env("RUSTFLAGS", flags).current_dir(folder());
    shell::run_quietly(&mut cargo).context("failed to build the fuzz targets")?;
    Ok(output("").join(host).join(profile_folder))
}

fn folder() -> PathBuf {
    project::root().join("tests/fuzz")
}

/// Where the inputs that a target failed on are.
fn failures_folder(target: &str) -> PathBuf {
    output("failures").join(target)
}

fn output(name: &str) -> PathBuf {
    project::root().join("target/fuzz").join(name)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct CommandLine {
        #[command(flatten)]
        fuzz: Fuzz,
    }

    fn parse(arguments: &str) -> Result<Fuzz, clap::Error> {
        let words = ["fuzz"].into_iter().chain(arguments.split_whitespace());
        CommandLine::try_parse_from(words).map(|line| line.fuzz)
    }

    #[test]
    fn minutes_are_for_one_target_or_all_and_exclude_other_times() {
        assert_eq!(parse("--minutes 60").ok().and_then(|fuzz| fuzz.minutes), Some(60));
        assert_eq!(parse("dwarf --minutes 5").ok().and_then(|fuzz| fuzz.target).as_deref(), Some("dwarf"));
        for arguments in ["--minutes 5 --seconds 5", "--minutes 5 --smoke", "--minutes 0"] {
            assert!(parse(arguments).is_err(), "{arguments}");
        }
    }

    #[test]
    fn every_target_has_seeds_and_is_built() {
        let manifest = fs::read_to_string(folder().join("Cargo.toml")).unwrap();
        for target in targets().unwrap() {
            assert!(manifest.contains(&format!("name = \"{target}\"")), "{target} is not in Cargo.toml");
            let seeds = project::files_below(&folder().join("seeds").join(&target)).unwrap();
            assert!(!seeds.is_empty(), "{target} has no seed");
        }
    }
}
