//! Measures what a stream of intervals costs a program that embeds the library, beside one that takes them.

use std::process::Command;

use anyhow::Result;

use super::{
    Setting,
    in_turns::{Row, in_turns, median},
    report::{Column, Report},
    target::Target,
};
use crate::soak::build_embedder;

/// The most that a stream may add.
const CPU_PERCENT_MAX: f64 = 2.0;

const FREQUENCY_HZ: &str = "999";
const PERIOD_SECONDS: &str = "1";

/// How the program gets its profiles, and the argument for it.
const SCENARIOS: [(&str, &str); 2] = [("`take_profile`", "take"), ("`polled_intervals`", "stream")];

const LEGEND: &str = "CPU: user and system time of the program, with its start.";

/// Samples one process in turns, with a profile of each second.
pub(super) fn measure(setting: &Setting) -> Result<Report> {
    let (seconds, runs) = (setting.seconds(20), setting.runs_of_spread);
    let (program, target) = (build_embedder()?, Target::start("chain", &[])?);
    let rows = in_turns("streaming", runs, &SCENARIOS, |how| {
        let mut command = Command::new(&program);
        command.args([FREQUENCY_HZ, PERIOD_SECONDS, &seconds.to_string(), &target.pid().to_string(), how]);
        Ok([1e3 * setting.measure(&mut command, seconds, "streaming")?.cpu.as_secs_f64()])
    })?;
    let how =
        format!("medians of {runs} runs of {seconds} s in turns at 999 Hz, with a profile of each second");
    let mut report = setting.report(&how);
    report.table("program that embeds the library", &[Column::new("CPU ms")], &rows);
    report.paragraph(LEGEND);
    report.at_most("streaming: added CPU time, %", added_percent(&rows), CPU_PERCENT_MAX);
    Ok(report)
}

/// The median of what the second scenario takes more than the first one just before it.
fn added_percent(rows: &[Row<1>]) -> f64 {
    let [first, second] = rows else { return f64::NAN };
    let pairs = first.runs.iter().zip(&second.runs);
    median(pairs.map(|([first], [second])| 100.0 * (second / first - 1.0)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(runs: &[f64]) -> Row<1> {
        Row { title: String::new(), runs: runs.iter().map(|run| [*run]).collect() }
    }

    #[test]
    fn runs_that_follow_each_other_are_compared() {
        // The machine becomes half as fast after the first run.
        let rows = [row(&[100.0, 200.0, 200.0]), row(&[101.0, 206.0, 202.0])];
        assert!((added_percent(&rows) - 1.0).abs() < 1e-9, "{}", added_percent(&rows));
    }

    #[test]
    fn a_scenario_without_runs_has_no_figure() {
        assert!(added_percent(&[row(&[]), row(&[])]).is_nan() && added_percent(&[]).is_nan());
    }
}
