//! Tests .NET runtimes that exit, disconnect or send wrong data during an EventPipe session, and interrupted
//! profilers.

use std::{collections::BTreeMap, fs, process::Stdio, time::Duration};

use profiler::{
    DotnetNames,
    profile::{Reason, SymbolSource},
};
use profiler_tests::{
    Workload, profiler, run_beside_others, run_command, sample, sample_pid, start_sampling, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};

const VERSIONS: [&str; 2] = ["3.1", "9.0"];

fn start(version: &str, mode: &str) -> Workload {
    Workload::run(Workload::dotnet_command(version, mode).env("PERF_MAP", "0"))
}

fn send(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
}

/// Number of context switches of a process, as a measure of its progress.
fn context_switches(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let texts = tasks.filter_map(|task| fs::read_to_string(task.path().join("status")).ok());
    let counts = texts.filter_map(|text| {
        text.lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?
            .trim()
            .parse::<u64>()
            .ok()
    });
    counts.sum()
}

#[test]
fn a_profiler_that_is_interrupted_at_any_time_leaves_no_session_and_no_file() {
    let Some(_lock) = run_beside_others() else { return };
    for version in VERSIONS {
        for moment in 0..8 {
            // A process for each moment: .NET Core 3.1 can crash when a session follows another one (docs/dotnet.md).
            let workload = start(version, "dynamic");
            let map = format!("/tmp/perf-{}.map", workload.pid());
            let before = workload.sockets();
            let pid = workload.pid().to_string();
            let mut run =
                start_sampling(profiler(&["-q", "-p", &pid, "--dotnet-perf-map"]).stdout(Stdio::null()));
            let begin = context_switches(run.id());
            wait_until("the moment", || {
                assert_eq!(run.try_wait().unwrap(), None, "{version} {moment}: not interrupted yet");
                (context_switches(run.id()) >= begin + 12 * moment).then_some(())
            });
            send(run.id(), Signal::INT);
            let outcome = run.wait_with_output().unwrap();
            assert!([Some(0), Some(3)].contains(&outcome.status.code()), "{version} {moment}: {outcome:?}");
            assert!(!fs::exists(&map).unwrap(), "{version} {moment}");
            wait_until("the end of the session", || (workload.sockets() == before).then_some(()));
        }
    }
}

#[test]
fn a_runtime_that_is_killed_during_rundown_costs_only_symbols() {
    let Some(_lock) = run_beside_others() else { return };
    for version in VERSIONS {
        let workload = start(version, "dynamic");
        let before = workload.sockets();
        let builder = sample_pid(workload.pid()).dotnet_names(DotnetNames::Events);
        let mut session = builder.build().unwrap().start().unwrap();
        wait_until("an EventPipe session", || (workload.sockets() > before).then_some(()));
        send(workload.pid(), Signal::KILL);
        session.wait(None);
        let profile = session.stop().unwrap();
        assert!(
            profile.ledger().adds_up() && profile.first_ledger().lost_total() == 0,
            "{:?}",
            profile.ledger()
        );
    }
}

#[test]
fn a_runtime_is_not_contacted_on_request() {
    let Some(_lock) = run_beside_others() else { return };
    for version in VERSIONS {
        let workload = start(version, "dynamic");
        let before = workload.sockets();
        let mut session = sample_pid(workload.pid()).dotnet_events(false).build().unwrap().start().unwrap();
        // The listener of a runtime starts at the first sample.
        let interval = session.take_profile(Duration::from_secs(1)).unwrap();
        assert_eq!(workload.sockets(), before, "{version}");
        let profile = session.stop().unwrap();
        for ledger in [interval.first_ledger(), profile.first_ledger()] {
            assert!(!ledger.symbolized.contains_key(&SymbolSource::RuntimeEvents), "{version}: {ledger:?}");
        }
        let ledger = interval.first_ledger();
        let has_no_name = ledger.unsymbolized.keys().any(|frames| frames.reason == Reason::NoDotnetMap);
        let has_memory = ledger.symbolized.contains_key(&SymbolSource::RuntimeMemory);
        assert_eq!(has_memory, version == "9.0", "{ledger:?}");
        assert!(has_no_name || has_memory, "{ledger:?}");
    }
}

#[test]
fn a_runtime_without_diagnostics_and_data_contracts_is_profiled_without_its_symbols() {
    let Some(_lock) = run_beside_others() else { return };
    // Diagnostics are disabled, or the socket cannot be created, as in a container with a read-only root.
    for (version, variable, value) in [
        ("3.1", "COMPlus_EnableDiagnostics", "0"),
        ("8.0", "DOTNET_EnableDiagnostics", "0"),
        ("8.0", "TMPDIR", "/proc"),
    ] {
        let mut command = Workload::dotnet_command(version, "cpu");
        let workload = Workload::run(command.env("PERF_MAP", "0").env(variable, value));
        let profile = sample(sample_pid(workload.pid()), 1_000);
        let ledger = profile.first_ledger();
        assert!(
            ledger.adds_up() && !ledger.symbolized.contains_key(&SymbolSource::RuntimeEvents),
            "{ledger:?}"
        );
        let unnamed = ledger.unsymbolized.iter().filter(|(frames, _)| frames.reason == Reason::NoDotnetMap);
        assert!(unnamed.map(|(_, count)| count).sum::<u64>() > 1_000, "{version} {variable}: {ledger:?}");
    }
}

/// Number of samples of each dynamic method.
fn dynamic_methods(folded: &str) -> BTreeMap<&str, u64> {
    let mut counts = BTreeMap::new();
    for (stack, count) in folded.lines().filter_map(|line| line.rsplit_once(' ')) {
        for name in stack.split(';').filter(|name| name.starts_with("[dynamic method] made")) {
            *counts.entry(name).or_default() += count.parse::<u64>().unwrap();
        }
    }
    counts
}

#[test]
fn a_replay_has_the_symbols_from_runtime_events() {
    let Some(_lock) = run_beside_others() else { return };
    for version in VERSIONS {
        let workload = start(version, "dynamic");
        let pid = workload.pid().to_string();
        // How many have samples depends on how busy the machine is: none, while the process still compiles itself.
        let (folder, live) = wait_until("samples of dynamic methods", || {
            let folder = tempfile::tempdir().unwrap();
            let capture = folder.path().join("capture");
            let capture = capture.to_str().unwrap();
            let live =
                run_command(&mut profiler(&["-F", "999", "-d", "2", "-p", &pid, "--capture", capture]));
            (!dynamic_methods(&live.stdout).is_empty()).then_some((folder, live))
        });
        let capture = folder.path().join("capture");
        let replay = run_command(&mut profiler(&["replay", capture.to_str().unwrap()]));
        assert_eq!(dynamic_methods(&live.stdout), dynamic_methods(&replay.stdout), "{version}");
    }
}
