//! Locks that their owner holds for seconds, and threads that take turns at waiting for work.

use profiler_profile::{Event, Finding, FindingKind, Sampling, ThreadState};

use super::{HZ, NS_PER_S, Threads};
use crate::{WaitCause, Waits};

const ROOT: &str = "start_thread@libc.so.6;shop!Shop.Program.Main.AnonymousMethod__0()";
const ENTER: &str =
    "System.Private.CoreLib!System.Threading.Monitor.Enter(object);pthread_cond_wait@libc.so.6";
const SLEEP: &str =
    "System.Private.CoreLib!System.Threading.Thread.Sleep(int);pthread_cond_timedwait@libc.so.6";
const RECEIVE: &str = "System.Net.Sockets!System.Net.Sockets.Socket.Receive(byte[]);tcp_recvmsg";
const MAIN: &str = "main;shop!Shop.Program.Main(string[]);\
                    System.Private.CoreLib!System.Threading.Thread.Sleep(int);pthread_cond_timedwait@libc.so.6";

/// The main thread sleeps, four threads wait for a lock in this method, and one thread has another stack.
fn with_owner(method: &str, state: ThreadState, owner: &str) -> Threads {
    let mut threads = Threads::wall();
    threads.add(1, ThreadState::Blocked, MAIN);
    threads.add(4, ThreadState::Blocked, &format!("{ROOT};shop!{method}();{ENTER}"));
    threads.add(1, state, &format!("{ROOT};{owner}"));
    threads
}

fn only(mut threads: Threads) -> Finding {
    let findings = threads.findings();
    let [finding] = &findings[..] else { panic!("one finding: {findings:?}") };
    finding.clone()
}

#[test]
fn an_owner_in_the_same_method_is_named_with_what_it_does() {
    let task = "System.Private.CoreLib!System.Threading.Tasks.Task.InternalWaitCore(int,CancellationToken);\
                Monitor_Wait@libcoreclr.so;pthread_cond_wait@libc.so.6";
    for (state, callees, activity, remedy) in [
        (ThreadState::OnCpu, String::new(), "(100 % on a CPU)", "compute before the lock is taken"),
        (
            ThreadState::Runnable,
            String::new(),
            "(100 % on a CPU or waiting for one)",
            "compute before the lock is taken",
        ),
        (ThreadState::Blocked, format!(";{SLEEP}"), "(sleeps)", "do not sleep while"),
        (ThreadState::Blocked, format!(";{RECEIVE}"), "(reads a socket)", "read and write sockets"),
        (ThreadState::Blocked, format!(";{task}"), "(waits for a task)", "wait for nothing else"),
        (
            ThreadState::Blocked,
            ";__wait4@libc.so.6;do_wait_[k]".to_owned(),
            "(waits for a child process)",
            "run other programs before",
        ),
        (ThreadState::Disk, ";fsync@libc.so.6".to_owned(), "(waits for a file)", "read and write sockets"),
    ] {
        let finding =
            only(with_owner("Shop.Price.Compute", state, &format!("shop!Shop.Price.Compute(){callees}")));
        assert_eq!(finding.kind, FindingKind::HeldLock, "{finding}");
        assert_eq!(
            finding.evidence,
            format!(
                "4 threads wait for locks in Shop.Price.Compute, and none gets one in the last 10.0 s; the owner is in \
                 Shop.Price.Compute {activity}, thread 12 (worker)"
            )
        );
        assert!(finding.remedy.starts_with(remedy), "{finding}");
    }
}

/// A factory of `Lazy<T>` and a type initializer run below the method in which other threads wait for their end.
#[test]
fn an_owner_in_a_callee_of_the_method_is_named_with_the_callee() {
    let lazy = "System.Private.CoreLib!System.Lazy<int>.CreateValue();shop!Shop.Price.Load()";
    let finding = only(with_owner(
        "Shop.Price.Get",
        ThreadState::Blocked,
        &format!("shop!Shop.Price.Get();{lazy};{SLEEP}"),
    ));
    assert_eq!(finding.kind, FindingKind::HeldLock);
    assert!(
        finding
            .evidence
            .ends_with("the owner is in Shop.Price.Get (sleeps) at Shop.Price.Load, thread 12 (worker)"),
        "{finding}"
    );
}

