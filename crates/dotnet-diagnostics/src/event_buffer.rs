//! The events of a process that its listener received, within limits, until a profile takes them.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use profiler_addresses::MonotonicTime;
use profiler_dotnet_symbols::eventpipe::{
    fields::{Field, Value},
    nettrace::{Event, Gap},
    runtime_events::{Phase, RuntimeEvent},
};
use profiler_processes::Tid;
use profiler_profile::RuntimeEventKind;

use super::{
    clock::TimeBase,
    collection_numbers::CollectionNumbers,
    event_gaps::{EventGap, EventGaps},
    event_pairs::{EventPairs, Occurrence, TimedEvent},
    event_sessions::EventSession,
    event_threads::{EventThread, MAX_THREADS},
    kept_events::{KeptEvents, NameHash, Place},
    memory_budget::{MemoryBudget, MemoryReservation},
    omitted_counts::{OmittedCount, OmittedCounts},
};

/// The field with the thread that has the lock, in the pid namespace of the process; 0 where it is unknown.
const OWNER_FIELD: &str = "LockOwnerThreadID";

/// The field with the number of a collection.
const COLLECTION_NUMBER_FIELD: &str = "Count";

/// An event that a runtime reported.
#[derive(Clone, Debug)]
pub struct CollectedEvent {
    /// The start.
    pub time: MonotonicTime,
    /// How long it took; 0 for an event without a duration.
    pub duration_ns: u64,
    /// The thread that reported it: its id in the profiler's pid namespace, and its name, which is empty if it is unknown.
    pub thread: Option<(Tid, Arc<str>)>,
    /// The thread that had the lock for which the reporting thread waits, as above.
    pub lock_owner: Option<(Tid, Arc<str>)>,
    /// What happened.
    pub kind: RuntimeEventKind,
    /// The name of the provider and that of the event.
    pub name: Cow<'static, str>,
    /// The fields. Thread ids are those of the profiler's pid namespace.
    pub fields: Vec<Field>,
    /// The return addresses of managed frames, leaf first.
    pub stack: Box<[u64]>,
}

/// The events of an interval.
#[derive(Debug, Default)]
pub(crate) struct TakenEvents {
    pub(crate) events: Vec<CollectedEvent>,
    pub(crate) omitted: Vec<OmittedCount>,
}

/// The events of one process.
#[derive(Debug)]
pub(super) struct EventBuffer {
    budget: MemoryBudget,
    /// Events whose threads are not looked up yet.
    incoming: Vec<IncomingEvent>,
    pairs: EventPairs,
    gaps: EventGaps,
    kept: BTreeMap<RuntimeEventKind, KeptEvents>,
    omitted: OmittedCounts,
    collections: CollectionNumbers,
    /// By their ids in the pid namespace of the process.
    threads: HashMap<u64, EventThread>,
    /// Ids of threads that were not looked up.
    new_threads: HashSet<u64>,
    /// Events that the runtime dropped, and those that exceeded the memory budget, of the whole session.
    pub(super) dropped_events: u64,
    /// Events whose payload is too short, of the whole session.
    pub(super) malformed_events: u64,
}

/// An event that is kept: its place among those of its kind, unless it has a begin and an end.
#[derive(Debug)]
struct IncomingEvent {
    place: Option<Place>,
    event: TimedEvent,
}

impl EventBuffer {
    /// No events. Their memory is reserved from the budget.
    pub(super) fn new(budget: MemoryBudget) -> Self {
        Self {
            budget,
            incoming: Vec::new(),
            pairs: EventPairs::default(),
            gaps: EventGaps::default(),
            kept: BTreeMap::new(),
            omitted: OmittedCounts::default(),
            collections: CollectionNumbers::default(),
            threads: HashMap::new(),
            new_threads: HashSet::new(),
            dropped_events: 0,
            malformed_events: 0,
        }
    }

