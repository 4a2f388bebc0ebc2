//! Tests .NET without any setting in its environment: symbols of managed methods from the runtime's memory, and from its events.

use std::{collections::BTreeSet, fs, os::unix::net::UnixListener, time::Duration};

use profiler::{
    DotnetNames, Profile, Session,
    profile::{FrameKind, Reason, SymbolSource, Symbolization},
};
use profiler_tests::{
    CPU_SHARES, FoldedStacks, Workload, measure_alone, run_beside_others, sample, sample_pid, sample_settled,
    wait_for_samples, wait_until,
};

const VERSIONS: [&str; 2] = ["3.1", "9.0"];
const ALPHA: &str = "app!Workload.Cpu.Alpha()";

/// With this many samples, three percentage points are four standard deviations of a share.
const SAMPLES: u64 = 4_000;

fn start(version: &str, mode: &str) -> Workload {
    Workload::run(Workload::dotnet_command(version, mode).env("PERF_MAP", "0"))
}

fn await_sockets(workload: &Workload, count: usize) {
    wait_until("the end of the session", || (workload.sockets() == count).then_some(()));
}

/// The symbols of the JIT frames above `leaves` leaf frames in all samples, and the number of unsymbolized ones.
fn jit_frames(profile: &Profile, leaves: usize) -> (Vec<String>, usize) {
    let stacks = profile.samples().iter().map(|sample| profile.stack(sample.stack));
    let frames = stacks.flat_map(|stack| stack.frames.iter().skip(leaves)).map(|frame| profile.frame(*frame));
    let jit: Vec<_> = frames.filter(|frame| frame.kind == FrameKind::Jit).collect();
    let unnamed = jit.iter().filter(|frame| matches!(frame.symbolization, Symbolization::Address(_))).count();
    let names = jit.iter().filter(|frame| matches!(frame.symbolization, Symbolization::Symbol(_)));
    (names.map(|frame| profile.string(frame.name).to_owned()).collect(), unnamed)
}

fn assert_named(profile: &Profile, leaves: usize, what: &str) {
    let (names, unnamed) = jit_frames(profile, leaves);
    let percent = 100.0 * names.len() as f64 / (names.len() + unnamed) as f64;
    assert!(percent >= 99.0, "{what}: {percent} % named, {:?}", profile.first_ledger().unsymbolized);
    let ledger = profile.first_ledger();
    assert!(ledger.adds_up() && ledger.lost_total() == 0, "{what}: {ledger:?}");
    // .NET Core 3.1 does not describe its memory. Later runtimes are asked once they compile dynamic methods.
    let (events, memory) = (SymbolSource::RuntimeEvents, SymbolSource::RuntimeMemory);
    let has = |source| ledger.symbolized.contains_key(&source);
    assert!(has(events) || (has(memory) && !what.starts_with("3.1")), "{what}: {ledger:?}");
    assert!(!ledger.symbolized.contains_key(&SymbolSource::PerfMap), "{what}");
    let session = profile.ledger();
    assert_eq!((session.dropped_runtime_events, session.malformed_jit_entries), (0, 0), "{what}");
}

#[test]
fn managed_methods_have_symbols_shares_and_callers_without_settings() {
    let Some(_lock) = run_beside_others() else { return };
    for version in VERSIONS {
        let workload = start(version, "cpu");
        let before = workload.sockets();
        // The runtime is busy for a moment during the rundown of all methods, longer under other load.
        let profile = sample_settled(sample_pid(workload.pid()), SAMPLES);
        assert_named(&profile, 0, version);
        let stacks = FoldedStacks::from_profile(&profile).with("app!Workload.Cpu.Middle()");
        stacks.assert_shares(&CPU_SHARES);
        let chain = ["app!Workload.Cpu.Outer()", "app!Workload.Cpu.Middle()", ALPHA];
        assert!(
            stacks.percent(|stack| stack.has_chain(&chain)) > 50.0,
            "{version}: {:?}, {stacks:#?}",
            profile.ledger()
        );
        await_sockets(&workload, before);
        let map = format!("/tmp/perf-{}.map", workload.pid());
        assert!(!fs::exists(map).unwrap(), "no file is left in the target");
    }
}

