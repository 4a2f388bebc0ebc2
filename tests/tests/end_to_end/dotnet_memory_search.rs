//! Measures what it costs to search the memory of a .NET process for names of native functions.

use std::process::{Command, Stdio};

use profiler_tests::{Workload, measure_alone, profiler, run_command, workload_path};

const PROCESSES: usize = 5;
/// The limit of an optimized profiler, and five times as much for a debug build.
const MAX_US: u64 = if cfg!(debug_assertions) { 25_000 } else { 5_000 };
const MAX_BYTES: u64 = 2 << 20;

fn start(program: &str) -> Workload {
    const MODE: &str = "alloc";
    if program.starts_with("single-file") {
        return Workload::run(Command::new(workload_path("dotnet").join(program)).args([MODE, "60"]));
    }
    Workload::run(Workload::dotnet_command(program, MODE).env("PERF_MAP", "0"))
}

/// The time of the first searches for helpers, helpers of JIT code and allocators together, and what all of them keep.
fn cost(program: &str) -> (u64, u64) {
    let workload = start(program);
    let pid = workload.pid().to_string();
    let arguments = ["-vv", "-F", "199", "-d", "2", "-p", &pid, "-o", "-.folded"];
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
    let bytes = words.nth(2)?.parse().ok()?;
    Some((what, us, bytes))
}

#[test]
fn the_search_of_a_runtimes_memory_takes_milliseconds() {
    let Some(_lock) = measure_alone() else { return };
    for program in ["8.0", "9.0", "single-file", "single-file-10.0"] {
        let costs: Vec<_> = (0..PROCESSES).map(|_| cost(program)).collect();
        // Other processes of the machine can only add to the time.
        let least_us = costs.iter().map(|(us, _)| *us).min().unwrap();
        let most_bytes = costs.iter().map(|(_, bytes)| *bytes).max().unwrap();
        println!("{program}: {least_us} us, {most_bytes} bytes; {costs:?}");
        assert!(least_us <= MAX_US && most_bytes <= MAX_BYTES, "{program}: {costs:?}");
    }
}
