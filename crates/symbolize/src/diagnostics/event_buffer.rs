//! The events of a process that its listener received, within a memory budget, until a profile takes them.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    sync::Arc,
};

use profiler_dotnet_symbols::eventpipe::{
    fields::{Field, Value},
    nettrace::Event,
    runtime_events::RuntimeEvent,
};
use profiler_profile::RuntimeEventKind;

use super::{
    clock::TimeBase,
    event_pairs::{PairedEvents, TimedEvent, pair},
    event_sessions::EventSession,
    event_threads::{EventThread, MAX_THREADS},
    memory_budget::{MemoryBudget, MemoryReservation},
};

/// Events of a process in one profile. A program that throws ten thousand exceptions each second has as many in ten seconds.
const MAX_EVENTS: usize = 1 << 17;

/// The field with the thread that has the lock, in the pid namespace of the process; 0 where it is unknown.
const OWNER_FIELD: &str = "LockOwnerThreadID";

/// An event that a runtime reported.
#[derive(Clone, Debug)]
pub struct CollectedEvent {
    /// The start, `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    /// How long it took; 0 for an event without a duration.
    pub duration_ns: u64,
    /// The thread that reported it: its id in the profiler's pid namespace, and its name, which is empty if it is unknown.
    pub thread: Option<(u32, Arc<str>)>,
    /// The thread that had the lock for which the reporting thread waits, as above.
    pub lock_owner: Option<(u32, Arc<str>)>,
    /// What happened.
    pub kind: RuntimeEventKind,
    /// The name of the provider and that of the event.
    pub name: Cow<'static, str>,
    /// The fields. Thread ids are those of the profiler's pid namespace.
    pub fields: Vec<Field>,
    /// The return addresses of managed frames, leaf first.
    pub stack: Box<[u64]>,
}

/// The events of one process.
#[derive(Debug)]
pub(super) struct EventBuffer {
    budget: MemoryBudget,
    memory: MemoryReservation,
    events: Vec<TimedEvent>,
    /// Events whose threads are not looked up yet.
    incoming: Vec<TimedEvent>,
    /// By their ids in the pid namespace of the process.
    threads: HashMap<u64, EventThread>,
    /// Ids of threads that were not looked up.
    new_threads: HashSet<u64>,
    /// Events that the runtime dropped, and those that exceeded the limits, of the whole session.
    pub(super) dropped_events: u64,
    /// Events whose payload is too short, of the whole session.
    pub(super) malformed_events: u64,
}

impl EventBuffer {
    /// No events. Their memory is reserved from the budget.
    pub(super) fn new(budget: MemoryBudget) -> Self {
        Self {
            memory: MemoryReservation::new(&budget),
            budget,
            events: Vec::new(),
            incoming: Vec::new(),
            threads: HashMap::new(),
            new_threads: HashSet::new(),
            dropped_events: 0,
            malformed_events: 0,
        }
    }

    /// Adds an event, if it is one of those that were requested of its session. It can be taken when its threads have been added.
    pub(super) fn add(&mut self, session: &EventSession, base: TimeBase, event: &Event<'_>) {
        match RuntimeEvent::decode(event) {
            Some(Ok(decoded)) if session.keeps(&event.kind.provider, &decoded) => {
                let stack = if session.keeps_stacks() { event.stack.into() } else { Box::default() };
                let (time_ns, thread) = (base.to_monotonic_ns(event.ticks), event.thread);
                self.note_threads(thread, &decoded);
                self.incoming.push(TimedEvent { time_ns, duration_ns: 0, thread, event: decoded, stack });
            }
            Some(Ok(_)) | None => {}
            Some(Err(_)) => self.malformed_events += 1,
        }
    }

    /// The ids that are to be looked up.
    pub(super) fn take_new_threads(&mut self) -> HashSet<u64> {
        std::mem::take(&mut self.new_threads)
    }

    /// Adds the threads that were found of the events up to now.
    pub(super) fn add_threads(&mut self, threads: HashMap<u64, EventThread>) {
        self.threads.extend(threads);
        for event in std::mem::take(&mut self.incoming) {
            self.push(event);
        }
    }

