//! Threads that wait at a barrier for a slow one, and barriers of programs without one.

use profiler_profile::{Certainty, FindingKind, Proof, ThreadState};

use super::Threads;

const ROOT: &str = "start_thread@libc.so.6;worker;step";
const BARRIER: &str = "pthread_barrier_wait@libc.so.6;futex_do_wait_[k]";
const BLOCKED: Option<ThreadState> = Some(ThreadState::Blocked);
const ON_CPU: Option<ThreadState> = Some(ThreadState::OnCpu);

/// Adds threads that compute for some tenths of the time and wait at the barrier for the rest.
fn add(threads: &mut Threads, count: u32, computing: u64) {
    let (wait, compute) = (format!("{ROOT};{BARRIER}"), format!("{ROOT};compute"));
    for _ in 0..count {
        let parts =
            [(0, 10 * computing, ON_CPU, &*compute), (computing, 100 - 10 * computing, BLOCKED, &*wait)];
        threads.add_thread("worker", &parts[usize::from(computing == 0)..2 - usize::from(computing == 10)]);
    }
}

#[test]
fn threads_that_wait_at_a_barrier_for_one_are_found_with_it() {
    for (computing, certainty) in [(10, Certainty::Likely(Proof::Arrival)), (9, Certainty::Proven)] {
        let mut threads = Threads::wall();
        add(&mut threads, 3, 1);
        add(&mut threads, 1, computing);
        let [finding] = &threads.findings()[..] else { panic!("one finding") };
        assert_eq!((finding.kind, finding.facts.certainty), (FindingKind::BarrierSkew, certainty));
        assert_eq!(finding.facts.cause_thread, Some(10));
        let expected = format!("in compute ({computing}0 % on a CPU), thread 10 (worker)");
        assert!(
            finding.evidence.starts_with("2.7 of 3 threads at a time wait at a barrier in step ("),
            "{finding}"
        );
        assert!(finding.evidence.ends_with(&expected), "{finding}");
    }
}

#[test]
fn barriers_and_countdowns_of_dotnet_are_found() {
    for method in ["Barrier.SignalAndWait()", "CountdownEvent.Wait()"] {
        let root = "start_thread@libc.so.6;shop!Shop.Sum.Phase()";
        let wait = format!("{root};System.Threading!System.Threading.{method};pthread_cond_wait@libc.so.6");
        let sleep =
            "System.Private.CoreLib!System.Threading.Thread.Sleep(int);pthread_cond_timedwait@libc.so.6";
        let mut threads = Threads::wall();
        threads.add(3, ThreadState::Blocked, &wait);
        threads.add(1, ThreadState::Blocked, &format!("{root};shop!Shop.Sum.Part();{sleep}"));
        let [finding] = &threads.findings()[..] else { panic!("one finding: {method}") };
        assert!(
            finding.evidence.ends_with("the slow one is in Shop.Sum.Part (sleeps), thread 10 (worker)"),
            "{finding}"
        );
    }
}

#[test]
fn barriers_without_a_slow_thread_have_no_finding() {
    let kinds = |threads: &[(u32, u64)]| {
        let mut group = Threads::wall();
        threads.iter().for_each(|(count, computing)| add(&mut group, *count, *computing));
        group.kinds()
    };
    assert_eq!(kinds(&[(4, 8)]), [], "an even load");
    assert_eq!(kinds(&[(4, 2)]), [], "each one is slow in turn");
    assert_eq!(kinds(&[(2, 0), (2, 10)]), [], "two slow ones");
    assert_eq!(kinds(&[(1, 0), (1, 10)]), [], "two threads");
    assert_eq!(kinds(&[(4, 0)]), [], "workers without work");
    // A pool of workers that wait at a barrier for the next job, beside threads of other kinds.
    let mut parked = Threads::wall();
    add(&mut parked, 4, 0);
    parked.add(1, ThreadState::OnCpu, "start_thread@libc.so.6;report;compute");
    parked.add(1, ThreadState::Blocked, "_start;__libc_start_main@libc.so.6;main;serve;epoll_wait@libc.so.6");
    assert_eq!(parked.kinds(), []);
}
