//! Measures what the sandbox of the profiler costs: its start and its CPU time, with and without.

use anyhow::{Context as _, Result};

use super::{
    Setting, churn,
    in_turns::in_turns,
    report::{Column, Report},
};

const LEGEND: &str =
    "start: from the profiler's exec until its timers run. CPU: user and system time of the profiler.";

/// The most that the sandbox may add.
const START_MS_MAX: f64 = 3.0;
const CPU_PERCENT_MAX: f64 = 2.0;

/// The options of the profiler.
const SCENARIOS: [(&str, &str); 2] = [("default", ""), ("`--no-sandbox`", "--no-sandbox")];

/// Samples the whole machine beside short programs, with and without the sandbox in turns.
pub(super) fn measure(setting: &Setting) -> Result<Report> {
    let (seconds, runs) = (setting.seconds(5), setting.runs_of_spread);
    let loops = churn::start_loops()?;
    let rows = in_turns("sandbox", runs, &SCENARIOS, |options| start_and_cpu_ms(setting, options, seconds))?;
    drop(loops);
    let mut report = setting.report(&format!("medians of {runs} runs of {seconds} s in turns at 999 Hz"));
    report.table("profiler -a", &[Column::new("start ms"), Column::new("CPU ms")], &rows);
    let [with, without] = [0, 1].map(|row| rows[row].medians());
    report.paragraph(LEGEND);
    report.at_most("sandbox: added to the start, ms", with[0] - without[0], START_MS_MAX);
    report.at_most("sandbox: added CPU time, %", 100.0 * (with[1] / without[1] - 1.0), CPU_PERCENT_MAX);
    Ok(report)
}

fn start_and_cpu_ms(setting: &Setting, options: &str, seconds: u64) -> Result<[f64; 2]> {
    let mut command = setting.profiler(seconds);
    command.args(["-vv", "-a", "-F", "999"]).args(options.split_whitespace());
    let run = setting.measure(&mut command, seconds, "sandbox")?;
    let start = run.time_to("sampling begins").context("the log has no start of sampling")?;
    Ok([start, run.cpu].map(|time| 1e3 * time.as_secs_f64()))
}
