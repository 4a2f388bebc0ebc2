//! Measures what waiting costs: passes over parked threads, the programs at each context switch, and other tools for the same.

use std::{
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use fs_err as fs;

use super::{
    Setting,
    dotnet::running::{Place, Program, Running},
    in_turns::in_turns,
    off_cpu_peers::{self, bpftrace_program},
    report::Report,
    sysctl::Sysctl,
    target::Target,
    tool::with_tracefs,
};
use crate::{process::number_behind, shell, workloads};

const LEGEND: &str = "CPU: user and system time of the profiler, start included in the first column. Round trip: a byte from one process to another \
and back, through pipes on one CPU: two context switches and two wakeups. Added: to a switch with its wakeup. Programs that return \
at once: a BPF program at each of the two tracepoints, which any tool needs there. bpftrace: a script that times each wait, as \
offcputime does, without stacks.";

/// The most CPU time for parked threads, and for the threads of a busy server, milliseconds a second.
const PARKED_CPU_MS_MAX: f64 = 10.0;
const BUSY_CPU_MS_MAX: f64 = 20.0;
/// The length of a run that costs little more than the start of the profiler.
const SHORT_S: u64 = 1;
/// The most that may be added to a switch of another process, and to one that is timed, beyond what programs that return at once
/// add, nanoseconds.
const OTHER_SWITCH_NS_MAX: f64 = 60.0;
const TIMED_SWITCH_NS_MAX: f64 = 600.0;

/// The time after which a tool is attached.
const ATTACH_S: u64 = 2;

/// What runs beside the two processes.
const VARIANTS: [(&str, Beside); 6] = [
    ("nothing", Beside::Nothing),
    ("BPF programs that return at once", Beside::EmptyPrograms),
    ("--off-cpu of another process", Beside::ProfilerOfOther),
    ("--off-cpu", Beside::Profiler(&["--max-overhead", "0.0001"])),
    ("--off-cpu --max-overhead 100, a stack of each wait", Beside::Profiler(&["--max-overhead", "100"])),
    ("bpftrace", Beside::Bpftrace),
];

enum Beside {
    Nothing,
    EmptyPrograms,
    ProfilerOfOther,
    Profiler(&'static [&'static str]),
    Bpftrace,
}

/// Measures all.
pub(super) fn measure(setting: &Setting) -> Result<Report> {
    let mut report = setting.report(&format!("medians of {} runs in turns", setting.runs));
    passes(setting, &mut report)?;
    switches(setting, &mut report)?;
    off_cpu_peers::measure(setting, &mut report)?;
    report.paragraph(&format!("{LEGEND} {}", off_cpu_peers::LEGEND));
    Ok(report)
}

/// CPU time of `--wall` beside threads that never run, threads that wake often, and a busy server.
fn passes(setting: &Setting, report: &mut Report) -> Result<()> {
    /// Threads, microseconds of sleep, steps of computing, timer slack.
    const WAKING: [&str; 4] = ["100", "20000", "1000", "0"];
    let seconds = setting.seconds(10).max(SHORT_S + 1);
    let columns = [format!("CPU s in {seconds} s"), "CPU ms a second after the start".to_owned()];
    report.heading("`--wall` beside", &columns);
    for (threads, max_ms) in [("10", None), ("100", None), ("1000", Some(PARKED_CPU_MS_MAX))] {
        let parked = Target::start("parked", &[threads])?;
        cost_of_passes(setting, report, (&format!("{threads} parked threads"), max_ms), parked.pid())?;
    }
    let waking = Target::start("sleepers", &WAKING)?;
    cost_of_passes(setting, report, ("100 threads that each wake 50 times a second", None), waking.pid())?;
    drop(waking);
    let server = Running::start(Program::SERVER, Place::Host, &setting.folder)?;
    let title = "an ASP.NET Core server under full load";
    cost_of_passes(setting, report, (title, Some(BUSY_CPU_MS_MAX)), server.pid())
}

/// Adds the row of a process, with the most CPU time that its passes may take, milliseconds a second.
fn cost_of_passes(
    setting: &Setting,
    report: &mut Report,
    (title, max_ms): (&str, Option<f64>),
    pid: u32,
) -> Result<()> {
    let seconds = setting.seconds(10).max(SHORT_S + 1);
    let scenarios = [SHORT_S, seconds].map(|seconds| (title, seconds));
    let rows =
        in_turns("waiting", setting.runs, &scenarios, |seconds| Ok([wall_cpu_s(setting, pid, *seconds)?]))?;
    let [[short_s], [cpu_s]] = [0, 1].map(|row| rows[row].medians());
    let ms_a_second = 1e3 * (cpu_s - short_s) / (seconds - SHORT_S) as f64;
    report.row(title, &[cpu_s, ms_a_second]);
    if let Some(max_ms) = max_ms {
        report.at_most(&format!("waiting: {title}, CPU ms a second"), ms_a_second, max_ms);
    }
    Ok(())
}

