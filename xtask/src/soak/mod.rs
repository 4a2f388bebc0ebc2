//! `cargo xtask soak`: samples a machine under churn for a long time, in a program that embeds the library or by the node
//! agent, and checks that memory and descriptors stay bounded and that every ledger is exact.

#![cfg(feature = "commands")]

mod churn;
mod embedder;
mod limits;
mod minute;
mod node_agent;
mod usage;

use std::fmt::Write as _;

use anyhow::{Result, ensure};
use clap::Args;

pub(crate) use self::churn::Churn;
use self::{embedder::Embedder, minute::Minute};
use crate::{document, setup, workloads};

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
    /// Put the table into docs/benchmarks.md.
    #[arg(long)]
    write: bool,
}

impl Soak {
    pub(crate) fn run(&self) -> Result<()> {
        setup::install(&[setup::Purpose::Workloads])?;
        workloads::build()?;
        if self.agent {
            return node_agent::run(self.minutes, self.write);
        }
        let mut churn = Churn::start()?;
        let mut embedder = Embedder::start(FREQUENCY_HZ, self.minutes)?;
        let mut minutes = Vec::new();
        println!("{}", minute::HEADING);
        for number in 1..=self.minutes {
            let minute = embedder.minute(number)?;
            println!("{}", minute.row());
            minutes.push(minute);
        }
        let last = embedder.finish()?;
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

/// The short run among the checks of `cargo xtask prove`.
pub(crate) fn smoke() -> Result<()> {
    Soak { minutes: 3, agent: false, write: false }.run()
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
