//! What is measured, and how: runs of a profiler beside a target, their stacks, and the medians of runs in turns.

pub(crate) mod in_turns;
mod log;
pub(crate) mod run;
mod run_time;
mod samply;
pub(crate) mod series;
pub(crate) mod stacks;
pub(crate) mod sysctl;
pub(crate) mod target;
pub(crate) mod tool;

use std::process::Command;

use anyhow::{Result, anyhow};

use crate::shell;

/// Runs a program that prints `N` numbers.
pub(crate) fn read_numbers<const N: usize>(program: &mut Command) -> Result<[f64; N]> {
    let said = shell::read(program)?;
    let numbers = said.split_whitespace().map(str::parse).collect::<Result<Vec<f64>, _>>()?;
    numbers.try_into().map_err(|_| anyhow!("said `{said}`"))
}
