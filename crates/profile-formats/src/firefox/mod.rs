//! The Firefox Profiler's processed format
//! (<https://github.com/firefox-devtools/profiler/blob/main/docs-developer/processed-profile-format.md>), in the version
//! that `CHANGELOG-formats.md` beside that page describes as 55.
//!
//! Each thread has its own tables and is written before the next one is built. A sample represents one period of CPU
//! time (`threadCPUDelta`); without it, a thread looks busy between two samples. Runtime events are markers of their
//! threads.

mod markers;
mod rows;
mod table;
mod thread;

use std::io::{self, BufWriter, Write};

use serde::{Serialize, Serializer, ser::SerializeSeq};

use self::{
    markers::{Schema, Schemas},
    rows::rows,
    thread::{Source, Thread},
};
use super::{label, title};
use profiler_profile::{EventTotals, FrameKind, Profile, RuntimeEventKind};

/// The version of the format; the Firefox Profiler upgrades older versions.
const VERSION: u32 = 55;

/// Writes the profile.
pub(super) fn write(profile: &Profile, to: impl Write) -> io::Result<()> {
    let mut to = BufWriter::new(to);
    let source = Source::of(profile);
    let meta = Meta::of(profile, &source.schemas);
    let document = Document { meta, libs: libraries(profile), threads: Threads(&source) };
    serde_json::to_writer(&mut to, &document)?;
    to.flush()
}

#[derive(Serialize)]
struct Document<'a> {
    meta: Meta,
    libs: Vec<Library>,
    threads: Threads<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    version: u32,
    preprocessed_profile_version: u32,
    product: String,
    /// Milliseconds between samples.
    interval: f64,
    /// Milliseconds since 1970-01-01 UTC.
    start_time: f64,
    sample_units: Units,
    categories: [Category; 7],
    process_type: u32,
    stackwalk: u32,
    debug: bool,
    symbolicated: bool,
    marker_schema: Vec<Schema>,
    comments: String,
}

impl Meta {
    fn of(profile: &Profile, schemas: &Schemas<'_>) -> Self {
        /// The version of the unprocessed format, which readers ignore.
        const GECKO_VERSION: u32 = 24;
        const MS_PER_S: f64 = 1e3;
        const NS_PER_MS: f64 = 1e6;
        let header = profile.header();
        Self {
            version: GECKO_VERSION,
            preprocessed_profile_version: VERSION,
            product: label::printable(&title::title(profile)).into_owned(),
            interval: MS_PER_S / profile.first_event().frequency_hz().unwrap_or(1) as f64,
            start_time: header.started_unix_ns as f64 / NS_PER_MS,
            sample_units: Units { time: "ms", event_delay: "ms", thread_cpu_delta: "ns" },
            categories: CATEGORIES,
            process_type: 0,
            stackwalk: 1,
            debug: false,
            symbolicated: true,
            marker_schema: schemas.listed(profile),
            comments: comments(profile),
        }
    }
}

/// The measurement in one line, a line for each finding, and one for each kind of event without a marker for each event.
fn comments(profile: &Profile) -> String {
    let subtitle = label::printable(&title::subtitle(profile)).into_owned();
    let lines = std::iter::once(subtitle).chain(title::findings(profile)).chain(omitted_events(profile));
    lines.collect::<Vec<_>>().join("\n")
}

