//! Starved pools, and pools that are not.

use profiler_profile::{Event, FindingKind, Sampling, ThreadState};

use super::{HZ, POOL_ROOT, Threads};

/// The frames of a worker that waits for the result of a task.
pub(super) const WAIT: &str = "System.Private.CoreLib!System.Threading.Tasks.Task<int>.GetResultCore(bool);\
                    System.Private.CoreLib!System.Threading.Tasks.Task.InternalWaitCore(int,CancellationToken);\
                    System.Private.CoreLib!System.Threading.Tasks.Task.SpinThenBlockingWait(int,CancellationToken);\
                    Monitor_Wait@libcoreclr.so;pthread_cond_wait@libc.so.6";
/// The frames of a worker without a work item.
pub(super) const IDLE: &str = "System.Private.CoreLib!System.Threading.LowLevelLifoSemaphore.Wait(int,bool);pthread_cond_wait@libc.so.6";

fn blocked() -> String {
    format!("{POOL_ROOT};shop!Shop.Cart.Get(int);{WAIT}")
}

fn idle() -> String {
    format!("{POOL_ROOT};{IDLE}")
}

/// A pool of `blocked` workers that block and of `idle` ones.
fn pool(blocked_workers: u32, idle_workers: u32) -> Threads {
    let mut threads = Threads::wall();
    threads.add(blocked_workers, ThreadState::Blocked, &blocked());
    threads.add(idle_workers, ThreadState::Blocked, &idle());
    threads
}

#[test]
fn blocked_workers_are_starvation_with_method_and_remedy() {
    let [finding] = &pool(31, 3).findings()[..] else { panic!("one finding") };
    assert_eq!(finding.kind, FindingKind::PoolStarvation);
    assert_eq!(
        finding.to_string(),
        "31 of 34 pool workers block in Task.Wait below Shop.Cart.Get (sync over async): make Cart.Get asynchronous"
    );
    assert_eq!(finding.value, 31 * 10 * HZ);
}

#[test]
fn a_pool_that_grows_has_its_rate() {
    let mut threads = pool(4, 0);
    for second in [0, 1] {
        threads.add_thread("worker", &[(second, HZ, Some(ThreadState::Blocked), &blocked())]);
    }
    assert!(!threads.findings()[0].evidence.contains("grew"), "workers of the first second");
    let mut threads = pool(4, 0);
    threads.add_thread("worker", &[(3, HZ, Some(ThreadState::Blocked), &blocked())]);
    assert!(!threads.findings()[0].evidence.contains("grew"), "one worker");
    let mut threads = pool(4, 0);
    for second in 2..8 {
        threads.add_thread("worker", &[(second, HZ, Some(ThreadState::Blocked), &blocked())]);
    }
    let evidence = &threads.findings()[0].evidence;
    assert!(evidence.ends_with("; the pool grew by 0.7 threads/s"), "{evidence}");
}

/// A stack that is read before the unwind tables are loaded is cut.
#[test]
fn workers_whose_first_stacks_are_cut_are_no_growth() {
    let mut threads = Threads::wall();
    for _ in 0..6 {
        let state = Some(ThreadState::Blocked);
        threads.add_thread("worker", &[(0, HZ, state, "futex_wait"), (3, 7 * HZ, state, &blocked())]);
    }
    let evidence = &threads.findings()[0].evidence;
    assert!(evidence.starts_with("6 of 6 pool workers") && !evidence.contains("grew"), "{evidence}");
}

#[test]
fn durations_do_not_show_growth() {
    let sampling = Sampling::Durations { min_ns: 0 };
    let mut threads = Threads::sampled(Event { name: "off-cpu".to_owned(), sampling }, 10);
    for second in 0..6 {
        threads.add_thread("worker", &[(second, 4_000_000_000, Some(ThreadState::Blocked), &blocked())]);
    }
    let [finding] = &threads.findings()[..] else { panic!("one finding") };
    assert!(
        finding.evidence.starts_with("6 of 6 pool workers") && !finding.evidence.contains("grew"),
        "{finding}"
    );
}

#[test]
fn two_blocked_workers_are_no_finding() {
    assert_eq!(pool(2, 0).kinds(), []);
    assert_eq!(pool(3, 0).kinds(), [FindingKind::PoolStarvation]);
}

#[test]
fn a_pool_with_idle_workers_is_not_starved() {
    assert_eq!(pool(6, 4).kinds(), [FindingKind::PoolStarvation]);
    assert_eq!(pool(5, 4).kinds(), []);
}

#[test]
fn a_worker_that_blocks_for_less_than_half_of_its_time_is_not_blocked() {
    for (ticks, expected) in [(50, 1), (49, 0)] {
        let mut threads = Threads::wall();
        for _ in 0..4 {
            let parts = [
                (0, ticks, Some(ThreadState::Blocked), &*blocked()),
                (5, 100 - ticks, Some(ThreadState::Blocked), &*idle()),
            ];
            threads.add_thread("worker", &parts);
        }
        assert_eq!(threads.findings().len(), expected, "{ticks} %");
    }
}

#[test]
fn a_wait_below_many_methods_is_no_finding() {
    let with_methods = |methods: &[&str]| {
        let mut threads = Threads::wall();
        for method in methods {
            threads.add(2, ThreadState::Blocked, &format!("{POOL_ROOT};shop!Shop.{method}();{WAIT}"));
        }
        threads.kinds()
    };
    assert_eq!(with_methods(&["A.F", "A.G"]), [FindingKind::PoolStarvation]);
    assert_eq!(with_methods(&["A.F", "A.G", "A.H"]), []);
}

#[test]
fn a_main_thread_that_waits_for_the_end_of_the_program_is_no_starvation() {
    let mut threads = Threads::wall();
    threads.add(5, ThreadState::Blocked, &format!("main;shop!Shop.Program.Main(string[]);{WAIT}"));
    assert_eq!(threads.kinds(), []);
}
