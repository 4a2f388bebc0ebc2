//! Tests how many stacks of common programs and language runtimes reach the root.

use std::{ffi::OsString, fmt::Write as _, path::Path, process::Command, time::Duration};

use profiler::{
    Profile, Profiler, Target,
    profile::{FrameKind, StackEnd},
};
use profiler_tests::{
    FoldedStacks, Workload, await_optimized_methods, file, measure_alone, profiler, run_beside_others,
    run_command, sample, sample_pid, sample_settled, settle, wait_for_samples,
};

/// The least share for programs that are compiled ahead of time. The rest are sampled while they start or exit.
const COMPILED_PERCENT: f64 = 95.0;

/// The least share for programs with JIT code, which may have no unwind tables and, for a few instructions, no frame
/// pointer.
const JIT_PERCENT: f64 = 90.0;

/// The least share for .NET: the JIT compiler's methods have a frame pointer or an epilogue that is found, also in memory
/// that the runtime mapped a moment ago.
const DOTNET_PERCENT: f64 = 99.0;

const SAMPLES: u64 = 1_000;

/// Checks that this share of a profile's stacks reaches the root, and prints the share.
fn assert_whole(what: &str, profile: &Profile, least_percent: f64) {
    let ledger = profile.first_ledger();
    assert!(ledger.adds_up() && ledger.lost_total() == 0, "{what}: {ledger:?}");
    let whole = ledger.stacks.get(&StackEnd::Root).copied().unwrap_or_default();
    let percent = 100.0 * whole as f64 / ledger.reported.max(1) as f64;
    println!("{what}: {percent:.2} % of {} stacks reach the root", ledger.reported);
    assert!(
        percent >= least_percent,
        "{what}: {percent:.2} % reach the root, not {least_percent} %: {:?}\n{}",
        ledger.stacks,
        cut_stacks(profile)
    );
}

/// A line for each sample whose stack does not reach the root: its end, and its frames from the leaf on with the ways in
/// which they were found.
fn cut_stacks(profile: &Profile) -> String {
    const MAX_LINES: usize = 20;
    let stacks = profile.samples().iter().map(|sample| profile.stack(sample.stack));
    let cut = stacks.filter(|stack| stack.end != StackEnd::Root).take(MAX_LINES);
    cut.fold(String::new(), |mut lines, stack| {
        let _ = write!(lines, "{}:", stack.end);
        for (frame, found_by) in stack.frames.iter().zip(&stack.found_by) {
            let _ = write!(lines, " {} ({found_by:?}) <", profile.string(profile.frame(*frame).name));
        }
        lines + "\n"
    })
}

fn deepest(profile: &Profile) -> usize {
    let user_frames = |sample: &profiler::profile::Sample| {
        let frames = profile.stack(sample.stack).frames.iter();
        frames.filter(|frame| profile.frame(**frame).kind != FrameKind::Kernel).count()
    };
    profile.samples().iter().map(user_frames).max().unwrap_or_default()
}

fn profile_of(command: &mut Command) -> Profile {
    let workload = Workload::run(command);
    sample_settled(sample_pid(workload.pid()), SAMPLES)
}

#[test]
fn python_stacks_reach_the_root() {
    let Some(_lock) = run_beside_others() else { return };
    let profile = profile_of(Command::new("python3").arg(file("workloads/busy.py")).arg("600"));
    assert_whole("python3", &profile, COMPILED_PERCENT);
    assert!(deepest(&profile) > 60, "{} frames", deepest(&profile));
}

#[test]
fn node_stacks_reach_the_root() {
    let Some(_lock) = run_beside_others() else { return };
    // Node.js writes a log into its working folder.
    let folder = tempfile::tempdir().unwrap();
    for options in [&[][..], &["--perf-basic-prof", "--interpreted-frames-native-stack"]] {
        let mut node = Command::new("node");
        node.args(options).arg(file("workloads/shares.js")).arg("600").current_dir(folder.path());
        assert_whole(&format!("node {options:?}"), &profile_of(&mut node), JIT_PERCENT);
    }
}

#[test]
fn the_remedies_for_hidden_functions_are_those_of_the_runtime() {
    let Some(_lock) = run_beside_others() else { return };
    let folder = tempfile::tempdir().unwrap();
    let [javascript, python] = ["workloads/shares.js", "workloads/busy.py"].map(file);
    for (program, source, remedy, finding) in [
        ("node", javascript, "--perf-basic-prof --interpreted-frames-native-stack", "JIT frames"),
        (
            "python3",
            python,
            "whose interpreted functions have no frames: start it with `python3 -X perf`",
            "interpreted functions",
        ),
    ] {
        let mut command = Command::new(program);
        let workload = Workload::run(command.arg(source).arg("600").current_dir(folder.path()));
        // Until it has compiled its functions.
        assert!(sample(sample_pid(workload.pid()), SAMPLES).total_value() >= SAMPLES);
        let pid = workload.pid().to_string();
        let run = run_command(&mut profiler(&["-p", &pid, "-F", "999", "-d", "1"]));
        assert!(run.stderr.contains(remedy), "{program}: {}", run.stderr);
        let doctor = run_command(&mut profiler(&["doctor", "-p", &pid]));
        let row = doctor.stdout.lines().find(|line| line.starts_with(finding)).unwrap_or_default();
        assert!(row.contains(&format!("{program} -")), "{program}: {}", doctor.stdout);
        let has_jit_row = doctor.stdout.lines().any(|line| line.starts_with("JIT frames"));
        assert_eq!(has_jit_row, finding == "JIT frames", "{}", doctor.stdout);
    }
}

