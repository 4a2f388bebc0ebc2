//! The events of one kind that are kept of all that a runtime reports: all, or where these are too many, a part that is spread
//! evenly over them.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
};

use profiler_addresses::MonotonicTime;
use profiler_dotnet_symbols::eventpipe::{fields::Value, runtime_events::RuntimeEvent};
use profiler_profile::{OmittedEvents, RuntimeEventKind};

use super::event_pairs::TimedEvent;

/// The fields that name an event among those of its kind.
const NAME_FIELDS: [&str; 4] = ["ExceptionType", "TypeName", "Reason", "Name"];

/// The level that keeps one event of all.
const MAX_LEVEL: u32 = 40;

/// What is kept of a kind at most.
#[derive(Clone, Copy, Debug)]
struct Limits {
    events: usize,
    bytes: usize,
}

impl Limits {
    fn of(kind: RuntimeEventKind) -> Self {
        match kind {
            // Each is looked at by itself.
            RuntimeEventKind::Request
            | RuntimeEventKind::Counter
            | RuntimeEventKind::PoolAdjustment
            | RuntimeEventKind::Other => Self { events: 1 << 16, bytes: 32 << 20 },
            _ => Self { events: 1 << 13, bytes: 4 << 20 },
        }
    }
}

/// The name of an event among those of its kind, as a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct NameHash(u64);

impl NameHash {
    pub(super) fn of_bytes(name: &[u8]) -> Self {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        Self(hasher.finish())
    }

    pub(super) fn of(event: &RuntimeEvent) -> Self {
        let text = |name: &&str| {
            let field = event.fields.iter().find(|field| field.name == *name)?;
            if let Value::Text(text) = &field.value { Some(text) } else { None }
        };
        let name = NAME_FIELDS.iter().find_map(text).unwrap_or(&event.name);
        Self::of_bytes(name.as_bytes())
    }
}

/// The place of an event in the order of those of its kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    index: u64,
    /// Whether it is one of the first of its name.
    is_first: bool,
}

impl Place {
    /// Whether it is kept where each level halves what the one before keeps.
    fn is_kept_at(self, level: u32) -> bool {
        /// 2^64 divided by the golden ratio: the multiples of it are spread evenly, and without a period that events could have
        /// as well (Knuth, "The Art of Computer Programming", volume 3, section 6.4).
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        self.is_first || self.index.wrapping_mul(STEP).leading_zeros() >= level
    }
}

#[derive(Debug)]
struct KeptEvent {
    place: Place,
    bytes: usize,
    event: TimedEvent,
}

/// The kept events of a kind.
#[derive(Debug)]
pub(super) struct KeptEvents {
    limits: Limits,
    level: u32,
    next_index: u64,
    bytes: usize,
    events: Vec<KeptEvent>,
    names: HashMap<NameHash, u32>,
}

impl KeptEvents {
    pub(super) fn new(kind: RuntimeEventKind) -> Self {
        let limits = Limits::of(kind);
        Self { limits, level: 0, next_index: 0, bytes: 0, events: Vec::new(), names: HashMap::new() }
    }

    /// The place of the next event, if it is kept.
    pub(super) fn next_place(&mut self, name: NameHash) -> Option<Place> {
        let place = Place { index: self.next_index, is_first: self.is_first(name) };
        self.next_index += 1;
        place.is_kept_at(self.level).then_some(place)
    }

    /// Adds the event with a place. Calls `omit` with those that are not kept for it, which can be itself.
    pub(super) fn push(&mut self, place: Place, event: TimedEvent, mut omit: impl FnMut(TimedEvent)) {
        if !place.is_kept_at(self.level) {
            return omit(event);
        }
        let bytes = event.memory_bytes();
        self.bytes += bytes;
        self.events.push(KeptEvent { place, bytes, event });
        while self.is_over_limits() && self.level < MAX_LEVEL {
            self.level += 1;
            let level = self.level;
            self.remove(|kept| !kept.place.is_kept_at(level)).for_each(&mut omit);
        }
        if self.is_over_limits() {
            // The first of all names are too large.
            self.remove(|kept| kept.place.index == place.index).for_each(omit);
        }
    }

    /// Removes the events that have ended by a time and returns them. The next interval can have as many.
    pub(super) fn take_ended(&mut self, end: MonotonicTime) -> Vec<TimedEvent> {
        let ended = self.remove(|kept| kept.event.end() <= end).collect();
        self.level = 0;
        self.names.clear();
        ended
    }

    fn is_first(&mut self, name: NameHash) -> bool {
        let has_room = self.names.len() < OmittedEvents::MAX_NAMES;
        match self.names.get_mut(&name) {
            Some(count) if *count < OmittedEvents::FIRST_OF_NAME => {
                *count += 1;
                true
            }
            None if has_room => self.names.insert(name, 1).is_none(),
            Some(_) | None => false,
        }
    }

    fn is_over_limits(&self) -> bool {
        self.events.len() > self.limits.events || self.bytes > self.limits.bytes
    }