#[test]
fn an_owner_in_a_method_of_the_same_type_is_likely() {
    for (owner, expected) in [
        ("shop!Shop.Price.Refresh()", "Shop.Price.Refresh (100 % on a CPU), thread"),
        (
            "shop!Shop.Price.Refresh();shop!Shop.Math.Sum()",
            "Shop.Price.Refresh (100 % on a CPU) at Shop.Math.Sum, thread",
        ),
    ] {
        let finding = only(with_owner("Shop.Price.Read", ThreadState::OnCpu, owner));
        assert_eq!(finding.kind, FindingKind::HeldLock);
        assert!(finding.evidence.contains(&format!("; the owner is most likely in {expected}")), "{finding}");
    }
}

/// Threads in two methods can wait for each other, whatever other methods of their type do.
#[test]
fn threads_in_two_methods_do_not_make_a_thread_of_their_type_the_owner() {
    let mut threads = Threads::wall();
    threads.add(1, ThreadState::Blocked, MAIN);
    for method in ["Debit", "Credit"] {
        threads.add(1, ThreadState::Blocked, &format!("{ROOT};shop!Shop.Bank.{method}();{ENTER}"));
    }
    threads.add(1, ThreadState::OnCpu, &format!("{ROOT};shop!Shop.Bank.Report()"));
    let finding = only(threads);
    assert_eq!(
        finding.evidence,
        "2 threads wait for locks in Shop.Bank.Credit (thread 9) and Shop.Bank.Debit (thread 8), and none gets one in the \
         last 10.0 s; they wait for each other, or for a thread that can be in Shop.Bank.Report (100 % on a CPU), thread 10 \
         (worker)"
    );
}

#[test]
fn threads_that_wait_for_the_lock_of_a_file_are_no_deadlock() {
    let mut threads = Threads::wall();
    threads.add(2, ThreadState::Blocked, "main;update;flock@libc.so.6;locks_lock_inode_wait@[kernel]");
    assert_eq!(threads.kinds(), []);
}

#[test]
fn a_thread_without_a_relation_to_the_lock_can_be_its_owner_if_it_proceeds() {
    for (state, owner, activity) in [
        (ThreadState::OnCpu, "shop!Shop.Report.Sum()".to_owned(), "(100 % on a CPU)"),
        (ThreadState::Blocked, format!("shop!Shop.Report.Sum();{SLEEP}"), "(sleeps)"),
        (ThreadState::Blocked, format!("shop!Shop.Report.Sum();{RECEIVE}"), "(reads a socket)"),
    ] {
        let finding = only(with_owner("Shop.Price.Read", state, &owner));
        assert_eq!(finding.kind, FindingKind::HeldLock);
        let expected = format!(
            "; they wait for each other, or for a thread that can be in Shop.Report.Sum {activity}, thread 12 (worker)"
        );
        assert!(finding.evidence.ends_with(&expected), "{finding}");
        assert!(finding.remedy.starts_with("take locks in the same order"), "{finding}");
    }
}

