//! `cargo xtask soak`: samples a machine under churn for a long time, in a program that embeds the library or by the node
//! agent, and checks that memory and descriptors stay bounded and that every ledger is exact.

#![cfg(feature = "commands")]

mod churn;
mod embedder;
mod node_agent;
mod program;

use std::process::Command;

use anyhow::{Result, ensure};
use clap::Args;

pub(crate) use self::{churn::Churn, embedder::build as build_embedder, program::Account};
use self::{
    churn::Done,
    program::{Minute, Program},
};
use crate::{
    bench::{
        agent::Receiver,
        report::{Report, number},
    },
    document, setup, workloads,
};

/// The document with the tables.
const DOCUMENT: &str = "docs/benchmarks.md";

/// The frequency at which two CPUs have enough samples for the distinct stacks, with a third of one of them.
const FREQUENCY_HZ: u64 = 997;

/// Sample a machine under churn, take a profile every minute, and check memory, descriptors and ledgers.
#[derive(Args)]
pub(crate) struct Soak {
    /// An hour has the whole churn: 100,000 processes, 1,000,000 stacks, 50,000 executable files.
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(2..=1440))]
    minutes: u64,
    /// Run `profiler agent -F 19` with a receiver in its place: one window a minute.
    #[arg(long)]
    agent: bool,
    /// The program gets its profiles from `Session::polled_intervals`, in a task of an async runtime.
    #[arg(long, conflicts_with = "agent")]
    stream: bool,
    /// Put the table into docs/benchmarks.md.
    #[arg(long)]
    write: bool,
}

/// A program that samples the machine, and what is measured of it.
struct Subject {
    /// The name of its table in the document.
    table: &'static str,
    /// The first columns are the minute, what the process uses, and behind them those of `cells`; the last one is the account.
    heading: &'static str,
    /// A text in the line that it prints each minute, and one in its last line.
    line_of_minute: &'static str,
    last_line: &'static str,
    /// Builds it, and returns the command that runs it for so many minutes, with what has to run beside it.
    prepare: fn(u64) -> Result<(Command, Option<Receiver>)>,
    cells: fn(&Minute) -> Result<Vec<String>>,
    /// Whether an account adds up.
    is_exact: fn(&Account) -> Result<bool>,
    /// What is said of all minutes below the table.
    summary: fn(&[Minute], &Account) -> Result<String>,
    /// Checks the limits of this program alone.
    check: fn(&[Minute], &Account, &mut Report) -> Result<()>,
}

const MAX_RESIDENT_MB: f64 = 64.0;
const MAX_DESCRIPTORS: f64 = 512.0;

impl Soak {
    pub(crate) fn run(&self) -> Result<()> {
        setup::install(&[setup::Purpose::Workloads])?;
        workloads::build()?;
        let subject = self.subject();
        let (mut command, _receiver) = (subject.prepare)(self.minutes)?;
        let mut churn = Churn::start()?;
        let mut program = Program::start(&mut command)?;
        let mut table = format!("{}\n", subject.heading);
        let mut minutes = Vec::new();
        println!("{}", subject.heading);
        for number in 1..=self.minutes {
            let minute = program.minute(subject.line_of_minute)?;
            let row = subject.row(number, &minute)?;
            println!("{row}");
            table += &format!("{row}\n");
            minutes.push(minute);
        }
        let last = program.finish(subject.last_line)?;
        let done = churn.end()?;
        let summary = format!("{}{done}", (subject.summary)(&minutes, &last)?);
        println!("{summary}");
        if self.write {
            document::write(DOCUMENT, subject.table, &format!("{table}\n{summary}\n"))?;
        }
        let failures = subject.failures(&minutes, &last, &done)?;
        ensure!(failures.is_empty(), "{} limits are exceeded:\n  {}", failures.len(), failures.join("\n  "));
        println!("every limit is kept");
        Ok(())
    }

