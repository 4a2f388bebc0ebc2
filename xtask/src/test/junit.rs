//! Reads the JUnit file of a run: its time, and each test with its time, its output, and whether it failed.

use std::time::Duration;

use anyhow::{Context as _, Result};
use quick_xml::{
    Reader, XmlVersion,
    escape::resolve_xml_entity,
    events::{BytesStart, Event},
};

/// The content of the file.
#[derive(Debug, Default)]
pub(super) struct TestRun {
    /// From the start of the first test to the end of the last one.
    pub(super) elapsed: Duration,
    pub(super) cases: Vec<TestCase>,
}

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
/// If the text is not well-formed XML, a test has no name or time, or the run has no time.
pub(super) fn parse(text: &str) -> Result<TestRun> {
    let mut reader = Reader::from_str(text);
    let mut run = TestRun::default();
    let mut open: Option<TestCase> = None;
    loop {
        match reader.read_event().context("the JUnit file is not well-formed XML")? {
            Event::Start(element) if element.name().as_ref() == b"testsuites" => {
                run.elapsed = time(&element)?;
            }
            Event::Start(element) => start(&element, &mut open)?,
            Event::Empty(element) => {
                start(&element, &mut open)?;
                if element.name().as_ref() == b"testcase" {
                    run.cases.extend(open.take());
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
            Event::End(element) if element.name().as_ref() == b"testcase" => run.cases.extend(open.take()),
            Event::Eof => return Ok(run),
            _ => {}
        }
    }
}

fn start(element: &BytesStart, open: &mut Option<TestCase>) -> Result<()> {
    match (element.name().as_ref(), open) {
        (b"testcase", open) => {
            *open = Some(TestCase {
                binary: attribute(element, "classname")?,
                name: attribute(element, "name")?,
                elapsed: time(element)?,
                ..TestCase::default()
            });
        }
        (b"failure" | b"error", Some(case)) => case.has_failed = true,
        _ => {}
    }
    Ok(())
}

fn time(element: &BytesStart) -> Result<Duration> {
    let seconds: f64 = attribute(element, "time")?.parse().context("a time is no number")?;
    Ok(Duration::from_secs_f64(seconds))
}

fn attribute(element: &BytesStart, name: &str) -> Result<String> {
    let attribute = element.try_get_attribute(name)?;
    let attribute = attribute.with_context(|| format!("an element without the attribute {name}"))?;
    Ok(attribute.normalized_value(XmlVersion::Explicit1_0)?.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="nextest-run" tests="2" failures="1" time="5.500">
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
        let TestRun { elapsed, cases } = parse(FILE).unwrap();
        assert_eq!((elapsed.as_millis(), cases.len()), (5_500, 2));
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
        for time in ["time=\"4.250\"", "time=\"5.500\""] {
            assert!(parse(&FILE.replace(time, "")).is_err(), "without {time}");
        }
        assert!(parse(&FILE.replace("</failure>", "")).is_err());
    }
}
