//! Measures what the sandbox of the profiler costs: its start and its CPU time, with and without.

use std::{fmt::Write as _, process::Command, time::Duration};

use anyhow::{Context as _, Result};

use super::{
    Setting, churn,
    measure::{self, End},
    report::{Report, number},
    scenario::median,
};

const LEGEND: &str =
    "start: from the profiler's exec until its timers run. CPU: user and system time of the profiler.";

/// The most that the sandbox may add.
const START_MS_MAX: f64 = 3.0;
const CPU_PERCENT_MAX: f64 = 2.0;

const OPTIONS: [&str; 2] = ["", "--no-sandbox"];

/// The figures of one run.
#[derive(Clone, Copy)]
struct Figures {
    start_ms: f64,
    cpu_ms: f64,
}

/// Samples the whole machine beside short programs, with and without the sandbox in turns.
pub(super) fn measure(setting: &Setting) -> Result<Report> {
    let seconds = setting.seconds(5);
    let loops = churn::start_loops()?;
    let mut runs = OPTIONS.map(|_| Vec::new());
    for run in 0..setting.runs_of_spread {
        for (options, figures) in OPTIONS.iter().zip(&mut runs) {
            eprintln!("sandbox, run {}: {options}", run + 1);
            figures.push(profile(setting, options, seconds)?);
        }
    }
    drop(loops);
    Ok(report(&runs, setting, seconds))
}

fn profile(setting: &Setting, options: &str, seconds: u64) -> Result<Figures> {
    let mut command = Command::new(&setting.profiler);
    command.args(["-vv", "-a", "-F", "999", "-d", &seconds.to_string()]).args(options.split_whitespace());
    let output = setting.folder.join("sandbox.output");
    let run = measure::run(&mut command, Duration::from_secs(seconds), End::Itself, &output)?;
    let start = run.time_to("sampling begins").context("the log has no start of sampling")?;
    Ok(Figures { start_ms: 1e3 * start.as_secs_f64(), cpu_ms: 1e3 * run.cpu.as_secs_f64() })
}

fn report(runs: &[Vec<Figures>; 2], setting: &Setting, seconds: u64) -> Report {
    let middle = |runs: &[Figures], figure: fn(&Figures) -> f64| median(runs.iter().map(figure).collect());
    let medians = runs.each_ref().map(|runs| Figures {
        start_ms: middle(runs, |run| run.start_ms),
        cpu_ms: middle(runs, |run| run.cpu_ms),
    });
    let mut report = Report::default();
    // Writing to a String cannot fail.
    let _ = write!(
        report.markdown,
        "Measured on {}, medians of {} runs of {seconds} s in turns at 999 Hz.\n\n\
         | profiler -a | start ms | CPU ms |\n|---|---:|---:|\n",
        setting.machine, setting.runs_of_spread
    );
    for (title, figures) in ["default", "`--no-sandbox`"].iter().zip(medians) {
        let (start_ms, cpu_ms) = (number(figures.start_ms), number(figures.cpu_ms));
        let _ = writeln!(report.markdown, "| {title} | {start_ms} | {cpu_ms} |");
    }
    let _ = writeln!(report.markdown, "\n{LEGEND}");
    let [with, without] = medians;
    let added_ms = with.start_ms - without.start_ms;
    let added_percent = 100.0 * (with.cpu_ms / without.cpu_ms - 1.0);
    report.check("sandbox: added to the start, ms", added_ms, START_MS_MAX, added_ms <= START_MS_MAX);
    report.check(
        "sandbox: added CPU time, %",
        added_percent,
        CPU_PERCENT_MAX,
        added_percent <= CPU_PERCENT_MAX,
    );
    report
}
