//! For which findings a profile was examined.

use profiler_profile::{EventId, FindingKind, Profile, RuntimeEventKind, Sampling, ThreadState, sum};

use crate::{IO, cpu};

/// Findings on waits, for events whose samples have the states of threads.
const OF_WAITS: &[FindingKind] = &[
    FindingKind::PoolStarvation,
    FindingKind::LockConvoy,
    FindingKind::Deadlock,
    FindingKind::HeldLock,
    FindingKind::FullQueue,
    FindingKind::ConnectionLimit,
    FindingKind::BlockedFinalizer,
    FindingKind::GcSuspension,
    FindingKind::SlowDownstream,
    FindingKind::ChildProcess,
    FindingKind::BarrierSkew,
    FindingKind::Disk,
];

/// Findings that compare waits with the time on CPUs.
const OF_DEMAND: &[FindingKind] = &[FindingKind::RunQueue, FindingKind::CpuQuota];

/// Findings on threads that run or wait for a CPU.
const OF_BUSY_THREADS: &[FindingKind] = &[FindingKind::BusyThread];

/// Findings on the time on CPUs.
const OF_CPU: &[FindingKind] = &[
    FindingKind::Compilation,
    FindingKind::GarbageCollection,
    FindingKind::Spinning,
    FindingKind::PageFaults,
    FindingKind::Interrupts,
];

/// Findings from runtime events, and the events without which they cannot be.
const OF_RUNTIMES: &[(FindingKind, RuntimeEventKind)] = &[
    (FindingKind::GcPauses, RuntimeEventKind::Suspension),
    (FindingKind::FullCollections, RuntimeEventKind::GarbageCollection),
    (FindingKind::Exceptions, RuntimeEventKind::Exception),
    (FindingKind::LockContention, RuntimeEventKind::Contention),
    (FindingKind::PoolGrowth, RuntimeEventKind::PoolAdjustment),
];

/// The kinds of findings that the samples and the runtime events of a profile can show, in the order of [`FindingKind::ALL`]: those
/// on CPU time only with enough samples on CPUs, those from runtime events only with events of their kind.
///
/// ```
/// use profiler_profile::{Header, ProfileBuilder};
///
/// let profile = ProfileBuilder::default().finish(Header::default());
/// assert!(profiler_findings::checked_kinds(&profile).is_empty());
/// ```
#[must_use]
pub fn checked_kinds(profile: &Profile) -> Vec<FindingKind> {
    let events = profile.event_ids().filter(|event| profile.event(*event).name != IO);
    let mut kinds: Vec<_> = events.flat_map(|event| kinds_of_samples(profile, event)).collect();
    let has_events = |kind| profile.runtime_event_totals(None, kind).count > 0;
    kinds.extend(OF_RUNTIMES.iter().filter(|(_, event)| has_events(*event)).map(|(kind, _)| *kind));
    FindingKind::ALL.iter().copied().filter(|kind| kinds.contains(kind)).collect()
}

fn kinds_of_samples(profile: &Profile, event: EventId) -> Vec<FindingKind> {
    let value_in = |is_counted: &dyn Fn(Option<ThreadState>) -> bool| {
        let counted = profile.samples_of(event).filter(|sample| is_counted(sample.state));
        sum::of(counted.map(|sample| sample.value))
    };
    let with_states = value_in(&|state| state.is_some());
    let with_demand = value_in(&|state| state == Some(ThreadState::OnCpu));
    let on_cpu = value_in(&|state| matches!(state, None | Some(ThreadState::OnCpu)));
    let busy = value_in(&|state| matches!(state, None | Some(ThreadState::OnCpu | ThreadState::Runnable)));
    let is_continuous = matches!(profile.event(event).sampling, Sampling::Frequency(_));
    let is_enough = |value| is_continuous && value >= cpu::MIN_SAMPLES;
    let checks = [
        (with_states > 0, OF_WAITS),
        (with_demand > 0, OF_DEMAND),
        (is_enough(busy), OF_BUSY_THREADS),
        (is_enough(on_cpu), OF_CPU),
    ];
    let done = checks.into_iter().filter(|(is_done, _)| *is_done);
    done.flat_map(|(_, kinds)| kinds.iter().copied()).collect()
}
