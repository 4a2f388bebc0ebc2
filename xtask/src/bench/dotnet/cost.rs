//! Measures the cost of profiling .NET processes: a server under load, and one with very many methods and modules.

use std::{
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use fs_err as fs;

use super::{
    super::{
        Setting,
        in_turns::in_turns,
        report::Report,
        series::{Metric, Plan, Series},
        tool::{Job, KnownStacks},
    },
    running::{Place, Program, Running},
};

const TO_FLAME_GRAPH: &str = "command to flame graph with `-d 5`, beyond the 5 s, s";

/// Adds the table.
pub(super) fn measure(setting: &Setting, report: &mut Report) -> Result<()> {
    let server = Running::start(Program::SERVER, Place::Host, &setting.folder)?;
    let server_series = own(setting, &server, 99);
    let to_flame_graph = in_turns("dotnet", setting.runs, &[(TO_FLAME_GRAPH, server.pid())], |pid| {
        Ok([flame_graph(setting, *pid)?.as_secs_f64()])
    })?;
    drop(server);
    let many = Running::start(Program::Many, Place::Host, &setting.folder)?;
    // High enough that most of the methods are sampled.
    let many_series = own(setting, &many, 999);
    let modules = images(&fs::read_to_string(format!("/proc/{}/maps", many.pid()))?);
    report.heading("cost of the profiler", &[""]);
    let many = format!("10,000 methods and {modules} modules, 10 s at 999 Hz");
    for (what, series, [peak_mb_max, end_ms_max]) in [
        ("a server under full load, 10 s at 99 Hz", &server_series, [48.0, 100.0]),
        (&many, &many_series, [32.0, 150.0]),
    ] {
        for (unit, metric, limit) in [
            ("CPU s", Metric::CpuSeconds, None),
            ("peak MB", Metric::PeakMegabytes, Some(peak_mb_max)),
            ("last sample to finished output, ms", Metric::EndMilliseconds, Some(end_ms_max)),
        ] {
            let (what, figure) = (format!("{what}: {unit}"), series.own(metric));
            report.row(&what, &[figure]);
            if let Some(limit) = limit {
                report.at_most(&what, figure, limit);
            }
        }
    }
    report.row(TO_FLAME_GRAPH, &to_flame_graph[0].medians());
    Ok(())
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

/// The time of a flame graph of five seconds beyond these seconds.
fn flame_graph(setting: &Setting, pid: u32) -> Result<Duration> {
    const SAMPLING: Duration = Duration::from_secs(5);
    let started = Instant::now();
    let mut command = setting.profiler(SAMPLING.as_secs());
    command.args(["-q", "-p", &pid.to_string(), "-o"]).arg(setting.folder.join("first.svg"));
    let status = command.stdin(Stdio::null()).status()?;
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
