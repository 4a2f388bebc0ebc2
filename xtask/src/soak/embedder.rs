//! The program that embeds the library, and the limits of a process that samples a node all day.

use std::{path::PathBuf, process::Command};

use anyhow::Result;

use super::{
    FREQUENCY_HZ, Subject, churn,
    program::{Account, Minute},
};
use crate::{
    bench::{
        agent::Receiver,
        report::{Report, number},
    },
    project, workspace,
};

pub(super) const SUBJECT: Subject = Subject {
    table: "soak",
    heading: "| minute | resident MB | peak MB | descriptors | CPU s | samples | stacks | processes | modules | lost | \
ticks missed, % | lost process events | ledger |\n|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|---:|---:|---|",
    line_of_minute: "whole=0",
    last_line: "whole=1",
    prepare,
    cells,
    is_exact,
    summary: |_, _| Ok(String::new()),
    check,
};

/// The program that gets its profiles without blocking.
pub(super) const STREAMING: Subject = Subject { table: "soak-stream", prepare: prepare_streaming, ..SUBJECT };

/// The numbers of an account that are no losses.
const NO_LOSSES: [&str; 9] =
    ["whole", "exact", "samples", "stacks", "processes", "modules", "due", "missed", "lost_events"];

/// After the tenth minute, when everything that is kept has reached its bound.
const MAX_GROWTH_MB_PER_HOUR: f64 = 1.0;
const SETTLED_MINUTES: usize = 10;
/// With fewer minutes after the tenth, the size of single profiles hides such a slope.
const MINUTES_OF_SLOPE: usize = 20;
/// The limit of the growth after the first minute, for shorter runs. The first minute has unwind tables and symbols of all
/// programs that run; the two generations of stacks, of 8 MiB each, are full after the fourth.
const MAX_GROWTH_OF_SHORT_RUN_MB: f64 = 2.0 * 8.0 * 1.048_576;

fn prepare(minutes: u64) -> Result<(Command, Option<Receiver>)> {
    command(minutes, "take")
}

fn prepare_streaming(minutes: u64) -> Result<(Command, Option<Receiver>)> {
    command(minutes, "stream")
}

fn command(minutes: u64, how: &str) -> Result<(Command, Option<Receiver>)> {
    const SECONDS: u64 = 60;
    let mut command = Command::new(build()?);
    command.args([FREQUENCY_HZ, SECONDS, minutes].map(|number| number.to_string())).args(["all", how]);
    Ok((command, None))
}

/// Builds the program, and returns its path.
pub(crate) fn build() -> Result<PathBuf> {
    workspace::build("--release --package profiler-embedder")?;
    Ok(project::root().join("target/release/agent"))
}

fn cells(Minute { cpu, account, .. }: &Minute) -> Result<Vec<String>> {
    let count = |name: &str| Ok::<_, anyhow::Error>(account.number(name)?.to_string());
    let lost: Vec<_> = account.others(&NO_LOSSES).map(|(cause, count)| format!("{cause} {count}")).collect();
    let missed_percent = 100.0 * account.number("missed")? as f64 / account.number("due")?.max(1) as f64;
    Ok(vec![
        number(cpu.as_secs_f64()),
        count("samples")?,
        count("stacks")?,
        count("processes")?,
        count("modules")?,
        if lost.is_empty() { "0".to_owned() } else { lost.join(", ") },
        number(missed_percent),
        count("lost_events")?,
    ])
}

fn is_exact(account: &Account) -> Result<bool> {
    Ok(account.number("exact")? == 1)
}

fn check(minutes: &[Minute], last: &Account, report: &mut Report) -> Result<()> {
    let resident: Vec<_> = minutes.iter().map(|minute| minute.resident_mb).collect();
    if let Some(settled) = resident.get(SETTLED_MINUTES..).filter(|later| later.len() >= MINUTES_OF_SLOPE) {
        let what = format!("growth after minute {SETTLED_MINUTES}, MB an hour");
        report.at_most(&what, 60.0 * slope(settled), MAX_GROWTH_MB_PER_HOUR);
    } else if let (Some(first), Some(last)) = (resident.first(), resident.last()) {
        report.at_most("growth after the first minute, MB", last - first, MAX_GROWTH_OF_SHORT_RUN_MB);
    }
    let accounts = || minutes.iter().map(|minute| &minute.account).chain([last]);
    let lack = |account: &Account| account.number("MissingStack").unwrap_or(0);
    report.at_most("samples that lack their stack", accounts().map(lack).sum::<u64>() as f64, 0.0);
    // A run that does not reach the churn proves nothing.
    let mut stacks = 0;
    for Minute { account, .. } in minutes {
        stacks += account.number("stacks")? + account.others(&NO_LOSSES).map(|(_, count)| count).sum::<u64>();
    }
    report.at_least("churn: stacks", stacks as f64, churn::least_stacks(minutes.len() as u64) as f64);
    Ok(())
}

/// The slope of the line through values at 0, 1, 2 and so on, with the least squares.
fn slope(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let (middle, mean) = ((count - 1.0) / 2.0, values.iter().sum::<f64>() / count);
    let (mut products, mut squares) = (0.0, 0.0);
    for (index, value) in values.iter().enumerate() {
        let from_middle = index as f64 - middle;
        products += from_middle * (value - mean);
        squares += from_middle.powi(2);
    }
    products / squares
}

#[cfg(test)]
mod tests {
    use super::{super::tests::minute, *};

    const LINE: &str =
        "whole=0 exact=1 samples=5 stacks=20000 processes=3 modules=4 due=100 missed=50 lost_events=2";

    fn failures(resident_mb: impl IntoIterator<Item = f64>, line: &str) -> Vec<String> {
        let minutes: Vec<_> = resident_mb.into_iter().map(|mb| minute(mb, line)).collect();
        let mut report = Report::default();
        check(&minutes, &Account::parse(LINE), &mut report).unwrap();
        report.exceeded_budgets
    }

    #[test]
    fn a_run_within_the_limits_has_no_failure() {
        assert_eq!(failures([20.0, 26.0], LINE), [""; 0]);
    }

    #[test]
    fn each_limit_that_is_exceeded_is_named() {
        let failures = failures([20.0, 40.0], &format!("{LINE} MissingStack=3").replace("=20000", "=2"));
        let named = ["growth after the first minute", "samples that lack", "churn: stacks"];
        assert_eq!(failures.len(), named.len(), "{failures:?}");
        assert!(failures.iter().zip(named).all(|(failure, name)| failure.starts_with(name)), "{failures:?}");
    }

    #[test]
    fn growth_before_the_tenth_minute_of_a_long_run_is_permitted() {
        let settled = |index: u32| f64::from(20 + 2 * index.min(10)) + 0.1 * f64::from(index % 2);
        assert_eq!(failures((0..60).map(settled), LINE), [""; 0]);
        let growing = failures((0..60).map(|index| 20.0 + 0.02 * f64::from(index)), LINE);
        assert_eq!(growing, ["growth after minute 10, MB an hour: 1.20 (budget 1)"]);
    }

    #[test]
    fn losses_are_written_by_cause() {
        let lossy = format!("{LINE} MissingStack=2 RingBufferFull=1");
        let cells = cells(&minute(20.0, &lossy)).unwrap();
        assert_eq!(cells, ["0", "5", "20000", "3", "4", "MissingStack 2, RingBufferFull 1", "50", "2"]);
    }
}
