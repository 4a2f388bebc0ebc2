//! Tests .NET method names in the syntax of C#, and in that of the runtime with the option for it.

use std::collections::BTreeSet;

use profiler::{
    Builder, Format, OutputOptions, Profile, WriteFormat as _,
    profile::{FrameKind, Symbolization},
};
use profiler_tests::{FoldedStacks, Workload, run_beside_others, sample, sample_pid};

const VERSIONS: [&str; 2] = ["3.1", "9.0"];

/// The distinct names of managed frames.
fn names(version: &str, mode: &str, diagnostics: bool, set: impl Fn(Builder) -> Builder) -> BTreeSet<String> {
    let mut command = Workload::dotnet_command(version, mode);
    match diagnostics {
        true => command.env("PERF_MAP", "0"),
        false => command.env("COMPlus_EnableDiagnostics", "0"),
    };
    let workload = Workload::run(&mut command);
    managed(&sample(set(sample_pid(workload.pid())), 4_000))
}

fn managed(profile: &Profile) -> BTreeSet<String> {
    let stacks = profile.samples().iter().map(|sample| profile.stack(sample.stack));
    let frames = stacks.flat_map(|stack| &stack.frames).map(|frame| profile.frame(*frame));
    let managed = frames.filter(|frame| {
        matches!(frame.kind, FrameKind::Jit | FrameKind::Precompiled)
            && matches!(frame.symbolization, Symbolization::Symbol(_))
    });
    managed.map(|frame| profile.string(frame.name).to_owned()).collect()
}

#[test]
fn async_methods_are_named_as_in_their_source_from_every_symbol_source() {
    let Some(_lock) = run_beside_others() else { return };
    for version in VERSIONS {
        for diagnostics in [true, false] {
            let names = names(version, "web", diagnostics, |builder| builder);
            for method in
                ["app!Workload.Web.Serve", "app!Workload.Web.Ask", "app!Workload.Web.Render(string)"]
            {
                assert!(names.contains(method), "{version} {diagnostics} {method}: {names:#?}");
            }
            for raw in ["`", "c__async", ">d__", "+", "class ", "unsigned ", "System.Int32", "!!", "!0"] {
                let left: Vec<_> = names.iter().filter(|name| name.contains(raw)).collect();
                assert!(left.is_empty(), "{version} {diagnostics} {raw}: {left:#?}");
            }
        }
    }
}

#[test]
fn raw_method_names_of_the_runtime_are_available_as_an_option() {
    let Some(_lock) = run_beside_others() else { return };
    for version in VERSIONS {
        let names = names(version, "web", true, |builder| builder.raw_names(true));
        for beginning in ["app!Workload.Web+<Serve>c__async", "app!Workload.Web.Render(class System.String)"]
        {
            assert!(
                names.iter().any(|name| name.starts_with(beginning)),
                "{version} {beginning}: {names:#?}"
            );
        }
    }
}

#[test]
fn method_names_have_their_tier_when_enabled() {
    let Some(_lock) = run_beside_others() else { return };
    for version in VERSIONS {
        for diagnostics in [true, false] {
            let names = names(version, "web", diagnostics, |builder| builder.dotnet_tiers(true));
            let methods: Vec<_> =
                names.iter().filter(|name| name.contains("!System.") && !name.contains("stub")).collect();
            let tier = |name: &str| name.rsplit_once('[').map(|(_, tier)| tier.to_owned());
            let tiers: BTreeSet<_> = methods.iter().filter_map(|name| tier(name)).collect();
            assert!(methods.iter().all(|name| name.ends_with(']')), "{version} {diagnostics}: {methods:#?}");
            assert!(tiers.contains("PreJIT]") && tiers.len() > 1, "{version} {diagnostics}: {tiers:?}");
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
    profile.write_with(Format::Folded, &options, &mut folded).unwrap();
    let stacks = FoldedStacks::parse(&String::from_utf8(folded).unwrap());
    assert!(stacks.count(|stack| stack.frames[0].ends_with(" (.NET TP Worker)")) > 100, "{stacks:#?}");
}
