//! Lock convoys, suspensions, slow services, run queues and disks on both sides of each threshold.

use profiler_profile::{Event, FindingKind, Sampling, ThreadState};

use super::{HZ, POOL_ROOT, Threads};

const LOCK: &str = "main;append;pthread_mutex_lock@libc.so.6";
const WORK: &str = "main;compute";
const SOCKET: &str =
    "shop!Shop.Prices.Fetch();System.Net.Sockets!System.Net.Sockets.Socket.Receive(byte[]);tcp_recvmsg";

#[test]
fn threads_that_wait_for_one_lock_are_a_convoy() {
    let mut threads = Threads::wall();
    threads.add_queue(7, LOCK).add(1, ThreadState::OnCpu, WORK);
    let [finding] = &threads.findings()[..] else { panic!("one finding") };
    assert_eq!(finding.kind, FindingKind::LockConvoy);
    assert_eq!(
        finding.evidence,
        "6.9 of 7 threads at a time wait for the lock in append (86 % of the time of threads with work)"
    );
}

#[test]
fn the_stack_of_a_waker_says_nothing_about_the_wait() {
    for waker in [
        "tcp_sendmsg;shop!Shop.Prices.Send();~pricing",
        "futex_wake;System.Net.Sockets!System.Net.Sockets.SocketAsyncEngine.EventLoop();~.NET SynchManag",
        "fsync;flush;main;~owner",
    ] {
        let mut threads = Threads::wall();
        let wait = format!("{LOCK};--;{waker}");
        threads.add_queue(7, &wait).add(1, ThreadState::OnCpu, WORK);
        let [finding] = &threads.findings()[..] else { panic!("one finding") };
        assert_eq!(finding.kind, FindingKind::LockConvoy, "{waker}");
        assert!(finding.evidence.contains("wait for the lock in append"), "{finding}");
    }
}

#[test]
fn functions_of_a_linked_c_library_are_not_of_the_application() {
    let mut threads = Threads::wall();
    threads.add(4, ThreadState::Disk, "_start;main;load_page;__libc_pread64");
    let [finding] = &threads.findings()[..] else { panic!("one finding") };
    assert!(finding.evidence.ends_with("most below load_page"), "{finding}");
    // musl.
    let mut threads = Threads::wall();
    threads.add_queue(4, "__clone;start;append;__pthread_mutex_timedlock;__timedwait;__timedwait_cp;sccp");
    let [finding] = &threads.findings()[..] else { panic!("one finding") };
    assert!(finding.evidence.contains(" wait for the lock in append ("), "{finding}");
    let mut threads = Threads::wall();
    threads.add(
        4,
        ThreadState::Blocked,
        "__clone;start;append;__pthread_mutex_timedlock;__timedwait_cp;sccp",
    );
    threads.add(1, ThreadState::Blocked, "__clone;start;refresh;nanosleep;__clock_nanosleep;sccp");
    let [finding] = &threads.findings()[..] else { panic!("one finding") };
    assert!(finding.evidence.contains("locks in append, "), "{finding}");
    assert!(finding.evidence.contains("a thread that can be in refresh (sleeps)"), "{finding}");
}

#[test]
fn functions_of_the_application_can_have_the_names_of_library_functions() {
    for (folded, expected) in [
        ("main;serve;connect;pthread_mutex_lock@libc.so.6", "in connect ("),
        ("main;serve;io.part.0;pthread_mutex_lock@libc.so.6", "in io.part.0 ("),
        ("main;serve;time.isra.0.cold;pthread_mutex_lock@libc.so.6", "in time.isra.0.cold ("),
        ("runtime.goexit;main.serve;io.ReadAll;pthread_mutex_lock@libc.so.6", "in main.serve ("),
    ] {
        let mut threads = Threads::wall();
        threads.add_queue(4, folded);
        let [finding] = &threads.findings()[..] else { panic!("one finding") };
        assert!(finding.evidence.contains(expected), "{finding}");
    }
    let mut threads = Threads::wall();
    threads.add(4, ThreadState::Disk, "_start;main;load_page;read;vfs_read_[k];filemap_read_[k]");
    let [finding] = &threads.findings()[..] else { panic!("one finding") };
    assert!(finding.evidence.ends_with("most below load_page"), "in a static program: {finding}");
    let mut threads = Threads::wall();
    threads.add(4, ThreadState::Disk, "_start;main;load_page;read;read@libc.so.6;filemap_read_[k]");
    let [finding] = &threads.findings()[..] else { panic!("one finding") };
    assert!(finding.evidence.ends_with("most below read"), "{finding}");
}

