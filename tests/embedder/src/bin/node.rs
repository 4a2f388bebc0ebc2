//! Simulates a node, for `cargo xtask bench --only node`. Prints samples, symbolized frames in percent, lost samples, late
//! events, microseconds of CPU time for each sample, and the worst delay in milliseconds.
//!
//! `node CPUS PROCESSES SAMPLES_PER_SECOND FORKS_PER_SECOND SECONDS`

#![allow(clippy::print_stderr, clippy::print_stdout, reason = "not a program for users")]

use profiler::simulation::{Node, simulate};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<u32> = std::env::args().skip(1).map(|word| word.parse()).collect::<Result<_, _>>()?;
    let [cpus, processes, samples_per_second, forks_per_second, seconds] = arguments[..] else {
        return Err("expected: CPUS PROCESSES SAMPLES_PER_SECOND FORKS_PER_SECOND SECONDS".into());
    };
    let node = Node { cpus, processes, samples_per_second, forks_per_second, seconds };
    let directory = tempfile::tempdir()?;
    let outcome = simulate(node, directory.path())?;
    println!(
        "{} {:.1} {} {} {:.2} {:.1}",
        outcome.samples,
        100.0 * outcome.symbolized,
        outcome.lost,
        outcome.late_events,
        outcome.cpu.as_secs_f64() * 1e6 / outcome.samples as f64,
        outcome.worst_delay.as_secs_f64() * 1e3
    );
    Ok(())
}
