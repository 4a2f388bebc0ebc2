//! Finds the threads that can own a lock that other threads wait for: those that stay in one method meanwhile.
//!
//! Samples do not show the owner of a lock. A thread is the more likely the owner, the closer its methods are to those that wait:
//! a thread in the same method, a thread in a method of the same type, any other thread.

use std::collections::{BTreeMap, BTreeSet};

use profiler_profile::{Sample, Sampling, Stack, StackId, ThreadState, sum};

use crate::{
    WaitCause,
    frames::{application_frames, application_methods, declaring_type, function, own_frames},
    pattern::matches_any,
    process::{ProcessSamples, percent},
    rules::CONDITION_WAITS,
};

/// The least share of its samples in which a thread is in a method in which it stays. A stack can be cut now and then.
const MIN_STAY_PERCENT: f64 = 90.0;

/// The least share of the period that the samples of a thread cover. Another thread began later, or ended.
const MIN_COVERED_PERCENT: f64 = 80.0;

/// The least share of a period without a wait in which a thread runs, by an event that has waits alone.
const MIN_RUNNING_PERCENT: f64 = 50.0;

/// The time in which other threads wait for the lock, nanoseconds since the start.
pub(super) struct Period {
    pub(super) begin_ns: u64,
    pub(super) end_ns: u64,
}

/// How the methods of a thread are related to those in which other threads wait for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Relation {
    SameMethod,
    SameType,
    None,
}

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Activity {
    /// It runs, or waits for a CPU.
    Runs,
    Waits(WaitCause),
}

/// A thread that can own the lock.
pub(super) struct Owner<'a> {
    pub(super) tid: u32,
    pub(super) comm: &'a str,
    /// The outermost method that can hold the lock.
    pub(super) method: &'a str,
    /// The method nearest to the leaf in which the thread stays.
    pub(super) innermost: &'a str,
    pub(super) activity: Activity,
    /// The share of its time that it does this.
    pub(super) percent: f64,
}

/// The threads that can own the lock, of the closest relation that a thread has.
pub(super) struct Owners<'a> {
    pub(super) relation: Relation,
    pub(super) threads: Vec<Owner<'a>>,
}

impl<'a> Owners<'a> {
    /// Of these threads, which wait for none of the locks, those that can own one. `methods` are those that wait.
    pub(super) fn of(
        samples: &ProcessSamples<'a>,
        threads: &BTreeMap<u32, Vec<(&Sample, Option<WaitCause>)>>,
        methods: &BTreeSet<&str>,
        period: &Period,
    ) -> Self {
        let mut owners: Vec<_> = threads
            .iter()
            .filter_map(|(tid, of_thread)| find(samples, *tid, of_thread, methods, period))
            .collect();
        let relation = owners.iter().map(|(relation, _)| *relation).min().unwrap_or(Relation::None);
        owners.retain(|(of_owner, _)| *of_owner == relation);
        Self { relation, threads: owners.into_iter().map(|(_, owner)| owner).collect() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }
}

/// The thread as an owner of the lock, if it can be one.
fn find<'a>(
    samples: &ProcessSamples<'a>,
    tid: u32,
    of_thread: &[(&Sample, Option<WaitCause>)],
    methods: &BTreeSet<&str>,
    period: &Period,
) -> Option<(Relation, Owner<'a>)> {
    let profile = samples.profile;
    let time = ThreadTime::of(samples, of_thread, period)?;
    let (activity, percent) = time.activity(samples, period)?;
    let stayed = time.methods(samples);
    let (is_main, comm) = samples.is_main_thread_and_name(of_thread.first()?.0);
    let innermost = *stayed.first()?;
    let outermost_first = || stayed.iter().rev();
    if let Some(method) = outermost_first().find(|method| methods.contains(*method)) {
        let may_hold = !time.waits_on_condition(profile);
        return may_hold
            .then_some((Relation::SameMethod, Owner { tid, comm, method, innermost, activity, percent }));
    }
    // The program's entry method starts threads and waits for their end.
    let mut without_entry = outermost_first().skip(usize::from(is_main));
    let types: BTreeSet<_> = methods.iter().filter_map(|method| declaring_type(method)).collect();
    let is_of_type = |method: &&&str| declaring_type(method).is_some_and(|found| types.contains(found));
    if let Some(method) = without_entry.find(is_of_type) {
        let may_hold = !time.waits_on_condition(profile);
        return may_hold
            .then_some((Relation::SameType, Owner { tid, comm, method, innermost, activity, percent }));
    }
    let proceeds = match activity {
        Activity::Runs => true,
        Activity::Waits(cause) => {
            !is_main && matches!(cause, WaitCause::Sleep | WaitCause::SocketIo | WaitCause::FileIo)
        }
    };
    let owner = Owner { tid, comm, method: innermost, innermost, activity, percent };
    proceeds.then_some((Relation::None, owner))
}

