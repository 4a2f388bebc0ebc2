//! Findings on servers of several processes with one thread each, on databases, and on locks without methods.

use profiler_profile::{FindingKind, ThreadState};

use super::{HZ, POOL_ROOT, Threads};

const WORK: &str = "main;compute";
const MAIN: &str = "_start@postgres;__libc_start_main@libc.so.6;main";

/// Adds processes with one thread each: share of the ticks, state, stack. On a CPU for the rest.
fn add_processes(
    threads: &mut Threads,
    comm: &str,
    count: u32,
    ticks: u64,
    state: ThreadState,
    folded: &str,
) {
    for _ in 0..count {
        let pid = threads.next_tid;
        threads.process = threads.builder.process(pid, comm);
        let parts =
            [(0, ticks, Some(state), folded), (ticks / 10, 100 - ticks, Some(ThreadState::OnCpu), WORK)];
        threads.add_thread(comm, &parts);
    }
}

/// A finding of processes with one thread each that wait in a stack for all the time.
fn found(comm: &str, count: u32, folded: &str) -> Vec<String> {
    let mut threads = Threads::wall();
    add_processes(&mut threads, comm, count, 100, ThreadState::Blocked, folded);
    threads.findings().iter().map(ToString::to_string).collect()
}

#[test]
fn synchronous_workers_that_wait_for_a_slow_service_are_found() {
    let python = "_start;Py_RunMain@python3.11;_PyEval_EvalFrameDefault@python3.11;\
                  _io__Buffered_readline@python3.11;sock_recv_into@python3.11;recv@libc.so.6;tcp_recvmsg_[k]";
    let apache = format!(
        "{MAIN};ap_run_mpm;proxy_run_scheme_handler;apr_wait_for_io_or_timeout@libapr-1.so.0;poll@libc.so.6"
    );
    let remedy = "examine the service that it calls, and call it asynchronously";
    assert_eq!(
        found("gunicorn", 4, python),
        [format!(
            "4 processes (gunicorn): 4.0 of 4 threads at a time wait for sockets (100 % of the time of threads with work): \
             {remedy}"
        )]
    );
    assert_eq!(
        found("apache2", 8, &apache),
        [format!(
            "8 processes (apache2): 8.0 of 8 threads at a time wait for sockets below proxy_run_scheme_handler (100 % of the \
             time of threads with work): {remedy}"
        )]
    );
    for stack in [python, &apache] {
        assert_eq!(found("apache2", 2, stack), [""; 0]);
    }
}

/// A process, or a thread, for each connection, whose clients send nothing.
#[test]
fn processes_and_threads_that_wait_for_requests_are_no_finding() {
    let recv = format!("{MAIN};serve;read_request;recv@libc.so.6;tcp_recvmsg_[k]");
    let keep_alive =
        format!("{MAIN};ap_run_mpm;ap_read_request;apr_wait_for_io_or_timeout@libapr-1.so.0;poll@libc.so.6");
    for folded in [&recv, &keep_alive] {
        assert_eq!(found("apache2", 8, folded), [""; 0], "{folded}");
    }
    let buffered = "start_thread@libc.so.6;_io__Buffered_readline@python3.11;recv@libc.so.6;tcp_recvmsg_[k]";
    assert_eq!(Threads::wall().add(8, ThreadState::Blocked, buffered).kinds(), []);
}

#[test]
fn a_build_that_waits_for_cpus_is_found_for_all_its_processes() {
    let mut threads = Threads::wall();
    add_processes(&mut threads, "cc1plus", 8, 80, ThreadState::Runnable, WORK);
    let [finding] = &threads.findings()[..] else { panic!("one finding") };
    assert_eq!(finding.kind, FindingKind::RunQueue);
    let expected = "8 processes (cc1plus): 6.4 threads at a time wait for a CPU, 80 % of the time in which they could run";
    assert_eq!(finding.evidence, expected);
}

/// Each process has a lock of its own.
#[test]
fn locks_of_processes_with_several_threads_are_not_one_lock() {
    let mut threads = Threads::wall();
    add_threaded_processes(&mut threads, "java", 4, 2, "main;append;pthread_mutex_lock@libc.so.6");
    assert_eq!(threads.kinds().iter().filter(|kind| **kind == FindingKind::LockConvoy).count(), 0);
}

