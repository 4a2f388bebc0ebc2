//! Measures the reader's time ordering and the pipeline on generated records of a node with many CPUs.

use anyhow::{Result, ensure};

use super::{Setting, in_turns::in_turns, measures::read_numbers, report::Report};
use crate::workspace::cargo;

/// A simulated node.
#[derive(Clone, Copy)]
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

/// Simulates each node.
pub(super) fn measure(setting: &Setting) -> Result<Report> {
    const WORST_DELAY: usize = 2;
    const LOST: usize = 4;
    let seconds = setting.seconds(10);
    let scenarios = NODES.map(|node| {
        let Node { cpus, processes, samples_per_second, forks_per_second } = node;
        (format!("{cpus} | {processes} | {samples_per_second} | {forks_per_second}"), node)
    });
    let rows = in_turns("node", setting.runs, &scenarios, |node| node.simulate(seconds))?;
    let runs = setting.runs;
    let how = format!("medians of {runs} runs of {seconds} s; the worst delay is that of all runs");
    let mut report = setting.report(&how);
    report.heading_of(
        0,
        &[
            "CPUs",
            "processes",
            "samples/s",
            "forks/s",
            "CPU us/sample",
            "CPU, % of one",
            "worst delay ms",
            "symbolized %",
            "lost",
            "late",
        ],
    );
    for (row, node) in rows.iter().zip(&NODES) {
        let mut figures = row.medians();
        figures[WORST_DELAY] = row.largest(WORST_DELAY);
        report.row(&row.title, &figures);
        report.at_most(&format!("simulated node of {} CPUs: samples lost", node.cpus), figures[LOST], 0.0);
    }
    report.paragraph(LEGEND);
    Ok(report)
}

impl Node {
    /// The figures of one run in the order of the columns.
    fn simulate(&self, seconds: u64) -> Result<[f64; 6]> {
        let mut cargo = cargo(&["run", "--quiet", "--locked", "--release", "--package", "profiler-embedder"]);
        cargo.args(["--features", "simulation", "--bin", "node", "--"]);
        let Self { cpus, processes, samples_per_second, forks_per_second } = *self;
        cargo.args([cpus, processes, samples_per_second, forks_per_second].map(|count| count.to_string()));
        let [samples, symbolized_percent, lost, late, cpu_us, worst_delay_ms] =
            read_numbers(cargo.arg(seconds.to_string()))?;
        let due = f64::from(samples_per_second) * seconds as f64;
        ensure!(samples + lost == due, "{samples} samples and {lost} lost of {due}");
        let cpu_percent = 100.0 * cpu_us / 1e6 * f64::from(samples_per_second);
        Ok([cpu_us, cpu_percent, worst_delay_ms, symbolized_percent, lost, late])
    }
}