    fn subject(&self) -> Subject {
        match self {
            Self { agent: true, .. } => node_agent::SUBJECT,
            Self { stream: true, .. } => embedder::STREAMING,
            _ => embedder::SUBJECT,
        }
    }
}

impl Subject {
    fn row(&self, minute_number: u64, minute: &Minute) -> Result<String> {
        let Minute { resident_mb, peak_mb, descriptors, account, .. } = minute;
        let cells = (self.cells)(minute)?.join(" | ");
        let verdict = if (self.is_exact)(account)? { "exact" } else { "**wrong**" };
        let [resident_mb, peak_mb] = [*resident_mb, *peak_mb].map(number);
        Ok(format!("| {minute_number} | {resident_mb} | {peak_mb} | {descriptors} | {cells} | {verdict} |"))
    }

    /// The limits that are exceeded, in words.
    fn failures(&self, minutes: &[Minute], last: &Account, done: &Done) -> Result<Vec<String>> {
        let mut report = Report::default();
        let most = |figure: fn(&Minute) -> f64| minutes.iter().map(figure).fold(0.0, f64::max);
        report.at_most("peak of resident memory, MB", most(|minute| minute.peak_mb), MAX_RESIDENT_MB);
        report.at_most("descriptors", most(|minute| minute.descriptors as f64), MAX_DESCRIPTORS);
        let mut wrong = 0.0;
        for account in minutes.iter().map(|minute| &minute.account).chain([last]) {
            wrong += if (self.is_exact)(account)? { 0.0 } else { 1.0 };
        }
        report.at_most("accounts that do not add up", wrong, 0.0);
        (self.check)(minutes, last, &mut report)?;
        done.check_pace(minutes.len() as u64, &mut report);
        Ok(report.exceeded_budgets)
    }
}

/// The short run among the checks of `cargo xtask prove`.
pub(crate) fn smoke() -> Result<()> {
    Soak { minutes: 3, agent: false, stream: false, write: false }.run()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    pub(super) fn minute(resident_mb: f64, line: &str) -> Minute {
        let account = Account::parse(line);
        Minute { resident_mb, peak_mb: resident_mb, descriptors: 100, cpu: Duration::ZERO, account }
    }

    #[test]
    fn a_row_has_as_many_cells_as_the_heading() {
        let names = "whole exact samples stacks processes modules due missed lost_events sampled delivered queued spooled \
                     ambiguous dropped-outage dropped-too-old dropped-rejected dropped-too-large";
        let line: String = names.split(' ').map(|name| format!("{name}=0 ")).collect();
        for subject in [node_agent::SUBJECT, embedder::SUBJECT, embedder::STREAMING] {
            let row = subject.row(1, &minute(20.0, &line)).unwrap();
            let heading = subject.heading.lines().next().unwrap();
            assert_eq!(row.matches('|').count(), heading.matches('|').count(), "{row}");
        }
    }

    #[test]
    fn each_option_selects_its_table() {
        for (agent, stream, table) in
            [(false, false, "soak"), (true, false, "soak-agent"), (false, true, "soak-stream")]
        {
            assert_eq!(Soak { minutes: 2, agent, stream, write: false }.subject().table, table);
        }
    }

    #[test]
    fn each_limit_of_all_programs_that_is_exceeded_is_named() {
        let mut wrong = minute(70.0, "exact=0 stacks=20000");
        wrong.descriptors = 513;
        let done = Done { processes: 1 << 20, libraries: 0, mappings: 1 << 20 };
        let failures = embedder::SUBJECT.failures(&[wrong], &Account::parse("exact=1"), &done).unwrap();
        let named = ["peak of resident memory", "descriptors", "accounts", "churn: libraries"];
        assert_eq!(failures.len(), named.len(), "{failures:?}");
        assert!(failures.iter().zip(named).all(|(failure, name)| failure.starts_with(name)), "{failures:?}");
    }
}
