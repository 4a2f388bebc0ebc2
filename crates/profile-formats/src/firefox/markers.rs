//! Runtime events as markers. The schema of a marker describes the fields of its event
//! (<https://github.com/firefox-devtools/profiler/blob/main/src/types/markers.ts>, `MarkerSchema`, as of version 55 of the
//! format).

use std::borrow::Cow;

use indexmap::IndexMap;
use serde::Serialize;
use serde_json::{Value, json};

use super::RUNTIME_CATEGORY;
use crate::{label, runtime_event};
use profiler_profile::{FieldValue, Profile, RuntimeEvent, RuntimeEventKind, StringId};

pub(super) const NS_PER_MS: f64 = 1e6;

/// The markers of a thread, in columns (`RawMarkerTable`).
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Markers<'a> {
    pub(super) length: usize,
    category: Vec<usize>,
    data: Vec<IndexMap<Cow<'a, str>, Value>>,
    /// Milliseconds since the start of sampling.
    end_time: Vec<Option<f64>>,
    /// An index of the thread's strings.
    name: Vec<usize>,
    phase: Vec<u8>,
    start_time: Vec<f64>,
}

impl<'a> Markers<'a> {
    /// Adds an event, with the index of its name among the strings, and its payload.
    pub(super) fn push(&mut self, event: &RuntimeEvent, name: usize, data: IndexMap<Cow<'a, str>, Value>) {
        const INSTANT: u8 = 0;
        const INTERVAL: u8 = 1;
        let has_duration = event.duration_ns > 0;
        self.length += 1;
        self.category.push(RUNTIME_CATEGORY);
        self.data.push(data);
        self.end_time.push(has_duration.then(|| event.end_ns() as f64 / NS_PER_MS));
        self.name.push(name);
        self.phase.push(if has_duration { INTERVAL } else { INSTANT });
        self.start_time.push(event.time_ns as f64 / NS_PER_MS);
    }
}

/// The schemas of the events of a profile, by kind and name.
#[derive(Default)]
pub(super) struct Schemas<'a>(IndexMap<(RuntimeEventKind, StringId), Fields<'a>>);

/// The fields of the events of one name, and the format that fits all of their values.
type Fields<'a> = IndexMap<Cow<'a, str>, Format>;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Format {
    Integer,
    Decimal,
    Text,
}

impl Format {
    /// Readers parse numbers as doubles, which are exact up to 53 bits, and JSON has neither NaN nor infinity.
    fn of(value: FieldValue) -> Self {
        const MAX_EXACT: u64 = 1 << 53;
        match value {
            FieldValue::Unsigned(number) if number <= MAX_EXACT => Self::Integer,
            FieldValue::Signed(number) if number.unsigned_abs() <= MAX_EXACT => Self::Integer,
            FieldValue::Real(number) if number.is_finite() => Self::Decimal,
            _ => Self::Text,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Integer => "integer",
            Self::Decimal => "decimal",
            Self::Text => "string",
        }
    }
}

/// The description of the markers of one event.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Schema {
    name: String,
    /// Templates of the texts in the marker table and the marker chart.
    #[serde(skip_serializing_if = "Option::is_none")]
    table_label: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    chart_label: Option<String>,
    display: [&'static str; 3],
    fields: Vec<SchemaField>,
}

#[derive(Serialize)]
struct SchemaField {
    key: String,
    label: String,
    format: &'static str,
}

impl<'a> Schemas<'a> {
    pub(super) fn of(profile: &'a Profile) -> Self {
        let mut schemas = Self::default();
        for event in profile.runtime_events() {
            let formats = schemas.0.entry((event.kind, event.name)).or_default();
            for (name, value) in runtime_event::fields(profile, event) {
                let format = formats.entry(name).or_insert(Format::Integer);
                *format = Format::of(value).max(*format);
            }
        }
        schemas
    }

    /// The schemas as the profile lists them.
    pub(super) fn listed(&self, profile: &Profile) -> Vec<Schema> {
        let schemas = self.0.iter();
        schemas.map(|((kind, name), fields)| schema(profile, (*kind, *name), fields)).collect()
    }

