//! The runtime events of one process, and sums over them.

use std::collections::{BTreeMap, BTreeSet};

use profiler_profile::{
    Certainty, FieldValue, Finding, FindingFacts, FindingKind, Place, ProcessId, Profile, Proof,
    RuntimeEvent, RuntimeEventKind, Selection, SourceLocation,
};

use crate::{
    facts::since,
    found::Found,
    frames::{application_method, location_in},
    weights::{heaviest, percent},
};

/// The least share of the stacks of events below one method that names it.
const MIN_SITE_PERCENT: f64 = 50.0;

/// The runtime events of a process, in time order.
pub(super) struct ProcessEvents<'a> {
    pub(super) profile: &'a Profile,
    pub(super) process: ProcessId,
    events: Vec<&'a RuntimeEvent>,
}

impl<'a> ProcessEvents<'a> {
    /// The events by process.
    pub(super) fn of(profile: &'a Profile) -> Vec<Self> {
        let mut processes = BTreeMap::<ProcessId, Vec<_>>::new();
        for event in profile.runtime_events() {
            processes.entry(event.process).or_default().push(event);
        }
        processes.into_iter().map(|(process, events)| Self { profile, process, events }).collect()
    }

    /// The events of a kind, in time order.
    pub(super) fn of_kind(&self, kind: RuntimeEventKind) -> impl Iterator<Item = &'a RuntimeEvent> {
        self.events.iter().copied().filter(move |event| event.kind == kind)
    }

    /// The text of a field; `None` where the event has no such text.
    pub(super) fn text(&self, event: &RuntimeEvent, field: &str) -> Option<&'a str> {
        match event.field(self.profile, field)? {
            FieldValue::Text(text) => Some(self.profile.string(text)),
            _ => None,
        }
    }

    /// The number in a field; `None` where the event has no such number.
    pub(super) fn number(&self, event: &RuntimeEvent, field: &str) -> Option<u64> {
        match event.field(self.profile, field)? {
            FieldValue::Unsigned(number) => Some(number),
            FieldValue::Signed(number) => number.try_into().ok(),
            _ => None,
        }
    }

    /// The method of the application in most stacks of these events.
    pub(super) fn site(&self, events: &[&RuntimeEvent]) -> Option<&'a str> {
        let weighted: Vec<_> = events.iter().map(|event| (*event, 1)).collect();
        self.heaviest_site(&weighted)
    }

    /// The method of the application in the stacks with most of the weight of these events.
    pub(super) fn heaviest_site(&self, events: &[(&RuntimeEvent, u64)]) -> Option<&'a str> {
        let stacks = events.iter().filter_map(|(event, weight)| Some((event.stack?, *weight)));
        let method = |stack| application_method(self.profile, self.profile.stack(stack));
        let (method, weight, total) = heaviest(stacks.map(|(stack, weight)| (method(stack), weight)))?;
        method.filter(|_| percent(weight, total) >= MIN_SITE_PERCENT)
    }

    /// The duration of the measurement, seconds.
    pub(super) fn seconds(&self) -> f64 {
        const NS_PER_S: f64 = 1e9;
        self.profile.header().duration_ns as f64 / NS_PER_S
    }

    /// The facts that these events of a kind show, below a method where it is known. They are likely where events were dropped.
    pub(super) fn facts(
        &self,
        kind: RuntimeEventKind,
        events: &[&RuntimeEvent],
        method: Option<&str>,
    ) -> FindingFacts {
        let profile = self.profile;
        let threads = events.iter().filter_map(|event| Some(profile.thread(event.thread?).tid));
        let threads: BTreeSet<_> = threads.collect();
        let begin_ns = events.iter().map(|event| event.time_ns).min().unwrap_or_default();
        let last_ns = events.iter().map(|event| event.end_ns()).max().unwrap_or_default();
        FindingFacts {
            processes: vec![profile.process(self.process).pid],
            threads: u32::try_from(threads.len()).ok().filter(|threads| *threads > 0),
            place: method.map(|method| self.place(method, events)),
            since_ns: since(begin_ns),
            certainty: if self.totals(kind).is_lower_bound {
                Certainty::Likely(Proof::AllRuntimeEvents)
            } else {
                Certainty::Proven
            },
            selection: Selection {
                begin_ns,
                end_ns: last_ns.min(profile.header().duration_ns),
                threads: threads.into_iter().collect(),
                runtime_events: Some(kind),
                search: method.map(str::to_owned),
            },
            ..FindingFacts::default()
        }
    }

    /// A method, with the source line that most of the stacks of these events have.
    fn place(&self, method: &str, events: &[&RuntimeEvent]) -> Place {
        let profile = self.profile;
        let stacks = events.iter().filter_map(|event| event.stack);
        let locations = stacks.map(|stack| {
            let location = location_in(profile, profile.stack(stack), method);
            location.map(|SourceLocation { file, line }| (profile.string(file), line))
        });
        let location = most_frequent(locations).and_then(|(location, ..)| location);
        Place { method: method.to_owned(), location: location.map(|(file, line)| (file.to_owned(), line)) }
    }

    /// A finding on the process.
    pub(super) fn finding(
        &self,
        kind: FindingKind,
        evidence: &str,
        remedy: String,
        value: u64,
        facts: FindingFacts,
    ) -> Found<'a> {
        let evidence = evidence.to_owned();
        let finding = Finding { kind, evidence, remedy, event: None, value, facts };
        Found { finding, process: self.process, processes: vec![self.process], method: None, owner: None }
    }
}

/// The most frequent item, how often it occurs, and the number of items. Of equally frequent ones, the last in their order.
pub(super) fn most_frequent<T: Ord>(items: impl Iterator<Item = T>) -> Option<(T, u64, u64)> {
    heaviest(items.map(|item| (item, 1)))
}

/// Nanoseconds as text: `85 ms`, `3.2 s`.
pub(super) fn duration_text(ns: u64) -> String {
    const NS_PER_S: f64 = 1e9;
    const NS_PER_MS: f64 = 1e6;
    match ns as f64 {
        ns if ns >= NS_PER_S => format!("{:.1} s", ns / NS_PER_S),
        ns if ns >= NS_PER_MS => format!("{:.0} ms", ns / NS_PER_MS),
        ns => format!("{:.2} ms", ns / NS_PER_MS),
    }
}
