//! The measurements of a minute: the process from outside, and the account in its profile.

use std::collections::BTreeMap;

use super::usage::Usage;
use crate::bench::report::number;

/// What the process used in a minute, and its profile.
pub(super) struct Minute {
    pub(super) number: u64,
    /// Its CPU time is the time used in the minute.
    pub(super) usage: Usage,
    pub(super) account: Account,
}

/// What a profile contains, and its ledger.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) is_exact: bool,
    pub(super) samples: u64,
    pub(super) stacks: u64,
    pub(super) processes: u64,
    pub(super) modules: u64,
    /// Ticks of all CPUs.
    pub(super) due: u64,
    pub(super) missed: u64,
    pub(super) lost_events: u64,
    /// Lost samples by cause.
    pub(super) lost: BTreeMap<String, u64>,
}

pub(super) const HEADING: &str = "| minute | resident MB | peak MB | descriptors | CPU s | samples | stacks | processes | \
modules | lost | ticks missed, % | lost process events | ledger |\n|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|---:|---:|---|";

impl Account {
    /// Parses a line of words `name=number`. Names that are not known here are causes of losses.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let mut account = Self::default();
        for word in line.split_whitespace() {
            let (name, number) = word.split_once('=')?;
            let number = number.parse().ok()?;
            match name {
                "whole" => {}
                "exact" => account.is_exact = number == 1,
                "samples" => account.samples = number,
                "stacks" => account.stacks = number,
                "processes" => account.processes = number,
                "modules" => account.modules = number,
                "due" => account.due = number,
                "missed" => account.missed = number,
                "lost_events" => account.lost_events = number,
                cause => drop(account.lost.insert(cause.to_owned(), number)),
            }
        }
        Some(account)
    }
}

impl Minute {
    pub(super) fn row(&self) -> String {
        let Self { number: minute, usage: Usage { resident_bytes, peak_bytes, descriptors, cpu }, account } =
            self;
        let Account { samples, stacks, processes, modules, lost_events, .. } = account;
        let megabytes = |bytes: &u64| number(*bytes as f64 / 1e6);
        let lost: Vec<String> =
            account.lost.iter().map(|(cause, count)| format!("{cause} {count}")).collect();
        format!(
            "| {minute} | {} | {} | {descriptors} | {} | {samples} | {stacks} | {processes} | {modules} | {} | {} | \
             {lost_events} | {} |",
            megabytes(resident_bytes),
            megabytes(peak_bytes),
            number(cpu.as_secs_f64()),
            if lost.is_empty() { "0".to_owned() } else { lost.join(", ") },
            number(100.0 * account.missed as f64 / account.due.max(1) as f64),
            if account.is_exact { "exact" } else { "**wrong**" },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_parsed_with_its_losses_by_cause() {
        let account = Account::parse("whole=0 exact=1 samples=5 stacks=4 MissingStack=2\n").unwrap();
        let lost = BTreeMap::from([("MissingStack".to_owned(), 2)]);
        assert_eq!(account, Account { is_exact: true, samples: 5, stacks: 4, lost, ..Account::default() });
        assert_eq!(Account::parse("samples"), None);
    }
}
