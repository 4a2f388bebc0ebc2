//! Tests the owners of mutexes of the GNU C library, and the findings that name them, against what the program knows.

use std::{collections::BTreeSet, time::Duration};

use profiler::profile::{FindingKind, Profile};
use profiler_tests::{Workload, run_beside_others, sample_pid, wait_until};

/// A lock that is held is one that no thread gets for 3 s.
const SAMPLED: Duration = Duration::from_secs(5);

/// The threads that wait for the mutex of an owner.
const WAITING: u32 = 4;

fn start(mode: &str) -> Workload {
    Workload::start_with("mutexes", &["600", mode])
}

/// A profile of the waits of all threads.
fn wall_profile(workload: &Workload) -> Profile {
    let builder = sample_pid(workload.pid()).wall_clock_hz(49).cpu_samples(false);
    builder.build().unwrap().start().unwrap().take_profile(SAMPLED).unwrap()
}

/// A profile of the waits, which end with the session.
fn off_cpu_profile(workload: &Workload) -> Profile {
    let builder = sample_pid(workload.pid()).off_cpu(Duration::ZERO, false).cpu_samples(false);
    let mut session = builder.build().unwrap().start().unwrap();
    session.wait(Some(SAMPLED));
    session.stop().unwrap()
}

/// Samples until a profile has a finding of this kind whose evidence contains these texts.
fn await_finding(sample: impl Fn() -> Profile, kind: FindingKind, texts: &[String]) -> Profile {
    wait_until("the finding", || {
        let profile = sample();
        println!("{:?} {:?}", profile.findings(), profile.lock_owners());
        let found = profile.findings().iter().find(|finding| finding.kind == kind)?;
        texts.iter().all(|text| found.evidence.contains(text)).then_some(())?;
        Some(profile)
    })
}

/// The id of a thread with this name.
fn tid_of(workload: &Workload, name: &str) -> u32 {
    let comm = |tid| std::fs::read_to_string(format!("/proc/{}/task/{tid}/comm", workload.pid()));
    let is_it = |tid: &u32| comm(*tid).is_ok_and(|comm| comm.trim() == name);
    wait_until("the name of the thread", || workload.tids().into_iter().find(is_it))
}

#[test]
fn threads_that_own_the_mutexes_of_each_other_are_a_deadlock_beside_a_thread_that_computes() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = start("deadlock");
    let [debit, credit] = ["debit", "credit"].map(|name| tid_of(&workload, name));
    let texts = [
        "2 threads wait for locks in ".to_owned(),
        format!("debit (thread {debit})"),
        format!("credit (thread {credit})"),
        "; each of these locks is owned by one of these threads".to_owned(),
    ];
    for sample in [wall_profile, off_cpu_profile] {
        let profile = await_finding(|| sample(&workload), FindingKind::Deadlock, &texts);
        let owners = profile.lock_owners();
        assert!(owners.iter().all(|lock| (lock.waiters, lock.managed_thread_id) == (1, 0)), "{owners:?}");
        assert!(
            owners.iter().all(|lock| profile.process(lock.process(&profile)).pid == workload.pid()),
            "{owners:?}"
        );
        let of_locks: BTreeSet<_> =
            owners.iter().map(|lock| (lock.lock, profile.thread(lock.owner).tid)).collect();
        let tids: BTreeSet<_> = of_locks.iter().map(|(_, tid)| *tid).collect();
        assert_eq!((of_locks.len(), tids), (2, BTreeSet::from([debit, credit])));
        let mut recorded = Vec::new();
        profile.write_recording(&mut recorded).unwrap();
        assert_eq!(Profile::read(&*recorded).unwrap().lock_owners(), owners);
    }
}

#[test]
fn the_owner_of_a_mutex_is_named_with_what_it_does() {
    let Some(_lock) = run_beside_others() else { return };
    let cases = [
        // On a busy machine it waits for a CPU.
        ("computes", "; the owner is in compute (", " % on a CPU"),
        ("sleeps", "; the owner is in rest (", "sleeps)"),
        ("reads", "; the owner is in receive (", "reads a socket)"),
    ];
    for (mode, place, activity) in cases {
        let mut workload = start(mode);
        let owner: u32 = workload.wait_for("owner ").trim().parse().unwrap();
        let texts = [
            format!("{WAITING} threads wait for locks in price, and none gets one"),
            place.to_owned(),
            activity.to_owned(),
            format!("thread {owner} (owner)"),
        ];
        let profile = await_finding(|| wall_profile(&workload), FindingKind::HeldLock, &texts);
        let locks = profile.lock_owners();
        assert!(locks.iter().all(|lock| profile.thread(lock.owner).tid == owner), "{mode}: {locks:?}");
        assert!(locks.iter().any(|lock| lock.waiters == WAITING), "{mode}: {locks:?}");
        // About once a second.
        let seconds = profile.header().duration_ns / 1_000_000_000;
        assert!(locks.len() as u64 <= seconds + 2, "{mode}: {locks:?}");
    }
}

#[test]
fn owners_of_mutexes_are_read_only_where_waits_are_sampled() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = start("computes");
    let mut session = sample_pid(workload.pid()).build().unwrap().start().unwrap();
    let profile = session.take_profile(Duration::from_secs(2)).unwrap();
    assert!(profile.total_value() > 0);
    assert_eq!(profile.lock_owners(), []);
}