/// The samples of a thread in a period.
struct ThreadTime {
    activities: BTreeMap<Option<Activity>, u64>,
    stacks: BTreeMap<StackId, u64>,
    total_ns: u64,
    period_ns: u64,
}

impl ThreadTime {
    /// `None` without a sample in the period.
    fn of(
        samples: &ProcessSamples<'_>,
        of_thread: &[(&Sample, Option<WaitCause>)],
        period: &Period,
    ) -> Option<Self> {
        let unit_ns = samples.profile.event(samples.event).unit_ns()?;
        let period_ns = period.end_ns.saturating_sub(period.begin_ns);
        let mut time = Self { activities: BTreeMap::new(), stacks: BTreeMap::new(), total_ns: 0, period_ns };
        for (sample, cause) in of_thread {
            let end_ns =
                sample.time_ns.saturating_add(sample.value.saturating_mul(unit_ns)).min(period.end_ns);
            let in_period_ns = end_ns.saturating_sub(sample.time_ns.max(period.begin_ns));
            sum::add(time.activities.entry(activity(sample, *cause)).or_default(), in_period_ns);
            sum::add(time.stacks.entry(sample.stack).or_default(), in_period_ns);
            sum::add(&mut time.total_ns, in_period_ns);
        }
        (time.total_ns > 0).then_some(time)
    }

    /// What the thread does most of the time, and the share of its time; `None` for a wait that holds no lock, and where the
    /// thread is not there for the whole period.
    fn activity(&self, samples: &ProcessSamples<'_>, period: &Period) -> Option<(Activity, f64)> {
        let has_waits_alone =
            matches!(samples.profile.event(samples.event).sampling, Sampling::Durations { .. });
        let running_ns = self.period_ns.saturating_sub(self.total_ns);
        let running = percent(running_ns, period.end_ns.saturating_sub(period.begin_ns));
        if has_waits_alone && running >= MIN_RUNNING_PERCENT {
            return Some((Activity::Runs, running));
        }
        if !has_waits_alone && percent(self.total_ns, self.period_ns) < MIN_COVERED_PERCENT {
            return None;
        }
        let (activity, value) = self.activities.iter().max_by_key(|(_, value)| **value)?;
        Some(((*activity)?, percent(*value, self.total_ns)))
    }

    /// The methods of the application in which the thread stays, leaf first.
    fn methods<'a>(&self, samples: &ProcessSamples<'a>) -> Vec<&'a str> {
        let of_stack = |stack: &StackId| -> Vec<&'a str> {
            application_methods(samples.profile, samples.profile.stack(*stack)).collect()
        };
        let mut values = BTreeMap::<&str, u64>::new();
        for (stack, value) in &self.stacks {
            for method in of_stack(stack).into_iter().collect::<BTreeSet<_>>() {
                sum::add(values.entry(method).or_default(), *value);
            }
        }
        let stays = |method: &&str| {
            values.get(method).is_some_and(|value| percent(*value, self.total_ns) >= MIN_STAY_PERCENT)
        };
        let most = self.stacks.iter().max_by_key(|(_, value)| **value);
        most.map(|(stack, _)| of_stack(stack).into_iter().filter(stays).collect()).unwrap_or_default()
    }

    /// Whether the application waits on a condition variable, which releases its lock.
    fn waits_on_condition(&self, profile: &profiler_profile::Profile) -> bool {
        let most = self.stacks.iter().max_by_key(|(_, value)| **value);
        most.is_some_and(|(stack, _)| waits_on_condition(profile, profile.stack(*stack)))
    }
}

fn waits_on_condition(profile: &profiler_profile::Profile, stack: &Stack) -> bool {
    let Some(innermost) = application_frames(profile, stack).next() else { return false };
    let own = own_frames(profile, stack);
    let callee = innermost.checked_sub(1).and_then(|index| own.get(index));
    callee.is_some_and(|id| matches_any(CONDITION_WAITS, function(profile, profile.frame(*id))))
}

/// What the thread of a sample does; `None` where it cannot hold a lock that others wait for, or waits for one itself.
fn activity(sample: &Sample, cause: Option<WaitCause>) -> Option<Activity> {
    match (sample.state, cause) {
        (Some(ThreadState::OnCpu), _) | (_, Some(WaitCause::RunQueue | WaitCause::CpuQuota)) => {
            Some(Activity::Runs)
        }
        (_, None | Some(WaitCause::Idle | WaitCause::Lock)) => None,
        (_, Some(cause)) => Some(Activity::Waits(cause)),
    }
}
