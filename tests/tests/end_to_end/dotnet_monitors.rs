//! Tests the threads and the owners of monitors that are read from the memory of .NET runtimes without diagnostics, against what
//! the program knows.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use profiler::profile::{FindingKind, LockOwner, Profile, Symbolization};
use profiler_dotnet_runtime::{GcMode, HeldMonitor, ManagedThread};
use profiler_tests::{Workload, run_beside_others, sample_pid, wait_until};

use crate::{dotnet_memory::open, dotnet_method_memory::without_diagnostics};

/// Single-file programs of .NET 9 do not export what the reader needs.
const PROGRAMS: [&str; 2] = ["9.0", "single-file-10.0"];

/// The threads that wait for the lock of the program.
const READERS: u32 = 3;

/// Starts a program whose thread `price computation` holds a lock and computes. Returns the id of this thread.
fn start_owner(program: &str) -> (Workload, u32) {
    let mut workload = without_diagnostics(program, "owner");
    let owner = workload.wait_for("owner ").trim().parse().unwrap();
    (workload, owner)
}

/// The threads, when the program has started them all and waits: a thread that starts is in the list before it has a name.
fn await_threads(runtime: &mut profiler_dotnet_runtime::DotNetRuntime) -> Vec<ManagedThread> {
    wait_until("the threads of the program", || {
        let threads = runtime.threads().ok().filter(|threads| threads.is_complete)?.entries;
        let readers = threads.iter().filter(|thread| thread.name.as_deref() == Some("price reader"));
        let is_whole =
            readers.count() == READERS as usize && threads.iter().any(|thread| thread.exception.is_some());
        is_whole.then_some(threads)
    })
}

#[test]
fn a_monitor_has_the_owner_and_the_waiters_that_the_program_has() {
    let Some(_lock) = run_beside_others() else { return };
    for program in PROGRAMS {
        let (workload, owner) = start_owner(program);
        let mut runtime = open(&workload);
        let monitor = wait_until("the threads that wait", || {
            let monitors = runtime.monitors().unwrap();
            let [monitor] = monitors.entries[..] else { return None };
            (monitors.is_complete && monitor.waiters == READERS).then_some(monitor)
        });
        assert_eq!((monitor.owner_os_id, monitor.recursion), (owner, 2), "{program}: {monitor:?}");
        let threads = await_threads(&mut runtime);
        let thread = threads.iter().find(|thread| thread.os_id == owner).unwrap();
        assert_eq!(thread.name.as_deref(), Some("price computation"), "{program}");
        assert_eq!(thread.managed_id, monitor.owner_managed_id, "{program}");
    }
}

#[test]
fn threads_have_their_names_modes_and_exceptions() {
    let Some(_lock) = run_beside_others() else { return };
    for program in PROGRAMS {
        let (workload, owner) = start_owner(program);
        let mut runtime = open(&workload);
        let before = workload.tids();
        let threads = await_threads(&mut runtime);
        let of_process: BTreeSet<u32> = before.into_iter().chain(workload.tids()).collect();
        assert!(threads.iter().all(|thread| of_process.contains(&thread.os_id)), "{program}: {threads:?}");
        let ids: BTreeSet<u32> = threads.iter().map(|thread| thread.managed_id).collect();
        assert_eq!(ids.len(), threads.len(), "{program}: {threads:?}");
        let main = threads.iter().find(|thread| thread.os_id == workload.pid()).unwrap();
        assert_eq!((main.managed_id, &main.name), (1, &None), "{program}");
        // It waits in the handler.
        assert_eq!(main.exception.as_deref(), Some("System.FormatException"), "{program}");
        let mut others = threads.iter().filter(|thread| thread.os_id != workload.pid());
        assert!(others.all(|thread| thread.exception.is_none()), "{program}: {threads:?}");
        wait_until("the readers wait", || {
            let threads = runtime.threads().ok()?.entries;
            let mut readers = threads.iter().filter(|thread| thread.name.as_deref() == Some("price reader"));
            readers.all(|thread| thread.gc_mode == GcMode::Preemptive).then_some(())
        });
        // A thread that computes is in managed code, except when it waits for a collection.
        wait_until("the owner in managed code", || {
            let threads = runtime.threads().ok()?.entries;
            let mut threads = threads.iter();
            threads.any(|thread| thread.os_id == owner && thread.gc_mode == GcMode::Cooperative).then_some(())
        });
    }
}

#[test]
fn each_monitor_of_a_deadlock_is_owned_by_the_thread_that_waits_for_the_other_one() {
    let Some(_lock) = run_beside_others() else { return };
    for program in PROGRAMS {
        let workload = without_diagnostics(program, "deadlock");
        let mut runtime = open(&workload);
        let [one, other] = wait_until("the deadlock", || {
            let monitors = runtime.monitors().unwrap();
            let awaited = |monitor: &&HeldMonitor| monitor.waiters == 1;
            let awaited: Vec<_> = monitors.entries.iter().filter(awaited).copied().collect();
            <[HeldMonitor; 2]>::try_from(awaited).ok()
        });
        assert_ne!(one.owner_os_id, other.owner_os_id, "{program}");
        assert_ne!(one.lock, other.lock, "{program}");
        let tids = workload.tids();
        assert!([one, other].iter().all(|monitor| tids.contains(&monitor.owner_os_id)), "{program}");
    }
}

