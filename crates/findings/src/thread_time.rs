//! What a thread does in a period, and the methods in which it stays meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use profiler_profile::{Profile, Sample, Sampling, Stack, StackId, ThreadState, sum};

use crate::{
    WaitCause,
    frames::{application_frames, application_methods, function, own_frames},
    pattern::matches_any,
    rules::CONDITION_WAITS,
    thread_group::ThreadGroup,
    weights::percent,
};

/// The least share of its samples in which a thread is in a method in which it stays. A stack can be cut now and then.
const MIN_STAY_PERCENT: f64 = 90.0;

/// The least share of the period that the samples of a thread cover. Another thread began later, or ended.
const MIN_COVERED_PERCENT: f64 = 80.0;

/// The least share of a period without a wait in which a thread runs, by an event that has waits alone.
const MIN_RUNNING_PERCENT: f64 = 50.0;

/// The least share of its time that a thread is on a CPU, for its stacks there to stand for all.
const MIN_ON_CPU_PERCENT: f64 = 10.0;

/// A part of the measurement, nanoseconds since the start.
pub(crate) struct Period {
    pub(crate) begin_ns: u64,
    pub(crate) end_ns: u64,
}

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Activity {
    /// It runs.
    Runs,
    /// It runs for less time than it waits for a CPU.
    WaitsForCpu,
    Waits(WaitCause),
}

impl Activity {
    /// The activity as text: `99 % on a CPU`, `sleeps`.
    pub(crate) fn text(self, percent: f64) -> String {
        let text = match self {
            Self::Runs => return format!("{percent:.0} % on a CPU"),
            Self::WaitsForCpu => return format!("{percent:.0} % on a CPU or waiting for one"),
            Self::Waits(WaitCause::Lock) => "waits for a lock",
            Self::Waits(WaitCause::Sleep) => "sleeps",
            Self::Waits(WaitCause::SocketIo) => "reads a socket",
            Self::Waits(WaitCause::FileIo) => "waits for a file",
            Self::Waits(WaitCause::ChildProcess) => "waits for a child process",
            Self::Waits(WaitCause::Pipe) => "waits for a pipe",
            Self::Waits(WaitCause::NameResolution) => "waits for the address of a host",
            Self::Waits(WaitCause::Barrier) => "waits at a barrier",
            Self::Waits(WaitCause::SyncOverAsync) => "waits for a task",
            Self::Waits(WaitCause::GcSuspension) => "is suspended for a garbage collection",
            Self::Waits(WaitCause::ConditionVariable) => "waits for a signal of another thread",
            Self::Waits(_) => "waits",
        };
        text.to_owned()
    }
}

/// The samples of a thread in a period.
#[derive(Default)]
pub(crate) struct ThreadTime {
    activities: BTreeMap<Option<Activity>, u64>,
    stacks: BTreeMap<StackId, u64>,
    stacks_on_cpu: BTreeMap<StackId, u64>,
    total_ns: u64,
    period_ns: u64,
}

impl ThreadTime {
    /// `None` without a sample in the period.
    pub(crate) fn of(
        samples: &ThreadGroup<'_>,
        of_thread: &[(&Sample, Option<WaitCause>)],
        period: &Period,
    ) -> Option<Self> {
        let unit_ns = samples.profile.event(samples.event).unit_ns()?;
        let period_ns = period.end_ns.saturating_sub(period.begin_ns);
        let mut time = Self { period_ns, ..Self::default() };
        for (sample, cause) in of_thread {
            let end_ns =
                sample.time_ns.saturating_add(sample.value.saturating_mul(unit_ns)).min(period.end_ns);
            let in_period_ns = end_ns.saturating_sub(sample.time_ns.max(period.begin_ns));
            sum::add(time.activities.entry(activity(sample, *cause)).or_default(), in_period_ns);
            sum::add(time.stacks.entry(sample.stack).or_default(), in_period_ns);
            if sample.state == Some(ThreadState::OnCpu) {
                sum::add(time.stacks_on_cpu.entry(sample.stack).or_default(), in_period_ns);
            }
            sum::add(&mut time.total_ns, in_period_ns);
        }
        (time.total_ns > 0).then_some(time)
    }

