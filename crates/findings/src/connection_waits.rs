//! Finds the stacks in which main threads wait for new connections in poll(2) or select(2): their descriptors show it, and their frames
//! do not. A thread that waits so has nothing to do.

use std::collections::{BTreeMap, BTreeSet};

use profiler_profile::{PollReading, ProcessId, Profile, Sample, StackId, ThreadId};

/// The least time between the first and the last of the readings that show nothing but waits for new connections, nanoseconds. In an
/// interpreter, a wait within a request can have the same stack: the longer the time, the less likely it is that all of it is in a request
/// or that no reading falls into one.
const MIN_TIME_NS: u64 = 1_000_000_000;

/// The thread of a process, whatever its names are.
type ThreadKey = (ProcessId, u32);

#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionWaits {
    stacks: BTreeSet<(ThreadId, StackId)>,
}

impl ConnectionWaits {
    /// The stacks in which threads waited for new connections in all readings. An interpreter has several for one loop: it changes the
    /// address of a call when it specializes the code of the loop. One reading in each is enough if the thread waits for new connections
    /// in all of its readings.
    pub(crate) fn of(profile: &Profile) -> Self {
        let key = |thread: ThreadId| -> ThreadKey {
            let thread = profile.thread(thread);
            (thread.process, thread.tid)
        };
        let mut threads = BTreeMap::<ThreadKey, ReadThread<'_>>::new();
        for reading in profile.poll_readings() {
            threads.entry(key(reading.thread)).or_default().readings.push(reading);
        }
        if threads.is_empty() {
            return Self::default();
        }
        for sample in profile.samples().iter().filter(|sample| sample.state.is_some()) {
            if let Some(thread) = threads.get_mut(&key(sample.thread)) {
                thread.samples.push(sample);
            }
        }
        Self { stacks: threads.into_values().flat_map(|thread| thread.connection_waits(profile)).collect() }
    }

    /// Whether the thread of a sample waits for new connections, if it waits for descriptors.
    pub(crate) fn contain(&self, sample: &Sample) -> bool {
        !self.stacks.is_empty() && self.stacks.contains(&(sample.thread, sample.stack))
    }
}

/// A thread whose polls were read.
#[derive(Default)]
struct ReadThread<'a> {
    /// In time order.
    readings: Vec<&'a PollReading>,
    samples: Vec<&'a Sample>,
}

impl ReadThread<'_> {
    /// The stacks in which it waited for new connections in all readings.
    fn connection_waits(mut self, profile: &Profile) -> BTreeSet<(ThreadId, StackId)> {
        let times = |sample: &Sample| {
            let unit_ns = profile.event(sample.event).unit_ns().unwrap_or_default();
            let end_ns = sample.time_ns.saturating_add(sample.value.saturating_mul(unit_ns));
            // A tick before and after.
            (sample.time_ns.saturating_sub(unit_ns), end_ns.saturating_add(unit_ns))
        };
        self.samples.sort_by_key(|sample| times(sample).0);
        let mut later = self.samples.iter().peekable();
        let waits_throughout = await_throughout(&self.readings);
        let (mut about, mut read) = (Vec::new(), BTreeMap::<StackId, Vec<&PollReading>>::new());
        for reading in self.readings {
            while let Some(sample) = later.next_if(|sample| times(sample).0 <= reading.time_ns) {
                about.push(*sample);
            }
            about.retain(|sample| reading.time_ns <= times(sample).1);
            if let Some(stack) = only_stack(&about) {
                read.entry(stack).or_default().push(reading);
            }
        }
        read.retain(|_, readings| waits_throughout || await_throughout(readings));
        let of_stacks = self.samples.iter().filter(|sample| read.contains_key(&sample.stack));
        of_stacks.map(|sample| (sample.thread, sample.stack)).collect()
    }
}

/// Whether all of these readings, which are in time order, show a wait for new connections, for long enough.
fn await_throughout(readings: &[&PollReading]) -> bool {
    let times = readings.first().zip(readings.last());
    times.is_some_and(|(first, last)| last.time_ns.saturating_sub(first.time_ns) >= MIN_TIME_NS)
        && readings.iter().all(|reading| reading.awaits_connections)
}

/// The stack of all of these samples; `None` if they have several, also `None` without samples.
fn only_stack(samples: &[&Sample]) -> Option<StackId> {
    let stack = samples.first()?.stack;
    samples.iter().all(|sample| sample.stack == stack).then_some(stack)
}
