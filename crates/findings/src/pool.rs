//! Finds starved thread pools: their workers block until asynchronous work completes, which needs a worker itself.

use std::collections::BTreeMap;

use profiler_profile::{Certainty, FindingFacts, Proof, RuntimeEvent, Sample, Sampling, Whole, sum};

use crate::{
    WaitCause, facts::share, found::Found, text::Problem, thread_group::ThreadGroup, weights::percent,
};

/// The smallest pool with a finding. One or two workers that block are no more than a slow start.
const MIN_WORKERS: usize = 3;

/// The least share of a worker's time that it blocks, to be counted as blocked. Other work finds the worker less often
/// free than not.
const MIN_BLOCKED_TIME_PERCENT: f64 = 50.0;

/// The least share of blocked workers. A pool with more free workers processes its queue.
const MIN_BLOCKED_WORKERS_PERCENT: f64 = 60.0;

/// The least share of the blocked time of what the finding says that workers block in.
const MIN_CAUSE_PERCENT: f64 = 50.0;

/// The least share of the pool's time in which a semaphore is held by a worker that proceeds. A worker that takes items from a
/// queue waits for a semaphore as well, and no thread holds that one.
const MIN_HELD_PERCENT: f64 = 1.0;

/// The most time of idle workers of a pool whose semaphore is too small. Others are enough for the work.
const MAX_IDLE_PERCENT: f64 = 10.0;

/// The time after which a new worker is growth. Before, it can be a worker that the first samples missed.
const FIRST_SIGHT_NS: u64 = 1_000_000_000;

/// The least number of new workers. A pool replaces one now and then.
const MIN_NEW_WORKERS: usize = 2;

/// A worker of the pool.
#[derive(Default)]
struct Worker {
    value: u64,
    blocked: u64,
}

/// The starvation of the .NET thread pool.
pub(crate) fn starvation<'a>(samples: &ThreadGroup<'a>) -> Option<Found<'a>> {
    let of_pool = &samples.marks.pool_workers;
    let mut workers = BTreeMap::<u32, Worker>::new();
    for (sample, cause) in samples.samples.iter().filter(|(sample, _)| of_pool.contains(sample)) {
        let worker = workers.entry(samples.tid(sample)).or_default();
        sum::add(&mut worker.value, sample.value);
        if blocks(*cause) {
            sum::add(&mut worker.blocked, sample.value);
        }
    }
    let blocked = workers
        .values()
        .filter(|worker| percent(worker.blocked, worker.value) >= MIN_BLOCKED_TIME_PERCENT)
        .count();
    if blocked < MIN_WORKERS || percent(blocked as u64, workers.len() as u64) < MIN_BLOCKED_WORKERS_PERCENT {
        return None;
    }
    let is_part = |sample: &Sample, cause| blocks(cause) && of_pool.contains(sample);
    let value = samples.value(is_part);
    let at_semaphores =
        samples.value(|sample, cause| is_part(sample, cause) && cause == Some(WaitCause::Semaphore));
    let is_at_semaphores = percent(at_semaphores, value) >= MIN_CAUSE_PERCENT;
    if is_at_semaphores && !is_semaphore_too_small(samples) {
        return None;
    }
    let place = Place::of(samples, is_part);
    let facts = FindingFacts {
        threads: u32::try_from(blocked).ok(),
        share: share(percent(blocked as u64, workers.len() as u64), Whole::PoolWorkers),
        certainty: certainty(samples),
        ..samples.facts(place.first(), samples.counted(is_part))
    };
    let problem = Problem::PoolStarvation {
        workers: workers.len(),
        is_at_semaphores,
        other_methods: place.other_methods(),
        growth: growth(samples, &workers),
    };
    Some(samples.finding(&problem, facts, value).below(place.method()))
}

