//! The facts of findings: threads, share, place, time, certainty and what shows them.

use profiler_addresses::ElfAddress;
use profiler_profile::{
    Certainty, Event, Finding, FindingFacts, FindingKind, Frame, FrameKind, Header, Incident, Place, Profile,
    ProfileBuilder, Proof, RuntimeEvent, RuntimeEventKind, Sample, Selection, Share, SourceLocation,
    StackEnd, SymbolSource, Symbolization, ThreadState, Whole,
};

use super::{HZ, NS_PER_S, POOL_ROOT, Threads};
use crate::analyze;

const BLOCKED: ThreadState = ThreadState::Blocked;
const WAIT: &str = "System.Private.CoreLib!System.Threading.Tasks.Task.InternalWaitCore(int,CancellationToken);\
                    pthread_cond_wait@libc.so.6";

fn only(mut threads: Threads) -> Finding {
    let findings = threads.findings();
    let [finding] = &findings[..] else { panic!("one finding: {findings:?}") };
    finding.clone()
}

#[test]
fn a_convoy_has_its_threads_its_share_and_its_method() {
    let mut threads = Threads::wall();
    threads.add_queue(4, "main;append;pthread_mutex_lock@libc.so.6");
    threads.add(1, BLOCKED, "main;run_loop;epoll_wait");
    let FindingFacts { threads_at_a_time, share, place, certainty, selection, .. } = only(threads).facts;
    assert_eq!(threads_at_a_time, Some(3.92));
    assert_eq!(share, Some(Share { percent: 98.0, of: Whole::TimeOfThreadsWithWork }));
    assert_eq!(place, Some(Place { method: "append".to_owned(), location: None }));
    assert_eq!(certainty, Certainty::Likely(Proof::LockOwner));
    let expected = Selection {
        begin_ns: 0,
        end_ns: 98 * NS_PER_S / HZ,
        threads: vec![7, 8, 9, 10],
        runtime_events: None,
        search: Some("append".to_owned()),
    };
    assert_eq!(selection, expected);
}

#[test]
fn a_convoy_that_begins_within_the_measurement_has_its_begin() {
    let mut threads = Threads::wall();
    for _ in 0..4 {
        let parts = [
            (0, 40, Some(ThreadState::OnCpu), "main;append"),
            (4, 60, Some(BLOCKED), "main;append;pthread_mutex_lock@libc.so.6"),
        ];
        threads.add_thread("worker", &parts);
    }
    // Threads that wait to the end without the lock are stuck: their wait is the whole of the evidence.
    let facts = only(threads).facts;
    assert_eq!((facts.since_ns, facts.selection.begin_ns), (Some(4 * NS_PER_S), 4 * NS_PER_S));
    assert_eq!(facts.selection.end_ns, 10 * NS_PER_S);
}

#[test]
fn a_held_lock_has_its_owner_as_the_thread_of_the_cause() {
    let enter = "System.Private.CoreLib!System.Threading.Monitor.Enter(object);pthread_cond_wait@libc.so.6";
    let mut threads = Threads::wall();
    threads.add(4, BLOCKED, &format!("start_thread;shop!Shop.Price.Compute();{enter}"));
    threads.add(1, ThreadState::OnCpu, "start_thread;shop!Shop.Price.Compute()");
    let finding = only(threads);
    assert_eq!(finding.kind, FindingKind::HeldLock);
    assert_eq!((finding.facts.threads, finding.facts.cause_thread), (Some(4), Some(11)));
    assert_eq!(finding.facts.selection.threads, [7, 8, 9, 10, 11]);
    assert_eq!(finding.facts.certainty, Certainty::Likely(Proof::LockOwner));
}

fn starved() -> Threads {
    let mut threads = Threads::wall();
    threads.add(3, BLOCKED, &format!("{POOL_ROOT};shop!Shop.Cart.Get();{WAIT}"));
    threads.add(1, ThreadState::OnCpu, &format!("{POOL_ROOT};shop!Shop.Cart.Put()"));
    threads
}

#[test]
fn starvation_is_proven_by_the_events_of_the_pool() {
    let facts = only(starved()).facts;
    assert_eq!((facts.threads, facts.processes), (Some(3), vec![7]));
    assert_eq!(facts.share, Some(Share { percent: 75.0, of: Whole::PoolWorkers }));
    assert_eq!(facts.certainty, Certainty::Likely(Proof::PoolAdjustments));
    let mut threads = starved();
    let [name, field, reason] =
        ["Provider/Adjustment", "Reason", "Starvation"].map(|text| threads.builder.string(text));
    threads.builder.add_runtime_event(RuntimeEvent {
        time_ns: NS_PER_S,
        duration_ns: 0,
        process: threads.process,
        thread: None,
        kind: RuntimeEventKind::PoolAdjustment,
        name,
        stack: None,
        fields: [profiler_profile::EventField {
            name: field,
            value: profiler_profile::FieldValue::Text(reason),
        }]
        .into(),
    });
    assert_eq!(only(threads).facts.certainty, Certainty::Proven);
}

/// Ten seconds in which a method that is compiled to two lines waits for files, most of the time in the second one.
fn at_files(incident: Option<Incident>) -> Profile {
    let mut builder = ProfileBuilder::default();
    let event = builder.event(Event::at_frequency("wall", HZ));
    let process = builder.process(7, "shop");
    let thread = builder.thread(process, 7, "shop");
    let frame = |builder: &mut ProfileBuilder, name: &str, line: Option<u32>| {
        let (name, file) = (builder.string(name), builder.string("/src/store.c"));
        let path = if line.is_some() { "/app/shop" } else { "/lib/libc.so.6" };
        let module = Some(builder.module(path, &[]));
        builder.frame(Frame {
            name,
            kind: FrameKind::Native,
            module,
            address: ElfAddress(0),
            location: line.map(|line| SourceLocation { file, line }),
            symbolization: Symbolization::Symbol(SymbolSource::SymbolTable),
        })
    };
    for (second, line) in [(0, 12), (2, 14), (6, 14)] {
        let frames = [("fsync", None), ("flush_log", Some(line)), ("main", Some(3))];
        let frames = frames.map(|(name, line)| frame(&mut builder, name, line)).to_vec();
        let stack = builder.stack(frames, StackEnd::Root);
        let (time_ns, state) = (second * NS_PER_S, Some(ThreadState::Disk));
        let value = if second == 0 { 20 } else { 40 };
        builder.add_sample(Sample { time_ns, cpu: 0, thread, stack, event, state, value });
    }
    let mut profile = builder.finish(Header { duration_ns: 10 * NS_PER_S, incident, ..Header::default() });
    analyze(&mut profile);
    profile
}

#[test]
fn a_place_has_the_line_that_most_of_the_evidence_has() {
    let profile = at_files(None);
    let [finding] = profile.findings() else { panic!("{:?}", profile.findings()) };
    let place = finding.facts.place.clone().unwrap();
    assert_eq!((place.method.as_str(), place.location), ("flush_log", Some(("/src/store.c".to_owned(), 14))));
}

#[test]
fn times_of_a_finding_on_an_incident_are_those_of_the_whole_profile() {
    let since_ns = 6 * NS_PER_S;
    let profile = at_files(Some(Incident { since_ns, time_ns: 8 * NS_PER_S, ..Incident::default() }));
    let [finding] = profile.findings() else { panic!("{:?}", profile.findings()) };
    let Selection { begin_ns, end_ns, .. } = finding.facts.selection;
    assert_eq!((begin_ns, end_ns), (since_ns, 10 * NS_PER_S));
}
