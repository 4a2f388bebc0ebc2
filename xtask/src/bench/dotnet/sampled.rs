//! Reads stacks with all frame fields from the test program that samples with the library.

use std::{path::PathBuf, process::Command};

use anyhow::{Context as _, Result};

use super::super::stacks::{self, Entry, Stack};
use crate::{project, shell};

/// The program that samples and prints. It belongs to the tests, so that this crate needs no profiler.
const PROGRAM: &str = "frames";

/// Stacks and their numbers of samples.
pub(super) struct Sampled(Vec<(Vec<Frame>, u64)>);

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    /// In its module; for JIT code, in the process.
    pub(super) address: u64,
    /// The symbol source, as the library spells it. `None` if unsymbolized.
    pub(super) source: Option<String>,
    pub(super) module: String,
    pub(super) name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Jit,
    Precompiled,
    Unmanaged,
}

/// Builds the program that [`sample`] runs. It is optimized: its samples count from the first one, before unwind tables are
/// installed.
pub(super) fn build() -> Result<()> {
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "--locked", "--package", "profiler-tests", "--bin", PROGRAM]);
    shell::run(cargo.current_dir(project::root()))
}

/// Samples a process for this time.
pub(super) fn sample(pid: u32, frequency_hz: u64, seconds: u64) -> Result<Sampled> {
    run(pid, frequency_hz, seconds, &[])
}

/// The same with the names of the runtime's events, which take precedence over a perf map.
pub(super) fn sample_by_events(pid: u32, frequency_hz: u64, seconds: u64) -> Result<Sampled> {
    run(pid, frequency_hz, seconds, &["events"])
}

fn run(pid: u32, frequency_hz: u64, seconds: u64, names: &[&str]) -> Result<Sampled> {
    let program: PathBuf = project::root().join("target/release").join(PROGRAM);
    let mut command = shell::as_root(program);
    let text = shell::read(
        command.args([pid.into(), frequency_hz, seconds].map(|number| number.to_string())).args(names),
    )?;
    parse(&text).context("malformed stacks")
}

/// Parses a line `stack`, samples, end; behind it a line `frame`, kind, address, symbolization, module, name for each
/// frame.
fn parse(text: &str) -> Option<Sampled> {
    let mut stacks: Vec<(Vec<Frame>, u64)> = Vec::new();
    for line in text.lines() {
        match line.split_once('\t')? {
            ("stack", rest) => stacks.push((Vec::new(), rest.split('\t').next()?.parse().ok()?)),
            (_, rest) => stacks.last_mut()?.0.push(frame(rest)?),
        }
    }
    Some(Sampled(stacks))
}

fn frame(fields: &str) -> Option<Frame> {
    let mut fields = fields.splitn(5, '\t');
    let kind = match fields.next()? {
        "Jit" => Kind::Jit,
        "Precompiled" => Kind::Precompiled,
        _ => Kind::Unmanaged,
    };
    let address = u64::from_str_radix(fields.next()?, 16).ok()?;
    let symbolization = fields.next()?;
    let source = symbolization.strip_prefix("Symbol(").and_then(|source| source.strip_suffix(')'));
    Some(Frame {
        kind,
        address,
        source: source.map(str::to_owned),
        module: fields.next()?.to_owned(),
        name: fields.next()?.to_owned(),
    })
}

impl Sampled {
    /// The frames of every sample, each with its number of samples.
    pub(super) fn frames(&self) -> impl Iterator<Item = (&Frame, u64)> {
        self.0.iter().flat_map(|(frames, count)| frames.iter().map(|frame| (frame, *count)))
    }

    /// The share of samples whose frames, leaf first, satisfy a condition, in percent.
    pub(super) fn percent_with(&self, is_meant: impl Fn(&[Frame]) -> bool) -> f64 {
        let all: u64 = self.0.iter().map(|(_, count)| count).sum();
        let meant = self.0.iter().filter(|(frames, _)| is_meant(frames));
        100.0 * meant.map(|(_, count)| count).sum::<u64>() as f64 / all.max(1) as f64
    }

    /// Of the samples with managed frames, the share whose outermost frame is a root of a process or a thread, in
    /// percent.
    pub(super) fn whole_percent(&self, entry: &Entry) -> f64 {
        let managed = self.0.iter().filter(|(frames, _)| frames.iter().any(Frame::is_managed));
        let named = |frames: &[Frame]| frames.iter().map(|frame| frame.name.clone()).collect();
        let managed: Vec<Stack> = managed.map(|(frames, count)| (named(frames), *count)).collect();
        100.0 * stacks::rooted_share(&managed, entry)
    }
}

impl Frame {
    pub(super) fn is_managed(&self) -> bool {
        self.kind != Kind::Unmanaged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "stack\t3\tRoot\n\
        frame\tJit\t7f00\tSymbol(RuntimeEvents)\t\tapp!A.B()\n\
        frame\tNative\t10a5\tAddress(NoSymbols)\t/dotnet\t[dotnet+0x10a5]\n\
        stack\t1\tUnknown\nframe\tPrecompiled\t20\tAddress(NoSymbolHere)\t/x.dll\t[x.dll+0x20]\n";

    #[test]
    fn stacks_are_parsed_with_their_frames() {
        let sampled = parse(TEXT).unwrap();
        let (first, count) = sampled.frames().next().unwrap();
        assert_eq!((first.kind, first.address, count), (Kind::Jit, 0x7f00, 3));
        assert_eq!(first.source.as_deref(), Some("RuntimeEvents"));
        assert_eq!(sampled.percent_with(|frames| frames[0].source.is_some()), 75.0);
        assert!(parse("frame\tJit\t7f00\tx\t\ty\n").is_none());
    }

    #[test]
    fn managed_stacks_are_whole_if_their_root_is_a_process_entry() {
        let entry = Entry { file_name: "dotnet".to_owned(), elf_address: 0x10a0, runtime_address: 0 };
        assert_eq!(parse(TEXT).unwrap().whole_percent(&entry), 75.0);
    }
}
