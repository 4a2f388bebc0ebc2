//! pprof's `profile.proto`, compressed by gzip, for `go tool pprof`, Grafana and others.
//!
//! Concatenated protobuf messages merge, so the profile is written in pieces and never held as a whole.

mod aggregated;
mod locations;
mod message;

use std::{
    borrow::Cow,
    io::{self, BufWriter, Write},
};

use flate2::{Compression, write::GzEncoder};
use indexmap::IndexSet;
use prost::Message;

pub use self::aggregated::write_aggregated_pprof;
use self::{
    locations::Locations,
    message::{Label, Profile as Piece, Sample, ValueType},
};
use super::{
    label,
    stack_values::{self, StackValue},
    title,
};
use profiler_profile::{Event, EventId, Profile, Sampling, ThreadId, ThreadState};

/// Writes the profile: one sample for each event, thread, stack and state, with labels for thread, process, container and
/// state. The first event has two values, samples and time; each other one has its time.
pub(super) fn write(profile: &Profile, to: impl Write) -> io::Result<()> {
    let mut to = Pieces::compressed(to);
    let mut strings = Strings::default();
    to.write(&head(profile, &mut strings))?;

    let mut locations = Locations::of(profile);
    let mut labels = None;
    for event in profile.event_ids() {
        for StackValue { thread, stack, state, samples, value } in stack_values::of(profile, event) {
            if labels.as_ref().is_none_or(|(of, _)| *of != thread) {
                labels = Some((thread, thread_labels(profile, thread, &mut strings)));
            }
            let labels_of_thread = labels.iter().flat_map(|(_, labels)| labels).copied();
            let label = labels_of_thread.chain(state.map(|state| state_label(state, &mut strings))).collect();
            let value = values(profile, event, samples, value);
            let sample = Sample { location_id: locations.of_stack(stack).to_vec(), value, label };
            to.write(&Piece { sample: vec![sample], ..Piece::default() })?;
        }
    }

    to.finish(locations, strings)
}

/// The header: sample types, period, time and duration.
fn head(profile: &Profile, strings: &mut Strings<'_>) -> Piece {
    let header = profile.header();
    let mut value_type = |r#type: &str, unit: &str| ValueType {
        r#type: strings.number_of(r#type),
        unit: strings.number_of(unit),
    };
    let samples = value_type("samples", "count");
    let times: Vec<_> =
        profile.events().map(|event| value_type(event_type(event), event_unit(event))).collect();
    let period_ns = profile.first_event().unit_ns().unwrap_or_default();
    let first = times.first().copied();
    Piece {
        sample_type: std::iter::once(samples).chain(times).collect(),
        time_nanos: integer(header.started_unix_ns),
        duration_nanos: integer(header.duration_ns),
        period_type: first,
        period: integer(period_ns),
        comment: comments(profile).into_iter().map(|line| strings.number_of(&line)).collect(),
        // The time of a sample is unknown without a frequency.
        default_sample_type: first.filter(|_| period_ns > 0).unwrap_or(samples).r#type,
        ..Piece::default()
    }
}

/// The name of the values of an event: that of a CPU profile is `cpu`, as pprof's own are.
fn event_type(event: &Event) -> &str {
    match (event.sampling, event.name.as_str()) {
        (_, name) if title::is_counted(event) => name,
        (_, "" | "cpu-clock") => "cpu",
        (_, name) => name,
    }
}

/// The values of a sample: samples and time of the first event, then the time of each other one; in place of a time, the
/// occurrences of an event that is counted.
fn values(profile: &Profile, event: EventId, samples: u64, value: u64) -> Vec<i64> {
    let mut values = vec![0; 1 + profile.events().len()];
    if event == EventId::FIRST {
        values[0] = integer(samples);
    }
    values[1 + event.index()] = event_value(profile.event(event), value);
    values
}

/// The time of a value, nanoseconds, or the occurrences of an event that is counted.
fn event_value(event: &Event, value: u64) -> i64 {
    match event.sampling {
        Sampling::Occurrences { .. } | Sampling::Sums { .. } => integer(value),
        _ => integer(value.saturating_mul(event.unit_ns().unwrap_or_default())),
    }
}

/// The unit of [`event_value`].
fn event_unit(event: &Event) -> &'static str {
    match event.sampling {
        Sampling::Occurrences { .. } | Sampling::Sums { .. } => "count",
        _ => "nanoseconds",
    }
}

/// The ledger as comment lines.
fn comments(profile: &Profile) -> Vec<String> {
    let (header, ledger) = (profile.header(), profile.ledger());
    let mut lines = vec![title::title(profile), title::subtitle(profile)];
    lines.extend(header.edits.iter().cloned());
    lines.extend(title::findings(profile));
    let missed = ledger.timer.missed.iter();
    let missed = missed.map(|(cause, count)| format!("ticks missed on all CPUs, {cause}: {count}"));
    for (event, ledger) in profile.events().zip(&ledger.events) {
        if profile.events().len() > 1 {
            lines.push(title::event_text(event));
        }
        lines.push(format!("ticks that hit the target: {}", ledger.due));
        lines.push(format!("samples reported: {}", ledger.reported));
        lines.extend(ledger.lost.iter().map(|(loss, count)| format!("samples lost, {loss}: {count}")));
        lines.extend(ledger.stacks.iter().map(|(end, count)| format!("stacks that {end}: {count}")));
        lines.push(format!("frames with a name: {}", ledger.symbolized_total()));
        lines.push(format!("unsymbolized frames: {}", ledger.unsymbolized_total()));
    }
    lines.extend(missed);
    lines
}

