//! Measures the reader's time ordering and the pipeline on generated records of a node with many CPUs.

use std::fmt::Write as _;

use anyhow::{Result, ensure};

use super::{
    Setting,
    report::{Report, number},
    scenario::median,
};
use crate::{shell, workspace::cargo};

/// A simulated node.
struct Node {
    cpus: u32,
    processes: u32,
    samples_per_second: u32,
    forks_per_second: u32,
}

const NODES: [Node; 3] = [
    Node { cpus: 4, processes: 100, samples_per_second: 400, forks_per_second: 10 },
    Node { cpus: 32, processes: 1_000, samples_per_second: 5_000, forks_per_second: 50 },
    Node { cpus: 128, processes: 5_000, samples_per_second: 20_000, forks_per_second: 200 },
];

const LEGEND: &str = "CPU: user and system time of the reader and the pipeline, symbolization included; generating the records \
is not. worst delay: the longest time from a sample to the end of its processing; the reader waits up to 100 ms for a batch. \
late: sideband events that were applied behind later ones.";

/// The figures of one run, as the program prints them.
struct Figures {
    symbolized_percent: f64,
    lost: f64,
    late: f64,
    cpu_microseconds: f64,
    worst_delay_ms: f64,
}

/// Simulates each node.
pub(super) fn measure(setting: &Setting) -> Result<Report> {
    let seconds = setting.seconds(10);
    let mut report = Report::default();
    // Writing to a String cannot fail.
    let _ = write!(
        report.markdown,
        "Measured on {}, medians of {} runs of {seconds} s; the worst delay is that of all runs.\n\n\
         | CPUs | processes | samples/s | forks/s | CPU us/sample | CPU, % of one | worst delay ms | symbolized % | lost | late |\n\
         |---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
        setting.machine, setting.runs
    );
    for node in &NODES {
        let runs = (0..setting.runs).map(|_| node.simulate(seconds)).collect::<Result<Vec<_>>>()?;
        node.write(&runs, &mut report);
    }
    let _ = writeln!(report.markdown, "\n{LEGEND}");
    Ok(report)
}

impl Node {
    fn simulate(&self, seconds: u64) -> Result<Figures> {
        let mut cargo = cargo(&["run", "--quiet", "--locked", "--release", "--package", "profiler-embedder"]);
        cargo.args(["--features", "simulation", "--bin", "node", "--"]);
        let Self { cpus, processes, samples_per_second, forks_per_second } = *self;
        cargo.args([cpus, processes, samples_per_second, forks_per_second].map(|count| count.to_string()));
        let said = shell::read(cargo.arg(seconds.to_string()))?;
        let numbers = said.split_whitespace().map(str::parse).collect::<Result<Vec<f64>, _>>()?;
        let [samples, symbolized_percent, lost, late, cpu_microseconds, worst_delay_ms] = numbers[..] else {
            anyhow::bail!("said `{said}`")
        };
        let due = f64::from(samples_per_second) * seconds as f64;
        ensure!(samples + lost == due, "{samples} samples and {lost} lost of {due}");
        Ok(Figures { symbolized_percent, lost, late, cpu_microseconds, worst_delay_ms })
    }

    fn write(&self, runs: &[Figures], report: &mut Report) {
        let middle = |figure: fn(&Figures) -> f64| median(runs.iter().map(figure).collect());
        let Self { cpus, processes, samples_per_second, forks_per_second } = self;
        let cpu = middle(|run| run.cpu_microseconds);
        let worst = runs.iter().map(|run| run.worst_delay_ms).fold(0.0, f64::max);
        let _ = writeln!(
            report.markdown,
            "| {cpus} | {processes} | {samples_per_second} | {forks_per_second} | {} | {} | {} | {} | {} | {} |",
            number(cpu),
            number(100.0 * cpu / 1e6 * f64::from(*samples_per_second)),
            number(worst),
            number(middle(|run| run.symbolized_percent)),
            number(middle(|run| run.lost)),
            number(middle(|run| run.late)),
        );
        let lost = middle(|run| run.lost);
        report.check(&format!("simulated node of {cpus} CPUs: samples lost"), lost, 0.0, lost <= 0.0);
    }
}
