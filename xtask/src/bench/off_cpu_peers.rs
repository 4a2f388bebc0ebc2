//! Compares tools that measure off-CPU time: what they cost, and how far their sum is from what the program itself measured in
//! the same run.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use fs_err as fs;
use wait4::Wait4 as _;

use super::{
    Setting,
    in_turns::in_turns_if_possible,
    report::{Report, number},
    target::Target,
    tool::with_tracefs,
};
use crate::{shell, workloads};

pub(super) const LEGEND: &str = "Off-CPU time: the workload `off_cpu`, whose threads sleep, wait for a lock, a pipe, a disk and \
a CPU, and measure for how long they did not run. CPU: user and system time of the tool, from its start to its report. BPF: run time \
of its BPF programs, which the switching threads pay. Error: of the sum over all threads. perf record --off-cpu leaves out the \
waits of threads that could run; its error is the share of these. perf sched timehist lacks the last wait of a thread that \
exits. offcputime of bcc needs kprobes.";

/// The most by which the sum may be wrong, percent.
const ERROR_PERCENT_MAX: f64 = 1.0;

/// The most CPU time for 150,000 waits, seconds. Two thirds of it are for the kernel's verifier.
const CPU_S_MAX: f64 = 0.6;

/// The time after the start of the workload after which its threads start. Until then, the tool attaches to it.
const ATTACH_S: u64 = 3;

/// The time for which a tool runs longer than the threads.
const MARGIN_S: u64 = 2;

const TOOLS: [(&str, Kind); 7] = [
    ("**profiler** --off-cpu --min-block 0", Kind::Profiler(&[])),
    (
        "**profiler** --off-cpu --min-block 0 --max-overhead 100, a stack of each wait",
        Kind::Profiler(&["--max-overhead", "100"]),
    ),
    ("bpftrace, sched_switch, with stacks", Kind::Bpftrace { has_stacks: true }),
    ("bpftrace, sched_switch, without stacks", Kind::Bpftrace { has_stacks: false }),
    ("perf sched record, perf sched timehist", Kind::PerfSched),
    ("perf record --off-cpu, perf script", Kind::PerfOffCpu),
    ("offcputime-bpfcc", Kind::Offcputime),
];

#[derive(Clone, Copy)]
enum Kind {
    Profiler(&'static [&'static str]),
    Bpftrace { has_stacks: bool },
    PerfSched,
    PerfOffCpu,
    Offcputime,
}

/// Adds the table.
pub(super) fn measure(setting: &Setting, report: &mut Report) -> Result<()> {
    let seconds = setting.seconds(5);
    let rows = in_turns_if_possible("waiting", setting.runs, &TOOLS, |kind| {
        Workload::start(setting, seconds)?.run(setting, *kind)
    });
    let heading = format!("off-CPU time of threads that wait for {seconds} s");
    report.heading(&heading, &["CPU s", "BPF ms a second", "error %"]);
    for row in rows {
        let [cpu_s, bpf_ms_a_second, error_percent] = row.medians();
        report.row_of(&row.title, &[number(cpu_s), number(bpf_ms_a_second), format!("{error_percent:+.2}")]);
        if row.title.starts_with("**profiler**") {
            report.at_most(&format!("waiting: CPU s of {}", row.title), cpu_s, CPU_S_MAX);
            report.at_most(
                &format!("waiting: error of {}, %", row.title),
                error_percent.abs(),
                ERROR_PERCENT_MAX,
            );
        }
    }
    Ok(())
}

/// The running workload.
struct Workload {
    target: Target,
    /// The time for which its threads wait.
    seconds: u64,
    /// The file that it writes at the end: a line `NAME NANOSECONDS` for each thread.
    report: PathBuf,
}

impl Workload {
    fn start(setting: &Setting, seconds: u64) -> Result<Self> {
        const PAGES_BYTES: usize = 512 * 4096;
        let [pages, report] = ["off_cpu.pages", "off_cpu.report"].map(|name| setting.folder.join(name));
        fs::write(&pages, vec![1; PAGES_BYTES])?;
        fs::File::open(&pages)?.sync_all()?;
        let mut command = Command::new(workloads::output_folder().join("off_cpu"));
        command.arg(seconds.to_string()).arg(&report).arg(pages).arg(ATTACH_S.to_string());
        Ok(Self { target: Target::from_command(&mut command)?, seconds, report })
    }

