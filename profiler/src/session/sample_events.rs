//! The events of a session, and the samples that a raw sample becomes.

use profiler_profile::{EventId, ProfileBuilder, Sample, ThreadState};
use profiler_sampler::{EventPlan, Origin, RawSample, WallShare};

/// Numbers of samples by the index of their event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts(Vec<u64>);

impl Counts {
    /// The count of an event.
    pub(super) fn get(&self, event: usize) -> u64 {
        self.0.get(event).copied().unwrap_or_default()
    }

    /// Adds a sample, as the ledger counts it.
    pub(super) fn add(&mut self, origin: Origin, value: u64) {
        self.add_to(origin.event, origin.sample_count(value));
    }

    /// Adds to the count of an event.
    pub(super) fn add_to(&mut self, event: u16, added: u64) {
        let event = usize::from(event);
        if self.0.len() <= event {
            self.0.resize(event + 1, 0);
        }
        // A forged capture can have any number.
        self.0[event] = self.0[event].saturating_add(added);
    }

    /// Adds other counts.
    pub(super) fn add_all(&mut self, other: &Self) {
        (0..).zip(&other.0).for_each(|(event, added)| self.add_to(event, *added));
    }
}

/// The samples and records that have arrived of each event.
#[derive(Debug, Default)]
pub(super) struct Received {
    pub(super) samples: Counts,
    pub(super) records: Counts,
}

impl Received {
    /// Adds samples.
    pub(super) fn add<'a>(&mut self, samples: impl IntoIterator<Item = &'a RawSample>) {
        for sample in samples {
            self.samples.add(sample.origin, sample.value);
            self.records.add_to(sample.origin.event, 1);
        }
    }

    /// Adds records of an event whose samples cannot be decoded.
    pub(super) fn add_undecodable(&mut self, event: u16, records: u64) {
        self.samples.add_to(event, records);
        self.records.add_to(event, records);
    }
}

/// The events of a profile under construction.
#[derive(Debug, Default)]
pub(super) struct SampleEvents {
    /// By index.
    ids: Vec<EventId>,
    /// The index of ticks of CPUs.
    ticks: Option<u16>,
    /// Events that count a share of these ticks as well.
    shares: Vec<(EventId, WallShare)>,
}

impl SampleEvents {
    /// Adds the events of a session to a profile.
    pub(super) fn new(plan: &EventPlan, builder: &mut ProfileBuilder) -> Self {
        let ids: Vec<_> = plan.events().into_iter().map(|event| builder.event(event)).collect();
        let ticks = plan.ticks_index();
        let of_ticks = ticks.and_then(|ticks| ids.get(usize::from(ticks)).copied());
        let shares = plan.shares_of_ticks().filter_map(|(index, share)| {
            // The ticks can be samples of the event already.
            let id = ids.get(usize::from(index)).copied().filter(|id| Some(*id) != of_ticks)?;
            Some((id, share))
        });
        let shares = if ticks.is_some() { shares.collect() } else { Vec::new() };
        Self { ids, ticks, shares }
    }

    /// The ids of the events, by index.
    pub(super) fn ids(&self) -> &[EventId] {
        &self.ids
    }

    /// The index of ticks of CPUs.
    pub(super) fn ticks_index(&self) -> Option<usize> {
        self.ticks.map(usize::from)
    }

    /// The events that count a share of the ticks of CPUs as well.
    pub(super) fn shares(&self) -> &[(EventId, WallShare)] {
        &self.shares
    }