    /// The payload of a marker: its schema, the values of its fields, and the node of its stack.
    pub(super) fn data(
        &self,
        profile: &'a Profile,
        event: &RuntimeEvent,
        node: Option<u32>,
    ) -> IndexMap<Cow<'a, str>, Value> {
        let formats = &self.0[&(event.kind, event.name)];
        let mut data = IndexMap::new();
        data.insert("type".into(), schema_name(profile, event.kind, event.name).into());
        if let Some(stack) = node {
            data.insert("cause".into(), json!({ "time": event.time_ns as f64 / NS_PER_MS, "stack": stack }));
        }
        for (name, value) in runtime_event::fields(profile, event) {
            let value = match (formats[&name], value) {
                (Format::Text, value) => runtime_event::value_text(profile, value).into(),
                (_, FieldValue::Unsigned(number)) => number.into(),
                (_, FieldValue::Signed(number)) => number.into(),
                (_, FieldValue::Real(number)) => number.into(),
                (_, FieldValue::Text(_)) => Value::Null,
            };
            data.insert(key(&name).into(), value);
        }
        data
    }
}

/// The name of the markers of an event: its kind, or its own where the kind says nothing.
pub(super) fn marker_name<'a>(profile: &'a Profile, event: &RuntimeEvent) -> Cow<'a, str> {
    match event.kind {
        RuntimeEventKind::Other | RuntimeEventKind::Counter => label::escaped(profile.string(event.name)),
        kind => kind.name().into(),
    }
}

fn schema(profile: &Profile, (kind, name): (RuntimeEventKind, StringId), fields: &Fields<'_>) -> Schema {
    let title = title_field(kind).filter(|title| fields.contains_key(*title));
    let label = title.map(|title| format!("{{marker.data.{}}}", key(title)));
    let schema_field = |(name, format): (&Cow<'_, str>, &Format)| SchemaField {
        key: key(name),
        label: name.to_string(),
        format: format.name(),
    };
    Schema {
        name: schema_name(profile, kind, name),
        table_label: label.clone(),
        chart_label: label.map(|label| format!("{{marker.name}}: {label}")),
        display: ["marker-chart", "marker-table", "timeline-overview"],
        fields: fields.iter().map(schema_field).collect(),
    }
}

/// The field that distinguishes the events of a kind.
fn title_field(kind: RuntimeEventKind) -> Option<&'static str> {
    match kind {
        RuntimeEventKind::GarbageCollection
        | RuntimeEventKind::Suspension
        | RuntimeEventKind::PoolAdjustment => Some("Reason"),
        RuntimeEventKind::Exception => Some("ExceptionType"),
        RuntimeEventKind::Allocation => Some("TypeName"),
        RuntimeEventKind::Request => Some("path"),
        _ => None,
    }
}

/// The prefix keeps names of targets apart from those that readers know, such as `Network`.
fn schema_name(profile: &Profile, kind: RuntimeEventKind, name: StringId) -> String {
    format!("{}: {}", kind.name(), label::escaped(profile.string(name)))
}