/// Adds processes with so many threads each, which wait in a stack for the whole time.
fn add_threaded_processes(threads: &mut Threads, comm: &str, processes: u32, of_each: u32, folded: &str) {
    for _ in 0..processes {
        threads.process = threads.builder.process(threads.next_tid, comm);
        threads.add(of_each, ThreadState::Blocked, folded);
    }
}

const ROW: &str =
    "exec_update;heap_update;XactLockTableWait;LockAcquireExtended;ProcSleep;WaitLatch;epoll_wait@libc.so.6";

#[test]
fn waits_for_locks_of_transactions_are_found_across_processes() {
    let folded = format!("{MAIN};PostgresMain;{ROW}");
    assert_eq!(
        found("postgres", 6, &folded),
        [
            "6 processes (postgres): 6.0 of 6 threads at a time wait for locks of other sessions, most in heap_update \
          (100 % of the time of threads with work): find the session that holds them, and end its transactions sooner"
        ]
    );
    assert_eq!(found("postgres", 2, &folded), [""; 0]);
}

#[test]
fn a_server_without_names_of_its_lock_waits_for_rows_below_its_handler() {
    let stack = |primitive: &str| {
        format!(
            "start_thread@libc.so.6;do_command(THD*, bool);handler::ha_index_read_map(unsigned char*);\
             [mariadbd+0x1];{primitive}@libc.so.6"
        )
    };
    let kinds = |folded: &str| Threads::wall().add(6, ThreadState::Blocked, folded).kinds();
    assert_eq!(kinds(&stack("pthread_cond_timedwait")), [FindingKind::LockConvoy]);
    assert_eq!(kinds(&stack("pthread_cond_wait")), []);
}

/// `waiting` of six processes wait until another one has synchronized the log: for a while one of them, then the last one.
fn commit(waiting: u32, ticks: u64) -> Vec<String> {
    let mut threads = Threads::wall();
    let follower = format!("{MAIN};XLogFlush;LWLockAcquireOrWait;PGSemaphoreLock;sem_wait@libc.so.6");
    let leader = format!("{MAIN};XLogFlush;[postgres+0x1];fdatasync@libc.so.6");
    add_processes(&mut threads, "postgres", waiting - 1, ticks, ThreadState::Blocked, &follower);
    let first = threads.next_tid;
    threads.process = threads.builder.process(first, "postgres");
    let parts = [
        (0, ticks - 10, Some(ThreadState::Blocked), &*follower),
        (ticks / 10, 10, Some(ThreadState::Disk), &leader),
        (ticks / 10 + 1, 100 - ticks, Some(ThreadState::OnCpu), WORK),
    ];
    threads.add_thread("postgres", &parts);
    add_processes(&mut threads, "postgres", 1, ticks, ThreadState::Disk, &leader);
    add_processes(&mut threads, "postgres", 5 - waiting, 0, ThreadState::Blocked, &follower);
    threads.findings().iter().map(ToString::to_string).collect()
}

#[test]
fn a_group_commit_waits_for_the_disk_and_not_for_a_lock() {
    assert_eq!(
        commit(5, 80),
        [
            "6 processes (postgres): 3.9 of 6 threads at a time wait in XLogFlush until another one has synchronized a file \
          (80 % of the time of threads with work): commit less often, or use a disk that synchronizes faster"
        ]
    );
    for (waiting, ticks) in [(5, 79), (2, 100)] {
        assert!(commit(waiting, ticks).iter().all(|text| !text.contains("XLogFlush")), "{waiting} {ticks}");
    }
}

/// Workers that wait for jobs of the kind that one of them does.
#[test]
fn idle_workers_beside_one_that_synchronizes_are_no_group_commit() {
    let mut threads = Threads::wall();
    threads.add(3, ThreadState::Blocked, "start_thread@libc.so.6;run_jobs;pthread_cond_wait@libc.so.6");
    threads
        .add_thread("worker", &[(0, 10, Some(ThreadState::Disk), "start_thread@libc.so.6;run_jobs;fsync")]);
    threads.add(1, ThreadState::OnCpu, WORK);
    assert_eq!(threads.kinds(), []);
}