    fn remove(&mut self, is_removed: impl Fn(&KeptEvent) -> bool) -> impl Iterator<Item = TimedEvent> {
        let (removed, kept): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.events).into_iter().partition(is_removed);
        self.events = kept;
        self.bytes -= removed.iter().map(|removed| removed.bytes).sum::<usize>();
        removed.into_iter().map(|removed| removed.event)
    }
}

#[cfg(test)]
mod tests {
    use profiler_dotnet_symbols::eventpipe::{
        code_events::RUNTIME_PROVIDER,
        nettrace::{Event, EventKind},
        testing::text,
    };

    use super::*;
    use crate::memory_budget::MemoryReservation;

    const KIND: RuntimeEventKind = RuntimeEventKind::Exception;

    /// An exception with a type and a number of frames.
    fn event(time_ns: u64, name: &str, frames: usize) -> TimedEvent {
        let kind = EventKind { provider: RUNTIME_PROVIDER.to_owned(), id: 80, ..EventKind::default() };
        let payload = [text(name), text("message"), vec![0; 16]].concat();
        let event = Event { kind: &kind, thread: 1, ticks: 0, activity: 0, payload: &payload, stack: &[] };
        TimedEvent {
            time: MonotonicTime(time_ns),
            duration_ns: 0,
            thread: 1,
            event: RuntimeEvent::decode(&event).unwrap().unwrap(),
            stack: vec![0; frames].into(),
            memory: MemoryReservation::default(),
        }
    }

    struct Fixture {
        kept: KeptEvents,
        omitted: usize,
    }

    impl Fixture {
        fn new() -> Self {
            Self { kept: KeptEvents::new(KIND), omitted: 0 }
        }

        fn add(&mut self, event: TimedEvent) {
            match self.kept.next_place(NameHash::of(&event.event)) {
                Some(place) => self.kept.push(place, event, |_| self.omitted += 1),
                None => self.omitted += 1,
            }
        }

        fn times(&mut self, end_ns: u64) -> Vec<u64> {
            self.kept.take_ended(MonotonicTime(end_ns)).iter().map(|event| event.time.0).collect()
        }
    }

    #[test]
    fn events_up_to_the_limit_are_kept() {
        let mut fixture = Fixture::new();
        let count = 1 << 13;
        (0..count).for_each(|time_ns| fixture.add(event(time_ns, "T", 0)));
        assert_eq!((fixture.times(u64::MAX).len() as u64, fixture.omitted), (count, 0));
    }

    #[test]
    fn too_many_events_are_thinned_evenly_and_each_is_kept_or_omitted() {
        let mut fixture = Fixture::new();
        let count = 1_000_000;
        (0..count).for_each(|time_ns| fixture.add(event(time_ns, "T", 0)));
        let times = fixture.times(u64::MAX);
        assert_eq!(times.len() + fixture.omitted, count as usize);
        assert!((1 << 12..=1 << 13).contains(&times.len()), "{}", times.len());
        let mut tenths = [0; 10];
        times.iter().for_each(|time_ns| tenths[(time_ns * 10 / count) as usize] += 1);
        let (fewest, most) = (tenths.iter().min().unwrap(), tenths.iter().max().unwrap());
        assert!(most - fewest <= 20, "{tenths:?}");
    }

    #[test]
    fn events_that_alternate_keep_their_shares() {
        let mut fixture = Fixture::new();
        let names = ["A", "B", "C", "D"];
        for time_ns in 0..200_000_u64 {
            fixture.add(event(time_ns, names[time_ns as usize % names.len()], 0));
        }
        let mut of_name = [0_u64; 4];
        fixture.times(u64::MAX).iter().for_each(|time_ns| of_name[*time_ns as usize % names.len()] += 1);
        let total: u64 = of_name.iter().sum();
        assert!(of_name.iter().all(|count| count.abs_diff(total / 4) < total / 50), "{of_name:?}");
    }

    #[test]
    fn the_first_of_a_rare_name_are_kept_beside_a_storm() {
        let mut fixture = Fixture::new();
        for time_ns in 0..200_000 {
            fixture.add(event(time_ns, if time_ns % 60_000 == 59_999 { "rare" } else { "T" }, 0));
        }
        let times = fixture.times(u64::MAX);
        assert!([59_999, 119_999, 179_999].iter().all(|rare| times.contains(rare)));
    }

    #[test]
    fn large_events_and_endless_names_are_bounded() {
        let mut fixture = Fixture::new();
        for time_ns in 0..20_000 {
            fixture.add(event(time_ns, &time_ns.to_string(), 100 * (time_ns as usize % 100)));
            assert!(!fixture.kept.is_over_limits() && fixture.kept.names.len() <= OmittedEvents::MAX_NAMES);
        }
        assert_eq!(fixture.times(u64::MAX).len() + fixture.omitted, 20_000);
        assert_eq!(fixture.kept.bytes, 0);
    }

    #[test]
    fn events_that_end_later_are_of_the_next_interval() {
        let mut fixture = Fixture::new();
        fixture.add(event(10, "T", 0));
        fixture.add(TimedEvent { duration_ns: 100, ..event(20, "T", 0) });
        assert_eq!(fixture.times(50), [10]);
        assert_eq!(fixture.times(120), [20]);
    }
}
