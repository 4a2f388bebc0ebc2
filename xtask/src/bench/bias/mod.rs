//! Measures sampling bias: samples found, as a share of those due, of threads that sleep and compute in turns.
//!
//! Due is CPU time times frequency. Ticks that beat with the threads, or that wake them, find too few or too many of them,
//! in some runs more than in others. So each run has a ratio, and the ratios of all runs a mean and a standard deviation.

mod idle;
mod load;
mod ratios;
mod run;

use anyhow::Result;

use self::{
    load::{Load, Sleepers},
    ratios::Ratios,
    run::{Sampler, Timers},
};
use super::{
    Setting,
    report::{Report, number},
    tool::{Tool, ToolName},
};

/// The middle of all axes.
const BASE: Load = Load { sleep_ms: 20, threads: 100, slack_ns: 0, frequency_hz: 99 };

/// The ends of the axes, one at a time.
const AXES: [Load; 9] = [
    Load { sleep_ms: 5, ..BASE },
    Load { sleep_ms: 10, ..BASE },
    Load { sleep_ms: 50, ..BASE },
    Load { threads: 20, ..BASE },
    Load { threads: 250, ..BASE },
    Load { slack_ns: 1, ..BASE },
    Load { frequency_hz: 19, ..BASE },
    Load { frequency_hz: 49, ..BASE },
    Load { frequency_hz: 997, ..BASE },
];

/// Sleeps of about a period of the timers, or of a half: with one timer, ticks and threads stay in step.
const CORNERS: [Load; 2] = [
    Load { sleep_ms: 10, threads: 20, ..BASE },
    Load { sleep_ms: 50, threads: 250, slack_ns: 0, frequency_hz: 19 },
];

/// The loads that other profilers sample too: the middle, the coarsest and the finest.
const WITH_PEERS: [Load; 3] = [BASE, CORNERS[1], AXES[8]];

const MEAN_BUDGET: [f64; 2] = [0.93, 1.03];
const SPREAD_BUDGET: f64 = 1.2;
/// Beyond it, threads wait for a CPU instead of sleeping.
const BUSY_BUDGET_PERCENT: f64 = 60.0;

const LEGEND: &str = "found/due: samples of the threads, for each sample that is due, which is their CPU time by \
`/proc/PID/task/*/schedstat` times the frequency; mean of the runs. deviation: its standard deviation. binomial: the standard \
deviation of as many ticks at independent random times; ratio: deviation to binomial. With 10 runs, a deviation of exactly the \
binomial one is measured as 0.7 to 1.3 of it in four of five cases. busy: CPU time of the threads, as a share of all CPUs. timer \
slack: how much later than asked the kernel may wake a thread. All profilers are observed over the same kind of window, between \
two readings of the CPU time while they sample. `perf record -a` and bpftrace have one timer on each CPU. `perf record -p` has one \
for each thread, which runs while the thread runs: the first sample of a thread is due after a whole period of its CPU time.";

/// A load and the ratios of each profiler on it.
struct Cell {
    load: Load,
    steps: u64,
    samplers: Vec<(Sampler, Ratios)>,
}

/// Measures all loads, then the interrupts of an idle machine.
pub(super) fn measure(setting: &Setting) -> Result<Report> {
    let seconds = setting.seconds(10);
    let samplers = samplers(&setting.tools);
    let mut cells = cells(&samplers)?;
    let rounds = setting.runs_of_spread;
    for round in 1..=rounds {
        eprintln!("round {round} of {rounds}: {} loads, {seconds} s each", cells.len());
        for cell in &mut cells {
            cell.run(seconds, setting)?;
        }
    }
    let mut report = setting.report(&format!("{rounds} runs of {seconds} s of each row, in turns"));
    report.heading_of(0, &COLUMNS);
    for cell in &cells {
        cell.write(&mut report);
    }
    report.paragraph(&pooled(&cells));
    report.paragraph(LEGEND);
    eprintln!("interrupts of an idle machine");
    idle::measure(&samplers, setting, &mut report)?;
    Ok(report)
}

const COLUMNS: [&str; 11] = [
    "sleep ms",
    "threads",
    "timer slack",
    "Hz",
    "profiler",
    "busy %",
    "due in a run",
    "found/due",
    "deviation",
    "binomial",
    "ratio",
];

