//! Tests .NET with perf maps enabled and diagnostics disabled: managed, native runtime and kernel frames.

use std::{path::Path, process::Command, time::Duration};

use profiler::{
    Profile,
    profile::{Frame, FrameKind, SymbolSource, Symbolization},
};
use profiler_tests::{
    CPU_SHARES, FoldedStacks, Workload, await_optimized, run_beside_others, sample, sample_pid,
    wait_for_samples, wait_until,
};

const VERSIONS: [&str; 2] = ["3.1", "9.0"];
const ALPHA: &str = "app!Workload.Cpu.Alpha()";

/// With the diagnostics disabled, the perf map is the only source of symbols.
fn command(version: &str) -> Command {
    let mut command = Workload::dotnet_command(version, "cpu");
    command.env("COMPlus_EnableDiagnostics", "0");
    command
}

fn start(version: &str) -> Workload {
    let workload = Workload::run(&mut command(version));
    await_optimized(Path::new(&format!("/tmp/perf-{}.map", workload.pid())));
    workload
}

fn named_percent_of_jit(profile: &Profile) -> f64 {
    let stacks = profile.samples().iter().map(|sample| profile.stack(sample.stack));
    let frames = stacks.flat_map(|stack| &stack.frames).map(|frame| profile.frame(*frame));
    let (mut named, mut all) = (0, 0);
    for frame in frames.filter(|frame| frame.kind == FrameKind::Jit) {
        all += 1;
        named += u64::from(matches!(frame.symbolization, Symbolization::Symbol(_)));
    }
    100.0 * named as f64 / f64::from(all)
}

#[test]
fn managed_methods_have_symbols_shares_and_callers() {
    let Some(_lock) = run_beside_others() else { return };
    for version in VERSIONS {
        let profile = sample(sample_pid(start(version).pid()), 4_000);
        let ledger = profile.first_ledger();
        assert!(ledger.adds_up() && ledger.lost_total() == 0, "{version}: {ledger:?}");
        let stacks = FoldedStacks::from_profile(&profile);
        stacks.assert_shares(&CPU_SHARES);
        let chain = ["app!Workload.Cpu.Outer()", "app!Workload.Cpu.Middle()", ALPHA];
        assert!(stacks.percent(|stack| stack.has_chain(&chain)) > 50.0, "{version}: {stacks:#?}");
        let named = named_percent_of_jit(&profile);
        assert!(named >= 99.0, "{version}: {named} % named, {:?}", ledger.unsymbolized);
        assert!(ledger.symbolized.contains_key(&SymbolSource::PerfMap));
    }
}

#[test]
fn stacks_have_managed_native_and_kernel_frames() {
    let Some(_lock) = run_beside_others() else { return };
    for version in VERSIONS {
        // The runtime itself collects garbage and compiles methods.
        let workload = Workload::dotnet(version, "dynamic");
        let profile = sample(sample_pid(workload.pid()), 2_000);
        assert!(profile.ledger().adds_up());
        let stacks = FoldedStacks::from_profile(&profile);
        let has = |part: &str| stacks.percent(|stack| stack.frames.iter().any(|frame| frame.contains(part)));
        assert!(has("app!Workload.Dynamic.MakeAndUse(int)") > 5.0, "{version}: {stacks:#?}");
        let kinds = |wanted| {
            let stacks = profile.samples().iter().map(|sample| profile.stack(sample.stack));
            stacks
                .flat_map(|stack| &stack.frames)
                .filter(|frame| profile.frame(**frame).kind == wanted)
                .count()
        };
        assert!(kinds(FrameKind::Kernel) > 0);
        let modules = |name: &str| {
            let stacks = profile.samples().iter().map(|sample| profile.stack(sample.stack));
            let frames = stacks.flat_map(|stack| &stack.frames).map(|frame| profile.frame(*frame));
            frames
                .filter_map(|frame| frame.module)
                .filter(|module| profile.string(profile.module(*module).path).ends_with(name))
                .count()
        };
        assert!(modules("/libcoreclr.so") > 100, "{version}: {}", modules("/libcoreclr.so"));
        assert!(modules("/libclrjit.so") > 100, "{version}: {}", modules("/libclrjit.so"));
    }
}