    /// Adds an event, if it is one of those that were requested of its session. It can be taken when its threads have been added.
    pub(super) fn add(&mut self, session: &EventSession, base: TimeBase, event: &Event<'_>) {
        let time = base.to_monotonic_time(event.ticks);
        let place = match RuntimeEvent::exception_type(event) {
            // Decoding an event costs more than all else about one that is not kept.
            Some(name) if session.keeps_kind(&event.kind.provider, RuntimeEventKind::Exception) => {
                let place = self.next_place(RuntimeEventKind::Exception, NameHash::of_bytes(name));
                if place.is_none() {
                    return self.omitted.add(RuntimeEventKind::Exception, time, 0);
                }
                place
            }
            _ => None,
        };
        match RuntimeEvent::decode(event) {
            Some(Ok(decoded)) if session.keeps_kind(&event.kind.provider, decoded.kind) => {
                let stack = if session.keeps_stacks() { event.stack.into() } else { Box::default() };
                let (duration_ns, thread) = (0, event.thread);
                let memory = MemoryReservation::new(&self.budget);
                self.add_decoded(
                    place,
                    TimedEvent { time, duration_ns, thread, event: decoded, stack, memory },
                );
            }
            Some(Ok(_)) | None => {}
            Some(Err(_)) => self.malformed_events += 1,
        }
    }

    /// Adds the times in which the runtime dropped events of a session.
    pub(super) fn add_gaps(&mut self, session: &EventSession, base: TimeBase, gaps: Vec<Gap>) {
        for Gap { thread, from_ticks, to_ticks, events } in gaps {
            let [from, to] = [from_ticks, to_ticks].map(|ticks| base.to_monotonic_time(ticks));
            if let Some(kind) = session.only_kind() {
                self.omitted.add_number(kind, to, events);
                continue;
            }
            for kind in session.kinds() {
                self.add_gap(kind, EventGap { thread, from, to });
            }
        }
    }

    /// The ids that are to be looked up.
    pub(super) fn take_new_threads(&mut self) -> HashSet<u64> {
        std::mem::take(&mut self.new_threads)
    }

    /// Adds the threads that were found of the events up to now.
    pub(super) fn add_threads(&mut self, threads: HashMap<u64, EventThread>) {
        self.threads.extend(threads);
        let mut found = Vec::new();
        for IncomingEvent { place, event } in std::mem::take(&mut self.incoming) {
            match place {
                Some(place) => self.keep(place, event),
                None => self.pairs.add(event, &self.gaps, &mut found),
            }
        }
        self.add_occurrences(found);
    }

    /// The events up to the end of an interval: those that have ended, and if the interval is the last one, those that
    /// have begun. The others stay for the next interval.
    pub(super) fn take(&mut self, interval_end: MonotonicTime, is_last: bool) -> TakenEvents {
        let mut found = Vec::new();
        let end = if is_last { MonotonicTime::MAX } else { interval_end };
        if is_last {
            self.add_threads(HashMap::new());
        }
        self.pairs.pair_up_to(end, &self.gaps, &mut found);
        if is_last {
            self.pairs.end_at(interval_end, &self.gaps, &mut found);
        }
        self.add_occurrences(found);
        self.add_missing_collections();
        let mut events = Vec::new();
        for event in self.kept.values_mut().flat_map(|kept| kept.take_ended(end)) {
            if event.is_across_threads() && event.can_lack_events(event.end(), &self.gaps) {
                // What another thread dropped before was not known when it ended.
                self.omitted.add(event.event.kind, event.end(), 0);
            } else if event.time <= interval_end {
                events.push(event);
            }
        }
        let events = events.into_iter().map(|event| self.collected(event)).collect();
        TakenEvents { events, omitted: self.omitted.take_up_to(interval_end) }
    }

