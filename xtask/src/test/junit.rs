//! Reads the JUnit file of a run: each test with its time, its output, and whether it failed.

use std::time::Duration;

use anyhow::{Context as _, Result};
use quick_xml::{
    Reader, XmlVersion,
    escape::resolve_xml_entity,
    events::{BytesStart, Event},
};

/// A test and the result of its last run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct TestCase {
    /// The test program, as nextest identifies it: `package` or `package::name`.
    pub(super) binary: String,
    /// The path of the test function in its program.
    pub(super) name: String,
    pub(super) elapsed: Duration,
    pub(super) has_failed: bool,
    /// What it printed, and why it failed.
    pub(super) output: String,
}

/// Parses the file.
///
/// # Errors
/// If the text is not well-formed XML, or a test has no name or time.
pub(super) fn parse(text: &str) -> Result<Vec<TestCase>> {
    let mut reader = Reader::from_str(text);
    let mut cases = Vec::new();
    let mut open: Option<TestCase> = None;
    loop {
        match reader.read_event().context("the JUnit file is not well-formed XML")? {
            Event::Start(element) => start(&element, &mut open)?,
            Event::Empty(element) => {
                start(&element, &mut open)?;
                if element.name().as_ref() == b"testcase" {
                    cases.extend(open.take());
                }
            }
            Event::Text(text) => {
                if let Some(case) = &mut open {
                    case.output += text.decode()?.trim_start_matches('\n');
                }
            }
            Event::GeneralRef(reference) => {
                let character = reference.resolve_char_ref()?.map(String::from);
                let name = reference.decode()?;
                let entity = || resolve_xml_entity(&name).map(str::to_owned);
                if let (Some(case), Some(text)) = (&mut open, character.or_else(entity)) {
                    case.output += &text;
                }
            }
            Event::End(element) if element.name().as_ref() == b"testcase" => cases.extend(open.take()),
            Event::Eof => return Ok(cases),
            _ => {}
        }
    }
}

fn start(element: &BytesStart, open: &mut Option<TestCase>) -> Result<()> {
    match (element.name().as_ref(), open) {
        (b"testcase", open) => {
            let seconds: f64 = attribute(element, "time")?.parse().context("a time is no number")?;
            *open = Some(TestCase {
                binary: attribute(element, "classname")?,
                name: attribute(element, "name")?,
                elapsed: Duration::from_secs_f64(seconds),
                ..TestCase::default()
            });
        }
        (b"failure" | b"error", Some(case)) => case.has_failed = true,
        _ => {}
    }
    Ok(())
}

fn attribute(element: &BytesStart, name: &str) -> Result<String> {
    let attribute = element.try_get_attribute(name)?;
    let attribute = attribute.with_context(|| format!("a test without the attribute {name}"))?;
    Ok(attribute.normalized_value(XmlVersion::Explicit1_0)?.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="nextest-run" tests="2" failures="1">
  <testsuite name="profiler-tests::end_to_end">
    <testcase name="measured::wall::a" classname="profiler-tests::end_to_end" timestamp="x" time="4.250">
      <failure message="thread &apos;a&apos; panicked" type="test failure">assertion failed: 1 &lt; 0</failure>
      <system-out>the output &#x41;</system-out>
    </testcase>
    <testcase name="b" classname="xtask::bin/xtask" timestamp="x" time="0.001"/>
  </testsuite>
</testsuites>"#;

    #[test]
    fn tests_have_their_times_and_failures_their_output() {
        let cases = parse(FILE).unwrap();
        assert_eq!(cases.len(), 2);
        assert_eq!((cases[0].name.as_str(), cases[0].has_failed), ("measured::wall::a", true));
        assert_eq!(
            (cases[0].binary.as_str(), cases[0].elapsed.as_millis()),
            ("profiler-tests::end_to_end", 4_250)
        );
        assert!(cases[0].output.contains("assertion failed: 1 < 0"), "{}", cases[0].output);
        assert!(cases[0].output.contains("the output A"), "{}", cases[0].output);
        assert_eq!((cases[1].name.as_str(), cases[1].has_failed), ("b", false));
    }

    #[test]
    fn a_cut_file_is_an_error() {
        assert!(parse(&FILE.replace("time=\"4.250\"", "")).is_err());
        assert!(parse(&FILE.replace("</failure>", "")).is_err());
    }
}
