//! Measures what a recorder costs that samples a server under load for longer than it keeps.

use std::{process::Command, time::Duration};

use anyhow::Result;

use super::{
    Setting,
    dotnet::running::{Place, Program, Running},
    in_turns::in_turns,
    report::{Column, Report},
    run::settled_after,
};
use crate::process::cpu_time;

/// Longer than the 60 s that are kept.
const SECONDS: u64 = 70;

/// A condition that the load never meets.
const OPTIONS: &str = "-F 99 --wall --events default --keep 60s";
const TRIGGER: &str = "cpu < 1% for 10s";

const COLUMNS: [Column; 4] = [
    Column::new("CPU s"),
    Column::new("CPU, % of the server's"),
    Column::at_most("sampling", 1.0),
    Column::at_most("peak MB", 64.0),
];

const LEGEND: &str = "CPU: user and system time of the recorder, also as a share of the server's; sampling: after the first two \
seconds, in which it loads BPF programs and unwind tables. peak: its resident memory.";

pub(super) fn measure(setting: &Setting) -> Result<Report> {
    let seconds = setting.seconds(SECONDS);
    let server = Running::start(Program::SERVER, Place::Host, &setting.folder)?;
    let rows = in_turns("record", setting.runs, &[(format!("`{OPTIONS}`"), server.pid())], |pid| {
        record(setting, *pid, seconds)
    })?;
    let runs = setting.runs;
    let how = format!("medians of {runs} runs of {seconds} s on an ASP.NET Core server under full load");
    let mut report = setting.report(&how);
    report.table("profiler record", &COLUMNS, &rows);
    report.paragraph(LEGEND);
    Ok(report)
}

/// CPU seconds, percent of the CPU time of the server from the start and after it, and the peak memory in MB.
fn record(setting: &Setting, pid: u32, seconds: u64) -> Result<[f64; 4]> {
    const BYTES_PER_MB: f64 = 1e6;
    let mut command = Command::new(&setting.profiler);
    command.args(["record", "-vv", "-p", &pid.to_string(), "-d", &seconds.to_string(), "--trigger", TRIGGER]);
    command.args(OPTIONS.split_whitespace()).arg("-o").arg(setting.folder.join("recorder-%n.profile"));
    let before = cpu_time(pid)?;
    let length = Duration::from_secs(seconds);
    let run = setting.measure(&mut command, seconds, "recorder")?;
    let server_s = (cpu_time(pid)? - before).as_secs_f64();
    // The load is the same from the start to the end.
    let settled_share = 1.0 - settled_after(length).as_secs_f64() / length.as_secs_f64();
    let [cpu_s, settled_s] = [run.cpu, run.settled_cpu].map(|cpu| cpu.as_secs_f64());
    let percent = [cpu_s / server_s, settled_s / (settled_share * server_s)].map(|share| 100.0 * share);
    Ok([cpu_s, percent[0], percent[1], run.peak_bytes as f64 / BYTES_PER_MB])
}
