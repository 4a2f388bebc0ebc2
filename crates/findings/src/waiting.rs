//! Findings on threads that wait: for locks, garbage collections, another service, CPUs, CPU quota, files. `databases.rs` has
//! those of transactions.

use std::collections::BTreeMap;

use profiler_profile::{Certainty, FindingFacts, Proof, Sample, ThreadState, Whole, sum};

use crate::{
    WaitCause,
    databases::{GroupCommit, transaction_locks},
    facts,
    found::Found,
    text::Problem,
    thread_group::ThreadGroup,
    weights::percent,
};

/// The fewest threads before a slow service. One or two slow calls are no pattern.
const MIN_THREADS: usize = 3;

/// The fewest threads before a service that only their connections show. Clients of replicated services have a thread for each replica,
/// often three, that waits for news.
pub(crate) const MIN_UPSTREAM_THREADS: usize = 4;

/// The least share of the time of threads with work in suspensions. Tuned collectors stay below a twentieth.
const MIN_SUSPENSION_PERCENT: f64 = 10.0;

/// The least number of suspended threads at a time, on average. A process that does little is suspended for little time.
const MIN_SUSPENDED: f64 = 0.1;

/// The fewest samples of suspensions, so that a single collection is no finding.
const MIN_SUSPENSION_SAMPLES: u64 = 20;

/// The least number of threads that wait for a service at a time, on average: one slow call is no pattern.
const MIN_SERVICE_QUEUE: f64 = 2.0;

/// The least share of the time of threads with work that is spent at a service: more than all other work.
const MIN_SERVICE_PERCENT: f64 = 50.0;

/// The least share of a thread's time in which it runs or could run, to be one that lacks a CPU.
const MIN_COULD_RUN_PERCENT: f64 = 90.0;

/// The least share of waiting in the time in which threads run or could run. Below, they run for longer than they wait.
const MIN_RUN_QUEUE_PERCENT: f64 = 50.0;

/// The least number of threads that wait for a CPU at a time, on average.
const MIN_RUN_QUEUE: f64 = 1.0;

/// The least share of throttled time in the time in which threads run or could run. Short bursts of a program below its quota
/// stay below a twentieth.
const MIN_QUOTA_PERCENT: f64 = 10.0;

/// The least number of throttled threads at a time, on average. A program that does little loses little.
const MIN_THROTTLED: f64 = 0.1;

/// The least share of the time of threads with work that is spent at files. The page cache serves most reads and writes of
/// healthy programs.
const MIN_DISK_PERCENT: f64 = 30.0;

/// The least number of threads that wait for files at a time, on average: a program that reads its files when it starts
/// has less.
const MIN_DISK_QUEUE: f64 = 0.5;

/// The findings on the CPUs of a cgroup, for events that have the threads on CPUs as well.
pub(crate) fn of_cgroup<'a>(samples: &ThreadGroup<'a>) -> Vec<Found<'a>> {
    [run_queue(samples), cpu_quota(samples)].into_iter().flatten().collect()
}

/// The findings on what the processes of a service share: the services that they call, their data, disks.
pub(crate) fn shared_findings<'a>(samples: &ThreadGroup<'a>) -> Vec<Found<'a>> {
    let commit = GroupCommit::of(samples).and_then(|commit| commit.finding(samples));
    let disk = commit.or_else(|| disk(samples));
    let of_services = [slow_downstream(samples), slow_names(samples), transaction_locks(samples)];
    of_services.into_iter().chain([disk]).flatten().collect()
}

pub(crate) fn is(cause: WaitCause) -> impl Fn(&Sample, Option<WaitCause>) -> bool {
    move |_, found| found == Some(cause)
}

