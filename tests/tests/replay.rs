//! Replays recorded captures through the whole user-space pipeline, without privileges.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use profiler::{
    Builder, CountedEvent, Profile, Profiler, Target,
    profile::{Cost, Sample},
};
use profiler_tests::{
    FoldedStacks, Workload, assert_matches_file, file, profiler, run_beside_others, run_command,
    workload_path,
};

fn captures() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(file("captures")).unwrap().flatten().map(|entry| entry.path());
    entries.filter(|path| path.is_dir()).collect()
}

fn replay(capture: &Path, arguments: &[&str]) -> String {
    let run = run_command(profiler(&["replay"]).arg(capture).args(arguments));
    assert_eq!(run.code(), 0, "{}: {}", capture.display(), run.stderr);
    run.stdout
}

#[test]
fn every_capture_replays_to_its_expected_stacks() {
    assert!(!captures().is_empty());
    for capture in captures() {
        assert_matches_file(&replay(&capture, &["-q", "--annotate"]), &capture.join("expected.folded"));
    }
}

#[test]
fn the_ledger_of_a_replay_adds_up() {
    for capture in captures() {
        let replay = Profiler::builder().replay(&capture).build().unwrap().start().unwrap();
        let profile = replay.run().unwrap();
        assert!(profile.ledger().adds_up() && profile.total_value() > 0, "{:?}", profile.ledger());
    }
}

#[test]
fn a_folder_without_a_capture_is_an_error_with_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let run = run_command(profiler(&["replay"]).arg(folder.path()));
    assert_eq!((run.code(), run.stdout.as_str()), (1, ""));
    assert!(run.stderr.contains(folder.path().to_str().unwrap()), "{}", run.stderr);
}

#[test]
fn a_truncated_capture_is_an_error_and_does_not_hang() {
    let capture = captures().pop().unwrap();
    let events = std::fs::read(capture.join("events.jsonl")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for length in [0, 10, events.len() / 2] {
        std::fs::write(folder.path().join("events.jsonl"), &events[..length]).unwrap();
        let run = run_command(profiler(&["replay"]).arg(folder.path()));
        assert_eq!(run.code(), 1, "{length}: {}", run.stderr);
    }
}

#[test]
fn a_replay_has_the_same_profile_as_its_session() {
    let Some(_lock) = run_beside_others() else { return };
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("capture");
    let workload = Workload::start_with("jit", &["60"]);
    let pid = workload.pid().to_string();
    let recorded = run_command(profiler(&["-p", &pid, "-F", "999", "-d", "1", "--capture"]).arg(&capture));
    assert_eq!(recorded.code(), 0, "{}", recorded.stderr);
    drop(workload);
    let hot = "demo!Demo.Program.HotLoop(long)";
    assert!(
        FoldedStacks::parse(&recorded.stdout).percent(|stack| stack.has(hot)) > 50.0,
        "{}",
        recorded.stdout
    );
    assert_eq!(replay(&capture, &[]), recorded.stdout);
}

#[test]
fn a_replay_of_forking_processes_has_the_same_profile_as_its_session() {
    let Some(_lock) = run_beside_others() else { return };
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("capture");
    let program = workload_path("forkstorm");
    let mut record = profiler(&["-F", "999", "--children", "-o", "-", "--capture"]);
    // It ends by the work that it does: 100 children, of five milliseconds of CPU time each.
    record.arg(&capture).arg("--").arg(program).args(["600", "100"]);
    let recorded = run_command(&mut record);
    assert_eq!(recorded.code(), 0, "{}", recorded.stderr);
    let folded = recorded.stdout.lines().filter(|line| line.contains(';') || line.starts_with("exe"));
    let recorded = FoldedStacks::parse(&folded.map(|line| format!("{line}\n")).collect::<String>());
    let replayed = FoldedStacks::parse(&replay(&capture, &[]));
    let burning = |stacks: &FoldedStacks| stacks.count(|stack| stack.has_chain(&["child", "burn_in_child"]));
    assert!(burning(&recorded) > 50);
    assert_eq!(burning(&recorded), burning(&replayed));
}

/// What a profile says, a line each, in an order that is that of the lines. Left out is what the profiler itself cost.
fn content(profile: &Profile) -> Vec<String> {
    let string = |id| profile.string(id);
    let mut ledger = profile.ledger().clone();
    ledger.cost = Cost { bpf_run_time_ns: ledger.cost.bpf_run_time_ns, ..Cost::default() };
    let mut lines = vec![format!("{ledger:?}")];
    lines.extend(profile.events().map(|event| format!("{event:?}")));
    lines.extend(profile.findings().iter().map(|finding| format!("{finding:?}")));
    let sample = |sample: &Sample| {
        let Sample { time_ns, cpu, state, value, .. } = sample;
        let thread = profile.thread(sample.thread);
        let process = profile.process(thread.process);
        let stack = profile.stack(sample.stack);
        let frames = stack.frames.iter().map(|id| profile.frame(*id)).map(|frame| {
            let module = frame.module.map(|module| string(profile.module(module).path));
            (string(frame.name), module, frame.kind, frame.symbolization)
        });
        let frames: Vec<_> = frames.zip(&stack.found_by).collect();
        let event = &profile.event(sample.event).name;
        let thread = (process.pid, string(process.comm), thread.tid, string(thread.comm));
        format!("{event} {time_ns} {cpu} {thread:?} {state:?} {value} {:?} {frames:?}", stack.end)
    };
    lines.extend(profile.samples().iter().map(sample));
    lines.sort();
    lines
}

#[test]
fn a_replay_of_each_kind_of_event_has_the_same_profile_as_its_session() {
    let Some(_lock) = run_beside_others() else { return };
    let event = |name: &str| name.parse::<CountedEvent>().unwrap();
    let waits = |builder: Builder| builder.cpu_samples(false).off_cpu(Duration::from_millis(1), true);
    let counted = |builder: Builder| {
        let sum_of_results = event("raw_syscalls:sys_exit").weighted_by("ret");
        let events = [event("page-faults"), event("raw_syscalls:sys_enter"), sum_of_results];
        events.into_iter().fold(builder, Builder::counted_event)
    };
    check_replay("ticks and wall", &|builder| builder.frequency_hz(499).wall_clock_hz(99));
    check_replay("wall", &|builder| builder.cpu_samples(false).wall_clock_hz(99));
    check_replay("waits", &waits);
    check_replay("disk", &|builder| builder.cpu_samples(false).io_waits().user_stacks(false));
    check_replay("counted", &|builder| counted(builder.cpu_samples(false)));
    check_replay("all", &|builder| counted(waits(builder).cpu_samples(true).wall_clock_hz(49)));
}

/// Records a capture of a command that waits in many ways, and compares the profile of its replay.
fn check_replay(kind: &str, configure: &dyn Fn(Builder) -> Builder) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("pages"), vec![1; 512 * 4096]).unwrap();
    std::fs::File::open(path("pages")).unwrap().sync_all().unwrap();
    let program = workload_path("off_cpu");
    let command = [program.into(), "1".into(), path("report").into(), path("pages").into()];
    let builder = Profiler::builder().target(Target::Command(command.to_vec()));
    let session = configure(builder).capture(path("capture")).build().unwrap().start().unwrap();
    let profile = session.run().unwrap();
    for id in profile.event_ids() {
        assert!(profile.samples_of(id).next().is_some(), "{kind}: {}", profile.event(id).name);
    }
    let replay = Profiler::builder().replay(path("capture")).build().unwrap().start().unwrap();
    let replayed = replay.run().unwrap();
    assert_eq!(content(&replayed), content(&profile), "{kind}");
}
