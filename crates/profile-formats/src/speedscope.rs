//! The file format of speedscope (<https://www.speedscope.app/file-format-schema.json>).

use std::io::{self, BufWriter, Write};

use indexmap::{IndexMap, IndexSet};
use serde::{Serialize, Serializer};

use super::{OutputOptions, label, title};
use profiler_profile::{EventId, FrameView, ProcessId, Profile, StackId, ThreadId, sum};

/// Up to this number, samples are written in time order, each with all of its frames. A larger file would not open in a
/// browser: stacks are then written once, with their summed weight.
const MAX_IN_ORDER_OF_TIME: usize = 100_000;

/// Writes one speedscope profile for each event and all threads, or for each thread or process on request.
pub(super) fn write(profile: &Profile, options: &OutputOptions, to: impl Write) -> io::Result<()> {
    let mut to = BufWriter::new(to);
    let frames = Frames::of(profile);
    let document = Document {
        schema: "https://www.speedscope.app/file-format-schema.json",
        exporter: "profiler",
        name: label::printable(&title::title(profile)).into_owned(),
        profiles: samples_by_owner(profile, options)
            .into_iter()
            .map(|((event, owner), samples)| sampled(profile, &frames, event, owner, samples))
            .collect(),
        shared: Shared { frames: &frames.entries },
    };
    serde_json::to_writer(&mut to, &document)?;
    to.flush()
}

#[derive(Serialize)]
struct Document<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    exporter: &'static str,
    name: String,
    shared: Shared<'a>,
    profiles: Vec<Sampled<'a>>,
}

#[derive(Serialize)]
struct Shared<'a> {
    frames: &'a IndexSet<Entry>,
}

/// A frame; speedscope identifies frames by these fields.
#[derive(PartialEq, Eq, Hash, Serialize)]
struct Entry {
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

/// One of the profiles of a document.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Sampled<'a> {
    r#type: &'static str,
    name: String,
    unit: &'static str,
    start_value: u64,
    end_value: u64,
    samples: Vec<Stack<'a>>,
    weights: Vec<u64>,
}

/// The frames of a stack, root first.
struct Stack<'a> {
    profile: &'a Profile,
    frames: &'a Frames,
    id: StackId,
}

impl Serialize for Stack<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let frames = self.profile.stack(self.id).frames.iter().rev();
        serializer.collect_seq(frames.filter_map(|frame| self.frames.numbers.get(frame.index())))
    }
}

struct Frames {
    entries: IndexSet<Entry>,
    /// By frame id of the profile.
    numbers: Vec<usize>,
}

impl Frames {
    fn of(profile: &Profile) -> Self {
        let mut entries = IndexSet::new();
        let numbers = profile.frame_views().map(|frame| entries.insert_full(entry(frame)).0).collect();
        Self { entries, numbers }
    }
}

fn entry(frame: FrameView<'_>) -> Entry {
    let location = frame.location();
    let file = location.map(|location| location.file).or_else(|| Some(frame.module()?.path()));
    let text = |text| label::escaped(text).into_owned();
    Entry {
        name: text(frame.name()),
        file: file.map(text).unwrap_or_default(),
        line: location.map(|location| location.line).filter(|line| *line != 0),
    }
}

/// The owner of the samples of a speedscope profile.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Owner {
    Everything,
    Container(label::ContainerKey),
    Process(ProcessId),
    Thread(ThreadId),
}

impl Owner {
    fn name(self, profile: &Profile) -> String {
        match self {
            Self::Everything => label::printable(&title::title(profile)).into_owned(),
            Self::Container(key) => label::container(profile, key),
            Self::Process(id) => label::process(profile.process_view(id)),
            Self::Thread(id) => {
                let thread = profile.thread_view(id);
                format!("{}, {}", label::process(thread.process()), label::thread(thread))
            }
        }
    }
}

/// The stacks and values of each owner.
type OwnedSamples = IndexMap<(EventId, Owner), Vec<(StackId, u64)>>;

/// The samples of each event and owner, in the order of their first sample. Without samples there is one owner, because
/// speedscope refuses a document without a profile.
fn samples_by_owner(profile: &Profile, options: &OutputOptions) -> OwnedSamples {
    let mut owned = OwnedSamples::new();
    for sample in profile.samples() {
        let process = profile.thread(sample.thread).process;
        let owner = match options {
            OutputOptions { per_thread: true, .. } => Owner::Thread(sample.thread),
            OutputOptions { per_process: true, .. } => Owner::Process(process),
            OutputOptions { per_container: true, .. } => {
                let process = profile.process(process);
                Owner::Container((process.container, process.kubernetes))
            }
            _ => Owner::Everything,
        };
        owned.entry((sample.event, owner)).or_default().push((sample.stack, sample.value));
    }
    if owned.is_empty() {
        owned.insert((EventId::FIRST, Owner::Everything), Vec::new());
    }
    for samples in owned.values_mut() {
        if profile.samples().len() > MAX_IN_ORDER_OF_TIME {
            samples.sort_unstable();
        }
        samples.dedup_by(|next, kept| {
            let is_same = next.0 == kept.0;
            if is_same {
                kept.1 = kept.1.saturating_add(next.1);
            }
            is_same
        });
    }
    // The first profile of a document is the one that is shown.
    owned.sort_by_key(|(event, _), _| *event);
    owned
}

