//! Shares of CPU time on both sides of each threshold.

use profiler_profile::{Event, FindingKind, Sample, ThreadState};

use super::{HZ, Threads, stack};

/// A stack of each rule, and its threshold.
const ACTIVITIES: [(FindingKind, &str, u64); 5] = [
    (FindingKind::Compilation, "main;shop!Shop.Cart.Get();[libclrjit.so]@/rt/libclrjit.so", 15),
    (FindingKind::GarbageCollection, "main;WKS::gc_heap::mark_phase(int)@/rt/libcoreclr.so", 20),
    (
        FindingKind::Spinning,
        "main;shop!Shop.A.B();System!System.Threading.SpinWait.SpinOnce();sched_yield",
        20,
    ),
    (FindingKind::PageFaults, "main;fill;asm_exc_page_fault;exc_page_fault", 20),
    (FindingKind::Interrupts, "main;compute;asm_common_interrupt;common_interrupt;handle_softirqs", 20),
];

/// CPU samples: `matching` of `total` have this stack, on a thread with this name.
fn kinds(thread: &str, folded: &str, matching: u64, total: u64) -> Vec<FindingKind> {
    let parts = [(0, matching, None, folded)];
    let mut threads = Threads::cpu();
    threads.add_thread(thread, &parts);
    threads.add_thread("main", &[(0, total - matching, None, "main;compute")]).kinds()
}

#[test]
fn each_activity_is_found_from_its_threshold_on() {
    for (kind, folded, percent) in ACTIVITIES {
        assert_eq!(kinds("main", folded, percent * 10, 1_000), [kind]);
        assert_eq!(kinds("main", folded, percent * 10 - 1, 1_000), [], "{kind:?}");
    }
}

/// A share of little CPU is no finding: each rule on CPU time has a least number of CPUs.
#[test]
fn each_share_of_cpu_time_needs_a_tenth_of_a_cpu() {
    // Of 10 CPU-seconds each: the samples of a stack, all others.
    let kinds_in = |seconds, folded, state| {
        let mut threads = Threads::sampled(Event::at_frequency("wall", HZ), seconds);
        let all = match state {
            Some(ThreadState::OnCpu) => vec![(0, 100, state, folded)],
            _ => vec![(0, 100, state, folded), (10, 100, Some(ThreadState::OnCpu), "main;compute")],
        };
        threads.add_thread("main", &all).kinds()
    };
    let suspended = "main;shop!Shop.Cart.Add();Thread::RareDisablePreemptiveGC();pthread_cond_wait@libc.so.6";
    let on_cpu = ACTIVITIES.map(|(kind, folded, _)| (kind, folded, ThreadState::OnCpu));
    let others = [
        (FindingKind::CpuQuota, "main;compute", ThreadState::Throttled),
        (FindingKind::GcSuspension, suspended, ThreadState::Blocked),
    ];
    for (kind, folded, state) in on_cpu.into_iter().chain(others) {
        assert_eq!(kinds_in(100, folded, Some(state)), [kind], "a tenth of a CPU");
        assert_eq!(kinds_in(101, folded, Some(state)), [], "{kind:?} of less");
    }
}

/// A program on a busy machine has as much of its CPU time for an activity as on a free one.
#[test]
fn time_in_which_threads_wait_for_a_cpu_counts() {
    let (kind, folded, _) = ACTIVITIES[3];
    let mut threads = Threads::sampled(Event::at_frequency("wall", HZ), 1_000);
    let parts = [(0, 100, Some(ThreadState::OnCpu), folded), (10, 900, Some(ThreadState::Runnable), folded)];
    let kinds = threads.add_thread("main", &parts).kinds();
    assert!(kinds.contains(&kind), "{kinds:?}");
}

#[test]
fn packets_on_the_loopback_device_are_no_interrupts() {
    let folded =
        "main;serve;send;tcp_sendmsg;__local_bh_enable_ip;__do_softirq;handle_softirqs;net_rx_action";
    assert_eq!(kinds("main", folded, 900, 1_000), []);
}

#[test]
fn threads_of_collectors_are_found_by_name() {
    assert_eq!(
        kinds(".NET Server GC", "start_thread;[libcoreclr.so]", 300, 1_000),
        [FindingKind::GarbageCollection]
    );
    assert_eq!(kinds("worker", "start_thread;[libcoreclr.so]", 300, 1_000), []);
}

#[test]
fn a_finding_has_evidence_and_remedy() {
    let (_, folded, _) = ACTIVITIES[0];
    let mut threads = Threads::cpu();
    threads.add_thread("main", &[(0, 46, None, folded), (0, 54, None, "main;compute")]);
    let [finding] = &threads.findings()[..] else { panic!("one finding") };
    assert_eq!(
        finding.to_string(),
        "46 % of the CPU time compiles methods (JIT): publish with ReadyToRun, keep tiered compilation on, and send load \
         after the start-up"
    );
}

#[test]
fn the_remedy_for_compilation_is_that_of_the_runtime() {
    for folded in ["CompileBroker::compiler_thread_loop", "v8::internal::OptimizedCompilationJob::ExecuteJob"]
    {
        let mut threads = Threads::cpu();
        threads.add_thread("main", &[(0, 46, None, folded), (0, 54, None, "main;compute")]);
        let [finding] = &threads.findings()[..] else { panic!("one finding: {folded}") };
        let text = finding.to_string();
        assert!(text.starts_with("46 % of the CPU time compiles functions (JIT): send load"), "{text}");
        assert!(!text.contains("ReadyToRun"), "{text}");
    }
}

#[test]
fn less_than_a_hundred_samples_have_no_finding() {
    let (_, folded, _) = ACTIVITIES[0];
    assert_eq!((kinds("main", folded, 99, 99), kinds("main", folded, 100, 100).len()), (vec![], 1));
}

#[test]
fn idle_workers_that_spin_are_no_finding() {
    let idle = "start_thread;System!System.Threading.LowLevelLifoSemaphore.Wait(int,bool);\
                System!System.Threading.SpinWait.SpinOnceCore(int);sched_yield";
    assert_eq!(kinds("worker", idle, 900, 1_000), []);
}

/// Threads on a CPU are samples of both events.
#[test]
fn an_event_of_cpu_samples_precedes_states() {
    let (kind, folded, _) = ACTIVITIES[0];
    let mut wall = Threads::wall();
    wall.add(2, ThreadState::OnCpu, folded);
    assert_eq!(wall.kinds(), [kind]);
    let mut both = Threads::cpu();
    both.add(2, None, folded);
    let event = both.builder.event(Event::at_frequency("wall", HZ));
    let thread = both.builder.thread(both.process, 7, "worker");
    let stack = stack(&mut both.builder, folded);
    let state = Some(ThreadState::OnCpu);
    both.builder.add_sample(Sample { time_ns: 0, cpu: 0, thread, stack, event, state, value: 200 });
    let found: Vec<_> =
        both.findings().iter().map(|finding| (finding.kind, finding.event.unwrap().index())).collect();
    assert_eq!(found, [(kind, 0)]);
}