    /// Adds the samples of a raw sample: `sample` has its thread, stack and value.
    pub(super) fn add(&mut self, builder: &mut ProfileBuilder, origin: Origin, sample: Sample) {
        let Some(event) = self.ids.get(usize::from(origin.event)).copied() else { return };
        builder.add_sample(Sample { event, state: origin.state, ..sample });
        if self.ticks != Some(origin.event) {
            return;
        }
        for (event, share) in &mut self.shares {
            let value = share.of_ticks(sample.thread, sample.value);
            if value > 0 {
                let state = Some(ThreadState::OnCpu);
                builder.add_sample(Sample { event: *event, state, value, ..sample });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use profiler_profile::{Header, Profile, StackEnd};
    use profiler_sampler::{EventSettings, PlannedEvent};

    use super::*;
    /// The profile of one thread that ran for some ticks of the timers, and waited for some passes.
    fn profile(settings: &EventSettings, on_cpu: u64, waiting: u64) -> Profile {
        let mut builder = ProfileBuilder::default();
        let mut events = SampleEvents::new(&settings.plan(Vec::new()), &mut builder);
        let process = builder.process(1, "a");
        let thread = builder.thread(process, 1, "a");
        let stack = builder.stack(Vec::new(), StackEnd::Empty);
        let tick = Sample { time_ns: 0, cpu: 0, thread, stack, event: EventId::FIRST, state: None, value: 1 };
        let state = (!settings.cpu_samples).then_some(ThreadState::OnCpu);
        (0..on_cpu).for_each(|_| events.add(&mut builder, Origin { state, ..Origin::default() }, tick));
        let waited = Origin { event: 1, state: Some(ThreadState::Blocked), is_duration: false };
        events.add(&mut builder, waited, Sample { value: waiting, ..tick });
        builder.finish(Header::default())
    }

    /// Each event with the sum of its values by state.
    fn values(profile: &Profile) -> Vec<(String, Option<ThreadState>, u64)> {
        let mut sums = std::collections::BTreeMap::new();
        for sample in profile.samples() {
            *sums.entry((profile.event(sample.event).name.clone(), sample.state)).or_default() +=
                sample.value;
        }
        sums.into_iter().map(|((name, state), value)| (name, state, value)).collect()
    }

    #[test]
    fn ticks_of_cpus_count_for_the_wall_clock_by_the_ratio_of_the_frequencies() {
        let both = EventSettings { wall_hz: Some(49), ..EventSettings::default() };
        let expected = [
            ("cpu-clock".to_owned(), None, 198),
            ("wall".to_owned(), Some(ThreadState::OnCpu), 98),
            ("wall".to_owned(), Some(ThreadState::Blocked), 7),
        ];
        assert_eq!(values(&profile(&both, 198, 7)), expected);
    }

    #[test]
    fn all_ticks_are_of_the_wall_clock_where_there_is_no_other_event() {
        let wall = EventSettings { cpu_samples: false, wall_hz: Some(49), ..EventSettings::default() };
        let profile = profile(&wall, 5, 3);
        assert_eq!(profile.events().len(), 1);
        let expected = [
            ("wall".to_owned(), Some(ThreadState::OnCpu), 5),
            ("wall".to_owned(), Some(ThreadState::Blocked), 3),
        ];
        assert_eq!(values(&profile), expected);
    }

    #[test]
    fn each_counted_event_has_its_samples() {
        let event = |name: &str| PlannedEvent { event: name.parse().unwrap(), probed: None };
        let events = ["page-faults", "sched:sched_switch"].map(event).to_vec();
        let plan = EventSettings { cpu_samples: false, ..EventSettings::default() }.plan(events);
        let mut builder = ProfileBuilder::default();
        let mut events = SampleEvents::new(&plan, &mut builder);
        let process = builder.process(1, "a");
        let thread = builder.thread(process, 1, "a");
        let stack = builder.stack(Vec::new(), StackEnd::Empty);
        let sample =
            Sample { time_ns: 0, cpu: 0, thread, stack, event: EventId::FIRST, state: None, value: 5 };
        events.add(&mut builder, Origin { event: 1, ..Origin::default() }, sample);
        events.add(&mut builder, Origin { event: 7, ..Origin::default() }, sample);
        let expected = [("sched:sched_switch".to_owned(), None, 5)];
        assert_eq!(values(&builder.finish(Header::default())), expected);
    }

    #[test]
    fn a_session_without_wall_clock_samples_has_one_event() {
        let profile = profile(&EventSettings::default(), 4, 0);
        assert_eq!(values(&profile), [("cpu-clock".to_owned(), None, 4)]);
    }
}
