//! Pairs the begin of an occurrence with its end: garbage collections, suspensions, lock contentions, compilations, requests.

use std::{collections::BTreeMap, time::Duration};

use profiler_addresses::MonotonicTime;
use profiler_dotnet_symbols::eventpipe::{
    fields::{Field, Value},
    runtime_events::{Phase, RuntimeEvent},
};

use profiler_profile::RuntimeEventKind;

use super::{event_gaps::EventGaps, memory_budget::MemoryReservation};

/// The field with the length of a contention, nanoseconds.
const DURATION_FIELD: &str = "DurationNs";

/// Events that wait for earlier ones of other threads. A runtime writes its events every 100 ms, those of one thread after those
/// of another one.
const MAX_UNORDERED: usize = 1 << 14;

/// Begins that wait for their ends.
const MAX_OPEN: usize = 1 << 12;

/// An event with its time and thread.
#[derive(Debug)]
pub(super) struct TimedEvent {
    pub(super) time: MonotonicTime,
    /// 0 before the begin has its end.
    pub(super) duration_ns: u64,
    /// In the pid namespace of the process.
    pub(super) thread: u64,
    pub(super) event: RuntimeEvent,
    /// Return addresses, leaf first.
    pub(super) stack: Box<[u64]>,
    /// That of the event.
    pub(super) memory: MemoryReservation,
}

impl TimedEvent {
    pub(super) fn end(&self) -> MonotonicTime {
        self.time.saturating_add(Duration::from_nanos(self.duration_ns))
    }

    /// The bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        let fields = self.event.fields.iter().map(Field::memory_bytes).sum::<usize>();
        size_of::<Self>() + fields + size_of_val(&*self.stack) + self.event.name.len()
    }

    /// Reserves its memory. Returns false where the budget does not have it.
    pub(super) fn reserve_memory(&mut self) -> bool {
        let bytes = self.memory_bytes();
        self.memory.reserve(bytes)
    }

    /// Whether several threads can report the begin and the end, in any order.
    pub(super) fn is_across_threads(&self) -> bool {
        matches!(self.event.kind, RuntimeEventKind::Suspension | RuntimeEventKind::Request)
    }

    /// Whether events can be missing between the begin and an end, so that the end can be that of another occurrence.
    pub(super) fn can_lack_events(&self, end: MonotonicTime, gaps: &EventGaps) -> bool {
        let kind = self.event.kind;
        // The number of a collection is that of no other one.
        kind != RuntimeEventKind::GarbageCollection && has_lost_end(self, end, gaps)
    }
}

/// What became of an occurrence.
#[derive(Debug)]
pub(super) enum Occurrence {
    /// It is known from its begin to its end.
    Whole(TimedEvent),
    /// It has happened. Its end is not known, because events were dropped after its begin.
    WithoutEnd(TimedEvent),
}

type PairKey = (RuntimeEventKind, (u64, u64));

/// Begins and ends that have no counterpart yet.
#[derive(Debug, Default)]
pub(super) struct EventPairs {
    /// The events of occurrences that several threads can report, until earlier ones can no longer arrive.
    unordered: Vec<TimedEvent>,
    /// The begins without an end.
    open: BTreeMap<PairKey, TimedEvent>,
}

impl EventPairs {
    /// Adds the begin or the end of an occurrence, and appends what is complete by it to `found`.
    pub(super) fn add(&mut self, event: TimedEvent, gaps: &EventGaps, found: &mut Vec<Occurrence>) {
        if is_of_one_thread(event.event.kind) {
            // The runtime writes the events of each thread in order.
            return self.pair(event, gaps, found);
        }
        self.unordered.push(event);
        if self.unordered.len() >= MAX_UNORDERED {
            self.unordered.sort_by_key(|event| event.time);
            let older: Vec<_> = self.unordered.drain(..MAX_UNORDERED / 2).collect();
            older.into_iter().for_each(|event| self.pair(event, gaps, found));
        }
    }

    /// Pairs all events up to a time.
    pub(super) fn pair_up_to(&mut self, end: MonotonicTime, gaps: &EventGaps, found: &mut Vec<Occurrence>) {
        let is_earlier = |event: &TimedEvent| event.time <= end;
        let (mut earlier, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.unordered).into_iter().partition(is_earlier);
        self.unordered = later;
        earlier.sort_by_key(|event| event.time);
        earlier.into_iter().for_each(|event| self.pair(event, gaps, found));
    }

