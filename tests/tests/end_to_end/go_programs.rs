//! Tests a stripped Go program: its function table names its frames.

use std::{collections::HashSet, process::Command};

use profiler::profile::{Sample, StackEnd, SymbolSource, Symbolization};
use profiler_tests::{Workload, run_beside_others, sample_pid, sample_settled};

const SAMPLES: u64 = 1_000;

/// Runs the program again and again until the input is closed.
const LOOP: &str = "echo ready $$; while :; do read -r -t 0.001 line; [ $? -eq 1 ] && exit; \
                    runc --help >/dev/null </dev/null; done";

/// Debian's runc has no symbol table, and code of C besides that of Go.
#[test]
fn a_stripped_go_program_has_the_names_of_its_function_table() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::run(Command::new("bash").args(["-c", LOOP]));
    let profile = sample_settled(sample_pid(workload.pid()).children(true).lines(true), SAMPLES);
    let stacks = profile.samples().iter().map(|sample| profile.stack(sample.stack));
    let frames: HashSet<_> = stacks.flat_map(|stack| stack.frames.iter().copied()).collect();
    let frames = frames.into_iter().map(|frame| profile.frame(frame));
    let is_of_runc = |module| profile.string(profile.module(module).path).ends_with("/runc");
    let frames: Vec<_> = frames.filter(|frame| frame.module.is_some_and(is_of_runc)).collect();
    let is_named = |frame: &&&profiler::profile::Frame| {
        frame.symbolization == Symbolization::Symbol(SymbolSource::GoFunctionTable)
    };
    let named: Vec<_> = frames.iter().filter(is_named).collect();
    // The table has every function between the first and the last of Go; code of C is outside.
    let first = named.iter().map(|frame| frame.address).min().expect("functions of Go");
    let last = named.iter().map(|frame| frame.address).max().expect("functions of Go");
    let others: Vec<_> = frames.iter().filter(|frame| !is_named(frame)).collect();
    assert!(others.iter().all(|frame| frame.address < first || last < frame.address), "{others:?}");
    let names: HashSet<_> = named.iter().map(|frame| profile.string(frame.name)).collect();
    assert!(names.iter().any(|name| name.starts_with("runtime.")), "{names:?}");
    assert!(named.iter().any(|frame| frame.location.is_some()), "lines of {names:?}");
    let is_of_go = |sample: &&Sample| {
        let frames = profile.stack(sample.stack).frames.iter();
        frames.map(|frame| profile.frame(*frame)).any(|frame| frame.module.is_some_and(is_of_runc))
    };
    let (mut whole, mut all) = (0, 0);
    for sample in profile.samples().iter().filter(is_of_go) {
        all += 1;
        whole += u64::from(profile.stack(sample.stack).end == StackEnd::Root);
    }
    // The C library's code before the program starts is among the others.
    assert!(whole * 100 >= all * 97, "{whole} of {all}: {:?}", profile.first_ledger().stacks);
}
