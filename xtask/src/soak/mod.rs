//! `cargo xtask soak`: samples a machine under churn for a long time, in a program that embeds the library, and checks
//! that its memory and descriptors stay bounded and that every ledger is exact.

#![cfg(feature = "commands")]

mod agent;
mod churn;
mod limits;
mod minute;

use std::fmt::Write as _;

use anyhow::{Result, ensure};
use clap::Args;

pub(crate) use self::churn::Churn;
use self::{agent::Agent, minute::Minute};
use crate::{document, setup, workloads};

/// The document with the table.
const DOCUMENT: &str = "docs/benchmarks.md";

/// The frequency at which two CPUs have enough samples for the distinct stacks, with a third of one of them.
const FREQUENCY_HZ: u64 = 997;

/// Sample a machine under churn, take a profile every minute, and check memory, descriptors and ledgers.
#[derive(Args)]
pub(crate) struct Soak {
    /// An hour has the whole churn: 100,000 processes, 1,000,000 stacks, 50,000 executable files.
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(2..=1440))]
    minutes: u64,
    /// Put the table into docs/benchmarks.md.
    #[arg(long)]
    write: bool,
}

impl Soak {
    pub(crate) fn run(&self) -> Result<()> {
        setup::install(&[setup::Purpose::Workloads])?;
        workloads::build()?;
        let mut churn = Churn::start()?;
        let mut agent = Agent::start(FREQUENCY_HZ, self.minutes)?;
        let mut minutes = Vec::new();
        println!("{}", minute::HEADING);
        for number in 1..=self.minutes {
            let minute = agent.minute(number)?;
            println!("{}", minute.row());
            minutes.push(minute);
        }
        let last = agent.finish()?;
        let done = churn.end()?;
        let failures = limits::failures(&minutes, &last, &done);
        if self.write {
            document::write(DOCUMENT, "soak", &markdown(&minutes, &done))?;
        }
        println!("{done}");
        ensure!(failures.is_empty(), "{} limits are exceeded:\n  {}", failures.len(), failures.join("\n  "));
        println!("every limit is kept");
        Ok(())
    }
}

/// The short run among the checks of `cargo xtask test`.
pub(crate) fn smoke() -> Result<()> {
    Soak { minutes: 3, write: false }.run()
}

fn markdown(minutes: &[Minute], done: &churn::Done) -> String {
    let mut text = format!("{}\n", minute::HEADING);
    for minute in minutes {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}", minute.row());
    }
    let _ = writeln!(text, "\n{done}");
    text
}
