//! Locks whose owners were read in the memory of their process.

use profiler_profile::{Finding, FindingKind, GcMode, LockOwner, ManagedThread, ThreadState};

use super::{HZ, NS_PER_S, Threads};
use crate::{IdleThreads, with_wait_causes};

const READ: &str = "start_thread@libc.so.6;shop!Shop.Price.Read();\
                    System.Private.CoreLib!System.Threading.Monitor.Enter(object);pthread_cond_wait@libc.so.6";
const SUM: &str = "start_thread@libc.so.6;shop!Shop.Report.Sum()";

/// The thread that computes, and one of those that wait.
const BUSY: u32 = 12;
const WAITING: u32 = 8;

/// Four threads wait for a lock, and a thread without a relation to them computes.
fn threads() -> Threads {
    let mut threads = Threads::wall();
    threads.add(1, ThreadState::Blocked, "main;pthread_join@libc.so.6");
    threads.add(4, ThreadState::Blocked, READ).add(1, ThreadState::OnCpu, SUM);
    threads
}

/// Adds a reading of a lock at each of these times, milliseconds.
fn read(threads: &mut Threads, times_ms: &[u64], lock: u64, owner: u32, waiters: u32) {
    let owner = threads.builder.thread(threads.process, owner, "worker");
    for time_ms in times_ms {
        let time_ns = time_ms * NS_PER_S / 1_000;
        threads.builder.add_lock_owner(LockOwner { time_ns, owner, lock, managed_thread_id: 4, waiters });
    }
}

/// Adds readings of an owner with its managed thread, whose id is 5: its name and its exception.
fn read_managed(threads: &mut Threads, tid: u32, texts: [Option<&str>; 2]) {
    let thread = threads.builder.thread(threads.process, tid, "worker");
    let [name, exception] = texts.map(|text| Some(threads.builder.string(text?)));
    for time_ms in EACH_SECOND {
        threads.builder.add_managed_thread(ManagedThread {
            time_ns: time_ms * NS_PER_S / 1_000,
            thread,
            managed_id: 5,
            name,
            exception,
            gc_mode: GcMode::Cooperative,
        });
    }
}

fn only(mut threads: Threads) -> Finding {
    let findings = threads.findings();
    let [finding] = &findings[..] else { panic!("one finding: {findings:?}") };
    finding.clone()
}

const EACH_SECOND: [u64; 10] = [500, 1_500, 2_500, 3_500, 4_500, 5_500, 6_500, 7_500, 8_500, 9_500];

#[test]
fn a_known_owner_is_named_without_a_relation_to_the_methods_that_wait() {
    let mut threads = threads();
    read(&mut threads, &EACH_SECOND, 0x1000, BUSY, 4);
    let finding = only(threads);
    assert_eq!(finding.kind, FindingKind::HeldLock);
    assert_eq!(
        finding.evidence,
        "4 threads wait for locks in Shop.Price.Read, and none gets one in the last 10.0 s; the owner is in Shop.Report.Sum \
         (100 % on a CPU), thread 12 (worker)"
    );
}

#[test]
fn a_known_owner_without_names_is_no_deadlock() {
    let mut threads = Threads::wall();
    threads.add(1, ThreadState::Blocked, "main;pthread_join@libc.so.6");
    threads.add(4, ThreadState::Blocked, READ);
    threads.add(1, ThreadState::Blocked, "start_thread@libc.so.6;[shop+0x10]@shop;clock_nanosleep@libc.so.6");
    read(&mut threads, &EACH_SECOND, 0x1000, BUSY, 4);
    let finding = only(threads);
    assert_eq!(finding.kind, FindingKind::HeldLock);
    assert!(
        finding.evidence.ends_with("; the owner is in code without names (sleeps), thread 12 (worker)"),
        "{finding}"
    );
}

#[test]
fn threads_that_own_the_locks_of_each_other_are_a_deadlock_beside_a_thread_that_computes() {
    let mut threads = threads();
    read(&mut threads, &EACH_SECOND, 0x1000, WAITING, 3);
    read(&mut threads, &EACH_SECOND, 0x2000, WAITING + 1, 1);
    let finding = only(threads);
    assert_eq!(finding.kind, FindingKind::Deadlock);
    assert_eq!(
        finding.evidence,
        "4 threads wait for locks in Shop.Price.Read, and none gets one in the last 10.0 s; each of these locks is owned by one \
         of these threads"
    );
}