#[test]
fn the_interpreter_lock_of_python_has_its_name_and_its_remedy() {
    for folded in [
        "start_thread@libc.so.6;_PyEval_EvalFrameDefault@python3.11;take_gil@python3.11;pthread_cond_timedwait@libc.so.6",
        "start_thread@libc.so.6;_PyEval_EvalFrameDefault@python3.11;[python3.11+0x1]@python3.11;pthread_cond_timedwait@libc.so.6",
    ] {
        let mut threads = Threads::wall();
        threads.add_queue(5, folded).add(1, ThreadState::OnCpu, WORK);
        let texts: Vec<_> = threads.findings().iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "4.9 of 5 threads at a time wait for the global interpreter lock of Python (82 % of the time of threads with \
              work): compute in several processes, or in native code that releases the lock"
            ],
            "{folded}"
        );
    }
    // A lock of the program.
    let lock = "start_thread@libc.so.6;[python3.11+0x1]@python3.11;PyThread_acquire_lock_timed@python3.11;sem_wait@libc.so.6";
    assert_eq!(Threads::wall().add_queue(5, lock).kinds(), []);
}

/// On a busy machine, a thread that asks for the lock, or that has got it, waits for a CPU.
#[test]
fn waits_for_a_cpu_before_the_interpreter_lock_count_as_waits_for_it() {
    let gil = "start_thread@libc.so.6;_PyEval_EvalFrameDefault@python3.11;take_gil@python3.11;pthread_cond_timedwait@libc.so.6";
    let computes = "start_thread@libc.so.6;_PyEval_EvalFrameDefault@python3.11";
    let mut threads = Threads::wall();
    for _ in 0..6 {
        let parts = [
            (0, 20, Some(ThreadState::Blocked), gil),
            (2, 60, Some(ThreadState::Runnable), gil),
            (8, 10, Some(ThreadState::Runnable), computes),
            (9, 10, Some(ThreadState::OnCpu), computes),
        ];
        threads.add_thread("worker", &parts);
    }
    let findings = threads.findings();
    let evidence = findings.iter().filter(|finding| finding.kind == FindingKind::LockConvoy);
    let evidence: Vec<_> = evidence.map(|finding| finding.evidence.as_str()).collect();
    let expected = "4.8 of 6 threads at a time wait for the global interpreter lock of Python (80 % of the time of threads with work)";
    assert_eq!(evidence, [expected]);
}

/// Threads of Python, each with ticks asleep, at the interpreter lock, in the run queue and on a CPU.
fn python_threads(threads: &mut Threads, count: u32, [asleep, waiting, runnable, running]: [u64; 4]) {
    let eval = "start_thread@libc.so.6;_PyEval_EvalFrameDefault@python3.11";
    let gil = format!("{eval};take_gil@python3.11;pthread_cond_timedwait@libc.so.6");
    let sleep = format!("{eval};time_sleep@python3.11;clock_nanosleep@libc.so.6");
    for _ in 0..count {
        let parts = [
            (0, asleep, Some(ThreadState::Blocked), &*sleep),
            (asleep / HZ, waiting, Some(ThreadState::Blocked), &*gil),
            ((asleep + waiting) / HZ, runnable, Some(ThreadState::Runnable), eval),
            ((asleep + waiting + runnable) / HZ, running, Some(ThreadState::OnCpu), eval),
        ];
        threads.add_thread("worker", &parts.into_iter().filter(|part| part.1 > 0).collect::<Vec<_>>());
    }
}

/// On a busy machine, the thread that has the lock waits for a CPU, and all others for the lock.
#[test]
fn the_interpreter_lock_is_contended_where_threads_would_compute_more_than_one_can() {
    let has_finding = |groups: &[(u32, [u64; 4])]| {
        let mut threads = Threads::wall();
        groups.iter().for_each(|(count, ticks)| python_threads(&mut threads, *count, *ticks));
        threads.kinds().contains(&FindingKind::LockConvoy)
    };
    assert!(!has_finding(&[(6, [40, 40, 18, 2])]), "they mostly sleep, and lack a CPU");
    assert!(has_finding(&[(6, [0, 80, 18, 2])]), "they compute, and lack a CPU");
    assert!(has_finding(&[(6, [0, 80, 18, 2]), (2, [90, 10, 0, 0])]), "beside threads that mostly sleep");
    assert!(has_finding(&[(6, [40, 40, 2, 18])]), "they mostly sleep, and have a CPU");
    assert!(has_finding(&[(5, [60, 40, 0, 0]), (1, [0, 0, 0, 100])]), "one computes and keeps the lock");
}

