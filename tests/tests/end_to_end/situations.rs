//! Tests findings on programs from packages, idle and under load: a healthy program has none.

mod causes;
mod load;
mod programs;
mod server;

use std::{env, time::Duration};

use profiler::{Profile, Profiler, Target, profile::FindingKind};
use profiler_tests::{run_beside_others, wait_until};

use self::{
    load::Load,
    programs::{PACKAGED, PRESENT, Program, Requests},
    server::Server,
};

/// Adds the programs that `cargo xtask prove` installs.
const ALL: &str = "PROFILER_SITUATIONS";

const SAMPLED: Duration = Duration::from_secs(4);

/// What a program does while it is sampled.
#[derive(Clone, Copy, Debug)]
enum Situation {
    Idle,
    Loaded,
}

#[test]
fn healthy_programs_have_no_finding() {
    let Some(_lock) = run_beside_others() else { return };
    let packaged: &[Program] = if env::var_os(ALL).is_some() { &PACKAGED } else { &[] };
    let (mut situations, mut false_ones) = (0, Vec::new());
    for program in PRESENT.iter().chain(packaged) {
        let server = Server::start(program);
        // A program without requests does the same in both.
        let situations_of_program: &[_] = match program.requests {
            Requests::None => &[Situation::Idle],
            _ => &[Situation::Idle, Situation::Loaded],
        };
        for situation in situations_of_program.iter().copied() {
            let found = findings(&server, program, situation);
            println!("{:12} {situation:?}: {}", program.name, if found.is_empty() { "none" } else { &found });
            situations += 1;
            if !found.is_empty() {
                false_ones.push(format!("{} {situation:?}: {found}", program.name));
            }
        }
    }
    println!("{situations} situations, {} with a false finding", false_ones.len());
    assert!(false_ones.is_empty(), "{false_ones:#?}");
}

/// The findings on a program in a situation, but that of the run queue, which depends on what else runs on the machine.
fn findings(server: &Server, program: &Program, situation: Situation) -> String {
    let _load = match situation {
        Situation::Idle => None,
        Situation::Loaded => Some(Load::start(program, server)),
    };
    let profile = sampled(server);
    assert!(profile.ledger().adds_up(), "{}: {:?}", program.name, profile.ledger());
    let findings = profile.findings().iter().filter(|finding| finding.kind != FindingKind::RunQueue);
    findings.map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// A profile of all processes of a server with samples of CPUs and of waits. A virtual machine compiles much in its first seconds.
fn sampled(server: &Server) -> Profile {
    let target = Target::Pids(server.processes());
    let builder = Profiler::builder().target(target).children(true).wall_clock_hz(49);
    let mut session = builder.build().unwrap().start().unwrap();
    wait_until("the end of the start", || {
        let profile = session.take_profile(SAMPLED).unwrap();
        let compiles = profile.findings().iter().any(|finding| finding.kind == FindingKind::Compilation);
        (!compiles).then_some(profile)
    })
}
