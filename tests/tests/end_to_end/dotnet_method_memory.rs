//! Tests the names of .NET methods that are read from the memory of the process, without a diagnostics socket.

use std::{collections::BTreeSet, path::Path, process::Command};

use profiler::{
    Builder, DotnetNames, EventSet, Profile,
    profile::{EventSessionCause, Frame, FrameKind, Reason, Stack, SymbolSource, Symbolization},
};
use profiler_tests::{
    FoldedStacks, Workload, run_beside_others, sample, sample_pid, sample_settled, workload_path,
};

const CHAIN: [&str; 3] =
    ["app!Workload.Cpu.Outer()", "app!Workload.Cpu.Middle()", "app!Workload.Cpu.Alpha()"];

const SAMPLES: u64 = 1_500;

/// A program whose runtime has no diagnostics socket and writes no perf map.
pub(crate) fn without_diagnostics(program: &str, mode: &str) -> Workload {
    Workload::run(&mut dotnet_without_diagnostics(program, mode))
}

/// The command that starts it.
pub(crate) fn dotnet_without_diagnostics(program: &str, mode: &str) -> Command {
    let mut command = match program.starts_with("single-file") {
        true => Command::new(workload_path("dotnet").join(program)),
        false => Workload::dotnet_command(program, mode),
    };
    if program.starts_with("single-file") {
        command.args([mode, "600"]);
    }
    command.env("PERF_MAP", "0").env("DOTNET_EnableDiagnostics", "0");
    command
}

/// The names of JIT frames, each as often as it was sampled, and the number of those without a name.
fn jit_names(profile: &Profile) -> (Vec<String>, usize) {
    let stacks = profile.samples().iter().map(|sample| profile.stack(sample.stack));
    names(profile, stacks.flat_map(|stack| jit_frames(profile, stack)))
}

/// The same of the innermost JIT frame of each sample, which does not depend on the rules by which callers are found.
fn innermost_jit_names(profile: &Profile) -> (Vec<String>, usize) {
    let stacks = profile.samples().iter().map(|sample| profile.stack(sample.stack));
    names(profile, stacks.filter_map(|stack| jit_frames(profile, stack).next()))
}

fn jit_frames<'a>(profile: &'a Profile, stack: &'a Stack) -> impl Iterator<Item = &'a Frame> {
    stack.frames.iter().map(|frame| profile.frame(*frame)).filter(|frame| frame.kind == FrameKind::Jit)
}

fn names<'a>(profile: &Profile, frames: impl Iterator<Item = &'a Frame>) -> (Vec<String>, usize) {
    let (named, unnamed): (Vec<_>, Vec<_>) =
        frames.partition(|frame| matches!(frame.symbolization, Symbolization::Symbol(_)));
    let mut names: Vec<_> = named.iter().map(|frame| profile.string(frame.name).to_owned()).collect();
    names.sort_unstable();
    (names, unnamed.len())
}

/// The names that were sampled so often.
fn sampled(names: &[String], least: usize) -> BTreeSet<&str> {
    let chunks = names.chunk_by(|one, other| one == other);
    chunks.filter(|chunk| chunk.len() >= least).map(|chunk| &*chunk[0]).collect()
}

fn assert_from_memory(what: &str, profile: &Profile) {
    let ledger = profile.first_ledger();
    assert!(ledger.adds_up() && ledger.lost_total() == 0, "{what}: {ledger:?}");
    assert!(ledger.symbolized.contains_key(&SymbolSource::RuntimeMemory), "{what}: {ledger:?}");
    for other in [SymbolSource::RuntimeEvents, SymbolSource::PerfMap] {
        assert!(!ledger.symbolized.contains_key(&other), "{what}: {ledger:?}");
    }
    assert!(profile.ledger().event_sessions.is_empty(), "{what}: {:?}", profile.ledger());
}