fn state_label(state: ThreadState, strings: &mut Strings<'_>) -> Label {
    Label { key: strings.number("state"), str: strings.number_of(&state.to_string()), num: 0 }
}

fn thread_labels<'a>(profile: &'a Profile, id: ThreadId, strings: &mut Strings<'a>) -> Vec<Label> {
    let thread = profile.thread_view(id);
    let process = thread.process();
    let mut text =
        |key: &'static str, text| Label { key: strings.number(key), str: strings.number(text), num: 0 };
    let names = [text("thread", thread.name()), text("process", process.name())];
    let mut of_container: Vec<_> = process.container().map(|id| text("container", id)).into_iter().collect();
    let kubernetes = label::kubernetes_attributes(profile.process(process.id()));
    of_container.extend(kubernetes.map(|(key, name)| text(key, profile.string(name))));
    let mut number =
        |key: &'static str, num: u32| Label { key: strings.number(key), str: 0, num: num.into() };
    let [thread_name, process_name] = names;
    let numbered = [thread_name, number("tid", thread.tid()), process_name, number("pid", process.pid())];
    numbered.into_iter().chain(of_container).collect()
}

/// Converts to the signed numbers of pprof, saturating.
fn integer(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// The string table.
struct Strings<'a>(IndexSet<Cow<'a, str>>);

impl Default for Strings<'_> {
    fn default() -> Self {
        Self(IndexSet::from([Cow::Borrowed("")]))
    }
}

impl<'a> Strings<'a> {
    /// The index of a text, escaped for terminals.
    fn number(&mut self, text: &'a str) -> i64 {
        integer(self.0.insert_full(label::escaped(text)).0 as u64)
    }

    fn number_of(&mut self, text: &str) -> i64 {
        integer(self.0.insert_full(label::escaped(text).into_owned().into()).0 as u64)
    }
}

struct Pieces<W: Write> {
    to: GzEncoder<W>,
    /// One piece, kept for its memory.
    piece: Vec<u8>,
}

impl<W: Write> Pieces<BufWriter<W>> {
    fn compressed(to: W) -> Self {
        Self { to: GzEncoder::new(BufWriter::new(to), Compression::fast()), piece: Vec::new() }
    }
}

impl<W: Write> Pieces<W> {
    fn write(&mut self, piece: &Piece) -> io::Result<()> {
        self.piece.clear();
        piece.encode(&mut self.piece)?;
        self.to.write_all(&self.piece)
    }

    /// Writes the tables that the samples refer to.
    fn finish<'a>(mut self, locations: Locations<'a>, mut strings: Strings<'a>) -> io::Result<()> {
        self.write(&locations.tables(&mut strings))?;
        for text in strings.0 {
            self.write(&Piece { string_table: vec![text.into_owned()], ..Piece::default() })?;
        }
        self.to.finish()?.flush()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;

    use super::*;
    use profiler_profile::{Header, ProfileBuilder, Sample, StackEnd, test_profile};

    fn read_back(profile: &Profile) -> Piece {
        let mut packed = Vec::new();
        write(profile, &mut packed).unwrap();
        decoded(&packed)
    }

    pub(super) fn decoded(packed: &[u8]) -> Piece {
        let mut bytes = Vec::new();
        GzDecoder::new(packed).read_to_end(&mut bytes).unwrap();
        Piece::decode(&*bytes).unwrap()
    }

    /// The counts of all samples, and all texts.
    pub(crate) fn counts_and_texts(packed: &[u8]) -> (Vec<i64>, Vec<String>) {
        let piece = decoded(packed);
        (piece.sample.iter().map(|sample| sample.value[0]).collect(), piece.string_table)
    }

    fn text(piece: &Piece, number: i64) -> &str {
        &piece.string_table[usize::try_from(number).unwrap()]
    }

