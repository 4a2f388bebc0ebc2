//! Tests folded stacks and `perf script` text with FlameGraph's scripts and with inferno.

use std::{io::Cursor, path::Path, process::Command};

use inferno::collapse::{Collapse, perf};
use profiler::Format;

use crate::{
    bytes,
    known::{MANY, known},
    readers,
};

/// The folded stacks of the known profile, with nanoseconds as counts.
const KNOWN: [&str; 4] = [
    "app;main;Demo.Program.Main;Demo.Program.Hot 20000000",
    "app;main;a\\u{3b}b\\u{a}\\u{1b}[31m<script>\"'\\u{202e} 5/6 [0] 1.0: x: 10000000",
    "app;main;outer;inlined 20000000",
    "wor_ker_1/2;main;ksys_read 42949672970000000",
];

#[test]
fn inferno_collapses_perf_script_text() {
    let mut collapsed = Vec::new();
    let text = bytes(&known(), Format::PerfScript);
    perf::Folder::default().collapse(Cursor::new(text), &mut collapsed).unwrap();
    assert_eq!(String::from_utf8(collapsed).unwrap().lines().collect::<Vec<_>>(), KNOWN);
}

#[test]
fn stackcollapse_perf_pl_collapses_perf_script_text() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("known.perf.txt");
    std::fs::write(&text, bytes(&known(), Format::PerfScript)).unwrap();
    let Some(collapsed) = script("stackcollapse-perf.pl", &text) else { return };
    // The script removes quotes.
    let known = KNOWN.map(|line| line.replace(['"', '\''], ""));
    assert_eq!(collapsed.lines().collect::<Vec<_>>(), known);
}

#[test]
fn flamegraph_pl_draws_folded_stacks() {
    let folder = tempfile::tempdir().unwrap();
    let folded = folder.path().join("known.folded");
    std::fs::write(&folded, bytes(&known(), Format::Folded)).unwrap();
    let Some(picture) = script("flamegraph.pl", &folded) else { return };
    let mut boxes = boxes(&picture);
    boxes.sort_unstable();
    // The script omits boxes that are narrower than a tenth of a pixel.
    let expected = [("all", MANY + 5), ("app", MANY + 5), ("ksys_read", MANY), ("main", MANY + 5)];
    assert_eq!(boxes, expected);
}

/// The output of one of FlameGraph's scripts for a file. `None` if the script is not installed.
pub(crate) fn script(name: &str, of: &Path) -> Option<String> {
    let script = readers::installed("flamegraph")?.join(name);
    Some(readers::printed_by(Command::new("perl").arg(script).arg(of)))
}

/// The boxes of a flame graph that `flamegraph.pl` drew: a name and its number of samples.
pub(crate) fn boxes(picture: &str) -> Vec<(&str, u64)> {
    let titles = picture.lines().filter_map(|line| line.strip_prefix("<title>")?.split_once(" samples, "));
    let titles = titles.filter_map(|(title, _)| title.rsplit_once(" ("));
    titles.map(|(name, count)| (name, count.replace(',', "").parse().unwrap())).collect()
}
