//! Event loops that compute all the time, and those that are busy with many events.

use profiler_profile::{FindingKind, ThreadState};

use super::Threads;

const LOOP: &str = "_start;main;aeMain;readQueryFromClient;call";

/// The findings of a thread with these parts of 300 ticks in ten seconds: state, ticks, stack.
fn found(parts: &[(Option<ThreadState>, u64, &str)]) -> Vec<String> {
    let mut threads = Threads::wall();
    let mut second = 0;
    let parts: Vec<_> = parts
        .iter()
        .map(|(state, ticks, folded)| {
            second += 1;
            (second, *ticks, *state, *folded)
        })
        .collect();
    threads.add_thread("redis-server", &parts);
    threads.findings().iter().map(ToString::to_string).collect()
}

#[test]
fn an_event_loop_that_computes_all_the_time_names_its_function() {
    let keys = format!("{LOOP};keysCommand;dictNext");
    let expected = "the event loop of thread redis-server computes all the time, 100 % of it in keysCommand, and handles no \
                    other event meanwhile: divide the work of keysCommand, or move it to another thread";
    let own = format!("{LOOP};keysCommand");
    assert_eq!(
        found(&[(Some(ThreadState::OnCpu), 60, &keys), (Some(ThreadState::OnCpu), 40, &own)]),
        [expected]
    );
}

#[test]
fn time_in_the_run_queue_counts_and_time_in_system_calls_does_not() {
    let (keys, get) = (format!("{LOOP};keysCommand"), format!("{LOOP};getCommand"));
    let write = format!("{LOOP};writeToClient;write;entry_SYSCALL_64_after_hwframe_[k]");
    let (on_cpu, runnable) = (Some(ThreadState::OnCpu), Some(ThreadState::Runnable));
    let kinds = |parts: &[(Option<ThreadState>, u64, &str)]| found(parts).len();
    assert_eq!(kinds(&[(on_cpu, 60, &keys), (runnable, 40, &keys)]), 1);
    // It waits for a tenth and more of the time.
    let idle = "_start;main;aeMain;epoll_wait@libc.so.6";
    assert_eq!(kinds(&[(on_cpu, 89, &keys), (Some(ThreadState::Blocked), 11, idle)]), 0);
    // Many short events: system calls, several functions.
    assert_eq!(kinds(&[(on_cpu, 94, &keys), (on_cpu, 6, &write)]), 0);
    let set = format!("{LOOP};setCommand");
    let texts = found(&[(on_cpu, 50, &get), (on_cpu, 50, &set)]);
    assert!(
        texts.iter().all(|text| !text.contains("getCommand") && !text.contains("setCommand")),
        "{texts:?}"
    );
}

#[test]
fn a_thread_that_computes_without_an_event_loop_is_healthy() {
    assert_eq!(Threads::wall().add(1, ThreadState::OnCpu, "_start;main;compile;optimize").kinds(), []);
}

#[test]
fn a_method_of_a_loop_is_named_and_internal_ones_are_not() {
    let folded = "_start;node::Start(int, char**)@node;uv_run@node;uv__io_poll@node;app!JS:^emit node:events:1;\
                  app!JS:*handle /srv/app.js:3;app!JS:*next node:internal/streams:7";
    let texts = found(&[(Some(ThreadState::OnCpu), 100, &folded.replace("app!", "jit "))]);
    assert_eq!(texts.len(), 1);
    assert!(texts[0].contains("100 % of it in JS:*handle /srv/app.js:3,"), "{texts:?}");
    let unnamed = "_start;node::Start(int, char**)@node;uv_run@node;jit [JIT 0x7f]";
    let kinds = Threads::wall().add(1, ThreadState::OnCpu, unnamed).kinds();
    assert_eq!(kinds, [FindingKind::BusyThread]);
}
