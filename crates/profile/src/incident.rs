//! The incident for which a recorder kept a profile, and the part of the profile since it began.

use std::{collections::HashMap, fmt};

use crate::{
    Header, LockOwner, ManagedThread, OmittedEvents, PollReading, Profile, ProfileCopy, RuntimeEvent, Sample,
};

/// A condition of a recorder that became true.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Incident {
    /// The first moment at which the condition held, nanoseconds since the start of sampling.
    pub since_ns: u64,
    /// The moment of the incident: the condition has held as long as it asks for. Nanoseconds since the start of sampling.
    pub time_ns: u64,
    /// The condition: `cpu < 20% for 10s`.
    pub condition: String,
    /// The measured values: `cpu 3.1 %`.
    pub values: String,
}

impl fmt::Display for Incident {
    /// `incident at 62.3 s: cpu < 20% for 10s (cpu 3.1 %)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NS_PER_S: f64 = 1e9;
        write!(f, "incident at {:.1} s: {} ({})", self.time_ns as f64 / NS_PER_S, self.condition, self.values)
    }
}

impl Profile {
    /// The samples, runtime events and owners of locks since the incident began, as a profile of that time; `None` for a profile without an
    /// incident. The ledger stays that of the whole.
    #[must_use]
    pub fn since_incident(&self) -> Option<Self> {
        let since_ns = self.header.incident.as_ref()?.since_ns;
        let mut copy = ProfileCopy::of(self);
        let mut stacks = HashMap::new();
        for sample in self.samples.iter().filter(|sample| sample.time_ns >= since_ns) {
            let stack =
                *stacks.entry(sample.stack).or_insert_with(|| copy.stack(&self.stacks[sample.stack.index()]));
            copy.sample(&Sample { time_ns: sample.time_ns - since_ns, ..*sample }, stack);
        }
        for event in self.runtime_events.iter().filter(|event| event.end_ns() >= since_ns) {
            let duration_ns = event.end_ns() - event.time_ns.max(since_ns);
            let time_ns = event.time_ns.saturating_sub(since_ns);
            copy.runtime_event(&RuntimeEvent { time_ns, duration_ns, ..event.clone() });
        }
        for omitted in self.omitted_events.iter().filter(|omitted| omitted.time_ns >= since_ns) {
            copy.omitted_events(&OmittedEvents { time_ns: omitted.time_ns - since_ns, ..*omitted });
        }
        for lock in self.lock_owners.iter().filter(|lock| lock.time_ns >= since_ns) {
            copy.lock_owner(&LockOwner { time_ns: lock.time_ns - since_ns, ..*lock });
        }
        for thread in self.managed_threads.iter().filter(|thread| thread.time_ns >= since_ns) {
            copy.managed_thread(&ManagedThread { time_ns: thread.time_ns - since_ns, ..*thread });
        }
        for reading in self.poll_readings.iter().filter(|reading| reading.time_ns >= since_ns) {
            copy.poll_reading(&PollReading { time_ns: reading.time_ns - since_ns, ..*reading });
        }
        let Header { duration_ns, started_unix_ns, started_monotonic_ns, .. } = self.header;
        Some(copy.finish(Header {
            duration_ns: duration_ns.saturating_sub(since_ns),
            started_unix_ns: started_unix_ns.saturating_add(since_ns),
            started_monotonic_ns: started_monotonic_ns.saturating_add(since_ns),
            incident: None,
            ..self.header.clone()
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ProfileBuilder, RuntimeEventKind, StackEnd, test_profile};

    #[test]
    fn the_part_since_the_incident_begins_with_it() {
        let mut builder = ProfileBuilder::default();
        let process = builder.process(7, "p");
        let thread = builder.thread(process, 7, "p");
        for (time_ns, name) in [(10, "before"), (50, "at"), (90, "after")] {
            let frame = test_profile::function(&mut builder, name, 1);
            let stack = builder.stack(vec![frame], StackEnd::Root);
            builder.sample(time_ns, 0, thread, stack, 1);
        }
        for (time_ns, duration_ns) in [(10, 20), (40, 20), (60, 0)] {
            let kind = RuntimeEventKind::GarbageCollection;
            let event = test_profile::runtime_event(&mut builder, process, kind);
            builder.add_runtime_event(RuntimeEvent { time_ns, duration_ns, ..event });
        }
        let incident = Incident { since_ns: 50, time_ns: 70, ..Incident::default() };
        let header = Header { duration_ns: 100, started_monotonic_ns: 1_000, ..Header::default() };
        let whole = builder.finish(Header { incident: Some(incident), ..header.clone() });
        let part = whole.since_incident().unwrap();
        let names: Vec<_> = part.frames().map(|frame| part.string(frame.name)).collect();
        assert_eq!(names, ["at", "after"]);
        assert_eq!(part.samples().iter().map(|sample| sample.time_ns).collect::<Vec<_>>(), [0, 40]);
        let events: Vec<_> =
            part.runtime_events().iter().map(|event| (event.time_ns, event.duration_ns)).collect();
        assert_eq!(events, [(0, 10), (10, 0)]);
        assert_eq!((part.header().duration_ns, part.header().started_monotonic_ns), (50, 1_050));
        assert!(part.since_incident().is_none());
    }
}
