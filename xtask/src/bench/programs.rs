//! Measures how many stacks of common programs reach the root, with each profiler.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result};
use fs_err as fs;

use super::{
    report::Report,
    series::{Metric, Plan, Series},
    stacks::KnownCall,
    target::{SECONDS, Target},
    tool::{Job, KnownStacks, Tool},
};
use crate::{process::wait_for, project, setup};

/// High enough for tenths of a percent, low enough for copies of stacks.
const FREQUENCY_HZ: u64 = 499;

/// A program and the function that starts it in a writable folder.
pub(super) struct Program {
    pub(super) title: &'static str,
    /// Its largest library, or the one it is known for.
    pub(super) library: &'static str,
    pub(super) start: fn(&Path) -> Result<Target>,
    /// Calls by which its stacks are checked.
    calls: &'static [KnownCall],
}

pub(super) const PROGRAMS: [Program; 13] = [
    Program::new("C, 24 frames deep", "libc.so", |_| Target::start("chain-frameless", &[])),
    Program::new("python3", "libc.so", python),
    Program::new("rustc", "librustc_driver", rustc),
    Program::new("node", "/node", node),
    Program::new("java +PreserveFramePointer", "libjvm.so", java),
    Program::new(".NET 3.1", "libcoreclr.so", |_| Target::start_dotnet("3.1", "cpu")),
    Program::new(".NET 9.0", "libcoreclr.so", |_| Target::start_dotnet("9.0", "cpu")),
    Program::new("C, 1,000 frames deep", "libc.so", deep),
    Program::new("C with musl, static", "/libraries-musl", |_| {
        Target::start("unwinding/libraries-musl", &[])
    })
    .with_calls(&CALLS_OF_LIBRARIES),
    Program::new("C with musl, dynamic", "musl/libc.so", |_| {
        Target::start("unwinding/libraries-musl-shared", &[])
    })
    .with_calls(&CALLS_OF_LIBRARIES),
    Program::new("busybox, static, stripped", "/busybox", busybox),
    Program::new("NativeAOT library, stripped", "FixedWidthParser.Native.so", native_aot)
        .with_calls(&CALLS_OF_NATIVE_AOT),
    Program::new("Go, stripped", "/promtool", promtool).with_calls(&CALLS_OF_GO),
];

impl Program {
    const fn new(title: &'static str, library: &'static str, start: fn(&Path) -> Result<Target>) -> Self {
        Self { title, library, start, calls: &[] }
    }

    const fn with_calls(self, calls: &'static [KnownCall]) -> Self {
        Self { calls, ..self }
    }
}

/// The calls in `tests/workloads/unwinding/libraries.c`.
const CALLS_OF_LIBRARIES: [KnownCall; 5] =
    [("run", "main"), ("leaves", "run"), ("allocate", "leaves"), ("copy", "leaves"), ("measure", "leaves")];

/// The calls in `tests/workloads/unwinding/native_aot.c`.
const CALLS_OF_NATIVE_AOT: [KnownCall; 6] = [
    ("run", "main"),
    ("parse", "run"),
    ("parse_stream", "run"),
    ("fw_read_memory", "parse"),
    ("fw_reader_open_stream", "parse_stream"),
    ("fw_reader_next", "parse_stream"),
];

/// Calls on the stacks of goroutines, and from there to the stack of the thread (`runtime/mheap.go`, `runtime/mgcmark.go` and
/// `runtime/mwbbuf.go`).
const CALLS_OF_GO: [KnownCall; 7] = [
    ("runtime.main", "runtime.goexit"),
    ("main.main", "runtime.main"),
    ("runtime.gcBgMarkWorker", "runtime.goexit"),
    ("runtime.gcBgMarkWorker.func2", "runtime.systemstack"),
    ("runtime.(*mheap).alloc.func1", "runtime.systemstack"),
    ("runtime.gcAssistAlloc.func1", "runtime.systemstack"),
    ("runtime.wbBufFlush.func1", "runtime.systemstack"),
];

const LEGEND: &str = "Samples whose outermost frame is where the C library begins a process or a thread, or Go's runtime a thread or a goroutine: \
`_start` or the unsymbolized code at the program's entry, `__libc_start_main` and what it calls, `start_thread`, `clone`, \
`clone3`, `runtime.mstart`, `runtime.mcall`, `runtime.goexit`. Exact: also, each function whose only caller is known has \
this caller. All samples count, also those from before the unwind tables were in the kernel. Where the BPF programs would take \
more than 2 % of a CPU (`--max-overhead`), stacks are cut: those of 1,000 frames, on a slow machine.";

/// Samples each program with each of `tools`, and adds the shares of whole stacks, and of exact ones where calls are known.
pub(super) fn measure(tools: &[Tool], seconds: u64, folder: &Path, report: &mut Report) -> Result<()> {
    let all =
        PROGRAMS.iter().map(|program| Ok((program.title, sample_program(program, tools, seconds, folder)?)));
    let all = all.collect::<Result<Vec<_>>>()?;
    table(report, "whole stacks, %", Metric::WholePercent, &all);
    table(report, "exact stacks, %", Metric::ExactPercent, &all);
    report.paragraph(LEGEND);
    Ok(())
}

