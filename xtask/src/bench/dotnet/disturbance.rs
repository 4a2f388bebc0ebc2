//! Measures what a .NET process does because it is profiled, by the source of its names: methods that its runtime compiles, and CPU
//! time.

use std::{
    fmt::Write as _,
    fs,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};

use super::{
    super::{
        Setting,
        measure::{self, End},
        report::number,
        scenario::median,
        target::cpu_time,
    },
    running::{Program, Running},
};

/// `PerfMapEnabled` for the perf map alone. Its lines are the methods that the runtime compiles.
const MAP: &str = "3";

/// The programs, and whether their CPU time depends on nothing but the time.
const PROGRAMS: [(&str, Program, bool); 2] = [
    (".NET 9.0, `cpu`", Program::App { version: "9.0", mode: "cpu" }, true),
    ("ASP.NET Core 9.0 under load", Program::Server { paths: &["/plaintext", "/json"] }, false),
];

/// The sources of names, with the options of the profiler; `None` is a run without it.
const WAYS: [(&str, Option<&[&str]>); 4] = [
    ("not profiled", None),
    ("`--dotnet-names auto`", Some(&[])),
    ("`--dotnet-names memory`", Some(&["--dotnet-names", "memory"])),
    ("`--dotnet-names events`", Some(&["--dotnet-names", "events"])),
];

/// The results of all programs.
pub(super) struct Measured(Vec<Row>);

/// The runs of one program in one way.
struct Row {
    program: &'static str,
    way: &'static str,
    has_constant_work: bool,
    runs: Vec<Figures>,
}

/// The results of one run.
#[derive(Clone, Copy, Default)]
struct Figures {
    compiled_methods: f64,
    target_cpu_ms: f64,
    profiler_cpu_ms: f64,
    end_ms: f64,
}

pub(super) fn measure(setting: &Setting) -> Result<Measured> {
    let mut rows = Vec::new();
    for (program, started, has_constant_work) in PROGRAMS {
        let mut of_ways = WAYS.map(|(way, _)| Row {
            program,
            way,
            has_constant_work,
            runs: Vec::with_capacity(setting.runs),
        });
        for run in 0..setting.runs {
            for (row, (way, options)) in of_ways.iter_mut().zip(WAYS) {
                eprintln!("run {} of {}: {program}, {way}", run + 1, setting.runs);
                // The event sources of a process are compiled once.
                let running = Running::start_mapped(started, MAP, &setting.folder)?;
                row.runs.push(run_once(setting, &running, options)?);
            }
        }
        rows.extend(of_ways);
    }
    Ok(Measured(rows))
}

fn run_once(setting: &Setting, running: &Running, options: Option<&[&str]>) -> Result<Figures> {
    let pid = running.pid();
    let sampling = Duration::from_secs(setting.seconds(5));
    await_compiled(pid, setting)?;
    let (methods, cpu, began) = (compiled_methods(pid)?, cpu_time(pid)?, Instant::now());
    let mut figures = Figures::default();
    if let Some(options) = options {
        let output = setting.folder.join("disturbance.folded");
        let mut command = Command::new(&setting.profiler);
        command.args(["-vv", "-p", &pid.to_string(), "-d", &sampling.as_secs().to_string()]);
        command.args(["--format", "folded", "-o", "-"]).args(options);
        let run = measure::run(&mut command, sampling, End::Itself, &output)?;
        figures.profiler_cpu_ms = run.cpu.as_secs_f64() * 1e3;
        figures.end_ms = run.end().context("the profiler logs the end of sampling")?.as_secs_f64() * 1e3;
    }
    // All runs take as long.
    let window = sampling + Duration::from_secs(1);
    thread::sleep(window.saturating_sub(began.elapsed()));
    figures.target_cpu_ms = (cpu_time(pid)?.saturating_sub(cpu)).as_secs_f64() * 1e3
        / began.elapsed().as_secs_f64()
        * window.as_secs_f64();
    figures.compiled_methods = (compiled_methods(pid)? - methods) as f64;
    Ok(figures)
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

impl Measured {
    pub(super) fn markdown(&self) -> String {
        let mut text = "A process with a perf map is profiled for the first time, 5 s at 99 Hz, medians. Its CPU time is that beyond \
                        the runs without a profiler, where it has the same work in each run.\n\n| program | names | methods that the \
                        target compiles | CPU time of the target, ms | of the profiler, ms | last sample to finished output, \
                        ms |\n|---|---|---:|---:|---:|---:|\n"
            .to_owned();
        for row in &self.0 {
            let unprofiled = self.0.iter().find(|other| other.program == row.program);
            let without_ms = unprofiled.map_or(0.0, |other| other.median(|figures| figures.target_cpu_ms));
            let beyond_ms = row.median(|figures| figures.target_cpu_ms) - without_ms;
            let target_cpu = if row.has_constant_work { format!("{beyond_ms:+.0}") } else { "-".to_owned() };
            let methods = row.median(|figures| figures.compiled_methods);
            let cpu = number(row.median(|figures| figures.profiler_cpu_ms));
            let end = number(row.median(|figures| figures.end_ms));
            let Row { program, way, .. } = row;
            // Writing to a String cannot fail.
            let _ = writeln!(text, "| {program} | {way} | {methods:.0} | {target_cpu} | {cpu} | {end} |");
        }
        text
    }
}

impl Row {
    fn median(&self, figure: fn(&Figures) -> f64) -> f64 {
        median(self.runs.iter().map(figure).collect())
    }
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
        let row = |way, target_cpu_ms, has_constant_work| Row {
            program: "p",
            way,
            has_constant_work,
            runs: vec![Figures { target_cpu_ms, compiled_methods: 7.0, ..Figures::default() }],
        };
        let text = |constant| {
            Measured(vec![row("none", 5000.0, constant), row("events", 5040.0, constant)]).markdown()
        };
        assert!(text(true).contains("| p | events | 7 | +40 | 0 | 0 |"), "{}", text(true));
        assert!(text(false).contains("| p | events | 7 | - | 0 | 0 |"), "{}", text(false));
    }
}
