//! Runtime events as JSON lines (<https://jsonlines.org>): one object a line, in time order.

use std::{
    borrow::Cow,
    io::{self, BufWriter, Write},
};

use indexmap::IndexMap;
use serde::{Serialize, Serializer};

use crate::{label, runtime_event};
use profiler_profile::{EventTotals, FieldValue, Profile, RuntimeEvent, StackView, ThreadView};

/// Writes the runtime events of the profile, and a line with the totals of each process and kind whose events it does not all have.
pub(super) fn write(profile: &Profile, to: impl Write) -> io::Result<()> {
    let mut to = BufWriter::new(to);
    for event in profile.runtime_events() {
        serde_json::to_writer(&mut to, &Line::of(profile, event))?;
        to.write_all(b"\n")?;
    }
    for omitted in omitted(profile) {
        serde_json::to_writer(&mut to, &omitted)?;
        to.write_all(b"\n")?;
    }
    to.flush()
}

/// The last lines: how many events of a kind happened where the profile does not have all.
#[derive(Serialize)]
struct Omitted {
    pid: u32,
    kind: &'static str,
    /// How many events happened.
    total: u64,
    /// How many of them are lines.
    kept: u64,
    /// Whether there were more than `total`.
    is_lower_bound: bool,
}

fn omitted(profile: &Profile) -> Vec<Omitted> {
    let mut kinds: Vec<_> =
        profile.omitted_events().iter().map(|omitted| (omitted.process, omitted.kind)).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let totals = kinds.into_iter().map(|(process, kind)| {
        let EventTotals { count, kept, is_lower_bound, .. } =
            profile.runtime_event_totals(Some(process), kind);
        Omitted {
            pid: profile.process_view(process).pid(),
            kind: kind.name(),
            total: count,
            kept,
            is_lower_bound,
        }
    });
    totals.collect()
}

#[derive(Serialize)]
struct Line<'a> {
    /// Nanoseconds since the start of sampling.
    time_ns: u64,
    /// 0 for an event without a duration.
    duration_ns: u64,
    pid: u32,
    /// `null` where the thread is unknown.
    tid: Option<u32>,
    thread: Option<Cow<'a, str>>,
    /// The id of the process's container.
    #[serde(skip_serializing_if = "Option::is_none")]
    container: Option<Cow<'a, str>>,
    /// `k8s.namespace.name`, `k8s.pod.name` and `k8s.container.name`, where they are known.
    #[serde(flatten)]
    kubernetes: IndexMap<&'static str, Cow<'a, str>>,
    kind: &'static str,
    name: Cow<'a, str>,
    fields: IndexMap<Cow<'a, str>, Value<'a>>,
    /// The names of the functions, root first.
    #[serde(skip_serializing_if = "Option::is_none")]
    stack: Option<Vec<Cow<'a, str>>>,
}

impl<'a> Line<'a> {
    fn of(profile: &'a Profile, event: &RuntimeEvent) -> Self {
        let thread = event.thread.map(|thread| profile.thread_view(thread));
        let process = profile.process_view(event.process);
        let fields = runtime_event::fields(profile, event);
        let text = |id| label::escaped(profile.string(id));
        let kubernetes = label::kubernetes_attributes(profile.process(event.process));
        Self {
            time_ns: event.time_ns,
            duration_ns: event.duration_ns,
            pid: process.pid(),
            tid: thread.map(ThreadView::tid),
            thread: thread.map(|thread| label::escaped(thread.name())),
            container: process.container().map(label::escaped),
            kubernetes: kubernetes.map(|(attribute, name)| (attribute, text(name))).collect(),
            kind: event.kind.name(),
            name: label::escaped(profile.string(event.name)),
            fields: fields.into_iter().map(|(name, value)| (name, Value { profile, value })).collect(),
            stack: event.stack.map(|stack| functions(profile.stack_view(stack))),
        }
    }
}

fn functions(stack: StackView<'_>) -> Vec<Cow<'_, str>> {
    stack.frames().rev().map(|frame| label::name(frame.name())).collect()
}

struct Value<'a> {
    profile: &'a Profile,
    value: FieldValue,
}

