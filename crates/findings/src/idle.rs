//! The view of a profile without samples of idle threads.

use std::{borrow::Cow, collections::HashMap};

use profiler_profile::{EventId, Profile, ProfileCopy, sum};

use crate::{WaitCause, Waits};

/// The edit that the header of a profile without idle threads lists.
const EDIT: &str = "without idle threads (--show-idle)";

/// A copy without the samples of threads that wait for work; the profile itself where it has none. As for other views,
/// the ledger stays that of the measurement, and the header lists the edit.
///
/// ```
/// use profiler_profile::{Header, ProfileBuilder};
///
/// let profile = ProfileBuilder::default().finish(Header::default());
/// assert!(profiler_findings::without_idle_threads(&profile).header().edits.is_empty());
/// ```
#[must_use]
pub fn without_idle_threads(profile: &Profile) -> Cow<'_, Profile> {
    let waits = Waits::of(profile);
    let is_idle = |sample: &&_| waits.cause(sample) == Some(WaitCause::Idle);
    if !profile.samples().iter().any(|sample| is_idle(&sample)) {
        return Cow::Borrowed(profile);
    }
    let mut copy = ProfileCopy::of(profile);
    let mut stacks = HashMap::new();
    for sample in profile.samples().iter().filter(|sample| !is_idle(sample)) {
        let stack = *stacks
            .entry(sample.stack)
            .or_insert_with(|| copy.stack_with(profile.stack(sample.stack), |_| true));
        copy.sample(sample, stack);
    }
    copy.runtime_events();
    let mut header = profile.header().clone();
    header.edits.push(EDIT.to_owned());
    Cow::Owned(copy.finish(header))
}

/// The number of samples of idle threads of an event, as its ledger counts samples.
pub(crate) fn idle_samples(profile: &Profile, waits: &Waits, id: EventId) -> u64 {
    let event = profile.event(id);
    let idle = profile.samples_of(id).filter(|sample| waits.cause(sample) == Some(WaitCause::Idle));
    sum::of(idle.map(|sample| event.sample_count(sample.value)))
}
