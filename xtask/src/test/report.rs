//! Runs named steps one after the other, also behind one that failed, and prints the time of each.

use std::{
    fmt::Write as _,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};

use crate::{process::cpu_time_of_children, steal::CpuTimes};

/// A part of a run.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    name: &'static str,
    run: fn() -> Result<()>,
    /// Whether the steps behind it run also when it failed.
    is_check: bool,
}

impl Step {
    /// A step that others do not need.
    pub(crate) const fn check(name: &'static str, run: fn() -> Result<()>) -> Self {
        Self { name, run, is_check: true }
    }

    /// A step without which the steps behind it cannot run.
    pub(crate) const fn preparation(name: &'static str, run: fn() -> Result<()>) -> Self {
        Self { name, run, is_check: false }
    }

    pub(crate) const fn name(&self) -> &'static str {
        self.name
    }
}

/// The time that a step took.
struct Time {
    name: &'static str,
    elapsed: Duration,
    /// User and system time of all processes that the step started and waited for.
    cpu: Duration,
}

/// Runs `steps`, and prints a table of their times; `budget` is what they may take on a quiet machine.
///
/// # Errors
/// If a step failed: one run shows all that fail.
pub(crate) fn run(steps: &[Step], budget: Duration) -> Result<()> {
    let (mut times, mut failures) = (Vec::new(), Vec::new());
    let machine_before = CpuTimes::now();
    for step in steps {
        println!("\n==> {}", step.name);
        let (start, cpu_before) = (Instant::now(), cpu_time_of_children()?);
        let result = (step.run)();
        let cpu = cpu_time_of_children()?.saturating_sub(cpu_before);
        let time = Time { name: step.name, elapsed: start.elapsed(), cpu };
        println!("<== {}: {:.1} s", time.name, time.elapsed.as_secs_f64());
        times.push(time);
        if let Err(error) = result {
            println!("failed: {}: {error:#}", step.name);
            failures.push(format!("{}: {error:#}", step.name));
            if !step.is_check {
                break;
            }
        }
    }
    let stolen = CpuTimes::now().stolen_percent_since(machine_before);
    println!("\n{}steal time: {stolen:.1} % of the machine's CPU time", table(&mut times, budget));
    ensure!(
        failures.is_empty(),
        "{} of {} steps failed\n{}",
        failures.len(),
        times.len(),
        failures.join("\n")
    );
    println!("all {} checks passed", times.len());
    Ok(())
}

/// One line for each step, the longest first, and the sum.
fn table(times: &mut [Time], budget: Duration) -> String {
    times.sort_by_key(|time| std::cmp::Reverse(time.elapsed));
    let elapsed: Duration = times.iter().map(|time| time.elapsed).sum();
    let cpu: Duration = times.iter().map(|time| time.cpu).sum();
    let mut text = format!("{:>8} {:>8}  step\n", "seconds", "CPU s");
    let mut row = |name: &str, elapsed: Duration, cpu: Duration| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{:>8.1} {:>8.1}  {name}", elapsed.as_secs_f64(), cpu.as_secs_f64());
    };
    for time in &*times {
        row(time.name, time.elapsed, time.cpu);
    }
    row("all steps", elapsed, cpu);
    if elapsed > budget {
        let _ = writeln!(text, "longer than the {} s that a quiet machine may take", budget.as_secs());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_step_is_the_first_row() {
        let time = |name, seconds| Time { name, elapsed: Duration::from_secs(seconds), cpu: Duration::ZERO };
        let text = table(&mut [time("short", 1), time("long", 9)], Duration::from_secs(5));
        let names: Vec<_> = text.lines().map(|line| line.rsplit("  ").next().unwrap()).collect();
        assert_eq!(names[..4], ["step", "long", "short", "all steps"], "{text}");
        assert!(text.contains("longer than the 5 s"), "{text}");
    }

    fn fail() -> Result<()> {
        anyhow::bail!("reason")
    }

    #[test]
    fn a_failing_check_is_named_and_others_run() {
        let steps =
            [Step::check("first", fail), Step::check("second", || Ok(())), Step::check("third", fail)];
        let error = run(&steps, Duration::ZERO).unwrap_err();
        assert_eq!(format!("{error:#}"), "2 of 3 steps failed\nfirst: reason\nthird: reason");
    }

    #[test]
    fn a_failing_preparation_ends_the_run() {
        fn unreachable() -> Result<()> {
            panic!("a step behind a failed preparation runs")
        }
        let steps = [Step::preparation("first", fail), Step::check("second", unreachable)];
        let error = run(&steps, Duration::ZERO).unwrap_err();
        assert_eq!(format!("{error:#}"), "1 of 1 steps failed\nfirst: reason");
    }
}
