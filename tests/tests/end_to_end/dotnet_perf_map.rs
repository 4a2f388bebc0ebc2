//! Tests perf maps that the profiler requests from .NET runtimes: their symbols, and that no file is left behind.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::Write as _,
    path::PathBuf,
    time::{Duration, Instant},
};

use profiler::{
    Profile, Session,
    profile::{Frame, Reason, SymbolSource, Symbolization},
};
use profiler_tests::{Workload, profiler, run_beside_others, run_command, sample, sample_pid, wait_until};

/// The profiler sends no requests to a younger runtime.
const MIN_AGE: Duration = Duration::from_secs(5);

/// Enough samples for every stub with a thousandth of the time.
const SAMPLES: u64 = 4_000;

fn start(version: &str, mode: &str) -> Workload {
    Workload::run(Workload::dotnet_command(version, mode).env("PERF_MAP", "0"))
}

fn perf_map_path(workload: &Workload) -> PathBuf {
    format!("/tmp/perf-{}.map", workload.pid()).into()
}

fn start_session(workload: &Workload) -> Session {
    sample_pid(workload.pid()).dotnet_perf_map(true).build().unwrap().start().unwrap()
}

fn await_perf_map(workload: &Workload) {
    wait_until("the perf map", || fs::exists(perf_map_path(workload)).unwrap().then_some(()));
}

/// A session whose request the runtime has met. Where the machine is so busy that it takes 20 ms to send a request, a session
/// gives up.
fn start_session_with_perf_map(workload: &Workload) -> Session {
    const LOOKS: u32 = 200;
    wait_until("a perf map on request", || {
        let mut session = start_session(workload);
        for _ in 0..LOOKS {
            if fs::exists(perf_map_path(workload)).unwrap() {
                return Some(session);
            }
            session.wait(Some(Duration::from_millis(50)));
        }
        None
    })
}

/// The frames of all stacks.
fn frames(profile: &Profile) -> impl Iterator<Item = &Frame> {
    let stacks = profile.samples().iter().map(|sample| profile.stack(sample.stack));
    stacks.flat_map(|stack| &stack.frames).map(|frame| profile.frame(*frame))
}

/// The symbols that come from a perf map.
fn perf_map_symbols(profile: &Profile) -> BTreeSet<&str> {
    let is_of_map = |frame: &&Frame| frame.symbolization == Symbolization::Symbol(SymbolSource::PerfMap);
    frames(profile).filter(is_of_map).map(|frame| profile.string(frame.name)).collect()
}

/// The addresses of stubs, which no event reports. They stay where they are.
fn stubs(profile: &Profile) -> BTreeSet<u64> {
    let is_stub = |frame: &&Frame| {
        matches!(
            frame.symbolization,
            Symbolization::Symbol(SymbolSource::StubCode) | Symbolization::Address(Reason::RuntimeStub)
        )
    };
    frames(profile).filter(is_stub).map(|frame| frame.address.0).collect()
}

/// Which methods a runtime writes first to its map or reports first in its events is a matter of chance: a line of the map is the
/// only source for code that no event reports.
#[test]
fn a_requested_perf_map_adds_names() {
    const NAME: &str = "code of the map";
    let Some(_lock) = run_beside_others() else { return };
    // The mode compiles nothing after its start.
    let workload = start("9.0", "generic");
    let without = sample(sample_pid(workload.pid()), SAMPLES);
    assert_eq!(perf_map_symbols(&without), BTreeSet::new());
    let stubs = stubs(&without);
    assert!(!stubs.is_empty(), "{:?}", without.first_ledger());

    let mut session = start_session_with_perf_map(&workload);
    let mut map = File::options().append(true).open(perf_map_path(&workload)).unwrap();
    let lines: String = stubs.iter().map(|address| format!("{address:x} 1 {NAME}\n")).collect();
    // A line of the map is certain from the poll on that reads it: each short profile ends with a poll. The runtime overwrites the
    // lines as long as it writes those of all methods.
    wait_until("samples of code that only the map names", || {
        map.write_all(lines.as_bytes()).unwrap();
        let profile = session.take_profile(Duration::from_millis(50)).unwrap();
        perf_map_symbols(&profile).contains(NAME).then_some(())
    });
    session.stop().unwrap();
}

#[test]
fn a_requested_perf_map_is_read_and_removed() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = start("9.0", "dynamic");
    let mut session = start_session_with_perf_map(&workload);
    session.wait(Some(Duration::from_secs(2)));
    let named = fs::read_to_string(perf_map_path(&workload)).unwrap();
    let profile = session.stop().unwrap();
    assert!(!fs::exists(perf_map_path(&workload)).unwrap());
    let ledger = profile.first_ledger();
    assert!(ledger.adds_up() && profile.ledger().malformed_jit_entries == 0, "{ledger:?}");
    assert!(ledger.symbolized.contains_key(&SymbolSource::RuntimeEvents), "{ledger:?}");
    assert!(named.contains("dynamicClass::made;method"), "{named}");
}

#[test]
fn a_dropped_session_leaves_no_perf_map() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = start("9.0", "cpu");
    let session = start_session_with_perf_map(&workload);
    drop(session);
    assert!(!fs::exists(perf_map_path(&workload)).unwrap());
    // The perf map is disabled: methods that are compiled now are not written to it.
    let again = start_session_with_perf_map(&workload);
    drop(again);
    assert!(!fs::exists(perf_map_path(&workload)).unwrap());
}

#[test]
fn a_perf_map_of_the_target_itself_is_read_and_kept() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::dotnet("9.0", "cpu");
    await_perf_map(&workload);
    let mut session = start_session(&workload);
    session.wait(Some(MIN_AGE + Duration::from_secs(1)));
    session.stop().unwrap();
    assert!(fs::exists(perf_map_path(&workload)).unwrap());
}

#[test]
fn a_runtime_without_perf_maps_on_request_is_reported() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = start("3.1", "cpu");
    let pid = workload.pid().to_string();
    let run = run_command(&mut profiler(&["-p", &pid, "-d", "7", "--dotnet-perf-map"]));
    assert!(
        run.stderr.contains(&format!("no perf map of process {pid}: its runtime is older")),
        "{}",
        run.stderr
    );
    assert!(run.stdout.contains("app!Workload.Cpu.Alpha()"), "{}", run.stderr);
    assert!(!fs::exists(perf_map_path(&workload)).unwrap());
    let run = wait_until("the end of sampling in the first seconds of a runtime", || {
        let (begin, young) = (Instant::now(), start("9.0", "cpu"));
        let pid = young.pid().to_string();
        let run = run_command(&mut profiler(&["-p", &pid, "-d", "1", "--dotnet-perf-map"]));
        (begin.elapsed() < MIN_AGE).then_some(run)
    });
    assert!(run.stderr.contains("was not sampled long enough"), "{}", run.stderr);
}
