//! Tests the events of .NET runtimes with a workload that makes a known number of each.

use std::{
    collections::BTreeMap,
    fs,
    process::Child,
    time::{Duration, Instant},
};

use profiler::{
    Builder, EventSet, Profile, Session,
    profile::{FieldValue, RuntimeEvent, RuntimeEventKind},
};
use profiler_tests::{
    Workload, profiler, run_beside_others, run_command, sample_pid, start_sampling, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};

/// The core library of the program with .NET 10 lacks `GC.Collect(int)`.
const PROGRAMS: [&str; 3] = ["3.1", "8.0", "9.0"];

/// What the workload makes: collections, exceptions, waits for a lock.
const COLLECTIONS: u64 = 9;
const EXCEPTIONS: usize = 5;
const ORDERS: i64 = 7;
const CONTENTIONS: usize = 3;

/// A session of the workload, up to the moment at which the runtime has opened all event sessions.
struct Measurement {
    workload: Workload,
    sockets_before: usize,
    session: Session,
}

impl Measurement {
    /// With the events that are requested.
    fn start(program: &str, request: impl FnOnce(Builder) -> Builder) -> Self {
        let workload = Workload::dotnet_program(program, "events");
        let sockets_before = workload.sockets();
        let session = request(sample_pid(workload.pid())).build().unwrap().start().unwrap();
        await_sessions(&workload, sockets_before);
        Self { workload, sockets_before, session }
    }

    /// Lets the workload make its events.
    fn make_events(&mut self) -> MadeEvents {
        self.workload.write_line("go");
        MadeEvents::await_from(&mut self.workload)
    }
}

fn default_sets(builder: Builder) -> Builder {
    builder.runtime_events(EventSet::DEFAULT.iter().copied())
}

/// What the workload made.
struct MadeEvents {
    /// The thread that owns the lock.
    owner: u32,
    /// The thread that waits for it.
    waiter: u32,
    /// By generation.
    collections: BTreeMap<u64, u64>,
}

impl MadeEvents {
    fn await_from(workload: &mut Workload) -> Self {
        let line = workload.wait_for("done ");
        let numbers: Vec<u32> = line.split_whitespace().map(|number| number.parse().unwrap()).collect();
        let [owner, waiter, counts @ ..] = &numbers[..] else { panic!("{line}") };
        let collections: BTreeMap<u64, u64> = (0..).zip(counts.iter().map(|count| (*count).into())).collect();
        assert_eq!(collections.values().sum::<u64>(), COLLECTIONS, "{line}");
        Self { owner: *owner, waiter: *waiter, collections }
    }
}

/// Waits until the runtime has opened all sessions: their number does not change any more. A runtime that writes a rundown
/// opens no session meanwhile, so that only checks count at which none of its threads runs.
pub(crate) fn await_sessions(workload: &Workload, before: usize) {
    const STEADY_CHECKS: usize = 200;
    /// That of the methods, and that of the events.
    const LEAST_SESSIONS: usize = 2;
    let (mut last, mut steady) = (before, 0);
    wait_until("open sessions", || {
        let now = workload.sockets();
        if now < before + LEAST_SESSIONS || now != last {
            steady = 0;
        } else if are_asleep(workload) {
            steady += 1;
        }
        last = now;
        (steady >= STEADY_CHECKS).then_some(())
    });
}

/// Whether no thread of a process runs or waits for a CPU.
fn are_asleep(workload: &Workload) -> bool {
    let state = |tid| {
        let stat = fs::read_to_string(format!("/proc/{}/task/{tid}/stat", workload.pid())).ok()?;
        stat.rsplit(") ").next()?.chars().next()
    };
    workload.tids().into_iter().filter_map(state).all(|state| state != 'R')
}

/// Ends sampling.
pub(crate) fn interrupt(run: &Child) {
    kill_process(Pid::from_child(run), Signal::INT).unwrap();
}

pub(crate) fn events(profile: &Profile, kind: RuntimeEventKind) -> Vec<&RuntimeEvent> {
    profile.runtime_events().iter().filter(|event| event.kind == kind).collect()
}

fn number(profile: &Profile, event: &RuntimeEvent, field: &str) -> Option<u64> {
    match event.field(profile, field) {
        Some(FieldValue::Unsigned(number)) => Some(number),
        _ => None,
    }
}

pub(crate) fn text<'a>(profile: &'a Profile, event: &RuntimeEvent, field: &str) -> &'a str {
    match event.field(profile, field) {
        Some(FieldValue::Text(text)) => profile.string(text),
        other => panic!("{field} of {} is {other:?}", profile.string(event.name)),
    }
}

fn tid(profile: &Profile, event: &RuntimeEvent) -> Option<u32> {
    event.thread.map(|thread| profile.thread(thread).tid)
}

/// The collections by generation. All are requested by the workload.
fn collections(profiles: &[&Profile]) -> BTreeMap<u64, u64> {
    let mut counts = BTreeMap::new();
    for profile in profiles {
        for event in events(profile, RuntimeEventKind::GarbageCollection) {
            assert_eq!(text(profile, event, "Reason"), "Induced");
            *counts.entry(number(profile, event, "Depth").unwrap()).or_default() += 1;
        }
    }
    counts
}