/// The evidence on a single owner behind that on the threads that wait.
fn owner_text(mut threads: Threads, texts: [Option<&str>; 2]) -> String {
    read(&mut threads, &EACH_SECOND, 0x1000, BUSY, 4);
    read_managed(&mut threads, BUSY, texts);
    let finding = only(threads);
    let (_, owner) = finding.evidence.split_once("; the owner is ").unwrap();
    owner.to_owned()
}

#[test]
fn a_managed_owner_is_named_with_its_whole_name_and_its_exception() {
    for (texts, expected) in [
        (
            [Some("price computation"), None],
            "thread 12 \"price computation\" (managed 5), in Shop.Report.Sum (100 % on a CPU)",
        ),
        (
            [Some("price computation"), Some("System.FormatException")],
            "thread 12 \"price computation\" (managed 5), in Shop.Report.Sum (100 % on a CPU), throws or handles \
             System.FormatException",
        ),
        ([None, None], "thread 12 (worker, managed 5), in Shop.Report.Sum (100 % on a CPU)"),
    ] {
        assert_eq!(owner_text(threads(), texts), expected);
    }
}

#[test]
fn the_name_of_a_managed_owner_is_bounded_in_the_text() {
    let long = "\u{e9}".repeat(1_000);
    let text = owner_text(threads(), [Some(&long), Some(&long)]);
    assert_eq!(text.matches('\u{e9}').count(), 2 * 64, "{text}");
    assert_eq!(text.matches('\u{2026}').count(), 2, "{text}");
}

#[test]
fn a_deadlock_names_the_managed_threads_that_own_the_locks() {
    let cycle = |owners: u32| {
        let mut threads = Threads::wall();
        threads.add(1, ThreadState::Blocked, "main;pthread_join@libc.so.6");
        threads.add(6, ThreadState::Blocked, READ);
        for owner in 0..owners {
            let waiters = if owner == 0 { 7 - owners } else { 1 };
            read(&mut threads, &EACH_SECOND, 0x1000 + u64::from(owner), WAITING + owner, waiters);
            read_managed(&mut threads, WAITING + owner, [Some(&format!("transfer {owner}")), None]);
        }
        let finding = only(threads);
        assert_eq!(finding.kind, FindingKind::Deadlock);
        let (_, cycle) = finding.evidence.split_once("; each of these locks is owned by ").unwrap();
        cycle.to_owned()
    };
    let both = "one of these threads: 8 \"transfer 0\" (managed 5) and 9 \"transfer 1\" (managed 5)";
    assert_eq!(cycle(2), both);
    let third = "10 \"transfer 2\" (managed 5)";
    assert!(cycle(4).ends_with(&format!("{third} and 1 other")), "{}", cycle(4));
    assert!(cycle(6).ends_with(&format!("{third} and 3 others")), "{}", cycle(6));
}

#[test]
fn a_managed_owner_and_one_of_native_code_are_named_both() {
    let mut threads = threads();
    threads.add(1, ThreadState::OnCpu, "start_thread@libc.so.6;compute");
    read(&mut threads, &EACH_SECOND, 0x1000, BUSY, 3);
    read(&mut threads, &EACH_SECOND, 0x2000, BUSY + 1, 1);
    read_managed(&mut threads, BUSY, [Some("report"), None]);
    let finding = only(threads);
    let expected = "; the owners are thread 12 \"report\" (managed 5), in Shop.Report.Sum (100 % on a CPU) and in compute (100 % on \
                    a CPU), thread 13 (worker)";
    assert!(finding.evidence.ends_with(expected), "{finding}");
}

#[test]
fn two_known_owners_are_named_both() {
    let mut threads = threads();
    threads.add(
        1,
        ThreadState::OnCpu,
        "start_thread@libc.so.6;shop!Shop.Price.Compute();shop!Shop.Math.Sum()",
    );
    read(&mut threads, &EACH_SECOND, 0x1000, BUSY, 3);
    read(&mut threads, &EACH_SECOND, 0x2000, BUSY + 1, 1);
    let finding = only(threads);
    let expected = "; the owners are in Shop.Report.Sum (100 % on a CPU), thread 12 (worker) and Shop.Price.Compute (100 % on a \
                    CPU) at Shop.Math.Sum, thread 13 (worker)";
    assert!(finding.evidence.ends_with(expected), "{finding}");
}

