//! Samples over time: for each span, the counts by thread, state and call tree node.

use serde::Serialize;

use super::column;

/// A sample: time, thread index, state index and node of the call tree.
pub(super) struct Placed {
    pub(super) time_ns: u64,
    pub(super) thread: u32,
    pub(super) state: u32,
    pub(super) node: u32,
    pub(super) count: u64,
}

/// Columns with an entry for each thread, state and node of a span; `spans` has the number of entries of each span.
#[derive(Serialize)]
pub(super) struct Timeline {
    span_ns: u64,
    #[serde(serialize_with = "column::numbers")]
    spans: Vec<u32>,
    #[serde(serialize_with = "column::numbers")]
    thread: Vec<u32>,
    /// Empty if the index of every state is 0.
    #[serde(serialize_with = "column::numbers")]
    state: Vec<u32>,
    /// The difference to the previous entry.
    #[serde(serialize_with = "column::signed")]
    node: Vec<i64>,
    #[serde(serialize_with = "column::numbers")]
    count: Vec<u64>,
}

/// The maximum number of spans: more than a screen has columns.
const MAX_SPANS: u64 = 6_000;

impl Timeline {
    /// The timeline of samples in time order, up to the end of sampling.
    pub(super) fn of(samples: impl Iterator<Item = Placed>, last_ns: u64) -> Self {
        Self::in_spans(span_ns(last_ns), samples, last_ns)
    }

    /// A timeline of one span, without times.
    pub(super) fn timeless(samples: impl Iterator<Item = Placed>) -> Self {
        Self::in_spans(u64::MAX, samples.map(|sample| Placed { time_ns: 0, ..sample }), 0)
    }

    fn in_spans(span_ns: u64, samples: impl Iterator<Item = Placed>, last_ns: u64) -> Self {
        let mut timeline = Self {
            span_ns,
            spans: Vec::new(),
            thread: Vec::new(),
            state: Vec::new(),
            node: Vec::new(),
            count: Vec::new(),
        };
        let mut samples = samples.peekable();
        let mut last_node = 0;
        for span in 0..=last_ns / span_ns {
            let mut entries = Vec::new();
            while let Some(sample) = samples.next_if(|sample| sample.time_ns / span_ns <= span) {
                entries.push((sample.thread, sample.state, sample.node, sample.count));
            }
            entries.sort_unstable();
            entries.dedup_by(|later, entry| {
                let is_same = (later.0, later.1, later.2) == (entry.0, entry.1, entry.2);
                if is_same {
                    entry.3 = entry.3.saturating_add(later.3);
                }
                is_same
            });
            timeline.spans.push(u32::try_from(entries.len()).unwrap_or(u32::MAX));
            for (thread, state, node, count) in entries {
                timeline.thread.push(thread);
                timeline.state.push(state);
                timeline.node.push(i64::from(node) - last_node);
                timeline.count.push(count);
                last_node = i64::from(node);
            }
        }
        if timeline.state.iter().all(|state| *state == 0) {
            timeline.state.clear();
        }
        timeline
    }
}

/// The shortest of 20 ms, 50 ms, 100 ms, 200 ms, ... that gives at most the maximum number of spans.
fn span_ns(last_ns: u64) -> u64 {
    let mut tenth_ns = 10_000_000_u64;
    loop {
        let spans_ns = [2, 5, 10].map(|factor| tenth_ns.saturating_mul(factor));
        if let Some(span_ns) = spans_ns.into_iter().find(|span_ns| last_ns / span_ns < MAX_SPANS) {
            return span_ns;
        }
        tenth_ns = tenth_ns.saturating_mul(10);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn timeline(samples: &[(u64, u32, u32, u64)], last_ns: u64) -> Timeline {
        let place = |&(time_ns, thread, node, count): &(u64, u32, u32, u64)| Placed {
            time_ns,
            thread,
            state: 0,
            node,
            count,
        };
        Timeline::of(samples.iter().map(place), last_ns)
    }

    #[test]
    fn equal_samples_of_a_span_are_one_entry() {
        let samples =
            [(0, 1, 9, 1), (1, 0, 5, 2), (19 * MS, 1, 9, 3), (20 * MS, 1, 9, 4), (99 * MS, 0, 5, u64::MAX)];
        let timeline = timeline(&samples, 100 * MS);
        assert_eq!(timeline.span_ns, 20 * MS);
        assert_eq!(timeline.spans, [2, 1, 0, 0, 1, 0]);
        assert_eq!(timeline.thread, [0, 1, 1, 0]);
        assert_eq!(timeline.node, [5, 4, 0, -4]);
        assert_eq!(timeline.count, [2, 4, 4, u64::MAX]);
    }

    #[test]
    fn a_timeless_timeline_has_one_span() {
        let samples = [(5, 1, 9, 1), (7 * MS, 0, 5, 2), (u64::MAX, 1, 9, 3)];
        let place = |(time_ns, thread, node, count)| Placed { time_ns, thread, state: 0, node, count };
        let timeline = Timeline::timeless(samples.into_iter().map(place));
        assert_eq!((timeline.spans, timeline.thread, timeline.count), (vec![2], vec![0, 1], vec![2, 4]));
        assert_eq!(Timeline::timeless(std::iter::empty()).spans, [0]);
    }

    #[test]
    fn samples_of_different_states_are_different_entries() {
        let states = [2, 2, 4].map(|state| Placed { time_ns: 0, thread: 0, state, node: 1, count: 1 });
        let timeline = Timeline::of(states.into_iter(), 1);
        assert_eq!((timeline.state, timeline.count), (vec![2, 4], vec![2, 1]));
        let on_cpu = Placed { time_ns: 0, thread: 0, state: 0, node: 1, count: 1 };
        assert!(Timeline::of(std::iter::once(on_cpu), 1).state.is_empty());
    }

    #[test]
    fn counts_saturate() {
        assert_eq!(timeline(&[(0, 0, 0, u64::MAX), (0, 0, 0, 2)], 1).count, [u64::MAX]);
    }

    #[test]
    fn the_number_of_spans_is_bounded() {
        for last_ns in [0, 1, 120_000 * MS - 1, 120_000 * MS, 86_400_000 * MS, u64::MAX] {
            let timeline = timeline(&[(last_ns, 0, 0, 1)], last_ns);
            let spans = timeline.spans.len() as u64;
            assert!((1..=MAX_SPANS).contains(&spans), "{last_ns}: {spans}");
            assert_eq!(timeline.spans.last(), Some(&1));
        }
        assert_eq!(span_ns(120_000 * MS - 1), 20 * MS);
        assert_eq!(span_ns(120_000 * MS), 50 * MS);
    }
}