/// The entry method of the program, threads that leave their methods, idle threads, and those that wait on a condition variable
/// of the lock hold no lock.
#[test]
fn threads_that_hold_no_lock_do_not_hide_a_deadlock() {
    let condition = "System.Private.CoreLib!System.Threading.Monitor.Wait(object);Monitor_Wait@libcoreclr.so;\
                     pthread_cond_wait@libc.so.6";
    let idle = "System.Private.CoreLib!System.Threading.LowLevelLifoSemaphore.Wait(int,bool);pthread_cond_wait@libc.so.6";
    for owner in [
        format!("shop!Shop.Price.Read();{condition}"),
        format!("shop!Shop.Price.Take();{condition}"),
        idle.to_owned(),
        "read@libc.so.6".to_owned(),
    ] {
        let mut threads = with_owner("Shop.Price.Read", ThreadState::Blocked, &owner);
        assert_eq!(threads.kinds(), [FindingKind::Deadlock], "{owner}");
    }
    let mut threads = Threads::wall();
    threads.add(2, ThreadState::Blocked, &format!("{ROOT};shop!Shop.Price.Read();{ENTER}"));
    let parts: Vec<_> = (0..10)
        .map(|second| {
            (second, HZ, Some(ThreadState::OnCpu), format!("start_thread;shop!Shop.Job{second}.Run()"))
        })
        .collect();
    let parts: Vec<_> =
        parts.iter().map(|(at, ticks, state, folded)| (*at, *ticks, *state, &**folded)).collect();
    threads.add_thread("worker", &parts);
    assert_eq!(threads.kinds(), [FindingKind::Deadlock]);
}

#[test]
fn a_thread_that_was_there_for_a_part_of_the_time_is_no_owner() {
    let owner = format!("{ROOT};shop!Shop.Price.Read();{SLEEP}");
    for (ticks, expected) in [(79, FindingKind::Deadlock), (80, FindingKind::HeldLock)] {
        let mut threads = Threads::wall();
        threads.add(2, ThreadState::Blocked, &format!("{ROOT};shop!Shop.Price.Read();{ENTER}"));
        threads.add_thread("worker", &[(0, ticks, Some(ThreadState::Blocked), &owner)]);
        assert_eq!(threads.kinds(), [expected], "{ticks} ticks");
    }
}

/// An event of waits alone shows a thread that runs by the time without waits.
#[test]
fn an_owner_that_runs_is_found_by_its_short_waits() {
    let sampling = Sampling::Durations { min_ns: 0 };
    let mut threads = Threads::sampled(Event { name: "off-cpu".to_owned(), sampling }, 10);
    let waiter = format!("{ROOT};shop!Shop.Price.Read();{ENTER}");
    let owner = format!("{ROOT};shop!Shop.Price.Read()");
    for _ in 0..3 {
        threads.add_thread("worker", &[(0, 10 * NS_PER_S, Some(ThreadState::Blocked), &waiter)]);
    }
    threads.add_thread("worker", &[(4, NS_PER_S, Some(ThreadState::Runnable), &owner)]);
    let finding = only(threads);
    assert!(finding.evidence.contains("the owner is in Shop.Price.Read (90 % on a CPU)"), "{finding}");
}

const LEADER: &str = "start_thread@libc.so.6;worker;next_connection;accept@libc.so.6";
const FOLLOWER: &str =
    "start_thread@libc.so.6;worker;next_connection;accept_mutex_lock;pthread_mutex_lock@libc.so.6";

#[test]
fn threads_that_wait_for_the_lock_of_a_thread_that_waits_for_work_are_idle() {
    let mut threads = Threads::wall();
    let profile =
        threads.add(1, ThreadState::Blocked, LEADER).add(7, ThreadState::Blocked, FOLLOWER).profile();
    assert_eq!(profile.findings(), []);
    assert_eq!(profile.first_ledger().idle, 8 * 10 * HZ);
    // Under load, threads lead in turns.
    let mut threads = Threads::wall();
    for second in 0..8 {
        let parts = [
            (0, second * HZ, Some(ThreadState::Blocked), FOLLOWER),
            (second, HZ, Some(ThreadState::Blocked), LEADER),
            (second + 1, HZ, Some(ThreadState::OnCpu), "start_thread@libc.so.6;worker;handle"),
            (second + 2, (8 - second) * HZ, Some(ThreadState::Blocked), FOLLOWER),
        ];
        threads.add_thread("worker", &parts);
    }
    assert_eq!(threads.kinds(), []);
}

