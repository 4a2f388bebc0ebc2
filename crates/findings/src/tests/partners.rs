//! What threads wait for beyond their processes, in findings.

use profiler_profile::{Certainty, Incident, Partner, Profile, Proof, ThreadState};

use super::{HZ, NS_PER_S, POOL_ROOT, Threads};
use crate::{Partners, analyze, analyze_with_partners, threads_with_unknown_partners};

const CURL: &str = "start_thread;fetch_price;curl_easy_perform@libcurl.so.4;recv@libc.so.6;tcp_recvmsg_[k]";

fn postgres(process: u32) -> Partner {
    Partner { name: "postgres".to_owned(), process: Some(process) }
}

/// The text of all findings with these partners.
fn texts(profile: &mut Profile, partners: &Partners) -> Vec<String> {
    analyze_with_partners(profile, partners);
    profile.findings().iter().map(ToString::to_string).collect()
}

/// Four threads, from the id 7 on, that wait in a stack.
fn waiting(folded: &str, state: ThreadState) -> Profile {
    Threads::wall().add(4, state, folded).profile()
}

#[test]
fn a_slow_service_has_the_name_and_the_process_that_most_threads_wait_for() {
    let mut profile = waiting(CURL, ThreadState::Blocked);
    assert_eq!(threads_with_unknown_partners(&profile), [(7, 7), (7, 8), (7, 9), (7, 10)]);
    let mut partners = Partners::default();
    for tid in [7, 8, 9] {
        partners.add_service(tid, postgres(123));
    }
    partners.add_service(10, Partner { name: "10.0.0.3:80".to_owned(), process: None });
    let text = "4.0 of 4 threads at a time wait for sockets below curl_easy_perform (100 % of the time of threads with work); \
                at the end for postgres (process 123): examine postgres, and call it asynchronously";
    assert_eq!(texts(&mut profile, &partners), [text]);
    assert_eq!(profile.findings()[0].facts.partner, Some(postgres(123)));
    assert_eq!(threads_with_unknown_partners(&profile), []);
    // Another analysis keeps what was read while the threads waited.
    analyze(&mut profile);
    assert_eq!(profile.findings()[0].to_string(), text);
}

/// The threads can have waited for another service before.
#[test]
fn a_service_that_was_read_once_does_not_prove_a_finding() {
    let certainty = |partners: &Partners| {
        let mut profile = waiting(CURL, ThreadState::Blocked);
        analyze_with_partners(&mut profile, partners);
        profile.findings()[0].facts.certainty
    };
    let mut partners = Partners::default();
    assert_eq!(certainty(&partners), Certainty::Likely(Proof::Peer));
    (7..11).for_each(|tid| partners.add_service(tid, postgres(123)));
    assert_eq!(certainty(&partners), Certainty::Likely(Proof::FurtherReadings));
}

#[test]
fn several_processes_of_one_name_are_one_service() {
    let mut partners = Partners::default();
    (7..11).for_each(|tid| partners.add_service(tid, postgres(100 + tid)));
    let found = texts(&mut waiting(CURL, ThreadState::Blocked), &partners);
    assert!(found[0].contains("; at the end for postgres: examine postgres,"), "{found:?}");
}

#[test]
fn a_service_that_half_of_the_threads_wait_for_has_no_name() {
    let mut partners = Partners::default();
    (7..9).for_each(|tid| partners.add_service(tid, postgres(123)));
    (9..11).for_each(|tid| partners.add_client(tid));
    let found = texts(&mut waiting(CURL, ThreadState::Blocked), &partners);
    assert!(found[0].contains(" threads with work): examine the service "), "{found:?}");
}

/// The frames are those of a client, and the process has accepted the connections.
#[test]
fn threads_that_wait_for_clients_of_their_process_are_no_slow_service() {
    let mut partners = Partners::default();
    (7..10).for_each(|tid| partners.add_client(tid));
    assert_eq!(texts(&mut waiting(CURL, ThreadState::Blocked), &partners), [""; 0]);
    let worker =
        format!("{POOL_ROOT};shop!Shop.Chat.Serve();System!System.Net.Sockets.Socket.Receive(byte[])");
    let found = texts(&mut waiting(&format!("{worker};tcp_recvmsg_[k]"), ThreadState::Blocked), &partners);
    assert!(
        found[0].ends_with("receive and send asynchronously: meanwhile, each thread waits for one peer"),
        "{found:?}"
    );
}

