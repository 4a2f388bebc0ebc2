//! Runs each profiler on a target and computes the medians of its measurements.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::Result;

use super::{
    in_turns::{median, outcomes},
    run::settled_after,
    stacks,
    target::{Target, cpu_time},
    tool::{Job, JobResult, KnownStacks, Tool, ToolName},
};

/// A measured quantity. The unit is in the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Metric {
    CpuSeconds,
    /// As a share of the target's CPU time, both without the first seconds.
    SettledCpuPercent,
    PeakMegabytes,
    PostMilliseconds,
    /// From the last sample to the finished output.
    EndMilliseconds,
    InKernelMicroseconds,
    ExactPercent,
    /// The share of samples whose stack reaches its root.
    WholePercent,
    FoundPercent,
    FramesPerSample,
    Lost,
    Samples,
}

/// The figures of one profiler by metric.
pub(crate) type Figures = BTreeMap<Metric, f64>;

/// The figures of each profiler.
pub(crate) struct Series {
    pub(crate) rows: Vec<Row>,
}

/// A profiler with its options.
pub(crate) struct Row {
    pub(crate) name: ToolName,
    pub(crate) options: &'static str,
    /// Its figures, or why it failed.
    pub(crate) outcome: Result<Figures, String>,
}

/// The task of each profiler.
#[derive(Clone, Copy)]
pub(crate) struct Plan<'a> {
    pub(crate) tools: &'a [Tool],
    pub(crate) runs: usize,
}

impl Plan<'_> {
    /// Runs the profilers on `job`, in turns, and computes the medians.
    pub(crate) fn carry_out(&self, job: &Job<'_>, target: &Target) -> Series {
        let title = |tool: &Tool| {
            let (program, options) = (tool.name.program(), tool.options);
            format!("{program} {options} at {} Hz, {} s", job.frequency_hz, job.seconds)
        };
        let tools: Vec<_> = self.tools.iter().map(|tool| (title(tool), tool)).collect();
        let outcomes = outcomes("profilers", self.runs, &tools, |tool| one_run(tool, job, target));
        let row = |(tool, outcome): (&Tool, Result<Vec<Figures>, String>)| Row {
            name: tool.name,
            options: tool.options,
            outcome: outcome.map(|runs| medians(&runs)),
        };
        Series { rows: self.tools.iter().zip(outcomes).map(row).collect() }
    }
}

fn one_run(tool: &Tool, job: &Job<'_>, target: &Target) -> Result<Figures> {
    let (before, started) = (cpu_time(target.pid())?, Instant::now());
    let done = tool.work(job)?;
    let target_cpu = (cpu_time(target.pid())? - before).as_secs_f64() / started.elapsed().as_secs_f64();
    Ok(figures(&done, job, target_cpu))
}

