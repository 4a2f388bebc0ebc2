//! Tests that a process which tries to block its profiler delays no output and costs no symbols of others.

use std::time::{Duration, Instant};

use profiler::{
    Profile, Profiler, Target,
    profile::{Ledger, Reason},
};
use profiler_tests::{FoldedStacks, Workload, share_privileged, workload_path};

/// From the end of sampling to the profile.
const MAX_DELAY: Duration = Duration::from_secs(3);

const SAMPLED: Duration = Duration::from_millis(1500);

/// Starts a process with an attack, and an honest one with a perf map.
fn start(attack: &str, directory: &tempfile::TempDir) -> (Workload, Workload) {
    let mut command = std::process::Command::new(workload_path("attacks"));
    let attacker = Workload::run(command.args(["60", attack]).env("TMPDIR", directory.path()));
    (attacker, Workload::start_with("jit", &["60", "lower"]))
}

/// A profile of both, and the time from the end of sampling to it.
fn sample(attacker: &Workload, victim: &Workload) -> (Profile, Duration) {
    let target = Target::Pids(vec![attacker.pid(), victim.pid()]);
    let mut session = Profiler::builder().target(target).frequency_hz(997).build().unwrap().start().unwrap();
    session.wait(Some(SAMPLED));
    let begin = Instant::now();
    let profile = session.stop().unwrap();
    (profile, begin.elapsed())
}

fn unsymbolized(ledger: &Ledger, reason: Reason) -> u64 {
    ledger.unsymbolized.iter().filter(|(unnamed, _)| unnamed.reason == reason).map(|(_, count)| count).sum()
}

fn assert_harmless(attack: &str, reason: Reason) {
    let Some(_lock) = share_privileged() else { return };
    let directory = tempfile::tempdir().unwrap();
    let (attacker, victim) = start(attack, &directory);
    let (profile, delay) = sample(&attacker, &victim);
    assert!(delay < MAX_DELAY, "{attack}: {delay:?}");
    let ledger = profile.ledger();
    assert!(ledger.adds_up(), "{attack}: {ledger:?}");
    let stacks = FoldedStacks::from_profile(&profile);
    let of_attacker = stacks.count(|stack| stack.comm == "attacks");
    let blocked = unsymbolized(ledger, reason);
    assert!(of_attacker > 100 && blocked * 10 > of_attacker * 9, "{attack}: {blocked} in {ledger:?}");
    let named = |stack: &profiler_tests::FoldedStack| {
        stack.frames.iter().any(|frame| frame.contains("HotLoop") || frame.contains("ColdLoop"))
    };
    let of_victim = stacks.count(|stack| stack.comm == "jit");
    let victim_named = stacks.count(|stack| stack.comm == "jit" && named(stack));
    assert!(
        of_victim > 100 && victim_named * 100 > of_victim * 95,
        "{attack}: {victim_named} of {of_victim}"
    );
}

#[test]
fn a_lease_on_a_perf_map_delays_nothing() {
    assert_harmless("lease", Reason::NotResponding);
}

#[test]
fn a_file_system_that_does_not_answer_delays_nothing() {
    assert_harmless("fuse", Reason::NotResponding);
}

#[test]
fn descriptors_that_close_slowly_delay_nothing() {
    assert_harmless("rights", Reason::RuntimeSilent);
}

#[test]
fn a_runtime_that_never_answers_delays_nothing() {
    assert_harmless("silent", Reason::RuntimeSilent);
}

#[test]
fn an_endless_answer_delays_nothing() {
    assert_harmless("endless", Reason::RuntimeSilent);
}

#[test]
fn a_full_backlog_delays_nothing() {
    assert_harmless("backlog", Reason::RuntimeSilent);
}