    fn add_decoded(&mut self, place: Option<Place>, mut event: TimedEvent) {
        let (kind, time) = (event.event.kind, event.time);
        let is_whole = event.event.phase == Phase::Whole;
        let place = match place {
            None if is_whole => match self.next_place(kind, NameHash::of(&event.event)) {
                None => return self.omitted.add(kind, time, 0),
                place => place,
            },
            place => place,
        };
        if !event.reserve_memory() {
            self.dropped_events += 1;
            if is_whole {
                self.omitted.add(kind, time, 0);
            } else {
                self.add_gap(kind, EventGap { thread: Some(event.thread), from: time, to: time });
            }
            return;
        }
        let is_begin = event.event.phase == Phase::Begin;
        if kind == RuntimeEventKind::GarbageCollection
            && is_begin
            && let Some(number) = event.event.unsigned(COLLECTION_NUMBER_FIELD)
        {
            self.collections.add(number, time);
        }
        self.note_threads(event.thread, &event.event);
        self.incoming.push(IncomingEvent { place, event });
    }

    fn add_gap(&mut self, kind: RuntimeEventKind, gap: EventGap) {
        self.gaps.add(kind, gap);
        if kind == RuntimeEventKind::GarbageCollection {
            self.collections.add_gap(gap);
        } else {
            self.omitted.add_unknown(kind, gap.to);
        }
    }

    fn add_occurrences(&mut self, found: Vec<Occurrence>) {
        for occurrence in found {
            match occurrence {
                Occurrence::Whole(event) => {
                    match self.next_place(event.event.kind, NameHash::of(&event.event)) {
                        Some(place) => self.keep(place, event),
                        None => self.omitted.add(event.event.kind, event.end(), event.duration_ns),
                    }
                }
                Occurrence::WithoutEnd(event) => self.omitted.add(event.event.kind, event.time, 0),
            }
        }
    }

    fn add_missing_collections(&mut self) {
        let Some(missing) = self.collections.take_missing() else { return };
        let kind = RuntimeEventKind::GarbageCollection;
        if missing.count > 0 {
            self.omitted.add_number(kind, missing.before, missing.count);
        }
        if missing.can_be_more {
            self.omitted.add_unknown(kind, missing.before);
        }
    }

    fn next_place(&mut self, kind: RuntimeEventKind, name: NameHash) -> Option<Place> {
        self.kept.entry(kind).or_insert_with(|| KeptEvents::new(kind)).next_place(name)
    }

    fn keep(&mut self, place: Place, event: TimedEvent) {
        let (kind, omitted) = (event.event.kind, &mut self.omitted);
        let kept = self.kept.entry(kind).or_insert_with(|| KeptEvents::new(kind));
        kept.push(place, event, |event| omitted.add(kind, event.end(), event.duration_ns));
    }

    fn note_threads(&mut self, thread: u64, event: &RuntimeEvent) {
        for id in [Some(thread), event.unsigned(OWNER_FIELD)].into_iter().flatten() {
            let is_known = id == 0 || self.threads.contains_key(&id);
            if !is_known && self.threads.len() + self.new_threads.len() < MAX_THREADS {
                self.new_threads.insert(id);
            }
        }
    }

    fn collected(&self, event: TimedEvent) -> CollectedEvent {
        let TimedEvent { time, duration_ns, thread, event, stack, .. } = event;
        let lock_owner = event.unsigned(OWNER_FIELD).and_then(|owner| self.thread(owner));
        let fields =
            event.fields.into_iter().filter_map(|field| translated(field, lock_owner.as_ref())).collect();
        CollectedEvent {
            time,
            duration_ns,
            thread: self.thread(thread),
            kind: event.kind,
            name: event.name,
            lock_owner,
            fields,
            stack,
        }
    }

    fn thread(&self, id: u64) -> Option<(Tid, Arc<str>)> {
        self.threads.get(&id).map(|thread| (thread.tid, Arc::clone(&thread.comm)))
    }
}

/// A field with thread ids of the profiler's pid namespace. `None` is one with the id of an unknown thread.
fn translated(field: Field, lock_owner: Option<&(Tid, Arc<str>)>) -> Option<Field> {
    if field.name != OWNER_FIELD {
        return Some(field);
    }
    let (tid, _) = lock_owner?;
    Some(Field { value: Value::Unsigned(tid.0.into()), ..field })
}

#[cfg(test)]
mod tests {
    use profiler_dotnet_symbols::eventpipe::{
        code_events::RUNTIME_PROVIDER,
        nettrace::{Clock, EventKind},
    };

