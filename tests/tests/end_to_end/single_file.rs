//! Tests single-file .NET programs: symbols of managed methods, including those of the embedded framework.

use std::process::Command;

use profiler::{
    Profile,
    profile::{Frame, FrameKind, SymbolSource, Symbolization},
};
use profiler_tests::{
    FoldedStacks, Workload, run_beside_others, sample, sample_pid, sample_settled, workload_path,
};

const CORE_LIBRARY: &str = "System.Private.CoreLib";

fn start(program: &str, mode: &str) -> Workload {
    Workload::run(Command::new(workload_path("dotnet").join(program)).args([mode, "600"]))
}

fn precompiled(profile: &Profile) -> Vec<&Frame> {
    let stacks = profile.samples().iter().map(|sample| profile.stack(sample.stack));
    let frames = stacks.flat_map(|stack| &stack.frames).map(|frame| profile.frame(*frame));
    frames.filter(|frame| frame.kind == FrameKind::Precompiled).collect()
}

/// Checks that every precompiled frame has its symbol from this source, and that some are thread entry points of the
/// framework.
fn assert_named(profile: &Profile, source: SymbolSource) {
    let precompiled = precompiled(profile);
    assert!(precompiled.len() > 3_000, "{}", precompiled.len());
    for frame in precompiled {
        assert_eq!(frame.symbolization, Symbolization::Symbol(source), "{}", profile.string(frame.name));
    }
    let stacks = FoldedStacks::from_profile(profile);
    let threads = format!("{CORE_LIBRARY}!System.Threading.");
    let has_thread = stacks.percent(|stack| stack.frames.iter().any(|frame| frame.starts_with(&threads)));
    assert!(has_thread > 10.0, "{stacks:#?}");
}

#[test]
fn precompiled_methods_are_symbolized_from_the_single_file_program() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = start("single-file", "web");
    let profile = sample(sample_pid(workload.pid()), 3_000);
    assert_named(&profile, SymbolSource::ReadyToRun);
    let paths = precompiled(&profile).into_iter().filter_map(|frame| frame.module);
    let paths: Vec<_> = paths.map(|module| profile.string(profile.module(module).path)).collect();
    let library = format!("/dotnet/single-file/{CORE_LIBRARY}.dll");
    assert!(paths.iter().any(|path| path.ends_with(&library)), "{paths:?}");
}

#[test]
fn precompiled_methods_that_are_decompressed_into_memory_are_symbolized_by_runtime_events() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = start("single-file-compressed", "web");
    assert_named(&sample(sample_pid(workload.pid()), 3_000), SymbolSource::RuntimeEvents);
}

#[test]
fn methods_of_a_single_file_program_have_symbols_and_callers() {
    let Some(_lock) = run_beside_others() else { return };
    const CHAIN: [&str; 3] =
        ["app!Workload.Cpu.Outer()", "app!Workload.Cpu.Middle()", "app!Workload.Cpu.Alpha()"];
    for program in ["single-file", "single-file-compressed"] {
        let workload = start(program, "cpu");
        let stacks = FoldedStacks::from_profile(&sample_settled(sample_pid(workload.pid()), 3_000));
        assert!(stacks.percent(|stack| stack.has_chain(&CHAIN)) > 45.0, "{program}: {stacks:#?}");
    }
}
