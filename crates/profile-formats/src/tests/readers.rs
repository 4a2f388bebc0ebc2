//! Strict parsers of every format, for tests.

use std::{
    collections::BTreeSet,
    io::{Cursor, Read},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use flate2::read::ZlibDecoder;
use quick_xml::{Reader, XmlVersion, events::Event};
use serde_json::Value;
use zip::ZipArchive;

use crate::{Format, pprof};
use profiler_profile::Profile;

/// The content of an output.
#[derive(Debug, Default)]
pub(super) struct Content {
    /// All text that can come from a target.
    pub(super) texts: Vec<String>,
    /// The number of samples, where the format has all.
    pub(super) samples: Option<u128>,
    /// The largest number of samples that the format counts exactly.
    pub(super) exact_up_to: u128,
    /// Markup around the profile: the page, the names of elements.
    pub(super) frame: String,
}

/// Parses an output of a profile whose samples are 1 ns apart.
pub(super) fn read(format: Format, bytes: &[u8]) -> Content {
    match format {
        Format::Folded => folded(&text(bytes)),
        Format::Svg => svg(bytes),
        Format::Html => html(&text(bytes)),
        Format::Top => top(&text(bytes)),
        Format::Pprof => pprof(bytes),
        Format::Speedscope => speedscope(bytes),
        Format::Firefox => firefox(bytes),
        Format::PerfScript => perf_script(&text(bytes)),
        Format::TraceZip => trace_zip(bytes),
        Format::EventsJsonl => events_jsonl(&text(bytes)),
        Format::FindingsJson => findings_json(&text(bytes)),
        Format::Recording => recording(bytes),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn content(texts: Vec<String>, samples: impl IntoIterator<Item = u128>) -> Content {
    let samples = Some(samples.into_iter().sum());
    Content { texts, samples, exact_up_to: u64::MAX.into(), frame: String::new() }
}

fn folded(text: &str) -> Content {
    let (mut texts, mut counts) = (Vec::new(), Vec::new());
    for line in text.split_terminator('\n') {
        let (stack, count) = line.rsplit_once(' ').unwrap();
        assert!(stack.split(';').all(|name| !name.is_empty()), "{line:?}");
        texts.push(stack.to_owned());
        counts.push(count.parse().unwrap());
    }
    content(texts, counts)
}

/// Well-formed XML in UTF-8 with the elements of every picture.
pub(super) fn svg(bytes: &[u8]) -> Content {
    let (mut texts, mut elements, mut samples) = (Vec::new(), BTreeSet::new(), None);
    let mut reader = Reader::from_reader(bytes);
    loop {
        match reader.read_event().unwrap() {
            Event::Start(element) | Event::Empty(element) => {
                elements.insert(text(element.name().as_ref()));
                for attribute in element.attributes() {
                    let attribute = attribute.unwrap();
                    let value = attribute.normalized_value(XmlVersion::Implicit1_0).unwrap().into_owned();
                    if attribute.key.as_ref() == b"total_samples" {
                        samples = value.parse().ok();
                    }
                    texts.push(value);
                }
            }
            Event::Text(found) => {
                texts.extend(found.decode().unwrap().split('\n').map(str::to_owned));
            }
            Event::GeneralRef(entity) => {
                let named = ["lt", "gt", "amp", "quot", "apos"].contains(&&*entity.decode().unwrap());
                assert!(named || entity.resolve_char_ref().unwrap().is_some(), "{entity:?}");
            }
            Event::Eof => break,
            _ => {}
        }
    }
    let frame = elements.into_iter().collect::<Vec<_>>().join(" ");
    Content { texts, samples, exact_up_to: i64::MAX as u128, frame }
}

fn html(page: &str) -> Content {
    let (before, rest) = page.split_once("id=\"profile\">").unwrap();
    let (base64, after) = rest.split_once("</script>").unwrap();
    let mut json = Vec::new();
    ZlibDecoder::new(&*STANDARD.decode(base64).unwrap()).read_to_end(&mut json).unwrap();
    let document: Value = serde_json::from_slice(&json).unwrap();
    let counts = packed_numbers(document["events"][0][0]["timeline"]["count"].as_str().unwrap());
    Content { frame: format!("{before}{after}"), ..content(strings(&document), counts) }
}

fn top(text: &str) -> Content {
    const DEFAULT_COLUMNS: usize = 100;
    let texts: Vec<_> = text.split('\n').map(str::to_owned).collect();
    assert!(texts.iter().all(|line| line.chars().count() <= DEFAULT_COLUMNS), "{text}");
    Content { texts, ..Content::default() }
}

fn pprof(bytes: &[u8]) -> Content {
    let (counts, texts) = pprof::tests::counts_and_texts(bytes);
    let counts = counts.into_iter().map(|count| u128::try_from(count).unwrap());
    Content { exact_up_to: i64::MAX as u128, ..content(texts, counts) }
}

fn speedscope(bytes: &[u8]) -> Content {
    let document: Value = serde_json::from_slice(bytes).unwrap();
    let frames = document["shared"]["frames"].as_array().unwrap().len() as u64;
    let profiles = document["profiles"].as_array().unwrap();
    assert!(!profiles.is_empty());
    for profile in profiles {
        let stacks = profile["samples"].as_array().unwrap();
        assert_eq!(stacks.len(), profile["weights"].as_array().unwrap().len());
        let numbers = stacks.iter().flat_map(|stack| stack.as_array().unwrap());
        assert!(numbers.into_iter().all(|number| number.as_u64().unwrap() < frames));
    }
    content(strings(&document), profiles.iter().flat_map(|profile| numbers(&profile["weights"])))
}

fn firefox(bytes: &[u8]) -> Content {
    let document: Value = serde_json::from_slice(bytes).unwrap();
    let threads = document["threads"].as_array().unwrap();
    for thread in threads {
        for (table, column, of) in [
            ("samples", "stack", "stackTable"),
            ("stackTable", "frame", "frameTable"),
            ("frameTable", "func", "funcTable"),
        ] {
            let places = thread[table][column].as_array().unwrap();
            let length = thread[of]["length"].as_u64().unwrap();
            assert!(places.iter().filter_map(Value::as_u64).all(|place| place < length), "{table}.{column}");
        }
    }
    content(strings(&document), threads.iter().flat_map(|thread| numbers(&thread["samples"]["weight"])))
}

/// A header line, the frames, an empty line.
fn perf_script(text: &str) -> Content {
    let (mut texts, mut periods) = (Vec::new(), Vec::new());
    for event in text.split_terminator("\n\n") {
        let mut lines = event.split('\n');
        let head = lines.next().unwrap();
        let [_, ids, rest] = head.splitn(3, ' ').collect::<Vec<_>>()[..] else { panic!("{head:?}") };
        let (pid, tid) = ids.split_once('/').unwrap();
        assert!(pid.parse::<u32>().is_ok() && tid.parse::<u32>().is_ok(), "{head:?}");
        let (_, period) = rest.split_once(": ").unwrap();
        periods.push(period.trim_start().split_once(' ').unwrap().0.parse().unwrap());
        texts.push(head.to_owned());
        for line in lines {
            let (address, name) = line.strip_prefix('\t').unwrap().trim_start().split_once(' ').unwrap();
            assert!(u64::from_str_radix(address, 16).is_ok() && name.ends_with(')'), "{line:?}");
            texts.push(name.to_owned());
        }
    }
    content(texts, periods)
}

/// The samples, and the lines of the other files.
fn trace_zip(bytes: &[u8]) -> Content {
    let mut archive = ZipArchive::new(Cursor::new(bytes)).unwrap();
    let texts = (0..archive.len()).map(|index| {
        let mut text = String::new();
        archive.by_index(index).unwrap().read_to_string(&mut text).unwrap();
        text
    });
    let texts: Vec<_> = texts.collect();
    let mut content = perf_script(&texts[0]);
    let others = texts[1..].iter().flat_map(|text| text.split_terminator('\n'));
    content.texts.extend(others.map(str::to_owned));
    content
}

fn events_jsonl(text: &str) -> Content {
    let lines = text.split_terminator('\n').map(|line| serde_json::from_str(line).unwrap());
    let texts = lines.flat_map(|line: Value| [strings(&line), keys(&line["fields"])].concat());
    Content { texts: texts.collect(), ..Content::default() }
}

fn findings_json(text: &str) -> Content {
    let document = serde_json::from_str(text).unwrap();
    Content { texts: strings(&document), ..Content::default() }
}

fn keys(value: &Value) -> Vec<String> {
    value.as_object().unwrap().keys().cloned().collect()
}

fn recording(bytes: &[u8]) -> Content {
    let profile = Profile::read(bytes).unwrap();
    assert!(!profile.header().edits.iter().any(|edit| edit.contains("damaged")), "{:?}", profile.header());
    content(Vec::new(), profile.samples().iter().map(|sample| sample.value.into()))
}

fn numbers(column: &Value) -> Vec<u128> {
    column.as_array().unwrap().iter().map(|number| number.as_u64().unwrap().into()).collect()
}

/// Decodes Base64 VLQ numbers.
fn packed_numbers(text: &str) -> Vec<u128> {
    const LETTERS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut found, mut number, mut bits) = (Vec::new(), 0, 0);
    for letter in text.chars() {
        let digit = LETTERS.find(letter).unwrap() as u128;
        number |= (digit & 31) << bits;
        bits += 5;
        if digit < 32 {
            found.push(std::mem::take(&mut number));
            bits = 0;
        }
    }
    assert_eq!(bits, 0, "the last number ends");
    found
}

/// All texts of a document except the keys of objects.
fn strings(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(values) => values.iter().flat_map(strings).collect(),
        Value::Object(entries) => entries.values().flat_map(strings).collect(),
        _ => Vec::new(),
    }
}
