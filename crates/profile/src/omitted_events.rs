//! Runtime events that a profile counts and does not have, and the totals of both.

use std::{collections::HashMap, sync::OnceLock};

use crate::{ProcessId, Profile, RuntimeEventKind};

/// Runtime events of one process and one kind that happened in a part of the measurement, and that the profile does not have.
///
/// Of events that are too many, a profile has a part that is spread evenly over the time; the others are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OmittedEvents {
    /// The start of the part, nanoseconds since the start of sampling. A part is at most a second long.
    pub time_ns: u64,
    /// The process of the runtime.
    pub process: ProcessId,
    /// The kind of the events.
    pub kind: RuntimeEventKind,
    /// The number of events.
    pub count: u64,
    /// The sum of the durations that are known, nanoseconds.
    pub duration_ns: u64,
    /// The longest duration that is known, nanoseconds.
    pub longest_ns: u64,
    /// Whether there were more: the runtime dropped events that can be of this kind, and no number says how many.
    pub is_lower_bound: bool,
}

impl OmittedEvents {
    /// The first events of each name that a profile has, however many there are of other names: types of exceptions, reasons of
    /// collections. They are more of a rare name than of a frequent one.
    pub const FIRST_OF_NAME: u32 = 8;

    /// The names whose first events a profile has.
    pub const MAX_NAMES: usize = 128;
}

/// How many events of a kind happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventTotals {
    /// The number of events, with those that the profile does not have.
    pub count: u64,
    /// The number of events that the profile has.
    pub kept: u64,
    /// The sum of the durations that are known, nanoseconds.
    pub duration_ns: u64,
    /// The longest duration that is known, nanoseconds.
    pub longest_ns: u64,
    /// Whether there were more, see [`OmittedEvents::is_lower_bound`].
    pub is_lower_bound: bool,
}

impl EventTotals {
    fn add(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.kept = self.kept.saturating_add(other.kept);
        self.duration_ns = self.duration_ns.saturating_add(other.duration_ns);
        self.longest_ns = self.longest_ns.max(other.longest_ns);
        self.is_lower_bound |= other.is_lower_bound;
    }
}

/// The totals of each process and kind, from the first use on.
#[derive(Clone, Debug, Default)]
pub(crate) struct TotalsTable(OnceLock<HashMap<(ProcessId, RuntimeEventKind), EventTotals>>);

impl TotalsTable {
    fn of(&self, profile: &Profile) -> &HashMap<(ProcessId, RuntimeEventKind), EventTotals> {
        self.0.get_or_init(|| {
            let kept = profile.runtime_events().iter().map(|event| {
                let duration_ns = event.duration_ns;
                let totals = EventTotals {
                    count: 1,
                    kept: 1,
                    duration_ns,
                    longest_ns: duration_ns,
                    is_lower_bound: false,
                };
                ((event.process, event.kind), totals)
            });
            let omitted = profile.omitted_events().iter().map(|omitted| {
                let OmittedEvents { process, kind, count, duration_ns, longest_ns, is_lower_bound, .. } =
                    *omitted;
                ((process, kind), EventTotals { count, kept: 0, duration_ns, longest_ns, is_lower_bound })
            });
            let mut table = HashMap::<_, EventTotals>::new();
            kept.chain(omitted).for_each(|(key, totals)| table.entry(key).or_default().add(&totals));
            table
        })
    }
}

impl Profile {
    /// The runtime events that the profile counts and does not have, ordered by time.
    #[must_use]
    pub fn omitted_events(&self) -> &[OmittedEvents] {
        &self.omitted_events
    }

    /// The totals of a kind of runtime event, of one process or of all.
    ///
    /// ```
    /// use profiler_profile::{Header, OmittedEvents, ProfileBuilder, RuntimeEventKind};
    ///
    /// let mut builder = ProfileBuilder::default();
    /// let process = builder.process(1, "app");
    /// let (kind, duration_ns, longest_ns) = (RuntimeEventKind::Exception, 0, 0);
    /// let (time_ns, count, is_lower_bound) = (0, 5, false);
    /// builder.add_omitted_events(OmittedEvents {
    ///     time_ns, process, kind, count, duration_ns, longest_ns, is_lower_bound,
    /// });
    /// let totals = builder.finish(Header::default()).runtime_event_totals(Some(process), kind);
    /// assert_eq!((totals.count, totals.kept), (5, 0));
    /// ```
    #[must_use]
    pub fn runtime_event_totals(&self, process: Option<ProcessId>, kind: RuntimeEventKind) -> EventTotals {
        let table = self.event_totals.of(self);
        let mut totals = EventTotals::default();
        match process {
            Some(process) => {
                table.get(&(process, kind)).into_iter().for_each(|of_process| totals.add(of_process));
            }
            None => {
                let of_kind = table.iter().filter(|((_, of_kind), _)| *of_kind == kind);
                of_kind.for_each(|(_, of_process)| totals.add(of_process));
            }
        }
        totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Header, Incident, ProfileBuilder, test_profile};