/// The CPU time of the profiler with wall-clock samples.
fn wall_cpu_s(setting: &Setting, pid: u32, seconds: u64) -> Result<f64> {
    let mut command = setting.profiler(seconds);
    command.args(["--wall", "-p", &pid.to_string()]);
    Ok(setting.measure(&mut command, seconds, "waiting")?.cpu.as_secs_f64())
}

/// The time of a round trip beside each variant.
fn switches(setting: &Setting, report: &mut Report) -> Result<()> {
    // The statistics read the clock twice in each run of a program, which takes longer than most runs.
    let _without_statistics = Sysctl::set("bpf_stats_enabled", "0")?;
    let (target, other) = (Target::start("switches", &[])?, Target::start("parked", &["1"])?);
    let rows = in_turns("waiting", setting.runs, &VARIANTS, |beside| {
        Ok([round_trip_ns(setting, beside, &target, &other)?.unwrap_or(f64::NAN)])
    })?;
    report.heading("beside", &["round trip ns", "added ns"]);
    let [[alone_ns], [with_empty_ns]] = [0, 1].map(|row| rows[row].medians());
    let empty_ns = (with_empty_ns - alone_ns) / 2.0;
    for (row, (title, beside)) in rows.iter().zip(&VARIANTS) {
        let [round_trip_ns] = row.medians();
        if round_trip_ns.is_nan() {
            continue;
        }
        let added_ns = (round_trip_ns - alone_ns) / 2.0;
        report.row(title, &[round_trip_ns, added_ns]);
        let max_ns = match beside {
            Beside::ProfilerOfOther => OTHER_SWITCH_NS_MAX,
            Beside::Profiler(_) => TIMED_SWITCH_NS_MAX,
            Beside::Nothing | Beside::EmptyPrograms | Beside::Bpftrace => continue,
        };
        let what = format!("waiting: {title}, ns a switch beyond empty programs");
        report.at_most(&what, added_ns - empty_ns, max_ns);
    }
    Ok(())
}

/// The mean round trip in the middle of a run; `None` where the tool is not installed, or fails.
fn round_trip_ns(setting: &Setting, beside: &Beside, target: &Target, other: &Target) -> Result<Option<f64>> {
    let seconds = setting.seconds(4);
    let profile = |pid: u32, options: &[&str]| {
        let mut command = setting.profiler(seconds + ATTACH_S + 1);
        command.args(["--off-cpu", "-p", &pid.to_string()]).args(options);
        command
    };
    let command = match *beside {
        Beside::Nothing => None,
        Beside::EmptyPrograms => {
            let mut command = Command::new(workloads::output_folder().join("empty_programs"));
            command.arg((seconds + ATTACH_S + 1).to_string());
            Some(command)
        }
        Beside::ProfilerOfOther => Some(profile(other.pid(), &[])),
        Beside::Profiler(options) => Some(profile(target.pid(), options)),
        Beside::Bpftrace => {
            let Some(program) = shell::find("bpftrace") else { return Ok(None) };
            let mut command = with_tracefs(&program);
            command.args(["-e", &bpftrace_program(target.pid(), seconds + ATTACH_S + 1, false)]);
            Some(command)
        }
    };
    let running = command
        .map(|mut command| command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn());
    let running = running.transpose()?;
    std::thread::sleep(Duration::from_secs(ATTACH_S));
    let (begin, switches) = (Instant::now(), switches_off(target.pid())?);
    std::thread::sleep(Duration::from_secs(seconds));
    let switches = switches_off(target.pid())? - switches;
    let elapsed_ns = begin.elapsed().as_nanos() as f64;
    let has_failed = running.is_some_and(|mut running| !running.wait().is_ok_and(|status| status.success()));
    if has_failed {
        eprintln!("left out of the table: it failed");
    }
    Ok((!has_failed).then_some(elapsed_ns / switches as f64))
}

/// The switches of a process off its CPU, one in each round trip: it waits, or the other process displaces it.
fn switches_off(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let counts = ["voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:"];
    let sum = counts.iter().map(|name| number_behind(&status, name)).sum::<Option<u64>>();
    sum.context("the status has no number of switches")
}
