//! Runs the program that embeds the library.

use std::{
    io::BufReader,
    process::{ChildStdout, Command},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};

use super::{
    minute::{Account, Minute},
    usage::Usage,
};
use crate::{
    process::{OwnedChild, next_line},
    project, shell,
    workspace::cargo,
};

/// The running program. Dropping it stops it.
pub(super) struct Embedder {
    child: OwnedChild,
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
        let (child, output) = OwnedChild::with_output(&mut command)?;
        Ok(Self { child, output, cpu: Duration::ZERO })
    }

    /// Waits for the next profile and measures the process.
    pub(super) fn minute(&mut self, number: u64) -> Result<Minute> {
        let account = self.account()?;
        let usage = Usage::of(self.child.id())?;
        let since_before = usage.cpu - std::mem::replace(&mut self.cpu, usage.cpu);
        Ok(Minute { number, usage: Usage { cpu: since_before, ..usage }, account })
    }

    /// The account of what was sampled after the last minute: with it, the account of the whole session is exact.
    pub(super) fn finish(mut self) -> Result<Account> {
        let account = self.account()?;
        let status = self.child.wait()?;
        ensure!(status.success(), "the program that embeds the library failed: {status}");
        Ok(account)
    }

    fn account(&mut self) -> Result<Account> {
        let line = next_line(&mut self.output).context("the program that embeds the library failed")?;
        Account::parse(&line).with_context(|| format!("it printed {line:?}"))
    }
}