/// `target_cpu` is in CPU seconds per second.
fn figures(done: &JobResult, job: &Job<'_>, target_cpu: f64) -> Figures {
    const BYTES_PER_MEGABYTE: f64 = 1e6;
    let run = &done.run;
    let sampling = Duration::from_secs(job.seconds);
    let settled_seconds = (sampling - settled_after(sampling)).as_secs_f64();
    let mut figures = Figures::from([
        (Metric::CpuSeconds, run.cpu.as_secs_f64()),
        (Metric::SettledCpuPercent, 100.0 * run.settled_cpu.as_secs_f64() / settled_seconds / target_cpu),
        (Metric::PeakMegabytes, run.peak_bytes as f64 / BYTES_PER_MEGABYTE),
        (Metric::PostMilliseconds, milliseconds(run.post)),
    ]);
    figures.extend(run.end().map(|end| (Metric::EndMilliseconds, milliseconds(end))));
    figures.extend(lost(&run.messages).map(|lost| (Metric::Lost, lost)));
    let Some(stacks) = &done.stacks else { return figures };
    let samples = stacks::samples(stacks) as f64;
    let ticks = target_cpu * (job.frequency_hz * job.seconds) as f64;
    figures.insert(Metric::Samples, samples);
    figures.insert(Metric::FramesPerSample, stacks::mean_frames(stacks));
    match job.known {
        KnownStacks::Nothing => None,
        KnownStacks::Chain => figures.insert(Metric::ExactPercent, 100.0 * stacks::exact_share(stacks)),
        KnownStacks::Entry(entry, calls) => {
            if !calls.is_empty() {
                let exact = stacks::exact_share_of_whole(stacks, entry, calls);
                figures.insert(Metric::ExactPercent, 100.0 * exact);
            }
            figures.insert(Metric::WholePercent, 100.0 * stacks::rooted_share(stacks, entry))
        }
    };
    figures.insert(Metric::FoundPercent, 100.0 * samples / ticks);
    if let Some(run_time) = run.run_time_a_second {
        let microseconds = run_time.as_secs_f64() * 1e6 * job.seconds as f64;
        figures.insert(Metric::InKernelMicroseconds, microseconds / samples.max(1.0));
    }
    figures
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Lost samples, by the profiler's own summary: `..., 0 lost`.
fn lost(messages: &str) -> Option<f64> {
    let (before, _) = messages.split_once(" lost")?;
    before.rsplit(' ').next()?.parse().ok()
}

/// The median of each metric that all runs have.
fn medians(runs: &[Figures]) -> Figures {
    let Some(first) = runs.first() else { return Figures::new() };
    let metrics = first.keys().filter(|metric| runs.iter().all(|run| run.contains_key(metric)));
    metrics.map(|metric| (*metric, median(runs.iter().map(|run| run[metric]).collect()))).collect()
}

impl Series {
    /// The figure of the profiler with its defaults.
    pub(crate) fn own(&self, metric: Metric) -> f64 {
        self.own_with("", metric)
    }

    /// The figure of the profiler with these options.
    pub(crate) fn own_with(&self, options: &str, metric: Metric) -> f64 {
        let is_meant = |row: &&Row| row.name == ToolName::Profiler && row.options == options;
        self.rows.iter().find(is_meant).map_or(f64::NAN, |row| row.figure(metric))
    }

    /// The best figure of the other profilers.
    pub(crate) fn best_peer(&self, metric: Metric) -> Option<(ToolName, f64)> {
        let peers = self.rows.iter().filter(|row| row.name != ToolName::Profiler);
        let found = peers.map(|row| (row.name, row.figure(metric))).filter(|(_, figure)| !figure.is_nan());
        found.min_by(|(_, a), (_, b)| if metric.is_higher_better() { b.total_cmp(a) } else { a.total_cmp(b) })
    }
}

impl Metric {
    /// Whether a higher value is better.
    pub(crate) fn is_higher_better(self) -> bool {
        matches!(self, Self::ExactPercent | Self::WholePercent)
    }
}

impl Row {
    /// Not a number if the profiler failed or does not report it.
    pub(crate) fn figure(&self, metric: Metric) -> f64 {
        self.outcome.as_ref().ok().and_then(|figures| figures.get(&metric)).copied().unwrap_or(f64::NAN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_that_is_missing_in_a_run_has_no_median() {
        let with = Figures::from([(Metric::CpuSeconds, 1.0), (Metric::PostMilliseconds, 5.0)]);
        let without = Figures::from([(Metric::CpuSeconds, 3.0)]);
        assert_eq!(medians(&[with, without]), Figures::from([(Metric::CpuSeconds, 2.0)]));
    }

    #[test]
    fn lost_samples_are_read_from_the_summary() {
        assert_eq!(lost("profiler: 990 samples in 10.0 s of pid 7 (chain), 0 lost\n"), Some(0.0));
        assert_eq!(
            lost("profiler: 9 samples in 1.0 s of pid 7, 12 lost (ring buffer full 12)\n"),
            Some(12.0)
        );
        assert_eq!(lost("Attaching 2 probes...\n"), None);
    }
}
