//! Pairs the begin of an occurrence with its end: garbage collections, suspensions, lock contentions, compilations.

use std::collections::BTreeMap;

use profiler_dotnet_symbols::eventpipe::{
    fields::{Field, Value},
    runtime_events::{Phase, RuntimeEvent},
};

use profiler_profile::RuntimeEventKind;

/// The field with the length of a contention, nanoseconds.
const DURATION_FIELD: &str = "DurationNs";

/// An event with its time and thread.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TimedEvent {
    /// `CLOCK_MONOTONIC`.
    pub(super) time_ns: u64,
    /// 0 before the begin has its end.
    pub(super) duration_ns: u64,
    /// In the pid namespace of the process.
    pub(super) thread: u64,
    pub(super) event: RuntimeEvent,
    /// Return addresses, leaf first.
    pub(super) stack: Box<[u64]>,
}

/// Events with their durations, and begins without an end.
#[derive(Debug, Default)]
pub(super) struct PairedEvents {
    pub(super) whole: Vec<TimedEvent>,
    pub(super) open: Vec<TimedEvent>,
}

/// Pairs events of any order. Ends without a begin are left out, as are begins that are followed by another one.
pub(super) fn pair(mut events: Vec<TimedEvent>) -> PairedEvents {
    // The runtime writes the events of each thread in order, and those of different threads in any order.
    events.sort_by_key(|event| event.time_ns);
    let mut whole = Vec::with_capacity(events.len());
    let mut open: BTreeMap<(RuntimeEventKind, (u64, u64)), TimedEvent> = BTreeMap::new();
    for event in events {
        let key = (event.event.kind, event.event.pair);
        match event.event.phase {
            Phase::Whole => whole.push(event),
            Phase::Begin => {
                open.insert(key, event);
            }
            Phase::End => whole.extend(match open.remove(&key) {
                Some(begin) => Some(joined(begin, event)),
                None => with_known_duration(event),
            }),
        }
    }
    PairedEvents { whole, open: open.into_values().collect() }
}

/// The occurrence that begins and ends with these events: with the fields of both.
fn joined(begin: TimedEvent, end: TimedEvent) -> TimedEvent {
    let mut whole = begin;
    whole.duration_ns = end.time_ns.saturating_sub(whole.time_ns);
    for field in end.event.fields {
        if !whole.event.fields.iter().any(|known| known.name == field.name) {
            whole.event.fields.push(field);
        }
    }
    whole
}

/// The occurrence whose end states its duration: it began before the session.
fn with_known_duration(end: TimedEvent) -> Option<TimedEvent> {
    let is_duration = |field: &&Field| field.name == DURATION_FIELD;
    let Value::Real(duration_ns) = end.event.fields.iter().find(is_duration)?.value else { return None };
    // Conversion saturates, and makes 0 of what is no number.
    let duration_ns = (duration_ns as u64).min(end.time_ns);
    Some(TimedEvent { time_ns: end.time_ns - duration_ns, duration_ns, ..end })
}

#[cfg(test)]
mod tests {
    use profiler_dotnet_symbols::eventpipe::{
        code_events::RUNTIME_PROVIDER,
        nettrace::{Event, EventKind},
    };

    use super::*;

    fn event(id: u32, time_ns: u64, thread: u64, payload: &[u8]) -> TimedEvent {
        let kind = EventKind { provider: RUNTIME_PROVIDER.to_owned(), id, ..EventKind::default() };
        let event = Event { kind: &kind, thread, ticks: 0, activity: 0, payload, stack: &[] };
        let event = RuntimeEvent::decode(&event).unwrap().unwrap();
        TimedEvent { time_ns, duration_ns: 0, thread, event, stack: Box::default() }
    }

    fn words(values: &[u32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    fn collection(begin_ns: u64, end_ns: u64, number: u32) -> [TimedEvent; 2] {
        // Another thread ends a background collection.
        let begin = event(1, begin_ns, 1, &words(&[number, 2, 1, 1]));
        [begin, event(2, end_ns, 2, &words(&[number, 2]))]
    }

    /// Kind, time, duration and thread of each event.
    fn described(events: &[TimedEvent]) -> Vec<(RuntimeEventKind, u64, u64, u64)> {
        let describe =
            |event: &TimedEvent| (event.event.kind, event.time_ns, event.duration_ns, event.thread);
        events.iter().map(describe).collect()
    }

    #[test]
    fn overlapping_collections_are_paired_by_their_numbers() {
        let [background, background_end] = collection(10, 90, 7);
        let [blocking, blocking_end] = collection(20, 30, 8);
        let paired = pair(vec![background_end, blocking_end, blocking, background]);
        let expected = [
            (RuntimeEventKind::GarbageCollection, 20, 10, 1),
            (RuntimeEventKind::GarbageCollection, 10, 80, 1),
        ];
        assert_eq!(described(&paired.whole), expected);
        assert!(paired.open.is_empty());
        let names: Vec<_> = paired.whole[0].event.fields.iter().map(|field| &*field.name).collect();
        assert_eq!(names, ["Count", "Depth", "Reason", "Type"], "no field twice");
    }

    #[test]
    fn contentions_are_paired_by_their_threads_and_have_the_fields_of_both_events() {
        let stop = [&[0, 9, 0][..], &25.0_f64.to_le_bytes()].concat();
        let start = [0, 9, 0];
        let paired = pair(vec![
            event(81, 10, 1, &start),
            event(81, 15, 2, &start),
            event(91, 35, 1, &stop),
            event(81, 50, 1, &start),
        ]);
        assert_eq!(described(&paired.whole), [(RuntimeEventKind::Contention, 10, 25, 1)]);
        let fields = &paired.whole[0].event.fields;
        assert!(fields.iter().any(|field| field.name == DURATION_FIELD), "{fields:?}");
        let open = [(RuntimeEventKind::Contention, 50, 0, 1), (RuntimeEventKind::Contention, 15, 0, 2)];
        assert_eq!(described(&paired.open), open);
    }

    #[test]
    fn the_end_of_what_began_before_the_session_counts_if_it_has_a_duration() {
        let stop = |duration: f64| [&[0, 9, 0][..], &duration.to_le_bytes()].concat();
        let paired = pair(vec![event(91, 100, 1, &stop(40.0)), event(2, 100, 1, &words(&[7, 2]))]);
        assert_eq!(described(&paired.whole), [(RuntimeEventKind::Contention, 60, 40, 1)]);
        for (duration, expected) in [(f64::NAN, 0), (-5.0, 0), (f64::INFINITY, 100)] {
            let paired = pair(vec![event(91, 100, 1, &stop(duration))]);
            assert_eq!(paired.whole[0].duration_ns, expected, "{duration}");
        }
    }

    #[test]
    fn a_begin_that_is_followed_by_another_one_is_left_out() {
        let begin = |time_ns| event(9, time_ns, 1, &words(&[1, 5]));
        let paired = pair(vec![begin(10), begin(20), event(3, 30, 2, &[])]);
        assert_eq!(described(&paired.whole), [(RuntimeEventKind::Suspension, 20, 10, 1)]);
        assert!(paired.open.is_empty());
    }
}
