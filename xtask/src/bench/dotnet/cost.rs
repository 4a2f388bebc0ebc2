//! Measures the cost of profiling .NET processes: a server under load, and one with very many methods and modules.

use std::{
    fmt::Write as _,
    fs,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};

use super::{
    super::{
        Setting,
        report::{Report, number},
        scenario::{Metric, Plan, Series, median},
        tool::{Job, KnownStacks},
    },
    running::{Place, Program, Running},
};

const SERVER: Program = Program::Server { paths: &["/plaintext", "/json"] };

/// The results of all measurements.
pub(super) struct Measured {
    server: Series,
    many: Series,
    /// .NET images that the program with many methods maps.
    modules: usize,
    /// From the start of the command to the finished flame graph, without the sampling time.
    to_flame_graph_seconds: f64,
}

pub(super) fn measure(setting: &Setting) -> Result<Measured> {
    let server = Running::start(SERVER, Place::Host, &setting.folder)?;
    let series = own(setting, &server, 99);
    let to_flame_graph_seconds = to_flame_graph_seconds(setting, server.pid())?;
    drop(server);
    let many = Running::start(Program::Many, Place::Host, &setting.folder)?;
    Ok(Measured {
        server: series,
        // High enough that most of the methods are sampled.
        many: own(setting, &many, 999),
        modules: images(&fs::read_to_string(format!("/proc/{}/maps", many.pid()))?),
        to_flame_graph_seconds,
    })
}

fn own(setting: &Setting, running: &Running, frequency_hz: u64) -> Series {
    let job = Job {
        pid: Some(running.pid()),
        frequency_hz,
        seconds: setting.seconds(10),
        known: KnownStacks::Nothing,
        folder: &setting.folder,
    };
    Plan { tools: &setting.tools[..1], runs: setting.runs }.carry_out(&job, running.target())
}

fn to_flame_graph_seconds(setting: &Setting, pid: u32) -> Result<f64> {
    let runs = (0..setting.runs).map(|_| flame_graph(&setting.profiler, pid, &setting.folder));
    let beyond = runs.map(|run| Ok(run?.as_secs_f64())).collect::<Result<Vec<_>>>()?;
    Ok(median(beyond))
}

/// The time of a flame graph of five seconds beyond these seconds.
fn flame_graph(profiler: &Path, pid: u32, folder: &Path) -> Result<Duration> {
    const SAMPLING: Duration = Duration::from_secs(5);
    let started = Instant::now();
    let mut command = Command::new(profiler);
    command.args(["-q", "-p", &pid.to_string(), "-d", &SAMPLING.as_secs().to_string(), "-o"]);
    let status = command.arg(folder.join("first.svg")).stdin(Stdio::null()).status()?;
    ensure!(status.success(), "the profiler failed");
    started.elapsed().checked_sub(SAMPLING).context("it sampled for too short a time")
}

/// The number of mapped .NET images.
fn images(maps: &str) -> usize {
    let mut paths: Vec<&str> = maps.lines().filter_map(|line| line.split_whitespace().nth(5)).collect();
    paths.retain(|path| path.ends_with(".dll"));
    paths.sort_unstable();
    paths.dedup();
    paths.len()
}

impl Measured {
    pub(super) fn report(&self) -> Report {
        let mut report =
            Report { markdown: "| cost of the profiler | |\n|---|---:|\n".to_owned(), ..Report::default() };
        let server = "a server under full load, 10 s at 99 Hz";
        let many = format!("10,000 methods and {} modules, 10 s at 999 Hz", self.modules);
        for (what, series, metric, budget) in [
            (format!("{server}: CPU s"), &self.server, Metric::CpuSeconds, None),
            (format!("{server}: peak MB"), &self.server, Metric::PeakMegabytes, Some(48.0)),
            (
                format!("{server}: last sample to finished output, ms"),
                &self.server,
                Metric::EndMilliseconds,
                Some(100.0),
            ),
            (format!("{many}: CPU s"), &self.many, Metric::CpuSeconds, None),
            (format!("{many}: peak MB"), &self.many, Metric::PeakMegabytes, Some(32.0)),
            (
                format!("{many}: last sample to finished output, ms"),
                &self.many,
                Metric::EndMilliseconds,
                Some(150.0),
            ),
        ] {
            line(&mut report, &what, series.own(metric), budget);
        }
        line(
            &mut report,
            "command to flame graph with `-d 5`, beyond the 5 s, s",
            Some(self.to_flame_graph_seconds),
            None,
        );
        report
    }
}

fn line(report: &mut Report, what: &str, here: Option<f64>, budget: Option<f64>) {
    if let Some((here, budget)) = here.zip(budget) {
        report.check(what, here, budget, here <= budget);
    }
    let here = here.map_or("not measured".to_owned(), number);
    // Writing to a String cannot fail.
    let _ = writeln!(report.markdown, "| {what} | {here} |");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_image_is_counted_once() {
        let maps = "7f10-7f20 r--p 0 08:01 7 /x/a.dll\n7f20-7f30 r-xp 1000 08:01 7 /x/a.dll\n\
                    7f30-7f40 r--p 0 08:01 9 /x/b.dll\n7f50-7f60 r-xp 0 08:01 8 /x/c.so\n7f60-7f70 rw-p 0 0:0 0\n";
        assert_eq!(images(maps), 2);
    }
}
