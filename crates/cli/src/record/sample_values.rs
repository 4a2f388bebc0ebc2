//! The measures of events that the session counts: computed from the samples of each interval.

use std::collections::BTreeSet;

use profiler_profile::Profile;
use profiler_triggers::{Measure, Values};

const NS_PER_S: f64 = 1e9;

/// Sets the wanted measures of events.
pub(super) fn read(interval: &Profile, wanted: &BTreeSet<Measure>, values: &mut Values) {
    let seconds = interval.header().duration_ns as f64 / NS_PER_S;
    for measure in wanted {
        let Measure::Event { name } = measure else { continue };
        let id = interval.event_ids().find(|id| interval.event(*id).name == *name);
        let sum = id.map(|id| interval.samples_of(id).map(|sample| sample.value as f64).sum::<f64>());
        values.set(measure.clone(), sum.filter(|_| seconds > 0.0).map(|sum| sum / seconds));
    }
}

#[cfg(test)]
mod tests {
    use profiler_profile::{Event, Header, ProfileBuilder, Sample, Sampling, StackEnd};

    use super::*;

    #[test]
    fn an_event_has_its_occurrences_per_second() {
        let mut builder = ProfileBuilder::default();
        builder.event(Event::at_frequency("cpu-clock", 99));
        let name = "tcp:tcp_retransmit_skb".to_owned();
        let event =
            builder.event(Event { name: name.clone(), sampling: Sampling::Occurrences { period: 3 } });
        let stack = builder.stack(vec![], StackEnd::Root);
        let process = builder.process(1, "server");
        let thread = builder.thread(process, 1, "server");
        for time_ns in [1, 2] {
            builder.add_sample(Sample { time_ns, cpu: 0, thread, stack, event, state: None, value: 3 });
        }
        let interval = builder.finish(Header { duration_ns: 500_000_000, ..Header::default() });
        let (known, unknown) = (Measure::Event { name }, Measure::Event { name: "other".to_owned() });
        let mut values = Values::default();
        read(&interval, &[known.clone(), unknown.clone()].into(), &mut values);
        assert_eq!((values.get(&known), values.get(&unknown)), (Some(12.0), None));
    }
}