/// Proven if the runtime has reported that its queue does not proceed. Without events, the queue can be empty.
fn certainty(samples: &ThreadGroup<'_>) -> Certainty {
    let profile = samples.profile;
    let is_starvation =
        |event: &&RuntimeEvent| event.process == samples.process && event.is_pool_starvation(profile);
    match profile.runtime_events().iter().find(is_starvation) {
        Some(_) => Certainty::Proven,
        None => Certainty::Likely(Proof::PoolAdjustments),
    }
}

/// Whether a worker with this cause blocks until other work completes.
fn blocks(cause: Option<WaitCause>) -> bool {
    matches!(cause, Some(WaitCause::SyncOverAsync | WaitCause::Semaphore))
}

/// Whether a worker that proceeds holds the semaphore for which others wait, and no worker is idle: a worker in the same method.
fn is_semaphore_too_small(samples: &ThreadGroup<'_>) -> bool {
    let of_pool = &samples.marks.pool_workers;
    let is_at_semaphore =
        |sample: &Sample, cause| cause == Some(WaitCause::Semaphore) && of_pool.contains(sample);
    let Some(method) = samples.main_site(is_at_semaphore) else { return false };
    let holds = |sample: &Sample, cause| {
        !matches!(cause, Some(WaitCause::Semaphore | WaitCause::Idle)) && samples.is_below(sample, method)
    };
    let total = samples.value(|sample, _| of_pool.contains(sample));
    let idle = samples.value(|sample, cause| of_pool.contains(sample) && cause == Some(WaitCause::Idle));
    percent(samples.value(holds), total) >= MIN_HELD_PERCENT && percent(idle, total) <= MAX_IDLE_PERCENT
}

/// The methods below which workers block. Optimized code can lack the frame of the method that waits, so that a part of the
/// samples stands for all.
enum Place<'a> {
    /// No sample has a method.
    Unknown,
    /// Most samples that have a method have this one.
    Method(&'a str),
    /// The method with the most samples, and how many others there are.
    Methods(&'a str, usize),
}

impl<'a> Place<'a> {
    fn of(samples: &ThreadGroup<'a>, is_part: impl Fn(&Sample, Option<WaitCause>) -> bool) -> Self {
        let sites = samples.sites(&is_part);
        match (samples.main_site(&is_part), &sites[..]) {
            (Some(method), _) => Self::Method(method),
            (None, [first, others @ ..]) => Self::Methods(first.method, others.len()),
            (None, []) => Self::Unknown,
        }
    }

    fn method(&self) -> Option<&'a str> {
        match self {
            Self::Method(method) => Some(method),
            Self::Methods(..) | Self::Unknown => None,
        }
    }

    /// The method with the most samples.
    fn first(&self) -> Option<&'a str> {
        match self {
            Self::Method(method) | Self::Methods(method, _) => Some(method),
            Self::Unknown => None,
        }
    }

    fn other_methods(&self) -> usize {
        match self {
            Self::Methods(_, others) => *others,
            Self::Method(_) | Self::Unknown => 0,
        }
    }
}

/// The growth of the pool, threads a second, while it was sampled, if it is evident: workers whose first sample, with any stack, is late. An
/// event of durations has no sample of a worker before its first wait has ended.
fn growth(samples: &ThreadGroup<'_>, workers: &BTreeMap<u32, Worker>) -> Option<f64> {
    const NS_PER_S: f64 = 1e9;
    let is_continuous = matches!(samples.profile.event(samples.event).sampling, Sampling::Frequency(_));
    let seconds = samples.profile.header().duration_ns.saturating_sub(FIRST_SIGHT_NS) as f64 / NS_PER_S;
    let early = samples.threads(|sample, _| sample.time_ns <= FIRST_SIGHT_NS);
    let new = workers.keys().filter(|worker| !early.contains(worker)).count();
    let is_evident = is_continuous && new >= MIN_NEW_WORKERS && seconds > 0.0;
    is_evident.then(|| new as f64 / seconds)
}
