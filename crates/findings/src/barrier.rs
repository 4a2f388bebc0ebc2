//! Finds threads that wait at a barrier for one of them that needs longer.
//!
//! Where the load is even, or each thread is the slow one in turn, there is no finding: no thread is the cause.

use std::collections::BTreeSet;

use profiler_profile::{Certainty, FindingFacts, Proof, Sample, Whole, sum};

use crate::{
    WaitCause,
    facts::share,
    found::Found,
    text::{Problem, Slowest},
    thread_group::ThreadGroup,
    thread_time::{Activity, Period, ThreadTime},
    waiting::is,
    weights::percent,
};

/// The fewest threads that wait for another one.
const MIN_WAITING: usize = 2;

/// The least share of its time in which a thread waits at the barrier, to be one that waits for another: more than its work.
const MIN_WAIT_PERCENT: f64 = 50.0;

/// The least share of the time of threads with work that is spent at the barrier. Even loads differ by less.
const MIN_PERCENT: f64 = 30.0;

/// The threads that wait at a barrier, where one thread alone is in the method of the barrier and does not.
pub(crate) fn skew<'a>(samples: &ThreadGroup<'a>) -> Option<Found<'a>> {
    let is_at_barrier = is(WaitCause::Barrier);
    let method = samples.sites(&is_at_barrier).first()?.method;
    let is_here =
        |sample: &Sample, cause| is_at_barrier(sample, cause) && samples.method(sample) == Some(method);
    let value = samples.value(is_here);
    let percent = percent(value, samples.value_with_work());
    let waiting = waiting_threads(samples, is_here);
    let mut slow = slow_threads(samples, method, &waiting);
    let slowest = slow.pop().filter(|_| slow.is_empty())?;
    if waiting.len() < MIN_WAITING || percent < MIN_PERCENT {
        return None;
    }
    let is_evidence =
        |sample: &Sample, cause| is_here(sample, cause) && waiting.contains(&samples.tid(sample));
    let mut facts = FindingFacts {
        share: share(percent, Whole::TimeOfThreadsWithWork),
        cause_thread: Some(slowest.tid),
        certainty: match slowest.arrives {
            true => Certainty::Proven,
            false => Certainty::Likely(Proof::Arrival),
        },
        ..samples.facts(Some(method), samples.counted(is_evidence))
    };
    // The slow thread is in other functions.
    facts.selection.search = None;
    facts.selection.threads.push(slowest.tid);
    facts.selection.threads.sort_unstable();
    Some(samples.finding(&Problem::BarrierSkew(&slowest), facts, value).below(Some(method)))
}

/// The threads that wait at the barrier for most of their time.
fn waiting_threads(
    samples: &ThreadGroup<'_>,
    is_here: impl Fn(&Sample, Option<WaitCause>) -> bool,
) -> BTreeSet<u32> {
    let waits = |of_thread: &[(&Sample, Option<WaitCause>)]| {
        let here = of_thread.iter().filter(|(sample, cause)| is_here(sample, *cause));
        let at_barrier = sum::of(here.map(|(sample, _)| sample.value));
        percent(at_barrier, sum::of(of_thread.iter().map(|(sample, _)| sample.value))) >= MIN_WAIT_PERCENT
    };
    let threads = samples.by_thread().into_iter();
    threads.filter(|(_, of_thread)| waits(of_thread)).map(|(tid, _)| tid).collect()
}

/// The other threads that stay in the method for the whole measurement.
fn slow_threads<'a>(samples: &ThreadGroup<'a>, method: &str, waiting: &BTreeSet<u32>) -> Vec<Slowest<'a>> {
    let period = Period { begin_ns: 0, end_ns: samples.profile.header().duration_ns };
    let threads = samples.by_thread().into_iter().filter(|(tid, _)| !waiting.contains(tid));
    let slow = threads.filter_map(|(tid, of_thread)| {
        let time = ThreadTime::of(samples, &of_thread, &period)?;
        let (activity, percent) = time.activity(samples, &period)?;
        let stayed = time.methods(samples);
        if activity == Activity::Waits(WaitCause::Barrier) || !stayed.contains(&method) {
            return None;
        }
        let arrives = of_thread.iter().any(|(sample, cause)| {
            *cause == Some(WaitCause::Barrier) && samples.method(sample) == Some(method)
        });
        let (_, comm) = samples.is_main_thread_and_name(of_thread.first()?.0);
        Some(Slowest { tid, comm, method: stayed.first()?, activity, percent, arrives })
    });
    slow.collect()
}
