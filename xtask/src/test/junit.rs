//! Reads the JUnit file of a run: its time, and each test with its time, its output, and whether it failed.

use std::time::Duration;

use anyhow::{Context as _, Result};
use roxmltree::{Document, Node};

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
    let document = Document::parse(text).context("the JUnit file is not well-formed XML")?;
    let cases = document.descendants().filter(|node| node.has_tag_name("testcase"));
    Ok(TestRun { elapsed: time(document.root_element())?, cases: cases.map(case).collect::<Result<_>>()? })
}

fn case(element: Node) -> Result<TestCase> {
    let parts = || element.children().filter(Node::is_element);
    Ok(TestCase {
        binary: attribute(element, "classname")?.to_owned(),
        name: attribute(element, "name")?.to_owned(),
        elapsed: time(element)?,
        has_failed: parts().any(|part| part.has_tag_name("failure") || part.has_tag_name("error")),
        output: parts().filter_map(|part| part.text()).collect::<Vec<_>>().join("\n"),
    })
}

fn time(element: Node) -> Result<Duration> {
    let seconds: f64 = attribute(element, "time")?.parse().context("a time is no number")?;
    Ok(Duration::from_secs_f64(seconds))
}

fn attribute<'a>(element: Node<'a, '_>, name: &str) -> Result<&'a str> {
    element.attribute(name).with_context(|| format!("an element without the attribute {name}"))
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