#[test]
fn methods_have_the_names_of_their_events_without_diagnostics() {
    let Some(_lock) = run_beside_others() else { return };
    // Which other methods are sampled is chance.
    const HOT: usize = 200;
    for mode in ["cpu", "generic"] {
        let told = Workload::run(Workload::dotnet_command("9.0", mode).env("PERF_MAP", "0"));
        let builder = sample_pid(told.pid()).dotnet_names(DotnetNames::Events);
        let from_events = innermost_jit_names(&sample(builder, SAMPLES));
        let silent = without_diagnostics("9.0", mode);
        let profile = sample(sample_pid(silent.pid()), SAMPLES);
        assert_from_memory(mode, &profile);
        let from_memory = innermost_jit_names(&profile);
        assert!(from_memory.1 * 100 <= from_memory.0.len(), "{mode}: {:?}", profile.first_ledger());
        for (one, other) in [(&from_events.0, &from_memory.0), (&from_memory.0, &from_events.0)] {
            let missing: Vec<_> = sampled(one, HOT).difference(&sampled(other, 1)).copied().collect();
            assert!(missing.is_empty(), "{mode}: {missing:?}");
        }
    }
}

#[test]
fn methods_have_names_and_callers_without_diagnostics() {
    let Some(_lock) = run_beside_others() else { return };
    for program in ["9.0", "single-file-10.0"] {
        let workload = without_diagnostics(program, "cpu");
        let profile = sample_settled(sample_pid(workload.pid()), SAMPLES);
        assert_from_memory(program, &profile);
        let stacks = FoldedStacks::from_profile(&profile);
        assert!(stacks.percent(|stack| stack.has_chain(&CHAIN)) > 45.0, "{program}: {stacks:#?}");
    }
}

#[test]
fn a_runtime_is_not_contacted_for_names_from_its_memory() {
    let Some(_lock) = run_beside_others() else { return };
    for source in [DotnetNames::Memory, DotnetNames::Auto] {
        let workload = Workload::run(Workload::dotnet_command("9.0", "cpu").env("PERF_MAP", "0"));
        let before = workload.sockets();
        let mut session = sample_pid(workload.pid()).dotnet_names(source).build().unwrap().start().unwrap();
        profiler_tests::wait_for_samples(&mut session, SAMPLES);
        assert_eq!(workload.sockets(), before, "{source:?}");
        let profile = session.stop().unwrap();
        assert_from_memory(&format!("{source:?}"), &profile);
        let stacks = FoldedStacks::from_profile(&profile);
        assert!(stacks.percent(|stack| stack.has_chain(&CHAIN)) > 45.0, "{source:?}: {stacks:#?}");
        assert!(!Path::new(&format!("/tmp/perf-{}.map", workload.pid())).exists());
    }
}

#[test]
fn a_runtime_is_contacted_for_what_its_memory_lacks() {
    type Change<'a> = &'a dyn Fn(Builder) -> Builder;
    let Some(_lock) = run_beside_others() else { return };
    // It does not describe its memory, events are requested, or tiers.
    let with_events = |builder: Builder| builder.runtime_events([EventSet::Collections]);
    let with_tiers = |builder: Builder| builder.dotnet_tiers(true);
    let cases: [(&str, EventSessionCause, Change<'_>); 3] = [
        ("8.0", EventSessionCause::NotDescribed, &|builder| builder),
        ("9.0", EventSessionCause::Requested, &with_events),
        ("9.0", EventSessionCause::Requested, &with_tiers),
    ];
    for (version, cause, change) in cases {
        let workload = Workload::run(Workload::dotnet_command(version, "cpu").env("PERF_MAP", "0"));
        let profile = sample(change(sample_pid(workload.pid())), SAMPLES);
        let ledger = profile.first_ledger();
        assert!(ledger.symbolized.contains_key(&SymbolSource::RuntimeEvents), "{version}: {ledger:?}");
        assert_eq!(profile.ledger().event_sessions, [(cause, 1)].into(), "{version}");
        let (named, unnamed) = jit_names(&profile);
        assert!(unnamed * 100 <= named.len(), "{version}: {ledger:?}");
    }
}

#[test]
fn methods_that_the_runtime_frees_have_a_reason_without_diagnostics() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = without_diagnostics("9.0", "dynamic");
    let profile = sample_settled(sample_pid(workload.pid()), SAMPLES);
    assert_from_memory("dynamic", &profile);
    let ledger = profile.first_ledger();
    let count = |reason| {
        let frames = ledger.unsymbolized.iter().filter(|(frames, _)| frames.reason == reason);
        frames.map(|(_, count)| count).sum::<u64>()
    };
    // Some memory that the runtime has unmapped meanwhile is not known as its own.
    let (freed, unknown) = (count(Reason::JitCodeUnloaded), count(Reason::NoDotnetMap));
    assert!(freed > 100 && 20 * unknown < freed, "{freed} {unknown} {ledger:?}");
}
