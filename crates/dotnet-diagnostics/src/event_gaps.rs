//! The times in which a runtime dropped events, by the kinds of events that it can have dropped.

use std::collections::BTreeMap;

use profiler_addresses::MonotonicTime;
use profiler_profile::RuntimeEventKind;

/// Gaps of a kind that are kept one by one. Beyond, the oldest two become one of all threads, which breaks more pairs and not fewer.
const MAX_GAPS: usize = 1 << 10;

/// A time in which a thread wrote events that the runtime dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EventGap {
    /// In the pid namespace of the process; `None` for several threads.
    pub(super) thread: Option<u64>,
    pub(super) from: MonotonicTime,
    pub(super) to: MonotonicTime,
}

/// The gaps of the sessions of a process.
#[derive(Debug, Default)]
pub(super) struct EventGaps(BTreeMap<RuntimeEventKind, Vec<EventGap>>);

impl EventGaps {
    /// Adds a gap that can hide events of a kind.
    pub(super) fn add(&mut self, kind: RuntimeEventKind, gap: EventGap) {
        let gaps = self.0.entry(kind).or_default();
        gaps.push(gap);
        if gaps.len() > MAX_GAPS {
            let oldest = gaps.remove(0);
            let next = &mut gaps[0];
            let (from, to) = (oldest.from.min(next.from), oldest.to.max(next.to));
            *next = EventGap { thread: None, from, to };
        }
    }

    /// Whether events of a kind can be missing between two times: of a thread, or of any.
    pub(super) fn are_between(
        &self,
        kind: RuntimeEventKind,
        thread: Option<u64>,
        begin: MonotonicTime,
        end: MonotonicTime,
    ) -> bool {
        let is_of_thread = |gap: &EventGap| gap.thread.is_none() || thread.is_none() || gap.thread == thread;
        let is_between = |gap: &EventGap| gap.from < end && gap.to > begin;
        let gaps = self.0.get(&kind).map(Vec::as_slice).unwrap_or_default();
        gaps.iter().rev().any(|gap| is_between(gap) && is_of_thread(gap))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: RuntimeEventKind = RuntimeEventKind::Contention;

    #[test]
    fn a_gap_lies_between_what_surrounds_or_cuts_it() {
        let mut gaps = EventGaps::default();
        gaps.add(KIND, EventGap { thread: Some(7), from: MonotonicTime(20), to: MonotonicTime(30) });
        let found = |thread, begin_ns, end_ns| {
            gaps.are_between(KIND, thread, MonotonicTime(begin_ns), MonotonicTime(end_ns))
        };
        assert!(
            found(Some(7), 20, 30) && found(None, 10, 25) && found(Some(7), 25, 26) && found(None, 29, 90)
        );
        // The events of its ends were not dropped.
        assert!(!found(Some(7), 10, 20) && !found(Some(7), 30, 40));
        assert!(!found(Some(8), 10, 40), "another thread");
        assert!(
            !gaps.are_between(RuntimeEventKind::Suspension, None, MonotonicTime(10), MonotonicTime(40)),
            "another kind"
        );
    }

    #[test]
    fn endless_gaps_are_bounded_and_none_is_lost() {
        let mut gaps = EventGaps::default();
        let count = 3 * MAX_GAPS as u64;
        for number in 0..count {
            let from_ns = 10 * number;
            gaps.add(
                KIND,
                EventGap {
                    thread: Some(number),
                    from: MonotonicTime(from_ns),
                    to: MonotonicTime(from_ns + 5),
                },
            );
        }
        assert_eq!(gaps.0[&KIND].len(), MAX_GAPS);
        for number in 0..count {
            assert!(
                gaps.are_between(
                    KIND,
                    Some(number),
                    MonotonicTime(10 * number + 1),
                    MonotonicTime(10 * number + 2)
                ),
                "{number}"
            );
        }
        let last = 10 * (count - 1);
        assert!(!gaps.are_between(KIND, None, MonotonicTime(last - 5), MonotonicTime(last)));
    }
}