#[test]
fn generic_and_dynamic_methods_are_symbolized() {
    let Some(_lock) = run_beside_others() else { return };
    for version in VERSIONS {
        for (mode, beginning) in [
            ("generic", "app!Workload.Repository<__Canon,__Canon>.Sum("),
            ("generic", "app!Workload.Repository<int,double>.Sum("),
            ("dynamic", "[dynamic method] made;method, number "),
        ] {
            let profile = sample(sample_pid(start(version, mode).pid()), 1_000);
            // A delegate of a static method calls through a stub, which is a leaf. Before .NET 7, it has no name.
            assert_named(&profile, 1, &format!("{version} {mode}"));
            let (names, _) = jit_frames(&profile, 0);
            let ledger = profile.first_ledger();
            assert!(
                ledger.symbolized.contains_key(&SymbolSource::StubCode) || version == "3.1",
                "{ledger:?}"
            );
            assert!(names.iter().any(|name| name.starts_with(beginning)), "{version} {mode}: {names:?}");
        }
    }
}

#[test]
fn runtime_events_and_perf_map_have_the_same_symbols() {
    let Some(_lock) = run_beside_others() else { return };
    let seen = |profile: &Profile, least: usize| {
        let (mut names, _) = jit_frames(profile, 0);
        // The perf map alone has symbols for stubs.
        names.retain(|name| !name.starts_with("[stub "));
        names.sort_unstable();
        let chunks = names.chunk_by(|one, other| one == other);
        chunks.filter(|chunk| chunk.len() >= least).map(|chunk| chunk[0].clone()).collect::<BTreeSet<_>>()
    };
    // Which other methods are sampled is chance.
    const HOT: usize = 200;
    for version in VERSIONS {
        for mode in ["cpu", "generic"] {
            let told = start(version, mode);
            let from_events = sample(sample_pid(told.pid()).dotnet_names(DotnetNames::Events), 1_500);
            let mut command = Workload::dotnet_command(version, mode);
            let silent = Workload::run(command.env("COMPlus_EnableDiagnostics", "0"));
            // Without names from memory: both sides find callers by the same rules.
            let written = sample(sample_pid(silent.pid()).dotnet_names(DotnetNames::Events), 1_500);
            assert!(!written.first_ledger().symbolized.contains_key(&SymbolSource::RuntimeEvents));
            for (one, other) in [(&from_events, &written), (&written, &from_events)] {
                let missing: Vec<_> = seen(one, HOT).difference(&seen(other, 1)).cloned().collect();
                assert!(missing.is_empty(), "{version} {mode}: {missing:?}");
            }
        }
    }
}

#[test]
fn methods_compiled_while_sampling_are_symbolized_in_each_profile() {
    let Some(_lock) = run_beside_others() else { return };
    for version in VERSIONS {
        // From the start of the process, through all JIT tiers.
        let workload = start(version, "cpu");
        let before = workload.sockets();
        let mut session = sample_pid(workload.pid()).build().unwrap().start().unwrap();
        for _ in 0..3 {
            assert_named(&session.take_profile(Duration::from_millis(700)).unwrap(), 0, version);
        }
        session.stop().unwrap();
        await_sockets(&workload, before);
    }
}

/// A profile of so many samples.
fn take_after(session: &mut Session, samples: u64) -> Profile {
    wait_for_samples(session, samples);
    session.take_profile(Duration::ZERO).unwrap()
}

