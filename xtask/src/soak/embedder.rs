//! Runs the program that embeds the library.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};

use super::{
    minute::{Account, Minute},
    usage::Usage,
};
use crate::{project, shell, workspace::cargo};

/// The running program. Dropping it stops it.
pub(super) struct Embedder {
    child: Child,
    output: BufReader<ChildStdout>,
    /// User and system time at the end of the last minute.
    cpu: Duration,
}

impl Embedder {
    pub(super) fn start(frequency_hz: u64, minutes: u64) -> Result<Self> {
        const SECONDS: u64 = 60;
        shell::run(&mut cargo(&["build", "--locked", "--release", "--package", "profiler-embedder"]))?;
        let mut command = Command::new(project::root().join("target/release/agent"));
        command.args([frequency_hz, SECONDS, minutes].map(|number| number.to_string()));
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let output = BufReader::new(child.stdout.take().context("a child has an output")?);
        Ok(Self { child, output, cpu: Duration::ZERO })
    }

    /// Waits for the next profile and measures the process.
    pub(super) fn minute(&mut self, number: u64) -> Result<Minute> {
        let account = self.account()?;
        let usage = Usage::of(self.child.id())?;
        let since_before = usage.cpu - std::mem::replace(&mut self.cpu, usage.cpu);
        Ok(Minute { number, usage: Usage { cpu: since_before, ..usage }, account })
    }

    /// The account of the rest, with which that of the whole session is exact.
    pub(super) fn finish(mut self) -> Result<Account> {
        let account = self.account()?;
        let status = self.child.wait()?;
        ensure!(status.success(), "the program that embeds the library failed: {status}");
        Ok(account)
    }

    fn account(&mut self) -> Result<Account> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        ensure!(!line.is_empty(), "the program that embeds the library failed");
        Account::parse(&line).with_context(|| format!("it printed {line:?}"))
    }
}

impl Drop for Embedder {
    fn drop(&mut self) {
        // It has exited unless the run failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