#[test]
fn a_convoy_without_a_method_is_a_finding() {
    let stack = "jit [JIT 0x7f00];SharedRuntime::complete_monitor_locking_C@libjvm.so;ObjectMonitor::enter(JavaThread*)@libjvm.so;\
                 pthread_cond_wait@libc.so.6";
    let mut threads = Threads::wall();
    threads.add_queue(20, stack);
    let texts: Vec<_> = threads.findings().iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        ["19.6 of 20 threads at a time wait for locks (98 % of the time of threads with work): \
          hold the lock for a shorter time, or divide what it protects"]
    );
}

/// parking_lot and lock_api take the lock for the function that the finding names.
#[test]
fn a_lock_of_a_library_of_rust_has_the_function_that_takes_it() {
    let slow = [
        "lock_api::mutex::Mutex<R,T>::lock;parking_lot::raw_mutex::RawMutex::lock_slow;parking_lot_core::parking_lot::park",
        "<lock_api::mutex::Mutex<R,T>>::lock;<parking_lot::raw_mutex::RawMutex>::lock_slow;parking_lot_core::parking_lot::park",
        "parking_lot::raw_rwlock::RawRwLock::lock_exclusive_slow;parking_lot_core::parking_lot::park",
        "parking_lot::raw_rwlock::RawRwLock::upgrade_slow;parking_lot_core::parking_lot::park",
    ];
    for slow in slow {
        let mut threads = Threads::wall();
        threads.add_queue(
            5,
            &format!("start_thread@libc.so.6;shop::append;{slow};syscall@libc.so.6;futex_wait_[k]"),
        );
        let findings = threads.findings();
        let [finding] = &findings[..] else { panic!("one finding: {findings:?}, {slow}") };
        assert!(finding.evidence.contains(" wait for the lock in shop::append ("), "{finding}");
    }
}

/// Before it sleeps, a thread leaves its CPU to others a few times: on a busy machine, for most of its wait.
#[test]
fn a_thread_that_yields_in_a_lock_of_a_library_of_rust_waits_for_the_lock() {
    for lock in ["raw_mutex::RawMutex::lock_slow", "raw_rwlock::RawRwLock::lock_shared_slow"] {
        let folded = format!(
            "start_thread@libc.so.6;shop::append;parking_lot::{lock};__sched_yield@libc.so.6;__do_sys_sched_yield_[k]"
        );
        let mut threads = Threads::wall();
        for _ in 0..5 {
            let parts =
                [(0, 80, Some(ThreadState::Runnable), &*folded), (8, 20, Some(ThreadState::OnCpu), WORK)];
            threads.add_thread("worker", &parts);
        }
        assert_eq!(threads.kinds(), [FindingKind::LockConvoy], "{lock}");
    }
}

#[test]
fn stubs_and_the_library_of_java_are_not_of_the_application() {
    let parts =
        ["thread_entry@libjvm.so", "app!StubRoutines (1)", "app!Interpreter", "app!void shop.Cart.add(long)"];
    let plumbing = ["app!void java.util.concurrent.locks.Sync.lock()", "app!_complete_monitor_locking_Java"];
    let monitor = ["ObjectMonitor::enter(JavaThread*)@libjvm.so", "pthread_cond_wait@libc.so.6"];
    let folded = [&parts[..], &plumbing[..], &monitor[..]].concat().join(";").replace("app!", "jit ");
    let mut threads = Threads::wall();
    threads.add_queue(4, &folded);
    let [finding] = &threads.findings()[..] else { panic!("one finding") };
    assert!(finding.evidence.contains("wait for the lock in shop.Cart.add ("), "{finding}");
}

#[test]
fn workers_of_a_pool_without_a_method_have_a_finding_for_their_service() {
    let stack = format!("{POOL_ROOT};System!System.Net.Sockets.Socket.Receive(byte[]);tcp_recvmsg");
    let mut threads = Threads::wall();
    threads.add(4, ThreadState::Blocked, &stack);
    let [finding] = &threads.findings()[..] else { panic!("one finding") };
    assert_eq!(
        finding.evidence,
        "4.0 of 4 threads at a time wait for sockets (100 % of the time of threads with work)"
    );
}