    #[test]
    fn samples_are_counts_and_time_of_a_thread() {
        let piece = read_back(&test_profile::folded(&[("app;main;work", 1 << 40)]));
        let types = piece.sample_type.iter().map(|kind| (text(&piece, kind.r#type), text(&piece, kind.unit)));
        assert_eq!(types.collect::<Vec<_>>(), [("samples", "count"), ("cpu", "nanoseconds")]);
        assert_eq!(piece.sample.len(), 1);
        assert_eq!(piece.sample[0].value, [1 << 40, 0]);
        let labels: Vec<_> = piece.sample[0].label.iter().map(|label| text(&piece, label.key)).collect();
        assert_eq!(labels, ["thread", "tid", "process", "pid"]);
        assert_eq!(text(&piece, piece.default_sample_type), "samples");

        let mut builder = ProfileBuilder::default();
        let process = builder.process(7, "app");
        let thread = builder.thread(process, 8, "a");
        let frame = test_profile::function(&mut builder, "f", 1);
        let stack = builder.stack(vec![frame], StackEnd::Root);
        builder.set_container(process, "4f1c3a99");
        builder.event(Event::at_frequency("cpu-clock", 100));
        builder.sample(0, 0, thread, stack, 1 << 63);
        let piece = read_back(&builder.finish(Header::default()));
        assert_eq!(piece.sample[0].value, [i64::MAX, i64::MAX]);
        let container = piece.sample[0].label.last().unwrap();
        assert_eq!((text(&piece, container.key), text(&piece, container.str)), ("container", "4f1c3a99"));
        assert_eq!(piece.sample[0].label.len(), 5);
        assert_eq!((piece.period, text(&piece, piece.default_sample_type)), (10_000_000, "cpu"));
    }

    #[test]
    fn samples_have_the_names_of_their_container() {
        let piece = read_back(&test_profile::in_pod());
        let labels = piece.sample[0].label[4..].iter();
        let labels = labels.map(|label| (text(&piece, label.key), text(&piece, label.str)));
        let expected = [
            ("container", "4f1c3ab99a0e6b7a"),
            ("k8s.namespace.name", "shop"),
            ("k8s.pod.name", "web;0"),
            ("k8s.container.name", "app"),
        ];
        assert_eq!(labels.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn findings_are_comments() {
        let piece = read_back(&test_profile::with_finding());
        let comments: Vec<_> = piece.comment.iter().map(|number| text(&piece, *number)).collect();
        assert!(comments.contains(&test_profile::FINDING), "{comments:?}");
    }

    #[test]
    fn every_number_leads_to_an_entry_whatever_the_profile_is() {
        for seed in 0..50 {
            let profile = test_profile::random(seed);
            let piece = read_back(&profile);
            let total: i128 = piece.sample.iter().map(|sample| i128::from(sample.value[0])).sum();
            assert_eq!(total, i128::from(profile.total_value()));
            assert_eq!(piece.sample_type.len(), 1 + profile.events().len());
            assert_eq!(piece.string_table[0], "");
            assert!(piece.string_table.iter().all(|text| !text.contains(char::is_control)));
            let ids = |count: usize| 1..=count as u64;
            for location in piece.sample.iter().flat_map(|sample| &sample.location_id) {
                assert!(ids(piece.location.len()).contains(location));
            }
            for location in &piece.location {
                assert!(location.mapping_id == 0 || ids(piece.mapping.len()).contains(&location.mapping_id));
                assert!(!location.line.is_empty());
                assert!(
                    location.line.iter().all(|line| ids(piece.function.len()).contains(&line.function_id))
                );
            }
            for function in &piece.function {
                text(&piece, function.name);
                text(&piece, function.filename);
            }
        }
    }

    #[test]
    fn a_profile_without_samples_is_read_as_one() {
        let piece = read_back(&ProfileBuilder::default().finish(Header::default()));
        assert!(piece.sample.is_empty() && piece.location.is_empty());
        assert_eq!(piece.sample_type.len(), 2);
    }

    #[test]
    fn each_event_has_a_sample_type_and_each_state_a_label() {
        let mut builder = ProfileBuilder::default();
        builder.event(Event::at_frequency("cpu-clock", 100));
        let waits = Event { name: "off-cpu".to_owned(), sampling: Sampling::Durations { min_ns: 0 } };
        let event = builder.event(waits);
        let times = Event { name: "syscall-time".to_owned(), sampling: Sampling::Times { period: 1 } };
        let times = builder.event(times);
        let process = builder.process(7, "app");
        let thread = builder.thread(process, 8, "a");
        let stack = builder.stack(Vec::new(), StackEnd::Empty);
        builder.sample(0, 0, thread, stack, 3);
        let state = Some(ThreadState::Blocked);
        builder.add_sample(Sample { time_ns: 0, cpu: 0, thread, stack, event, state, value: 5_000 });
        builder.add_sample(Sample {
            time_ns: 1,
            cpu: 0,
            thread,
            stack,
            event: times,
            state: None,
            value: 700,
        });
        let piece = read_back(&builder.finish(Header::default()));
        let types: Vec<_> = piece.sample_type.iter().map(|kind| text(&piece, kind.r#type)).collect();
        assert_eq!(types, ["samples", "cpu", "off-cpu", "syscall-time"]);
        assert_eq!(text(&piece, piece.sample_type[3].unit), "nanoseconds");
        let values: Vec<_> = piece.sample.iter().map(|sample| &*sample.value).collect();
        assert_eq!(values, [[3, 30_000_000, 0, 0], [0, 0, 5_000, 0], [0, 0, 0, 700]]);
        let label = piece.sample[1].label.last().unwrap();
        assert_eq!((text(&piece, label.key), text(&piece, label.str)), ("state", "blocked"));
    }
}
