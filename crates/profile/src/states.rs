//! The states of threads in the samples of an event.

use std::collections::BTreeMap;

use crate::{EventId, Profile, ThreadState, sum};

impl Profile {
    /// The sum of the values of an event's samples in each state that they have; empty for an event without states.
    #[must_use]
    pub fn values_by_state(&self, event: EventId) -> BTreeMap<ThreadState, u64> {
        let mut values = BTreeMap::new();
        for sample in self.samples_of(event) {
            if let Some(state) = sample.state {
                sum::add(values.entry(state).or_default(), sample.value);
            }
        }
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Header, ProfileBuilder, Sample, StackEnd};

    #[test]
    fn values_are_summed_by_state() {
        let mut builder = ProfileBuilder::default();
        let stack = builder.stack(Vec::new(), StackEnd::Root);
        let process = builder.process(1, "p");
        let thread = builder.thread(process, 1, "p");
        let states = [Some(ThreadState::Disk), None, Some(ThreadState::OnCpu), Some(ThreadState::Disk)];
        for (value, state) in [1, 2, 4, u64::MAX].into_iter().zip(states) {
            builder.add_sample(Sample {
                time_ns: 0,
                cpu: 0,
                thread,
                stack,
                event: EventId::FIRST,
                state,
                value,
            });
        }
        let profile = builder.finish(Header::default());
        let values = profile.values_by_state(EventId::FIRST);
        assert_eq!(values, BTreeMap::from([(ThreadState::OnCpu, 4), (ThreadState::Disk, u64::MAX)]));
        assert!(Profile::default().values_by_state(EventId::FIRST).is_empty());
    }
}
