//! Reads stacks with all frame fields from the test program that samples with the library.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde::Deserialize;

use super::super::stacks::{self, Entry, Stack};
use crate::{project, shell, workspace};

/// The program that samples and prints. It belongs to the tests, so that this crate needs no profiler.
const PROGRAM: &str = "frames";

/// Stacks and their numbers of samples.
pub(super) struct Sampled(Vec<CountedStack>);

#[derive(Deserialize)]
struct CountedStack {
    count: u64,
    /// Leaf first.
    frames: Vec<Frame>,
}

/// One frame.
#[derive(Debug, Deserialize)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    /// In its module; for JIT code, in the process.
    pub(super) address: u64,
    /// The symbol source, as the library spells it. `None` if unsymbolized.
    pub(super) source: Option<String>,
    pub(super) module: String,
    pub(super) name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(super) enum Kind {
    Jit,
    Precompiled,
    #[serde(other)]
    Unmanaged,
}

/// Builds the program that [`sample`] runs. It is optimized: its samples count from the first one, before unwind tables are
/// installed.
pub(super) fn build() -> Result<()> {
    workspace::build(&format!("--release --package profiler-tests --bin {PROGRAM}"))
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
    Sampled::parse(&text)
}

impl Sampled {
    /// Parses a JSON object for each stack.
    fn parse(text: &str) -> Result<Self> {
        let stacks = serde_json::Deserializer::from_str(text).into_iter();
        Ok(Self(stacks.collect::<Result<_, _>>().context("malformed stacks")?))
    }

    /// The frames of every sample, each with its number of samples.
    pub(super) fn frames(&self) -> impl Iterator<Item = (&Frame, u64)> {
        self.0.iter().flat_map(|stack| stack.frames.iter().map(|frame| (frame, stack.count)))
    }

    /// The share of samples whose frames, leaf first, satisfy a condition, in percent.
    pub(super) fn percent_with(&self, is_meant: impl Fn(&[Frame]) -> bool) -> f64 {
        let all: u64 = self.0.iter().map(|stack| stack.count).sum();
        let meant = self.0.iter().filter(|stack| is_meant(&stack.frames));
        100.0 * meant.map(|stack| stack.count).sum::<u64>() as f64 / all.max(1) as f64
    }

    /// Of the samples with managed frames, the share whose outermost frame is a root of a process or a thread, in
    /// percent.
    pub(super) fn whole_percent(&self, entry: &Entry) -> f64 {
        let managed = self.0.iter().filter(|stack| stack.frames.iter().any(Frame::is_managed));
        let named = |frames: &[Frame]| frames.iter().map(|frame| frame.name.clone()).collect();
        let managed: Vec<Stack> = managed.map(|stack| (named(&stack.frames), stack.count)).collect();
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

    const TEXT: &str = r#"{"count":3,"frames":[
        {"kind":"Jit","address":32512,"source":"RuntimeEvents","module":"","name":"app!A.B()"},
        {"kind":"Native","address":4261,"source":null,"module":"/dotnet","name":"[dotnet+0x10a5]"}]}
        {"count":1,"frames":[
        {"kind":"Precompiled","address":32,"source":null,"module":"/x.dll","name":"[x.dll+0x20]"}]}"#;

    #[test]
    fn stacks_are_parsed_with_their_frames() {
        let sampled = Sampled::parse(TEXT).unwrap();
        let (first, count) = sampled.frames().next().unwrap();
        assert_eq!((first.kind, first.address, count), (Kind::Jit, 0x7f00, 3));
        assert_eq!(sampled.percent_with(|frames| frames[0].source.is_some()), 75.0);
        assert!(Sampled::parse("{}").is_err());
    }

    #[test]
    fn managed_stacks_are_whole_if_their_root_is_a_process_entry() {
        let entry = Entry { file_name: "dotnet".to_owned(), elf_address: 0x10a0, runtime_address: 0 };
        assert_eq!(Sampled::parse(TEXT).unwrap().whole_percent(&entry), 75.0);
    }
}
