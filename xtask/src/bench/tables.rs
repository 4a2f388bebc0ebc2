//! Measures size and build time of the unwind tables of real programs, and the time until they are loaded.
//!
//! The figures come from the profiler's log.

use std::path::Path;

use anyhow::{Context as _, Result};

use super::{
    programs::{PROGRAMS, Program},
    report::{Report, number},
    run::Run,
    target::Target,
    tool::{Job, KnownStacks, Tool},
};

const LEGEND: &str = "table: rows of 4 bytes, and 8 bytes for each 4 KiB page of code, in kernel memory. build: \
from the parsed file to the table in the kernel. start to sampling: from the profiler's exec until its timers run. start \
to whole stacks: from the profiler's exec until the tables of all modules of the target are in the kernel. peak MB: of \
the profiler while it samples the target.";

/// The most time from exec of the profiler to the first sample, milliseconds, and the most memory, MB, by program.
const START_MS_MAX: [(&str, f64); 2] = [("C, 24 frames deep", 25.0), (".NET 9.0", 60.0)];
const PEAK_MB_MAX: [(&str, f64); 2] = [("C, 24 frames deep", 12.0), ("rustc", 20.0)];

const BYTES_PER_MEGABYTE: f64 = 1e6;

/// The ratio of the sampling time of the whole machine to that of one program.
const MACHINE_FACTOR: u64 = 3;

/// An unwind table, as the log describes it.
#[derive(Debug, PartialEq)]
struct Table {
    path: String,
    rows: u64,
    bytes: u64,
    build_ms: f64,
}

/// Samples each program for this time, which adds a row each, and then the whole machine while all of them run, which adds a
/// sentence.
pub(super) fn measure(profiler: &Tool, seconds: u64, folder: &Path, report: &mut Report) -> Result<()> {
    report.heading_of(
        2,
        &[
            "target",
            "its library",
            "rows",
            "table kB",
            "build ms",
            "start to sampling ms",
            "start to whole stacks ms",
            "peak MB",
        ],
    );
    for program in &PROGRAMS {
        add_row(profiler, program, seconds, folder, report)?;
    }
    report.paragraph(&machine(profiler, seconds * MACHINE_FACTOR, folder)?);
    report.paragraph(LEGEND);
    Ok(())
}

/// Adds the unwind table of a program's library, and the cost of sampling the program.
fn add_row(
    profiler: &Tool,
    program: &Program,
    seconds: u64,
    folder: &Path,
    report: &mut Report,
) -> Result<()> {
    let target = (program.start)(folder)?;
    let (title, pid) = (program.title, target.pid());
    let run = sample(profiler, Some(pid), seconds, folder)?;
    let table = tables(&run.messages).into_iter().find(|table| table.path.contains(program.library));
    let table = table.with_context(|| format!("{title} has no table of {}", program.library))?;
    let file = table.path.rsplit('/').next().unwrap_or_default();
    let ms_to = |words: &str| run.time_to(words).map_or(f64::NAN, |time| 1e3 * time.as_secs_f64());
    let sampling_ms = ms_to("sampling begins");
    let in_place_ms = ms_to(&format!("unwind tables of process {pid} are in place"));
    let peak_mb = run.peak_bytes as f64 / BYTES_PER_MEGABYTE;
    let (rows, kilobytes) = (table.rows as f64, table.bytes as f64 / 1e3);
    report.row(
        &format!("{title} | {file}"),
        &[rows, kilobytes, table.build_ms, sampling_ms, in_place_ms, peak_mb],
    );
    let limit = |limits: &[(&str, f64)]| {
        limits.iter().find(|(of, _)| *of == title).map_or(f64::INFINITY, |(_, limit)| *limit)
    };
    if !sampling_ms.is_nan() {
        report.at_most(&format!("{title}: start to sampling, ms"), sampling_ms, limit(&START_MS_MAX));
    }
    report.at_most(&format!("{title}: peak MB"), peak_mb, limit(&PEAK_MB_MAX));
    Ok(())
}

/// Samples the whole machine while all programs and more run.
fn machine(profiler: &Tool, seconds: u64, folder: &Path) -> Result<String> {
    let mut targets = PROGRAMS.iter().map(|program| (program.start)(folder)).collect::<Result<Vec<_>>>()?;
    for workload in ["chain", "stacks", "mostly_idle", "unwinding/closures", "unwinding/exceptions"] {
        targets.push(Target::start(workload, &[])?);
    }
    targets.push(Target::start_nice("threads")?);
    let run = sample(profiler, None, seconds, folder)?;
    let tables = tables(&run.messages);
    let rows: u64 = tables.iter().map(|table| table.rows).sum();
    let bytes: u64 = tables.iter().map(|table| table.bytes).sum();
    let build_ms: f64 = tables.iter().map(|table| table.build_ms).sum();
    Ok(format!(
        "The whole machine, `-a`, while all of them and more run: {} tables with {rows} rows in {} MB of the \
         kernel's memory, built in {} ms; the profiler took {} MB at its peak and {} s of CPU.",
        tables.len(),
        number(bytes as f64 / BYTES_PER_MEGABYTE),
        number(build_ms),
        number(run.peak_bytes as f64 / BYTES_PER_MEGABYTE),
        number(run.cpu.as_secs_f64()),
    ))
}

fn sample(profiler: &Tool, pid: Option<u32>, seconds: u64, folder: &Path) -> Result<Run> {
    let job = Job { pid, frequency_hz: 99, seconds, known: KnownStacks::Nothing, folder };
    Ok(profiler.work(&job)?.run)
}

/// Parses the lines ``unwind table of `PATH`: N rows, N bytes, built in N ms, ...``.
fn tables(log: &str) -> Vec<Table> {
    log.lines().filter_map(table).collect()
}

fn table(line: &str) -> Option<Table> {
    let (_, said) = line.split_once("unwind table of `")?;
    let (path, figures) = said.split_once("`: ")?;
    let mut figures = figures.split(", ");
    Some(Table {
        path: path.to_owned(),
        rows: figures.next()?.strip_suffix(" rows")?.parse().ok()?,
        bytes: figures.next()?.strip_suffix(" bytes")?.parse().ok()?,
        build_ms: figures.next()?.strip_prefix("built in ")?.strip_suffix(" ms")?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "[2026-01-31T23:59:59.900Z DEBUG profiler::x] no unwind table of `/a`: Malformed\n\
        [2026-01-31T23:59:59.950Z DEBUG profiler::x] unwind table of `/usr/lib/libc.so.6`: 23000 rows, 94312 bytes, \
        built in 4.5 ms, Statistics { functions: 2 }\n";

    #[test]
    fn unwind_tables_are_parsed_from_the_log() {
        let libc =
            Table { path: "/usr/lib/libc.so.6".to_owned(), rows: 23_000, bytes: 94_312, build_ms: 4.5 };
        assert_eq!(tables(LOG), [libc]);
    }
}