    use super::*;
    use crate::event_request::{EventRequest, EventSet};

    const CLOCK: Clock = Clock { begin_ticks: 0, ticks_per_second: 1_000_000_000 };

    struct Fixture {
        buffer: EventBuffer,
        sessions: Vec<EventSession>,
    }

    impl Fixture {
        fn new(sets: &[EventSet]) -> Self {
            let request = EventRequest { sets: sets.to_vec(), ..EventRequest::default() };
            let buffer = EventBuffer::new(MemoryBudget::default());
            Self { buffer, sessions: EventSession::all(&request, None) }
        }

        fn add(&mut self, id: u32, time_ns: u64, thread: u64, payload: &[u8]) {
            let kind = EventKind { provider: RUNTIME_PROVIDER.to_owned(), id, ..EventKind::default() };
            let event = Event { kind: &kind, thread, ticks: time_ns, activity: 0, payload, stack: &[0x10] };
            for session in &self.sessions {
                self.buffer.add(session, TimeBase::new(CLOCK, MonotonicTime(0)), &event);
            }
        }

        /// Adds an event whose threads are not found.
        fn add_whole(&mut self, id: u32, time_ns: u64, thread: u64, payload: &[u8]) {
            self.add(id, time_ns, thread, payload);
            self.buffer.add_threads(HashMap::new());
        }

        /// Adds a gap of a thread to the only session.
        fn add_gap(&mut self, thread: u64, times_ns: (u64, u64), events: u64) {
            self.add_gap_of(0, thread, times_ns, events);
        }

        fn add_gap_of(
            &mut self,
            session: usize,
            thread: u64,
            (from_ticks, to_ticks): (u64, u64),
            events: u64,
        ) {
            let gap = Gap { thread: Some(thread), from_ticks, to_ticks, events };
            self.buffer.add_gaps(&self.sessions[session], TimeBase::new(CLOCK, MonotonicTime(0)), vec![gap]);
        }

