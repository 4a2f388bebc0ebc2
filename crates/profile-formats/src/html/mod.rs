//! The interactive HTML page: one file with style, script and profile.
//!
//! The profile is a JSON document, compressed by deflate and encoded in base64, so that no name can become markup. The
//! content security policy of the page forbids network access, other scripts and dynamic markup.

mod column;
mod document;
mod finding;
mod function;
mod lanes;
mod ledger;
mod owner;
mod runtime_events;
mod side;
mod text;
mod timeline;
mod tree;

use std::io::{self, BufWriter, Write};

use base64::{Engine as _, engine::general_purpose::STANDARD, write::EncoderWriter};
use flate2::{Compression, write::ZlibEncoder};
use sha2::{Digest as _, Sha256};

use self::document::Document;
use super::OutputOptions;
use profiler_profile::{Profile, difference::Difference};

const PAGE: &str = include_str!("page/page.html");

const STYLE: &str = include_str!("page/style.css");

/// The modules below `page`, which the build joins to one.
const SCRIPT: &str = include_str!(concat!(env!("OUT_DIR"), "/page.js"));

/// Writes the page of a profile.
pub(super) fn write(profile: &Profile, options: &OutputOptions, to: impl Write) -> io::Result<()> {
    write_page(&Document::of(profile, options), to)
}

/// Writes the page of a difference.
pub(super) fn write_difference(
    difference: &Difference<'_>,
    options: &OutputOptions,
    to: impl Write,
) -> io::Result<()> {
    write_page(&Document::comparing(difference, options), to)
}

fn write_page(document: &Document<'_>, to: impl Write) -> io::Result<()> {
    let mut to = BufWriter::new(to);
    for part in PAGE.split("{{") {
        let Some((name, text)) = part.split_once("}}") else {
            to.write_all(part.as_bytes())?;
            continue;
        };
        match name {
            "policy" => to.write_all(policy().as_bytes())?,
            "style" => to.write_all(STYLE.as_bytes())?,
            "script" => to.write_all(SCRIPT.as_bytes())?,
            _ => write_document(document, &mut to)?,
        }
        to.write_all(text.as_bytes())?;
    }
    to.flush()
}

/// The content security policy: this script, this style, nothing else.
fn policy() -> String {
    let hash = |text: &str| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text)));
    format!(
        "default-src 'none'; script-src {}; style-src {}; base-uri 'none'; form-action 'none'; \
         require-trusted-types-for 'script'",
        hash(SCRIPT),
        hash(STYLE)
    )
}

