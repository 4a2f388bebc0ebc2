//! Counts timer interrupts of a machine without work, with and without a profiler.

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use fs_err as fs;

use super::run::{Sampler, Timers};
use crate::bench::{Setting, in_turns::median, report::Report};

/// A frequency at which the ticks of one timer on each CPU stand out.
const FREQUENCY_HZ: u64 = 99;

/// Beyond what one timer on each CPU has: the reader's timeouts.
const TOLERANCE: f64 = 1.1;

const LEGEND: &str = "Local timer interrupts of `/proc/interrupts` in a second on each CPU, with the whole machine as the \
target and no work but that of the system. An idle CPU wakes up at each. Added: beyond those of the same round without a profiler. \
All are medians of the rounds.";

/// The interrupts of rounds without a profiler, and those that each profiler added.
struct Rounds<'a> {
    without: Vec<f64>,
    added: Vec<(&'a Sampler, Vec<f64>)>,
}

/// Adds a table: the interrupts without a profiler, and with each that samples the whole machine.
pub(super) fn measure(samplers: &[Sampler], setting: &Setting, report: &mut Report) -> Result<()> {
    let is_of_machine = |sampler: &&Sampler| sampler.timers != Timers::PerfOfThreads;
    let added = samplers.iter().filter(is_of_machine).map(|sampler| (sampler, Vec::new())).collect();
    let mut measured = Rounds { without: Vec::new(), added };
    for _ in 0..setting.runs_of_spread {
        measured.round(Duration::from_secs(setting.seconds(5)), &setting.folder)?;
    }
    measured.write(report);
    Ok(())
}

impl Rounds<'_> {
    fn round(&mut self, window: Duration, folder: &Path) -> Result<()> {
        /// A profiler has done its work at the start when the window begins.
        const SETTLED: Duration = Duration::from_secs(1);
        let without = interrupts_per_second(window)?;
        self.without.push(without);
        for (sampler, added) in &mut self.added {
            match sampler.start(None, FREQUENCY_HZ, window + 2 * SETTLED, folder) {
                Ok(mut running) => {
                    thread::sleep(SETTLED);
                    added.push(interrupts_per_second(window)? - without);
                    running.finish()?;
                }
                Err(error) => eprintln!("left out of the table: {}: {error:#}", sampler.title()),
            }
        }
        Ok(())
    }

    fn write(self, report: &mut Report) {
        let heading = format!("idle machine, {FREQUENCY_HZ} Hz");
        report.heading(&heading, &["timer interrupts a second and CPU", "added"]);
        report.row("no profiler", &[median(self.without.clone()), f64::NAN]);
        let mut own = None;
        for (sampler, added) in self.added.into_iter().filter(|(_, added)| !added.is_empty()) {
            let with = self.without.iter().zip(&added).map(|(without, added)| without + added).collect();
            let (with, added) = (median(with), median(added));
            report.row(&sampler.title().replace(" -p", " -a"), &[with, added]);
            match (sampler.timers, own) {
                (Timers::Profiler, _) => own = Some(added),
                (Timers::PerfOfMachine, Some(own)) => {
                    report.at_most("timer interrupts added to an idle CPU", own, TOLERANCE * added);
                }
                _ => {}
            }
        }
        report.paragraph(LEGEND);
    }
}

/// The local timer interrupts of a CPU in a second, during a window from now.
fn interrupts_per_second(window: Duration) -> Result<f64> {
    let read = || timer_interrupts(&fs::read_to_string("/proc/interrupts")?);
    let (before, started) = (read()?, Instant::now());
    thread::sleep(window);
    let (after, elapsed) = (read()?, started.elapsed());
    Ok((after.0 - before.0) as f64 / elapsed.as_secs_f64() / after.1 as f64)
}

/// The sum of the line `LOC`, and the number of CPUs in it.
fn timer_interrupts(text: &str) -> Result<(u64, usize)> {
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix("LOC:"));
    let counts = line.context("no local timer interrupts")?.split_whitespace();
    let counts: Vec<u64> = counts.map_while(|count| count.parse().ok()).collect();
    Ok((counts.iter().sum(), counts.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timer_interrupts_are_the_sum_over_all_cpus() {
        let text = "   CPU0  CPU1\nRES: 1 2 Rescheduling interrupts\nLOC:  40  2   Local timer interrupts\n";
        assert_eq!(timer_interrupts(text).unwrap(), (42, 2));
        assert!(timer_interrupts("RES: 1\n").is_err());
    }
}
