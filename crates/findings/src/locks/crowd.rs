//! Finds what many threads wait for at a time: a lock of the program, the lock of its memory map or of a file, room in a queue.

use profiler_profile::{FindingKind, Sample};

use super::stuck::StuckThreads;
use crate::{
    WaitCause,
    databases::GroupCommit,
    found::Found,
    process::{ProcessSamples, percent},
    waiting::is,
};

/// The fewest threads. Two threads take turns without a queue.
const MIN_THREADS: usize = 3;

/// The least number of threads that wait at a time, on average: a second one means that the lock is taken again as soon as it
/// is released.
const MIN_QUEUE: f64 = 2.0;

/// The least share of the time of threads with work that is spent at a lock. Less costs less than a fifth of throughput.
const MIN_LOCK_PERCENT: f64 = 20.0;

/// The least share of the time of threads with work that is spent before a full queue: more than all other work. Producers that
/// wait for less than that are what a limit of a queue is for.
const MIN_QUEUE_PERCENT: f64 = 50.0;

/// Threads that wait for one thing.
struct Crowd<'a> {
    /// The method of the application below which most of them wait, where it is known.
    method: Option<&'a str>,
    value: u64,
    threads: usize,
    /// How many wait at a time.
    queue: f64,
    /// Of the time of threads with work.
    percent: f64,
}

impl<'a> Crowd<'a> {
    fn of(
        samples: &ProcessSamples<'a>,
        method: Option<&'a str>,
        is_counted: impl Fn(&Sample, Option<WaitCause>) -> bool,
    ) -> Self {
        let value = samples.value(&is_counted);
        let threads = samples.threads(&is_counted).len();
        let percent = percent(value, samples.value_with_work());
        Self { method, value, threads, queue: samples.average_threads(value, threads), percent }
    }

    /// The threads of this cause, below whatever method.
    fn with_cause(samples: &ProcessSamples<'a>, cause: WaitCause) -> Self {
        Self::of(samples, samples.main_site(is(cause)), is(cause))
    }

    fn is_large(&self, min_percent: f64) -> bool {
        self.threads >= MIN_THREADS && self.percent >= min_percent && self.queue >= MIN_QUEUE
    }

    fn text(&self, waits: &str) -> String {
        format!(
            "{:.1} of {} threads at a time {waits} ({:.0} % of the time of threads with work)",
            self.queue, self.threads, self.percent
        )
    }

    /// The method behind these words; empty without a method.
    fn method_after(&self, words: &str) -> String {
        self.method.map(|method| format!("{words}{method}")).unwrap_or_default()
    }
}

pub(super) fn findings<'a>(
    samples: &ProcessSamples<'a>,
    stuck: Option<&StuckThreads<'_>>,
    commit: Option<&GroupCommit<'_>>,
) -> Vec<Found<'a>> {
    let finders = [memory_map, file_lock, full_queue, connections, interpreter_lock];
    let mut findings: Vec<_> = finders.into_iter().filter_map(|find| find(samples)).collect();
    findings.extend(lock(samples, stuck, commit));
    findings
}

/// Threads that get no lock at all do not take turns, and those of a group commit wait for a disk. Threads without a method wait
/// for unknown locks.
fn lock<'a>(
    samples: &ProcessSamples<'a>,
    stuck: Option<&StuckThreads<'_>>,
    commit: Option<&GroupCommit<'_>>,
) -> Option<Found<'a>> {
    let is_stuck = |method| stuck.is_some_and(|stuck| stuck.has_method(method));
    let is_lock = |sample: &Sample, cause| {
        cause == Some(WaitCause::Lock)
            && !samples.marks.gil.contains(sample)
            && !commit.is_some_and(|commit| commit.has(samples, sample))
    };
    let site = samples.sites(is_lock).into_iter().find(|site| !is_stuck(Some(site.method)));
    let is_unnamed = |sample: &Sample, cause| is_lock(sample, cause) && samples.method(sample).is_none();
    let unnamed = Crowd::of(samples, None, is_unnamed);
    let crowd = match site {
        Some(site) if site.value >= unnamed.value || is_stuck(None) => {
            Crowd::of(samples, Some(site.method), |sample, cause| {
                is_lock(sample, cause) && samples.method(sample) == Some(site.method)
            })
        }
        _ if is_stuck(None) => return None,
        _ => unnamed,
    };
    if !crowd.is_large(MIN_LOCK_PERCENT) {
        return None;
    }
    let waits = match crowd.method {
        Some(method) => format!("wait for the lock in {method}"),
        None => "wait for locks".to_owned(),
    };
    let remedy = "hold the lock for a shorter time, or divide what it protects".to_owned();
    let found = samples.finding(FindingKind::LockConvoy, &crowd.text(&waits), remedy, crowd.value);
    Some(found.below(crowd.method))
}