    /// The events up to the end of an interval, `CLOCK_MONOTONIC`: those that have ended, and if the interval is the last one,
    /// those that have begun. The others stay for the next interval.
    pub(super) fn take(&mut self, interval_end_ns: u64, is_last: bool) -> Vec<CollectedEvent> {
        if is_last {
            self.add_threads(HashMap::new());
        }
        let received = std::mem::take(&mut self.events);
        // The memory of what is taken is that of the profile from now on.
        self.memory = MemoryReservation::new(&self.budget);
        let is_of_interval = |event: &TimedEvent| is_last || event.time_ns <= interval_end_ns;
        let (received, later): (Vec<_>, Vec<_>) = received.into_iter().partition(is_of_interval);
        let PairedEvents { mut whole, open } = pair(received);
        if is_last {
            whole.extend(open.into_iter().map(|event| {
                let duration_ns = interval_end_ns.saturating_sub(event.time_ns);
                TimedEvent { duration_ns, ..event }
            }));
            whole.retain(|event| event.time_ns <= interval_end_ns);
        } else {
            open.into_iter().chain(later).for_each(|event| self.push(event));
        }
        whole.into_iter().map(|event| self.collected(event)).collect()
    }

    fn push(&mut self, event: TimedEvent) {
        let fields = event.event.fields.iter().map(Field::memory_bytes).sum::<usize>();
        let bytes = size_of::<TimedEvent>() + fields + size_of_val(&*event.stack) + event.event.name.len();
        if self.events.len() < MAX_EVENTS && self.memory.reserve(bytes) {
            self.events.push(event);
        } else {
            self.dropped_events += 1;
        }
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
        let TimedEvent { time_ns, duration_ns, thread, event, stack } = event;
        let lock_owner = event.unsigned(OWNER_FIELD).and_then(|owner| self.thread(owner));
        let fields =
            event.fields.into_iter().filter_map(|field| translated(field, lock_owner.as_ref())).collect();
        CollectedEvent {
            time_ns,
            duration_ns,
            thread: self.thread(thread),
            kind: event.kind,
            name: event.name,
            lock_owner,
            fields,
            stack,
        }
    }

    fn thread(&self, id: u64) -> Option<(u32, Arc<str>)> {
        self.threads.get(&id).map(|thread| (thread.tid, Arc::clone(&thread.comm)))
    }
}

/// A field with thread ids of the profiler's pid namespace. `None` is one with the id of an unknown thread.
fn translated(field: Field, lock_owner: Option<&(u32, Arc<str>)>) -> Option<Field> {
    if field.name != OWNER_FIELD {
        return Some(field);
    }
    let (tid, _) = lock_owner?;
    Some(Field { value: Value::Unsigned((*tid).into()), ..field })
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
                self.buffer.add(session, TimeBase::new(CLOCK, 0), &event);
            }
        }

        /// Adds an event whose threads are not found.
        fn add_whole(&mut self, id: u32, time_ns: u64, thread: u64, payload: &[u8]) {
            self.add(id, time_ns, thread, payload);
            self.buffer.add_threads(HashMap::new());
        }

        fn collection(&mut self, begin_ns: u64, end_ns: u64) {
            self.add_whole(1, begin_ns, 1, &[7, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
            self.add_whole(2, end_ns, 1, &[7, 0, 0, 0, 2, 0, 0, 0]);
        }

        /// Kind, time and duration of the events that are taken.
        fn take(&mut self, end_ns: u64, is_last: bool) -> Vec<(RuntimeEventKind, u64, u64)> {
            let events = self.buffer.take(end_ns, is_last);
            events.into_iter().map(|event| (event.kind, event.time_ns, event.duration_ns)).collect()
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
        let events = fixture.buffer.take(100, true);
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
        assert!(fixture.buffer.take(20, false).is_empty(), "their threads are not known yet");
        let found = |id: u64| (id, EventThread { tid: 1_000 + id as u32, comm: format!("t{id}").into() });
        fixture.buffer.add_threads([found(5), found(6)].into());
        let mut events = fixture.buffer.take(20, true);
        events.sort_by_key(|event| event.thread.clone());
        let owner = |event: &CollectedEvent| {
            event.fields.iter().find(|field| field.name == OWNER_FIELD).map(|field| field.value.clone())
        };
        let described: Vec<_> = events
            .iter()
            .map(|event| (event.thread.as_ref().map(|(tid, comm)| (*tid, &**comm)), owner(event)))
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
    fn endless_events_and_threads_are_bounded() {
        let mut fixture = Fixture::new(&[EventSet::Exceptions]);
        for number in 0..MAX_EVENTS as u64 + 10 {
            fixture.add_whole(80, number, number, &[0; 32]);
        }
        assert!(fixture.buffer.take_new_threads().len() <= MAX_THREADS);
        assert_eq!(fixture.buffer.dropped_events, 10);
        assert_eq!(fixture.take(u64::MAX, true).len(), MAX_EVENTS);
    }
}
