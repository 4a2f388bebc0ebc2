//! Measures how many managed stacks reach the root of their thread, for several workloads.

use std::path::Path;

use anyhow::Result;

use super::{
    super::report::Report,
    running::{Place, Program, Running},
    sampled::{self, Frame},
};

const FREQUENCY_HZ: u64 = 999;

const VERSIONS: [&str; 2] = ["3.1", "9.0"];

/// Modes of the workload, and what each exercises.
const MODES: [(&str, &str); 6] = [
    ("cpu", "nested calls and loops"),
    ("generic", "generic methods and delegates"),
    ("tiny", "methods without frames"),
    ("async", "asynchronous methods"),
    ("gc", "objects that are soon garbage"),
    ("web", "a small server and its client"),
];

/// The busy method of the mode `tiny`, and its callers, which get no frames once they are optimized.
const WORKS: &str = "Workload.Cpu.Alpha(";
const CALLERS: [&str; 3] = ["Workload.Tiny.TinyMiddle(", "Workload.Tiny.TinyOuter(", "Workload.Tiny.Run("];

/// Adds the table, in percent by version.
pub(super) fn measure(seconds: u64, folder: &Path, report: &mut Report) -> Result<()> {
    report.heading("whole managed stacks, %", &VERSIONS);
    let whole = |program| whole_percent(program, seconds, folder);
    for (mode, what) in MODES {
        let row = by_version(|version| whole(Program::App { version, mode }))?;
        report.row(&format!("`{mode}`: {what}"), &row);
    }
    let callers = by_version(|version| callers_percent(version, seconds, folder))?;
    report.row("`tiny`: every caller is there", &callers);
    report.row("ASP.NET Core under load", &[f64::NAN, whole(Program::SERVER)?]);
    Ok(())
}

fn by_version(measure: impl Fn(&'static str) -> Result<f64>) -> Result<Vec<f64>> {
    VERSIONS.into_iter().map(measure).collect()
}

fn whole_percent(program: Program, seconds: u64, folder: &Path) -> Result<f64> {
    let running = Running::start(program, Place::Host, folder)?;
    let entry = running.target().entry()?;
    Ok(sampled::sample(running.pid(), FREQUENCY_HZ, seconds)?.whole_percent(&entry))
}

/// Of the samples in the busy method, those with every caller.
fn callers_percent(version: &'static str, seconds: u64, folder: &Path) -> Result<f64> {
    let running = Running::start(Program::App { version, mode: "tiny" }, Place::Host, folder)?;
    let sampled = sampled::sample(running.pid(), FREQUENCY_HZ, seconds)?;
    let works = sampled.percent_with(|frames| has(frames, WORKS));
    let is_whole = |frames: &[Frame]| CALLERS.iter().all(|caller| has(frames, caller));
    let with_callers = sampled.percent_with(|frames| has(frames, WORKS) && is_whole(frames));
    Ok(100.0 * with_callers / works.max(f64::MIN_POSITIVE))
}

fn has(frames: &[Frame], method: &str) -> bool {
    frames.iter().any(|frame| frame.name.contains(method))
}
