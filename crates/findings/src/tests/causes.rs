//! Causes by what samples and runtime events say together, and findings that both show.

use profiler_profile::{
    EventField, FieldValue, Finding, FindingKind, RuntimeEvent, RuntimeEventKind, ThreadState,
};

use super::{NS_PER_S, POOL_ROOT, Threads, pool::WAIT, stack};

/// The reasons of collections, as the runtime's manifest has them (`GCReasonMap`).
const REASONS: [&str; 14] = [
    "AllocSmall",
    "Induced",
    "LowMemory",
    "Empty",
    "AllocLarge",
    "OutOfSpaceSOH",
    "OutOfSpaceLOH",
    "InducedNotForced",
    "Internal",
    "InducedLowMemory",
    "InducedCompacting",
    "LowMemoryHost",
    "PMFullGC",
    "LowMemoryHostBlocking",
];

#[derive(Clone, Copy)]
enum Field {
    Number(u64),
    Text(&'static str),
}

/// Adds events of these lengths, one each `every_ms`.
fn add_events(
    threads: &mut Threads,
    kind: RuntimeEventKind,
    (count, every_ms, takes_ms): (u64, u64, u64),
    fields: &[(&str, Field)],
    folded: Option<&str>,
) {
    const NS_PER_MS: u64 = 1_000_000;
    let stack = folded.map(|folded| stack(&mut threads.builder, folded));
    let name = threads.builder.string("Microsoft-Windows-DotNETRuntime/Event");
    for index in 0..count {
        let builder = &mut threads.builder;
        let fields = fields.iter().map(|(name, value)| EventField {
            name: builder.string(name),
            value: match value {
                Field::Number(number) => FieldValue::Unsigned(*number),
                Field::Text(text) => FieldValue::Text(builder.string(text)),
            },
        });
        let fields = fields.collect();
        builder.add_runtime_event(RuntimeEvent {
            time_ns: index * every_ms * NS_PER_MS,
            duration_ns: takes_ms * NS_PER_MS,
            process: threads.process,
            thread: None,
            kind,
            name,
            stack,
            fields,
        });
    }
}

/// Collections for a reason that take 20 % of ten seconds.
fn add_collections(threads: &mut Threads, reason: &'static str) {
    let times = (100, 100, 20);
    add_events(
        threads,
        RuntimeEventKind::Suspension,
        times,
        &[("Reason", Field::Text("SuspendForGC"))],
        None,
    );
    let fields = [("Depth", Field::Number(0)), ("Reason", Field::Text(reason))];
    add_events(threads, RuntimeEventKind::GarbageCollection, times, &fields, None);
}

fn only(mut threads: Threads) -> Finding {
    let findings = threads.findings();
    let [finding] = &findings[..] else { panic!("one finding: {findings:?}") };
    finding.clone()
}

#[test]
fn the_remedy_for_collections_is_that_of_their_reason() {
    for reason in REASONS {
        let (evidence, remedy) = match reason {
            "AllocSmall" | "Empty" | "OutOfSpaceSOH" | "Internal" => {
                ("takes 20 ms", "allocate less, and keep")
            }
            "AllocLarge" | "OutOfSpaceLOH" => ("; 100 of 100 are for large objects", "reuse large buffers"),
            "Induced" | "InducedNotForced" | "InducedCompacting" => {
                ("; 100 of 100 are requested by GC.Collect", "do not call GC.Collect: the runtime")
            }
            _ => ("; 100 of 100 are for low memory", "raise the memory limit of the container, or"),
        };
        let mut threads = Threads::wall();
        add_collections(&mut threads, reason);
        let finding = only(threads);
        assert_eq!(finding.kind, FindingKind::GcPauses);
        assert!(
            finding.evidence.ends_with(evidence) && finding.remedy.starts_with(remedy),
            "{reason}: {finding}"
        );
    }
}

const COLLECT: &str = "main;shop!Shop.GcStorm.Run();System.Private.CoreLib!System.GC.Collect(int);GCInterface_Collect@libcoreclr.so;\
                       WKS::gc_heap::mark_phase(int)@libcoreclr.so";

#[test]
fn collections_that_the_program_requests_have_the_method_that_does() {
    let mut threads = Threads::cpu();
    threads.add_thread("main", &[(0, 50, None, COLLECT), (0, 50, None, "main;compute")]);
    add_collections(&mut threads, "Induced");
    let findings = threads.findings();
    let [pauses] = &findings[..] else { panic!("one finding: {findings:?}") };
    assert!(
        pauses.evidence.ends_with("; 100 of 100 are requested by GC.Collect below Shop.GcStorm.Run"),
        "{pauses}"
    );
    assert_eq!(pauses.remedy, "do not call GC.Collect in GcStorm.Run: the runtime collects when it has to");
    let mut threads = Threads::cpu();
    threads.add_thread("main", &[(0, 50, None, COLLECT), (0, 50, None, "main;compute")]);
    assert_eq!(
        only(threads).to_string(),
        "50 % of the CPU time collects garbage, requested by GC.Collect below Shop.GcStorm.Run: do not call GC.Collect: \
         the runtime collects when it has to"
    );
}

/// Samples alone show a request by its frames.
#[test]
fn threads_in_gc_collect_show_the_reason_of_suspensions() {
    let suspended = "main;shop!Shop.Cart.Add();Thread::RareDisablePreemptiveGC();pthread_cond_wait@libc.so.6";
    for (folded, remedy) in [(COLLECT, "do not call GC.Collect"), ("main;compute", "allocate less")] {
        let mut threads = Threads::wall();
        threads.add(1, ThreadState::OnCpu, folded);
        for _ in 0..8 {
            let parts = [
                (0, 50, Some(ThreadState::Blocked), suspended),
                (5, 50, Some(ThreadState::OnCpu), "main;compute"),
            ];
            threads.add_thread("worker", &parts);
        }
        let findings = threads.findings();
        let suspension = findings.iter().find(|finding| finding.kind == FindingKind::GcSuspension).unwrap();
        assert!(suspension.remedy.starts_with(remedy), "{suspension}");
    }
}

#[test]
fn compilations_of_dynamic_methods_have_a_remedy_of_their_own() {
    let jit = "[libclrjit.so]@/rt/libclrjit.so";
    let by_frames = format!(
        "main;shop!Shop.JitStorm.Run();System.Private.CoreLib!System.Reflection.Emit.DynamicMethod.CreateDelegate(Type);{jit}"
    );
    let by_events = format!("main;shop!Shop.JitStorm.Run();{jit}");
    for (folded, namespace, is_dynamic) in [
        (&by_frames, None, true),
        (&by_events, Some("dynamicClass"), true),
        (&by_events, Some("Shop.Cart"), false),
        (&by_events, None, false),
    ] {
        let mut threads = Threads::cpu();
        threads.add_thread("main", &[(0, 46, None, folded), (0, 54, None, "main;compute")]);
        if let Some(namespace) = namespace {
            let fields = [("MethodNamespace", Field::Text(namespace))];
            add_events(&mut threads, RuntimeEventKind::Compilation, (1_000, 1, 0), &fields, None);
        }
        let expected = if is_dynamic {
            "46 % of the CPU time compiles methods (JIT); most are dynamic methods, compiled below Shop.JitStorm.Run: compile \
             once, and cache the compiled delegate"
        } else {
            "46 % of the CPU time compiles methods (JIT): publish with ReadyToRun, keep tiered compilation on, and send load \
             after the start-up"
        };
        assert_eq!(only(threads).to_string(), expected, "{folded} {namespace:?}");
    }
}

#[test]
fn a_thread_that_spins_is_named_once_with_its_function() {
    let spins = "start_thread@libc.so.6;shop!Shop.Gate.Enter();System.Private.CoreLib!System.Threading.Thread.SpinWait(int)";
    let mut threads = Threads::cpu();
    threads
        .add_thread("spinner", &[(0, 900, None, spins)])
        .add_thread("main", &[(0, 100, None, "main;compute")]);
    let finding = only(threads);
    assert_eq!(
        finding.evidence,
        "90 % of the CPU time spins until another thread proceeds below Shop.Gate.Enter in thread 7 (spinner)"
    );
}

const THROW: &str = "System.Private.CoreLib!System.Runtime.EH.DispatchEx();System.Private.CoreLib!System.Runtime.EH.RhThrowEx()";
const AWAIT: &str = "System.Private.CoreLib!System.Runtime.CompilerServices.TaskAwaiter.HandleNonSuccessAndDebuggerNotification();\
                     System.Private.CoreLib!System.Runtime.ExceptionServices.ExceptionDispatchInfo.Throw();";

/// Exceptions that are thrown, and thrown again by awaits or by their flag, in ten seconds.
fn exceptions(thrown: u64, awaited: u64, flagged: u64) -> Vec<Finding> {
    let mut threads = Threads::wall();
    for (count, again, flags) in [(thrown, "", 16), (awaited, AWAIT, 16), (flagged, "", 20)] {
        let folded = format!("main;shop!Shop.Cart.Load();{again}{THROW}");
        let fields = [
            ("ExceptionType", Field::Text("System.IO.IOException")),
            ("ExceptionFlags", Field::Number(flags)),
        ];
        add_events(&mut threads, RuntimeEventKind::Exception, (count, 1, 0), &fields, Some(&folded));
    }
    threads.findings()
}

#[test]
fn an_exception_that_is_thrown_again_counts_once() {
    assert_eq!(exceptions(100, 900, 0), [], "10 a second");
    let findings = exceptions(600, 5_400, 0);
    assert_eq!(
        findings[0].evidence,
        "60 exceptions are thrown each second, 100 % of them System.IO.IOException, most below Shop.Cart.Load; those that await \
         or catch them throw 540 again"
    );
    assert!(
        exceptions(600, 0, 1_200)[0].evidence.ends_with("those that await or catch them throw 120 again")
    );
    // The exception of a task that no function threw.
    let findings = exceptions(0, 600, 0);
    assert!(
        findings[0]
            .evidence
            .starts_with("60 exceptions are thrown again by those that await a task each second")
    );
}

#[test]
fn workers_that_are_added_for_blocked_workers_are_starvation() {
    let mut threads = Threads::wall();
    for workers in 8..34 {
        let fields = [
            ("NewWorkerThreadCount", Field::Number(workers)),
            ("Reason", Field::Text("CooperativeBlocking")),
        ];
        add_events(&mut threads, RuntimeEventKind::PoolAdjustment, (1, 1, 0), &fields, None);
    }
    let finding = only(threads);
    assert_eq!(finding.kind, FindingKind::PoolGrowth);
    let expected =
        "the thread pool added workers 26 times because workers waited for tasks, from 8 to 33 workers";
    assert_eq!(finding.evidence, expected);
}

/// The findings of waiting samples of six threads at a lock, and of waits of this length in all that the runtime reports.
fn lock_by_both(reported_s: u64, reported: Option<&str>) -> Vec<(FindingKind, String)> {
    let mut threads = Threads::wall();
    threads.add_queue(
        6,
        "main;shop!Shop.Cart.Get();System.Private.CoreLib!System.Threading.Monitor.Enter(object)",
    );
    let fields = [("LockID", Field::Number(1)), ("LockOwnerThreadID", Field::Number(7))];
    let times = (100, 10, reported_s * 10);
    add_events(&mut threads, RuntimeEventKind::Contention, times, &fields, reported);
    threads.findings().into_iter().map(|finding| (finding.kind, finding.evidence)).collect()
}

/// Samples have 58.8 s of waits. The runtime does not report waits that have not ended, and knows the owner.
#[test]
fn two_findings_of_a_lock_are_one_with_the_owner() {
    let get = "main;shop!Shop.Cart.Get();System.Private.CoreLib!System.Threading.Monitor.Enter(object)";
    let put = "main;shop!Shop.Cart.Put();System.Private.CoreLib!System.Threading.Monitor.Enter(object)";
    for (reported_s, reported, has_owner) in
        [(11, Some(get), false), (55, Some(get), true), (11, None, false), (55, None, true)]
    {
        let findings = lock_by_both(reported_s, reported);
        let [(FindingKind::LockConvoy, evidence)] = &findings[..] else { panic!("{findings:?}") };
        assert!(
            evidence.starts_with("5.9 of 6 threads at a time wait for the lock in Shop.Cart.Get"),
            "{evidence}"
        );
        assert_eq!(
            evidence.ends_with("; its owner is thread 7 (worker) at 100 % of them"),
            has_owner,
            "{evidence}"
        );
    }
    for (reported_s, reported) in [(55, Some(put)), (80, None)] {
        let kinds: Vec<_> = lock_by_both(reported_s, reported).into_iter().map(|(kind, _)| kind).collect();
        assert_eq!(kinds.len(), 2, "another lock: {kinds:?}");
    }
}

#[test]
fn pauses_and_pools_are_found_once() {
    let mut threads = Threads::wall();
    let suspended = "main;shop!Shop.Cart.Add();Thread::RareDisablePreemptiveGC();pthread_cond_wait@libc.so.6";
    let parts = [
        (0, 30, Some(ThreadState::Blocked), suspended),
        (3, 70, Some(ThreadState::OnCpu), "main;shop!Shop.Cart.Add()"),
    ];
    threads.add_thread("worker", &parts);
    add_collections(&mut threads, "AllocSmall");
    assert_eq!(threads.kinds(), [FindingKind::GcPauses]);
    let mut threads = Threads::wall();
    threads.add(8, ThreadState::Blocked, &format!("{POOL_ROOT};shop!Shop.Cart.Get();{WAIT}"));
    for workers in 8..34 {
        let fields =
            [("NewWorkerThreadCount", Field::Number(workers)), ("Reason", Field::Text("Starvation"))];
        add_events(&mut threads, RuntimeEventKind::PoolAdjustment, (1, 1, 0), &fields, None);
    }
    assert_eq!(threads.kinds(), [FindingKind::PoolStarvation]);
}

/// Waits and wall-clock samples in one profile.
#[test]
fn two_events_with_the_same_finding_have_it_once() {
    use profiler_profile::{Event, Sample, Sampling};
    let folded = "main;append;pthread_mutex_lock@libc.so.6";
    let mut threads = Threads::wall();
    threads.add_queue(4, folded);
    let event = threads
        .builder
        .event(Event { name: "off-cpu".to_owned(), sampling: Sampling::Durations { min_ns: 0 } });
    let stack = stack(&mut threads.builder, folded);
    for tid in 7..11 {
        let thread = threads.builder.thread(threads.process, tid, "worker");
        for time_ns in [0, 4 * NS_PER_S] {
            let state = Some(ThreadState::Blocked);
            let value = 39 * NS_PER_S / 10;
            threads.builder.add_sample(Sample { time_ns, cpu: 0, thread, stack, event, state, value });
        }
    }
    assert_eq!(threads.kinds(), [FindingKind::LockConvoy]);
}
