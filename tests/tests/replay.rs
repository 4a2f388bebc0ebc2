//! Replays recorded captures through the whole user-space pipeline, without privileges.

use std::path::{Path, PathBuf};

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
        let replay = profiler::Profiler::builder().replay(&capture).build().unwrap().start().unwrap();
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