    /// Runs a tool beside it. Its CPU seconds, milliseconds of its BPF programs a second, and its error in percent.
    fn run(self, setting: &Setting, kind: Kind) -> Result<[f64; 3]> {
        let recording = setting.folder.join("off_cpu.recording");
        let seconds = ATTACH_S + self.seconds + MARGIN_S;
        let mut command = kind.command(setting, self.target.pid(), seconds, &recording)?;
        let run = setting.measure(&mut command, seconds, "off_cpu")?;
        let output = setting.folder.join("off_cpu.output");
        let report_cpu = kind.report(self.target.pid(), &recording, &output)?;
        let waits = waits_ns(&fs::read_to_string(&self.report)?)?;
        let threads: BTreeSet<_> = waits.iter().map(|(name, _)| name.as_str()).collect();
        let measured_ns: f64 = waits.iter().map(|(_, ns)| ns).sum();
        let found = kind.waits_ns(&fs::read_to_string(&output)?);
        let found_ns: f64 =
            found.iter().filter(|(name, _)| threads.contains(name.as_str())).map(|(_, ns)| ns).sum();
        ensure!(found_ns > 0.0, "it found no waits: {}", run.messages.lines().last().unwrap_or_default());
        Ok([
            (run.cpu + report_cpu).as_secs_f64(),
            run.run_time_a_second.map_or(f64::NAN, |run_time| 1e3 * run_time.as_secs_f64()),
            100.0 * (found_ns / measured_ns - 1.0),
        ])
    }
}

impl Kind {
    /// The command that measures a process for a time.
    fn command(self, setting: &Setting, pid: u32, seconds: u64, recording: &Path) -> Result<Command> {
        let find = |name: &str| shell::find(name).with_context(|| format!("{name} is not installed"));
        let arguments = match self {
            Self::Profiler(_) => {
                format!("--off-cpu --min-block 0 --format folded --per-thread -p {pid} -d {seconds}")
            }
            Self::Bpftrace { .. } => String::new(),
            Self::PerfSched => format!("sched record -q -o {} -- sleep {seconds}", recording.display()),
            Self::PerfOffCpu => format!(
                "record -q --off-cpu -e dummy -g -p {pid} -o {} -- sleep {seconds}",
                recording.display()
            ),
            Self::Offcputime => format!("-f -p {pid} {seconds}"),
        };
        let mut command = match self {
            Self::Profiler(options) => {
                let mut command = Command::new(&setting.profiler);
                command.args(options);
                command
            }
            Self::Bpftrace { has_stacks } => {
                let mut command = with_tracefs(&find("bpftrace")?);
                command.args(["-e", &bpftrace_program(pid, seconds, has_stacks)]);
                command
            }
            Self::PerfSched | Self::PerfOffCpu => with_tracefs(&find("perf")?),
            Self::Offcputime => with_tracefs(&find("offcputime-bpfcc")?),
        };
        command.args(arguments.split_whitespace());
        Ok(command)
    }

    /// The second step of perf, which writes a report of its recording; its CPU time.
    fn report(self, pid: u32, recording: &Path, output: &Path) -> Result<Duration> {
        let arguments = match self {
            Self::PerfSched => format!("sched timehist --pid {pid} -i"),
            Self::PerfOffCpu => "script -F comm,event,period -i".to_owned(),
            Self::Profiler(_) | Self::Bpftrace { .. } | Self::Offcputime => return Ok(Duration::ZERO),
        };
        let mut command = Command::new("perf");
        command.args(arguments.split_whitespace()).arg(recording);
        let ended =
            command.stdout(fs::File::create(output)?.into_file()).stderr(Stdio::null()).spawn()?.wait4()?;
        ensure!(ended.status.success(), "perf {arguments}: {}", ended.status);
        Ok(ended.rusage.utime + ended.rusage.stime)
    }

    /// The waits in the output of a tool: the thread's name and nanoseconds.
    fn waits_ns(self, output: &str) -> Vec<(String, f64)> {
        let parse: fn(&str) -> Option<(String, f64)> = match self {
            Self::Profiler(_) => profiler_wait_ns,
            Self::Bpftrace { .. } => bpftrace_wait_ns,
            Self::PerfSched => timehist_wait_ns,
            Self::PerfOffCpu => perf_script_wait_ns,
            Self::Offcputime => offcputime_wait_ns,
        };
        output.lines().filter_map(parse).collect()
    }
}

const NS_PER_US: f64 = 1e3;
const NS_PER_MS: f64 = 1e6;

/// A folded stack with microseconds: `off_cpu;thread 12 (mutex);main 34`.
fn profiler_wait_ns(line: &str) -> Option<(String, f64)> {
    let (stack, microseconds) = line.rsplit_once(' ')?;
    let thread = stack.split(';').find(|frame| frame.starts_with("thread "))?;
    let name = thread.split_once(" (")?.1.strip_suffix(')')?;
    Some((name.to_owned(), microseconds.parse::<f64>().ok()? * NS_PER_US))
}