    /// A profile with two exceptions of each of two processes, and omitted ones at these times.
    fn profile(times_ns: &[u64], started_monotonic_ns: u64) -> Profile {
        let mut builder = ProfileBuilder::default();
        let processes = [1, 2].map(|pid| builder.process(pid, "app"));
        for process in processes {
            for time_ns in [10, 50] {
                let event = test_profile::runtime_event(&mut builder, process, RuntimeEventKind::Exception);
                builder.add_runtime_event(crate::RuntimeEvent { time_ns, duration_ns: 7, ..event });
            }
        }
        for time_ns in times_ns {
            builder.add_omitted_events(OmittedEvents {
                time_ns: *time_ns,
                process: processes[0],
                kind: RuntimeEventKind::Exception,
                count: 100,
                duration_ns: 1_000,
                longest_ns: 30,
                is_lower_bound: *time_ns == 40,
            });
        }
        let incident = Some(Incident { since_ns: 45, ..Incident::default() });
        let header = Header { duration_ns: 60, started_monotonic_ns, incident, ..Header::default() };
        builder.finish(header)
    }

    fn totals(profile: &Profile, process: Option<ProcessId>) -> EventTotals {
        profile.runtime_event_totals(process, RuntimeEventKind::Exception)
    }

    #[test]
    fn totals_have_the_events_of_the_profile_and_the_omitted_ones() {
        let profile = profile(&[20, 40], 0);
        let all =
            EventTotals { count: 204, kept: 4, duration_ns: 2_028, longest_ns: 30, is_lower_bound: true };
        assert_eq!(totals(&profile, None), all);
        let second = totals(&profile, Some(ProcessId::from_index(1)));
        let expected =
            EventTotals { count: 2, kept: 2, duration_ns: 14, longest_ns: 7, is_lower_bound: false };
        assert_eq!(second, expected);
        let none = profile.runtime_event_totals(None, RuntimeEventKind::Suspension);
        assert_eq!(none, EventTotals::default());
    }

    #[test]
    fn copies_joined_profiles_and_the_part_since_an_incident_have_the_omitted_events() {
        let times = |profile: &Profile| -> Vec<u64> {
            profile.omitted_events().iter().map(|omitted| omitted.time_ns).collect()
        };
        let whole = profile(&[50, 20], 1_000);
        assert_eq!(times(&whole), [20, 50]);
        assert_eq!(times(&whole.since_incident().unwrap()), [5]);
        let later = profile(&[30], 1_100);
        assert_eq!(times(&Profile::joined(&[whole, later])), [20, 50, 130]);
    }

    #[test]
    #[cfg(feature = "filters")]
    fn omitted_events_are_selected_by_process_and_time() {
        use std::time::Duration;

        use crate::Shape;

        let profile = profile(&[20, 2_000_000_000], 0);
        let count = |shape: &Shape| totals(&profile.shaped(shape), None).count;
        assert_eq!(count(&Shape { process: Some("2".parse().unwrap()), ..Shape::default() }), 2);
        assert_eq!(count(&Shape { process: Some("1".parse().unwrap()), ..Shape::default() }), 202);
        assert_eq!(count(&Shape { from: Some(Duration::from_secs(2)), ..Shape::default() }), 100);
        assert_eq!(count(&Shape { to: Some(Duration::from_secs(2)), ..Shape::default() }), 104);
        let thread = Some("1".parse().unwrap());
        let of_thread = totals(&profile.shaped(&Shape { thread, ..Shape::default() }), None);
        let unknown = EventTotals { is_lower_bound: true, ..EventTotals::default() };
        assert_eq!(of_thread, unknown, "the threads of omitted events are not known");
    }
}
