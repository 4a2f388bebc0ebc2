//! Threads that wait for new connections by their descriptors.

use profiler_profile::{PollReading, ThreadState};

use super::{HZ, NS_PER_S, Threads};
use crate::{WaitCause, Waits};

const NS_PER_MS: u64 = 1_000_000;

/// A loop of an interpreter, and a wait for a process within a request of it.
const POLL: &str =
    "main@python3.11;_PyEval_EvalFrameDefault@python3.11;select_poll_poll@python3.11;poll@libc.so.6";

/// The causes of two samples of the main thread, of 5 s each, with these stacks and readings: the time of each, milliseconds, and
/// whether the thread waited for new connections then.
fn causes(stacks: [&str; 2], readings: &[(u64, bool)]) -> Vec<Option<WaitCause>> {
    let mut threads = Threads::wall();
    let blocked = Some(ThreadState::Blocked);
    threads.add_thread("python3", &[(0, 5 * HZ, blocked, stacks[0]), (5, 5 * HZ, blocked, stacks[1])]);
    for (time_ms, awaits_connections) in readings {
        let thread = threads.builder.thread(threads.process, 7, "python3");
        let time_ns = time_ms * NS_PER_MS;
        let awaits_connections = *awaits_connections;
        threads.builder.add_poll_reading(PollReading { time_ns, thread, awaits_connections });
    }
    let profile = threads.profile();
    let waits = Waits::of(&profile);
    profile.samples().iter().map(|sample| waits.cause(sample)).collect()
}

#[test]
fn a_thread_that_polls_a_socket_that_listens_is_idle() {
    let (idle, other) = (Some(WaitCause::Idle), Some(WaitCause::Other));
    assert_eq!(causes([POLL; 2], &[(1_500, true), (3_500, true)]), [idle, idle]);
    assert_eq!(causes([POLL; 2], &[]), [other, other]);
    let of_request = format!("main@python3.11;communicate@python3.11;{POLL}");
    assert_eq!(causes([POLL, &of_request], &[(1_500, true), (3_500, true), (7_500, false)]), [idle, other]);
}

/// The call of `poll` before and after CPython specialized the code of the loop.
#[test]
fn a_reading_in_each_stack_is_enough_where_the_thread_waits_for_connections_throughout() {
    let (idle, other) = (Some(WaitCause::Idle), Some(WaitCause::Other));
    let specialized = POLL.replace("select_poll_poll", "method_vectorcall_VARARGS;select_poll_poll");
    let stacks = [POLL, &specialized];
    assert_eq!(causes(stacks, &[(4_500, true), (5_500, true)]), [idle, idle]);
    assert_eq!(causes(stacks, &[(4_500, true), (5_499, true)]), [other, other], "for too short a time");
    assert_eq!(causes(stacks, &[(4_500, true), (5_500, false)]), [other, other], "it has a request");
    assert_eq!(causes(stacks, &[(3_500, true), (4_500, true)]), [idle, other], "a stack without a reading");
}

/// A wait for a process within a request can have the same stack: methods of the interpreter have no frames.
#[test]
fn a_stack_in_which_a_thread_also_polls_something_else_is_not_idle() {
    let other = Some(WaitCause::Other);
    assert_eq!(causes([POLL; 2], &[(1_500, true), (3_500, true), (7_500, false)]), [other, other]);
    assert_eq!(causes([POLL; 2], &[(1_500, true)]), [other, other], "a single reading");
    let of_request = format!("main@python3.11;communicate@python3.11;{POLL}");
    let soon_after = [(1_500, true), (1_750, true), (7_500, false)];
    assert_eq!(causes([POLL, &of_request], &soon_after), [other, other], "two readings of one moment");
}

#[test]
fn a_reading_between_two_stacks_says_nothing() {
    let of_request = format!("main@python3.11;communicate@python3.11;{POLL}");
    let other = Some(WaitCause::Other);
    let mut threads = Threads::wall();
    let blocked = Some(ThreadState::Blocked);
    threads.add_thread("python3", &[(0, 5 * HZ, blocked, POLL), (5, 5 * HZ, blocked, &of_request)]);
    for _ in 0..3 {
        let thread = threads.builder.thread(threads.process, 7, "python3");
        let time_ns = 5 * NS_PER_S;
        threads.builder.add_poll_reading(PollReading { time_ns, thread, awaits_connections: true });
    }
    let profile = threads.profile();
    let waits = Waits::of(&profile);
    let causes: Vec<_> = profile.samples().iter().map(|sample| waits.cause(sample)).collect();
    assert_eq!(causes, [other, other]);
}

#[test]
fn only_waits_for_descriptors_are_for_connections() {
    let sleep = "main@shop;rest@shop;clock_nanosleep@libc.so.6";
    let lock = "main@shop;append@shop;pthread_mutex_lock@libc.so.6";
    let found = causes([lock, sleep], &[(1_500, true), (3_500, true), (6_500, true), (8_500, true)]);
    assert_eq!(found[0], Some(WaitCause::Lock));
}
