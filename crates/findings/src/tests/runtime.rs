//! Findings of what runtimes reported, and runtime events that are no finding.

use profiler_profile::{
    Certainty, Event, EventField, FieldValue, Finding, FindingFacts, FindingKind, Header, OmittedEvents,
    ProcessId, ProfileBuilder, RuntimeEvent, RuntimeEventKind, Sample, Share, StackId, ThreadState, Whole,
};

use super::{
    NS_PER_S, POOL_ROOT,
    pool::{IDLE, WAIT},
    stack,
};
use crate::analyze;

const NS_PER_MS: u64 = 1_000_000;

/// The stack of a method of the application that throws or waits, root first.
const SITE: &str = "main;shop!Shop.Cart.Get(int);System.Private.CoreLib!System.Int32.Parse(string)";

/// Ten seconds of the runtime events of a process.
struct Runtime {
    builder: ProfileBuilder,
    process: ProcessId,
}

impl Runtime {
    fn new() -> Self {
        let mut builder = ProfileBuilder::default();
        builder.event(Event::at_frequency("cpu-clock", 99));
        let process = builder.process(7, "shop");
        builder.thread(process, 31, "worker");
        Self { builder, process }
    }

    /// Adds an event that begins at a millisecond and takes a time in milliseconds.
    fn add(&mut self, kind: RuntimeEventKind, (at_ms, takes_ms): (u64, u64), fields: &[(&str, Field)]) {
        self.add_with_stack(kind, (at_ms, takes_ms), fields, None);
    }

    fn add_with_stack(
        &mut self,
        kind: RuntimeEventKind,
        (at_ms, takes_ms): (u64, u64),
        fields: &[(&str, Field)],
        stack: Option<StackId>,
    ) {
        let builder = &mut self.builder;
        let fields = fields.iter().map(|(name, value)| EventField {
            name: builder.string(name),
            value: match value {
                Field::Number(number) => FieldValue::Unsigned(*number),
                Field::Text(text) => FieldValue::Text(builder.string(text)),
            },
        });
        let fields = fields.collect();
        let name = builder.string("Microsoft-Windows-DotNETRuntime/Event");
        builder.add_runtime_event(RuntimeEvent {
            time_ns: at_ms * NS_PER_MS,
            duration_ns: takes_ms * NS_PER_MS,
            process: self.process,
            thread: None,
            kind,
            name,
            stack,
            fields,
        });
    }

    /// Adds events that the profile counts and does not have.
    fn omit(&mut self, kind: RuntimeEventKind, count: u64, duration_ms: u64, is_lower_bound: bool) {
        self.builder.add_omitted_events(OmittedEvents {
            time_ns: 0,
            process: self.process,
            kind,
            count,
            duration_ns: duration_ms * NS_PER_MS,
            longest_ns: (duration_ms * NS_PER_MS).checked_div(count).unwrap_or_default(),
            is_lower_bound,
        });
    }

    fn findings(self) -> Vec<Finding> {
        let mut profile = self.builder.finish(Header { duration_ns: 10 * NS_PER_S, ..Header::default() });
        analyze(&mut profile);
        assert!(profile.findings().iter().all(|finding| finding.event.is_none()));
        profile.findings().to_vec()
    }

    fn kinds(self) -> Vec<FindingKind> {
        self.findings().into_iter().map(|finding| finding.kind).collect()
    }
}