#[test]
fn a_monitor_that_changes_hands_has_an_owner_of_the_program_or_none() {
    let Some(_lock) = run_beside_others() else { return };
    const THREADS: usize = 8;
    for program in PROGRAMS {
        let workload = without_diagnostics(program, "convoy");
        let mut runtime = open(&workload);
        // The runtime has other locks when it starts.
        let mut owners_by_lock = BTreeMap::<_, BTreeSet<u32>>::new();
        let owners = wait_until("each thread as the owner", || {
            for monitor in runtime.monitors().unwrap().entries {
                assert!(monitor.waiters < THREADS as u32, "{program}: {monitor:?}");
                owners_by_lock.entry(monitor.lock.0).or_default().insert(monitor.owner_os_id);
            }
            owners_by_lock.values().find(|owners| owners.len() == THREADS).cloned()
        });
        let tids = workload.tids();
        assert!(owners.iter().all(|owner| tids.contains(owner) && *owner != workload.pid()), "{program}");
    }
}

/// Whether samples of a thread are in a method.
fn is_sampled_in(profile: &Profile, tid: u32, method: &str) -> bool {
    let of_thread = profile.samples().iter().filter(|sample| profile.thread(sample.thread).tid == tid);
    let frames = of_thread.flat_map(|sample| &profile.stack(sample.stack).frames);
    frames.map(|frame| profile.frame(*frame)).any(|frame| {
        matches!(frame.symbolization, Symbolization::Symbol(_)) && profile.string(frame.name).contains(method)
    })
}

#[test]
fn a_profile_of_waits_has_the_owner_of_a_lock_and_what_it_does() {
    let Some(_lock) = run_beside_others() else { return };
    for program in PROGRAMS {
        let (workload, owner) = start_owner(program);
        let wall = sample_pid(workload.pid()).wall_clock_hz(49).cpu_samples(false);
        let mut session = wall.build().unwrap().start().unwrap();
        let profile = wait_until("the owner, and what it does", || {
            let profile = session.take_profile(Duration::from_secs(2)).unwrap();
            let is_whole = profile.lock_owners().iter().any(|lock| lock.waiters == READERS)
                && is_sampled_in(&profile, owner, "Workload.Price.Compute");
            is_whole.then_some(profile)
        });
        // About once a second.
        let seconds = profile.header().duration_ns / 1_000_000_000;
        assert!(profile.lock_owners().len() as u64 <= seconds + 2, "{program}: {:?}", profile.lock_owners());
        for lock in profile.lock_owners() {
            let thread = profile.thread(lock.owner);
            // The kernel cuts names off after 15 bytes.
            assert_eq!((thread.tid, profile.string(thread.comm)), (owner, "price computati"), "{program}");
            assert_eq!(profile.process(lock.process(&profile)).pid, workload.pid(), "{program}");
            assert!(lock.time_ns <= profile.header().duration_ns, "{program}: {lock:?}");
        }
        // Each reading of a lock has its owner.
        let times = |lock: &LockOwner| (lock.time_ns, lock.managed_thread_id);
        let readings: BTreeSet<_> = profile.lock_owners().iter().map(times).collect();
        let of_owner = profile.managed_threads();
        let described: BTreeSet<_> = of_owner.iter().map(|one| (one.time_ns, one.managed_id)).collect();
        assert!(!described.is_empty() && described.is_subset(&readings), "{program}: {of_owner:?}");
        for one in of_owner {
            let name = one.name.map(|name| profile.string(name));
            assert_eq!(
                (profile.thread(one.thread).tid, name),
                (owner, Some("price computation")),
                "{program}"
            );
            assert_eq!(one.exception, None, "{program}");
        }
        let mut recorded = Vec::new();
        profile.write_recording(&mut recorded).unwrap();
        let read = Profile::read(&*recorded).unwrap();
        assert_eq!(read.lock_owners(), profile.lock_owners());
        assert_eq!(read.managed_threads(), profile.managed_threads());
    }
}

#[test]
fn a_finding_names_the_owner_of_a_lock_and_a_deadlock_its_cycle() {
    let Some(_lock) = run_beside_others() else { return };
    // A lock that is held is one that no thread gets for 3 s.
    const SAMPLED: Duration = Duration::from_secs(5);
    for program in PROGRAMS {
        for mode in ["owner", "deadlock"] {
            let mut workload = without_diagnostics(program, mode);
            let (kind, expected) = match mode {
                "owner" => {
                    let owner = workload.wait_for("owner ");
                    let name =
                        format!("; the owner is thread {} \"price computation\" (managed ", owner.trim());
                    (FindingKind::HeldLock, [name, "), in Workload.Price.Compute (".to_owned()])
                }
                _ => {
                    let cycle = "; each of these locks is owned by one of these threads: ".to_owned();
                    (FindingKind::Deadlock, [cycle, ", managed ".to_owned()])
                }
            };
            let wall = sample_pid(workload.pid()).wall_clock_hz(49).cpu_samples(false);
            let mut session = wall.build().unwrap().start().unwrap();
            wait_until("the owner in a finding", || {
                let profile = session.take_profile(SAMPLED).unwrap();
                println!("{program} {mode}: {:?} {:?}", profile.findings(), profile.lock_owners());
                let found = profile.findings().iter().find(|finding| finding.kind == kind)?;
                expected.iter().all(|text| found.evidence.contains(text)).then_some(())
            });
        }
    }
}

#[test]
fn owners_of_locks_are_read_only_where_waits_are_sampled() {
    let Some(_lock) = run_beside_others() else { return };
    let (workload, _) = start_owner("9.0");
    let mut session = sample_pid(workload.pid()).build().unwrap().start().unwrap();
    let profile = session.take_profile(Duration::from_secs(2)).unwrap();
    assert!(profile.total_value() > 0);
    assert_eq!(profile.lock_owners(), []);
}
