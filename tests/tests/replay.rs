//! Replays recorded captures through the whole user-space pipeline, without privileges.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use profiler::{
    Builder, CountedEvent, Profile, Profiler, Target,
    profile::{Cost, Sample, Sampling, ThreadState},
};
use profiler_tests::{
    DEADLINE, FoldedStacks, Workload, assert_matches_file, file, measure_alone, profiler, run_beside_others,
    run_command, workload_path,
};
use serde_json::Value;

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

/// The profile of a capture of `captures/known-work.c`.
fn known_work(capture: &str) -> Profile {
    let builder = Profiler::builder().replay(file("captures").join(capture));
    let profile = builder.build().unwrap().start().unwrap().run().unwrap();
    assert!(profile.ledger().adds_up(), "{:?}", profile.ledger());
    assert_eq!((profile.events().len(), profile.first_ledger().lost_total()), (1, 0));
    profile
}

/// The values of the samples of a function in a state, in the order of their times.
fn values_of(profile: &Profile, function: &str, state: Option<ThreadState>) -> Vec<u64> {
    let has_function = |sample: &&Sample| {
        let frames = &profile.stack(sample.stack).frames;
        let names: Vec<_> = frames.iter().map(|id| profile.string(profile.frame(*id).name)).collect();
        names.contains(&function) && names.ends_with(&["work", "main", "_start"])
    };
    let samples = profile.samples().iter().filter(|sample| sample.state == state);
    let mut samples: Vec<_> = samples.filter(has_function).collect();
    samples.sort_by_key(|sample| sample.time_ns);
    samples.iter().map(|sample| sample.value).collect()
}

#[test]
fn a_capture_of_waits_has_each_wait_of_its_program_with_its_length() {
    const MIN_NS: u64 = 10_000_000;
    let profile = known_work("off-cpu");
    assert_eq!(profile.first_event().sampling, Sampling::Durations { min_ns: MIN_NS });
    for (function, expected_ns) in [("wait_long", 40_000_000), ("wait_short", 20_000_000)] {
        let waits = values_of(&profile, function, Some(ThreadState::Blocked));
        // A timer is not early, and some 50 us late (`PR_SET_TIMERSLACK`).
        let is_expected = |wait: &u64| (expected_ns..expected_ns + 1_000_000).contains(wait);
        assert!(waits.len() == 5 && waits.iter().all(is_expected), "{function}: {waits:?}");
    }
    assert!(values_of(&profile, "compute", Some(ThreadState::Blocked)).is_empty());
}

#[test]
fn a_wall_capture_has_the_time_of_each_function_of_its_program() {
    const HZ: u64 = 99;
    let profile = known_work("wall");
    assert_eq!(profile.first_event().sampling, Sampling::Frequency(HZ));
    let blocked = Some(ThreadState::Blocked);
    let times = [
        ("wait_long", blocked, 200),
        ("wait_short", blocked, 100),
        ("compute", Some(ThreadState::OnCpu), 150),
    ];
    for (function, state, milliseconds) in times {
        let ticks: u64 = values_of(&profile, function, state).iter().sum();
        // A tick at each end can be on either side of it.
        assert!(ticks.abs_diff(milliseconds * HZ / 1_000) <= 2, "{function}: {ticks}");
    }
    assert_eq!(values_of(&profile, "compute", blocked), Vec::<u64>::new());
}

#[test]
fn a_capture_of_a_counted_event_has_each_occurrence_of_its_program() {
    let profile = known_work("system-calls");
    assert_eq!(profile.first_event().sampling, Sampling::Occurrences { period: 1 });
    assert_eq!(values_of(&profile, "ask_often", None), [1; 30]);
    assert_eq!(values_of(&profile, "ask_seldom", None), [1; 12]);
    assert_eq!(values_of(&profile, "[getppid]", None).len(), profile.samples().len());
    assert_eq!(profile.first_ledger().due, 30 + 12);
}

/// Replaces the numbers of these members by the largest one.
fn forge(value: &mut Value, members: &[&str]) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(|value| forge(value, members)),
        Value::Object(object) => {
            for (name, value) in object {
                if value.is_number() && members.contains(&name.as_str()) {
                    *value = u64::MAX.into();
                }
                forge(value, members);
            }
        }
        _ => {}
    }
}

#[test]
fn the_numbers_of_a_forged_capture_are_bounded() {
    const COUNTS: &[&str] =
        &["due", "skipped_ticks", "cut_stacks", "short_waits", "short_waits_ns", "run_time_ns"];
    const LOSSES: &[&str] =
        &["RingBufferFull", "ThreadRan", "TooManyThreads", "Nested", "lost_events", "undecodable"];
    const SETTINGS: &[&str] = &["frequency_hz", "wall_hz", "period", "ended_ns", "started_unix_ns"];
    let seed = std::fs::read_to_string(file("fuzz/seeds/capture/kinds")).unwrap();
    let all = [COUNTS, LOSSES, SETTINGS, &["weight"]].concat();
    for members in [&all[..], COUNTS, LOSSES, SETTINGS, &["weight"]] {
        let forged = seed.lines().map(|line| {
            let mut value = serde_json::from_str(line).unwrap();
            forge(&mut value, members);
            format!("{value}\n")
        });
        let forged: String = forged.collect();
        assert!(forged.matches(&u64::MAX.to_string()).count() >= members.len(), "{forged}");
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("events.jsonl"), forged).unwrap();
        for format in ["folded", "html", "speedscope"] {
            let mut command = profiler(&["replay", "-q", "--format", format]);
            let run = run_command(command.arg(folder.path()));
            assert_eq!(run.code(), 0, "{members:?} {format}: {}", run.stderr);
        }
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

/// Records a capture of a command that waits in many ways, and compares the profile of its replay.
fn check_replay(kind: &str, configure: &dyn Fn(Builder) -> Builder) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("pages"), vec![1; 512 * 4096]).unwrap();
    std::fs::File::open(path("pages")).unwrap().sync_all().unwrap();
    let program = workload_path("off_cpu");
    let command = [program.into(), "1".into(), path("report").into(), path("pages").into()];
    let builder = configure(Profiler::builder().target(Target::Command(command.to_vec())));
    compare_with_replay(kind, builder, DEADLINE);
}

/// Records a capture for so long, or until the target exits, and compares the profile of its replay.
fn compare_with_replay(kind: &str, builder: Builder, limit: Duration) {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("capture");
    let session = builder.capture(&capture).build().unwrap().start().unwrap();
    let profile = session.run_for(limit).unwrap();
    for id in profile.event_ids() {
        assert!(profile.samples_of(id).next().is_some(), "{kind}: {}", profile.event(id).name);
    }
    let replayed = Profiler::builder().replay(&capture).build().unwrap().start().unwrap().run().unwrap();
    assert_eq!(content(&replayed), content(&profile), "{kind}");
}

/// Beside other tests, the kernel drops records of mappings and of `exec`, which a session then reads from `/proc`: a replay has what
/// was read from the beginning.
mod measured {
    use super::*;

    #[test]
    fn a_replay_of_each_kind_of_event_has_the_same_profile_as_its_session() {
        let Some(_alone) = measure_alone() else { return };
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
}

#[test]
fn a_replay_of_one_thread_has_the_same_profile_as_its_session() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start("waits");
    let leader = Profiler::builder().target(Target::Tid(workload.pid()));
    compare_with_replay("leader", leader.cpu_samples(false).wall_clock_hz(99), Duration::from_secs(1));
}
