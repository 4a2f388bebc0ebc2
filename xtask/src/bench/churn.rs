//! Measures the profiler on a machine that starts short programs all the time, beside `perf record`.

use std::{
    fmt::Write as _,
    fs,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};

use super::{
    Setting,
    measure::{self, End},
    report::{Report, number},
    scenario::median,
    target::Target,
    tool::ToolName,
};

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

/// A profiler with its options; the time follows.
struct Row {
    title: &'static str,
    tool: Option<ToolName>,
    options: &'static str,
}

const ROWS: [Row; 5] = [
    Row { title: "none", tool: None, options: "" },
    Row { title: "**profiler** -a -F 99", tool: Some(ToolName::Profiler), options: "-a -F 99" },
    Row {
        title: "**profiler** -a -F 99 --unwind fp",
        tool: Some(ToolName::Profiler),
        options: "-a -F 99 --unwind fp",
    },
    Row { title: "**profiler** -a -F 999", tool: Some(ToolName::Profiler), options: "-a -F 999" },
    Row { title: "perf record -a -g -F 99", tool: Some(ToolName::Perf), options: "record -a -g -F 99" },
];

/// The figures of one run.
#[derive(Clone, Copy)]
struct Figures {
    forks_per_second: f64,
    cpu_seconds: f64,
    /// `None` where the profiler does not say it.
    whole_percent: Option<f64>,
}

/// Runs each profiler in turns beside the loops.
pub(super) fn measure(setting: &Setting) -> Result<Report> {
    let seconds = setting.seconds(10);
    let loops = start_loops()?;
    let mut runs: Vec<Vec<Figures>> = ROWS.iter().map(|_| Vec::new()).collect();
    for run in 0..setting.runs {
        for (row, figures) in ROWS.iter().zip(&mut runs) {
            eprintln!("churn, run {}: {}", run + 1, row.title);
            figures.push(row.run(setting, seconds)?);
        }
    }
    let long = ROWS[1].run(setting, LONG_FACTOR * seconds)?;
    drop(loops);
    let mut report = report(&runs, setting, seconds);
    add_long_run(&mut report, &runs[1], long, LONG_FACTOR * seconds);
    Ok(report)
}

/// The CPU time of the profiler grows with time, not with its square.
fn add_long_run(report: &mut Report, short: &[Figures], long: Figures, seconds: u64) {
    let short_seconds = median(short.iter().map(|run| run.cpu_seconds).collect());
    let factor = long.cpu_seconds / short_seconds;
    // Writing to a String cannot fail.
    let _ = writeln!(
        report.markdown,
        "\nIn one run of {seconds} s at 99 Hz, the profiler took {} s of CPU, {} times as much.",
        number(long.cpu_seconds),
        number(factor)
    );
    let most = LONG_FACTOR as f64 * LONG_TOLERANCE;
    report.check("churn: CPU time of a long run, times that of a short one", factor, most, factor <= most);
}

/// Starts the loops. Dropping them ends them.
pub(super) fn start_loops() -> Result<Vec<Target>> {
    (0..LOOPS).map(|_| Target::from_command(Command::new("sh").args(["-c", LOOP]))).collect()
}

impl Row {
    fn run(&self, setting: &Setting, seconds: u64) -> Result<Figures> {
        let (started, forks) = (Instant::now(), forks()?);
        let run = self.tool.map(|tool| self.profile(tool, setting, seconds)).transpose()?;
        if run.is_none() {
            thread::sleep(Duration::from_secs(seconds));
        }
        let forks_per_second = (self::forks()? - forks) / started.elapsed().as_secs_f64();
        Ok(Figures {
            forks_per_second,
            cpu_seconds: run.as_ref().map_or(0.0, |run| run.cpu.as_secs_f64()),
            whole_percent: run.and_then(|run| whole_percent(&run.messages)),
        })
    }

    fn profile(&self, tool: ToolName, setting: &Setting, seconds: u64) -> Result<measure::Run> {
        let found = setting.tools.iter().find(|known| known.name == tool);
        let mut command = Command::new(found.context("it is not among the profilers to compare")?.program()?);
        let seconds_text = seconds.to_string();
        command.args(self.options.split(' '));
        if tool == ToolName::Perf {
            command.arg("-o").arg(output(setting)).args(["--", "sleep", &seconds_text]);
        } else {
            command.args(["-d", &seconds_text]);
        }
        let text = setting.folder.join("churn.output");
        measure::run(&mut command, Duration::from_secs(seconds), End::Itself, &text)
    }
}

fn output(setting: &Setting) -> std::path::PathBuf {
    setting.folder.join("churn.data")
}

/// The processes and threads that were started since boot (`processes` of proc_stat(5)).
fn forks() -> Result<f64> {
    let stat = fs::read_to_string(Path::new("/proc/stat"))?;
    let line = stat.lines().find_map(|line| line.strip_prefix("processes "));
    Ok(line.context("/proc/stat has no `processes`")?.trim().parse()?)
}

/// The share of whole stacks in the profiler's summary.
fn whole_percent(messages: &str) -> Option<f64> {
    let (before, _) = messages.split_once(" % reach their root")?;
    before.rsplit(' ').next()?.parse().ok()
}

fn report(runs: &[Vec<Figures>], setting: &Setting, seconds: u64) -> Report {
    let middle = |runs: &[Figures], figure: fn(&Figures) -> Option<f64>| {
        let known: Vec<f64> = runs.iter().filter_map(figure).collect();
        (!known.is_empty()).then(|| median(known))
    };
    let mut report = Report::default();
    // Writing to a String cannot fail.
    let _ = write!(
        report.markdown,
        "Measured on {}, medians of {} runs of {seconds} s in turns, beside {LOOPS} loops of `/bin/true; /bin/ls /`.\n\n\
         | profiler | forks/s | CPU s | whole % |\n|---|---:|---:|---:|\n",
        setting.machine, setting.runs
    );
    for (row, runs) in ROWS.iter().zip(runs) {
        let cell = |figure| middle(runs, figure).map_or_else(|| "-".to_owned(), number);
        let _ = writeln!(
            report.markdown,
            "| {} | {} | {} | {} |",
            row.title,
            cell(|run| Some(run.forks_per_second)),
            cell(|run| Some(run.cpu_seconds)),
            cell(|run| run.whole_percent)
        );
    }
    let _ = writeln!(report.markdown, "\n{LEGEND}");
    let [none, profiler, .., perf] = runs else { return report };
    let forks = |runs: &[Figures]| middle(runs, |run| Some(run.forks_per_second)).unwrap_or_default();
    let cpu = |runs: &[Figures]| middle(runs, |run| Some(run.cpu_seconds)).unwrap_or_default();
    let kept_percent = 100.0 * forks(profiler) / forks(none);
    let whole_percent = middle(profiler, |run| run.whole_percent).unwrap_or_default();
    report.check("churn: forks kept, %", kept_percent, FORKS_PERCENT_MIN, kept_percent >= FORKS_PERCENT_MIN);
    report.check(
        "churn: whole stacks, %",
        whole_percent,
        WHOLE_PERCENT_MIN,
        whole_percent >= WHOLE_PERCENT_MIN,
    );
    report.check("churn: CPU s beside perf record", cpu(profiler), cpu(perf), cpu(profiler) <= cpu(perf));
    report
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