#[derive(Clone, Copy)]
enum Field {
    Number(u64),
    Text(&'static str),
}

/// Suspensions of this length for this reason, one each 100 ms.
fn suspensions(count: u64, takes_ms: u64, reason: &'static str) -> Runtime {
    let mut runtime = Runtime::new();
    for index in 0..count {
        let fields = [("Reason", Field::Text(reason))];
        runtime.add(RuntimeEventKind::Suspension, (index * 100, takes_ms), &fields);
    }
    runtime
}

#[test]
fn long_pauses_of_the_collector_are_a_finding_with_collections_by_generation() {
    let mut runtime = suspensions(30, 40, "SuspendForGC");
    runtime.add(RuntimeEventKind::Suspension, (5_000, 300), &[("Reason", Field::Text("SuspendForGCPrep"))]);
    for (generation, count) in [(0, 28), (2, 3)] {
        for _ in 0..count {
            let fields = [("Depth", Field::Number(generation))];
            runtime.add(RuntimeEventKind::GarbageCollection, (0, 40), &fields);
        }
    }
    let [finding] = &runtime.findings()[..] else { panic!("one finding") };
    assert_eq!((finding.kind, finding.value), (FindingKind::GcPauses, 1_500 * NS_PER_MS));
    let FindingFacts { share, certainty, selection, .. } = &finding.facts;
    assert_eq!(*share, Some(Share { percent: 15.0, of: Whole::Duration }));
    assert_eq!(*certainty, Certainty::Proven);
    assert_eq!(selection.runtime_events, Some(RuntimeEventKind::Suspension));
    assert_eq!((selection.begin_ns, selection.end_ns), (0, 5_300 * NS_PER_MS));
    assert_eq!(
        finding.to_string(),
        "all managed threads are suspended for garbage collections for 15 % of the time: 28 of generation 0, 3 of \
         generation 2; the longest pause takes 300 ms: allocate less, and keep fewer objects alive"
    );
}

#[test]
fn short_or_few_pauses_and_those_for_other_reasons_are_no_finding() {
    assert_eq!(suspensions(25, 40, "SuspendForGC").kinds(), [FindingKind::GcPauses]);
    assert_eq!(suspensions(24, 40, "SuspendForGC").kinds(), [], "9.6 %");
    assert_eq!(suspensions(2, 3_000, "SuspendForGC").kinds(), [], "two pauses");
    assert_eq!(suspensions(25, 40, "SuspendForDebugger").kinds(), []);
    let mut runtime = Runtime::new();
    (0..30).for_each(|index| runtime.add(RuntimeEventKind::Suspension, (index * 100, 90), &[]));
    assert_eq!(runtime.kinds(), [], "without a reason");
}

#[test]
fn time_that_several_pauses_cover_or_after_the_end_counts_once_or_not() {
    let reason = [("Reason", Field::Text("SuspendForGC"))];
    let mut runtime = Runtime::new();
    (0..20).for_each(|_| runtime.add(RuntimeEventKind::Suspension, (0, 900), &reason));
    assert_eq!(runtime.kinds(), []);
    let mut runtime = Runtime::new();
    (0..20).for_each(|_| runtime.add(RuntimeEventKind::Suspension, (9_500, u64::MAX / NS_PER_S), &reason));
    assert_eq!(runtime.kinds(), []);
}

/// Exceptions of these types, without and with the stack of [`SITE`].
fn exceptions(types: &[(&'static str, u64)], with_stack: u64) -> Runtime {
    let mut runtime = Runtime::new();
    let site = stack(&mut runtime.builder, SITE);
    let types = types.iter().flat_map(|(name, count)| (0..*count).map(|_| *name));
    for (index, name) in (0..).zip(types) {
        let fields = [("ExceptionType", Field::Text(name)), ("ExceptionMessage", Field::Text("secret"))];
        let stack = Some(site).filter(|_| index < with_stack);
        runtime.add_with_stack(RuntimeEventKind::Exception, (index, 0), &fields, stack);
    }
    runtime
}

#[test]
fn many_exceptions_are_a_finding_with_type_and_site() {
    let runtime = exceptions(&[("System.FormatException", 1_900), ("System.OtherException", 200)], 100);
    let [finding] = &runtime.findings()[..] else { panic!("one finding") };
    assert_eq!((finding.kind, finding.value), (FindingKind::Exceptions, 0));
    assert_eq!(
        finding.to_string(),
        "210 exceptions are thrown each second, 90 % of them System.FormatException, most below Shop.Cart.Get: let \
         Cart.Get return its failures as results, or test for them first"
    );
    let [finding] = &exceptions(&[("System.FormatException", 600)], 0).findings()[..] else { panic!("one") };
    assert_eq!(
        finding.to_string(),
        "60 exceptions are thrown each second, 100 % of them System.FormatException: return expected failures as \
         results, or test for them first"
    );
}

#[test]
fn exceptions_of_many_types_have_no_type_and_few_are_no_finding() {
    let types = ["A", "B", "C", "D", "E", "F"].map(|name| (name, 100));
    let [finding] = &exceptions(&types, 0).findings()[..] else { panic!("one finding") };
    assert!(finding.evidence.ends_with("60 exceptions are thrown each second"), "{finding}");
    assert_eq!(exceptions(&[("A", 500)], 0).kinds(), [FindingKind::Exceptions]);
    assert_eq!(exceptions(&[("A", 499)], 0).kinds(), []);
}

#[test]
fn rates_are_those_of_all_exceptions_and_bounds_where_the_runtime_dropped_some() {
    let begin = |omitted, is_lower_bound| {
        let mut runtime = exceptions(&[("System.FormatException", 1_000)], 0);
        runtime.omit(RuntimeEventKind::Exception, omitted, 0, is_lower_bound);
        let [finding] = &runtime.findings()[..] else { panic!("one finding") };
        finding.evidence.split(" exceptions").next().unwrap().to_owned()
    };
    assert_eq!(begin(0, false), "100");
    assert_eq!(begin(199_000, false), "20000");
    assert_eq!(begin(199_000, true), "at least 20000");
    let mut few = exceptions(&[("A", 90)], 0);
    few.omit(RuntimeEventKind::Exception, 400, 0, false);
    assert_eq!(few.kinds(), [], "49 each second");
}

/// The profile has the first eight of each type, and one of 200 of all others: of 20,000 exceptions, 100 are of ten rare types.
#[test]
fn the_share_of_a_type_is_that_of_all_exceptions() {
    const RARE: [&str; 10] = ["A", "B", "C", "D", "E", "F", "G", "H", "I", "J"];
    let mut types = vec![("System.FormatException", 8 + 99)];
    types.extend(RARE.map(|name| (name, 8)));
    let mut runtime = exceptions(&types, 0);
    let kept: u64 = types.iter().map(|(_, count)| count).sum();
    runtime.omit(RuntimeEventKind::Exception, 20_000 - kept, 0, false);
    let [finding] = &runtime.findings()[..] else { panic!("one finding") };
    let expected = "2000 exceptions are thrown each second, about 100 % of them System.FormatException";
    assert!(finding.evidence.starts_with(expected), "{finding}");
}

#[test]
fn pauses_and_waits_that_are_not_in_the_profile_count() {
    let mut runtime = suspensions(20, 1, "SuspendForGC");
    runtime.omit(RuntimeEventKind::Suspension, 1_000, 3_000, false);
    let [finding] = &runtime.findings()[..] else { panic!("one finding") };
    assert_eq!(finding.value, 3_020 * NS_PER_MS);
    assert!(finding.evidence.contains(" for 30 % of the time; the longest pause takes 3 ms"), "{finding}");
    let mut runtime = suspensions(20, 1, "SuspendForGC");
    runtime.omit(RuntimeEventKind::Suspension, 1_000, 3_000, true);
    let [finding] = &runtime.findings()[..] else { panic!("one finding") };
    let expected = " for at least 30 % of the time; the longest pause takes at least 3 ms";
    assert!(finding.evidence.contains(expected), "{finding}");

    let mut runtime = waits(1, 100, 10, |_| 31);
    add_waits(&mut runtime, 2, 100, 1, |_| 31);
    runtime.omit(RuntimeEventKind::Contention, 1_800, 21_900, false);
    let [finding] = &runtime.findings()[..] else { panic!("one finding") };
    let expected = "about 2.1 threads at a time wait for one lock, most below Shop.Cart.Get, about 1000 times for about 20.9 s in all";
    assert!(finding.evidence.starts_with(expected), "{finding}");
}

/// Waits of this length for a lock, each with its owner.
fn waits(lock: u64, count: u64, takes_ms: u64, owner: impl Fn(u64) -> u64) -> Runtime {
    let mut runtime = Runtime::new();
    add_waits(&mut runtime, lock, count, takes_ms, owner);
    runtime
}

fn add_waits(runtime: &mut Runtime, lock: u64, count: u64, takes_ms: u64, owner: impl Fn(u64) -> u64) {
    let site = stack(&mut runtime.builder, SITE);
    for index in 0..count {
        let fields = [("LockID", Field::Number(lock)), ("LockOwnerThreadID", Field::Number(owner(index)))];
        runtime.add_with_stack(RuntimeEventKind::Contention, (index, takes_ms), &fields, Some(site));
    }
}

#[test]
fn long_waits_for_one_lock_are_a_finding_with_its_owner() {
    let mut runtime = waits(0x7f00, 100, 320, |index| if index < 92 { 31 } else { 32 });
    add_waits(&mut runtime, 0x8f00, 5_000, 1, |_| 33);
    let [finding] = &runtime.findings()[..] else { panic!("one finding") };
    assert_eq!((finding.kind, finding.value), (FindingKind::LockContention, 32 * NS_PER_S));
    assert_eq!((finding.facts.threads_at_a_time, finding.facts.cause_thread), (Some(3.2), Some(31)));
    assert_eq!(finding.facts.place.as_ref().map(|place| place.method.as_str()), Some("Shop.Cart.Get"));
    assert_eq!(
        finding.to_string(),
        "3.2 threads at a time wait for one lock, most below Shop.Cart.Get, 100 times for 32.0 s in all; its owner is \
         thread 31 (worker) at 92 % of them: hold the lock for a shorter time, or divide what it protects"
    );
}

#[test]
fn an_owner_that_is_unknown_or_differs_is_not_named() {
    let evidence = |owner: &dyn Fn(u64) -> u64| {
        let [finding] = &waits(1, 100, 320, owner).findings()[..] else { panic!("one finding") };
        finding.evidence.clone()
    };
    assert!(evidence(&|_| 0).ends_with("32.0 s in all"));
    assert!(evidence(&|index| index % 3).ends_with("32.0 s in all"));
    assert!(evidence(&|_| 99).ends_with("its owner is thread 99 at 100 % of them"), "not of the profile");
}

#[test]
fn short_or_few_waits_and_those_for_different_locks_are_no_finding() {
    assert_eq!(waits(1, 100, 100, |_| 31).kinds(), [FindingKind::LockContention]);
    assert_eq!(waits(1, 99, 100, |_| 31).kinds(), []);
    assert_eq!(waits(1, 9, 10_000, |_| 31).kinds(), []);
    let mut runtime = Runtime::new();
    (0..30).for_each(|lock| add_waits(&mut runtime, lock, 10, 90, |_| 31));
    assert_eq!(runtime.kinds(), []);
}

/// Adjustments of a pool: numbers of workers and reasons.
fn adjustments(counts: impl Iterator<Item = u64>, reason: &'static str) -> Runtime {
    let mut runtime = Runtime::new();
    let first = [("NewWorkerThreadCount", Field::Number(8)), ("Reason", Field::Text("Warmup"))];
    runtime.add(RuntimeEventKind::PoolAdjustment, (0, 0), &first);
    for (index, count) in (1..).zip(counts) {
        let fields = [("NewWorkerThreadCount", Field::Number(count)), ("Reason", Field::Text(reason))];
        runtime.add(RuntimeEventKind::PoolAdjustment, (index * 500, 0), &fields);
    }
    runtime
}

#[test]
fn workers_that_a_starved_pool_added_are_a_finding() {
    let [finding] = &adjustments(9..34, "Starvation").findings()[..] else { panic!("one finding") };
    assert_eq!((finding.kind, finding.value), (FindingKind::PoolGrowth, 0));
    assert_eq!(
        finding.to_string(),
        "the thread pool added workers 25 times because no work item was taken from its queue, from 8 to 33 workers: \
         make methods asynchronous that block workers; --wall shows them"
    );
}

/// Adds wall-clock samples of a worker: the second, the number of ticks, and the stack above the root of the pool.
fn add_worker(runtime: &mut Runtime, tid: u32, samples: &[(u64, u64, &str)]) {
    let builder = &mut runtime.builder;
    let event = builder.event(Event::at_frequency("wall", 10));
    let thread = builder.thread(runtime.process, tid, ".NET TP Worker");
    for (second, value, frames) in samples {
        let stack = stack(builder, &format!("{POOL_ROOT};{frames}"));
        let state = Some(ThreadState::Blocked);
        let time_ns = second * NS_PER_S;
        builder.add_sample(Sample { time_ns, cpu: 0, thread, stack, event, state, value: *value });
    }
}

#[test]
fn the_growth_of_a_pool_has_the_method_that_blocks_its_workers_meanwhile() {
    let get = format!("shop!Shop.Cart.Get(int);{WAIT}");
    let put = format!("shop!Shop.Cart.Put(int);{WAIT}");
    let mut runtime = adjustments(9..14, "Starvation");
    add_worker(&mut runtime, 40, &[(1, 3, &get), (2, 1, &put), (5, 100, &put)]);
    add_worker(&mut runtime, 41, &[(1, 50, IDLE), (2, 3, &get)]);
    let [finding] = &runtime.findings()[..] else { panic!("one finding") };
    assert_eq!(
        finding.to_string(),
        "the thread pool added workers 5 times because no work item was taken from its queue, from 8 to 13 workers; \
         meanwhile, 86 % of the time in which workers block is below Shop.Cart.Get (sync over async): make Cart.Get \
         asynchronous"
    );
    let lock = "shop!Shop.Cart.Get(int);pthread_mutex_lock@libc.so.6";
    let mut runtime = adjustments(9..14, "Starvation");
    add_worker(&mut runtime, 40, &[(1, 3, lock)]);
    let [finding] = &runtime.findings()[..] else { panic!("one finding") };
    assert!(finding.evidence.ends_with("below Shop.Cart.Get (lock)"), "{finding}");
    assert_eq!(finding.remedy, "do not block workers in Cart.Get");
    let mut runtime = adjustments(9..14, "Starvation");
    add_worker(&mut runtime, 40, &[(1, 3, &get), (2, 4, IDLE), (2, 4, &put), (1, 4, lock)]);
    let [finding] = &runtime.findings()[..] else { panic!("one finding") };
    assert!(finding.evidence.ends_with(" workers"), "no method has most of the time: {finding}");
}

#[test]
fn adjustments_for_other_reasons_and_few_of_them_are_no_finding() {
    assert_eq!(adjustments(9..14, "Starvation").kinds(), [FindingKind::PoolGrowth]);
    assert_eq!(adjustments(9..13, "Starvation").kinds(), []);
    assert_eq!(adjustments(9..34, "ClimbingMove").kinds(), []);
    assert_eq!(adjustments([9, 10, 11, 10, 9, 8].into_iter(), "Starvation").kinds(), [], "it shrank again");
}

#[test]
fn a_finding_names_the_process_where_there_are_several() {
    let mut runtime = suspensions(25, 40, "SuspendForGC");
    runtime.builder.process(8, "other");
    let [finding] = &runtime.findings()[..] else { panic!("one finding") };
    assert!(finding.evidence.starts_with("process 7 (shop): all managed threads"), "{finding}");
}

/// Collections of generation 2 for a reason, and others.
fn collections(full: u64, others: u64, reason: &'static str) -> Runtime {
    let mut runtime = Runtime::new();
    for index in 0..full + others {
        let (generation, reason) = if index < full { (2, reason) } else { (0, "AllocSmall") };
        let fields = [("Depth", Field::Number(generation)), ("Reason", Field::Text(reason))];
        runtime.add(RuntimeEventKind::GarbageCollection, (index * 100, 20), &fields);
    }
    runtime
}

/// Adds allocations of this type, each for a number of bytes.
fn add_ticks(runtime: &mut Runtime, count: u64, kind: &'static str, name: &'static str, bytes: u64) {
    let site = stack(&mut runtime.builder, SITE);
    for index in 0..count {
        let fields = [
            ("AllocationKind", Field::Text(kind)),
            ("AllocationAmount64", Field::Number(bytes)),
            ("TypeName", Field::Text(name)),
            ("ObjectSize", Field::Number(1)),
        ];
        runtime.add_with_stack(RuntimeEventKind::Allocation, (index, 0), &fields, Some(site));
    }
}

#[test]
fn many_collections_of_generation_2_are_a_finding_with_what_is_allocated() {
    let mut runtime = collections(12, 3, "AllocLarge");
    add_ticks(&mut runtime, 30, "Large", "System.Byte[]", 300_000);
    add_ticks(&mut runtime, 10, "Large", "System.String", 100_000);
    add_ticks(&mut runtime, 500, "Small", "Shop.Item", 102_400);
    let [finding] = &runtime.findings()[..] else { panic!("one finding") };
    assert_eq!((finding.kind, finding.value), (FindingKind::FullCollections, 240 * NS_PER_MS));
    assert_eq!(
        finding.to_string(),
        "12 of 15 garbage collections are of generation 2, most of them for large objects; 90 % of the bytes of large \
         objects are System.Byte[]; most bytes of large objects are allocated below Shop.Cart.Get: reuse buffers in \
         Cart.Get, as with ArrayPool, or divide them into smaller ones"
    );
    let mut runtime = collections(5, 20, "AllocSmall");
    add_ticks(&mut runtime, 20, "Small", "Shop.Item", 102_400);
    let [finding] = &runtime.findings()[..] else { panic!("one finding") };
    assert_eq!(
        finding.to_string(),
        "5 of 25 garbage collections are of generation 2; 100 % of the bytes of objects are Shop.Item; most bytes of \
         objects are allocated below Shop.Cart.Get: allocate less in Cart.Get, and keep objects alive for a shorter time"
    );
}

/// Each byte has the same probability: the sample of a small object represents as many bytes as that of a large one.
#[test]
fn a_sampled_allocation_represents_the_bytes_between_two_samples() {
    let mut runtime = collections(5, 0, "AllocSmall");
    for (count, name, size) in [(30, "Small", 24), (20, "Medium", 4_000), (1, "Large", 60 * 102_400)] {
        for index in 0..count {
            let fields = [("TypeName", Field::Text(name)), ("ObjectSize", Field::Number(size))];
            runtime.add(RuntimeEventKind::Allocation, (index, 0), &fields);
        }
    }
    let [finding] = &runtime.findings()[..] else { panic!("one finding") };
    assert!(finding.evidence.contains("; 54 % of the bytes of objects are Large"), "{finding}");
}

#[test]
fn few_or_requested_collections_and_those_without_allocations_are_no_finding() {
    let with_ticks = |full, others, reason, count| {
        let mut runtime = collections(full, others, reason);
        add_ticks(&mut runtime, count, "Small", "Shop.Item", 102_400);
        runtime.kinds()
    };
    assert_eq!(with_ticks(5, 20, "AllocSmall", 20), [FindingKind::FullCollections]);
    assert_eq!(with_ticks(4, 0, "AllocSmall", 20), []);
    assert_eq!(with_ticks(5, 21, "AllocSmall", 20), [], "19 %");
    assert_eq!(with_ticks(5, 20, "Induced", 20), []);
    assert_eq!(with_ticks(5, 20, "AllocSmall", 19), []);
    assert_eq!(with_ticks(5, 20, "AllocLarge", 20), [], "no large object");
}
