//! Servers whose threads wait for child processes, and the shells, supervisors and readers of output that look like them.

use profiler_profile::{Certainty, Finding, FindingKind, Partner, Profile, Proof, ThreadState};

use super::{HZ, POOL_ROOT, Threads};
use crate::{Partners, analyze, analyze_with_partners, threads_with_unknown_partners};

const ROOT: &str = "clone3@libc.so.6;start_thread@libc.so.6";
const ACCEPT: &str = "_start;__libc_start_main@libc.so.6;main;serve;accept4@libc.so.6;inet_csk_accept_[k]";
const WAIT: &str = "worker;handle_request;convert;waitpid@libc.so.6;__wait4@libc.so.6;do_wait_[k]";
const READ: &str = "worker;handle_request;convert;read@libc.so.6;anon_pipe_read_[k]";
const FORK: &str = "worker;handle_request;convert;fork@libc.so.6";

/// A server with a thread that accepts connections, and four threads in this stack that start a process now and then.
fn server(folded: &str) -> Profile {
    let mut threads = Threads::wall();
    threads.add(1, ThreadState::Blocked, ACCEPT);
    add_changing(&mut threads, folded);
    threads.profile()
}

/// Threads from the id 8 on.
fn add_changing(threads: &mut Threads, folded: &str) {
    let fork = format!("{ROOT};{FORK}");
    for _ in 0..4 {
        let blocked = Some(ThreadState::Blocked);
        let parts =
            [(0, 48, blocked, folded), (5, 4, Some(ThreadState::OnCpu), &*fork), (5, 48, blocked, folded)];
        threads.add_thread("worker", &parts);
    }
}

fn only(profile: &Profile) -> Finding {
    let [finding] = profile.findings() else { panic!("one finding: {:?}", profile.findings()) };
    finding.clone()
}

fn converter() -> Partner {
    Partner { name: "convert".to_owned(), process: Some(55) }
}

#[test]
fn requests_that_wait_for_child_processes_are_found_with_the_child() {
    let mut profile = server(&format!("{ROOT};{WAIT}"));
    let finding = only(&profile);
    assert_eq!((finding.kind, finding.facts.certainty), (FindingKind::ChildProcess, Certainty::Proven));
    assert_eq!(
        finding.to_string(),
        "3.8 of 4 threads at a time wait for child processes below convert (96 % of the time of threads with work): examine \
         these processes, or do their work without a process for each request"
    );
    assert_eq!(threads_with_unknown_partners(&profile), [(7, 8), (7, 9), (7, 10), (7, 11)]);
    let mut partners = Partners::default();
    (8..12).for_each(|tid| partners.add_child(tid, converter()));
    analyze_with_partners(&mut profile, &partners);
    let text = only(&profile).to_string();
    assert!(text.contains("; at the end for convert (process 55): examine convert, or"), "{text}");
    analyze(&mut profile);
    assert_eq!(only(&profile).to_string(), text);
}

#[test]
fn workers_of_a_pool_that_wait_for_a_process_are_found() {
    let mut threads = Threads::wall();
    threads.add(
        1,
        ThreadState::Blocked,
        "start_thread;System.Net.Sockets!System.Net.Sockets.SocketAsyncEngine.EventLoop()",
    );
    let wait =
        "shop!Shop.Image.Convert();System.Diagnostics.Process!System.Diagnostics.Process.WaitForExit()";
    add_changing(&mut threads, &format!("{POOL_ROOT};{wait};pthread_cond_wait@libc.so.6"));
    assert!(
        only(&threads.profile()).evidence.contains("wait for child processes below Shop.Image.Convert (")
    );
}

/// The output of a child is like a response; the kernel knows whose pipe it is.
#[test]
fn a_pipe_to_a_child_counts_below_a_function_that_does_work() {
    let mut profile = server(&format!("{ROOT};{READ}"));
    assert_eq!(profile.findings(), []);
    assert_eq!(threads_with_unknown_partners(&profile), [(7, 8), (7, 9), (7, 10), (7, 11)]);
    let with = |add: fn(&mut Partners, u32, Partner)| {
        let mut partners = Partners::default();
        (8..12).for_each(|tid| add(&mut partners, tid, converter()));
        partners
    };
    analyze_with_partners(&mut profile, &with(Partners::add_process));
    assert_eq!(profile.findings(), [], "a process that is no child: its parent, which has the work");
    analyze_with_partners(&mut profile, &with(Partners::add_child));
    let finding = only(&profile);
    assert_eq!(finding.facts.certainty, Certainty::Likely(Proof::FurtherReadings));
    assert!(finding.evidence.ends_with("; at the end for convert (process 55)"), "{finding}");
    // The other threads wait for pipes within the process.
    let mut partners = Partners::default();
    partners.add_child(8, converter());
    analyze_with_partners(&mut profile, &partners);
    assert_eq!(profile.findings(), [], "one thread waits for a child");
    // Threads of an interpreter, and of a program that reads what its children log.
    for reader in [
        "_PyEval_EvalFrameDefault@python3.11;_io_FileIO_readall@python3.11;read@libc.so.6;anon_pipe_read_[k]",
        "a;b;c;d;e;f;g;h;i;copy_lines;read@libc.so.6;anon_pipe_read_[k]",
    ] {
        let mut profile = server(&format!("{ROOT};{reader}"));
        analyze_with_partners(&mut profile, &with(Partners::add_child));
        assert_eq!(profile.findings(), [], "{reader}");
    }
}

#[test]
fn programs_that_have_nothing_to_do_but_wait_for_children_have_no_finding() {
    let wait = format!("{ROOT};{WAIT}");
    // A build: it accepts no connection.
    let mut build = Threads::wall();
    add_changing(&mut build, &wait);
    assert_eq!(build.kinds(), []);
    // A supervisor, with a thread for each child, which lives as long.
    let mut supervisor = Threads::wall();
    supervisor.add(1, ThreadState::Blocked, ACCEPT).add(4, ThreadState::Blocked, &wait);
    assert_eq!(supervisor.kinds(), []);
    // Two requests.
    let mut two = Threads::wall();
    two.add(1, ThreadState::Blocked, ACCEPT);
    for _ in 0..2 {
        let parts = [(0, 50, Some(ThreadState::Blocked), &*wait), (5, 50, Some(ThreadState::OnCpu), FORK)];
        two.add_thread("worker", &parts);
    }
    assert_eq!(two.kinds(), []);
    // Threads of Java, one for each child. Java 21 adds the id of the child to the name, which the kernel cuts.
    let reaper = format!(
        "{ROOT};[libjvm.so+0x0]@libjvm.so;Java_java_lang_ProcessHandleImpl_waitForProcessExit0@libjava.so;waitpid@libc.so.6"
    );
    let mut java = Threads::wall();
    java.add(1, ThreadState::Blocked, ACCEPT);
    for _ in 0..4 {
        let blocked = Some(ThreadState::Blocked);
        let parts = [(0, 5, Some(ThreadState::OnCpu), FORK), (1, 95, blocked, &*reaper)];
        java.add_thread("process reaper ", &parts);
    }
    assert_eq!(java.kinds(), []);
    // Workers of a server that mostly compute.
    let mut busy = Threads::wall();
    busy.add(1, ThreadState::Blocked, ACCEPT);
    for _ in 0..4 {
        let parts =
            [(0, 4 * HZ, Some(ThreadState::Blocked), &*wait), (4, 6 * HZ, Some(ThreadState::OnCpu), FORK)];
        busy.add_thread("worker", &parts);
    }
    assert_eq!(busy.kinds(), []);
}
