//! Tests findings on programs from packages, idle and under load: a healthy program has none.

mod causes;
mod load;
mod programs;
mod server;

use std::{
    collections::BTreeSet,
    env,
    time::{Duration, Instant},
};

use profiler::{Profile, Session, profile::FindingKind};
use profiler_tests::{DEADLINE, run_beside_others, wait_until};

use self::{
    load::Load,
    programs::{PACKAGED, PRESENT, Program, Requests},
    server::{Server, start_with_descendants},
};

/// Adds the programs that `cargo xtask prove` installs.
const ALL: &str = "PROFILER_SITUATIONS";

const SAMPLED: Duration = Duration::from_secs(4);

/// The least share of the wall-clock samples of an idle server that are those of idle threads, percent.
const MIN_IDLE_PERCENT: f64 = 95.0;

/// What a program does while it is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Situation {
    Idle,
    Loaded,
}

#[test]
fn healthy_programs_have_no_finding() {
    let Some(_lock) = run_beside_others() else { return };
    let packaged: &[Program] = if env::var_os(ALL).is_some() { &PACKAGED } else { &[] };
    let (mut situations, mut false_ones, mut busy_ones) = (0, Vec::new(), Vec::new());
    for program in PRESENT.iter().chain(packaged) {
        let server = Server::start(program);
        // A program without requests does the same in both.
        let situations_of_program: &[_] = match program.requests {
            Requests::None => &[Situation::Idle],
            _ => &[Situation::Idle, Situation::Loaded],
        };
        for situation in situations_of_program.iter().copied() {
            let (found, idle) = findings(&server, program, situation);
            let shown = if found.is_empty() { "none" } else { &found };
            println!("{:12} {situation:?}: {idle:.1} % idle, {shown}", program.name);
            situations += 1;
            if !found.is_empty() {
                false_ones.push(format!("{} {situation:?}: {found}", program.name));
            }
            if situation == Situation::Idle && is_server(program) && idle < MIN_IDLE_PERCENT {
                busy_ones.push(format!("{}: {idle:.1} % idle", program.name));
            }
        }
    }
    println!("{situations} situations, {} with a false finding", false_ones.len());
    assert!(false_ones.is_empty(), "{false_ones:#?}");
    assert!(busy_ones.is_empty(), "{busy_ones:#?}");
}

/// The findings on a program in a situation, but those of the run queue, which depend on what else runs on the machine; and the share of
/// wall-clock samples of idle threads, percent. An idle server is sampled until its share is large enough, up to a deadline: the first
/// stacks are from before its unwind tables, and a busy machine reads few of its polls.
fn findings(server: &Server, program: &Program, situation: Situation) -> (String, f64) {
    let _load = match situation {
        Situation::Idle => None,
        Situation::Loaded => Some(Load::start(program, server)),
    };
    let mut session = start_with_descendants(server.pid(), |builder| builder.wall_clock_hz(49));
    let must_be_idle = situation == Situation::Idle && is_server(program);
    let (mut found, deadline) = (BTreeSet::new(), Instant::now() + DEADLINE);
    loop {
        let profile = settled_profile(&mut session);
        assert!(profile.ledger().adds_up(), "{}: {:?}", program.name, profile.ledger());
        let findings = profile.findings().iter().filter(|finding| finding.kind != FindingKind::RunQueue);
        found.extend(findings.map(ToString::to_string));
        let idle = idle_percent(&profile);
        if !must_be_idle || idle >= MIN_IDLE_PERCENT || Instant::now() >= deadline {
            return (Vec::from_iter(found).join("; "), idle);
        }
    }
}

fn is_server(program: &Program) -> bool {
    !matches!(program.requests, Requests::None)
}

fn idle_percent(profile: &Profile) -> f64 {
    let wall = profile.event_ids().find(|event| profile.event(*event).name == "wall").unwrap();
    let ledger = &profile.ledger().events[wall.index()];
    if ledger.reported == 0 { 0.0 } else { 100.0 * ledger.idle as f64 / ledger.reported as f64 }
}

/// A profile of a program that no longer starts: a virtual machine compiles much in its first seconds.
fn settled_profile(session: &mut Session) -> Profile {
    wait_until("the end of the start", || {
        let profile = session.take_profile(SAMPLED).unwrap();
        let compiles = profile.findings().iter().any(|finding| finding.kind == FindingKind::Compilation);
        (!compiles).then_some(profile)
    })
}
