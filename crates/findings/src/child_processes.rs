//! Finds servers whose threads wait for child processes: for their end, or for pipes to them.
//!
//! Shells, builds and supervisors wait for children as well, and have nothing else to do. Therefore, the process serves connections, and
//! its waits end within the measurement. A thread that reads the output of a child for whatever it writes is like one that
//! waits for a response: a pipe counts below a function that does work, in a process with one thread, or in a worker of a pool.

use profiler_profile::{Certainty, FindingFacts, Profile, Proof, Sample, Whole};

use crate::{
    WaitCause, facts, found::Found, frames::own_frames, text::Problem, thread_group::ThreadGroup,
    top_level::is_work, weights::percent,
};

/// The fewest threads. One or two programs that requests start are no pattern.
const MIN_THREADS: usize = 3;

/// The least number of threads that wait at a time, on average.
const MIN_QUEUE: f64 = 2.0;

/// The least share of the time of threads with work: more than all other work.
const MIN_PERCENT: f64 = 50.0;

/// The least share of the threads that also do something else. A supervisor has a thread for each child, which lives as long.
const MIN_CHANGING_PERCENT: f64 = 50.0;

/// The threads of a server that wait for child processes, below the function of most of them.
pub(crate) fn slow<'a>(samples: &ThreadGroup<'a>) -> Option<Found<'a>> {
    let marks = samples.marks;
    let serves = samples.samples.iter().any(|(sample, _)| marks.servers.contains(sample));
    let is_waiting = |sample: &Sample, cause| is_for_child(samples, sample, cause);
    if !serves || samples.threads(is_waiting).len() < MIN_THREADS {
        return None;
    }
    let method = samples.sites(is_waiting).first().map(|site| site.method);
    let is_at_site = |sample: &Sample, cause| is_waiting(sample, cause) && samples.method(sample) == method;
    let (value, tids) = (samples.value(is_at_site), samples.threads(is_at_site));
    let share = percent(value, samples.value_with_work());
    let others = samples.threads(|sample, cause| !is_waiting(sample, cause));
    let changing = percent(tids.intersection(&others).count() as u64, tids.len() as u64);
    if tids.len() < MIN_THREADS
        || share < MIN_PERCENT
        || samples.average_threads(value, tids.len()) < MIN_QUEUE
        || changing < MIN_CHANGING_PERCENT
    {
        return None;
    }
    let at_end =
        samples.value(|sample, cause| is_at_site(sample, cause) && is(cause, WaitCause::ChildProcess));
    let facts = FindingFacts {
        share: facts::share(share, Whole::TimeOfThreadsWithWork),
        // The processes at the other ends of pipes were read once.
        certainty: match 2 * at_end >= value {
            true => Certainty::Proven,
            false => Certainty::Likely(Proof::FurtherReadings),
        },
        partner: marks.partners.child(&tids),
        ..samples.facts(method, samples.counted(is_at_site))
    };
    Some(samples.finding(&Problem::ChildProcess, facts, value).below(method))
}

fn is_for_child(samples: &ThreadGroup<'_>, sample: &Sample, cause: Option<WaitCause>) -> bool {
    let marks = samples.marks;
    match cause {
        Some(WaitCause::ChildProcess) => true,
        Some(WaitCause::Pipe) => {
            marks.partners.has_child(samples.tid(sample))
                && (samples.has_one_thread_each
                    || marks.pool_workers.contains(sample)
                    || is_within_work(samples.profile, sample))
        }
        _ => false,
    }
}

fn is(cause: Option<WaitCause>, expected: WaitCause) -> bool {
    cause == Some(expected)
}

fn is_within_work(profile: &Profile, sample: &Sample) -> bool {
    own_frames(profile, profile.stack(sample.stack)).iter().any(|id| is_work(profile, profile.frame(*id)))
}
