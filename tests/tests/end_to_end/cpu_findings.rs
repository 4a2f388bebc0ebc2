//! Tests findings on CPU time: programs that each spend it in one way that is not their work, and a healthy one.

use std::{ffi::OsString, time::Duration};

use profiler::{
    Profile, Profiler, Target,
    profile::{FindingKind, Sampling},
};
use profiler_tests::{
    Workload, run_beside_others, sample, sample_pid, wait_for_samples, wait_until, workload_path,
};

const SAMPLES: u64 = 1_000;

/// The findings but that of the run queue, which depends on what else runs on the machine.
fn findings(profile: &Profile) -> Vec<(FindingKind, String)> {
    let findings = profile.findings().iter().map(|finding| (finding.kind, finding.to_string()));
    findings.filter(|(kind, _)| *kind != FindingKind::RunQueue).collect()
}

/// Checks that a profile has this finding alone, with this activity. Beside programs that write much memory, the page faults of a start
/// take several times as long, and are a finding as well.
fn assert_found(what: &str, profile: &Profile, kind: FindingKind, activity: &str) {
    assert!(profile.ledger().adds_up(), "{what}: {:?}", profile.ledger());
    let mut found = findings(profile);
    found.retain(|(found, _)| *found == kind || *found != FindingKind::PageFaults);
    let [(found_kind, text)] = &found[..] else { panic!("{what}: {found:?}") };
    assert_eq!(*found_kind, kind, "{what}: {text}");
    assert!(text.contains(&format!(" % of the CPU time {activity}")), "{what}: {text}");
}

/// A profile of a .NET program that has started: it no longer compiles most of its methods.
fn sample_started(pid: u32) -> Profile {
    let mut session = sample_pid(pid).build().unwrap().start().unwrap();
    wait_until("the end of the start", || {
        wait_for_samples(&mut session, SAMPLES);
        let profile = session.take_profile(Duration::ZERO).unwrap();
        let compiles = findings(&profile).iter().any(|(kind, _)| *kind == FindingKind::Compilation);
        (!compiles).then_some(profile)
    })
}

/// Without precompiled code, the runtime compiles all that a start needs.
#[test]
fn a_dotnet_start_that_compiles_is_found() {
    const NO_TIME: &str = "0";
    let Some(_lock) = run_beside_others() else { return };
    for version in ["8.0", "9.0"] {
        let words = ["env", "PERF_MAP=0", "DOTNET_ReadyToRun=0"].map(OsString::from);
        let mut command = words.to_vec();
        command.push(workload_path("dotnet/run").into_os_string());
        command.extend([version, "cpu", NO_TIME].map(OsString::from));
        let builder = Profiler::builder().target(Target::Command(command));
        let mut session =
            builder.frequency_hz(1_999).max_overhead_percent(100.0).build().unwrap().start().unwrap();
        session.wait(None);
        let profile = session.stop().unwrap();
        assert_found(version, &profile, FindingKind::Compilation, "compiles methods (JIT)");
    }
}

#[test]
fn a_process_that_collects_garbage_is_found() {
    let Some(_lock) = run_beside_others() else { return };
    for program in ["3.1", "8.0", "9.0", "single-file-10.0"] {
        let workload = Workload::dotnet_program(program, "collect");
        let profile = sample_started(workload.pid());
        assert_found(program, &profile, FindingKind::GarbageCollection, "collects garbage");
    }
}

#[test]
fn a_process_that_spins_is_found() {
    const SPINS: &str = "spins until another thread proceeds";
    let Some(_lock) = run_beside_others() else { return };
    for program in ["9.0", "single-file-10.0"] {
        let workload = Workload::dotnet_program(program, "spin");
        let profile = sample_started(workload.pid());
        assert_found(program, &profile, FindingKind::Spinning, SPINS);
    }
    let workload = Workload::start_with("convoy", &["600", "spin"]);
    let profile = sample(sample_pid(workload.pid()), SAMPLES);
    assert_found("CPU samples", &profile, FindingKind::Spinning, SPINS);
    // Samples on a CPU are part of the event of wall-clock samples.
    let builder = sample_pid(workload.pid()).wall_clock_hz(99).cpu_samples(false);
    let profile = sample(builder, SAMPLES);
    assert_eq!(profile.first_event().sampling, Sampling::Frequency(99));
    assert_found("wall-clock samples", &profile, FindingKind::Spinning, SPINS);
}

#[test]
fn a_process_that_maps_memory_again_and_again_is_found() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start_with("teardown", &["600", "map"]);
    let profile = sample(sample_pid(workload.pid()), SAMPLES);
    assert_found("teardown", &profile, FindingKind::PageFaults, "handles page faults");
}

#[test]
fn healthy_native_programs_have_no_finding() {
    let Some(_lock) = run_beside_others() else { return };
    for program in ["shares", "chain", "syscalls"] {
        let workload = Workload::start(program);
        let profile = sample(sample_pid(workload.pid()), SAMPLES);
        assert!(profile.total_value() >= SAMPLES);
        assert_eq!(findings(&profile), [], "{program}");
    }
}