#[test]
fn a_convoy_has_a_queue_of_three_threads_and_a_share() {
    for (threads, ticks, working, expected) in [
        // Threads, ticks of each in the lock, other threads.
        (3, 70, 0, true),
        (2, 98, 0, false),
        (3, 60, 0, false),
        (3, 98, 11, true),
        (3, 98, 12, false),
    ] {
        let mut profile = Threads::wall();
        for _ in 0..threads {
            let parts = [
                (0, ticks, Some(ThreadState::Blocked), LOCK),
                (ticks / HZ, 100 - ticks, Some(ThreadState::OnCpu), WORK),
            ];
            profile.add_thread("worker", &parts);
        }
        profile.add(working, ThreadState::OnCpu, WORK);
        let expected = expected.then_some(FindingKind::LockConvoy);
        assert_eq!(
            profile.kinds(),
            Vec::from_iter(expected),
            "{threads} threads, {ticks} ticks, {working} others"
        );
    }
}

#[test]
fn locks_of_many_sites_are_no_convoy() {
    let mut threads = Threads::wall();
    for site in 0..4 {
        threads.add_queue(2, &format!("main;site{site};pthread_mutex_lock@libc.so.6"));
    }
    assert_eq!(threads.kinds(), []);
}

#[test]
fn suspensions_are_found_from_a_tenth_of_the_time_on() {
    let suspended = |ticks: u64| {
        let mut threads = Threads::wall();
        for _ in 0..4 {
            let stack =
                "main;shop!Shop.Cart.Add();Thread::RareDisablePreemptiveGC();pthread_cond_wait@libc.so.6";
            let parts = [
                (0, ticks, Some(ThreadState::Blocked), stack),
                (5, 100 - ticks, Some(ThreadState::OnCpu), "main;shop!Shop.Cart.Add()"),
            ];
            threads.add_thread("worker", &parts);
        }
        threads.findings()
    };
    assert_eq!(suspended(9), []);
    let [finding] = &suspended(10)[..] else { panic!("one finding") };
    assert_eq!(finding.kind, FindingKind::GcSuspension);
    let expected = "4 threads are suspended for garbage collections in 10 % of the time of threads with work";
    assert_eq!(finding.evidence, expected);
}

#[test]
fn a_few_samples_of_a_suspension_are_no_finding() {
    for (ticks, expected) in [(19, 0), (20, 1)] {
        let stack = "main;shop!Shop.Cart.Add();Thread::RareDisablePreemptiveGC();pthread_cond_wait@libc.so.6";
        let mut threads = Threads::wall();
        threads.add_thread("worker", &[(0, ticks, Some(ThreadState::Blocked), stack)]);
        assert_eq!(threads.findings().len(), expected, "{ticks} ticks");
    }
}

#[test]
fn suspensions_of_an_event_of_durations_are_counted_as_samples() {
    for (suspensions, expected) in [(19, 0), (20, 1)] {
        let sampling = Sampling::Durations { min_ns: 0 };
        let mut threads = Threads::sampled(Event { name: "off-cpu".to_owned(), sampling }, 10);
        let stack = "main;shop!Shop.Cart.Add();Thread::RareDisablePreemptiveGC();pthread_cond_wait@libc.so.6";
        let part = (0, 60_000_000, Some(ThreadState::Blocked), stack);
        threads.add_thread("worker", &vec![part; suspensions]);
        assert_eq!(threads.findings().len(), expected, "{suspensions}");
    }
}

#[test]
fn workers_that_wait_for_a_service_are_found() {
    let stack = format!("{POOL_ROOT};{SOCKET}");
    let mut threads = Threads::wall();
    threads.add(12, ThreadState::Blocked, &stack).add(2, ThreadState::OnCpu, WORK);
    let [finding] = &threads.findings()[..] else { panic!("one finding") };
    assert_eq!(finding.kind, FindingKind::SlowDownstream);
    assert_eq!(
        finding.evidence,
        "12.0 of 12 threads at a time wait for sockets below Shop.Prices.Fetch (86 % of the time of threads with work)"
    );
}

#[test]
fn a_slow_service_needs_threads_queue_and_share() {
    let stack = format!("{POOL_ROOT};{SOCKET}");
    let kinds = |waiting, working| {
        let mut threads = Threads::wall();
        threads.add(waiting, ThreadState::Blocked, &stack).add(working, ThreadState::OnCpu, WORK).kinds()
    };
    assert_eq!(kinds(3, 3), [FindingKind::SlowDownstream]);
    assert_eq!(kinds(3, 4), []);
    assert_eq!(kinds(2, 0), []);
    let for_seconds = |seconds: u64| {
        let mut threads = Threads::wall();
        for _ in 0..3 {
            threads.add_thread("worker", &[(0, seconds * 10, Some(ThreadState::Blocked), &stack)]);
        }
        threads.kinds()
    };
    assert_eq!((for_seconds(6), for_seconds(7)), (vec![], vec![FindingKind::SlowDownstream]));
}