fn precompiled_frames(profile: &Profile) -> Vec<&Frame> {
    let stacks = profile.samples().iter().map(|sample| profile.stack(sample.stack));
    let frames = stacks.flat_map(|stack| &stack.frames).map(|frame| profile.frame(*frame));
    frames.filter(|frame| frame.kind == FrameKind::Precompiled).collect()
}

#[test]
fn precompiled_methods_of_the_framework_are_symbolized_without_a_perf_map() {
    let Some(_lock) = run_beside_others() else { return };
    for version in VERSIONS {
        // With tiers, the runtime compiles these methods again after some calls: on a busy machine few would be left.
        let mut command = Workload::dotnet_command(version, "web");
        command.env("PERF_MAP", "0").env("COMPlus_TieredCompilation", "0");
        let workload = Workload::run(&mut command);
        // In its first seconds, a runtime loads assemblies and compiles methods.
        let mut session = sample_pid(workload.pid()).build().unwrap().start().unwrap();
        let profile = wait_until("samples of precompiled methods", || {
            wait_for_samples(&mut session, 1_000);
            let profile = session.take_profile(Duration::ZERO).unwrap();
            (precompiled_frames(&profile).len() > 1_000).then_some(profile)
        });
        let precompiled = precompiled_frames(&profile);
        for frame in precompiled {
            assert_eq!(
                frame.symbolization,
                Symbolization::Symbol(SymbolSource::ReadyToRun),
                "{version}: {}",
                profile.string(frame.name)
            );
        }
        let stacks = FoldedStacks::from_profile(&profile);
        let has = |part: &str| stacks.percent(|stack| stack.frames.iter().any(|frame| frame.contains(part)));
        assert!(has("System.Private.CoreLib!System.Threading.") > 10.0, "{version}: {stacks:#?}");
        assert_eq!(has("[System.Private.CoreLib.dll+0x"), 0.0, "{version}: {stacks:#?}");
    }
}

#[test]
fn a_perf_map_in_the_folder_of_the_environment_is_found() {
    let Some(_lock) = run_beside_others() else { return };
    for (version, variable) in [("3.1", "TMPDIR"), ("9.0", "DOTNET_PerfMapJitDumpPath")] {
        let folder = tempfile::tempdir().unwrap();
        let workload = Workload::run(command(version).env(variable, folder.path()));
        let name = format!("perf-{}.map", workload.pid());
        await_optimized(&folder.path().join(&name));
        assert!(!Path::new("/tmp").join(&name).exists());
        let stacks = FoldedStacks::from_profile(&sample(sample_pid(workload.pid()), 1_000));
        assert!(stacks.percent(|stack| stack.has(ALPHA)) > 50.0, "{version}: {stacks:#?}");
    }
}

#[test]
fn methods_compiled_while_sampling_are_symbolized() {
    let Some(_lock) = run_beside_others() else { return };
    const SAMPLES_OF_THE_LAST_TIER: u64 = 500;
    for version in VERSIONS {
        // From the start of the process, through all JIT tiers.
        let workload = Workload::run(&mut command(version));
        let mut session = sample_pid(workload.pid()).build().unwrap().start().unwrap();
        await_optimized(Path::new(&format!("/tmp/perf-{}.map", workload.pid())));
        wait_for_samples(&mut session, SAMPLES_OF_THE_LAST_TIER);
        let profile = session.stop().unwrap();
        let named = named_percent_of_jit(&profile);
        assert!(named >= 99.0, "{version}: {named} % named, {:?}", profile.first_ledger().unsymbolized);
    }
}
