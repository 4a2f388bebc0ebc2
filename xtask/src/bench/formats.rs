//! Measures time, memory and size of writing a large profile in each format, and inferno's collapse of the same
//! samples.

use std::{fmt::Write as _, fs, process::Command};

use anyhow::{Context as _, Result};

use super::{
    Setting,
    report::{Report, number},
};
use crate::{project, shell};

const FORMATS: [&str; 10] =
    ["folded", "svg", "html", "top", "pprof", "speedscope", "firefox", "perf-script", "trace-zip", "profile"];

const LEGEND: &str = "Peak: of the process, the profile itself included. inferno: its collapse of the text in the format \
perf-script, from a file.";

/// The cost of writing one file.
struct Figures {
    seconds: f64,
    peak_megabytes: f64,
    megabytes: f64,
}

/// Measures the writing of a large profile in each format.
pub(super) fn measure(setting: &Setting) -> Result<Report> {
    let mut report = Report {
        markdown: format!(
            "1,000,000 samples in 8 threads, of stacks that are 20 frames deep; medians of {} runs.\n\n\
         | 50,000 stacks | s | peak MB | MB written |\n|---|---:|---:|---:|\n",
            setting.runs
        ),
        ..Report::default()
    };
    let mut folded_seconds = f64::INFINITY;
    for format in FORMATS {
        let figures = median(&[format, "50000"], setting.runs)?;
        if format == "folded" {
            folded_seconds = figures.seconds;
        }
        row(&mut report, format, &figures);
        REPEATED.check(&mut report, &format!("{format}, 50,000 stacks"), &figures);
    }
    let samples = setting.folder.join("formats.perf.txt");
    let path = samples.to_str().context("a path that is no text")?;
    median(&["perf-script", "50000", path], 1)?;
    let collapse = median(&["collapse", path], setting.runs)?;
    fs::remove_file(&samples)?;
    row(&mut report, "folded, by inferno", &collapse);
    let is_faster = folded_seconds <= collapse.seconds;
    report.check(
        "seconds to write folded stacks, beside inferno",
        folded_seconds,
        collapse.seconds,
        is_faster,
    );
    report.markdown += "\n| 1,000,000 stacks, each once | s | peak MB | MB written |\n|---|---:|---:|---:|\n";
    for format in FORMATS {
        let figures = median(&[format, "1000000"], setting.runs)?;
        row(&mut report, format, &figures);
        ALL_DIFFERENT.check(&mut report, &format!("{format}, 1,000,000 stacks"), &figures);
    }
    // Writing to a String cannot fail.
    let _ = writeln!(report.markdown, "\n{LEGEND}");
    Ok(report)
}

/// Upper limits of the cost.
struct Limits {
    seconds: f64,
    peak_megabytes: f64,
}

const REPEATED: Limits = Limits { seconds: 1.0, peak_megabytes: 200.0 };

/// A worst case: only names repeat.
const ALL_DIFFERENT: Limits = Limits { seconds: 5.0, peak_megabytes: 1_000.0 };

impl Limits {
    fn check(&self, report: &mut Report, what: &str, figures: &Figures) {
        for (unit, value, limit) in
            [("s", figures.seconds, self.seconds), ("peak MB", figures.peak_megabytes, self.peak_megabytes)]
        {
            report.check(&format!("{what}, {unit}"), value, limit, value <= limit);
        }
    }
}

fn row(report: &mut Report, name: &str, figures: &Figures) {
    let [seconds, peak, size] = [figures.seconds, figures.peak_megabytes, figures.megabytes].map(number);
    // Writing to a String cannot fail.
    let _ = writeln!(report.markdown, "| {name} | {seconds} | {peak} | {size} |");
}

/// The run with the median time.
fn median(arguments: &[&str], runs: usize) -> Result<Figures> {
    let mut all = (0..runs.max(1)).map(|_| run_once(arguments)).collect::<Result<Vec<_>>>()?;
    all.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    let middle = all.len() / 2;
    all.into_iter().nth(middle).context("nothing was measured")
}

fn run_once(arguments: &[&str]) -> Result<Figures> {
    let mut cargo = Command::new("cargo");
    cargo.args(["run", "--quiet", "--release", "--package", "profiler-tests", "--bin", "formats", "--"]);
    let said = shell::read(cargo.args(arguments).current_dir(project::root()))?;
    let numbers = said.split_whitespace().map(str::parse).collect::<Result<Vec<f64>, _>>()?;
    let [seconds, peak_megabytes, megabytes] = numbers[..] else { anyhow::bail!("said `{said}`") };
    Ok(Figures { seconds, peak_megabytes, megabytes })
}