#[test]
fn twenty_thousand_methods_are_symbolized_from_rundown_and_load_events() {
    let Some(_lock) = run_beside_others() else { return };
    for version in VERSIONS {
        let mut workload = start(version, "many");
        let mut session = sample_pid(workload.pid()).build().unwrap().start().unwrap();
        workload.wait_for("made");
        for (age, profile) in
            [("new", take_after(&mut session, 1_000)), ("old", sample(sample_pid(workload.pid()), 1_000))]
        {
            assert_named(&profile, 1, &format!("{version} {age}"));
            let (names, _) = jit_frames(&profile, 0);
            let made = names.iter().filter(|name| name.starts_with("[dynamic method] made;method"));
            assert!(made.collect::<BTreeSet<_>>().len() > 10, "{version} {age}: {:?}", profile.ledger());
        }
    }
}

#[test]
fn a_dropped_session_leaves_no_eventpipe_session_in_the_target() {
    let Some(_lock) = run_beside_others() else { return };
    for version in VERSIONS {
        let workload = start(version, "cpu");
        let before = workload.sockets();
        let builder = sample_pid(workload.pid()).dotnet_names(DotnetNames::Events);
        let session = builder.build().unwrap().start().unwrap();
        wait_until("an EventPipe session", || (workload.sockets() > before).then_some(()));
        drop(session);
        await_sockets(&workload, before);
    }
}

#[test]
fn a_process_that_exits_stays_symbolized() {
    let Some(_lock) = run_beside_others() else { return };
    for version in VERSIONS {
        let workload = start(version, "cpu");
        let mut session = sample_pid(workload.pid()).build().unwrap().start().unwrap();
        // The rundown of .NET Core 3.1 waits for a pause of the compiler.
        wait_for_samples(&mut session, 1_500);
        workload.end();
        assert_named(&session.stop().unwrap(), 0, version);
    }
}

#[test]
fn a_socket_of_another_process_is_rejected() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start_with("jit", &["600", "none"]);
    let pid = workload.pid();
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let start_ticks = stat.rsplit(')').next().unwrap().split_whitespace().nth(19).unwrap();
    let path = format!("/tmp/dotnet-diagnostic-{pid}-{start_ticks}-socket");
    let _listener = UnixListener::bind(&path).unwrap();
    let profile = sample(sample_pid(pid), 500);
    fs::remove_file(path).unwrap();
    let unnamed = &profile.first_ledger().unsymbolized;
    let refused: u64 = unnamed
        .iter()
        .filter(|(frames, _)| frames.reason == Reason::RuntimeRefused)
        .map(|(_, count)| count)
        .sum();
    assert!(refused > 450, "{unnamed:?}");
}

mod measured {
    use std::time::Instant;

    use super::*;
    use crate::blocking_targets::Stopped;

    #[test]
    fn a_profile_of_known_methods_does_not_wait_for_the_end_of_the_eventpipe_session() {
        /// A profiler that waits for a runtime which is stopped waits at least this long, its limit.
        const STOP_LIMIT: Duration = Duration::from_millis(500);
        const SESSIONS: usize = 5;
        let Some(_lock) = measure_alone() else { return };
        for version in VERSIONS {
            let workload = start(version, "cpu");
            let before = workload.sockets();
            let ends = (0..SESSIONS).map(|_| {
                let mut session = sample_pid(workload.pid()).build().unwrap().start().unwrap();
                wait_for_samples(&mut session, 1_000);
                let stopped = Stopped::new(workload.pid());
                let begin = Instant::now();
                let profile = session.stop().unwrap();
                let end = begin.elapsed();
                drop(stopped);
                await_sockets(&workload, before);
                (end, jit_frames(&profile, 0).1)
            });
            // A method that was compiled just now is awaited, and a runtime that is stopped does not report it: not each session
            // ends at once with all names.
            let ends: Vec<_> = ends.collect();
            let is_at_once = |(end, unnamed): &(Duration, usize)| *end < STOP_LIMIT && *unnamed == 0;
            assert!(ends.iter().any(is_at_once), "{version}: {ends:?}");
        }
    }
}
