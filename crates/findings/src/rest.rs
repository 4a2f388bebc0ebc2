//! Finds processes that have nothing to do: their waits for times are idle, and those in virtual machines whose methods have no names.

use std::collections::HashMap;

use profiler_profile::{ProcessId, Profile, sum};

use crate::{WaitCause, Waits, weights::percent};

/// How a process rests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// It has something to do.
    None,
    /// It does nothing but wait for work and for times.
    Sleeps,
    /// It does nothing but wait for work, which another process or a signal brings.
    AwaitsOthers,
}

/// The most time of a process that sleeps in which it does something else, percent: what it does after each sleep.
const MAX_ACTIVE_PERCENT: f64 = 5.0;

/// The most time of a process that awaits others in which one of its threads does something else, sleeps included, percent of the time of
/// one thread: a single thread can hold what all the others wait for.
const MAX_THREAD_PERCENT: f64 = 5.0;

#[derive(Default)]
struct Time {
    total: u64,
    sleeping: u64,
    hidden: u64,
    active: u64,
    is_at_work: bool,
    is_for_others: bool,
}

impl Time {
    fn rest(&self, longest_of_thread: u64) -> Rest {
        let but_hidden = self.active.saturating_add(self.sleeping);
        let active = self.active.saturating_add(self.hidden);
        if self.is_at_work {
            return Rest::None;
        }
        if self.is_for_others && percent(but_hidden, longest_of_thread) <= MAX_THREAD_PERCENT {
            return Rest::AwaitsOthers;
        }
        if percent(active, self.total) <= MAX_ACTIVE_PERCENT { Rest::Sleeps } else { Rest::None }
    }
}

/// How the process of each thread rests.
pub(crate) fn resting_threads(profile: &Profile, waits: &Waits) -> Vec<Rest> {
    let mut processes = HashMap::<ProcessId, Time>::new();
    let mut threads = vec![0; profile.threads().len()];
    for sample in profile.samples().iter().filter(|sample| sample.state.is_some()) {
        sum::add(&mut threads[sample.thread.index()], sample.value);
        let time = processes.entry(profile.thread(sample.thread).process).or_default();
        sum::add(&mut time.total, sample.value);
        match waits.cause(sample) {
            Some(WaitCause::Idle) => time.is_for_others |= waits.is_for_others(sample),
            Some(WaitCause::Sleep) => {
                time.is_at_work |= waits.sleeps_at_work(sample);
                sum::add(&mut time.sleeping, sample.value);
            }
            Some(WaitCause::ConditionVariable) if waits.is_hidden(sample) => {
                sum::add(&mut time.hidden, sample.value);
            }
            _ => sum::add(&mut time.active, sample.value),
        }
    }
    let mut longest = HashMap::<ProcessId, u64>::new();
    for (thread, total) in profile.threads().zip(&threads) {
        let longest = longest.entry(thread.process).or_default();
        *longest = (*longest).max(*total);
    }
    let rest = |process: &ProcessId| {
        let time = processes.get(process)?;
        Some(time.rest(longest.get(process).copied().unwrap_or_default()))
    };
    profile.threads().map(|thread| rest(&thread.process).unwrap_or(Rest::None)).collect()
}