/// The profiler, and its peers whose samples have times here.
fn samplers(tools: &[Tool]) -> Vec<Sampler> {
    let own = tools.first().map(|tool| Sampler { tool: tool.clone(), timers: Timers::Profiler });
    let peers = tools.iter().flat_map(|tool| {
        let timers: &[_] = match tool.name {
            ToolName::Perf => &[Timers::PerfOfMachine, Timers::PerfOfThreads],
            ToolName::Bpftrace => &[Timers::Bpftrace],
            _ => &[],
        };
        timers.iter().map(|timers| Sampler { tool: tool.clone(), timers: *timers })
    });
    own.into_iter().chain(peers).collect()
}

fn cells(samplers: &[Sampler]) -> Result<Vec<Cell>> {
    let cell = |load: Load| {
        let count = if WITH_PEERS.contains(&load) { samplers.len() } else { 1 };
        let samplers = samplers.iter().take(count).map(|sampler| (sampler.clone(), Ratios::default()));
        Ok(Cell { load, steps: load::steps_for_a_quarter(&load)?, samplers: samplers.collect() })
    };
    [BASE].into_iter().chain(AXES).chain(CORNERS).map(cell).collect()
}

impl Cell {
    /// Runs each profiler once. A run that fails, as on a machine that is too busy, is reported and does not count.
    fn run(&mut self, seconds: u64, setting: &Setting) -> Result<()> {
        let sleepers = Sleepers::start(&self.load, self.steps)?;
        for (sampler, ratios) in &mut self.samplers {
            match sampler.run(&sleepers, &self.load, seconds, &setting.folder) {
                Ok(counted) => ratios.add(&counted, self.load.frequency_hz),
                Err(error) => eprintln!("a run of {} does not count: {error:#}", sampler.title()),
            }
        }
        Ok(())
    }

    fn write(&self, report: &mut Report) {
        let Load { sleep_ms, threads, slack_ns, frequency_hz } = self.load;
        let slack = if slack_ns == 0 { "50 us".to_owned() } else { format!("{slack_ns} ns") };
        for (sampler, ratios) in self.samplers.iter().filter(|(_, ratios)| ratios.has_deviation()) {
            let title = format!("{sleep_ms} | {threads} | {slack} | {frequency_hz} | {}", sampler.title());
            let (deviation, binomial) = (ratios.deviation(), ratios.binomial());
            report.row_of(
                &title,
                &[
                    format!("{:.0}", 100.0 * ratios.busy()),
                    format!("{:.0}", ratios.due()),
                    format!("{:.3}", ratios.mean()),
                    format!("{deviation:.3}"),
                    format!("{binomial:.3}"),
                    format!("{:.2}", deviation / binomial),
                ],
            );
            if sampler.timers == Timers::Profiler {
                let what = format!("{sleep_ms} ms, {threads} threads, slack {slack}, {frequency_hz} Hz");
                check(report, &what, ratios);
            }
        }
    }
}

fn check(report: &mut Report, what: &str, ratios: &Ratios) {
    let [least, most] = MEAN_BUDGET;
    let (mean, spread) = (ratios.mean(), ratios.deviation() / ratios.binomial());
    report.at_least(&format!("{what}: found/due, at least"), mean, least);
    report.at_most(&format!("{what}: found/due, at most"), mean, most);
    report.at_most(&format!("{what}: deviation to binomial"), spread, SPREAD_BUDGET);
    report.at_most(&format!("{what}: busy %"), 100.0 * ratios.busy(), BUSY_BUDGET_PERCENT);
}

/// The profiler's rows in one sentence: the deviation of each alone is known to a quarter only.
fn pooled(cells: &[Cell]) -> String {
    let own: Vec<&Ratios> = cells
        .iter()
        .filter_map(|cell| Some(&cell.samplers.first()?.1))
        .filter(|ratios| ratios.has_deviation())
        .collect();
    let count = own.len() as f64;
    let mean = own.iter().map(|ratios| ratios.mean()).sum::<f64>() / count;
    let squares = own.iter().map(|ratios| (ratios.deviation() / ratios.binomial()).powi(2));
    let spread = (squares.sum::<f64>() / count).sqrt();
    format!(
        "All {} rows of the profiler together: found/due {mean:.3}, deviation {} times the binomial one.",
        own.len(),
        number(spread)
    )
}
