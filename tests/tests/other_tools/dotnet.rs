//! Tests one profile of a .NET process in every format, each read by the tool of the format.

use std::{collections::BTreeMap, fs, path::PathBuf, process::Command};

use profiler_tests::{FoldedStack, FoldedStacks, Workload, profiler, run_beside_others, run_command};
use tempfile::TempDir;

use crate::{flame_graph, pprof, readers};

/// The output files of the run.
const FILES: [&str; 9] = [
    "a.html",
    "a.pb.gz",
    "a.speedscope.json",
    "a.profile",
    "a.folded",
    "a.svg",
    "a.json",
    "a.perf.txt",
    "a.trace.zip",
];

/// A method with three fifths of the CPU time.
const METHOD: &str = "app!Workload.Cpu.Spin(int)";

const FREQUENCY_HZ: u64 = 499;

#[test]
fn all_formats_of_one_run_have_the_same_content() {
    let Some(_lock) = run_beside_others() else { return };
    let run = Run::new();
    let stacks = FoldedStacks::parse(&fs::read_to_string(run.file("a.folded")).unwrap());
    let (total, hits) = (stacks.total(), stacks.count(|stack| stack.has(METHOD)));
    // The rest is the start of the runtime, whose share depends on the load of the machine.
    assert!(hits * 2 > total, "{hits} of {total}");

    run.assert_scripts_find(total, hits, method_frames(&stacks));
    run.assert_pprof_finds(total, hits);
    run.assert_flame_graph_finds(&stacks);
    run.assert_archive_holds_the_text_and_the_maps();
    run.assert_reports_are_the_same();
    run.assert_top_shows(total, hits);
}

/// A folder with the files of a run.
struct Run {
    folder: TempDir,
    pid: u32,
}

impl Run {
    fn new() -> Self {
        let workload = Workload::run(Workload::dotnet_command("9.0", "cpu").env("PERF_MAP", "0"));
        let run = Self { folder: tempfile::tempdir().unwrap(), pid: workload.pid() };
        let mut command = profiler(&["-p", &workload.pid().to_string(), "-d", "3"]);
        command.args(["-F", &FREQUENCY_HZ.to_string()]);
        for file in FILES {
            command.arg("-o").arg(run.file(file));
        }
        let ended = run_command(&mut command);
        assert_eq!(ended.code(), 0, "{ended:?}");
        run
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Reads the page in a browser, and the other formats with pprof's decoder, speedscope and the Firefox Profiler.
    fn assert_scripts_find(&self, total: u64, hits: u64, frames: u64) {
        let numbers = [("TOTAL", total), ("HITS", hits), ("FRAMES", frames), ("FREQUENCY_HZ", FREQUENCY_HZ)]
            .map(|(name, number)| (name, number.to_string()));
        readers::run_script("readers/dotnet.test.mjs", self.folder.path(), &numbers);
    }

    fn assert_pprof_finds(&self, total: u64, hits: u64) {
        let Some(top) = pprof::pprof(&self.file("a.pb.gz"), &["-top", "-sample_index=samples"]) else {
            return;
        };
        assert!(top.contains(&format!("Total samples = {total} \n")), "{top}");
        assert!(top.starts_with("File: dotnet\n"), "{top}");
        let found = pprof::functions(&top).into_iter().find(|(_, _, name)| name == METHOD);
        assert_eq!(found.map(|(_, cumulative, _)| cumulative), Some(hits.to_string()), "{top}");
    }

    fn assert_flame_graph_finds(&self, stacks: &FoldedStacks) {
        let Some(collapsed) = flame_graph::script("stackcollapse-perf.pl", &self.file("a.perf.txt")) else {
            return;
        };
        let as_collapsed = |name: &String| {
            let method = name.split_once('!').map_or(&**name, |(_, method)| method);
            let name = method.split('(').next().unwrap_or_default().replace(['"', '\''], "");
            if name.starts_with('[') { name.replacen("+0x", "@0x", 1) } else { name }
        };
        let expected = counts(stacks, as_collapsed, 1_000_000_000 / FREQUENCY_HZ);
        assert_eq!(counts(&FoldedStacks::parse(&collapsed), String::clone, 1), expected);

        let picture = flame_graph::script("flamegraph.pl", &self.file("a.folded")).unwrap();
        let of_method = |boxes: &(&str, u64)| boxes.0 == METHOD;
        let frames: u64 =
            flame_graph::boxes(&picture).into_iter().filter(of_method).map(|(_, count)| count).sum();
        assert_eq!(frames, method_frames(stacks));
    }

    fn assert_archive_holds_the_text_and_the_maps(&self) {
        let unzipped = |file: &str| {
            readers::printed_by(Command::new("unzip").arg("-p").arg(self.file("a.trace.zip")).arg(file))
        };
        assert_eq!(unzipped("*.data.txt"), fs::read_to_string(self.file("a.perf.txt")).unwrap());
        let map = unzipped(&format!("*/perf-{}.map", self.pid));
        let (assembly, method) = METHOD.split_once('!').unwrap();
        assert!(map.lines().any(|line| line.ends_with(&format!(" [{assembly}] {method}"))), "{map}");
        let images = unzipped(&format!("*/perfinfo-{}.map", self.pid));
        assert!(
            images.lines().all(|line| line.starts_with("ImageLoad;/") && line.ends_with(".dll;;")),
            "{images}"
        );
        assert!(unzipped("*/perfcollect.log").starts_with("Sampling started at 2"));
    }

    fn assert_reports_are_the_same(&self) {
        for file in FILES {
            let again = self.file(&file.replacen('a', "again", 1));
            readers::printed_by(
                profiler(&["report", "-q"]).arg(self.file("a.profile")).arg("-o").arg(&again),
            );
            assert!(fs::read(self.file(file)).unwrap() == fs::read(&again).unwrap(), "{file}");
        }
    }

    fn assert_top_shows(&self, total: u64, hits: u64) {
        let top = readers::printed_by(profiler(&["top"]).arg(self.file("a.profile")));
        let row = format!(" {:.2} %  {METHOD}", 100.0 * hits as f64 / total as f64);
        assert!(top.lines().any(|line| line.ends_with(&row)), "{row}:\n{top}");
    }
}

/// Number of frames of the method in all samples. On-stack replacement of the method shows it twice in a stack.
fn method_frames(stacks: &FoldedStacks) -> u64 {
    let frames = |stack: &FoldedStack| stack.frames.iter().filter(|frame| *frame == METHOD).count() as u64;
    stacks.0.iter().map(|stack| stack.count * frames(stack)).sum()
}

/// The count of each stack, without the name of its thread or process.
fn counts(
    stacks: &FoldedStacks,
    name: impl Fn(&String) -> String,
    weight: u64,
) -> BTreeMap<Vec<String>, u64> {
    let mut counts = BTreeMap::new();
    for FoldedStack { frames, count, .. } in &stacks.0 {
        *counts.entry(frames.iter().map(&name).collect()).or_default() += count * weight;
    }
    counts
}