#[test]
fn a_lock_that_is_held_for_work_is_no_queue_of_idle_threads() {
    let cause = |leader: &str, state: ThreadState, lock: &str| {
        let mut threads = Threads::wall();
        let profile = threads.add(1, state, leader).add(2, ThreadState::Blocked, lock).profile();
        Waits::of(&profile).cause(profile.samples().last().unwrap()).unwrap()
    };
    let append = "start_thread@libc.so.6;worker;append;pthread_mutex_lock@libc.so.6";
    assert_eq!(cause(LEADER, ThreadState::Blocked, FOLLOWER), WaitCause::Idle);
    assert_eq!(cause(LEADER, ThreadState::Blocked, append), WaitCause::Lock, "another function");
    assert_eq!(cause(LEADER, ThreadState::OnCpu, FOLLOWER), WaitCause::Lock, "it never waits");
    let deep = "start_thread@libc.so.6;worker;next_connection;run;serve;call;accept@libc.so.6";
    assert_eq!(cause(deep, ThreadState::Blocked, FOLLOWER), WaitCause::Lock, "a server within the lock");
}

/// A pass over the threads does not scan for epilogues: the stack of a thread that was displaced can lack a caller.
#[test]
fn the_methods_of_an_owner_are_those_of_its_stacks_on_a_cpu() {
    let mut threads = Threads::wall();
    threads.add(1, ThreadState::Blocked, MAIN);
    threads.add(4, ThreadState::Blocked, &format!("{ROOT};shop!Shop.Price.Read();{ENTER}"));
    let whole = format!("{ROOT};shop!Shop.Price.Compute();shop!Shop.Math.Sum()");
    let cut = format!("{ROOT};shop!Shop.Math.Sum()");
    let parts = [(0, 20, Some(ThreadState::OnCpu), &*whole), (2, 80, Some(ThreadState::Runnable), &*cut)];
    threads.add_thread("worker", &parts);
    let finding = only(threads);
    assert!(
        finding.evidence.contains("Shop.Price.Compute (100 % on a CPU or waiting for one) at Shop.Math.Sum"),
        "{finding}"
    );
}

/// The function of a closure can be inlined into that of a library, and a module can have no symbols.
#[test]
fn a_thread_without_names_can_be_the_owner_of_a_lock() {
    let append = "start_thread@libc.so.6;append;pthread_mutex_lock@libc.so.6";
    let sleep = "clock_nanosleep@libc.so.6;hrtimer_nanosleep_[k]";
    for (folded, state, activity) in [
        (
            format!("start_thread@libc.so.6;std::thread::functions::sleep;{sleep}"),
            ThreadState::Blocked,
            "sleeps",
        ),
        (format!("start_thread@libc.so.6;[shop+0x10]@shop;{sleep}"), ThreadState::Blocked, "sleeps"),
        ("start_thread@libc.so.6;[shop+0x10]@shop".to_owned(), ThreadState::OnCpu, "100 % on a CPU"),
    ] {
        let mut threads = Threads::wall();
        threads.add(1, ThreadState::Blocked, "_start;main;pthread_join@libc.so.6");
        threads.add(4, ThreadState::Blocked, append).add(1, state, &folded);
        let finding = only(threads);
        assert_eq!(finding.kind, FindingKind::HeldLock, "{finding}");
        let end = format!(
            "; they wait for each other, or for a thread that can be in code without names ({activity}), thread 12 (worker)"
        );
        assert!(finding.evidence.ends_with(&end), "{finding}");
    }
}

/// Service threads of a runtime and idle threads own no lock.
#[test]
fn threads_of_a_runtime_do_not_hide_a_deadlock() {
    let append = "start_thread@libc.so.6;append;pthread_mutex_lock@libc.so.6";
    let mut threads = Threads::wall();
    threads.add(4, ThreadState::Blocked, append);
    threads.add(1, ThreadState::Blocked, "start_thread@libc.so.6;[shop+0x10]@shop;epoll_wait@libc.so.6");
    let of_runtime =
        (0, 100, Some(ThreadState::OnCpu), "start_thread@libc.so.6;[libcoreclr.so+0x10]@libcoreclr.so");
    threads.add_thread(".NET SigHandler", &[of_runtime]);
    assert_eq!(threads.kinds(), [FindingKind::Deadlock]);
}