/// Each profiler gets its own process, because some programs exit by themselves.
fn sample_program(program: &Program, tools: &[Tool], seconds: u64, folder: &Path) -> Result<Series> {
    let mut rows = Vec::new();
    for tool in tools.chunks(1) {
        let target = (program.start)(folder).with_context(|| format!("failed to start {}", program.title))?;
        let entry = target.entry()?;
        let job = Job {
            pid: Some(target.pid()),
            frequency_hz: FREQUENCY_HZ,
            seconds,
            known: KnownStacks::Entry(&entry, program.calls),
            folder,
        };
        rows.extend(Plan { tools: tool, runs: 1 }.carry_out(&job, &target).rows);
    }
    Ok(Series { rows })
}

/// A table of the programs that have a figure.
fn table(report: &mut Report, heading: &str, metric: Metric, programs: &[(&str, Series)]) {
    let tools = programs.first().map_or(&[][..], |(_, series)| &series.rows);
    let titles: Vec<String> = tools.iter().map(|row| row.name.title(row.options)).collect();
    report.heading(heading, &titles);
    for (title, series) in programs {
        let figures: Vec<_> = series.rows.iter().map(|row| row.figure(metric)).collect();
        if metric == Metric::WholePercent || figures.iter().any(|figure| !figure.is_nan()) {
            report.row(title, &figures);
        }
    }
}

fn source(name: &str) -> PathBuf {
    project::root().join("tests/workloads").join(name)
}

fn python(_: &Path) -> Result<Target> {
    Target::from_command(Command::new("python3").arg(source("busy.py")).arg(SECONDS))
}

fn node(folder: &Path) -> Result<Target> {
    Target::from_command(Command::new("node").arg(source("shares.js")).arg(SECONDS).current_dir(folder))
}

fn native_aot(_: &Path) -> Result<Target> {
    let library = setup::native_aot_library();
    Target::start("unwinding/native_aot", &[library.to_str().context("the path is text")?])
}

/// A loop of its shell.
fn busybox(_: &Path) -> Result<Target> {
    const LOOP: &str = "echo ready; while [ $((number += 1)) -gt 0 ]; do :; done";
    Target::from_command(Command::new("busybox").args(["sh", "-c", LOOP]))
}

/// The time until a program is executed, on a busy machine.
const EXEC_TIMEOUT: Duration = Duration::from_secs(10);

/// Prometheus' unit test of a rule that is evaluated a million times, in memory.
fn promtool(folder: &Path) -> Result<Target> {
    const RULES: &str =
        "groups: [{name: g, interval: 1s, rules: [{record: total, expr: 'sum(rate(requests[5m]))'}]}]";
    const TEST: &str = "rule_files: [rules.yml]\nevaluation_interval: 1s\ntests:\n  - interval: 1s\n    \
                        input_series: [{series: 'requests{instance=\"1\"}', values: '0+1x1000000'}]\n    \
                        promql_expr_test: [{expr: total, eval_time: 11d, exp_samples: []}]\n";
    fs::write(folder.join("rules.yml"), RULES)?;
    fs::write(folder.join("test.yml"), TEST)?;
    let mut shell = Command::new("sh");
    shell.args(["-c", "echo ready; exec promtool test rules test.yml >&2"]);
    let target = Target::from_command(shell.current_dir(folder))?;
    wait_for(EXEC_TIMEOUT, "promtool is not executed", || {
        Ok(target.entry().ok().filter(|entry| entry.file_name == "promtool").map(drop))
    })?;
    Ok(target)
}

fn java(_: &Path) -> Result<Target> {
    let mut java = Command::new("java");
    Target::from_command(java.arg("-XX:+PreserveFramePointer").arg(source("Busy.java")).arg(SECONDS))
}

fn deep(_: &Path) -> Result<Target> {
    /// The number of recursive functions of the workload `shapes`, for a stack of a thousand frames.
    const SHAPES: &str = "994";
    Target::start("unwinding/shapes", &[SHAPES])
}

/// A compilation that takes longer than any measurement.
fn rustc(folder: &Path) -> Result<Target> {
    const FUNCTIONS: usize = 4_000;
    const LIBRARY: &str = "librustc_driver";
    let path = folder.join("many.rs");
    fs::write(&path, many_functions(FUNCTIONS))?;
    // `rustc` may be a launcher that executes the one of the project's toolchain.
    let mut command = Command::new("sh");
    command.args(["-c", "echo ready; exec \"$0\" \"$@\" >&2", "rustc", "--edition", "2024", "--crate-type"]);
    command.args(["lib", "-O", "--emit", "obj", "-o"]).arg(folder.join("many.o")).arg(path);
    let target = Target::from_command(command.current_dir(project::root()))?;
    let maps = format!("/proc/{}/maps", target.pid());
    wait_for(EXEC_TIMEOUT, "rustc does not load its library", || {
        Ok(fs::read_to_string(&maps)?.contains(LIBRARY).then_some(()))
    })?;
    Ok(target)
}

fn many_functions(count: usize) -> String {
    let mut source = String::new();
    for number in 0..count {
        // Writing to a String cannot fail.
        let _ = writeln!(
            source,
            "pub fn f{number}(text: &str) -> String {{\n\
             let mut words: Vec<_> = text.split(' ').map(|word| word.len() * {number}).collect();\n\
             words.sort_by_key(|length| length % 7);\n\
             format!(\"{{words:?}} {{}}\", words.iter().sum::<usize>())\n}}"
        );
    }
    source
}