fn sampled<'a>(
    profile: &'a Profile,
    frames: &'a Frames,
    event: EventId,
    owner: Owner,
    samples: Vec<(StackId, u64)>,
) -> Sampled<'a> {
    let (unit, unit_ns) = match profile.event(event).unit_ns() {
        None => ("none", 1),
        Some(unit_ns) => ("nanoseconds", unit_ns),
    };
    let weights: Vec<u64> = samples.iter().map(|(_, value)| value.saturating_mul(unit_ns)).collect();
    let name = match profile.events().len() {
        1 => owner.name(profile),
        _ => format!("{} ({})", owner.name(profile), label::printable(&profile.event(event).name)),
    };
    Sampled {
        r#type: "sampled",
        name,
        unit,
        start_value: 0,
        end_value: sum::of(weights.iter().copied()),
        samples: samples.into_iter().map(|(id, _)| Stack { profile, frames, id }).collect(),
        weights,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use profiler_profile::{Event, Header, ProfileBuilder, Sample, Sampling, test_profile};

    fn read_back(profile: &Profile, options: OutputOptions) -> Value {
        let mut bytes = Vec::new();
        write(profile, &options, &mut bytes).unwrap();
        serde_json::from_slice(&bytes).unwrap()
    }

    #[test]
    fn stacks_are_root_first_in_time_order_and_runs_are_merged() {
        let profile = test_profile::folded(&[
            ("a;main;work", 1),
            ("a;main;work", 1 << 33),
            ("a;main", 3),
            ("a;main;work", 4),
        ]);
        let value = read_back(&profile, OutputOptions::default());
        let sampled = &value["profiles"][0];
        assert_eq!(sampled["samples"], json!([[0, 1], [0], [0, 1]]));
        assert_eq!(sampled["weights"], json!([(1_u64 << 33) + 1, 3, 4]));
        assert_eq!(sampled["endValue"], json!((1_u64 << 33) + 8));
        assert_eq!(value["shared"]["frames"], json!([{"name": "main"}, {"name": "work"}]));
    }

    #[test]
    fn threads_and_processes_are_separate_on_request() {
        let profile = test_profile::folded(&[("a;main", 1), ("b;main", 2)]);
        for options in [
            OutputOptions { per_thread: true, ..OutputOptions::default() },
            OutputOptions { per_process: true, ..OutputOptions::default() },
        ] {
            let value = read_back(&profile, options);
            let names: Vec<_> =
                value["profiles"].as_array().unwrap().iter().map(|sampled| &sampled["name"]).collect();
            assert_eq!(names.len(), 2);
            assert!(names[1].as_str().unwrap().starts_with("process 1 (b)"), "{names:?}");
        }
        let by_container = OutputOptions { per_container: true, ..OutputOptions::default() };
        assert_eq!(read_back(&profile, by_container)["profiles"][0]["name"], "no container");
    }

    #[test]
    fn many_samples_are_counted_by_stack() {
        let mut builder = ProfileBuilder::default();
        let process = builder.process(1, "a");
        let thread = builder.thread(process, 1, "a");
        let stacks = [1, 2].map(|address| {
            let frame = test_profile::function(&mut builder, "f", address);
            builder.stack(vec![frame], profiler_profile::StackEnd::Root)
        });
        for time in 0..=MAX_IN_ORDER_OF_TIME {
            builder.sample(time as u64, 0, thread, stacks[time % 2], 1);
        }
        builder.event(Event::at_frequency("cpu-clock", 100));
        let profile = builder.finish(Header::default());
        let value = read_back(&profile, OutputOptions::default());
        assert_eq!(value["profiles"][0]["weights"], json!([500_010_000_000_u64, 500_000_000_000_u64]));
        assert_eq!(value["profiles"][0]["unit"], "nanoseconds");
    }

    #[test]
    fn each_event_is_a_profile() {
        let mut builder = ProfileBuilder::default();
        builder.event(Event::at_frequency("cpu-clock", 100));
        let waits = Event { name: "off-cpu".to_owned(), sampling: Sampling::Durations { min_ns: 0 } };
        let event = builder.event(waits);
        let process = builder.process(1, "a");
        let thread = builder.thread(process, 1, "a");
        let stack = builder.stack(Vec::new(), profiler_profile::StackEnd::Empty);
        builder.add_sample(Sample { time_ns: 0, cpu: 0, thread, stack, event, state: None, value: 7 });
        builder.sample(1, 0, thread, stack, 2);
        let value = read_back(&builder.finish(Header::default()), OutputOptions::default());
        let profiles = value["profiles"].as_array().unwrap();
        let found: Vec<_> = profiles.iter().map(|profile| (&profile["name"], &profile["weights"])).collect();
        let (cpu, waiting) = (json!("Flame graph (cpu-clock)"), json!("Flame graph (off-cpu)"));
        assert_eq!(found, [(&cpu, &json!([20_000_000])), (&waiting, &json!([7]))]);
    }

    #[test]
    fn a_profile_without_samples_is_a_valid_document() {
        let value = read_back(&ProfileBuilder::default().finish(Header::default()), OutputOptions::default());
        assert_eq!(value["profiles"][0]["samples"], json!([]));
    }
}
