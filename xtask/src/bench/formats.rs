//! Measures time, memory and size of writing a large profile in each format, and inferno's collapse of the same
//! samples.

use std::{fs, process::Command};

use anyhow::{Context as _, Result, anyhow};

use super::{
    Setting,
    in_turns::{Row, in_turns},
    report::Report,
};
use crate::{project, shell};

const FORMATS: [&str; 10] =
    ["folded", "svg", "html", "top", "pprof", "speedscope", "firefox", "perf-script", "trace-zip", "profile"];

const LEGEND: &str = "Peak: of the process, the profile itself included. inferno: its collapse of the text in the format \
perf-script, from a file.";

const COLUMNS: [&str; 3] = ["s", "peak MB", "MB written"];

/// The most seconds, and the most memory, MB.
const REPEATED_MAX: [f64; 2] = [1.0, 200.0];

/// A worst case: only names repeat.
const ALL_DIFFERENT_MAX: [f64; 2] = [5.0, 1_000.0];

/// Measures the writing of a large profile in each format.
pub(super) fn measure(setting: &Setting) -> Result<Report> {
    let mut report = Report::new(&format!(
        "1,000,000 samples in 8 threads, of stacks that are 20 frames deep; medians of {} runs.",
        setting.runs
    ));
    report.heading(&[["50,000 stacks"].as_slice(), &COLUMNS].concat());
    let rows = write_all(setting, &mut report, ("50,000 stacks", "50000"), REPEATED_MAX)?;
    let collapse = collapse(setting)?;
    report.row("folded, by inferno", &collapse);
    report.at_most("seconds to write folded stacks, beside inferno", rows[0].medians()[0], collapse[0]);
    report.heading(&[["1,000,000 stacks, each once"].as_slice(), &COLUMNS].concat());
    write_all(setting, &mut report, ("1,000,000 stacks", "1000000"), ALL_DIFFERENT_MAX)?;
    report.paragraph(LEGEND);
    Ok(report)
}

/// Adds a row for each format.
fn write_all(
    setting: &Setting,
    report: &mut Report,
    (what, stacks): (&str, &str),
    limits: [f64; 2],
) -> Result<Vec<Row<3>>> {
    let formats = FORMATS.map(|format| (format, format));
    let rows = in_turns("formats", setting.runs, &formats, |format| run(&[format, stacks]))?;
    for row in &rows {
        let figures = row.medians();
        report.row(&row.title, &figures);
        for ((unit, figure), limit) in COLUMNS.iter().zip(figures).zip(limits) {
            report.at_most(&format!("{}, {what}, {unit}", row.title), figure, limit);
        }
    }
    Ok(rows)
}

/// The collapse by inferno of the samples as text.
fn collapse(setting: &Setting) -> Result<[f64; 3]> {
    let samples = setting.folder.join("formats.perf.txt");
    let path = samples.to_str().context("a path that is no text")?;
    run(&["perf-script", "50000", path])?;
    let rows = in_turns("formats", setting.runs, &[("inferno", path)], |path| run(&["collapse", path]))?;
    fs::remove_file(&samples)?;
    Ok(rows[0].medians())
}

/// The figures of one run in the order of the columns.
fn run(arguments: &[&str]) -> Result<[f64; 3]> {
    let mut cargo = Command::new("cargo");
    cargo.args(["run", "--quiet", "--release", "--package", "profiler-tests", "--bin", "formats", "--"]);
    let said = shell::read(cargo.args(arguments).current_dir(project::root()))?;
    let numbers = said.split_whitespace().map(str::parse).collect::<Result<Vec<f64>, _>>()?;
    <[f64; 3]>::try_from(numbers).map_err(|_| anyhow!("said `{said}`"))
}