/// Streams the document through compression and base64, without holding it in memory.
fn write_document(document: &Document<'_>, to: impl Write) -> io::Result<()> {
    let base64 = EncoderWriter::new(to, &STANDARD);
    let mut json = BufWriter::new(ZlibEncoder::new(base64, Compression::fast()));
    serde_json::to_writer(&mut json, document)?;
    let mut base64 = json.into_inner().map_err(io::IntoInnerError::into_error)?.finish()?;
    base64.finish()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::ZlibDecoder;
    use serde_json::Value;

    use super::*;
    use profiler_addresses::ElfAddress;
    use profiler_profile::{
        Event, Frame, FrameKind, Header, Incident, ProfileBuilder, Sample, StackEnd, SymbolSource,
        Symbolization, ThreadState, test_profile,
    };

    fn page(profile: &Profile) -> String {
        let mut bytes = Vec::new();
        write(profile, &OutputOptions::default(), &mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    fn profile_of(name: &str) -> Profile {
        let mut builder = ProfileBuilder::default();
        let text = builder.string(name);
        let frame = builder.frame(Frame {
            name: text,
            kind: FrameKind::Jit,
            module: None,
            address: ElfAddress(0),
            location: None,
            symbolization: Symbolization::Symbol(SymbolSource::PerfMap),
        });
        let stack = builder.stack(vec![frame], StackEnd::Root);
        let process = builder.process(1, name);
        let thread = builder.thread(process, 1, name);
        builder.sample(0, 0, thread, stack, 5);
        builder.finish(Header { target: name.to_owned(), ..Header::default() })
    }

    /// The document in a page.
    fn document(page: &str) -> Value {
        let (_, rest) = page.split_once("id=\"profile\">").unwrap();
        let (base64, _) = rest.split_once("</script>").unwrap();
        let mut json = String::new();
        ZlibDecoder::new(&*STANDARD.decode(base64).unwrap()).read_to_string(&mut json).unwrap();
        serde_json::from_str(&json).unwrap()
    }

    #[test]
    fn names_never_become_markup() {
        let page = page(&profile_of("</script><script>alert(1)</script><!--&\u{202e}"));
        assert!(!page.contains("alert(1)") && !page.contains('\u{202e}'));
        assert_eq!(page.matches("</script>").count(), 2, "the document and the script");
        let strings = document(&page)["strings"].to_string();
        assert!(strings.contains("</script><script>alert(1)</script><!--&\\\\u{202e}"), "{strings}");
    }

    #[test]
    fn the_policy_allows_only_this_script_and_style() {
        let page = page(&profile_of("f"));
        let between = |start: &str, end: &str| {
            let (_, rest) = page.split_once(start).unwrap();
            rest.split_once(end).unwrap().0.to_owned()
        };
        for text in [between("<style>", "</style>"), between("<script type=\"module\">", "</script>")] {
            let hash = STANDARD.encode(Sha256::digest(&text));
            assert!(page.contains(&format!("-src 'sha256-{hash}'")), "no hash of {text:.40}");
        }
        assert!(page.contains("default-src 'none'") && !page.contains("unsafe-inline"));
        for outside in ["http:", "https:", "src=", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
    }

    #[test]
    fn a_page_has_the_findings() {
        let with_finding = document(&page(&test_profile::with_finding()));
        let expected = serde_json::json!([{
            "text": test_profile::FINDING,
            "event": 0,
            "kind": "pool-starvation",
            "processes": [1],
            "threads": 3,
            "share_percent": 75.0,
            "share_of": "pool-workers",
            "method": "A.B",
            "file": "/src/a.cs",
            "line": 5,
            "certainty": "likely",
            "proof": "pool-adjustments",
            "certainty_text": "likely: an adjustment of the thread pool (--events default) would prove it",
            "selection": {"begin_ns": 0, "end_ns": 10_000_000, "threads": [1], "search": "A.B"},
        }]);
        assert_eq!(with_finding["events"][0][0]["findings"], expected);
        assert_eq!(document(&page(&profile_of("f")))["events"][0][0]["findings"], Value::Null);
    }

    #[test]
    fn a_page_has_the_times_of_the_incident() {
        let mut profile = profile_of("f");
        let incident_times = |profile: &Profile| {
            let measured = document(&page(profile))["events"][0][0].take();
            (measured["incident_since_ns"].clone(), measured["incident_ns"].clone())
        };
        assert_eq!(incident_times(&profile), (Value::Null, Value::Null));
        profile.set_incident(Incident { since_ns: 5, time_ns: 7, ..Incident::default() });
        assert_eq!(incident_times(&profile), (Value::from(5), Value::from(7)));
    }

    #[test]
    fn a_thread_that_changed_its_name_has_one_lane() {
        let mut builder = ProfileBuilder::default();
        let event = builder.event(Event::at_frequency("wall", 50));
        let stack = builder.stack(Vec::new(), StackEnd::Root);
        let process = builder.process(1, "p");
        for (time_ns, tid, name) in [(0, 1, "first"), (0, 2, "other"), (20_000_000, 1, "last")] {
            let thread = builder.thread(process, tid, name);
            let state = Some(ThreadState::Blocked);
            builder.add_sample(Sample { time_ns, cpu: 0, thread, stack, event, state, value: 1 });
        }
        let document = document(&page(&builder.finish(Header::default())));
        assert_eq!(document["lanes"]["runs"], "BB", "one run in each of two lanes");
        assert_eq!(document["lanes"]["length"], "gxTginB", "20,000 us and 40,000 us");
    }

    #[test]
    fn an_empty_profile_gives_a_page_without_functions() {
        let document = document(&page(&ProfileBuilder::default().finish(Header::default())));
        assert_eq!(document["functions"]["name"], Value::Array(Vec::new()));
        assert_eq!(document["events"][0][0]["timeline"]["count"], "");
    }

    #[test]
    fn a_write_error_is_returned() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let error = write(&profile_of("f"), &OutputOptions::default(), Closed).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
