//! The `profiler` command.

mod cli;

fn main() {}
