//! Measures what a .NET process does because it is profiled, by the source of its names: methods that its runtime compiles, and CPU
//! time.

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use fs_err as fs;

use super::{
    super::{
        Setting,
        in_turns::in_turns,
        report::{Report, number},
        target::cpu_time,
    },
    running::{Program, Running},
};

/// `PerfMapEnabled` for the perf map alone. Its lines are the methods that the runtime compiles.
const MAP: &str = "3";

/// The programs, and whether their CPU time depends on nothing but the time.
const PROGRAMS: [(&str, Program, bool); 2] = [
    (".NET 9.0, `cpu`", Program::App { version: "9.0", mode: "cpu" }, true),
    ("ASP.NET Core 9.0 under load", Program::SERVER, false),
];

/// The sources of names, with the options of the profiler; `None` is a run without it.
const WAYS: [(&str, Option<&[&str]>); 4] = [
    ("not profiled", None),
    ("`--dotnet-names auto`", Some(&[])),
    ("`--dotnet-names memory`", Some(&["--dotnet-names", "memory"])),
    ("`--dotnet-names events`", Some(&["--dotnet-names", "events"])),
];

/// Adds the table.
pub(super) fn measure(setting: &Setting, report: &mut Report) -> Result<()> {
    report.paragraph(
        "A process with a perf map is profiled for the first time, 5 s at 99 Hz, medians. Its CPU time is that beyond the runs \
         without a profiler, where it has the same work in each run.",
    );
    report.heading_of(
        2,
        &[
            "program",
            "names",
            "methods that the target compiles",
            "CPU time of the target, ms",
            "of the profiler, ms",
            "last sample to finished output, ms",
        ],
    );
    for (program, started, has_constant_work) in PROGRAMS {
        let rows = in_turns(program, setting.runs, &WAYS, |options| {
            // The event sources of a process are compiled once.
            let running = Running::start_mapped(started, MAP, &setting.folder)?;
            run_once(setting, &running, *options)
        })?;
        let [_, without_ms, ..] = rows[0].medians();
        for row in &rows {
            let title = format!("{program} | {}", row.title);
            report.row_of(&title, &cells(row.medians(), has_constant_work.then_some(without_ms)));
        }
    }
    Ok(())
}

/// The cells of a row. `without_ms` is the CPU time of the target without a profiler.
fn cells([methods, target_ms, profiler_ms, end_ms]: [f64; 4], without_ms: Option<f64>) -> [String; 4] {
    let beyond =
        without_ms.map_or_else(|| "-".to_owned(), |without_ms| format!("{:+.0}", target_ms - without_ms));
    [format!("{methods:.0}"), beyond, number(profiler_ms), number(end_ms)]
}

/// Methods that the target compiles, its CPU time, that of the profiler, and the time from its last sample to its exit; times in
/// milliseconds.
fn run_once(setting: &Setting, running: &Running, options: Option<&[&str]>) -> Result<[f64; 4]> {
    let pid = running.pid();
    let seconds = setting.seconds(5);
    await_compiled(pid, setting)?;
    let (methods, cpu, began) = (compiled_methods(pid)?, cpu_time(pid)?, Instant::now());
    let (mut profiler_ms, mut end_ms) = (0.0, 0.0);
    if let Some(options) = options {
        let mut command = setting.profiler(seconds);
        command.args(["-vv", "-p", &pid.to_string(), "--format", "folded", "-o", "-"]).args(options);
        let run = setting.measure(&mut command, seconds, "disturbance")?;
        let end = run.end().context("the profiler logs the end of sampling")?;
        [profiler_ms, end_ms] = [run.cpu, end].map(|time| 1e3 * time.as_secs_f64());
    }
    // All runs take as long.
    let window = Duration::from_secs(seconds + 1);
    thread::sleep(window.saturating_sub(began.elapsed()));
    let target_ms = 1e3 * (cpu_time(pid)?.saturating_sub(cpu)).as_secs_f64() / began.elapsed().as_secs_f64()
        * window.as_secs_f64();
    Ok([(compiled_methods(pid)? - methods) as f64, target_ms, profiler_ms, end_ms])
}

/// Waits until the runtime compiles few methods of its own.
fn await_compiled(pid: u32, setting: &Setting) -> Result<()> {
    const PAUSE: Duration = Duration::from_secs(2);
    const MAX_PAUSES: usize = 10;
    let pauses = if setting.is_quick { 1 } else { MAX_PAUSES };
    let mut known = compiled_methods(pid)?;
    for _ in 0..pauses {
        thread::sleep(PAUSE);
        let now = compiled_methods(pid)?;
        if now == known {
            return Ok(());
        }
        known = now;
    }
    Ok(())
}

/// The number of methods that the runtime has compiled, each tier included.
fn compiled_methods(pid: u32) -> Result<usize> {
    let map = fs::read(Path::new("/tmp").join(format!("perf-{pid}.map")))?;
    let methods = count_methods(&String::from_utf8_lossy(&map));
    ensure!(methods > 0, "the runtime writes no perf map");
    Ok(methods)
}

/// The lines of a perf map that are methods: they end in their tier.
fn count_methods(map: &str) -> usize {
    map.lines().filter(|line| line.ends_with(']')).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_methods_of_a_perf_map_are_counted_without_its_stubs() {
        let map = "7f10 20 int32 [app] Shop.Cart::Get(int32)[QuickJitted]\n7f30 8 stub<7> GenerateLookupStub<x>\n\
                   7f40 20 void [app] Shop.Cart::Add(class [app]Item[])[OptimizedTier1]\n";
        assert_eq!(count_methods(map), 2);
    }

    #[test]
    fn the_cpu_time_of_a_target_is_that_beyond_the_runs_without_a_profiler() {
        let figures = [7.0, 5040.0, 0.0, 0.0];
        assert_eq!(cells(figures, Some(5000.0)), ["7", "+40", "0", "0"]);
        assert_eq!(cells(figures, None), ["7", "-", "0", "0"]);
    }
}
