//! Findings on CPU time that is not the work of the application.

use profiler_profile::{Finding, Sample, Sampling, ThreadState, sum};

use crate::{
    cpu_rules::CpuRule,
    marks::StackSet,
    pattern::matches_any,
    process::{ProcessSamples, percent},
};

/// The fewest samples on a CPU. With fewer, a share has an error of more than ten points.
const MIN_SAMPLES: u64 = 100;

/// The least number of CPUs that an activity takes, on average. Less is a small part of a machine: the first seconds of a
/// program, or one that does nothing else.
const MIN_CPUS: f64 = 0.25;

/// The findings on the CPU time of a process, for events at a frequency.
pub(crate) fn findings(samples: &ProcessSamples<'_>) -> Vec<Finding> {
    if !matches!(samples.profile.event(samples.event).sampling, Sampling::Frequency(_)) {
        return Vec::new();
    }
    let on_cpu = on_cpu(samples);
    let total = sum::of(on_cpu.iter().map(|sample| sample.value));
    if total < MIN_SAMPLES {
        return Vec::new();
    }
    let rules = samples.marks.cpu.iter();
    rules.filter_map(|(rule, stacks)| find(rule, stacks, samples, &on_cpu, total)).collect()
}

/// The samples on a CPU: those of the event of CPU samples, or those in this state where the profile has no such event.
fn on_cpu<'a>(samples: &ProcessSamples<'a>) -> Vec<&'a Sample> {
    let runs = |sample: &&Sample| match sample.state {
        None => true,
        Some(state) => state == ThreadState::OnCpu && !samples.marks.has_cpu_event,
    };
    samples.samples.iter().map(|(sample, _)| *sample).filter(runs).collect()
}

fn find(
    rule: &CpuRule,
    stacks: &StackSet,
    samples: &ProcessSamples<'_>,
    on_cpu: &[&Sample],
    total: u64,
) -> Option<Finding> {
    let profile = samples.profile;
    let is_match = |sample: &&&Sample| {
        let thread = profile.string(profile.thread(sample.thread).comm);
        stacks.contains(sample) || matches_any(rule.threads, thread)
    };
    let value = sum::of(on_cpu.iter().filter(is_match).map(|sample| sample.value));
    let share = percent(value, total);
    if share < rule.min_percent || samples.average_threads(value, usize::MAX) < MIN_CPUS {
        return None;
    }
    let evidence = format!("{share:.0} % of the CPU time {}", rule.activity);
    Some(samples.finding(rule.kind, &evidence, rule.remedy.to_owned(), value))
}
