//! Samples of idle threads.

use profiler_profile::{EventId, Profile, sum};

use crate::{WaitCause, Waits};

/// The number of samples of idle threads of an event, as its ledger counts samples.
pub(crate) fn idle_samples(profile: &Profile, waits: &Waits, id: EventId) -> u64 {
    let event = profile.event(id);
    let idle = profile.samples_of(id).filter(|sample| waits.cause(sample) == Some(WaitCause::Idle));
    sum::of(idle.map(|sample| event.sample_count(sample.value)))
}
