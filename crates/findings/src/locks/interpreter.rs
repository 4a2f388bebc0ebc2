//! Finds threads of Python that wait for the global interpreter lock: those that compute more than one thread can, apart from those whose
//! owner of the lock waits for a CPU.

use profiler_profile::{Sample, Sampling, sum};

use super::crowd::{Crowd, MIN_LOCK_PERCENT};
use crate::{WaitCause, found::Found, text::Queue, thread_group::ThreadGroup};

/// The fewest threads, on average, that would compute at a time if each had a lock and a CPU of its own: fewer would seldom wait.
const MIN_COMPUTING: f64 = 1.0;

/// The threads that wait for the interpreter lock, which is contended: the thread that has it computes.
pub(super) fn interpreter_lock<'a>(samples: &ThreadGroup<'a>) -> Option<Found<'a>> {
    let finding = Crowd::of(samples, None, |sample, cause| is_waiting(samples, sample, cause)).finding(
        samples,
        Queue::Interpreter,
        MIN_LOCK_PERCENT,
    )?;
    is_contended(samples).then_some(finding)
}

fn is_waiting(samples: &ThreadGroup<'_>, sample: &Sample, cause: Option<WaitCause>) -> bool {
    cause == Some(WaitCause::Lock) && samples.marks.gil.contains(sample)
}

/// Whether threads wait for the lock because others compute. On a busy machine, threads that compute for a moment and rest wait for it
/// too: the thread that has it waits for a CPU.
fn is_contended(samples: &ThreadGroup<'_>) -> bool {
    let threads = samples.by_thread();
    let starved = samples.value(|_, cause| is_starved(cause));
    let running = sum::of(threads.values().map(|of_thread| time_on_cpus(samples, of_thread)));
    let waiting = samples.threads(|sample, cause| is_waiting(samples, sample, cause));
    let of_waiting = waiting.iter().filter_map(|tid| threads.get(tid));
    let computing: f64 = of_waiting.map(|of_thread| computing_share(samples, of_thread)).sum();
    running >= starved || computing >= MIN_COMPUTING
}

fn is_starved(cause: Option<WaitCause>) -> bool {
    matches!(cause, Some(WaitCause::RunQueue | WaitCause::CpuQuota))
}

/// The share of its time for which a thread would compute if it did not wait for the lock and for CPUs.
fn computing_share(samples: &ThreadGroup<'_>, of_thread: &[(&Sample, Option<WaitCause>)]) -> f64 {
    let is_resting = |(sample, cause): &&(&Sample, Option<WaitCause>)| {
        cause.is_some() && !is_starved(*cause) && !is_waiting(samples, sample, *cause)
    };
    let resting = sum::of(of_thread.iter().filter(is_resting).map(|(sample, _)| sample.value));
    let computing = time_on_cpus(samples, of_thread);
    if resting == 0 { 1.0 } else { computing as f64 / computing.saturating_add(resting) as f64 }
}

/// The time for which a thread runs, in the unit of the event. An event of waits alone does not have it: there, it is the time between them.
fn time_on_cpus(samples: &ThreadGroup<'_>, of_thread: &[(&Sample, Option<WaitCause>)]) -> u64 {
    let profile = samples.profile;
    let value = |is_running: bool| {
        let counted = of_thread.iter().filter(|(_, cause)| cause.is_none() == is_running);
        sum::of(counted.map(|(sample, _)| sample.value))
    };
    match profile.event(samples.event).sampling {
        Sampling::Durations { .. } => profile.header().duration_ns.saturating_sub(value(false)),
        _ => value(true),
    }
}
