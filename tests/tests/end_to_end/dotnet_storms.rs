//! Tests the numbers of runtime events where a .NET program makes too many to keep, with a workload that counts them itself.

use profiler::{
    EventSet, Profile,
    profile::{EventTotals, FindingKind, RuntimeEventKind},
};
use profiler_tests::{Workload, run_beside_others, sample_pid};

use super::dotnet_events::{await_sessions, events, text};

const PROGRAMS: [&str; 3] = ["3.1", "8.0", "9.0"];

/// Exceptions of the rare type among the others.
const RARE_EXCEPTIONS: usize = 3;

/// What the workload made.
struct Storm {
    exceptions: u64,
    collections: u64,
}

/// The profile of a storm that begins once all event sessions are open.
fn profile_of_storm(program: &str, mode: &str) -> (Profile, Storm) {
    let mut workload = Workload::dotnet_program(program, mode);
    let before = workload.sockets();
    let builder = sample_pid(workload.pid()).runtime_events(EventSet::DEFAULT.iter().copied());
    let session = builder.build().unwrap().start().unwrap();
    await_sessions(&workload, before);
    workload.write_line("go");
    let line = workload.wait_for("storm ");
    let numbers: Vec<u64> = line.split_whitespace().map(|number| number.parse().unwrap()).collect();
    let [exceptions, collections, _milliseconds] = numbers[..] else { panic!("{line}") };
    (session.stop().unwrap(), Storm { exceptions, collections })
}

/// The total is what the workload made, or a lower bound of it where the runtime dropped events.
fn assert_total(profile: &Profile, kind: RuntimeEventKind, made: u64, what: &str) -> EventTotals {
    let totals = profile.runtime_event_totals(None, kind);
    let dropped = profile.ledger().dropped_runtime_events;
    println!("{what}: made {made}, {totals:?}, dropped {dropped}");
    if totals.is_lower_bound {
        assert!(totals.count <= made && dropped > 0, "{what}: {totals:?} of {made}");
    } else {
        assert_eq!(totals.count, made, "{what}: {totals:?}, dropped {dropped}");
    }
    assert_eq!(totals.kept, events(profile, kind).len() as u64, "{what}");
    assert!(totals.kept > 0 && totals.kept < made, "{what}: {totals:?}");
    totals
}

#[test]
fn a_storm_of_exceptions_has_the_number_that_the_program_threw() {
    let Some(_lock) = run_beside_others() else { return };
    for program in PROGRAMS {
        let (profile, storm) = profile_of_storm(program, "storm-exceptions");
        let totals = assert_total(&profile, RuntimeEventKind::Exception, storm.exceptions, program);
        let exceptions = events(&profile, RuntimeEventKind::Exception);
        let is_rare = |event: &&&_| text(&profile, event, "ExceptionType") == "System.FormatException";
        let rare = exceptions.iter().filter(is_rare).count();
        assert!(rare == RARE_EXCEPTIONS || profile.ledger().dropped_runtime_events > 0, "{program}: {rare}");
        let rate = totals.count as f64 / (profile.header().duration_ns as f64 / 1e9);
        let finding = profile.findings().iter().find(|finding| finding.kind == FindingKind::Exceptions);
        let finding = finding.unwrap_or_else(|| panic!("{program}: {:?}", profile.findings()));
        let bound = if totals.is_lower_bound { "at least " } else { "" };
        let expected = format!("{bound}{rate:.0} exceptions are thrown each second");
        assert!(finding.evidence.starts_with(&expected), "{program}: {finding}, not {expected}");
    }
}

#[test]
fn a_storm_of_collections_has_the_number_that_the_program_made() {
    let Some(_lock) = run_beside_others() else { return };
    for program in PROGRAMS {
        let (profile, storm) = profile_of_storm(program, "storm-collections");
        assert_total(&profile, RuntimeEventKind::GarbageCollection, storm.collections, program);
        let suspensions = profile.runtime_event_totals(None, RuntimeEventKind::Suspension);
        assert!(suspensions.duration_ns <= profile.header().duration_ns, "{program}: {suspensions:?}");
    }
}
