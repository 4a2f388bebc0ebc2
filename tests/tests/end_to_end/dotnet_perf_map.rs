//! Perf maps that .NET runtimes are asked for: the names they add, and that nothing is left of them.

use std::{collections::BTreeSet, fs, path::PathBuf, time::Duration};

use profiler::{
    Profile, Session,
    profile::{Naming, SymbolSource},
};
use profiler_tests::{Workload, outcome, privileged, profiler, sample, sample_pid, until};

/// Enough for code that takes a thousandth of the time.
const SAMPLES: u64 = 4_000;

fn start(version: &str, mode: &str) -> Workload {
    Workload::run(Workload::dotnet_command(version, mode).env("PERF_MAP", "0"))
}

fn map_of(workload: &Workload) -> PathBuf {
    format!("/tmp/perf-{}.map", workload.pid()).into()
}

fn begin(workload: &Workload) -> Session {
    sample_pid(workload.pid()).dotnet_perf_map(true).build().unwrap().start().unwrap()
}

/// Runtimes are not asked in the first seconds of their lives.
fn await_map(workload: &Workload) {
    until("the map", || fs::exists(map_of(workload)).unwrap().then_some(()));
}

/// The names that come from a perf map.
fn names_of_map(profile: &Profile) -> BTreeSet<&str> {
    let stacks = profile.samples().iter().map(|sample| profile.stack(sample.stack));
    let frames = stacks.flat_map(|stack| &stack.frames).map(|frame| profile.frame(*frame));
    let of_map = frames.filter(|frame| frame.naming == Naming::Symbol(SymbolSource::PerfMap));
    of_map.map(|frame| profile.string(frame.name)).collect()
}

#[test]
fn a_map_on_request_adds_names_that_events_do_not_give() {
    let Some(_turn) = privileged() else { return };
    let workload = start("9.0", "async");
    let without = sample(sample_pid(workload.pid()), SAMPLES);
    assert_eq!(names_of_map(&without), BTreeSet::new());

    let mut session = begin(&workload);
    await_map(&workload);
    let names = until("a sample of code that the map alone names", || {
        let profile = session.take_profile(Duration::from_secs(1)).unwrap();
        let names: BTreeSet<_> = names_of_map(&profile).into_iter().map(str::to_owned).collect();
        (!names.is_empty()).then_some(names)
    });
    println!("{names:?}");
    session.stop().unwrap();
}

#[test]
fn a_map_on_request_is_read_and_gone_afterwards() {
    let Some(_turn) = privileged() else { return };
    let workload = start("9.0", "dynamic");
    let mut session = begin(&workload);
    await_map(&workload);
    session.wait(Some(Duration::from_secs(2)));
    let named = fs::read_to_string(map_of(&workload)).unwrap();
    let profile = session.stop().unwrap();
    assert!(!fs::exists(map_of(&workload)).unwrap());
    let ledger = profile.ledger();
    assert!(ledger.adds_up() && ledger.malformed_jit_entries == 0, "{ledger:?}");
    assert!(ledger.named.contains_key(&SymbolSource::RuntimeEvents), "{ledger:?}");
    assert!(named.contains("dynamicClass::made;method"), "{named}");
}

#[test]
fn a_session_that_is_dropped_leaves_no_map() {
    let Some(_turn) = privileged() else { return };
    let workload = start("9.0", "cpu");
    let session = begin(&workload);
    await_map(&workload);
    drop(session);
    assert!(!fs::exists(map_of(&workload)).unwrap());
    // It is off: what is compiled now is not written.
    let again = begin(&workload);
    await_map(&workload);
    drop(again);
    assert!(!fs::exists(map_of(&workload)).unwrap());
}

#[test]
fn a_map_of_the_targets_own_is_read_and_stays() {
    let Some(_turn) = privileged() else { return };
    let workload = Workload::dotnet("9.0", "cpu");
    await_map(&workload);
    let mut session = begin(&workload);
    session.wait(Some(Duration::from_secs(7)));
    session.stop().unwrap();
    assert!(fs::exists(map_of(&workload)).unwrap());
}

#[test]
fn a_runtime_that_writes_no_maps_on_request_says_so() {
    let Some(_turn) = privileged() else { return };
    let workload = start("3.1", "cpu");
    let pid = workload.pid().to_string();
    let run = outcome(&mut profiler(&["-p", &pid, "-d", "7", "--dotnet-perf-map"]));
    assert!(
        run.stderr.contains(&format!("no perf map of process {pid}: its runtime is older")),
        "{}",
        run.stderr
    );
    assert!(run.stdout.contains("app!Workload.Cpu.Alpha()"), "{}", run.stderr);
    assert!(!fs::exists(map_of(&workload)).unwrap());
    let young = start("9.0", "cpu");
    let pid = young.pid().to_string();
    let run = outcome(&mut profiler(&["-p", &pid, "-d", "1", "--dotnet-perf-map"]));
    assert!(run.stderr.contains("was not sampled long enough"), "{}", run.stderr);
}