        fn collection(&mut self, begin_ns: u64, end_ns: u64) {
            self.add_whole(1, begin_ns, 1, &[7, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
            self.add_whole(2, end_ns, 1, &[7, 0, 0, 0, 2, 0, 0, 0]);
        }

        /// Kind, time and duration of the events that are taken.
        fn take(&mut self, end_ns: u64, is_last: bool) -> Vec<(RuntimeEventKind, u64, u64)> {
            let taken = self.buffer.take(MonotonicTime(end_ns), is_last);
            taken.events.into_iter().map(|event| (event.kind, event.time.0, event.duration_ns)).collect()
        }
    }

    const COLLECTION: RuntimeEventKind = RuntimeEventKind::GarbageCollection;

    #[test]
    fn an_event_is_of_the_interval_in_which_it_ends() {
        let mut fixture = Fixture::new(&[EventSet::Collections]);
        fixture.collection(10, 30);
        assert_eq!(fixture.take(20, false), []);
        assert_eq!(fixture.take(40, false), [(COLLECTION, 10, 20)]);
        assert_eq!(fixture.take(50, true), []);
    }

    #[test]
    fn the_last_interval_has_what_has_begun_up_to_its_end() {
        let mut fixture = Fixture::new(&[EventSet::Collections]);
        fixture.collection(10, 30);
        fixture.add_whole(9, 15, 1, &[1, 0, 0, 0, 7, 0, 0, 0]);
        fixture.add_whole(9, 25, 1, &[1, 0, 0, 0, 7, 0, 0, 0]);
        // The end of the collection is known. The suspension of before is not ended, that of after does not count.
        assert_eq!(fixture.take(20, true), [(COLLECTION, 10, 20)]);
        let mut fixture = Fixture::new(&[EventSet::Collections]);
        fixture.add_whole(9, 15, 1, &[1, 0, 0, 0, 7, 0, 0, 0]);
        assert_eq!(fixture.take(20, true), [(RuntimeEventKind::Suspension, 15, 5)]);
    }

    #[test]
    fn events_that_were_not_requested_are_not_kept() {
        let mut fixture = Fixture::new(&[EventSet::Exceptions]);
        fixture.collection(10, 30);
        fixture.add_whole(80, 10, 1, &[0; 32]);
        fixture.add_whole(80, 10, 1, &[1]);
        let events = fixture.buffer.take(MonotonicTime(100), true).events;
        assert_eq!(events.len(), 1);
        assert_eq!((events[0].kind, &*events[0].stack), (RuntimeEventKind::Exception, &[0x10][..]));
        assert_eq!((fixture.buffer.malformed_events, fixture.buffer.dropped_events), (1, 0));
    }

    #[test]
    fn threads_and_owners_of_locks_have_the_ids_of_the_profilers_namespace() {
        let mut fixture = Fixture::new(&[EventSet::Contentions]);
        let start = |owner: u64| [&[0, 9, 0][..], &[1_u64, 2, owner].map(u64::to_le_bytes).concat()].concat();
        for (thread, owner) in [(5, 6), (6, 0), (7, 99)] {
            fixture.add(81, 10, thread, &start(owner));
        }
        let new = fixture.buffer.take_new_threads();
        assert_eq!(new, [5, 6, 7, 99].into());
        assert!(
            fixture.buffer.take(MonotonicTime(20), false).events.is_empty(),
            "their threads are not known yet"
        );
        let found =
            |id: u64| (id, EventThread { tid: Tid(1_000 + id as u32), comm: format!("t{id}").into() });
        fixture.buffer.add_threads([found(5), found(6)].into());
        let mut events = fixture.buffer.take(MonotonicTime(20), true).events;
        events.sort_by_key(|event| event.thread.clone());
        let owner = |event: &CollectedEvent| {
            event.fields.iter().find(|field| field.name == OWNER_FIELD).map(|field| field.value.clone())
        };
        let described: Vec<_> = events
            .iter()
            .map(|event| (event.thread.as_ref().map(|(tid, comm)| (tid.0, &**comm)), owner(event)))
            .collect();
        let expected =
            [(None, None), (Some((1_005, "t5")), Some(Value::Unsigned(1_006))), (Some((1_006, "t6")), None)];
        assert_eq!(described, expected);
    }

    #[test]
    fn events_beyond_the_memory_budget_are_dropped_and_counted() {
        let mut fixture = Fixture::new(&[EventSet::Exceptions]);
        let message: Vec<u8> = [b'x', 0].repeat(1_000).into_iter().chain([0; 20]).collect();
        let payload = [&[b'T', 0, 0, 0][..], &message].concat();
        let mut other_session = MemoryReservation::new(&fixture.buffer.budget);
        while other_session.reserve(1 << 20) {}
        while other_session.reserve(1 << 10) {}
        for time_ns in 0..10 {
            fixture.add_whole(80, time_ns, 1, &payload);
        }
        assert_eq!((fixture.take(100, false).len(), fixture.buffer.dropped_events), (0, 10));
        drop(other_session);
        fixture.add_whole(80, 10, 1, &payload);
        assert_eq!((fixture.take(100, false).len(), fixture.buffer.dropped_events), (1, 10));
    }

    #[test]
    fn endless_events_and_threads_are_bounded_and_all_are_counted() {
        const EVENTS: u64 = 200_000;
        let mut fixture = Fixture::new(&[EventSet::Exceptions]);
        for number in 0..EVENTS {
            fixture.add_whole(80, number, number, &[0; 32]);
        }
        assert!(fixture.buffer.take_new_threads().len() <= MAX_THREADS);
        let taken = fixture.buffer.take(MonotonicTime::MAX, true);
        assert!((1 << 12..=1 << 13).contains(&taken.events.len()), "{}", taken.events.len());
        let omitted: u64 = taken.omitted.iter().map(|omitted| omitted.count).sum();
        assert_eq!(taken.events.len() as u64 + omitted, EVENTS);
        assert_eq!(fixture.buffer.dropped_events, 0);
    }

    #[test]
    fn a_storm_of_suspensions_has_all_their_durations() {
        const SUSPENSIONS: u64 = 50_000;
        let mut fixture = Fixture::new(&[EventSet::Collections]);
        for number in 0..SUSPENSIONS {
            let duration_ns = if number == 40_000 { 900 } else { 30 };
            fixture.add_whole(9, 1_000 * number, 1, &[1, 0, 0, 0, 7, 0, 0, 0]);
            fixture.add_whole(3, 1_000 * number + duration_ns, 2, &[]);
        }
        let taken = fixture.buffer.take(MonotonicTime::MAX, true);
        let kept = taken.events.iter().map(|event| event.duration_ns);
        let omitted: u64 = taken.omitted.iter().map(|omitted| omitted.duration_ns).sum();
        assert_eq!(kept.clone().sum::<u64>() + omitted, 30 * SUSPENSIONS + 870);
        let longest = taken.omitted.iter().map(|omitted| omitted.longest_ns).chain(kept).max();
        assert_eq!(longest, Some(900));
        assert!(taken.omitted.iter().all(|omitted| !omitted.is_lower_bound));
    }

    #[test]
    fn dropped_events_break_pairs_and_make_counts_lower_bounds() {
        let mut fixture = Fixture::new(&[EventSet::Collections]);
        fixture.add(9, 10, 1, &[1, 0, 0, 0, 7, 0, 0, 0]);
        fixture.add(3, 1_500, 1, &[]);
        fixture.add_gap(1, (20, 1_490), 2);
        fixture.buffer.add_threads(HashMap::new());
        let taken = fixture.buffer.take(MonotonicTime(2_000), true);
        assert!(taken.events.is_empty());
        let suspensions: Vec<_> =
            taken.omitted.iter().filter(|omitted| omitted.kind == RuntimeEventKind::Suspension).collect();
        let [omitted] = &suspensions[..] else { panic!("{suspensions:?}") };
        assert_eq!((omitted.count, omitted.duration_ns, omitted.is_lower_bound), (1, 0, true));
    }

    #[test]
    fn what_another_thread_dropped_breaks_pairs_when_it_is_known_later() {
        let mut fixture = Fixture::new(&[EventSet::Collections]);
        fixture.add_whole(9, 10, 1, &[1, 0, 0, 0, 7, 0, 0, 0]);
        fixture.add_whole(3, 1_500, 1, &[]);
        let mut found = Vec::new();
        fixture.buffer.pairs.pair_up_to(MonotonicTime::MAX, &fixture.buffer.gaps, &mut found);
        fixture.buffer.add_occurrences(found);
        fixture.add_gap(2, (20, 1_900), 2);
        assert_eq!(fixture.take(2_000, true), []);
    }

    #[test]
    fn dropped_events_are_exceptions_or_collections_where_numbers_say_so() {
        let mut fixture = Fixture::new(&[EventSet::Exceptions, EventSet::Collections]);
        let counted = |fixture: &mut Fixture, kind| {
            let taken = fixture.buffer.take(MonotonicTime::MAX, true).omitted;
            let of_kind: Vec<_> = taken.into_iter().filter(|omitted| omitted.kind == kind).collect();
            let is_lower_bound = of_kind.iter().any(|omitted| omitted.is_lower_bound);
            (of_kind.iter().map(|omitted| omitted.count).sum::<u64>(), is_lower_bound)
        };
        let session = fixture.sessions.iter().position(|session| session.only_kind().is_some()).unwrap();
        fixture.add_gap_of(session, 1, (20, 30), 1_000);
        assert_eq!(counted(&mut fixture, RuntimeEventKind::Exception), (1_000, false));
        for number in [3, 7] {
            fixture.add_whole(1, 10 * u64::from(number), 1, &[number, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0]);
            fixture.add_whole(2, 10 * u64::from(number) + 5, 1, &[number, 0, 0, 0, 2, 0, 0, 0]);
        }
        fixture.add_gap_of(1 - session, 1, (35, 70), 4);
        assert_eq!(counted(&mut fixture, RuntimeEventKind::GarbageCollection), (3, false));
    }
}