fn java(depth: &str) -> Profile {
    let mut java = Command::new("java");
    java.arg("-XX:+PreserveFramePointer").arg(file("workloads/Busy.java")).args(["600", depth]);
    profile_of(&mut java)
}

#[test]
fn java_stacks_with_frame_pointers_reach_the_root() {
    let Some(_lock) = run_beside_others() else { return };
    assert_whole("java", &java("20"), JIT_PERCENT);
}

#[test]
fn java_stacks_of_hundreds_of_frames_reach_the_root() {
    let Some(_lock) = run_beside_others() else { return };
    let profile = java("900");
    assert_whole("java, deep", &profile, JIT_PERCENT);
    // The JIT compiler inlines some of the calls.
    assert!(deepest(&profile) > 300, "{} frames", deepest(&profile));
}

#[test]
fn methods_that_are_compiled_while_sampling_have_their_callers() {
    let Some(_lock) = run_beside_others() else { return };
    for version in ["3.1", "9.0"] {
        let workload = Workload::dotnet(version, "web");
        let profile = sample(sample_pid(workload.pid()), 2 * SAMPLES);
        assert_whole(&format!(".NET {version}, new methods"), &profile, DOTNET_PERCENT);
    }
}

#[test]
fn dotnet_methods_without_frames_have_their_callers() {
    let Some(_lock) = run_beside_others() else { return };
    const METHODS: [&str; 2] = ["TinyMiddle", "TinyOuter"];
    let [alpha, middle, outer] = ["Cpu.Alpha", "Tiny.TinyMiddle", "Tiny.TinyOuter"];
    let [alpha, middle, outer] = [alpha, middle, outer].map(|name| format!("app!Workload.{name}()"));
    let run = "app!Workload.Tiny.Run(Func<bool>)";
    for version in ["3.1", "9.0"] {
        // The code of the calling loop is not replaced while it runs, as it never is in 3.1.
        let mut command = Workload::dotnet_command(version, "tiny");
        let workload = Workload::run(command.env("DOTNET_TC_QuickJitForLoops", "0"));
        let map = format!("/tmp/perf-{}.map", workload.pid());
        await_optimized_methods(Path::new(&map), "Tiny", &METHODS);
        await_optimized_methods(Path::new(&map), "Cpu", &["Alpha"]);
        let profile = sample_settled(sample_pid(workload.pid()), SAMPLES);
        let stacks = FoldedStacks::from_profile(&profile);
        let in_alpha = stacks.percent(|stack| stack.has(&alpha));
        let whole = stacks.percent(|stack| {
            let main = stack.frames.iter().find(|frame| frame.starts_with("app!Workload.Program.Main("));
            main.is_some_and(|main| stack.has_chain(&[main, run, &outer, &middle, &alpha]))
        });
        println!(".NET {version}: {whole:.2} % of {in_alpha:.2} % have all their callers");
        assert!(
            in_alpha > 95.0 && whole >= 0.99 * in_alpha,
            "{version}: {whole} of {in_alpha} %: {stacks:#?}"
        );
    }
}

/// Writes a source file with many functions, which keep a compiler busy for longer than it is sampled.
fn write_source(path: &Path) {
    let mut source = String::new();
    for number in 0..1_000 {
        writeln!(
            source,
            "pub fn f{number}(text: &str) -> String {{\n\
             let mut words: Vec<_> = text.split(' ').map(|word| word.len() * {number}).collect();\n\
             words.sort_by_key(|length| length % 7);\n\
             format!(\"{{words:?}} {{}}\", words.iter().sum::<usize>())\n}}"
        )
        .unwrap();
    }
    std::fs::write(path, source).unwrap();
}

#[test]
fn rustc_stacks_reach_the_root() {
    let Some(_lock) = run_beside_others() else { return };
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("many.rs");
    write_source(&source);
    let mut command: Vec<OsString> =
        ["rustc", "--edition", "2024", "--crate-type", "lib", "-O", "--emit", "obj", "-o"]
            .map(Into::into)
            .into();
    command.extend([folder.path().join("many.o").into(), source.into()]);
    let builder = Profiler::builder().target(Target::Command(command)).frequency_hz(1_999);
    let mut session = builder.build().unwrap().start().unwrap();
    let mut compiler = session.take_command().unwrap();
    // The unwind tables of the compiler's libraries have more than a million rows each.
    settle(&mut session);
    wait_for_samples(&mut session, SAMPLES);
    let profile = session.take_profile(Duration::ZERO).unwrap();
    // It may have ended.
    let _ = compiler.kill().and_then(|()| compiler.wait());
    assert!(profile.total_value() >= SAMPLES, "{} samples", profile.total_value());
    assert_whole("rustc", &profile, COMPILED_PERCENT);
}

/// Shares of few stacks: beside other tests the runtime compiles its methods later.
mod measured {
    use super::*;

    fn assert_dotnet_stacks_reach_the_root(version: &str) {
        for mode in ["cpu", "generic", "threads", "tiny", "dynamic", "web"] {
            let workload = Workload::dotnet(version, mode);
            let profile = sample_settled(sample_pid(workload.pid()), SAMPLES);
            assert_whole(&format!(".NET {version}, {mode}"), &profile, DOTNET_PERCENT);
        }
    }

    #[test]
    fn stacks_of_dotnet_core_3_1_reach_the_root() {
        let Some(_lock) = measure_alone() else { return };
        assert_dotnet_stacks_reach_the_root("3.1");
    }

    #[test]
    fn stacks_of_dotnet_9_reach_the_root() {
        let Some(_lock) = measure_alone() else { return };
        assert_dotnet_stacks_reach_the_root("9.0");
    }
}