    /// Ends all occurrences that have begun by a time, which is the last.
    pub(super) fn end_at(&mut self, end: MonotonicTime, gaps: &EventGaps, found: &mut Vec<Occurrence>) {
        let open = std::mem::take(&mut self.open).into_values().filter(|event| event.time <= end);
        found.extend(open.map(|event| {
            if has_lost_end(&event, end, gaps) {
                return Occurrence::WithoutEnd(event);
            }
            Occurrence::Whole(TimedEvent { duration_ns: end.nanoseconds_since(event.time), ..event })
        }));
    }

    /// Pairs the next event. Ends without a begin are left out, as are begins that are followed by another one.
    fn pair(&mut self, event: TimedEvent, gaps: &EventGaps, found: &mut Vec<Occurrence>) {
        let key = (event.event.kind, event.event.pair);
        if event.event.phase == Phase::Begin {
            let time = event.time;
            if let Some(replaced) = self.open.insert(key, event) {
                found.extend(without_end(replaced, time, gaps));
            }
            return self.evict(gaps, found);
        }
        match self.open.remove(&key) {
            Some(begin) if begin.can_lack_events(event.time, gaps) => {
                // The end of another occurrence or of this one.
                let known = with_known_duration(event).map(Occurrence::Whole);
                found.push(known.unwrap_or(Occurrence::WithoutEnd(begin)));
            }
            Some(begin) => found.push(Occurrence::Whole(joined(begin, event))),
            None => found.extend(with_known_duration(event).map(Occurrence::Whole)),
        }
    }

    /// Removes the older half of the begins where there are too many.
    fn evict(&mut self, gaps: &EventGaps, found: &mut Vec<Occurrence>) {
        if self.open.len() <= MAX_OPEN {
            return;
        }
        let mut times: Vec<_> = self.open.values().map(|event| event.time).collect();
        let (_, median, _) = times.select_nth_unstable(MAX_OPEN / 2);
        let (older, newer) =
            std::mem::take(&mut self.open).into_iter().partition(|(_, event)| event.time <= *median);
        self.open = newer;
        let older: BTreeMap<PairKey, TimedEvent> = older;
        found.extend(older.into_values().filter_map(|event| without_end(event, MonotonicTime::MAX, gaps)));
    }
}

/// Whether the begin and the end of an occurrence are events of the same thread.
fn is_of_one_thread(kind: RuntimeEventKind) -> bool {
    matches!(kind, RuntimeEventKind::Contention | RuntimeEventKind::Compilation)
}

/// Whether the end of what has begun can be among dropped events.
fn has_lost_end(begin: &TimedEvent, until: MonotonicTime, gaps: &EventGaps) -> bool {
    let thread = Some(begin.thread).filter(|_| is_of_one_thread(begin.event.kind));
    gaps.are_between(begin.event.kind, thread, begin.time, until)
}

/// An occurrence whose end will not come: one that has happened if its end was dropped.
fn without_end(begin: TimedEvent, until: MonotonicTime, gaps: &EventGaps) -> Option<Occurrence> {
    has_lost_end(&begin, until, gaps).then_some(Occurrence::WithoutEnd(begin))
}

/// The occurrence that begins and ends with these events: with the fields of both.
fn joined(begin: TimedEvent, end: TimedEvent) -> TimedEvent {
    let mut whole = begin;
    whole.duration_ns = end.time.nanoseconds_since(whole.time);
    for field in end.event.fields {
        if !whole.event.fields.iter().any(|known| known.name == field.name) {
            whole.event.fields.push(field);
        }
    }
    whole
}

/// The occurrence whose end states its duration: it began before the session, or its begin was dropped.
fn with_known_duration(end: TimedEvent) -> Option<TimedEvent> {
    let is_duration = |field: &&Field| field.name == DURATION_FIELD;
    let Value::Real(duration_ns) = end.event.fields.iter().find(is_duration)?.value else { return None };
    // Conversion saturates, and makes 0 of what is no number.
    let duration_ns = (duration_ns as u64).min(end.time.0);
    Some(TimedEvent { time: end.time.saturating_sub(Duration::from_nanos(duration_ns)), duration_ns, ..end })
}

#[cfg(test)]
mod tests {
    use profiler_dotnet_symbols::eventpipe::{
        code_events::RUNTIME_PROVIDER,
        nettrace::{Event, EventKind},
    };

    use super::*;
    use crate::event_gaps::EventGap;

    fn event(id: u32, time_ns: u64, thread: u64, payload: &[u8]) -> TimedEvent {
        let kind = EventKind { provider: RUNTIME_PROVIDER.to_owned(), id, ..EventKind::default() };
        let event = Event { kind: &kind, thread, ticks: 0, activity: 0, payload, stack: &[] };
        let event = RuntimeEvent::decode(&event).unwrap().unwrap();
        TimedEvent {
            time: MonotonicTime(time_ns),
            duration_ns: 0,
            thread,
            event,
            stack: Box::default(),
            memory: MemoryReservation::default(),
        }
    }