/// Frames do not show whether a socket that a worker of the pool reads is that of a client or of a service.
#[test]
fn a_service_is_blamed_only_for_the_sockets_of_its_clients() {
    let remedy = |folded: String| {
        let mut threads = Threads::wall();
        threads.add(8, ThreadState::Blocked, &folded);
        let findings = threads.findings();
        let [finding] = &findings[..] else { panic!("one finding: {findings:?}") };
        assert_eq!(finding.kind, FindingKind::SlowDownstream);
        finding.remedy.clone()
    };
    let read_line = "shop!Shop.Chat.Serve();System.Private.CoreLib!System.IO.StreamReader.ReadLine()";
    let receive = "System.Net.Sockets!System.Net.Sockets.Socket.Receive(byte[]);tcp_recvmsg";
    assert!(
        remedy(format!("{POOL_ROOT};{read_line};{receive}")).starts_with("receive and send asynchronously")
    );
    let send = "shop!Shop.Prices.Get();System.Net.Http!System.Net.Http.HttpClient.Send(HttpRequestMessage)";
    for root in ["start_thread@libc.so.6", POOL_ROOT] {
        assert!(remedy(format!("{root};{send};{receive}")).starts_with("examine the service that it calls"));
    }
}

/// A server with a thread for each connection: most wait for the next request of their client.
#[test]
fn threads_that_wait_for_requests_are_no_finding() {
    let mut threads = Threads::wall();
    threads.add(20, ThreadState::Blocked, "start_thread@libc.so.6;serve;read_request;recv@libc.so.6");
    assert_eq!(threads.kinds(), []);
    let mut threads = Threads::wall();
    threads.add(
        20,
        ThreadState::Blocked,
        "start_thread@libc.so.6;serve;query;PQexec@libpq.so.5;poll@libc.so.6",
    );
    assert_eq!(threads.kinds(), [FindingKind::SlowDownstream]);
}

#[test]
fn threads_that_wait_for_a_cpu_are_found_by_share_and_number() {
    let kinds = |runnable, on_cpu, seconds: u64| {
        let mut threads = Threads::wall();
        for _ in 0..runnable {
            threads.add_thread("worker", &[(0, seconds * 10, Some(ThreadState::Runnable), WORK)]);
        }
        threads.add(on_cpu, ThreadState::OnCpu, WORK).kinds()
    };
    assert_eq!(kinds(5, 5, 10), [FindingKind::RunQueue]);
    assert_eq!(kinds(5, 6, 10), []);
    assert_eq!(kinds(1, 1, 10), [FindingKind::RunQueue]);
    assert_eq!(kinds(1, 1, 9), []);
    assert_eq!(kinds(3, 0, 10), [], "an event without threads on CPUs has no share");
}

/// Servers under load: each thread wakes, waits for a CPU that another thread of the machine uses, and waits for its next request.
#[test]
fn threads_that_nap_do_not_lack_a_cpu() {
    for (runnable, on_cpu, expected) in [(80, 10, true), (79, 10, false)] {
        let mut threads = Threads::wall();
        for _ in 0..8 {
            let parts = [
                (0, runnable, Some(ThreadState::Runnable), WORK),
                (8, on_cpu, Some(ThreadState::OnCpu), WORK),
                (
                    9,
                    100 - runnable - on_cpu,
                    Some(ThreadState::Blocked),
                    "main;run_loop;epoll_wait@libc.so.6",
                ),
            ];
            threads.add_thread("worker", &parts);
        }
        let expected = expected.then_some(FindingKind::RunQueue);
        assert_eq!(threads.kinds(), Vec::from_iter(expected), "{runnable}");
    }
}

#[test]
fn threads_without_cpu_quota_are_found_from_a_tenth_of_the_time_on() {
    let throttled = |ticks: u64| {
        let mut threads = Threads::wall();
        let parts = [
            (0, ticks, Some(ThreadState::Throttled), WORK),
            (5, 100 - ticks, Some(ThreadState::OnCpu), WORK),
        ];
        threads.add_thread("worker", &parts);
        threads.findings()
    };
    assert_eq!(throttled(9), []);
    let [finding] = &throttled(60)[..] else { panic!("one finding") };
    assert_eq!(finding.kind, FindingKind::CpuQuota);
    let expected = "0.6 threads at a time are throttled by the CPU quota of their cgroup, 60 % of the time in which they could run";
    assert_eq!(finding.evidence, expected);
    let mut without_cpu = Threads::wall();
    without_cpu.add(3, ThreadState::Throttled, WORK);
    assert_eq!(without_cpu.kinds(), [], "an event without threads on CPUs has no share");
}