/// The exceptions of the workload.
fn exceptions(profile: &Profile) -> Vec<&RuntimeEvent> {
    let mut exceptions = events(profile, RuntimeEventKind::Exception);
    exceptions.retain(|event| text(profile, event, "ExceptionType") == "System.InvalidOperationException");
    exceptions
}

#[test]
fn each_collection_exception_and_wait_for_a_lock_is_an_event() {
    let Some(_lock) = run_beside_others() else { return };
    for program in PROGRAMS {
        let mut measurement = Measurement::start(program, default_sets);
        let made = measurement.make_events();
        let Measurement { workload, sockets_before, session } = measurement;
        let profile = session.stop().unwrap();

        assert_eq!(collections(&[&profile]), made.collections, "{program}");
        let collections = events(&profile, RuntimeEventKind::GarbageCollection);
        assert!(collections.iter().all(|event| event.duration_ns > 0), "{program}: {collections:?}");
        let sizes = events(&profile, RuntimeEventKind::HeapSizes);
        assert_eq!(sizes.len(), collections.len(), "{program}");
        assert!(sizes.iter().all(|event| number(&profile, event, "GenerationSize2").is_some()), "{program}");
        let suspensions = events(&profile, RuntimeEventKind::Suspension);
        assert!(suspensions.len() >= collections.len(), "{program}: {suspensions:?}");
        assert!(suspensions.iter().all(|event| event.duration_ns > 0), "{program}: {suspensions:?}");

        let exceptions = exceptions(&profile);
        let messages: Vec<_> =
            exceptions.iter().map(|event| text(&profile, event, "ExceptionMessage").to_owned()).collect();
        let expected: Vec<_> = (0..EXCEPTIONS).map(|index| format!("number {index}")).collect();
        assert_eq!(messages, expected, "{program}");
        for event in exceptions {
            assert_eq!(tid(&profile, event), Some(made.waiter), "{program}");
            let stack = profile.stack(event.stack.expect("the runtime captures the stack"));
            let names: Vec<_> =
                stack.frames.iter().map(|frame| profile.string(profile.frame(*frame).name)).collect();
            let is_thrower = |name: &&str| name.ends_with("Workload.Events.Throw(int)");
            let thrower = names.iter().position(is_thrower);
            let caller = names.iter().position(|name| name.contains("Workload.Events.Run("));
            assert!(thrower.is_some() && thrower < caller, "{program}: {names:?}");
        }

        let mut contentions = events(&profile, RuntimeEventKind::Contention);
        contentions.retain(|event| tid(&profile, event) == Some(made.waiter));
        assert_eq!(contentions.len(), CONTENTIONS, "{program}: {contentions:?}");
        for event in contentions {
            // The owner sleeps for 100 ms after the other thread has begun to wait.
            assert!(event.duration_ns > 50_000_000, "{program}: {event:?}");
            assert!(event.end_ns() <= profile.header().duration_ns, "{program}: {event:?}");
            // Runtimes before .NET 8 do not report the owner.
            let expected = (program != "3.1").then_some(u64::from(made.owner));
            assert_eq!(number(&profile, event, "LockOwnerThreadID"), expected, "{program}");
        }
        let ledger = profile.ledger();
        assert_eq!((ledger.dropped_runtime_events, ledger.malformed_jit_entries), (0, 0), "{program}");
        wait_until("the end of the sessions", || (workload.sockets() == sockets_before).then_some(()));
    }
}

#[test]
fn consecutive_profiles_have_each_event_once() {
    let Some(_lock) = run_beside_others() else { return };
    for program in ["3.1", "9.0"] {
        let mut measurement = Measurement::start(program, default_sets);
        measurement.workload.write_line("go");
        let mut profiles = Vec::new();
        for _ in 0..4 {
            profiles.push(measurement.session.take_profile(Duration::from_millis(150)).unwrap());
        }
        let made = MadeEvents::await_from(&mut measurement.workload);
        profiles.push(measurement.session.stop().unwrap());
        let all: Vec<_> = profiles.iter().collect();
        assert_eq!(collections(&all), made.collections, "{program}");
        assert_eq!(profiles.iter().map(|profile| exceptions(profile).len()).sum::<usize>(), EXCEPTIONS);
        for profile in &profiles {
            let is_inside = |event: &RuntimeEvent| event.time_ns <= profile.header().duration_ns;
            assert!(profile.runtime_events().iter().all(is_inside), "{program}");
        }
    }
}

