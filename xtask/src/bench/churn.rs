//! Measures the profiler on a machine that starts short programs all the time, beside `perf record`.

use std::{
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use fs_err as fs;

use super::{
    Setting,
    in_turns::in_turns,
    report::{Column, Report, number},
    run::Run,
    target::Target,
    tool::ToolName,
};
use crate::process::number_behind;

/// The loops that run beside each other.
const LOOPS: usize = 3;

/// Two programs of about a millisecond in turns, until standard input is closed.
const LOOP: &str = "exec 3<&0; { read -r line <&3; kill $$ 2> /dev/null; } & echo ready; \
                    while :; do /bin/true; /bin/ls / > /dev/null; done";

const LEGEND: &str = "forks/s: of all processes. CPU: user and system time of the profiler alone, without the kernel's work \
for it in other processes. whole: stacks that reach their root.";

/// The least part of the forks that remains, and the least share of whole stacks.
const FORKS_PERCENT_MIN: f64 = 97.0;
const WHOLE_PERCENT_MIN: f64 = 95.0;

/// The duration of the long run, in short ones, and how much more than that its CPU time may be.
const LONG_FACTOR: u64 = 6;
const LONG_TOLERANCE: f64 = 1.1;

/// The profilers with their options; the time follows.
const SCENARIOS: [(&str, Option<(ToolName, &str)>); 5] = [
    ("none", None),
    ("**profiler** -a -F 99", Some((ToolName::Profiler, "-a -F 99"))),
    ("**profiler** -a -F 99 --unwind fp", Some((ToolName::Profiler, "-a -F 99 --unwind fp"))),
    ("**profiler** -a -F 999", Some((ToolName::Profiler, "-a -F 999"))),
    ("perf record -a -g -F 99", Some((ToolName::Perf, "record -a -g -F 99"))),
];

/// Runs each profiler in turns beside the loops.
pub(super) fn measure(setting: &Setting) -> Result<Report> {
    let seconds = setting.seconds(10);
    let loops = start_loops()?;
    let rows =
        in_turns("churn", setting.runs, &SCENARIOS, |profiler| run(setting, profiler.as_ref(), seconds))?;
    let long_s = LONG_FACTOR * seconds;
    let [_, long_cpu_s, _] = run(setting, SCENARIOS[1].1.as_ref(), long_s)?;
    drop(loops);
    let runs = setting.runs;
    let mut report = setting.report(&format!(
        "medians of {runs} runs of {seconds} s in turns, beside {LOOPS} loops of `/bin/true; /bin/ls /`"
    ));
    report.table("profiler", &["forks/s", "CPU s", "whole %"].map(Column::new), &rows);
    report.paragraph(LEGEND);
    let [none, profiler, perf] = [0, 1, 4].map(|row| rows[row].medians());
    report.at_least("churn: forks kept, %", 100.0 * profiler[0] / none[0], FORKS_PERCENT_MIN);
    report.at_least("churn: whole stacks, %", profiler[2], WHOLE_PERCENT_MIN);
    report.at_most("churn: CPU s beside perf record", profiler[1], perf[1]);
    // The CPU time of the profiler grows with time, not with its square.
    let factor = long_cpu_s / profiler[1];
    report.paragraph(&format!(
        "In one run of {long_s} s at 99 Hz, the profiler took {} s of CPU, {} times as much.",
        number(long_cpu_s),
        number(factor)
    ));
    let most = LONG_FACTOR as f64 * LONG_TOLERANCE;
    report.at_most("churn: CPU time of a long run, times that of a short one", factor, most);
    Ok(report)
}

/// Starts the loops. Dropping them ends them.
pub(super) fn start_loops() -> Result<Vec<Target>> {
    (0..LOOPS).map(|_| Target::from_command(Command::new("sh").args(["-c", LOOP]))).collect()
}

/// Forks a second, CPU seconds of the profiler, and its share of whole stacks in percent, where it states that.
fn run(setting: &Setting, profiler: Option<&(ToolName, &str)>, seconds: u64) -> Result<[f64; 3]> {
    let (started, before) = (Instant::now(), forks()?);
    let run = profiler.map(|(tool, options)| profile(setting, *tool, options, seconds)).transpose()?;
    if run.is_none() {
        thread::sleep(Duration::from_secs(seconds));
    }
    let forks_per_second = (forks()? - before) / started.elapsed().as_secs_f64();
    let (cpu_s, whole) = run.map_or((0.0, None), |run| (run.cpu.as_secs_f64(), whole_percent(&run.messages)));
    Ok([forks_per_second, cpu_s, whole.unwrap_or(f64::NAN)])
}

fn profile(setting: &Setting, tool: ToolName, options: &str, seconds: u64) -> Result<Run> {
    let found = setting.tools.iter().find(|known| known.name == tool);
    let mut command = Command::new(found.context("it is not among the profilers to compare")?.program()?);
    let seconds_text = seconds.to_string();
    command.args(options.split(' '));
    if tool == ToolName::Perf {
        command.arg("-o").arg(setting.folder.join("churn.data")).args(["--", "sleep", &seconds_text]);
    } else {
        // Only a verbose summary has the share of whole stacks.
        command.args(["-v", "-d", &seconds_text]);
    }
    setting.measure(&mut command, seconds, "churn")
}

/// The processes and threads that were started since boot (`processes` of proc_stat(5)).
fn forks() -> Result<f64> {
    let forks = number_behind(&fs::read_to_string("/proc/stat")?, "processes ");
    Ok(forks.context("/proc/stat has no `processes`")? as f64)
}

/// The share of whole stacks in the profiler's summary.
fn whole_percent(messages: &str) -> Option<f64> {
    let (before, _) = messages.split_once(" % reach their root")?;
    before.rsplit(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_whole_stacks_is_that_of_the_summary() {
        let summary = "profiler: 9 samples in 2.0 s of everything, 0 lost\n\
                       profiler: stacks: 98.5 % reach their root, 1.1 % end before a known root\n";
        assert_eq!(whole_percent(summary), Some(98.5));
        assert_eq!(whole_percent("profiler: 0 samples"), None);
    }

    #[test]
    fn forks_are_counted() {
        let before = forks().unwrap();
        Command::new("true").status().unwrap();
        assert!(forks().unwrap() > before);
    }
}