fn omitted_events(profile: &Profile) -> impl Iterator<Item = String> {
    RuntimeEventKind::ALL.iter().filter_map(|kind| {
        let EventTotals { count, kept, is_lower_bound, .. } = profile.runtime_event_totals(None, *kind);
        let bound = if is_lower_bound { "at least " } else { "" };
        let is_complete = kept == count && !is_lower_bound;
        (!is_complete).then(|| format!("{}: {kept} of {bound}{count} events have markers", kind.name()))
    })
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Units {
    time: &'static str,
    event_delay: &'static str,
    #[serde(rename = "threadCPUDelta")]
    thread_cpu_delta: &'static str,
}

#[derive(Serialize)]
struct Category {
    name: &'static str,
    color: &'static str,
    subcategories: [&'static str; 1],
}

/// The first category is for empty stacks; readers expect a grey one.
const CATEGORIES: [Category; 7] = [
    category("Other", "grey"),
    category("Kernel", "orange"),
    category("Native", "blue"),
    category("JIT", "green"),
    category("Precompiled", "lightgreen"),
    category("Inlined", "purple"),
    category("Runtime event", "yellow"),
];

/// The index of the category of runtime events.
const RUNTIME_CATEGORY: usize = CATEGORIES.len() - 1;

const fn category(name: &'static str, color: &'static str) -> Category {
    Category { name, color, subcategories: ["Other"] }
}

/// The index of the category of a kind.
fn category_index(kind: FrameKind) -> usize {
    match kind {
        FrameKind::Kernel => 1,
        FrameKind::Jit => 3,
        FrameKind::Precompiled => 4,
        FrameKind::Inlined => 5,
        _ => 2,
    }
}

/// A module.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Library {
    arch: &'static str,
    name: String,
    path: String,
    debug_name: String,
    debug_path: String,
    breakpad_id: &'static str,
    code_id: Option<String>,
}

fn libraries(profile: &Profile) -> Vec<Library> {
    let library = |module: &profiler_profile::Module| {
        let path = label::escaped(profile.string(module.path)).into_owned();
        let name = path.rsplit('/').next().unwrap_or_default().to_owned();
        let build_id: String = module.build_id.iter().map(|byte| format!("{byte:02x}")).collect();
        Library {
            arch: "",
            debug_name: name.clone(),
            debug_path: path.clone(),
            name,
            path,
            breakpad_id: "",
            code_id: (!build_id.is_empty()).then_some(build_id),
        }
    };
    profile.modules().map(library).collect()
}

struct Threads<'a>(&'a Source<'a>);

impl Serialize for Threads<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let source = self.0;
        // Each event of a thread has a row of its own, below the row of the first.
        let rows = rows(source.profile);
        let mut threads = serializer.serialize_seq(None)?;
        // Readers refuse a profile without threads.
        if rows.is_empty() {
            threads.serialize_element(&Thread::new(&source.profile.header().target, "", 0, 0))?;
        }
        for (key, row) in rows {
            threads.serialize_element(&Thread::of(source, key, &row))?;
        }
        threads.end()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use profiler_profile::{
        Event, Header, OmittedEvents, ProfileBuilder, Sample as Taken, Sampling, StackEnd, ThreadState,
        test_profile,
    };

    pub(super) fn read_back(profile: &Profile) -> Value {
        let mut bytes = Vec::new();
        write(profile, &mut bytes).unwrap();
        serde_json::from_slice(&bytes).unwrap()
    }

    #[test]
    fn findings_are_lines_of_the_comments() {
        let comments = read_back(&test_profile::with_finding())["meta"]["comments"].clone();
        assert_eq!(comments.as_str().unwrap().lines().nth(1), Some(test_profile::FINDING));
    }

    #[test]
    fn kinds_of_events_without_a_marker_for_each_are_lines_of_the_comments() {
        let mut builder = ProfileBuilder::default();
        let process = builder.process(1, "app");
        let event = test_profile::runtime_event(&mut builder, process, RuntimeEventKind::Exception);
        builder.add_runtime_event(event);
        let (kind, count) = (RuntimeEventKind::Exception, 99);
        let omitted = OmittedEvents {
            time_ns: 0,
            process,
            kind,
            count,
            duration_ns: 0,
            longest_ns: 0,
            is_lower_bound: true,
        };
        builder.add_omitted_events(omitted);
        let comments = read_back(&builder.finish(Header::default()))["meta"]["comments"].clone();
        let lines: Vec<_> = comments.as_str().unwrap().lines().skip(1).collect();
        assert_eq!(lines, ["exception: 1 of at least 100 events have markers"]);
    }

    #[test]
    fn a_thread_has_samples_with_times_and_stacks() {
        let profile = test_profile::folded(&[("a;main;work", 1 << 33)]);
        let value = read_back(&profile);
        let thread = &value["threads"][0];
        assert_eq!(thread["samples"]["weight"], json!([1_u64 << 33]));
        assert_eq!(thread["samples"]["stack"], json!([1]));
        assert_eq!(thread["stackTable"]["prefix"], json!([null, 0]));
        assert!(thread["samples"].get("threadCPUDelta").is_none());
        assert_eq!(value["meta"]["preprocessedProfileVersion"], VERSION);
    }

    #[test]
    fn a_sample_represents_a_period_of_cpu_time() {
        let mut builder = ProfileBuilder::default();
        let stack = builder.stack(Vec::new(), StackEnd::Root);
        let process = builder.process(1, "a");
        let thread = builder.thread(process, 1, "a");
        builder.sample(0, 0, thread, stack, 1);
        builder.sample(70_000_000, 0, thread, stack, 3);
        builder.event(Event::at_frequency("cpu-clock", 100));
        let value = read_back(&builder.finish(Header::default()));
        assert_eq!(value["threads"][0]["samples"]["threadCPUDelta"], json!([10_000_000, 30_000_000]));
        assert_eq!(value["meta"]["sampleUnits"]["threadCPUDelta"], "ns");
    }

    #[test]
    fn each_event_of_a_thread_is_a_row() {
        let mut builder = ProfileBuilder::default();
        builder.event(Event::at_frequency("cpu-clock", 100));
        let waits = Event { name: "off-cpu".to_owned(), sampling: Sampling::Durations { min_ns: 0 } };
        let event = builder.event(waits);
        let stack = builder.stack(Vec::new(), StackEnd::Root);
        let process = builder.process(1, "a");
        let thread = builder.thread(process, 1, "a");
        let state = Some(ThreadState::Blocked);
        builder.add_sample(Taken { time_ns: 0, cpu: 0, thread, stack, event, state, value: 1_500_000 });
        builder.sample(70_000_000, 0, thread, stack, 3);
        let value = read_back(&builder.finish(Header::default()));
        let rows = value["threads"].as_array().unwrap();
        assert_eq!(rows.iter().map(|row| &row["name"]).collect::<Vec<_>>(), ["a", "a (off-cpu)"]);
        let samples = &rows[1]["samples"];
        assert_eq!((&samples["weight"], &samples["weightType"]), (&json!([1.5]), &json!("tracing-ms")));
        assert_eq!(samples["threadCPUDelta"], json!([0]));
    }

    #[test]
    fn columns_have_the_stated_length() {
        for seed in 0..30 {
            let value = read_back(&test_profile::random(seed));
            for thread in value["threads"].as_array().unwrap() {
                for table in ["samples", "markers", "stackTable", "frameTable", "funcTable", "resourceTable"]
                {
                    let table = thread[table].as_object().unwrap();
                    for column in table.values().filter_map(Value::as_array) {
                        assert_eq!(json!(column.len()), table["length"]);
                    }
                }
                let prefixes = thread["stackTable"]["prefix"].as_array().unwrap();
                for (place, prefix) in prefixes.iter().enumerate() {
                    assert!(prefix.as_u64().is_none_or(|prefix| prefix < place as u64));
                }
            }
        }
    }

    #[test]
    fn a_profile_without_samples_has_an_empty_thread() {
        let value = read_back(&ProfileBuilder::default().finish(Header::default()));
        assert_eq!(value["threads"].as_array().map(Vec::len), Some(1));
        assert_eq!(value["threads"][0]["samples"]["length"], 0);
    }
}
