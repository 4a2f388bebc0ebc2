//! Runs a program that samples the machine and prints a line a minute, and measures it from outside.

use std::{
    collections::BTreeMap,
    io::BufReader,
    process::{ChildStdout, Command},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use fs_err as fs;

use crate::process::{self, OwnedChild, next_line};

/// The running program. Dropping it stops it.
pub(super) struct Program {
    child: OwnedChild,
    output: BufReader<ChildStdout>,
    /// User and system time at the end of the last minute.
    cpu: Duration,
}

/// What the program used in a minute, and its account.
pub(super) struct Minute {
    pub(super) resident_mb: f64,
    /// The most since the start.
    pub(super) peak_mb: f64,
    pub(super) descriptors: usize,
    /// User and system time in the minute.
    pub(super) cpu: Duration,
    pub(super) account: Account,
}

/// The numbers in a line of words `name=number`, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Account(BTreeMap<String, u64>);

impl Program {
    pub(super) fn start(command: &mut Command) -> Result<Self> {
        let (child, output) = OwnedChild::with_output(command)?;
        Ok(Self { child, output, cpu: Duration::ZERO })
    }

    /// Waits for the line of the next minute, which has `text`, and measures the process.
    pub(super) fn minute(&mut self, text: &str) -> Result<Minute> {
        const BYTES_PER_MB: f64 = 1e6;
        let account = self.account(text)?;
        let pid = self.child.id();
        let cpu = process::cpu_time(pid)?;
        let [resident_mb, peak_mb] = [process::resident_bytes(pid)?, process::peak_bytes(pid)?]
            .map(|bytes| bytes as f64 / BYTES_PER_MB);
        Ok(Minute {
            resident_mb,
            peak_mb,
            descriptors: fs::read_dir(format!("/proc/{pid}/fd"))?.count(),
            cpu: cpu - std::mem::replace(&mut self.cpu, cpu),
            account,
        })
    }

    /// Waits for the last line, which has `text`, and for the end of the process. What was sampled after the last minute is in
    /// this account.
    pub(super) fn finish(mut self, text: &str) -> Result<Account> {
        let account = self.account(text)?;
        let status = self.child.wait()?;
        ensure!(status.success(), "the program failed: {status}");
        Ok(account)
    }

    fn account(&mut self, text: &str) -> Result<Account> {
        loop {
            let line = next_line(&mut self.output).context("the program failed")?;
            if line.contains(text) {
                return Ok(Account::parse(&line));
            }
        }
    }
}

impl Account {
    /// Words that are no numbers are left out.
    pub(crate) fn parse(line: &str) -> Self {
        let number = |word: &str| {
            let (name, number) = word.split_once('=')?;
            Some((name.to_owned(), number.parse().ok()?))
        };
        Self(line.split_whitespace().filter_map(number).collect())
    }

    /// The number with this name.
    pub(crate) fn number(&self, name: &str) -> Result<u64> {
        self.0.get(name).copied().with_context(|| format!("no {name} in {:?}", self.0))
    }

    /// Names and numbers, without those of `known`.
    pub(super) fn others(&self, known: &[&str]) -> impl Iterator<Item = (&str, u64)> {
        let numbers = self.0.iter().map(|(name, number)| (name.as_str(), *number));
        numbers.filter(move |(name, _)| !known.contains(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_has_the_numbers_of_its_line() {
        let account = Account::parse("event=window samples=5 MissingStack=2\n");
        assert_eq!(account.number("samples").unwrap(), 5);
        assert_eq!(account.others(&["samples"]).collect::<Vec<_>>(), [("MissingStack", 2)]);
        assert!(account.number("event").is_err() && account.number("stacks").is_err());
    }
}
