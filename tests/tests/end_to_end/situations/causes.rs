//! Tests the findings of the situations with known causes, and counts false and missing ones.

use std::{
    env,
    process::Command,
    time::{Duration, Instant},
};

use profiler::{Profile, profile::FindingKind};
use profiler_tests::{
    DEADLINE, Workload, file, run_beside_others,
    situations::{PROCESSES, Program, SERVICES, Sampling, Situation},
    workload_path,
};

use super::{ALL, server::start_with_descendants};

const SAMPLED: Duration = Duration::from_secs(2);

/// Threads wait for a lock that is held for 3 s.
const SAMPLED_LONG: Duration = Duration::from_secs(5);

/// Seconds after which a program ends by itself.
const LIFETIME: &str = "600";

/// The findings of a program in the end, and whether they are right.
struct Outcome {
    situation: &'static Situation,
    findings: String,
    is_missing: bool,
    is_false: bool,
}

#[test]
fn known_causes_are_found_and_no_other_ones() {
    let Some(_lock) = run_beside_others() else { return };
    // Their threads wait, so that they can do so at the same time.
    let mut outcomes: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = SERVICES.iter().map(|situation| scope.spawn(|| outcome(situation))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    if env::var_os(ALL).is_some() {
        outcomes.extend(PROCESSES.iter().map(outcome));
    }
    for Outcome { situation, findings, is_missing, is_false } in &outcomes {
        let result = match (is_missing, is_false) {
            (false, false) => "right",
            (true, _) => "missing",
            (false, true) => "false",
        };
        println!("{result:8} {} {findings}", situation.row());
    }
    let missing = outcomes.iter().filter(|outcome| outcome.is_missing).count();
    let false_ones = outcomes.iter().filter(|outcome| outcome.is_false).count();
    println!("{} situations, {false_ones} with a false cause, {missing} with a missing one", outcomes.len());
    assert_eq!((false_ones, missing), (0, 0));
}

/// Samples a program until it has its finding, up to a deadline, each time for longer: a busy machine leaves it few samples of CPUs. One
/// without a problem is sampled once.
fn outcome(situation: &'static Situation) -> Outcome {
    let workload = start(situation);
    let mut session = start_with_descendants(workload.pid(), |builder| match situation.sampling {
        Sampling::Cpus => builder,
        Sampling::Waits | Sampling::LongWaits => builder.wall_clock_hz(49).cpu_samples(false),
    });
    let mut time = if situation.sampling == Sampling::LongWaits { SAMPLED_LONG } else { SAMPLED };
    let deadline = Instant::now() + DEADLINE;
    loop {
        let profile = session.take_profile(time).unwrap();
        assert!(profile.ledger().adds_up(), "{}: {:?}", situation.text, profile.ledger());
        let (is_missing, is_false) = compare(situation, &profile);
        if !is_missing || Instant::now() >= deadline {
            let findings = profile.findings().iter().map(ToString::to_string);
            return Outcome {
                situation,
                findings: findings.collect::<Vec<_>>().join("; "),
                is_missing,
                is_false,
            };
        }
        time *= 2;
    }
}

fn start(situation: &Situation) -> Workload {
    let mut command = match situation.program {
        Program::C(program, arguments) => {
            let mut command = Command::new(workload_path(program));
            command.arg(LIFETIME).args(arguments);
            command
        }
        Program::Dotnet(mode) => Workload::dotnet_program_command("9.0", mode),
        Program::Python(source, arguments) => {
            let mut command = Command::new("python3");
            command.arg(file(&format!("workloads/{source}"))).arg(LIFETIME).args(arguments);
            command
        }
        Program::Java(source) => {
            let mut command = Command::new("java");
            command.arg(file(&format!("workloads/{source}"))).arg(LIFETIME);
            command
        }
    };
    Workload::run(&mut command)
}

/// Whether the finding of a situation is missing, and whether there is another one. That of the run queue depends on what else runs on
/// the machine, and a virtual machine compiles when it starts.
fn compare(situation: &Situation, profile: &Profile) -> (bool, bool) {
    let is_expected = |kind: FindingKind, evidence: &str| {
        situation.finding.is_some_and(|(expected, texts)| {
            kind == expected && texts.iter().all(|text| evidence.contains(text))
        })
    };
    let is_of_machine = |kind| matches!(kind, FindingKind::RunQueue | FindingKind::Compilation);
    let findings = || profile.findings().iter();
    let is_found = findings().any(|finding| is_expected(finding.kind, &finding.evidence));
    let is_false = findings()
        .any(|finding| !is_of_machine(finding.kind) && !is_expected(finding.kind, &finding.evidence));
    (situation.finding.is_some() && !is_found, is_false)
}