/// The last line of an entry of a map, whose key ends with the name: `@ns[mutex]: 34`, or behind stacks `, mutex]: 34`.
fn bpftrace_wait_ns(line: &str) -> Option<(String, f64)> {
    let (key, nanoseconds) = line.rsplit_once("]: ")?;
    let name = key.strip_prefix("@ns[").or_else(|| key.strip_prefix(", "))?;
    Some((name.to_owned(), nanoseconds.parse().ok()?))
}

/// A line `12.345678 [0001]  mutex[13/12]  1.234  0.005  0.067`: the time off the CPU is the first number behind the name,
/// milliseconds.
fn timehist_wait_ns(line: &str) -> Option<(String, f64)> {
    let mut fields = line.split_whitespace().skip(2);
    let (name, _) = fields.next()?.strip_suffix(']')?.rsplit_once('[')?;
    Some((name.to_owned(), fields.next()?.parse::<f64>().ok()? * NS_PER_MS))
}

/// A line `mutex  34 offcpu-time:`, nanoseconds.
fn perf_script_wait_ns(line: &str) -> Option<(String, f64)> {
    let mut fields = line.split_whitespace();
    let (name, nanoseconds, event) = (fields.next()?, fields.next()?, fields.next()?);
    event.starts_with("offcpu-time").then_some(())?;
    Some((name.to_owned(), nanoseconds.parse().ok()?))
}

/// A folded stack with microseconds, whose first frame is the name of the thread.
fn offcputime_wait_ns(line: &str) -> Option<(String, f64)> {
    let (stack, microseconds) = line.rsplit_once(' ')?;
    let name = stack.split(';').next()?;
    Some((name.to_owned(), microseconds.parse::<f64>().ok()? * NS_PER_US))
}

/// Sums up the waits of a process. Stacks are captured at the switch away from a thread.
pub(super) fn bpftrace_program(pid: u32, seconds: u64, has_stacks: bool) -> String {
    let (capture, key, forget) = if has_stacks {
        (
            "@user[tid] = ustack; @kernel[tid] = kstack;",
            "@user[args->next_pid], @kernel[args->next_pid], args->next_comm",
            "clear(@user); clear(@kernel);",
        )
    } else {
        ("", "args->next_comm", "")
    };
    format!(
        "tracepoint:sched:sched_switch {{ \
           if (pid == {pid}) {{ @start[tid] = nsecs; {capture} }} \
           if (@start[args->next_pid]) {{ @ns[{key}] = sum(nsecs - @start[args->next_pid]); \
             delete(@start[args->next_pid]); }} }} \
         interval:s:{seconds} {{ exit(); }} \
         END {{ clear(@start); {forget} }}"
    )
}

/// The waits that the workload measured.
fn waits_ns(report: &str) -> Result<Vec<(String, f64)>> {
    let wait = |line: &str| {
        let (name, nanoseconds) = line.split_once(' ')?;
        Some((name.to_owned(), nanoseconds.parse().ok()?))
    };
    // The waits of a thread include the waits of its functions.
    let thread_lines = report.lines().filter(|line| !line.contains("()"));
    let waits = thread_lines.map(wait).collect::<Option<Vec<_>>>();
    waits.filter(|waits| !waits.is_empty()).context("the workload wrote no report")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_waits_of_each_tool_are_read() {
        let of = |kind: Kind, output: &str| kind.waits_ns(output);
        let mutex = |ns: f64| vec![("mutex".to_owned(), ns)];
        let folded = "off_cpu;thread 12 (mutex);start_thread;run 34\noff_cpu;other 5\n";
        assert_eq!(of(Kind::Profiler(&[]), folded), mutex(34e3));
        let script = Kind::Bpftrace { has_stacks: false };
        assert_eq!(of(script, "Attaching 2 probes...\n\n@ns[mutex]: 34\n"), mutex(34.0));
        assert_eq!(of(script, "@ns[\n        read+17\n,\n        do_read+5\n, mutex]: 34\n"), mutex(34.0));
        let timehist = "           time    cpu  task name   wait time  sch delay   run time\n\
                        --------------- ------  ----------  ---------  ---------  ---------\n   \
                        12.345678 [0001]  mutex[13/12]      1.500      0.005      0.067 \n";
        assert_eq!(of(Kind::PerfSched, timehist), mutex(1.5e6));
        assert_eq!(of(Kind::PerfOffCpu, "mutex         34 offcpu-time: \n"), mutex(34.0));
        assert_eq!(of(Kind::Offcputime, "mutex;start_thread;run 34\n"), mutex(34e3));
    }

    #[test]
    fn a_report_without_waits_is_an_error() {
        assert_eq!(waits_ns("pipe 5\nsleep 6\n").unwrap().len(), 2);
        assert!(waits_ns("").is_err() && waits_ns("pipe\n").is_err());
    }
}