#[test]
fn threads_that_wait_for_files_are_found_by_share_and_number() {
    let with = |seconds: u64, working| {
        let mut threads = Threads::wall();
        threads.add_thread(
            "worker",
            &[(0, seconds * 10, Some(ThreadState::Disk), "main;flush;fsync@libc.so.6")],
        );
        threads.add(working, ThreadState::OnCpu, WORK).findings()
    };
    assert_eq!((with(4, 0), with(10, 3)), (vec![], vec![]));
    assert_eq!((with(5, 1).len(), with(10, 2).len()), (1, 1));
    let [finding] = &with(10, 0)[..] else { panic!("one finding") };
    assert_eq!(finding.kind, FindingKind::Disk);
    let expected =
        "1.0 threads at a time wait for files (100 % of the time of threads with work), most below flush";
    assert_eq!(finding.evidence, expected);
}

/// The event `io` has no other time of the threads.
#[test]
fn waits_for_files_alone_have_no_share() {
    for (event, expected) in [("off-cpu", 1), ("io", 0)] {
        let sampling = Sampling::Durations { min_ns: 0 };
        let mut threads = Threads::sampled(Event { name: event.to_owned(), sampling }, 10);
        let wait = (0, 10_000_000_000, Some(ThreadState::Disk), "main;flush;fsync@libc.so.6");
        threads.add_thread("worker", &[wait]);
        assert_eq!(threads.findings().len(), expected, "{event}");
    }
}

#[test]
fn idle_threads_do_not_dilute_a_share() {
    let mut threads = Threads::wall();
    threads.add_queue(3, LOCK);
    threads.add(100, ThreadState::Blocked, "main;run_loop;epoll_wait@libc.so.6");
    assert_eq!(threads.kinds(), [FindingKind::LockConvoy]);
}

#[test]
fn sleeping_threads_do_not_dilute_a_share() {
    let mut threads = Threads::wall();
    threads.add_queue(3, LOCK);
    threads.add(100, ThreadState::Blocked, "main;pause;nanosleep@libc.so.6");
    assert_eq!(threads.kinds(), [FindingKind::LockConvoy]);
}

/// Threads that compute, read files, sleep and wait for each other now and then.
#[test]
fn a_healthy_program_has_no_finding() {
    let mut threads = Threads::wall();
    for _ in 0..8 {
        threads.add_thread(
            "worker",
            &[
                (0, 50, Some(ThreadState::OnCpu), WORK),
                (5, 10, Some(ThreadState::Runnable), WORK),
                (6, 10, Some(ThreadState::Blocked), LOCK),
                (7, 10, Some(ThreadState::Blocked), "main;wait_for_other;pthread_cond_wait@libc.so.6"),
                (8, 5, Some(ThreadState::Disk), "main;read_file;filemap_read"),
                (9, 15, Some(ThreadState::Blocked), "main;pause;nanosleep@libc.so.6"),
            ],
        );
    }
    assert_eq!(threads.kinds(), []);
}

const NAMES: &str = "start_thread;connect_to_store;getaddrinfo@libc.so.6;__res_context_send@libc.so.6;__poll@libc.so.6;\
                     do_sys_poll_[k]";

#[test]
fn threads_that_wait_for_addresses_of_hosts_are_found() {
    let mut threads = Threads::wall();
    threads.add(4, ThreadState::Blocked, NAMES).add(1, ThreadState::OnCpu, WORK);
    let [finding] = &threads.findings()[..] else { panic!("one finding") };
    assert_eq!(finding.kind, FindingKind::SlowDownstream);
    assert_eq!(
        finding.to_string(),
        "4.0 of 4 threads at a time wait for the addresses of hosts below connect_to_store (80 % of the time of threads with \
         work): examine the name servers of /etc/resolv.conf, or keep addresses and connections"
    );
}

/// One of many threads looks up a name now and then. A service that is slow after the look-up is a service.
#[test]
fn few_look_ups_of_names_are_no_finding() {
    for (looking_up, working) in [(2, 0), (3, 4)] {
        let mut threads = Threads::wall();
        threads.add(looking_up, ThreadState::Blocked, NAMES).add(working, ThreadState::OnCpu, WORK);
        assert_eq!(threads.kinds(), [], "{looking_up} of {working}");
    }
    let client = "start_thread;connect_to_store;PQconnectdb@libpq.so.5;__poll@libc.so.6;do_sys_poll_[k]";
    let [finding] = &Threads::wall().add(4, ThreadState::Blocked, client).findings()[..] else { panic!() };
    assert!(finding.evidence.contains("wait for sockets below"), "{finding}");
}
