//! Finds starved thread pools: their workers block until asynchronous work completes, which needs a worker itself.

use std::collections::BTreeMap;

use profiler_profile::{Finding, FindingKind, Sample, Sampling, sum};

use crate::{
    WaitCause,
    frames::short,
    process::{ProcessSamples, percent},
};

/// The smallest pool with a finding. One or two workers that block are no more than a slow start.
const MIN_WORKERS: usize = 3;

/// The least share of a worker's time that it blocks, to be counted as blocked. Other work finds the worker less often
/// free than not.
const MIN_BLOCKED_TIME_PERCENT: f64 = 50.0;

/// The least share of blocked workers. A pool with more free workers processes its queue.
const MIN_BLOCKED_WORKERS_PERCENT: f64 = 60.0;

/// The least share of the time below one method. Without such a method, no single change helps.
const MIN_SITE_PERCENT: f64 = 50.0;

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
pub(crate) fn starvation(samples: &ProcessSamples<'_>) -> Option<Finding> {
    let of_pool = &samples.marks.pool_workers;
    let is_blocked = |cause| cause == Some(WaitCause::SyncOverAsync);
    let mut workers = BTreeMap::<u32, Worker>::new();
    for (sample, cause) in samples.samples.iter().filter(|(sample, _)| of_pool.contains(sample)) {
        let worker = workers.entry(samples.tid(sample)).or_default();
        sum::add(&mut worker.value, sample.value);
        if is_blocked(*cause) {
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
    let is_part = |sample: &Sample, cause| is_blocked(cause) && of_pool.contains(sample);
    let value = samples.value(is_part);
    let site = samples.sites(is_part).into_iter().next()?;
    if percent(site.value, value) < MIN_SITE_PERCENT {
        return None;
    }
    let evidence = format!(
        "{blocked} of {} pool workers block in Task.Wait below {} (sync over async){}",
        workers.len(),
        site.method,
        growth(samples, &workers).map(|growth| format!("; {growth}")).unwrap_or_default(),
    );
    let remedy = format!("make {} asynchronous", short(site.method));
    Some(samples.finding(FindingKind::PoolStarvation, &evidence, remedy, value))
}

/// The growth of the pool while it was sampled, if it is evident: workers whose first sample, with any stack, is late. An
/// event of durations has no sample of a worker before its first wait has ended.
fn growth(samples: &ProcessSamples<'_>, workers: &BTreeMap<u32, Worker>) -> Option<String> {
    const NS_PER_S: f64 = 1e9;
    let is_continuous = matches!(samples.profile.event(samples.event).sampling, Sampling::Frequency(_));
    let seconds = samples.profile.header().duration_ns.saturating_sub(FIRST_SIGHT_NS) as f64 / NS_PER_S;
    let early = samples.threads(|sample, _| sample.time_ns <= FIRST_SIGHT_NS);
    let new = workers.keys().filter(|worker| !early.contains(worker)).count();
    let is_evident = is_continuous && new >= MIN_NEW_WORKERS && seconds > 0.0;
    is_evident.then(|| format!("the pool grew by {:.1} threads/s", new as f64 / seconds))
}