#[test]
fn a_pool_that_waits_for_a_service_has_the_remedy_for_it() {
    let worker =
        format!("{POOL_ROOT};shop!Shop.Prices.Get();System!System.Net.Sockets.Socket.Receive(byte[])");
    let mut partners = Partners::default();
    (7..11).for_each(|tid| partners.add_service(tid, postgres(123)));
    let found = texts(&mut waiting(&format!("{worker};tcp_recvmsg_[k]"), ThreadState::Blocked), &partners);
    assert!(found[0].ends_with("): examine postgres, and call it asynchronously"), "{found:?}");
}

#[test]
fn waits_for_files_have_their_device() {
    let mut partners = Partners::default();
    partners.add_device(8, Partner { name: "/dev/vda1".to_owned(), process: None });
    let found = texts(&mut waiting("main;flush;fsync", ThreadState::Disk), &partners);
    assert!(found[0].contains("; at the end on /dev/vda1: "), "{found:?}");
}

/// Threads without a client by its name, as those of an interpreter without symbols, that wait for a service.
fn upstream(wait: &str, threads: std::ops::Range<u32>, is_server: bool) -> Vec<String> {
    let mut profile = Threads::wall().add(threads.len() as u32, ThreadState::Blocked, wait).profile();
    assert_eq!(profile.findings(), [], "{wait}");
    let mut partners = Partners::default();
    for tid in threads {
        partners.add_service(tid, postgres(123));
        if is_server {
            partners.add_server(tid);
        }
    }
    let found = texts(&mut profile, &partners);
    analyze(&mut profile);
    assert_eq!(
        profile.findings().iter().map(ToString::to_string).collect::<Vec<_>>(),
        found,
        "analyzed again"
    );
    found
}

const STRIPPED_RECV: &str = "[python3.11+0x1]@/usr/bin/python3.11;recv@libc.so.6;tcp_recvmsg_[k]";
const STRIPPED_POLL: &str = "[python3.11+0x1]@/usr/bin/python3.11;poll@libc.so.6;do_sys_poll_[k]";
const NATIVE: &str = "start_thread@libc.so.6;run;fetch_price;recv@libc.so.6;tcp_recvmsg_[k]";

#[test]
fn threads_of_a_server_that_wait_for_connections_which_it_has_opened_wait_for_a_slow_service() {
    let end = "(100 % of the time of threads with work); at the end for postgres (process 123): \
               examine postgres, and call it asynchronously";
    for (wait, below) in [(STRIPPED_RECV, ""), (STRIPPED_POLL, ""), (NATIVE, " below fetch_price")] {
        let text = format!("4.0 of 4 threads at a time wait for sockets{below} {end}");
        assert_eq!(upstream(wait, 7..11, true), [text], "{wait}");
    }
}

/// They can wait for news: consumers of messages, monitors of replicas.
#[test]
fn few_threads_and_those_of_a_process_that_serves_no_others_can_wait_for_work() {
    assert_eq!(upstream(NATIVE, 7..10, true), [""; 0]);
    assert_eq!(upstream(NATIVE, 7..11, false), [""; 0]);
}

#[test]
fn threads_of_a_server_that_wait_for_several_services_have_no_slow_one() {
    let mut partners = Partners::default();
    for tid in 7..11 {
        let name = format!("10.0.0.{tid}:27017");
        partners.add_service(tid, Partner { name, process: None });
        partners.add_server(tid);
    }
    assert_eq!(texts(&mut waiting(NATIVE, ThreadState::Blocked), &partners), [""; 0]);
}