    fn words(values: &[u32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    fn collection(begin_ns: u64, end_ns: u64, number: u32) -> [TimedEvent; 2] {
        // Another thread ends a background collection.
        let begin = event(1, begin_ns, 1, &words(&[number, 2, 1, 1]));
        [begin, event(2, end_ns, 2, &words(&[number, 2]))]
    }

    fn suspension(begin_ns: u64, end_ns: u64) -> [TimedEvent; 2] {
        [event(9, begin_ns, 1, &words(&[1, 5])), event(3, end_ns, 2, &[])]
    }

    fn contention_start(time_ns: u64, thread: u64) -> TimedEvent {
        event(81, time_ns, thread, &[0, 9, 0])
    }

    fn contention_stop(time_ns: u64, thread: u64, duration_ns: f64) -> TimedEvent {
        event(91, time_ns, thread, &[&[0, 9, 0][..], &duration_ns.to_le_bytes()].concat())
    }

    /// That of a runtime before .NET 5.
    fn old_contention_stop(time_ns: u64, thread: u64) -> TimedEvent {
        event(91, time_ns, thread, &[0, 9, 0])
    }

    #[derive(Default)]
    struct Fixture {
        pairs: EventPairs,
        gaps: EventGaps,
        found: Vec<Occurrence>,
    }

    impl Fixture {
        fn of(events: impl IntoIterator<Item = TimedEvent>) -> Self {
            Self::with_gap(None, events)
        }

        /// With a gap of all these kinds.
        fn with_gap(
            gap: Option<(Option<u64>, u64, u64)>,
            events: impl IntoIterator<Item = TimedEvent>,
        ) -> Self {
            let mut fixture = Self::default();
            if let Some((thread, from_ns, to_ns)) = gap {
                for kind in RuntimeEventKind::ALL {
                    fixture.gaps.add(
                        *kind,
                        EventGap { thread, from: MonotonicTime(from_ns), to: MonotonicTime(to_ns) },
                    );
                }
            }
            for event in events {
                fixture.pairs.add(event, &fixture.gaps, &mut fixture.found);
            }
            fixture.pairs.pair_up_to(MonotonicTime::MAX, &fixture.gaps, &mut fixture.found);
            fixture
        }

        fn ended_at(mut self, end_ns: u64) -> Vec<(RuntimeEventKind, u64, Option<u64>)> {
            self.pairs.end_at(MonotonicTime(end_ns), &self.gaps, &mut self.found);
            self.described()
        }

        /// Kind, time and duration of each occurrence; `None` where the end is not known.
        fn described(&self) -> Vec<(RuntimeEventKind, u64, Option<u64>)> {
            let describe = |found: &Occurrence| match found {
                Occurrence::Whole(event) => (event.event.kind, event.time.0, Some(event.duration_ns)),
                Occurrence::WithoutEnd(event) => (event.event.kind, event.time.0, None),
            };
            self.found.iter().map(describe).collect()
        }
    }

    const COLLECTION: RuntimeEventKind = RuntimeEventKind::GarbageCollection;
    const SUSPENSION: RuntimeEventKind = RuntimeEventKind::Suspension;
    const CONTENTION: RuntimeEventKind = RuntimeEventKind::Contention;

    #[test]
    fn overlapping_collections_are_paired_by_their_numbers() {
        let [background, background_end] = collection(10, 90, 7);
        let [blocking, blocking_end] = collection(20, 30, 8);
        let fixture = Fixture::of([background_end, blocking_end, blocking, background]);
        assert_eq!(fixture.described(), [(COLLECTION, 20, Some(10)), (COLLECTION, 10, Some(80))]);
        let Occurrence::Whole(first) = &fixture.found[0] else { panic!("it has an end") };
        let names: Vec<_> = first.event.fields.iter().map(|field| &*field.name).collect();
        assert_eq!(names, ["Count", "Depth", "Reason", "Type"], "no field twice");
        assert!(fixture.pairs.open.is_empty());
    }

    #[test]
    fn contentions_are_paired_by_their_threads_and_have_the_fields_of_both_events() {
        let fixture = Fixture::of([
            contention_start(10, 1),
            contention_start(15, 2),
            contention_stop(35, 1, 25.0),
            contention_start(50, 1),
        ]);
        assert_eq!(fixture.described(), [(CONTENTION, 10, Some(25))]);
        let Occurrence::Whole(first) = &fixture.found[0] else { panic!("it has an end") };
        assert!(first.event.fields.iter().any(|field| field.name == DURATION_FIELD), "{first:?}");
        let mut all = fixture.ended_at(60);
        all.sort_unstable();
        assert_eq!(all, [(CONTENTION, 10, Some(25)), (CONTENTION, 15, Some(45)), (CONTENTION, 50, Some(10))]);
    }

    #[test]
    fn the_end_of_what_began_before_the_session_counts_if_it_has_a_duration() {
        let fixture = Fixture::of([contention_stop(100, 1, 40.0), event(2, 100, 1, &words(&[7, 2]))]);
        assert_eq!(fixture.described(), [(CONTENTION, 60, Some(40))]);
        for (duration, expected) in [(f64::NAN, 0), (-5.0, 0), (f64::INFINITY, 100)] {
            let fixture = Fixture::of([contention_stop(100, 1, duration)]);
            assert_eq!(fixture.described(), [(CONTENTION, 100 - expected, Some(expected))], "{duration}");
        }
    }

    #[test]
    fn a_begin_that_is_followed_by_another_one_is_left_out() {
        let [first, _] = suspension(10, 30);
        let fixture = Fixture::of([first].into_iter().chain(suspension(20, 30)));
        assert_eq!(fixture.described(), [(SUSPENSION, 20, Some(10))]);
        assert!(fixture.pairs.open.is_empty());
    }

    #[test]
    fn an_end_after_dropped_events_does_not_end_what_began_before_them() {
        // The end of the first and the begin of the second were dropped.
        let events = || suspension(10, 1_500);
        let fixture = Fixture::with_gap(Some((Some(5), 15, 1_495)), events());
        assert_eq!(fixture.described(), [(SUSPENSION, 10, None)]);
        // Events that were dropped before it and after it are of others.
        let fixture = Fixture::with_gap(Some((Some(5), 0, 10)), events());
        assert_eq!(fixture.described(), [(SUSPENSION, 10, Some(1_490))]);
        let fixture = Fixture::with_gap(Some((Some(5), 1_500, 1_600)), events());
        assert_eq!(fixture.described(), [(SUSPENSION, 10, Some(1_490))]);
    }

    #[test]
    fn the_number_of_a_collection_pairs_it_across_dropped_events() {
        let fixture = Fixture::with_gap(Some((None, 15, 25)), collection(10, 30, 7));
        assert_eq!(fixture.described(), [(COLLECTION, 10, Some(20))]);
    }

    #[test]
    fn a_wait_for_a_lock_is_broken_by_dropped_events_of_its_thread_alone() {
        let events = || [contention_start(10, 1), old_contention_stop(90, 1)];
        let with = |thread| Fixture::with_gap(Some((Some(thread), 20, 80)), events()).described();
        assert_eq!(with(2), [(CONTENTION, 10, Some(80))]);
        assert_eq!(with(1), [(CONTENTION, 10, None)]);
        // An end that states the duration is true.
        let events = [contention_start(10, 1), contention_stop(90, 1, 5.0)];
        let fixture = Fixture::with_gap(Some((Some(1), 20, 80)), events);
        assert_eq!(fixture.described(), [(CONTENTION, 85, Some(5))]);
    }

    #[test]
    fn what_has_begun_before_dropped_events_does_not_last_until_the_end() {
        let begin = || suspension(10, 30).into_iter().take(1);
        assert_eq!(Fixture::of(begin()).ended_at(100), [(SUSPENSION, 10, Some(90))]);
        let fixture = Fixture::with_gap(Some((Some(9), 20, 30)), begin());
        assert_eq!(fixture.ended_at(100), [(SUSPENSION, 10, None)]);
        let begins = begin().chain(suspension(50, 60));
        let fixture = Fixture::with_gap(Some((Some(9), 20, 30)), begins);
        let expected = [(SUSPENSION, 10, None), (SUSPENSION, 50, Some(10))];
        assert_eq!(fixture.described(), expected, "its end was dropped: another one has begun");
    }

    #[test]
    fn endless_begins_are_bounded_and_the_newest_are_kept() {
        let count = 10 * MAX_UNORDERED as u32;
        let begins = (0..count).map(|number| event(1, number.into(), 1, &words(&[number, 2, 1, 1])));
        let mut fixture = Fixture::of(begins);
        assert!(fixture.pairs.open.len() <= MAX_OPEN && fixture.pairs.unordered.is_empty());
        let [_, last_end] = collection(0, count.into(), count - 1);
        let [_, first_end] = collection(0, count.into(), 0);
        for end in [last_end, first_end] {
            fixture.pairs.add(end, &fixture.gaps, &mut fixture.found);
        }
        fixture.pairs.pair_up_to(MonotonicTime::MAX, &fixture.gaps, &mut fixture.found);
        assert_eq!(fixture.described(), [(COLLECTION, u64::from(count) - 1, Some(1))]);
    }
}
