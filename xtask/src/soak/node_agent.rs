//! The node agent with a receiver: its CPU time and its account.

use std::process::Command;

use anyhow::Result;
use fs_err as fs;

use super::{
    Subject,
    program::{Account, Minute},
};
use crate::{
    bench::{
        agent::Receiver,
        in_turns::median,
        report::{Report, number},
    },
    project, workspace,
};

pub(super) const SUBJECT: Subject = Subject {
    table: "soak-agent",
    heading: "| minute | resident MB | peak MB | descriptors | CPU, thousandths | sampled | delivered | queued | account |\n\
|---:|---:|---:|---:|---:|---:|---:|---:|---|",
    line_of_minute: "event=window",
    last_line: "event=stopped",
    prepare,
    cells,
    is_exact,
    summary,
    check,
};

const MAX_MILLICORES: f64 = 10.0;

/// The parts of `sampled` in a line of the log.
const PARTS: [&str; 8] = [
    "delivered",
    "queued",
    "spooled",
    "ambiguous",
    "dropped-outage",
    "dropped-too-old",
    "dropped-rejected",
    "dropped-too-large",
];

fn prepare(minutes: u64) -> Result<(Command, Option<Receiver>)> {
    workspace::build("--release --package profiler-cli")?;
    let folder = project::root().join("target/soak-agent");
    fs::create_dir_all(&folder)?;
    let receiver = Receiver::start(&folder)?;
    // One window more: the first one is shorter, by a random time.
    let seconds = (60 * (minutes + 1)).to_string();
    let mut command = Command::new(project::root().join("target/release/profiler"));
    command.args(["agent", "-F", "19", "-d", &seconds, "--otlp", &receiver.url]);
    Ok((command, Some(receiver)))
}

fn cells(minute: &Minute) -> Result<Vec<String>> {
    let mut cells = vec![number(millicores(minute))];
    for name in ["sampled", "delivered", "queued"] {
        cells.push(minute.account.number(name)?.to_string());
    }
    Ok(cells)
}

fn is_exact(account: &Account) -> Result<bool> {
    let parts = PARTS.iter().map(|part| account.number(part)).sum::<Result<u64>>()?;
    Ok(parts == account.number("sampled")?)
}

fn summary(minutes: &[Minute], last: &Account) -> Result<String> {
    Ok(format!(
        "{:.2} thousandths of a CPU in the median minute. {} samples, {} delivered. ",
        median_millicores(minutes),
        last.number("sampled")?,
        last.number("delivered")?
    ))
}

fn check(minutes: &[Minute], last: &Account, report: &mut Report) -> Result<()> {
    report.at_most("CPU, thousandths in the median minute", median_millicores(minutes), MAX_MILLICORES);
    let [delivered, sampled] = [last.number("delivered")?, last.number("sampled")?];
    report.at_least("samples delivered", delivered as f64, sampled as f64);
    Ok(())
}

/// The first minute has the start, and may be shorter than a minute.
fn median_millicores(minutes: &[Minute]) -> f64 {
    median(minutes.iter().skip(1).map(millicores).collect())
}

fn millicores(minute: &Minute) -> f64 {
    const SECONDS: f64 = 60.0;
    1e3 * minute.cpu.as_secs_f64() / SECONDS
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "time=1 event=window samples=5 sampled=9 recovered=0 delivered=4 queued=2 spooled=1 ambiguous=0 \
dropped-outage=1 dropped-too-old=0 dropped-rejected=1 dropped-too-large=0 requests=3";

    #[test]
    fn an_account_is_exact_when_its_parts_add_up() {
        assert!(is_exact(&Account::parse(LINE)).unwrap());
        assert!(!is_exact(&Account::parse(&LINE.replace("sampled=9", "sampled=8"))).unwrap());
        assert!(is_exact(&Account::parse("event=window")).is_err());
    }
}
