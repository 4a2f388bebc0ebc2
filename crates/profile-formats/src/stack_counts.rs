//! Sample counts for each thread and stack, and the CPU time that a sample represents.

use profiler_profile::{Profile, StackId, ThreadId};

/// Samples of a thread that share a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StackCount {
    pub(super) thread: ThreadId,
    pub(super) stack: StackId,
    pub(super) count: u64,
}

/// The sampled pairs of thread and stack, ordered by ids.
pub(super) fn of(profile: &Profile) -> Vec<StackCount> {
    let samples = profile.samples().iter();
    let mut counts: Vec<_> = samples
        .map(|sample| StackCount { thread: sample.thread, stack: sample.stack, count: sample.count })
        .collect();
    counts.sort_unstable_by_key(|counted| (counted.thread, counted.stack));
    counts.dedup_by(|next, kept| {
        let is_same = (next.thread, next.stack) == (kept.thread, kept.stack);
        if is_same {
            kept.count = kept.count.saturating_add(next.count);
        }
        is_same
    });
    counts
}

/// The CPU time that a sample represents, nanoseconds; 0 where the frequency is unknown.
pub(super) fn period_ns(profile: &Profile) -> u64 {
    const NS_PER_S: u64 = 1_000_000_000;
    NS_PER_S.checked_div(profile.header().frequency_hz).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use profiler_profile::{Header, ProfileBuilder, StackEnd, test_profile};

    #[test]
    fn each_thread_and_stack_has_one_count() {
        let mut builder = ProfileBuilder::default();
        let process = builder.process(1, "a");
        let threads = [1, 2].map(|tid| builder.thread(process, tid, "a"));
        let stacks = ["f", "g"].map(|name| {
            let frame = test_profile::function(&mut builder, name, 1);
            builder.stack(vec![frame], StackEnd::Root)
        });
        for (thread, stack, count) in [(1, 1, 1), (0, 1, 2), (1, 1, 1 << 40), (1, 0, 4)] {
            builder.sample(0, 0, threads[thread], stacks[stack], count);
        }
        let expected = [(0, 1, 2), (1, 0, 4), (1, 1, (1 << 40) + 1)].map(|(thread, stack, count)| {
            StackCount { thread: threads[thread], stack: stacks[stack], count }
        });
        assert_eq!(of(&builder.finish(Header::default())), expected);
        assert!(of(&ProfileBuilder::default().finish(Header::default())).is_empty());
    }

    #[test]
    fn a_sample_represents_one_period() {
        let at =
            |frequency_hz| ProfileBuilder::default().finish(Header { frequency_hz, ..Header::default() });
        assert_eq!(period_ns(&at(100)), 10_000_000);
        assert_eq!(period_ns(&at(0)), 0);
    }
}
