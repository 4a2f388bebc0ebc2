//! Tests names of native functions of stripped .NET runtimes, in programs that spend their time in one service of the
//! runtime each.

use std::{collections::BTreeMap, process::Command};

use profiler::{
    Profile,
    profile::{Frame, FrameKind, Reason, SymbolSource, Symbolization},
};
use profiler_tests::{Workload, sample_pid, sample_settled, share_privileged, workload_path};

const SAMPLES: u64 = 2_000;

/// The modes of the workload, a function of the runtime in which each spends its time, and the least share of the functions
/// with a name among those of the runtime that managed code calls.
const SERVICES: [(&str, &str, f64); 8] = [
    ("spin", "ThreadNative_SpinWait", 97.0),
    ("sleep", "ThreadNative_YieldThread", 97.0),
    ("lock", "Monitor_Wait", 97.0),
    ("collect", "GCInterface_Collect", 97.0),
    ("alloc", "READYTORUN_HELPER_NewArray", 97.0),
    ("exceptions", "SfiNext", 97.0),
    ("dynamic", "ThePreStub", 97.0),
    // Functions that create instances without a constructor call are in no table.
    ("reflection", "CustomAttribute_CreateCustomAttributeInstance", 90.0),
];

/// Starts a workload. Code that counts for later optimization would call counters, which no table has.
fn start(program: &str, mode: &str) -> Workload {
    let mut command = match program {
        "9.0" => Workload::dotnet_command(program, mode),
        _ => Command::new(workload_path("dotnet").join(program)),
    };
    if program != "9.0" {
        command.args([mode, "60"]);
    }
    Workload::run(command.env("PERF_MAP", "0").env("DOTNET_TieredPGO", "0"))
}

fn is_managed(frame: &Frame) -> bool {
    matches!(frame.kind, FrameKind::Jit | FrameKind::Precompiled)
}

fn is_of_runtime(profile: &Profile, frame: &Frame) -> bool {
    let path = frame.module.map(|module| profile.string(profile.module(module).path));
    path.is_some_and(|path| ["/libcoreclr.so", "/single-file"].iter().any(|file| path.ends_with(file)))
}

/// The functions of the runtime that managed code calls, with the number of their samples and the source of their names.
fn called_functions(profile: &Profile) -> BTreeMap<(String, Option<SymbolSource>), usize> {
    let mut functions = BTreeMap::new();
    for sample in profile.samples() {
        let frames: Vec<_> =
            profile.stack(sample.stack).frames.iter().map(|frame| profile.frame(*frame)).collect();
        let managed = frames.iter().position(|frame| is_managed(frame));
        let Some(called) = managed.and_then(|managed| frames.get(managed.checked_sub(1)?)) else { continue };
        if is_of_runtime(profile, called) {
            let source = match called.symbolization {
                Symbolization::Symbol(source) => Some(source),
                Symbolization::Address(_) => None,
            };
            *functions.entry((profile.string(called.name).to_owned(), source)).or_default() += 1;
        }
    }
    functions
}

fn assert_named(program: &str, mode: &str, function: &str, least_percent: f64) {
    let profile = sample_settled(sample_pid(start(program, mode).pid()), SAMPLES);
    let functions = called_functions(&profile);
    let count = |is_counted: &dyn Fn(&str, Option<SymbolSource>) -> bool| {
        let counted = functions.iter().filter(|((name, source), _)| is_counted(name, *source));
        counted.map(|(_, count)| count).sum::<usize>()
    };
    let (all, named) = (count(&|_, _| true), count(&|_, source| source.is_some()));
    assert!(all > 100, "{program} {mode}: {functions:#?}");
    let percent = 100.0 * named as f64 / all as f64;
    assert!(percent >= least_percent, "{program} {mode}: {percent} % have names: {functions:#?}");
    assert!(count(&|name, _| name.starts_with(function)) > 0, "{program} {mode}: {functions:#?}");
    let ledger = profile.first_ledger();
    assert!(ledger.adds_up(), "{program} {mode}: {ledger:?}");
    let sources = [SymbolSource::RuntimeCallTable, SymbolSource::RuntimeHelper];
    let is_counted = sources.iter().any(|source| ledger.symbolized.contains_key(source));
    assert!(is_counted, "{program} {mode}: {ledger:?}");
}

#[test]
fn functions_of_a_stripped_runtime_that_managed_code_calls_have_names() {
    let Some(_lock) = share_privileged() else { return };
    for (mode, function, least_percent) in SERVICES {
        assert_named("9.0", mode, function, least_percent);
    }
}

#[test]
fn functions_of_a_single_file_program_that_managed_code_calls_have_names() {
    let Some(_lock) = share_privileged() else { return };
    for (mode, function, least_percent) in SERVICES {
        assert_named("single-file", mode, function, least_percent);
    }
}

#[test]
fn stubs_have_the_names_of_their_kinds() {
    let Some(_lock) = share_privileged() else { return };
    for mode in ["dynamic", "generic"] {
        let profile = sample_settled(sample_pid(start("9.0", mode).pid()), SAMPLES);
        let stacks = profile.samples().iter().map(|sample| profile.stack(sample.stack));
        let frames = stacks.flat_map(|stack| &stack.frames).map(|frame| profile.frame(*frame));
        let (mut kinds, mut unknown) = (BTreeMap::<&str, usize>::new(), 0);
        for frame in frames {
            match frame.symbolization {
                Symbolization::Symbol(SymbolSource::StubCode) => {
                    *kinds.entry(profile.string(frame.name)).or_default() += 1;
                }
                Symbolization::Address(Reason::RuntimeStub) => unknown += 1,
                _ => {}
            }
        }
        let known: usize = kinds.values().sum();
        assert!(
            known > 20 && unknown * 20 <= known,
            "{mode}: {unknown} of {} unknown, {kinds:?}",
            known + unknown
        );
        assert!(kinds.keys().all(|name| name.starts_with("[stub ")), "{mode}: {kinds:?}");
    }
}