/// Threads that are suspended for collections for much of their time.
pub(crate) fn gc_suspension<'a>(samples: &ThreadGroup<'a>) -> Option<Found<'a>> {
    let is_suspended = is(WaitCause::GcSuspension);
    let value = samples.value(&is_suspended);
    let share = percent(value, samples.value_with_work());
    let threads = samples.threads(&is_suspended).len();
    if share < MIN_SUSPENSION_PERCENT
        || samples.count(&is_suspended) < MIN_SUSPENSION_SAMPLES
        || samples.average_threads(value, threads) < MIN_SUSPENDED
    {
        return None;
    }
    let facts = FindingFacts {
        share: facts::share(share, Whole::TimeOfThreadsWithWork),
        ..samples.facts(None, samples.counted(is_suspended))
    };
    let is_requested = requests_collections(samples, value / threads.max(1) as u64);
    Some(samples.finding(&Problem::GcSuspension { is_requested }, facts, value))
}

/// Whether the program requests most collections: by the events of its runtime, or by the time of threads in `GC.Collect`, of the
/// time that a thread is suspended.
fn requests_collections(samples: &ThreadGroup<'_>, suspended: u64) -> bool {
    let marks = samples.marks;
    let requesting = samples.value(|sample, _| marks.collection_requests.contains(sample));
    marks.event_causes.requests_collections.contains(&samples.process) || 2 * requesting > suspended
}

/// In a server, a thread that reads a socket can wait for a request. Clients do not. Workers of a pool can, but it is not for
/// them to wait.
fn slow_downstream<'a>(samples: &ThreadGroup<'a>) -> Option<Found<'a>> {
    let marks = samples.marks;
    let is_synchronous = samples.has_one_thread_each && samples.has_several_processes();
    let is_client = |sample: &Sample| {
        marks.clients.contains(sample) || (is_synchronous && marks.synchronous_clients.contains(sample))
    };
    let is_known = |sample: &Sample, cause| {
        cause == Some(WaitCause::SocketIo) && (marks.pool_workers.contains(sample) || is_client(sample))
    };
    // Threads of a server wait for a connection that it has opened.
    let is_upstream = |sample: &Sample, cause| {
        marks.partners.has_upstream(samples.tid(sample))
            && (cause == Some(WaitCause::SocketIo)
                || (cause == Some(WaitCause::Other) && marks.descriptor_waits.contains(sample)))
    };
    let is_at_service = |sample: &Sample, cause| is_known(sample, cause) || is_upstream(sample, cause);
    let method = samples.sites(is_at_service).first().map(|site| site.method);
    let is_at_site =
        |sample: &Sample, cause| is_at_service(sample, cause) && samples.method(sample) == method;
    let (value, tids) = (samples.value(is_at_site), samples.threads(is_at_site));
    let share = percent(value, samples.value_with_work());
    let queue = samples.average_threads(value, tids.len());
    if tids.len() < MIN_THREADS || share < MIN_SERVICE_PERCENT || queue < MIN_SERVICE_QUEUE {
        return None;
    }
    let service = marks.partners.service(&tids);
    let known = samples.threads(|sample, cause| is_at_site(sample, cause) && is_known(sample, cause));
    // Consumers of messages can have connections to several services, and have nothing to do.
    if known.is_empty() && (tids.len() < MIN_UPSTREAM_THREADS || service.is_none()) {
        return None;
    }
    let is_at_client = |sample: &Sample, cause| is_at_site(sample, cause) && is_client(sample);
    let is_at_client = service.is_some() || 2 * samples.value(is_at_client) > value;
    // Clients of the process send nothing: it is idle. A worker of a pool waits for them in place of other work.
    if is_at_client && marks.partners.are_clients(&tids) {
        return None;
    }
    let facts = FindingFacts {
        share: facts::share(share, Whole::TimeOfThreadsWithWork),
        // Read once: at other times, threads can have waited for other services.
        certainty: Certainty::Likely(if service.is_some() { Proof::FurtherReadings } else { Proof::Peer }),
        partner: service,
        ..samples.facts(method, samples.counted(is_at_site))
    };
    Some(samples.finding(&Problem::SlowDownstream { is_at_client }, facts, value).below(method))
}

