//! Deadlocks, and waits for locks that end.

use profiler_profile::{Event, FindingKind, Sampling, ThreadState};

use super::{NS_PER_S, Threads};

const DEBIT: &str = "main;debit;pthread_mutex_lock@libc.so.6";
const CREDIT: &str = "main;credit;pthread_mutex_lock@libc.so.6";
const WORK: &str = "main;compute";

/// A thread that works, and waits for a lock from a second on.
fn wait_from(threads: &mut Threads, second: u64, folded: &str) {
    let parts = [
        (0, second * 10, Some(ThreadState::OnCpu), WORK),
        (second, (10 - second) * 10, Some(ThreadState::Blocked), folded),
    ];
    threads.add_thread("worker", &parts);
}

#[test]
fn threads_that_get_no_lock_until_the_end_are_a_deadlock() {
    let mut threads = Threads::wall();
    wait_from(&mut threads, 4, DEBIT);
    wait_from(&mut threads, 5, CREDIT);
    wait_from(&mut threads, 6, DEBIT);
    threads.add(1, ThreadState::Blocked, "main;pthread_join@libc.so.6");
    let [finding] = &threads.findings()[..] else { panic!("one finding") };
    assert_eq!((finding.kind, finding.value), (FindingKind::Deadlock, 60 + 50 + 40));
    assert_eq!(
        finding.to_string(),
        "3 threads wait for locks in debit (threads 7 and 9) and credit (thread 8), and none gets one in the last 4.0 s: \
         take locks in the same order everywhere, and wait for nothing else while a lock is held"
    );
}

/// The requests of a server come one after the other to the lock.
#[test]
fn threads_that_come_to_the_lock_later_do_not_hide_a_deadlock() {
    let mut threads = Threads::wall();
    wait_from(&mut threads, 4, DEBIT);
    wait_from(&mut threads, 4, CREDIT);
    wait_from(&mut threads, 8, DEBIT);
    wait_from(&mut threads, 9, DEBIT);
    let [finding] = &threads.findings()[..] else { panic!("one finding") };
    assert!(finding.evidence.starts_with("2 threads wait for locks"), "{finding}");
    assert!(finding.evidence.ends_with("none gets one in the last 6.0 s"), "{finding}");
}

#[test]
fn a_thread_without_a_method_does_not_hide_that_of_most_threads() {
    let mut threads = Threads::wall();
    threads.add(2, ThreadState::Blocked, DEBIT).add(1, ThreadState::Blocked, "pthread_mutex_lock@libc.so.6");
    let [finding] = &threads.findings()[..] else { panic!("one finding") };
    assert!(
        finding.evidence.starts_with("3 threads wait for locks in debit (threads 7 and 8), and none"),
        "{finding}"
    );
}

#[test]
fn a_lock_that_one_thread_still_gets_is_no_deadlock() {
    let mut threads = Threads::wall();
    threads.add(5, ThreadState::Blocked, DEBIT);
    assert_eq!(threads.kinds(), [FindingKind::Deadlock]);
    let mut threads = Threads::wall();
    threads.add(5, ThreadState::Blocked, DEBIT).add_queue(1, DEBIT);
    assert_eq!(threads.kinds(), [FindingKind::LockConvoy]);
}

#[test]
fn one_thread_short_waits_and_waits_that_end_are_no_deadlock() {
    let mut threads = Threads::wall();
    wait_from(&mut threads, 4, DEBIT);
    assert_eq!(threads.kinds(), [], "one thread");
    for (second, expected) in [(7, &[FindingKind::Deadlock][..]), (8, &[])] {
        let mut threads = Threads::wall();
        wait_from(&mut threads, second, DEBIT);
        wait_from(&mut threads, second, CREDIT);
        assert_eq!(threads.kinds(), expected, "from second {second} on");
    }
    let mut threads = Threads::wall();
    for _ in 0..2 {
        // The thread ends.
        threads.add_thread("worker", &[(0, 80, Some(ThreadState::Blocked), DEBIT)]);
    }
    assert_eq!(threads.kinds(), []);
}

#[test]
fn a_lock_convoy_beside_a_deadlock_is_found_too() {
    let mut threads = Threads::wall();
    threads.add(2, ThreadState::Blocked, DEBIT).add_queue(7, "main;append;pthread_mutex_lock@libc.so.6");
    assert_eq!(threads.kinds(), [FindingKind::LockConvoy, FindingKind::Deadlock]);
}

#[test]
fn of_durations_the_last_wait_alone_counts() {
    let durations = |waits: &[(u64, u64)]| {
        let sampling = Sampling::Durations { min_ns: 0 };
        let mut threads = Threads::sampled(Event { name: "off-cpu".to_owned(), sampling }, 10);
        let blocked =
            |(second, seconds): &(u64, u64)| (*second, seconds * NS_PER_S, Some(ThreadState::Blocked), DEBIT);
        let parts: Vec<_> = waits.iter().map(blocked).collect();
        threads.add_thread("worker", &parts).add_thread("worker", &parts);
        threads.kinds()
    };
    assert_eq!(durations(&[(2, 8)]), [FindingKind::Deadlock]);
    assert_eq!(durations(&[(2, 2), (4, 2), (6, 2), (8, 2)]), []);
}