#[test]
fn the_partners_of_several_threads_at_sockets_are_read() {
    let unknown = |count, wait| {
        let mut threads = Threads::wall();
        threads_with_unknown_partners(&threads.add(count, ThreadState::Blocked, wait).profile())
    };
    assert_eq!(unknown(4, NATIVE), [(7, 7), (7, 8), (7, 9), (7, 10)]);
    assert_eq!(unknown(4, STRIPPED_POLL), [(7, 7), (7, 8), (7, 9), (7, 10)]);
    assert_eq!(unknown(3, NATIVE), []);
    assert_eq!(unknown(4, "start_thread@libc.so.6;run;epoll_wait@libc.so.6"), []);
}

const PRICE: &str = "start_thread@libc.so.6;shop!Shop.Price.Get()";
const ENTER: &str =
    "System.Private.CoreLib!System.Threading.Monitor.Enter(object);pthread_cond_wait@libc.so.6";

/// Four threads, from the id 7 on, wait for the lock of the thread 11, which waits in a function.
fn held_lock(wait: &str) -> Profile {
    let mut threads = Threads::wall();
    threads.add(4, ThreadState::Blocked, &format!("{PRICE};{ENTER}"));
    threads.add(1, ThreadState::Blocked, &format!("{PRICE};{wait}")).profile()
}

#[test]
fn what_the_owner_of_a_lock_waits_for_at_the_end_is_named() {
    let convert = || Partner { name: "convert".to_owned(), process: Some(55) };
    let partners_with = |add: fn(&mut Partners, u32, Partner)| {
        let mut partners = Partners::default();
        add(&mut partners, 11, convert());
        partners
    };
    let of_process = partners_with(Partners::add_process);
    for (wait, partners) in [
        ("__wait4@libc.so.6;do_wait_[k]", partners_with(Partners::add_child)),
        ("read@libc.so.6;anon_pipe_read_[k]", partners_with(Partners::add_child)),
        ("read@libc.so.6;anon_pipe_read_[k]", of_process.clone()),
        ("recv@libc.so.6;unix_stream_recvmsg_[k]", partners_with(Partners::add_service)),
    ] {
        let mut profile = held_lock(wait);
        assert_eq!(threads_with_unknown_partners(&profile), [(7, 11)], "{wait}");
        let [text] = &texts(&mut profile, &partners)[..] else { panic!("one finding: {wait}") };
        assert!(
            text.contains(", thread 11 (worker); at the end, it waits for convert (process 55): "),
            "{text}"
        );
        analyze(&mut profile);
        assert_eq!(profile.findings()[0].to_string(), *text);
    }
    // It slept before.
    let sleep = "System.Private.CoreLib!System.Threading.Thread.Sleep(int);pthread_cond_timedwait@libc.so.6";
    let [text] = &texts(&mut held_lock(sleep), &of_process)[..] else { panic!("one finding") };
    assert!(!text.contains("convert"), "{text}");
}

/// The owner waited for a process for most of the time, and reads a socket since the incident.
#[test]
fn a_process_is_not_the_partner_of_a_later_wait_for_a_socket() {
    let enter = format!("{PRICE};{ENTER}");
    let (child, socket) =
        (format!("{PRICE};__wait4@libc.so.6;do_wait_[k]"), format!("{PRICE};recv@libc.so.6;tcp_recvmsg_[k]"));
    let blocked = Some(ThreadState::Blocked);
    let mut threads = Threads::wall();
    for _ in 0..4 {
        threads.add_thread("worker", &[(0, 6 * HZ, blocked, &enter), (6, 4 * HZ, blocked, &enter)]);
    }
    threads.add_thread("worker", &[(0, 6 * HZ, blocked, &child), (6, 4 * HZ, blocked, &socket)]);
    let mut profile = threads.profile();
    let mut partners = Partners::default();
    partners.add_child(11, Partner { name: "convert".to_owned(), process: Some(55) });
    assert!(texts(&mut profile, &partners)[0].contains("it waits for convert"));
    profile.set_incident(Incident { since_ns: 6 * NS_PER_S, time_ns: 8 * NS_PER_S, ..Incident::default() });
    analyze(&mut profile);
    let [finding] = profile.findings() else { panic!("one finding: {:?}", profile.findings()) };
    assert!(finding.evidence.contains("(reads a socket), thread 11 (worker)"), "{finding}");
    assert_eq!(finding.facts.partner, None, "{finding}");
}