    /// [`activity_or_idle`](Self::activity_or_idle) of a thread that does not wait for work.
    pub(crate) fn activity(&self, samples: &ThreadGroup<'_>, period: &Period) -> Option<(Activity, f64)> {
        let activity = self.activity_or_idle(samples, period);
        activity.filter(|(activity, _)| *activity != Activity::Waits(WaitCause::Idle))
    }

    /// What the thread does most of the time, and the share of its time; `None` where it is not there for the whole period.
    pub(crate) fn activity_or_idle(
        &self,
        samples: &ThreadGroup<'_>,
        period: &Period,
    ) -> Option<(Activity, f64)> {
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
        let activity = match (*activity)? {
            Activity::Runs if 2 * self.on_cpu_ns() < *value => Activity::WaitsForCpu,
            activity => activity,
        };
        Some((activity, percent(*value, self.total_ns)))
    }

    /// The methods of the application in which the thread stays, leaf first.
    pub(crate) fn methods<'a>(&self, samples: &ThreadGroup<'a>) -> Vec<&'a str> {
        let of_stack = |stack: &StackId| -> Vec<&'a str> {
            application_methods(samples.profile, samples.profile.stack(*stack)).collect()
        };
        let stacks = self.whole_stacks();
        let total_ns = sum::of(stacks.values().copied());
        let mut values = BTreeMap::<&str, u64>::new();
        for (stack, value) in stacks {
            for method in of_stack(stack).into_iter().collect::<BTreeSet<_>>() {
                sum::add(values.entry(method).or_default(), *value);
            }
        }
        let stays = |method: &&str| {
            values.get(method).is_some_and(|value| percent(*value, total_ns) >= MIN_STAY_PERCENT)
        };
        let most = stacks.iter().max_by_key(|(_, value)| **value);
        most.map(|(stack, _)| of_stack(stack).into_iter().filter(stays).collect()).unwrap_or_default()
    }

    /// Whether one of its stacks has a method of the application.
    pub(crate) fn has_methods(&self, samples: &ThreadGroup<'_>) -> bool {
        let profile = samples.profile;
        self.stacks.keys().any(|stack| application_methods(profile, profile.stack(*stack)).next().is_some())
    }

    fn on_cpu_ns(&self) -> u64 {
        sum::of(self.stacks_on_cpu.values().copied())
    }

    /// The stacks with all of their frames: those of a thread on a CPU, where it has enough of them. The stack of a thread that was
    /// displaced within a method can lack a caller.
    fn whole_stacks(&self) -> &BTreeMap<StackId, u64> {
        let is_enough = percent(self.on_cpu_ns(), self.total_ns) >= MIN_ON_CPU_PERCENT;
        if is_enough { &self.stacks_on_cpu } else { &self.stacks }
    }

    /// Whether the application waits on a condition variable, which releases its lock.
    pub(crate) fn waits_on_condition(&self, profile: &Profile) -> bool {
        let most = self.stacks.iter().max_by_key(|(_, value)| **value);
        most.is_some_and(|(stack, _)| waits_on_condition(profile, profile.stack(*stack)))
    }
}

fn waits_on_condition(profile: &Profile, stack: &Stack) -> bool {
    let Some(innermost) = application_frames(profile, stack).next() else { return false };
    let own = own_frames(profile, stack);
    let callee = innermost.checked_sub(1).and_then(|index| own.get(index));
    callee.is_some_and(|id| matches_any(CONDITION_WAITS, function(profile, profile.frame(*id))))
}

/// What the thread of a sample does; `None` for an event without states.
fn activity(sample: &Sample, cause: Option<WaitCause>) -> Option<Activity> {
    match (sample.state, cause) {
        (Some(ThreadState::OnCpu), _) | (_, Some(WaitCause::RunQueue | WaitCause::CpuQuota)) => {
            Some(Activity::Runs)
        }
        (_, cause) => cause.map(Activity::Waits),
    }
}
