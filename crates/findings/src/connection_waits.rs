//! Finds the stacks in which main threads wait for new connections in poll(2) or select(2): their descriptors show it, and their frames
//! do not. A thread that waits so has nothing to do.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use profiler_profile::{ProcessId, Profile, Sample, StackId, ThreadId};

/// The fewest readings of a thread in a stack. In an interpreter, a wait within a request can have the same stack: each further reading
/// makes it less likely that none was one of those.
const MIN_READINGS: usize = 2;

/// The thread of a process, whatever its names are.
type ThreadKey = (ProcessId, u32);

#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionWaits {
    stacks: BTreeSet<(ThreadId, StackId)>,
}

impl ConnectionWaits {
    /// The stacks in which threads waited for new connections in all readings.
    pub(crate) fn of(profile: &Profile) -> Self {
        if profile.poll_readings().is_empty() {
            return Self::default();
        }
        let key = |thread: ThreadId| -> ThreadKey {
            let thread = profile.thread(thread);
            (thread.process, thread.tid)
        };
        let read: BTreeSet<_> = profile.poll_readings().iter().map(|reading| key(reading.thread)).collect();
        let mut samples = HashMap::<ThreadKey, Vec<&Sample>>::new();
        for sample in profile.samples().iter().filter(|sample| sample.state.is_some()) {
            let key = key(sample.thread);
            if read.contains(&key) {
                samples.entry(key).or_default().push(sample);
            }
        }
        let mut readings = BTreeMap::<(ThreadKey, StackId), Vec<bool>>::new();
        for reading in profile.poll_readings() {
            let key = key(reading.thread);
            let of_thread = samples.get(&key).map_or(&[][..], |samples| samples);
            if let Some(stack) = stack_at(profile, of_thread, reading.time_ns) {
                readings.entry((key, stack)).or_default().push(reading.awaits_connections);
            }
        }
        readings.retain(|_, awaits| awaits.len() >= MIN_READINGS && awaits.iter().all(|awaits| *awaits));
        let of_threads = samples.into_iter().flat_map(|(key, samples)| {
            let readings = &readings;
            samples.into_iter().filter_map(move |sample| {
                readings.contains_key(&(key, sample.stack)).then_some((sample.thread, sample.stack))
            })
        });
        Self { stacks: of_threads.collect() }
    }

    /// Whether the thread of a sample waits for new connections, if it waits for descriptors.
    pub(crate) fn contain(&self, sample: &Sample) -> bool {
        !self.stacks.is_empty() && self.stacks.contains(&(sample.thread, sample.stack))
    }
}

/// The stack of a thread at a time; `None` if it has several about this time, or no sample.
fn stack_at(profile: &Profile, of_thread: &[&Sample], time_ns: u64) -> Option<StackId> {
    let is_then = |sample: &&&Sample| {
        let unit_ns = profile.event(sample.event).unit_ns().unwrap_or_default();
        let end_ns = sample.time_ns.saturating_add(sample.value.saturating_mul(unit_ns));
        // A tick before and after.
        sample.time_ns <= time_ns.saturating_add(unit_ns) && time_ns <= end_ns.saturating_add(unit_ns)
    };
    let stacks: BTreeSet<_> = of_thread.iter().filter(is_then).map(|sample| sample.stack).collect();
    stacks.first().copied().filter(|_| stacks.len() == 1)
}
