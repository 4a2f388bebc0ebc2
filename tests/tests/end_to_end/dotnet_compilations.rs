//! Tests which method is compiled in the JIT compiler of .NET runtimes.

use std::time::{Duration, Instant};

use profiler::{
    Profile,
    profile::{Frame, FrameKind, Sample, SymbolSource, Symbolization},
};
use profiler_tests::{
    DEADLINE, Workload, profiler, run_beside_others, run_command, sample, sample_pid, wait_for_samples,
};

const VERSIONS: [&str; 2] = ["3.1", "9.0"];
const SAMPLES: u64 = 4_000;
const COMPILING: &str = "[compiling ";

/// Methods that the workload makes at run time. The runtime compiles them once, when they are called first.
const DYNAMIC: &str = "[compiling [dynamic method] made;method, number ";

fn workload(version: &str) -> Workload {
    Workload::run(Workload::dotnet_command(version, "dynamic").env("PERF_MAP", "0"))
}

/// Samples once the runtime reports what it compiles: the first samples are taken before it knows of the session.
fn profile_of_compilations(version: &str) -> Profile {
    let workload = workload(version);
    let builder = sample_pid(workload.pid()).dotnet_compilations(true);
    let mut session = builder.build().unwrap().start().unwrap();
    let deadline = Instant::now() + DEADLINE;
    loop {
        wait_for_samples(&mut session, 500);
        let profile = session.take_profile(Duration::ZERO).unwrap();
        if profile.frames().any(|frame| profile.string(frame.name).starts_with(COMPILING)) {
            break;
        }
        assert!(Instant::now() < deadline, "{version}: no method is compiled: {:?}", profile.ledger());
    }
    wait_for_samples(&mut session, SAMPLES);
    session.stop().unwrap()
}

fn frames<'a>(profile: &'a Profile, sample: &Sample) -> Vec<&'a Frame> {
    profile.stack(sample.stack).frames.iter().map(|frame| profile.frame(*frame)).collect()
}

fn is_compiler(profile: &Profile, frame: &Frame) -> bool {
    let path = frame.module.map(|module| profile.string(profile.module(module).path));
    path.is_some_and(|path| path.ends_with("/libclrjit.so"))
}

/// The stacks in the compiler, up to their innermost managed frame, leaf first.
fn compiler_stacks(profile: &Profile) -> Vec<(&Sample, Vec<&Frame>)> {
    let is_native = |frame: &&Frame| !matches!(frame.kind, FrameKind::Jit | FrameKind::Precompiled);
    let stacks = profile.samples().iter().map(|sample| (sample, frames(profile, sample)));
    let native = stacks.map(|(sample, frames)| (sample, frames.into_iter().take_while(is_native).collect()));
    native
        .filter(|(_, frames): &(_, Vec<_>)| frames.iter().any(|frame| is_compiler(profile, frame)))
        .collect()
}

#[test]
fn stacks_in_the_jit_compiler_have_the_method_that_it_compiles() {
    let Some(_lock) = run_beside_others() else { return };
    for version in VERSIONS {
        let profile = profile_of_compilations(version);
        let stacks = compiler_stacks(&profile);
        let name = |frame: &Frame| profile.string(frame.name);
        let compiled = |frames: &[&Frame]| frames.iter().position(|frame| name(frame).starts_with(COMPILING));
        let (mut found, mut dynamic) = (0, 0);
        for (sample, frames) in &stacks {
            let Some(index) = compiled(frames) else { continue };
            found += 1;
            assert_eq!(frames[index].symbolization, Symbolization::Symbol(SymbolSource::RuntimeEvents));
            // It is the caller of the outermost frame of the compiler.
            assert!(is_compiler(&profile, frames[index - 1]), "{version}: {frames:?}");
            assert!(!frames[index + 1..].iter().any(|frame| is_compiler(&profile, frame)), "{frames:?}");
            assert_eq!(compiled(&frames[index + 1..]), None, "{version}: {frames:?}");
            let thread = profile.string(profile.thread(sample.thread).comm);
            let is_dynamic = name(frames[index]).starts_with(DYNAMIC);
            dynamic += usize::from(is_dynamic);
            assert!(!is_dynamic || !thread.starts_with(".NET Tiered"), "they are compiled once");
        }
        let all = stacks.len();
        assert!(all > 100 && found * 100 >= all * 99, "{version}: {found} of {all}");
        assert!(dynamic * 2 > found, "{version}: {dynamic} of {found}");
        let ledger = profile.ledger();
        assert!(ledger.adds_up() && ledger.dropped_runtime_events == 0, "{version}: {ledger:?}");
    }
}

#[test]
fn compiled_methods_are_shown_on_request_alone() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = workload("9.0");
    let profile = sample(sample_pid(workload.pid()), SAMPLES);
    let stacks = compiler_stacks(&profile);
    assert!(stacks.len() > 100, "{} samples in the compiler", stacks.len());
    let frames = stacks.iter().flat_map(|(_, frames)| frames);
    assert!(!frames.into_iter().any(|frame| profile.string(frame.name).starts_with(COMPILING)));
}

#[test]
fn the_command_shows_compiled_methods() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = workload("9.0");
    let pid = workload.pid().to_string();
    let run = run_command(&mut profiler(&["-p", &pid, "-d", "2", "-F", "999", "--dotnet-compilations"]));
    // Folded stacks have no semicolon in a name.
    assert!(run.stdout.contains("[compiling [dynamic method] made"), "{}", run.stderr);
}
