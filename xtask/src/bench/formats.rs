//! Measures time, memory and size of writing a large profile in each format, and inferno's collapse of the same
//! samples.

use anyhow::{Context as _, Result};
use fs_err as fs;

use super::{
    Setting,
    in_turns::{Row, in_turns},
    measures::read_numbers,
    report::{Column, Report},
};
use crate::workspace::cargo;

const FORMATS: [&str; 10] =
    ["folded", "svg", "html", "top", "pprof", "speedscope", "firefox", "perf-script", "trace-zip", "profile"];

const LEGEND: &str = "Peak: of the process, the profile itself included. inferno: its collapse of the text in the format \
perf-script, from a file.";

const REPEATED: [Column; 3] =
    [Column::at_most("s", 1.0), Column::at_most("peak MB", 200.0), Column::new("MB written")];

/// A worst case: only names repeat.
const ALL_DIFFERENT: [Column; 3] =
    [Column::at_most("s", 5.0), Column::at_most("peak MB", 1_000.0), Column::new("MB written")];

/// Measures the writing of a large profile in each format.
pub(super) fn measure(setting: &Setting) -> Result<Report> {
    let mut report = Report::new(&format!(
        "1,000,000 samples in 8 threads, of stacks that are 20 frames deep; medians of {} runs.",
        setting.runs
    ));
    let rows = write_all(setting, "50000")?;
    report.table("50,000 stacks", &REPEATED, &rows);
    let collapse = collapse(setting)?;
    report.row("folded, by inferno", &collapse);
    report.at_most("seconds to write folded stacks, beside inferno", rows[0].medians()[0], collapse[0]);
    report.table("1,000,000 stacks, each once", &ALL_DIFFERENT, &write_all(setting, "1000000")?);
    report.paragraph(LEGEND);
    Ok(report)
}

/// Writes so many stacks in each format.
fn write_all(setting: &Setting, stacks: &str) -> Result<Vec<Row<3>>> {
    let formats = FORMATS.map(|format| (format, format));
    in_turns("formats", setting.runs, &formats, |format| run(&[format, stacks]))
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
    let mut cargo =
        cargo(&["run", "--quiet", "--release", "--package", "profiler-tests", "--bin", "formats", "--"]);
    read_numbers(cargo.args(arguments))
}
