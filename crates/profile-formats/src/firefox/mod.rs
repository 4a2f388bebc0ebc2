//! The Firefox Profiler's processed format
//! (<https://github.com/firefox-devtools/profiler/blob/main/docs-developer/processed-profile-format.md>).
//!
//! Each thread has its own tables and is written before the next one is built. A sample represents one period of CPU
//! time (`threadCPUDelta`); without it, a thread looks busy between two samples.

mod table;
mod thread;

use std::{
    collections::BTreeMap,
    io::{self, BufWriter, Write},
};

use serde::{Serialize, Serializer, ser::SerializeSeq};

use self::thread::{Thread, Trees};
use super::{label, title};
use profiler_profile::{EventId, FrameKind, Profile, Sample, ThreadId};

/// The version of the format; the Firefox Profiler upgrades older versions.
const VERSION: u32 = 55;

/// Writes the profile.
pub(super) fn write(profile: &Profile, to: impl Write) -> io::Result<()> {
    let mut to = BufWriter::new(to);
    let document = Document { meta: Meta::of(profile), libs: libraries(profile), threads: Threads(profile) };
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
    categories: [Category; 6],
    process_type: u32,
    stackwalk: u32,
    debug: bool,
    symbolicated: bool,
    marker_schema: [(); 0],
    comments: String,
}

impl Meta {
    fn of(profile: &Profile) -> Self {
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
            marker_schema: [],
            comments: comments(profile),
        }
    }
}

/// The measurement in one line, and a line for each finding.
fn comments(profile: &Profile) -> String {
    let subtitle = label::printable(&title::subtitle(profile)).into_owned();
    let lines: Vec<_> = std::iter::once(subtitle).chain(title::findings(profile)).collect();
    lines.join("\n")
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
const CATEGORIES: [Category; 6] = [
    category("Other", "grey"),
    category("Kernel", "orange"),
    category("Native", "blue"),
    category("JIT", "green"),
    category("Precompiled", "lightgreen"),
    category("Inlined", "purple"),
];

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
        let path = label::printable(profile.string(module.path)).into_owned();
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

struct Threads<'a>(&'a Profile);

impl Serialize for Threads<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let profile = self.0;
        // Each event of a thread has a row of its own, below that of the first.
        let mut of_threads = BTreeMap::<(ThreadId, EventId), Vec<&Sample>>::new();
        for sample in profile.samples() {
            of_threads.entry((sample.thread, sample.event)).or_default().push(sample);
        }
        let trees = Trees::of(profile);
        let mut threads = serializer.serialize_seq(None)?;
        for ((thread, event), samples) in of_threads {
            threads.serialize_element(&Thread::of(profile, &trees, (event, thread), &samples))?;
        }
        // Readers refuse a profile without threads.
        if profile.samples().is_empty() {
            threads.serialize_element(&Thread::new(&profile.header().target, "", 0, 0))?;
        }
        threads.end()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use profiler_profile::{
        Event, Header, ProfileBuilder, Sample as Taken, Sampling, StackEnd, ThreadState, test_profile,
    };

    fn read_back(profile: &Profile) -> Value {
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
                for table in ["samples", "stackTable", "frameTable", "funcTable", "resourceTable"] {
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
