//! Finds threads that take turns at waiting for work: one of them, the leader, waits for a connection or an event, and the others
//! wait for the lock that it holds meanwhile. All of them are idle.
//!
//! Apache's accept mutex is one such lock, and each accept or poll of a pool of threads below a lock.

use std::collections::{BTreeMap, BTreeSet};

use profiler_profile::{Profile, Stack, sum};

use crate::{
    WaitCause, Waits,
    frames::{application_methods, lock_method},
    weights::percent,
};

/// Functions of the application, at most, between the one that takes the lock and the wait for work: `apr_socket_accept`.
const MAX_LEADER_DEPTH: usize = 2;

/// The least share of the time in the function, but for that at the lock, in which a thread waits for work.
const MIN_IDLE_PERCENT: f64 = 50.0;

/// The time in a function that takes a lock.
#[derive(Default)]
struct LeaderTime {
    idle: u64,
    other: u64,
}

/// The functions whose lock is held by a thread that waits for work, by name.
pub(crate) fn leading_functions<'a>(profile: &'a Profile, waits: &Waits) -> BTreeSet<&'a str> {
    let mut functions = candidates(profile, waits);
    if functions.is_empty() {
        return BTreeSet::new();
    }
    // The candidate nearest to the leaf, and the number of functions of the application before it. Stacks are much fewer than samples.
    let nearest = |stack| {
        application_methods(profile, stack).enumerate().find(|(_, method)| functions.contains_key(method))
    };
    let nearest: Vec<_> = profile.stacks().map(nearest).collect();
    for sample in profile.samples() {
        let Some((depth, method)) = nearest[sample.stack.index()] else { continue };
        if sample.state.is_none() || waits.cause(sample) == Some(WaitCause::Lock) {
            continue;
        }
        let Some(time) = functions.get_mut(method) else { continue };
        let is_leader = waits.can_lead(sample) && depth <= MAX_LEADER_DEPTH;
        sum::add(if is_leader { &mut time.idle } else { &mut time.other }, sample.value);
    }
    let leads = |time: &LeaderTime| {
        time.idle > 0 && percent(time.idle, time.idle.saturating_add(time.other)) >= MIN_IDLE_PERCENT
    };
    functions.into_iter().filter(|(_, time)| leads(time)).map(|(function, _)| function).collect()
}

/// Whether a thread with this stack waits for work below one of these functions.
pub(crate) fn leads(profile: &Profile, stack: &Stack, leading: &BTreeSet<&str>) -> bool {
    application_methods(profile, stack).take(MAX_LEADER_DEPTH + 1).any(|method| leading.contains(method))
}

/// The functions in which threads wait for locks, and others for work.
fn candidates<'a>(profile: &'a Profile, waits: &Waits) -> BTreeMap<&'a str, LeaderTime> {
    let with_cause = |cause| {
        let stacks = profile.stacks().zip(waits.causes());
        stacks.filter(move |(_, found)| *found == cause).map(|(stack, _)| stack)
    };
    let leaders: BTreeSet<_> = with_cause(WaitCause::Idle)
        .flat_map(|stack: &Stack| application_methods(profile, stack).take(MAX_LEADER_DEPTH + 1))
        .collect();
    if leaders.is_empty() {
        return BTreeMap::new();
    }
    let lock_methods = with_cause(WaitCause::Lock).filter_map(|stack| lock_method(profile, stack));
    lock_methods
        .filter(|method| leaders.contains(method))
        .map(|method| (method, LeaderTime::default()))
        .collect()
}
