//! Finds the threads that can own a lock that other threads wait for: those that stay in one method meanwhile.
//!
//! Samples do not show the owner of a lock. Where the memory of the process has not shown it either, a thread is the more likely the
//! owner, the closer its methods are to those that wait: a thread in the same method, a thread in a method of the same type, any
//! other thread.

use std::collections::{BTreeMap, BTreeSet};

use profiler_profile::Sample;

use super::{known_owners, managed::ManagedOwner};
use crate::{
    WaitCause,
    frames::declaring_type,
    pattern::matches_any,
    rules::SERVICE_THREADS,
    thread_group::ThreadGroup,
    thread_time::{Activity, Period, ThreadTime},
};

/// What a thread is in that has no functions of the application with names: they are inlined, or their module has no symbols.
const CODE_WITHOUT_NAMES: &str = "code without names";

/// How the methods of a thread are related to those in which other threads wait for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Relation {
    /// The thread owns a lock, and others wait for it.
    Known,
    SameMethod,
    SameType,
    None,
}

/// A thread that can own the lock.
pub(crate) struct Owner<'a> {
    pub(crate) tid: u32,
    pub(crate) comm: &'a str,
    /// The thread as the runtime has it, where it was read with the locks that it owned.
    pub(crate) managed: Option<ManagedOwner<'a>>,
    /// The outermost method that can hold the lock.
    pub(crate) method: &'a str,
    /// The method nearest to the leaf in which the thread stays.
    pub(crate) innermost: &'a str,
    pub(crate) activity: Activity,
    /// The share of its time that it does this.
    pub(crate) percent: f64,
}

/// The threads that can own the lock, of the closest relation that a thread has.
pub(crate) struct Owners<'a> {
    pub(crate) relation: Relation,
    pub(crate) threads: Vec<Owner<'a>>,
    /// The managed threads that wait themselves and own the locks for which others wait.
    pub(crate) waiting: Vec<ManagedOwner<'a>>,
}

impl<'a> Owners<'a> {
    /// Of these threads, which wait for none of the locks, those that can own one. `methods` are those in which the threads `waiting`
    /// wait. Where each owner is known to be one of these, there is no other one.
    pub(super) fn of(
        samples: &ThreadGroup<'a>,
        threads: &BTreeMap<u32, Vec<(&Sample, Option<WaitCause>)>>,
        methods: &BTreeSet<&str>,
        period: &Period,
        waiting: &BTreeSet<u32>,
    ) -> Self {
        let known = known_owners::find(samples, period, waiting.len());
        let known_owners = known.difference(waiting).map(|tid| {
            threads.get(tid).and_then(|of_thread| describe(samples, *tid, of_thread, methods, period))
        });
        if let Some(threads) = known_owners.collect::<Option<Vec<_>>>()
            && !known.is_empty()
        {
            let waiting = known.intersection(waiting).filter_map(|tid| managed(samples, *tid, period));
            return Self { relation: Relation::Known, threads, waiting: waiting.collect() };
        }
        let mut owners: Vec<_> = threads
            .iter()
            .filter_map(|(tid, of_thread)| find(samples, *tid, of_thread, methods, period))
            .collect();
        let relation = owners.iter().map(|(relation, _)| *relation).min().unwrap_or(Relation::None);
        owners.retain(|(of_owner, _)| *of_owner == relation);
        let threads = owners.into_iter().map(|(_, owner)| owner).collect();
        Self { relation, threads, waiting: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }
}

/// A thread of the process as the runtime has it.
fn managed<'a>(samples: &ThreadGroup<'a>, tid: u32, period: &Period) -> Option<ManagedOwner<'a>> {
    ManagedOwner::find(samples.profile, samples.process, tid, period.end_ns)
}

/// A thread that owns a lock, if it is known what it does. Its wait can be like that of a main loop, but it is one within its work.
fn describe<'a>(
    samples: &ThreadGroup<'a>,
    tid: u32,
    of_thread: &[(&Sample, Option<WaitCause>)],
    methods: &BTreeSet<&str>,
    period: &Period,
) -> Option<Owner<'a>> {
    let time = ThreadTime::of(samples, of_thread, period)?;
    let (activity, percent) = time.activity_or_idle(samples, period)?;
    let stayed = time.methods(samples);
    let (_, comm) = samples.is_main_thread_and_name(of_thread.first()?.0);
    let innermost = stayed.first().copied().unwrap_or(CODE_WITHOUT_NAMES);
    let types: BTreeSet<_> = methods.iter().filter_map(|method| declaring_type(method)).collect();
    let is_of_type = |method: &&str| declaring_type(method).is_some_and(|found| types.contains(found));
    let outermost_first = || stayed.iter().rev().copied();
    let taking = outermost_first().find(|method| methods.contains(method));
    let method = taking.or_else(|| outermost_first().find(is_of_type)).unwrap_or(innermost);
    let managed = managed(samples, tid, period);
    Some(Owner { tid, comm, managed, method, innermost, activity, percent })
}

/// The thread as an owner of the lock, if it can be one.
fn find<'a>(
    samples: &ThreadGroup<'a>,
    tid: u32,
    of_thread: &[(&Sample, Option<WaitCause>)],
    methods: &BTreeSet<&str>,
    period: &Period,
) -> Option<(Relation, Owner<'a>)> {
    let profile = samples.profile;
    let time = ThreadTime::of(samples, of_thread, period)?;
    let (activity, percent) = time
        .activity(samples, period)
        .filter(|(activity, _)| *activity != Activity::Waits(WaitCause::Lock))?;
    let stayed = time.methods(samples);
    let (is_main, comm) = samples.is_main_thread_and_name(of_thread.first()?.0);
    let is_unnamed = !time.has_methods(samples) && !matches_any(SERVICE_THREADS, comm);
    let innermost = stayed.first().copied().or_else(|| is_unnamed.then_some(CODE_WITHOUT_NAMES))?;
    let managed = managed(samples, tid, period);
    let owner = Owner { tid, comm, managed, method: innermost, innermost, activity, percent };
    let outermost_first = || stayed.iter().rev();
    if let Some(method) = outermost_first().find(|method| methods.contains(*method)) {
        let may_hold = !time.waits_on_condition(profile);
        return may_hold.then_some((Relation::SameMethod, Owner { method, ..owner }));
    }
    // The program's entry method starts threads and waits for their end.
    let mut without_entry = outermost_first().skip(usize::from(is_main));
    // Threads that wait in several methods of a type can wait for each other.
    let is_one_method = methods.len() == 1;
    let types: BTreeSet<_> = methods.iter().filter_map(|method| declaring_type(method)).collect();
    let is_of_type = |method: &&&str| declaring_type(method).is_some_and(|found| types.contains(found));
    if let Some(method) = without_entry.find(is_of_type).filter(|_| is_one_method) {
        let may_hold = !time.waits_on_condition(profile);
        return may_hold.then_some((Relation::SameType, Owner { method, ..owner }));
    }
    let proceeds = match activity {
        Activity::Runs | Activity::WaitsForCpu => true,
        Activity::Waits(cause) => {
            use WaitCause::{ChildProcess, FileIo, NameResolution, Sleep, SocketIo};
            !is_main && matches!(cause, ChildProcess | FileIo | NameResolution | Sleep | SocketIo)
        }
    };
    proceeds.then_some((Relation::None, owner))
}
