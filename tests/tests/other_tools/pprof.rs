//! Tests the pprof format with `go tool pprof`.

use std::{path::Path, process::Command};

use profiler::{
    Format, Profile,
    profile::{Header, ProfileBuilder},
};
use tempfile::TempDir;

use crate::{
    bytes,
    known::{MANY, known},
    readers,
};

#[test]
fn go_tool_pprof_reads_samples_and_time_of_each_function() {
    let Some(known) = Known::written() else { return };
    let mut samples = functions(&known.printed(&["-top", "-nodefraction=0", "-sample_index=samples"]));
    samples.sort_unstable_by_key(|(_, _, name)| name.clone());
    let (few, many, all) = (|n: u64| n.to_string(), MANY.to_string(), (MANY + 5).to_string());
    let expected = [
        (few(2), few(2), "App!Demo.Program.Hot(class System.String)"),
        (few(0), few(2), "App!Demo.Program.Main()"),
        (few(1), few(1), "a;b\\u{a}\\u{1b}[31m<script>\"'\\u{202e} 5/6 [0] 1.0: x:"),
        (few(2), few(2), "inlined"),
        (many.clone(), many, "ksys_read"),
        (few(0), all, "main"),
        (few(0), few(2), "outer"),
    ];
    assert_eq!(samples, expected.map(|(flat, cumulative, name)| (flat, cumulative, name.to_owned())));

    let time = known.printed(&["-top", "-nodefraction=0", "-unit=ms"]);
    assert!(time.contains("Type: cpu\n") && time.contains("Duration: 50ms, "), "{time}");
    let hot = functions(&time).into_iter().find(|(_, _, name)| name.contains("Hot")).unwrap();
    assert_eq!((hot.0, hot.1), ("20ms".to_owned(), "20ms".to_owned()));
}

#[test]
fn go_tool_pprof_finds_inlined_functions() {
    let Some(known) = Known::written() else { return };
    let traces = known.printed(&["-traces"]);
    let inlined = traces.split("-----------+").find(|trace| trace.contains("inlined")).unwrap();
    let frames: Vec<&str> = inlined.lines().rev().map(str::trim).take(3).collect();
    assert_eq!(frames, ["main", "outer", "20ms   inlined (inline)"]);
    let peek = known.printed(&["-peek=inlined"]);
    assert!(peek.contains("100% |   outer (inline)"), "{peek}");
}

#[test]
fn go_tool_pprof_finds_mappings_with_build_ids_program_first() {
    let Some(known) = Known::written() else { return };
    let raw = known.printed(&["-raw"]);
    let (_, mappings) = raw.split_once("Mappings\n").unwrap();
    let mappings: Vec<&str> = mappings.trim().lines().map(str::trim).collect();
    let expected =
        ["1: 0x0/0x1f08/0x0 /app/run ab01 [FN][FL][LN][IN]", "2: 0x0/0x1f01/0x0 /app/App.dll  [FN]"];
    assert_eq!(mappings[..2], expected);
    assert_eq!(mappings[2..], ["3: 0x0/0x1f01/0x0 [kernel]  [FN]"]);
    assert!(
        raw.contains(" 0x1f07 M=1 inlined /src/a.rs:7 s=0\n             outer /src/a.rs:7 s=0\n"),
        "{raw}"
    );
    assert!(raw.contains(" 0x1f00 App!Demo.Program.Hot(class System.String) :0 s=0\n"), "{raw}");
}

#[test]
fn go_tool_pprof_finds_threads_processes_and_the_ledger() {
    let Some(known) = Known::written() else { return };
    let tags = known.printed(&["-tags", "-sample_index=samples"]);
    let counts = [format!("{}.0 (  100%): app", MANY + 5), format!("{MANY}.0 (  100%): wor\\u{{a}}ker 1/2")];
    for count in counts.iter().map(String::as_str).chain(["5.0 (1.2e-07%): app", "5.0 (1.2e-07%): 7"]) {
        assert!(tags.lines().any(|tag| tag.trim() == count), "{count}:\n{tags}");
    }
    let one_thread = known.printed(&["-top", "-sample_index=samples", "-tagfocus=tid=7"]);
    assert!(one_thread.contains("accounting for 5, "), "{one_thread}");
    let comments = known.printed(&["-comments"]);
    assert!(comments.starts_with("On-CPU: pid 7 (app)\ncpu-clock at 100 Hz on 2 CPUs, "), "{comments}");
    assert!(comments.contains(&format!("\nsamples reported: {}\n", MANY + 5)), "{comments}");
}

#[test]
fn go_tool_pprof_reads_a_profile_without_samples() {
    let empty = ProfileBuilder::default().finish(Header::default());
    let Some(empty) = Known::written_of(&empty) else { return };
    let top = empty.printed(&["-top"]);
    assert!(top.contains("accounting for 0, 0% of 0 total"), "{top}");
}

/// A profile in a file.
struct Known(TempDir);

impl Known {
    /// Writes the known profile. `None` if pprof is not installed.
    fn written() -> Option<Self> {
        Self::written_of(&known())
    }

    fn written_of(profile: &Profile) -> Option<Self> {
        readers::installed("pprof")?;
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("known.pb.gz"), bytes(profile, Format::Pprof)).unwrap();
        Some(Self(folder))
    }

    fn printed(&self, arguments: &[&str]) -> String {
        pprof(&self.0.path().join("known.pb.gz"), arguments).unwrap()
    }
}

/// The output of `go tool pprof` for a profile, without a search for binaries and symbols.
pub(crate) fn pprof(profile: &Path, arguments: &[&str]) -> Option<String> {
    let mut pprof = Command::new(readers::installed("pprof/pprof")?);
    let folder = profile.parent()?;
    pprof.env("PPROF_TMPDIR", folder).env("PPROF_BINARY_PATH", folder).arg("-symbolize=none");
    Some(readers::printed_by(pprof.args(arguments).arg(profile)))
}

/// The rows of `-top`: self value, total value, name.
pub(crate) fn functions(top: &str) -> Vec<(String, String, String)> {
    let (_, rows) = top.split_once("cum%\n").unwrap();
    let row = |row: &str| {
        let mut columns = row.split_whitespace();
        let (flat, cumulative) = (columns.next().unwrap(), columns.nth(2).unwrap());
        let (_, name) = row.rsplit_once("%  ").unwrap();
        (flat.to_owned(), cumulative.to_owned(), name.trim_end_matches(" (inline)").to_owned())
    };
    rows.lines().map(row).collect()
}