#[test]
fn the_events_of_a_provider_of_the_target_have_their_fields() {
    let Some(_lock) = run_beside_others() else { return };
    for program in PROGRAMS {
        for (provider, expected) in [("Workload-Orders:2", ORDERS), ("Workload-Orders:4:5", 0), ("Other", 0)]
        {
            let request = |builder: Builder| builder.event_provider(provider.parse().unwrap());
            let mut measurement = Measurement::start(program, request);
            let made = measurement.make_events();
            let profile = measurement.session.stop().unwrap();
            let orders = events(&profile, RuntimeEventKind::Other);
            let described: Vec<_> = orders
                .iter()
                .map(|event| {
                    assert_eq!(profile.string(event.name), "Workload-Orders/Placed", "{program}");
                    assert_eq!(tid(&profile, event), Some(made.waiter), "{program}");
                    (event.field(&profile, "order"), text(&profile, event, "customer").to_owned())
                })
                .collect();
            let expected: Vec<_> = (0..expected)
                .map(|order| (Some(FieldValue::Signed(order)), format!("customer {order}")))
                .collect();
            assert_eq!(described, expected, "{program} {provider}");
            assert_eq!(
                profile.runtime_events().len(),
                orders.len(),
                "{program}: no other event is requested"
            );
        }
    }
}

#[test]
fn counters_have_a_value_each_second() {
    const LEAST_VALUES: u64 = 2;
    let Some(_lock) = run_beside_others() else { return };
    for program in ["3.1", "9.0"] {
        let workload = Workload::dotnet_program(program, "events");
        let builder = sample_pid(workload.pid()).runtime_events([EventSet::Counters]);
        let mut session = builder.build().unwrap().start().unwrap();
        let (begin, mut values) = (Instant::now(), 0);
        wait_until("values of counters", || {
            let profile = session.take_profile(Duration::from_secs(1)).unwrap();
            let counters = events(&profile, RuntimeEventKind::Counter);
            assert_eq!(
                profile.runtime_events().len(),
                counters.len(),
                "{program}: no other event of the provider"
            );
            for event in counters.into_iter().filter(|event| text(&profile, event, "Name") == "cpu-usage") {
                let real = |field| match event.field(&profile, field) {
                    Some(FieldValue::Real(real)) => real,
                    other => panic!("{program}: {field} is {other:?} in {event:?}"),
                };
                let _mean = real("Mean");
                // .NET Core 3.1 starts a timer for each session that is opened: the values of the others follow at once.
                values += u64::from(real("IntervalSec") > 0.5);
            }
            (values >= LEAST_VALUES).then_some(())
        });
        let most = begin.elapsed().as_secs() + 2;
        assert!(values <= most, "{program}: {values} values, not {most}");
    }
}

#[test]
fn allocations_and_compilations_are_recorded_on_request() {
    let Some(_lock) = run_beside_others() else { return };
    for program in ["3.1", "9.0", "single-file-10.0"] {
        let sets = [EventSet::Allocations, EventSet::Compilations, EventSet::ModuleLoads];
        for (mode, kind) in [("gc", RuntimeEventKind::Allocation), ("dynamic", RuntimeEventKind::Compilation)]
        {
            let workload = Workload::dotnet_program(program, mode);
            let builder = sample_pid(workload.pid()).runtime_events(sets);
            let mut session = builder.build().unwrap().start().unwrap();
            let profile = wait_until("events", || {
                let profile = session.take_profile(Duration::from_secs(1)).unwrap();
                (events(&profile, kind).len() > 20).then_some(profile)
            });
            let found = events(&profile, kind);
            let is_known = |event: &&&RuntimeEvent| match kind {
                RuntimeEventKind::Allocation => text(&profile, event, "TypeName") == "System.Byte[]",
                _ => event.duration_ns > 0 && !text(&profile, event, "MethodName").is_empty(),
            };
            let known = found.iter().filter(is_known).count();
            assert!(known * 2 > found.len(), "{program} {mode}: {known} of {}", found.len());
            assert!(
                events(&profile, RuntimeEventKind::GarbageCollection).is_empty(),
                "they are not requested"
            );
        }
    }
}

#[test]
fn the_summary_counts_events_and_says_where_there_is_no_runtime() {
    let Some(_lock) = run_beside_others() else { return };
    let mut workload = Workload::dotnet_program("9.0", "events");
    let before = workload.sockets();
    let pid = workload.pid().to_string();
    let run = start_sampling(&mut profiler(&["-p", &pid, "--events", "default"]));
    await_sessions(&workload, before);
    workload.write_line("go");
    let full = MadeEvents::await_from(&mut workload).collections[&2];
    interrupt(&run);
    let output = run.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    let line = stderr.lines().find(|line| line.starts_with("profiler: events: ")).expect("a line of events");
    let expected = format!("profiler: events: {COLLECTIONS} garbage collections ({full} of generation 2); ");
    assert!(line.starts_with(&expected), "{line}");
    assert!(line.contains(" ms suspended") && line.contains("; 5 exceptions"), "{line}");
    assert!(line.contains("; 3 lock contentions (") && line.ends_with(" ms)"), "{line}");

    let native = Workload::start("shares");
    let pid = native.pid().to_string();
    let run = run_command(&mut profiler(&["-p", &pid, "-d", "0.5", "--events", "default"]));
    assert_eq!(run.code(), 0, "{}", run.stderr);
    assert!(run.stderr.contains("no .NET runtime"), "{}", run.stderr);
}