/// The prefix keeps names of targets apart from those that readers interpret, such as `type` and `cause`.
fn key(field: &str) -> String {
    format!("_{field}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::firefox::tests::read_back;
    use profiler_profile::{EventField, Header, ProfileBuilder, StackEnd, ThreadId, test_profile};

    fn event(builder: &mut ProfileBuilder, thread: ThreadId, fields: &[(&str, FieldValue)]) -> RuntimeEvent {
        let mut field =
            |(name, value): &(&str, FieldValue)| EventField { name: builder.string(name), value: *value };
        let fields = fields.iter().map(&mut field).collect();
        RuntimeEvent {
            time_ns: 2_000_000,
            duration_ns: 0,
            process: builder.process_of(thread),
            thread: Some(thread),
            kind: RuntimeEventKind::Exception,
            name: builder.string("Provider/Exception"),
            stack: None,
            fields,
        }
    }

    #[test]
    fn an_event_is_a_marker_of_its_thread_with_its_fields_and_its_stack() {
        let mut builder = ProfileBuilder::default();
        let process = builder.process(7, "app");
        let thread = builder.thread(process, 8, "worker");
        let frames = ["throw", "main"].map(|name| test_profile::function(&mut builder, name, 0));
        let stack = builder.stack(frames.to_vec(), StackEnd::Root);
        builder.sample(0, 0, thread, stack, 1);
        let frames = ["throw", "other"].map(|name| test_profile::function(&mut builder, name, 0));
        let stack = builder.stack(frames.to_vec(), StackEnd::Root);
        let text = FieldValue::Text(builder.string("System.Format\u{1b}Exception"));
        let fields = [("ExceptionType", text), ("type", FieldValue::Unsigned(1 << 53))];
        let instant = RuntimeEvent { stack: Some(stack), ..event(&mut builder, thread, &fields) };
        let fields = [("ExceptionType", FieldValue::Real(f64::NAN)), ("type", FieldValue::Unsigned(1))];
        let interval = RuntimeEvent { duration_ns: 500_000, ..event(&mut builder, thread, &fields) };
        builder.add_runtime_event(instant);
        builder.add_runtime_event(interval);
        let value = read_back(&builder.finish(Header::default()));
        let row = &value["threads"][0];
        assert_eq!(
            (value["threads"].as_array().unwrap().len(), &row["showMarkersInTimeline"]),
            (1, &json!(true))
        );
        let name =
            row["stringArray"].as_array().unwrap().iter().position(|text| text == "exception").unwrap();
        let node = row["stackTable"]["length"].as_u64().unwrap() - 1;
        let kind = "exception: Provider/Exception";
        let expected = json!({
            "length": 2,
            "category": [6, 6],
            "data": [
                {
                    "type": kind,
                    "cause": { "time": 2.0, "stack": node },
                    "_ExceptionType": "System.Format\\u{1b}Exception",
                    "_type": 1_u64 << 53,
                },
                { "type": kind, "_ExceptionType": "NaN", "_type": 1 },
            ],
            "endTime": [null, 2.5],
            "name": [name, name],
            "phase": [0, 1],
            "startTime": [2.0, 2.0],
        });
        assert_eq!(row["markers"], expected);
        let expected = json!([{
            "name": kind,
            "tableLabel": "{marker.data._ExceptionType}",
            "chartLabel": "{marker.name}: {marker.data._ExceptionType}",
            "display": ["marker-chart", "marker-table", "timeline-overview"],
            "fields": [
                { "key": "_ExceptionType", "label": "ExceptionType", "format": "string" },
                { "key": "_type", "label": "type", "format": "integer" },
            ],
        }]);
        assert_eq!(value["meta"]["markerSchema"], expected);
    }

    #[test]
    fn a_number_that_a_double_cannot_hold_is_a_text() {
        let mut builder = ProfileBuilder::default();
        let process = builder.process(7, "app");
        let thread = builder.thread(process, 7, "app");
        for value in [FieldValue::Unsigned(u64::MAX), FieldValue::Signed(-1)] {
            let event = event(&mut builder, thread, &[("LockID", value), ("Share", FieldValue::Real(0.5))]);
            builder.add_runtime_event(event);
        }
        let value = read_back(&builder.finish(Header::default()));
        let data = &value["threads"][0]["markers"]["data"];
        assert_eq!(
            (&data[0]["_LockID"], &data[1]["_LockID"]),
            (&json!("18446744073709551615"), &json!("-1"))
        );
        let formats = value["meta"]["markerSchema"][0]["fields"].as_array().unwrap();
        assert_eq!(formats.iter().map(|field| &field["format"]).collect::<Vec<_>>(), ["string", "decimal"]);
    }

    #[test]
    fn threads_without_samples_have_rows_and_events_without_a_thread_are_of_the_main_thread() {
        let mut builder = ProfileBuilder::default();
        let process = builder.process(7, "app");
        let worker = builder.thread(process, 8, "worker");
        let worker_event = event(&mut builder, worker, &[]);
        let process_event = RuntimeEvent { thread: None, ..worker_event.clone() };
        builder.add_runtime_event(worker_event);
        builder.add_runtime_event(process_event);
        let rows = |profile: &Profile| -> Vec<Value> {
            let value = read_back(profile);
            let rows = value["threads"].as_array().unwrap().iter();
            rows.map(|row| json!([row["name"], row["tid"], row["isMainThread"], row["markers"]["length"]]))
                .collect()
        };
        let profile = builder.finish(Header::default());
        assert_eq!(rows(&profile), [json!(["worker", 8, false, 1]), json!(["app", 7, true, 1])]);
    }
}
