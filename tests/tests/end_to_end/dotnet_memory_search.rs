//! Measures what it costs to search the memory of a .NET process for names of native functions.

use std::{
    fs::{self, File},
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use profiler_binary_reader::Image;
use profiler_dotnet_symbols::readytorun::{AssemblyLocation, ReadyToRunModule};
use profiler_tests::{Workload, measure_alone, profiler, run_command, workload_path};

/// Of each program, at most: other processes of the machine can only add to the time of a search.
const PROCESSES: usize = 10;
/// The most time, in times of [`core_library_time`], which is about a millisecond in a debug build.
const MAX_RATIO: f64 = 25.0;
const MAX_BYTES: u64 = 2 << 20;

/// The time in which this process, which is built as the profiler is, reads the cells of the core library of .NET 9, which
/// every search reads. The least of several.
pub(crate) fn core_library_time() -> Duration {
    const TIMES: usize = 5;
    let versions = workload_path("dotnet/9.0/shared/Microsoft.NETCore.App");
    let version = fs::read_dir(versions).unwrap().next().unwrap().unwrap();
    let path = version.path().join("System.Private.CoreLib.dll");
    let times = (0..TIMES).map(|_| {
        let begin = Instant::now();
        let image = Image::from_file(File::open(&path).unwrap()).unwrap();
        let location = AssemblyLocation::from_image_path(&path);
        let cells =
            ReadyToRunModule::open(image, location, &Arc::default()).unwrap().runtime_cells().unwrap();
        assert!(!cells.helpers.is_empty());
        begin.elapsed()
    });
    times.min().unwrap()
}

fn start(program: &str) -> Workload {
    const MODE: &str = "alloc";
    if program.starts_with("single-file") {
        return Workload::run(Command::new(workload_path("dotnet").join(program)).args([MODE, "600"]));
    }
    Workload::run(Workload::dotnet_command(program, MODE).env("PERF_MAP", "0"))
}

/// The time of the first searches for helpers, helpers of JIT code and allocators together, and what all of them keep.
fn cost(program: &str) -> (u64, u64) {
    let workload = start(program);
    let pid = workload.pid().to_string();
    let arguments = ["-vv", "-F", "199", "-d", "1", "-p", &pid, "-o", "-.folded"];
    let outcome = run_command(profiler(&arguments).stdin(Stdio::null()));
    let searches: Vec<_> = outcome.stderr.lines().filter_map(search).collect();
    let first = |what: &str| searches.iter().find(|(searched, ..)| *searched == what);
    let [Some((_, helpers_us, _)), Some((_, jit_helpers_us, _)), Some((_, allocators_us, _))] =
        ["helpers", "jit-helpers", "allocators"].map(first)
    else {
        panic!("{program}: no search in {}", outcome.stderr)
    };
    let bytes = searches.iter().map(|(.., bytes)| *bytes).max().unwrap_or(0);
    (helpers_us + jit_helpers_us + allocators_us, bytes)
}

/// What was searched, microseconds, and bytes, in a line of the log.
fn search(line: &str) -> Option<(&str, u64, u64)> {
    let (_, after) = line.split_once("searched the memory of process ")?;
    let mut words = after.split(' ').skip(2);
    let what = words.next()?;
    let us = words.nth(1)?.parse().ok()?;
    let bytes = words.nth(5)?.parse().ok()?;
    Some((what, us, bytes))
}

mod measured {
    use super::*;

    #[test]
    fn the_search_of_a_runtimes_memory_takes_milliseconds() {
        let Some(_lock) = measure_alone() else { return };
        for program in ["8.0", "9.0", "single-file", "single-file-10.0"] {
            let unit = core_library_time();
            let ratio = |us: u64| Duration::from_micros(us).as_secs_f64() / unit.as_secs_f64();
            let mut costs = Vec::new();
            while costs.len() < PROCESSES && !costs.iter().any(|(us, _)| ratio(*us) <= MAX_RATIO) {
                costs.push(cost(program));
            }
            let (least_us, most_bytes) =
                (costs.iter().map(|(us, _)| *us).min(), costs.iter().map(|(_, bytes)| *bytes).max());
            let (least_us, most_bytes) = (least_us.unwrap(), most_bytes.unwrap());
            println!("{program}: {:.2} times {unit:?}, {most_bytes} bytes; {costs:?}", ratio(least_us));
            assert!(
                ratio(least_us) <= MAX_RATIO && most_bytes <= MAX_BYTES,
                "{program}: {unit:?}, {costs:?}"
            );
        }
    }
}
