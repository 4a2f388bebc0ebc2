//! Findings on CPU time that is not the work of the application.

use profiler_profile::{FindingFacts, FindingKind, Sample, Sampling, Thread, ThreadState, Whole, sum};

use crate::{
    cpu_rules::CpuRule,
    facts,
    found::Found,
    marks::{CpuMarks, Marks, StackSet},
    text::{CpuCause, CpuProblem, Problem},
    thread_group::ThreadGroup,
    weights::{heaviest, percent},
};

/// The fewest samples on a CPU. With fewer, a share has an error of more than ten points.
pub(crate) const MIN_SAMPLES: u64 = 100;

/// The least number of CPUs that an activity takes, or could take if they were free, on average. Without it, a program that does little
/// gains nothing.
const MIN_CPUS: f64 = 0.1;

/// The least share of the samples with a method, and of a thread, that names it.
const MIN_PART_PERCENT: f64 = 50.0;

/// The findings on the CPU time of a process, for events at a frequency.
pub(crate) fn findings<'a>(samples: &ThreadGroup<'a>) -> Vec<Found<'a>> {
    if !matches!(samples.profile.event(samples.event).sampling, Sampling::Frequency(_)) {
        return Vec::new();
    }
    let on_cpu = on_cpu(samples);
    let total = sum::of(on_cpu.iter().map(|sample| sample.value));
    if total < MIN_SAMPLES {
        return Vec::new();
    }
    samples.marks.cpu.iter().filter_map(|marks| find(marks, samples, &on_cpu, total)).collect()
}

/// The samples on a CPU: those of the event of CPU samples, or those in this state where the profile has no such event.
fn on_cpu<'a>(samples: &ThreadGroup<'a>) -> Vec<&'a Sample> {
    let runs = |sample: &&Sample| match sample.state {
        None => true,
        Some(state) => state == ThreadState::OnCpu && !samples.marks.has_cpu_event,
    };
    samples.samples.iter().map(|(sample, _)| *sample).filter(runs).collect()
}

fn find<'a>(
    marks: &CpuMarks,
    samples: &ThreadGroup<'a>,
    on_cpu: &[&Sample],
    total: u64,
) -> Option<Found<'a>> {
    let (profile, rule) = (samples.profile, marks.rule);
    let matching: Vec<_> = on_cpu.iter().copied().filter(|sample| marks.contains(sample)).collect();
    let value = sum::of(matching.iter().map(|sample| sample.value));
    let share = percent(value, total);
    if share < rule.min_percent || cpus(samples, value).is_some_and(|cpus| cpus < MIN_CPUS) {
        return None;
    }
    let (cause, method) = cause(rule, samples, &matching, value);
    let thread = main_thread(samples, &matching).filter(|_| cause == CpuCause::Site);
    let facts = FindingFacts {
        share: facts::share(share, Whole::CpuTime),
        cause_thread: thread.map(|thread| thread.tid),
        ..samples.facts(method, matching.iter().copied())
    };
    let thread = thread.map_or("", |thread| profile.string(thread.comm));
    let problem = Problem::Cpu(CpuProblem { rule, cause, thread });
    Some(samples.finding(&problem, facts, value).below(method))
}

/// The number of CPUs that an activity takes, or could take: of the time in which threads wait for a CPU, as much as of that on CPUs.
/// `None` without samples of threads that wait for a CPU: a program on a busy machine can have little of a CPU.
fn cpus(samples: &ThreadGroup<'_>, value: u64) -> Option<f64> {
    let marks = samples.marks;
    let of_processes = samples.processes.iter().filter_map(|process| marks.cpu_demand.get(process));
    let (on_cpu, waiting) = of_processes.fold((0.0, 0.0), |sum, of_process| {
        (sum.0 + of_process.on_cpu as f64, sum.1 + of_process.waiting as f64)
    });
    (on_cpu > 0.0).then(|| samples.average_threads(value, usize::MAX) * (1.0 + waiting / on_cpu))
}

/// What samples and events say beyond the rule, and the method of the application that has the cause.
fn cause<'a>(
    rule: &CpuRule,
    samples: &ThreadGroup<'a>,
    matching: &[&Sample],
    value: u64,
) -> (CpuCause, Option<&'a str>) {
    let Marks { event_causes, collection_requests, dynamic_methods, .. } = samples.marks;
    let is_most_of = |stacks: &StackSet| {
        let of_set = matching.iter().filter(|sample| stacks.contains(sample));
        2 * sum::of(of_set.map(|sample| sample.value)) > value
    };
    let process = samples.process;
    match rule.kind {
        FindingKind::Compilation
            if is_most_of(dynamic_methods) || event_causes.compiles_dynamic_methods.contains(&process) =>
        {
            (CpuCause::DynamicMethods, main_method(samples, matching))
        }
        FindingKind::GarbageCollection
            if is_most_of(collection_requests) || event_causes.requests_collections.contains(&process) =>
        {
            let method = samples.main_site(|sample, _| collection_requests.contains(sample));
            (CpuCause::RequestedCollections, method)
        }
        FindingKind::Spinning => (CpuCause::Site, main_method(samples, matching)),
        _ => (CpuCause::Unknown, None),
    }
}

/// The method of the application in most samples that have one.
fn main_method<'a>(samples: &ThreadGroup<'a>, matching: &[&Sample]) -> Option<&'a str> {
    let methods = matching.iter().filter_map(|sample| Some((samples.method(sample)?, sample.value)));
    let (method, value, total) = heaviest(methods)?;
    (percent(value, total) >= MIN_PART_PERCENT).then_some(method)
}

/// The thread with most of the samples.
fn main_thread<'a>(samples: &ThreadGroup<'a>, matching: &[&Sample]) -> Option<&'a Thread> {
    let (thread, value, total) = heaviest(matching.iter().map(|sample| (sample.thread, sample.value)))?;
    (percent(value, total) >= MIN_PART_PERCENT).then(|| samples.profile.thread(thread))
}