/// Threads that wait for the name service.
fn slow_names<'a>(samples: &ThreadGroup<'a>) -> Option<Found<'a>> {
    let is_at_service = is(WaitCause::NameResolution);
    let (value, tids) = (samples.value(&is_at_service), samples.threads(&is_at_service));
    let share = percent(value, samples.value_with_work());
    let queue = samples.average_threads(value, tids.len());
    if tids.len() < MIN_THREADS || share < MIN_SERVICE_PERCENT || queue < MIN_SERVICE_QUEUE {
        return None;
    }
    let method = samples.main_site(&is_at_service);
    let facts = FindingFacts {
        share: facts::share(share, Whole::TimeOfThreadsWithWork),
        partner: samples.marks.partners.service(&tids),
        ..samples.facts(method, samples.counted(is_at_service))
    };
    Some(samples.finding(&Problem::NameResolution, facts, value).below(method))
}

/// Only for events that have the threads on CPUs as well. A thread that naps waits for a CPU after each nap, on a machine with free
/// ones as well: those that could run all the time are counted.
fn run_queue<'a>(samples: &ThreadGroup<'a>) -> Option<Found<'a>> {
    let mut threads = BTreeMap::<u32, (u64, u64)>::new();
    for (sample, cause) in &samples.samples {
        let (total, could_run) = threads.entry(samples.tid(sample)).or_default();
        sum::add(total, sample.value);
        if sample.state == Some(ThreadState::OnCpu) || *cause == Some(WaitCause::RunQueue) {
            sum::add(could_run, sample.value);
        }
    }
    threads.retain(|_, (total, could_run)| percent(*could_run, *total) >= MIN_COULD_RUN_PERCENT);
    let of_busy = |sample: &Sample| threads.contains_key(&samples.tid(sample));
    let is_runnable = |sample: &Sample, cause| cause == Some(WaitCause::RunQueue) && of_busy(sample);
    let value = samples.value(is_runnable);
    let on_cpu = samples.value(|sample, _| sample.state == Some(ThreadState::OnCpu) && of_busy(sample));
    let share = percent(value, value.saturating_add(on_cpu));
    let queue = samples.average_threads(value, samples.threads(is_runnable).len());
    if on_cpu == 0 || share < MIN_RUN_QUEUE_PERCENT || queue < MIN_RUN_QUEUE {
        return None;
    }
    let facts = FindingFacts {
        share: facts::share(share, Whole::RunnableTime),
        ..samples.facts(None, samples.counted(is_runnable))
    };
    Some(samples.finding(&Problem::RunQueue, facts, value))
}

/// Only for events that have the threads on CPUs as well. Processes that the quota does not throttle can be of another cgroup.
fn cpu_quota<'a>(samples: &ThreadGroup<'a>) -> Option<Found<'a>> {
    let is_throttled = is(WaitCause::CpuQuota);
    let value = samples.value(&is_throttled);
    let processes = samples.processes_of(samples.counted(&is_throttled));
    let process = |sample: &Sample| samples.profile.thread(sample.thread).process;
    let on_cpu = samples
        .value(|sample, _| sample.state == Some(ThreadState::OnCpu) && processes.contains(&process(sample)));
    let share = percent(value, value.saturating_add(on_cpu));
    let queue = samples.average_threads(value, samples.threads(&is_throttled).len());
    if on_cpu == 0 || share < MIN_QUOTA_PERCENT || queue < MIN_THROTTLED {
        return None;
    }
    let facts = FindingFacts {
        share: facts::share(share, Whole::RunnableTime),
        ..samples.facts(None, samples.counted(is_throttled))
    };
    Some(samples.finding(&Problem::CpuQuota, facts, value))
}

fn disk<'a>(samples: &ThreadGroup<'a>) -> Option<Found<'a>> {
    let is_at_file = is(WaitCause::FileIo);
    let value = samples.value(&is_at_file);
    let share = percent(value, samples.value_with_work());
    let queue = samples.average_threads(value, samples.threads(&is_at_file).len());
    if share < MIN_DISK_PERCENT || queue < MIN_DISK_QUEUE {
        return None;
    }
    let method = samples.main_site(&is_at_file);
    let facts = FindingFacts {
        share: facts::share(share, Whole::TimeOfThreadsWithWork),
        certainty: Certainty::Likely(Proof::DiskRequests),
        partner: samples.marks.partners.device(&samples.threads(&is_at_file)),
        ..samples.facts(method, samples.counted(is_at_file))
    };
    Some(samples.finding(&Problem::Disk, facts, value))
}
