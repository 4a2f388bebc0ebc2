//! Finds event loops that compute all the time: they handle no other event meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use profiler_profile::{
    FindingFacts, FrameId, FrameKind, Profile, Sample, Sampling, StackId, ThreadState, Whole, sum,
};

use crate::{
    WaitCause,
    facts::share,
    found::Found,
    frames::{application_name, function, is_managed, own_frames},
    pattern::matches_any,
    service_rules::EVENT_LOOPS,
    text::Problem,
    thread_group::ThreadGroup,
    weights::percent,
};

/// The fewest samples of a thread. With fewer, a share has an error of more than ten points.
const MIN_SAMPLES: u64 = 100;

/// The least share of the duration in which a thread runs or could run. A loop that waits now and then handles its events.
const MIN_BUSY_PERCENT: f64 = 90.0;

/// The least share of a busy thread's time in which it computes. A loop with many short events spends more of it in system calls.
const MIN_COMPUTE_PERCENT: f64 = 95.0;

/// The least share of a busy thread's time below one function.
const MIN_FUNCTION_PERCENT: f64 = 80.0;

/// The finding on the busiest thread of a process.
pub(crate) fn finding<'a>(samples: &ThreadGroup<'a>) -> Option<Found<'a>> {
    let profile = samples.profile;
    if !matches!(profile.event(samples.event).sampling, Sampling::Frequency(_)) {
        return None;
    }
    let mut threads = BTreeMap::<u32, Vec<&'a Sample>>::new();
    for (sample, _) in samples.samples.iter().filter(|(sample, cause)| is_busy(samples, sample, *cause)) {
        threads.entry(samples.tid(sample)).or_default().push(sample);
    }
    let busy = threads.into_values().filter_map(|of_thread| BusyThread::of(samples, of_thread));
    let busy = busy.max_by_key(|thread| thread.value)?;
    Some(busy.finding(samples))
}

/// Whether a thread runs or could run. Where a profile has samples with states as well as samples on CPUs, the former alone count.
fn is_busy(samples: &ThreadGroup<'_>, sample: &Sample, cause: Option<WaitCause>) -> bool {
    match sample.state {
        None => !samples.marks.has_states,
        Some(ThreadState::OnCpu) => true,
        Some(_) => cause == Some(WaitCause::RunQueue),
    }
}

struct BusyThread<'a> {
    name: &'a str,
    value: u64,
    /// The function in which it computes; `None` where JIT code has no names.
    function: Option<&'a str>,
    share: f64,
    evidence: Vec<&'a Sample>,
}

impl<'a> BusyThread<'a> {
    fn of(samples: &ThreadGroup<'a>, of_thread: Vec<&'a Sample>) -> Option<Self> {
        let profile = samples.profile;
        let value = sum::of(of_thread.iter().map(|sample| sample.value));
        let busy_ns = value.saturating_mul(profile.event(samples.event).unit_ns()?);
        if value < MIN_SAMPLES || percent(busy_ns, profile.header().duration_ns) < MIN_BUSY_PERCENT {
            return None;
        }
        let callbacks = callbacks(samples, &of_thread);
        let share_of = |is_counted: &dyn Fn(&Callback<'_>) -> bool| {
            let counted = callbacks.iter().filter(|callback| is_counted(callback));
            percent(sum::of(counted.map(|callback| callback.value)), value)
        };
        if share_of(&|callback| computes(profile, callback)) < MIN_COMPUTE_PERCENT {
            return None;
        }
        let name = profile.string(profile.thread(of_thread.first()?.thread).comm);
        let (function, share) = match deepest_function(profile, &callbacks, value) {
            Some((function, share)) => (Some(function), share),
            None => {
                let has_managed_frame =
                    |callback: &Callback<'_>| callback.frames.iter().any(|id| is_managed(profile.frame(*id)));
                (None, share_of(&has_managed_frame))
            }
        };
        let is_most = share >= MIN_FUNCTION_PERCENT;
        is_most.then_some(Self { name, value, function, share, evidence: of_thread })
    }

    fn finding(&self, samples: &ThreadGroup<'a>) -> Found<'a> {
        let facts = FindingFacts {
            share: share(self.share, Whole::TimeOfThread),
            cause_thread: self.evidence.first().map(|sample| samples.tid(sample)),
            ..samples.facts(self.function, self.evidence.iter().copied())
        };
        samples.finding(&Problem::BusyThread(self.name), facts, self.value)
    }
}

/// A stack of a thread below its event loop.
struct Callback<'a> {
    /// Leaf first, without the loop; empty where no loop is in the stack.
    frames: &'a [FrameId],
    /// The value of the thread's samples with this stack.
    value: u64,
}

/// The callbacks of a thread, one for each of its stacks: a busy thread has many samples of few stacks.
fn callbacks<'a>(samples: &ThreadGroup<'a>, of_thread: &[&Sample]) -> Vec<Callback<'a>> {
    let mut values = BTreeMap::<StackId, u64>::new();
    for sample in of_thread {
        sum::add(values.entry(sample.stack).or_default(), sample.value);
    }
    let callback = |(stack, value)| Callback { frames: below_loop(samples.profile, stack), value };
    values.into_iter().map(callback).collect()
}

/// The frames of a callback of an event loop, leaf first; empty where no loop is in the stack.
fn below_loop(profile: &Profile, stack: StackId) -> &[FrameId] {
    let own = own_frames(profile, profile.stack(stack));
    let is_loop = |id: &FrameId| matches_any(EVENT_LOOPS, function(profile, profile.frame(*id)));
    &own[..own.iter().position(is_loop).unwrap_or_default()]
}

/// Whether a callback executes its own code. The frames of interrupts are in no system call.
fn computes(profile: &Profile, callback: &Callback<'_>) -> bool {
    let is_system_call = |id: &FrameId| {
        let frame = profile.frame(*id);
        let name = profile.string(frame.name);
        frame.kind == FrameKind::Kernel && (name.starts_with("entry_SYSCALL") || name.starts_with("el0_svc"))
    };
    !callback.frames.is_empty() && !callback.frames.iter().any(is_system_call)
}

/// The function of the application nearest to the leaf that is in most samples, and its share.
fn deepest_function<'a>(
    profile: &'a Profile,
    callbacks: &[Callback<'_>],
    value: u64,
) -> Option<(&'a str, f64)> {
    // By function: the value, and the sum of the distances to the leaf.
    let mut functions = BTreeMap::<&str, (u64, u64)>::new();
    for callback in callbacks {
        let names = callback.frames.iter().filter_map(|id| application_name(profile, profile.frame(*id)));
        let mut seen = BTreeSet::new();
        for (distance, name) in names.enumerate().filter(|(_, name)| seen.insert(*name)) {
            let (of_function, distances) = functions.entry(name).or_default();
            sum::add(of_function, callback.value);
            sum::add(distances, callback.value.saturating_mul(distance as u64));
        }
    }
    let is_frequent = |of_function: u64| percent(of_function, value) >= MIN_FUNCTION_PERCENT;
    let frequent = functions.into_iter().filter(|(_, (of_function, _))| is_frequent(*of_function));
    let (name, (of_function, _)) = frequent
        .min_by_key(|(_, (of_function, distances))| distances.saturating_mul(100) / (*of_function).max(1))?;
    Some((name, percent(of_function, value)))
}
