//! The value of each thread, stack and state of an event: ticks or nanoseconds.

use profiler_profile::{EventId, Profile, StackId, ThreadId, ThreadState};

/// Samples of a thread that share a stack and a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StackValue {
    pub(super) thread: ThreadId,
    pub(super) stack: StackId,
    pub(super) state: Option<ThreadState>,
    /// The number of samples; for an event at a frequency, the number of their ticks.
    pub(super) samples: u64,
    /// The sum of their values.
    pub(super) value: u64,
}

/// The sampled combinations of thread, stack and state, in this order.
pub(super) fn of(profile: &Profile, event: EventId) -> Vec<StackValue> {
    let counts = profile.event(event);
    let mut values: Vec<_> = profile
        .samples_of(event)
        .map(|sample| StackValue {
            thread: sample.thread,
            stack: sample.stack,
            state: sample.state,
            samples: counts.sample_count(sample.value),
            value: sample.value,
        })
        .collect();
    let key = |value: &StackValue| (value.thread, value.stack, value.state);
    values.sort_unstable_by_key(key);
    values.dedup_by(|next, kept| {
        let is_same = key(next) == key(kept);
        if is_same {
            kept.samples = kept.samples.saturating_add(next.samples);
            kept.value = kept.value.saturating_add(next.value);
        }
        is_same
    });
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use profiler_profile::{Event, Header, ProfileBuilder, Sample, StackEnd, test_profile};

    #[test]
    fn each_thread_stack_and_state_has_one_value() {
        let mut builder = ProfileBuilder::default();
        let cpu = builder.event(Event::at_frequency("cpu-clock", 99));
        let wall = builder.event(Event::at_frequency("wall", 49));
        let process = builder.process(1, "a");
        let threads = [1, 2].map(|tid| builder.thread(process, tid, "a"));
        let stacks = ["f", "g"].map(|name| {
            let frame = test_profile::function(&mut builder, name, 1);
            builder.stack(vec![frame], StackEnd::Root)
        });
        for (thread, stack, value) in [(1, 1, 1), (0, 1, 2), (1, 1, 1 << 40), (1, 0, 4)] {
            builder.sample(0, 0, threads[thread], stacks[stack], value);
        }
        for (state, value) in [(ThreadState::Disk, 1), (ThreadState::Blocked, 2), (ThreadState::Disk, 4)] {
            let (thread, stack, state) = (threads[0], stacks[0], Some(state));
            builder.add_sample(Sample { time_ns: 0, cpu: 0, thread, stack, event: wall, state, value });
        }
        let profile = builder.finish(Header::default());
        let expected = [(0, 1, 2), (1, 0, 4), (1, 1, (1 << 40) + 1)].map(|(thread, stack, value)| {
            StackValue { thread: threads[thread], stack: stacks[stack], state: None, samples: value, value }
        });
        assert_eq!(of(&profile, cpu), expected);
        let expected = [(ThreadState::Blocked, 2), (ThreadState::Disk, 5)].map(|(state, value)| StackValue {
            thread: threads[0],
            stack: stacks[0],
            state: Some(state),
            samples: value,
            value,
        });
        assert_eq!(of(&profile, wall), expected);
        assert!(of(&ProfileBuilder::default().finish(Header::default()), EventId::FIRST).is_empty());
    }
}
