//! Finds the times in which a thread owns a lock for which others wait: it does not wait for work then, although its stack can be that
//! of a main loop.

use std::{collections::BTreeMap, ops::Range};

use profiler_profile::{LockOwner, Profile, Sample, ThreadId};

use crate::locks::{MAX_GAP_NS, MIN_READINGS};

#[derive(Clone, Debug, Default)]
pub(crate) struct HeldTimes {
    threads: BTreeMap<ThreadId, Vec<Range<u64>>>,
    /// Of the values of each event, nanoseconds.
    units_ns: Vec<u64>,
}

impl HeldTimes {
    /// The times between readings of a lock with one owner, and up to the readings before and after them.
    pub(crate) fn of(profile: &Profile) -> Self {
        let mut locks = BTreeMap::<_, Vec<&LockOwner>>::new();
        for reading in profile.lock_owners() {
            locks.entry((reading.process(profile), reading.lock)).or_default().push(reading);
        }
        let units = profile.event_ids().map(|event| profile.event(event).unit_ns().unwrap_or_default());
        let mut times = Self { threads: BTreeMap::new(), units_ns: units.collect() };
        for readings in locks.values_mut() {
            readings.sort_by_key(|reading| reading.time_ns);
            let is_held = |one: &&LockOwner, next: &&LockOwner| {
                one.owner == next.owner && next.time_ns.saturating_sub(one.time_ns) <= MAX_GAP_NS
            };
            for held in readings.chunk_by(is_held).filter(|held| held.len() >= MIN_READINGS) {
                let (first, last) = (held[0], held[held.len() - 1]);
                let time = first.time_ns.saturating_sub(MAX_GAP_NS)..last.time_ns.saturating_add(MAX_GAP_NS);
                times.threads.entry(first.owner).or_default().push(time);
            }
        }
        times
    }

    /// Whether the thread of a sample owns a lock then.
    pub(crate) fn contain(&self, sample: &Sample) -> bool {
        let Some(times) = self.threads.get(&sample.thread) else { return false };
        let unit_ns = self.units_ns[sample.event.index()];
        let end_ns = sample.time_ns.saturating_add(sample.value.saturating_mul(unit_ns));
        times.iter().any(|time| sample.time_ns < time.end && end_ns > time.start)
    }
}