/// The global interpreter lock of Python: the thread that has it computes.
fn interpreter_lock<'a>(samples: &ProcessSamples<'a>) -> Option<Found<'a>> {
    let is_waiting =
        |sample: &Sample, cause| cause == Some(WaitCause::Lock) && samples.marks.gil.contains(sample);
    let crowd = Crowd::of(samples, None, is_waiting);
    if !crowd.is_large(MIN_LOCK_PERCENT) {
        return None;
    }
    let evidence = crowd.text("wait for the global interpreter lock of Python");
    let remedy = "compute in several processes, or in native code that releases the lock".to_owned();
    Some(samples.finding(FindingKind::LockConvoy, &evidence, remedy, crowd.value))
}

fn memory_map<'a>(samples: &ProcessSamples<'a>) -> Option<Found<'a>> {
    let crowd = Crowd::with_cause(samples, WaitCause::MemoryMap);
    if !crowd.is_large(MIN_LOCK_PERCENT) {
        return None;
    }
    let evidence = format!(
        "{}; threads map and unmap memory at the same time{}",
        crowd.text("wait for the lock of the memory map of the process"),
        crowd.method_after(" below ")
    );
    let remedy = "reuse memory in place of mapping and unmapping it".to_owned();
    Some(samples.finding(FindingKind::LockConvoy, &evidence, remedy, crowd.value))
}

fn file_lock<'a>(samples: &ProcessSamples<'a>) -> Option<Found<'a>> {
    let crowd = Crowd::with_cause(samples, WaitCause::FileLock);
    if !crowd.is_large(MIN_LOCK_PERCENT) {
        return None;
    }
    let evidence = format!(
        "{}{}",
        crowd.text("wait for the lock of a file or a directory that other threads change"),
        crowd.method_after(", most below ")
    );
    let remedy = "write to a file from one thread, or to one file for each thread".to_owned();
    Some(samples.finding(FindingKind::LockConvoy, &evidence, remedy, crowd.value))
}

fn connections<'a>(samples: &ProcessSamples<'a>) -> Option<Found<'a>> {
    let crowd = Crowd::with_cause(samples, WaitCause::Connection);
    if !crowd.is_large(MIN_LOCK_PERCENT) {
        return None;
    }
    let evidence = format!(
        "{}{}",
        crowd.text("wait for a connection, as all that the limit of their pool allows are in use"),
        crowd.method_after(", most below ")
    );
    let remedy = "raise the limit, as MaxConnectionsPerServer or Max Pool Size, or hold connections for a shorter time";
    let found = samples.finding(FindingKind::ConnectionLimit, &evidence, remedy.to_owned(), crowd.value);
    Some(found.below(crowd.method))
}

fn full_queue<'a>(samples: &ProcessSamples<'a>) -> Option<Found<'a>> {
    let crowd = Crowd::with_cause(samples, WaitCause::FullQueue);
    if !crowd.is_large(MIN_QUEUE_PERCENT) {
        return None;
    }
    let of_console = samples.value(|sample, cause| {
        cause == Some(WaitCause::FullQueue) && samples.marks.console_loggers.contains(sample)
    });
    let (waits, remedy) = if 2 * of_console > crowd.value {
        (
            "wait for room in the queue of the console logger, which one thread writes to the standard output",
            "log less, or read the standard output faster",
        )
    } else {
        ("wait for room in a full queue", "take more from the queue at a time, by more or faster consumers")
    };
    let evidence = format!("{}{}", crowd.text(waits), crowd.method_after(", most below "));
    let found = samples.finding(FindingKind::FullQueue, &evidence, remedy.to_owned(), crowd.value);
    Some(found.below(crowd.method))
}
