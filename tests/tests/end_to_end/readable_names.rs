//! Tests .NET method names in the syntax of C#, and in that of the runtime with the option for it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use profiler::{
    Builder, Format, OutputOptions, Profile,
    profile::{FrameKind, SymbolSource, Symbolization},
};
use profiler_tests::{
    DEADLINE, FoldedStacks, Workload, run_beside_others, sample, sample_pid, wait_for_samples,
};

const VERSIONS: [&str; 2] = ["3.1", "9.0"];

/// The distinct names of managed frames, with the source of each.
type Names = BTreeMap<String, SymbolSource>;

/// Samples until the names of managed frames are complete, and returns them.
fn names(
    version: &str,
    mode: &str,
    diagnostics: bool,
    set: impl Fn(Builder) -> Builder,
    are_complete: impl Fn(&Names) -> bool,
) -> Names {
    let mut command = Workload::dotnet_command(version, mode);
    match diagnostics {
        true => command.env("PERF_MAP", "0"),
        false => command.env("COMPlus_EnableDiagnostics", "0"),
    };
    let workload = Workload::run(&mut command);
    let mut session = set(sample_pid(workload.pid())).build().unwrap().start().unwrap();
    let mut names = Names::new();
    // A method that takes little of the time has few samples.
    let deadline = Instant::now() + DEADLINE;
    loop {
        wait_for_samples(&mut session, 1_000);
        names.extend(managed(&session.take_profile(Duration::ZERO).unwrap()));
        if are_complete(&names) {
            return names;
        }
        assert!(Instant::now() < deadline, "{version} {diagnostics}: {names:#?}");
    }
}

fn managed(profile: &Profile) -> Names {
    let stacks = profile.samples().iter().map(|sample| profile.stack(sample.stack));
    let frames = stacks.flat_map(|stack| &stack.frames).map(|frame| profile.frame(*frame));
    let managed = frames.filter(|frame| matches!(frame.kind, FrameKind::Jit | FrameKind::Precompiled));
    let named = managed.filter_map(|frame| match frame.symbolization {
        Symbolization::Symbol(source) => Some((profile.string(frame.name).to_owned(), source)),
        _ => None,
    });
    named.collect()
}

#[test]
fn async_methods_are_named_as_in_their_source_from_every_symbol_source() {
    let Some(_lock) = run_beside_others() else { return };
    for version in VERSIONS {
        for diagnostics in [true, false] {
            let methods =
                ["app!Workload.Web.Serve", "app!Workload.Web.Ask", "app!Workload.Web.Render(string)"];
            let has_all = |names: &Names| methods.iter().all(|method| names.contains_key(*method));
            let names = names(version, "web", diagnostics, |builder| builder, has_all);
            for raw in ["`", "c__async", ">d__", "+", "class ", "unsigned ", "System.Int32", "!!", "!0"] {
                let left: Vec<_> = names.keys().filter(|name| name.contains(raw)).collect();
                assert!(left.is_empty(), "{version} {diagnostics} {raw}: {left:#?}");
            }
        }
    }
}

#[test]
fn raw_method_names_of_the_runtime_are_available_as_an_option() {
    let Some(_lock) = run_beside_others() else { return };
    for version in VERSIONS {
        let beginnings = ["app!Workload.Web+<Serve>c__async", "app!Workload.Web.Render(class System.String)"];
        let has_all = |names: &Names| {
            beginnings.iter().all(|beginning| names.keys().any(|name| name.starts_with(beginning)))
        };
        names(version, "web", true, |builder| builder.raw_names(true), has_all);
    }
}

#[test]
fn method_names_have_their_tier_when_enabled() {
    let Some(_lock) = run_beside_others() else { return };
    for version in VERSIONS {
        for diagnostics in [true, false] {
            // Those that the runtime reports.
            let methods = |names: &Names| -> Vec<String> {
                let of_events = names.iter().filter(|(_, source)| **source != SymbolSource::RuntimeMemory);
                let is_method = |name: &&String| name.contains("!System.") && !name.contains("stub");
                of_events.map(|(name, _)| name).filter(is_method).cloned().collect()
            };
            let has_tiers = |names: &Names| {
                let methods = methods(names);
                let tiers: BTreeSet<_> = methods.iter().filter_map(|name| name.rsplit_once('[')).collect();
                let tiers: BTreeSet<_> = tiers.into_iter().map(|(_, tier)| tier).collect();
                tiers.contains("PreJIT]") && tiers.len() > 1
            };
            let names = names(version, "web", diagnostics, |builder| builder.dotnet_tiers(true), has_tiers);
            let mut without_tier = methods(&names);
            without_tier.retain(|name| !name.ends_with(']'));
            assert!(without_tier.is_empty(), "{version} {diagnostics}: {without_tier:#?}");
            // The runtime does not report what it compiled while the EventPipe session began.
            let of_memory: Vec<_> =
                names.iter().filter(|(_, source)| **source == SymbolSource::RuntimeMemory).collect();
            assert!(of_memory.len() < names.len() / 20, "{version} {diagnostics}: {of_memory:#?}");
        }
    }
}

#[test]
fn threads_of_the_runtime_have_their_names() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::run(Workload::dotnet_command("9.0", "web").env("PERF_MAP", "0"));
    let profile = sample(sample_pid(workload.pid()), 2_000);
    let mut folded = Vec::new();
    let options = OutputOptions { per_thread: true, ..OutputOptions::default() };
    Format::Folded.write_with(&profile, &options, &mut folded).unwrap();
    let stacks = FoldedStacks::parse(&String::from_utf8(folded).unwrap());
    assert!(stacks.count(|stack| stack.frames[0].ends_with(" (.NET TP Worker)")) > 100, "{stacks:#?}");
}
