//! Sums the samples of pool workers that block while their pool is starved.

use std::{collections::BTreeMap, ops::RangeInclusive};

use profiler_profile::{EventId, ProcessId, Profile, Sample, sum};

use crate::{
    WaitCause, Waits,
    frames::application_method,
    marks::{Marks, StackSet},
    weights::{heaviest, percent},
};

/// The least share of the time below one method that names it.
const MIN_SITE_PERCENT: f64 = 50.0;

/// The samples of a profile, with what they say of waiting threads.
pub(crate) struct WaitSamples<'a> {
    pub(crate) profile: &'a Profile,
    pub(crate) waits: &'a Waits,
    pub(crate) marks: &'a Marks,
}

/// The method below which workers block for most of the time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct BlockingSite<'a> {
    pub(super) method: &'a str,
    pub(super) cause: WaitCause,
    /// Of the time in which workers block.
    pub(super) percent: f64,
}

impl<'a> WaitSamples<'a> {
    /// The method below which the pool workers of a process block most in a time, by the first event that shows it.
    pub(super) fn blocking_site(
        &self,
        process: ProcessId,
        time_ns: &RangeInclusive<u64>,
    ) -> Option<BlockingSite<'a>> {
        self.profile.event_ids().find_map(|event| self.site_by(event, process, time_ns))
    }

    /// The method in most of the stacks of a set that samples of a process have, by value.
    pub(super) fn site_of(&self, process: ProcessId, stacks: &StackSet) -> Option<&'a str> {
        let profile = self.profile;
        let is_counted =
            |sample: &&Sample| stacks.contains(sample) && profile.thread(sample.thread).process == process;
        let method = |sample: &Sample| application_method(profile, profile.stack(sample.stack));
        let samples = profile.samples().iter().filter(is_counted);
        let (method, value, total) =
            heaviest(samples.filter_map(|sample| Some((method(sample)?, sample.value))))?;
        (percent(value, total) >= MIN_SITE_PERCENT).then_some(method)
    }

    fn site_by(
        &self,
        event: EventId,
        process: ProcessId,
        time_ns: &RangeInclusive<u64>,
    ) -> Option<BlockingSite<'a>> {
        let profile = self.profile;
        let mut total = 0;
        let mut sites = BTreeMap::<(&str, WaitCause), u64>::new();
        for sample in profile.samples_of(event).filter(|sample| time_ns.contains(&sample.time_ns)) {
            let is_worker = || profile.thread(sample.thread).process == process;
            let Some(cause) = self.blocked_worker(sample).filter(|_| is_worker()) else { continue };
            sum::add(&mut total, sample.value);
            if let Some(method) = application_method(profile, profile.stack(sample.stack)) {
                sum::add(sites.entry((method, cause)).or_default(), sample.value);
            }
        }
        let ((method, cause), value) = sites.into_iter().max_by_key(|(_, value)| *value)?;
        let percent = percent(value, total);
        (percent >= MIN_SITE_PERCENT).then_some(BlockingSite { method, cause, percent })
    }

    /// Why a worker of a pool does not proceed, if it has a work item and waits for no CPU.
    fn blocked_worker(&self, sample: &Sample) -> Option<WaitCause> {
        let is_blocked =
            |cause: &WaitCause| !matches!(cause, WaitCause::Idle | WaitCause::RunQueue | WaitCause::CpuQuota);
        let cause = self.waits.cause(sample).filter(is_blocked)?;
        self.marks.pool_workers.contains(sample).then_some(cause)
    }
}
