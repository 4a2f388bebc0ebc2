//! pprof of one event without threads and processes, for backends that store a series for each set of labels.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use super::{
    Locations, Pieces, Strings, event_type, event_unit, event_value, integer,
    message::{Profile as Piece, Sample, ValueType},
    state_label,
};
use profiler_profile::{EventId, Profile, StackId, ThreadState, sum};

/// Writes one event of a profile as pprof: one sample for each stack and state, with a label for the state alone, and one
/// value, the time in nanoseconds or the occurrences of an event that is counted. The type of the value is the name of the
/// event with underscores, and `cpu` for CPU time. There are no comments.
///
/// # Errors
/// Errors of `to`.
///
/// ```
/// use profiler_profile::{EventId, Header, ProfileBuilder};
/// use profiler_profile_formats::write_aggregated_pprof;
///
/// let profile = ProfileBuilder::default().finish(Header::default());
/// let mut pprof = Vec::new();
/// write_aggregated_pprof(&profile, EventId::FIRST, &mut pprof)?;
/// assert!(pprof.starts_with(b"\x1f\x8b"));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn write_aggregated_pprof(profile: &Profile, event: EventId, to: impl Write) -> io::Result<()> {
    let mut to = Pieces::compressed(to);
    let mut strings = Strings::default();
    to.write(&head(profile, event, &mut strings))?;

    let mut locations = Locations::of(profile);
    for ((stack, state), value) in values(profile, event) {
        let label = state.map(|state| state_label(state, &mut strings)).into_iter().collect();
        let value = vec![event_value(profile.event(event), value)];
        let sample = Sample { location_id: locations.of_stack(stack).to_vec(), value, label };
        to.write(&Piece { sample: vec![sample], ..Piece::default() })?;
    }
    to.finish(locations, strings)
}

/// The sum of the values of each stack and state.
fn values(profile: &Profile, event: EventId) -> BTreeMap<(StackId, Option<ThreadState>), u64> {
    let mut values = BTreeMap::new();
    for sample in profile.samples_of(event) {
        sum::add(values.entry((sample.stack, sample.state)).or_default(), sample.value);
    }
    values
}

/// The header: sample type, period, time and duration. An event of intervals or occurrences has no period.
fn head(profile: &Profile, id: EventId, strings: &mut Strings<'_>) -> Piece {
    let (header, event) = (profile.header(), profile.event(id));
    let r#type = strings.number_of(&event_type(event).replace('-', "_"));
    let sample_type = ValueType { r#type, unit: strings.number_of(event_unit(event)) };
    let period_ns = event.frequency_hz().and(event.unit_ns());
    Piece {
        sample_type: vec![sample_type],
        time_nanos: integer(header.started_unix_ns),
        duration_nanos: integer(header.duration_ns),
        period_type: period_ns.map(|_| sample_type),
        period: integer(period_ns.unwrap_or_default()),
        ..Piece::default()
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::decoded, *};
    use profiler_profile::{Event, Header, ProfileBuilder, Sample, Sampling, StackEnd, test_profile};

    fn written(profile: &Profile, event: EventId) -> Piece {
        let mut packed = Vec::new();
        write_aggregated_pprof(profile, event, &mut packed).unwrap();
        decoded(&packed)
    }

    fn text(piece: &Piece, number: i64) -> &str {
        &piece.string_table[usize::try_from(number).unwrap()]
    }

    #[test]
    fn threads_and_processes_with_one_stack_and_state_are_one_sample() {
        let mut builder = ProfileBuilder::default();
        let wall = builder.event(Event::at_frequency("wall", 10));
        let frame = test_profile::function(&mut builder, "main", 1);
        let stack = builder.stack(vec![frame], StackEnd::Root);
        for (pid, state, value) in
            [(1, ThreadState::Blocked, 2), (2, ThreadState::Blocked, 3), (2, ThreadState::OnCpu, 4)]
        {
            let process = builder.process(pid, "app");
            let thread = builder.thread(process, pid, "app");
            let state = Some(state);
            builder.add_sample(Sample { time_ns: 0, cpu: 0, thread, stack, event: wall, state, value });
        }
        let piece = written(&builder.finish(Header { started_unix_ns: 5, ..Header::default() }), wall);
        let samples: Vec<_> = piece
            .sample
            .iter()
            .map(|sample| (text(&piece, sample.label[0].str), &*sample.value, sample.label.len()))
            .collect();
        let expected = [("on CPU", &[400_000_000][..], 1), ("blocked", &[500_000_000], 1)];
        assert_eq!(samples, expected);
        assert_eq!((piece.period, piece.time_nanos, piece.comment.len()), (100_000_000, 5, 0));
        assert!(!piece.string_table.iter().any(|text| text == "app"));
    }

    #[test]
    fn each_event_has_the_type_that_backends_know() {
        let mut builder = ProfileBuilder::default();
        let cpu = builder.event(Event::at_frequency("cpu-clock", 19));
        let off_cpu = Event { name: "off-cpu".to_owned(), sampling: Sampling::Durations { min_ns: 0 } };
        let off_cpu = builder.event(off_cpu);
        let faults = Event { name: "page-faults".to_owned(), sampling: Sampling::Occurrences { period: 10 } };
        let faults = builder.event(faults);
        let profile = builder.finish(Header::default());
        let types = |event| {
            let piece = written(&profile, event);
            let name = |kind: ValueType| format!("{}/{}", text(&piece, kind.r#type), text(&piece, kind.unit));
            (name(piece.sample_type[0]), piece.period_type.map(name))
        };
        assert_eq!(types(cpu), ("cpu/nanoseconds".to_owned(), Some("cpu/nanoseconds".to_owned())));
        assert_eq!(types(off_cpu), ("off_cpu/nanoseconds".to_owned(), None));
        assert_eq!(types(faults), ("page_faults/count".to_owned(), None));
    }

    #[test]
    fn the_sum_of_all_values_is_that_of_the_event() {
        for seed in 0..50 {
            let profile = test_profile::random(seed);
            for event in profile.event_ids() {
                let piece = written(&profile, event);
                let sum: i128 = piece.sample.iter().map(|sample| i128::from(sample.value[0])).sum();
                let values = profile.samples_of(event).map(|sample| sample.value);
                let unit_ns = profile.event(event).unit_ns().unwrap_or(1);
                let expected = i128::from(sum::of(values)) * i128::from(unit_ns);
                // A number of pprof has 64 bits.
                let [sum, expected] = [sum, expected].map(|sum| sum.min(i64::MAX.into()));
                assert_eq!(sum, expected, "seed {seed}");
            }
        }
    }
}
