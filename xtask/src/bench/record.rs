//! Measures what a recorder costs that samples a server under load for longer than it keeps.

use std::{fmt::Write as _, fs, process::Command, time::Duration};

use anyhow::{Context as _, Result};

use super::{
    Setting,
    dotnet::running::{Place, Program, Running},
    measure::{self, End},
    report::{Report, number},
    scenario::median,
};

const SERVER: Program = Program::Server { paths: &["/plaintext", "/json"] };

/// Longer than the 60 s that are kept.
const SECONDS: u64 = 70;

/// A condition that the load never meets.
const OPTIONS: &str = "-F 99 --wall --events default --keep 60s";
const TRIGGER: &str = "cpu < 1% for 10s";

const CPU_PERCENT_MAX: f64 = 1.0;
const PEAK_MB_MAX: f64 = 64.0;

const LEGEND: &str = "CPU: user and system time of the recorder, also as a share of the server's; sampling: after the first two \
seconds, in which it loads BPF programs and unwind tables. peak: its resident memory.";

/// The figures of one run.
#[derive(Clone, Copy)]
struct Figures {
    cpu_seconds: f64,
    /// Of the CPU time of the server.
    cpu_percent: f64,
    /// As above, after the start.
    sampling_percent: f64,
    peak_mb: f64,
}

pub(super) fn measure(setting: &Setting) -> Result<Report> {
    let seconds = setting.seconds(SECONDS);
    let server = Running::start(SERVER, Place::Host, &setting.folder)?;
    let mut runs = Vec::new();
    for run in 0..setting.runs {
        eprintln!("recorder, run {}", run + 1);
        runs.push(record(setting, server.pid(), seconds)?);
    }
    Ok(report(&runs, setting, seconds))
}

fn record(setting: &Setting, pid: u32, seconds: u64) -> Result<Figures> {
    const BYTES_PER_MB: f64 = 1e6;
    let mut command = Command::new(&setting.profiler);
    command.args(["record", "-vv", "-p", &pid.to_string(), "-d", &seconds.to_string(), "--trigger", TRIGGER]);
    command.args(OPTIONS.split_whitespace()).arg("-o").arg(setting.folder.join("recorder-%n.profile"));
    let before = cpu_seconds(pid)?;
    let output = setting.folder.join("recorder.output");
    let run = measure::run(&mut command, Duration::from_secs(seconds), End::Itself, &output)?;
    let of_server = cpu_seconds(pid)? - before;
    // The load is the same from the start to the end.
    let length = Duration::from_secs(seconds);
    let settled_share = 1.0 - measure::settled_after(length).as_secs_f64() / length.as_secs_f64();
    Ok(Figures {
        cpu_seconds: run.cpu.as_secs_f64(),
        cpu_percent: 100.0 * run.cpu.as_secs_f64() / of_server,
        sampling_percent: 100.0 * run.settled_cpu.as_secs_f64() / (settled_share * of_server),
        peak_mb: run.peak_bytes as f64 / BYTES_PER_MB,
    })
}

/// The CPU time of all threads of a process: `utime` and `stime` of `/proc/PID/stat`, in clock ticks (proc_pid_stat(5)).
fn cpu_seconds(pid: u32) -> Result<f64> {
    const TICKS_PER_S: f64 = 100.0;
    const FIELDS_TO_UTIME: usize = 11;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name, which ends with the last parenthesis, may contain blanks.
    let (_, fields) = stat.rsplit_once(')').context("a process has a name")?;
    let times = fields.split_whitespace().skip(FIELDS_TO_UTIME).take(2);
    let ticks = times.map(str::parse::<f64>).sum::<Result<f64, _>>()?;
    Ok(ticks / TICKS_PER_S)
}

fn report(runs: &[Figures], setting: &Setting, seconds: u64) -> Report {
    let middle = |figure: fn(&Figures) -> f64| median(runs.iter().map(figure).collect());
    let (cpu_seconds, cpu_percent) = (middle(|run| run.cpu_seconds), middle(|run| run.cpu_percent));
    let (sampling_percent, peak_mb) = (middle(|run| run.sampling_percent), middle(|run| run.peak_mb));
    let mut report = Report::default();
    // Writing to a String cannot fail.
    let _ = write!(
        report.markdown,
        "Measured on {}, medians of {} runs of {seconds} s on an ASP.NET Core server under full load.\n\n\
         | profiler record | CPU s | CPU, % of the server's | sampling | peak MB |\n|---|---:|---:|---:|---:|\n\
         | `{OPTIONS}` | {} | {} | {} | {} |\n\n{LEGEND}\n",
        setting.machine,
        setting.runs,
        number(cpu_seconds),
        number(cpu_percent),
        number(sampling_percent),
        number(peak_mb)
    );
    let is_kept = sampling_percent <= CPU_PERCENT_MAX;
    report.check("recorder: CPU time, % of the server's", sampling_percent, CPU_PERCENT_MAX, is_kept);
    report.check("recorder: peak MB", peak_mb, PEAK_MB_MAX, peak_mb <= PEAK_MB_MAX);
    report
}
