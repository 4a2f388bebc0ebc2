//! Measures what runtime events cost the target: the throughput of a server, and the pauses when sessions start and end.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use super::{
    Setting,
    dotnet::{
        burden::{self, WarmServer, throughput_change_percent},
        running::{Place, Program, Running},
    },
    in_turns::{Row, in_turns},
    report::Report,
};

const LEGEND: &str = "without: the profiler with CPU samples at 99 Hz alone. Runs of the default events take 20 s, the others 6 s; the \
profiler attaches for three quarters of them. Longest gap: between two readings of the clock by \
a thread of the target that does nothing else, while the profiler starts, samples for a second and ends. `-K` is given so that \
no sample needs the names of methods; those of exceptions do, and the runtime writes a rundown of all methods.";

/// The most throughput that the default events may cost, percent.
const DEFAULT_CHANGE_PERCENT_MIN: f64 = -1.0;

/// The events of the server, and the seconds of a run. The first ones have a budget, and run long enough that the start and the
/// end of their session are no large part.
const SERVER_EVENTS: [(&str, u64); 3] = [("default", 20), ("default,http-server", 6), ("default,http", 6)];

/// Modes of the workload, and the number of its methods.
const MODES: &[(&str, &str)] = &[("gaps-10000", "10,000"), ("gaps-200000", "200,000")];
const QUICK_MODES: &[(&str, &str)] = &[("gaps-1000", "1,000")];

const VERSIONS: [&str; 2] = ["3.1", "9.0"];

/// What the profiler does meanwhile: its title and options. Without options, it does not run.
const SESSIONS: [(&str, &[&str]); 4] = [
    ("nothing", &[]),
    ("`-K`, without events", &["-K"]),
    ("`-K --events gc,threadpool,contention`", &["-K", "--events", "gc,threadpool,contention"]),
    ("`-K --events default`, with the names of methods", &["-K", "--events", "default"]),
];

/// Measures all.
pub(super) fn measure(setting: &Setting) -> Result<Report> {
    let mut report = throughput(setting)?;
    pauses(setting, &mut report)?;
    report.paragraph(LEGEND);
    Ok(report)
}

/// The throughput of a server with and without events, in turns.
fn throughput(setting: &Setting) -> Result<Report> {
    let server = WarmServer::start(None, setting)?;
    let mut rows = Vec::new();
    for (events, seconds) in SERVER_EVENTS {
        let seconds = setting.seconds(seconds);
        let title = format!("`--events {events}`");
        let without = || server.serve_profiled(seconds, setting, &[]);
        let with = || server.serve_profiled(seconds, setting, &["--events", events]);
        rows.push((title.clone(), burden::pairs(&title, setting, without, with)?));
    }
    let pairs = rows.first().map_or(0, |(_, pairs)| pairs.len());
    let mut report = Report::new(&format!(
        "Measured on {}. An ASP.NET Core server under full load, {pairs} pairs of runs without and with the events, in turns.",
        setting.machine
    ));
    burden::write_table(&mut report, &rows);
    if let Some((title, pairs)) = rows.first() {
        let change = throughput_change_percent(pairs);
        let what = format!("events: throughput with {title}, %");
        report.at_least(&what, change, DEFAULT_CHANGE_PERCENT_MIN);
    }
    Ok(report)
}

/// The longest gaps of a thread while sessions start and end.
fn pauses(setting: &Setting, report: &mut Report) -> Result<()> {
    let modes = if setting.is_quick { QUICK_MODES } else { MODES };
    report.paragraph(&format!(
        "Longest gap of a thread, ms, medians of {} runs in turns, while the profiler runs with:",
        setting.runs
    ));
    report.heading("runtime, methods", &SESSIONS.map(|(title, _)| title));
    for version in VERSIONS {
        for &(mode, methods) in modes {
            report.row(&format!(".NET {version}, {methods}"), &gaps_ms(setting, version, mode)?);
        }
    }
    Ok(())
}

/// The medians of the longest gaps of a run beside each of [`SESSIONS`], milliseconds.
fn gaps_ms(setting: &Setting, version: &'static str, mode: &'static str) -> Result<Vec<f64>> {
    let mut running =
        Running::start_idle(Program::App { version, mode }, Place::Host, None, &setting.folder)?;
    let made = running.target_mut().line()?;
    ensure!(made.trim() == "made", "the workload makes no methods: {made}");
    let rows = in_turns(&format!("events, .NET {version}, {mode}"), setting.runs, &SESSIONS, |options| {
        running.target_mut().ask()?;
        run_profiler(setting, running.pid(), options)?;
        Ok([gap_ms(&running.target_mut().ask()?)?])
    })?;
    Ok(rows.iter().flat_map(Row::medians).collect())
}

/// Samples for a second. Without options, nothing runs for as long.
fn run_profiler(setting: &Setting, pid: u32, options: &[&str]) -> Result<()> {
    const SECONDS: &str = "1";
    let mut command = if options.is_empty() {
        Command::new("sleep")
    } else {
        let mut command = Command::new(&setting.profiler);
        command.args(options).args(["-q", "-p", &pid.to_string(), "-o"]);
        command.arg(setting.folder.join("events.profile")).arg("-d");
        command
    };
    let status = command.arg(SECONDS).stdin(Stdio::null()).status()?;
    // 3: a thread that reads the clock makes no system call.
    ensure!(status.success() || status.code() == Some(3), "{command:?} failed: {status}");
    Ok(())
}

/// Parses `gap US`.
fn gap_ms(line: &str) -> Result<f64> {
    const US_PER_MS: f64 = 1e3;
    let us = line.trim().strip_prefix("gap ").context("the workload prints no gap")?;
    Ok(us.parse::<f64>()? / US_PER_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_parsed() {
        assert_eq!(gap_ms("gap 1500\n").unwrap(), 1.5);
        assert!(gap_ms("made").is_err());
    }
}