impl Serialize for Value<'_> {
    /// JSON has neither NaN nor infinity: they become `null`.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.value {
            FieldValue::Unsigned(number) => serializer.serialize_u64(number),
            FieldValue::Signed(number) => serializer.serialize_i64(number),
            FieldValue::Real(number) if number.is_finite() => serializer.serialize_f64(number),
            FieldValue::Real(_) => serializer.serialize_none(),
            FieldValue::Text(text) => serializer.serialize_str(&label::escaped(self.profile.string(text))),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use profiler_profile::{EventField, Header, ProfileBuilder, RuntimeEventKind, StackEnd, test_profile};

    fn lines(profile: &Profile) -> Vec<Value> {
        let mut bytes = Vec::new();
        write(profile, &mut bytes).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// A collection of thread 8, with a stack, and a counter without a thread.
    fn two_events() -> Profile {
        let mut builder = ProfileBuilder::default();
        let process = builder.process(7, "app");
        let thread = builder.thread(process, 8, "wor\nker");
        let frames = ["leaf", "main"].map(|name| test_profile::function(&mut builder, name, 0));
        let stack = builder.stack(frames.to_vec(), StackEnd::Root);
        let mut field = |name: &str, value| EventField { name: builder.string(name), value };
        let numbers = [
            field("Depth", FieldValue::Unsigned(u64::MAX)),
            field("Signed", FieldValue::Signed(i64::MIN)),
            field("Real", FieldValue::Real(0.5)),
            field("NotANumber", FieldValue::Real(f64::NAN)),
            field("Infinite", FieldValue::Real(f64::NEG_INFINITY)),
            field("Depth", FieldValue::Unsigned(1)),
        ];
        let reason = FieldValue::Text(builder.string("\u{1b}[31m\"\\\n"));
        let reason = EventField { name: builder.string("Rea\u{202e}son"), value: reason };
        let collection = RuntimeEvent {
            time_ns: 5,
            duration_ns: 6,
            process,
            thread: Some(thread),
            kind: RuntimeEventKind::GarbageCollection,
            name: builder.string("Provider/GCStart"),
            stack: Some(stack),
            fields: numbers.into_iter().chain([reason]).collect(),
        };
        let counter = RuntimeEvent {
            time_ns: 9,
            duration_ns: 0,
            thread: None,
            kind: RuntimeEventKind::Counter,
            stack: None,
            fields: Box::default(),
            ..collection.clone()
        };
        builder.add_runtime_event(counter);
        builder.add_runtime_event(collection);
        builder.finish(Header::default())
    }

    #[test]
    fn an_event_is_an_object_with_escaped_text() {
        let [collection, counter] = &lines(&two_events())[..] else { panic!("two lines") };
        let expected = json!({
            "time_ns": 5, "duration_ns": 6, "pid": 7, "tid": 8, "thread": "wor\\u{a}ker",
            "kind": "garbage collection", "name": "Provider/GCStart",
            "fields": {
                "Depth": u64::MAX, "Signed": i64::MIN, "Real": 0.5, "NotANumber": null, "Infinite": null,
                "Rea\\u{202e}son": "\\u{1b}[31m\"\\\\u{a}",
            },
            "stack": ["main", "leaf"],
        });
        assert_eq!(*collection, expected);
        let expected = json!({
            "time_ns": 9, "duration_ns": 0, "pid": 7, "tid": null, "thread": null,
            "kind": "counter", "name": "Provider/GCStart", "fields": {},
        });
        assert_eq!(*counter, expected);
    }

    #[test]
    fn events_have_the_names_of_their_container() {
        let line = &lines(&test_profile::in_pod())[0];
        let labels = ["container", "k8s.namespace.name", "k8s.pod.name", "k8s.container.name"];
        assert_eq!(labels.map(|label| &line[label]), ["4f1c3ab99a0e6b7a", "shop", "web;0", "app"]);
    }

    #[test]
    fn every_event_of_random_profiles_is_a_line() {
        for seed in 0..30 {
            let profile = test_profile::random(seed);
            let mut lines = lines(&profile);
            let totals = lines.split_off(profile.runtime_events().len());
            assert_eq!(totals.is_empty(), profile.omitted_events().is_empty());
            let counts = |kind: &str| -> u64 {
                totals
                    .iter()
                    .filter(|line| line["kind"] == kind)
                    .map(|line| line["total"].as_u64().unwrap())
                    .sum()
            };
            for omitted in profile.omitted_events() {
                assert!(counts(omitted.kind.name()) >= omitted.count, "{totals:?}");
            }
            let times: Vec<_> = lines.iter().map(|line| line["time_ns"].as_u64().unwrap()).collect();
            assert!(times.is_sorted(), "{times:?}");
        }
    }
}