#[test]
fn readings_that_do_not_show_the_owner_throughout_say_nothing() {
    let without = only(threads());
    assert!(
        without.evidence.contains("they wait for each other, or for a thread that can be in"),
        "{without}"
    );
    type Reading = (&'static [u64], u64, u32, u32);
    let cases: [(&str, &[Reading]); 6] = [
        ("one reading", &[(&[9_000], 0x1000, BUSY, 4)]),
        ("none at the end", &[(&EACH_SECOND[..6], 0x1000, BUSY, 4)]),
        ("none at the begin", &[(&EACH_SECOND[4..], 0x1000, BUSY, 4)]),
        ("a gap", &[(&[500, 1_500, 2_500, 7_500, 8_500, 9_500], 0x1000, BUSY, 4)]),
        ("fewer waiters", &[(&EACH_SECOND, 0x1000, BUSY, 3)]),
        ("another owner", &[(&EACH_SECOND, 0x1000, BUSY, 4), (&[5_000], 0x1000, WAITING, 4)]),
    ];
    for (what, readings) in cases {
        let mut threads = threads();
        for (times_ms, lock, owner, waiters) in readings {
            read(&mut threads, times_ms, *lock, *owner, *waiters);
        }
        assert_eq!(only(threads), without, "{what}");
    }
    let mut threads = threads();
    read(&mut threads, &EACH_SECOND, 0x1000, 99, 4);
    assert_eq!(only(threads), without, "an owner without samples");
}

/// Threads that wait for the lock of the last one, which waits in this stack. One more thread computes.
fn owned_by(owner: &str, waiters: &str) -> Threads {
    let mut threads = Threads::wall();
    threads.add(1, ThreadState::Blocked, "main;pthread_join@libc.so.6");
    threads.add(4, ThreadState::Blocked, waiters);
    threads.add(1, ThreadState::Blocked, owner).add(1, ThreadState::OnCpu, SUM);
    read(&mut threads, &EACH_SECOND, 0x1000, BUSY, 4);
    threads
}

/// Without the memory of the process, its stack is that of a main loop.
#[test]
fn a_known_owner_that_waits_like_a_main_loop_is_named_and_not_hidden() {
    let convert = "start_thread@libc.so.6;owner_thread;convert;__wait4@libc.so.6;do_wait_[k]";
    let profile = owned_by(convert, READ).profile();
    let [finding] = profile.findings() else { panic!("one finding: {:?}", profile.findings()) };
    let expected = "; the owner is in convert (waits for a child process), thread 12 (worker)";
    assert!(finding.evidence.ends_with(expected), "{finding}");
    assert!(finding.remedy.starts_with("run other programs before"), "{finding}");
    let shown = with_wait_causes(&profile, IdleThreads::Hidden);
    assert!(shown.samples().iter().any(|sample| shown.thread(sample.thread).tid == BUSY));
}

/// Both sides: a child process in the function that takes the lock, and work from a pipe there.
#[test]
fn a_known_owner_that_waits_for_work_leads_idle_threads() {
    const ROOT: &str = "start_thread@libc.so.6;worker;next_job";
    let follower = format!("{ROOT};pthread_mutex_lock@libc.so.6");
    let child = format!("{ROOT};__wait4@libc.so.6;do_wait_[k]");
    assert_eq!(owned_by(&child, &follower).kinds(), [FindingKind::HeldLock]);
    let jobs = format!("{ROOT};read@libc.so.6;anon_pipe_read_[k]");
    let profile = owned_by(&jobs, &follower).profile();
    assert_eq!(profile.findings(), []);
    assert_eq!(profile.first_ledger().idle, 5 * 10 * HZ);
}

/// A thread that had a lock for a moment and waits for work since.
#[test]
fn a_thread_is_hidden_when_it_owns_no_lock_any_more() {
    let wait = "start_thread@libc.so.6;worker;pthread_cond_wait@libc.so.6";
    for (times_ms, idle) in [(&[500, 1_500][..], 6), (&[500][..], 10), (&[500, 4_500][..], 10)] {
        let mut threads = Threads::wall();
        let parts: Vec<_> = (0..10).map(|second| (second, HZ, Some(ThreadState::Blocked), wait)).collect();
        threads.add_thread("worker", &parts);
        read(&mut threads, times_ms, 0x1000, 7, 1);
        assert_eq!(threads.profile().first_ledger().idle, idle * HZ, "{times_ms:?}");
    }
}
