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
fn workers_that_block_below_many_methods_are_starvation() {
    let with_methods = |methods: &[&str]| {
        let mut threads = Threads::wall();
        for method in methods {
            threads.add(2, ThreadState::Blocked, &format!("{POOL_ROOT};shop!Shop.{method}();{WAIT}"));
        }
        let findings = threads.findings();
        let [finding] = &findings[..] else { panic!("one finding: {findings:?}") };
        finding.to_string()
    };
    assert!(
        with_methods(&["A.F", "A.G"]).contains(" below Shop.A.F (sync over async): make A.F asynchronous")
    );
    assert!(with_methods(&["A.F", "A.G", "A.H"]).ends_with(
        " below Shop.A.F and 2 other methods (sync over async): make the methods asynchronous that wait for tasks"
    ));
}

/// Optimized code calls the last function of a method by a jump, or without a frame of its own.
#[test]
fn the_method_is_that_of_the_samples_that_have_one() {
    let unnamed = format!("{POOL_ROOT};System.Private.CoreLib!System.Threading.Tasks.Task.Execute();{WAIT}");
    let mut threads = Threads::wall();
    threads.add(9, ThreadState::Blocked, &unnamed).add(1, ThreadState::Blocked, &blocked());
    let findings = threads.findings();
    let [finding] = &findings[..] else { panic!("one finding: {findings:?}") };
    assert!(
        finding.evidence.starts_with("10 of 10 pool workers block in Task.Wait below Shop.Cart.Get (sync"),
        "{finding}"
    );
    let mut threads = Threads::wall();
    threads.add(10, ThreadState::Blocked, &unnamed);
    let findings = threads.findings();
    let [finding] = &findings[..] else { panic!("one finding: {findings:?}") };
    assert_eq!(
        finding.to_string(),
        "10 of 10 pool workers block in Task.Wait (sync over async): make the methods asynchronous that wait for tasks"
    );
}

const SEMAPHORE: &str = "System.Private.CoreLib!System.Threading.SemaphoreSlim.Wait(int,CancellationToken);\
                         System.Private.CoreLib!System.Threading.Monitor.Wait(object,int);pthread_cond_wait@libc.so.6";

#[test]
fn workers_that_wait_for_a_semaphore_that_others_hold_are_starvation() {
    let waiting = format!("{POOL_ROOT};shop!Shop.Cart.Limited();{SEMAPHORE}");
    let holder = format!("{POOL_ROOT};shop!Shop.Cart.Limited();shop!Shop.Cart.Load();tcp_recvmsg");
    let mut threads = Threads::wall();
    threads.add(8, ThreadState::Blocked, &waiting).add(2, ThreadState::Blocked, &holder);
    let findings = threads.findings();
    let [finding] = &findings[..] else { panic!("one finding: {findings:?}") };
    assert_eq!(
        finding.to_string(),
        "8 of 10 pool workers block in SemaphoreSlim.Wait below Shop.Cart.Limited: wait with WaitAsync in Cart.Limited, \
         and let more threads pass if what it protects allows it"
    );
}

/// A consumer waits for a semaphore until there is an item: no thread holds it, or the pool has other workers for its work.
#[test]
fn workers_that_wait_for_items_are_no_starvation() {
    let waiting = format!("{POOL_ROOT};shop!Shop.Queue.Take();{SEMAPHORE}");
    let mut threads = Threads::wall();
    threads.add(8, ThreadState::Blocked, &waiting);
    threads.add(1, ThreadState::OnCpu, &format!("{POOL_ROOT};shop!Shop.Cart.Get()"));
    assert_eq!(threads.kinds(), []);
    let mut threads = Threads::wall();
    threads.add(8, ThreadState::Blocked, &waiting).add(2, ThreadState::Blocked, &idle());
    threads.add(1, ThreadState::OnCpu, &format!("{POOL_ROOT};shop!Shop.Queue.Take()"));
    assert_eq!(threads.kinds(), []);
}

#[test]
fn a_main_thread_that_waits_for_the_end_of_the_program_is_no_starvation() {
    let mut threads = Threads::wall();
    threads.add(5, ThreadState::Blocked, &format!("main;shop!Shop.Program.Main(string[]);{WAIT}"));
    assert_eq!(threads.kinds(), []);
}
