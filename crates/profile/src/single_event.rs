//! The view of a profile that has one event, for formats of a single event.

use std::{borrow::Cow, collections::HashMap};

use crate::{EventId, Finding, Ledger, Profile, ProfileCopy};

impl Profile {
    /// A copy with the samples, the ledger and the findings of one event, and with all runtime events and their findings; the
    /// profile itself where it has no other event.
    ///
    /// ```
    /// use profiler_profile::{Event, EventId, Header, ProfileBuilder};
    ///
    /// let mut builder = ProfileBuilder::default();
    /// builder.event(Event::at_frequency("cpu-clock", 99));
    /// let wall = builder.event(Event::at_frequency("wall", 49));
    /// let profile = builder.finish(Header::default());
    /// assert_eq!(profile.single_event(wall).first_event().name, "wall");
    /// ```
    #[must_use]
    pub fn single_event(&self, id: EventId) -> Cow<'_, Self> {
        if self.events().len() == 1 {
            return Cow::Borrowed(self);
        }
        let mut copy = ProfileCopy::of_event(self, id);
        let mut stacks = HashMap::new();
        for sample in self.samples_of(id) {
            let stack = *stacks.entry(sample.stack).or_insert_with(|| copy.stack(self.stack(sample.stack)));
            copy.sample(sample, stack);
        }
        copy.runtime_events();
        let ledger =
            Ledger { events: vec![self.ledger().events[id.index()].clone()], ..self.ledger().clone() };
        let mut single = copy.finish_with(self.header().clone(), ledger);
        let kept = |finding: &&Finding| finding.event.is_none_or(|event| event == id);
        let findings = self.findings().iter().filter(kept).cloned();
        let in_copy = |finding: Finding| Finding { event: finding.event.map(|_| EventId::FIRST), ..finding };
        single.set_findings(findings.map(in_copy).collect());
        Cow::Owned(single)
    }

    /// The event that is shown where no other is requested: in a profile of an incident that of the first finding, else the
    /// first one with samples, else the first one. A process that only waits has no samples of its CPU time.
    #[must_use]
    pub fn default_event(&self) -> EventId {
        let has_samples = |id: &EventId| self.samples_of(*id).next().is_some();
        let is_incident = self.header.incident.is_some();
        let of_incident = self.findings.iter().filter(|_| is_incident).find_map(|finding| finding.event);
        of_incident.or_else(|| self.event_ids().find(has_samples)).unwrap_or(EventId::FIRST)
    }

    /// The id of the event with a name, or of the only one whose name starts so.
    #[must_use]
    pub fn find_event(&self, name: &str) -> Option<EventId> {
        let by = |is_it: &dyn Fn(&str) -> bool| {
            let mut found = self.event_ids().filter(|id| is_it(&self.event(*id).name));
            found.next().filter(|_| found.next().is_none())
        };
        by(&|event| event == name).or_else(|| by(&|event| event.starts_with(name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Event, Header, Incident, ProfileBuilder, Sample, StackEnd, test_profile};

    #[test]
    fn each_event_has_its_samples_and_its_ledger() {
        for seed in 0..20 {
            let profile = test_profile::random(seed);
            for id in profile.event_ids() {
                let single = profile.single_event(id);
                assert_eq!(single.events().collect::<Vec<_>>(), [profile.event(id)]);
                assert_eq!(single.ledger().events, [profile.ledger().events[id.index()].clone()]);
                let values = |profile: &Profile, id| -> Vec<_> {
                    profile
                        .samples_of(id)
                        .map(|sample| (sample.time_ns, sample.state, sample.value))
                        .collect()
                };
                assert_eq!(values(&single, EventId::FIRST), values(&profile, id));
                assert_eq!(single.samples().len(), profile.samples_of(id).count());
            }
        }
    }

    #[test]
    fn each_event_keeps_its_findings_and_those_of_runtime_events() {
        let mut builder = ProfileBuilder::default();
        let cpu = builder.event(Event::at_frequency("cpu-clock", 99));
        let wall = builder.event(Event::at_frequency("wall", 49));
        let mut profile = builder.finish(Header::default());
        let finding = |event| Finding { event, ..test_profile::with_finding().findings()[0].clone() };
        profile.set_findings(vec![finding(Some(cpu)), finding(None), finding(Some(wall))]);
        let events = |profile: &Profile| -> Vec<_> {
            profile.findings().iter().map(|finding| finding.event).collect()
        };
        assert_eq!(events(&profile.single_event(cpu)), [Some(cpu), None]);
        assert_eq!(events(&profile.single_event(wall)), [None, Some(EventId::FIRST)]);
    }

    #[test]
    fn the_event_that_is_shown_first_has_samples() {
        let mut builder = ProfileBuilder::default();
        builder.event(Event::at_frequency("cpu-clock", 99));
        let wall = builder.event(Event::at_frequency("wall", 49));
        let stack = builder.stack(vec![], StackEnd::Root);
        let process = builder.process(1, "waits");
        let thread = builder.thread(process, 1, "waits");
        let sample = Sample { time_ns: 0, cpu: 0, thread, stack, event: wall, state: None, value: 1 };
        builder.add_sample(sample);
        assert_eq!(builder.finish(Header::default()).default_event(), wall);
        assert_eq!(Profile::default().default_event(), EventId::FIRST);
    }

    #[test]
    fn the_event_of_the_first_finding_of_an_incident_is_shown_first() {
        let mut builder = ProfileBuilder::default();
        builder.event(Event::at_frequency("cpu-clock", 99));
        let wall = builder.event(Event::at_frequency("wall", 49));
        let mut profile = builder.finish(Header::default());
        let finding = |event| Finding { event, ..test_profile::with_finding().findings()[0].clone() };
        profile.set_findings(vec![finding(None), finding(Some(wall))]);
        assert_eq!(profile.default_event(), EventId::FIRST);
        profile.set_incident(Incident::default());
        assert_eq!(profile.default_event(), wall);
    }

    #[test]
    fn an_event_is_found_by_its_name_or_the_start_of_it() {
        let mut builder = ProfileBuilder::default();
        for name in ["wall", "cpu-clock", "wall-2"] {
            builder.event(Event::at_frequency(name, 1));
        }
        let profile = builder.finish(Header::default());
        let found =
            ["wall", "cpu", "wal", "wall-", "off"].map(|name| profile.find_event(name).map(|id| id.index()));
        assert_eq!(found, [Some(0), Some(1), None, Some(2), None]);
    }
}
