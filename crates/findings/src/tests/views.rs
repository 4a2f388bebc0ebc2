//! Idle threads in the ledger and in views, and causes by state.

use std::borrow::Cow;

use profiler_profile::{Event, RuntimeEvent, RuntimeEventKind, Sampling, ThreadState};

use super::{HZ, Threads};
use crate::{IdleThreads, ProgramPlace, WaitCause, Waits, with_wait_causes};

const LOOP: &str = "main;run_loop;epoll_wait@libc.so.6";
const WORK: &str = "main;compute";

#[test]
fn the_ledger_counts_idle_samples_and_the_view_has_none() {
    let mut threads = Threads::wall();
    let profile = threads.add(2, ThreadState::Blocked, LOOP).add(1, ThreadState::OnCpu, LOOP).profile();
    let ledger = profile.first_ledger();
    assert_eq!((ledger.idle, ledger.reported), (2 * 10 * HZ, 3 * 10 * HZ));
    let view = with_wait_causes(&profile, IdleThreads::Hidden);
    assert_eq!((view.total_value(), view.samples().len()), (10 * HZ, 1));
    assert_eq!(view.samples()[0].state, Some(ThreadState::OnCpu));
    assert_eq!((view.ledger(), view.findings()), (profile.ledger(), profile.findings()));
    assert_eq!(view.header().edits, ["without idle threads (--show-idle)"]);
}

#[test]
fn the_view_without_idle_threads_has_all_runtime_events() {
    let mut threads = Threads::wall();
    threads.add(1, ThreadState::Blocked, LOOP).add(1, ThreadState::OnCpu, WORK);
    let name = threads.builder.string("Provider/GCStart");
    threads.builder.add_runtime_event(RuntimeEvent {
        time_ns: 1,
        duration_ns: 2,
        process: threads.process,
        thread: None,
        kind: RuntimeEventKind::GarbageCollection,
        name,
        stack: None,
        fields: Box::default(),
    });
    let profile = threads.profile();
    let view = with_wait_causes(&profile, IdleThreads::Hidden);
    assert_eq!((view.samples().len(), view.runtime_events().len()), (1, 1));
}

#[test]
fn idle_durations_are_counted_as_samples() {
    let sampling = Sampling::Durations { min_ns: 0 };
    let mut threads = Threads::sampled(Event { name: "off-cpu".to_owned(), sampling }, 10);
    let profile = threads.add(3, ThreadState::Blocked, LOOP).profile();
    assert_eq!(profile.first_ledger().idle, 3);
}

#[test]
fn a_profile_without_states_is_its_own_view() {
    let cpu = Threads::cpu().add(1, None, LOOP).profile();
    assert!(matches!(with_wait_causes(&cpu, IdleThreads::Hidden), Cow::Borrowed(_)));
    let waits = Threads::wall().add(1, ThreadState::Blocked, LOOP).profile();
    let view = with_wait_causes(&waits, IdleThreads::Shown);
    assert!(matches!(with_wait_causes(&view, IdleThreads::Shown), Cow::Borrowed(_)), "it has its causes");
}

#[test]
fn each_wait_has_a_frame_with_its_cause() {
    let stack = |state, folded: &str| {
        let profile = Threads::wall().add(1, state, folded).profile();
        let view = with_wait_causes(&profile, IdleThreads::Shown);
        let stack = view.stack(view.samples()[0].stack);
        let place = ProgramPlace::of(&view, stack).map(|place| place.method.to_owned());
        let names = stack.frames.iter().rev().map(|id| view.string(view.frame(*id).name));
        (names.collect::<Vec<_>>().join(";"), place)
    };
    for (state, folded, expected, place) in [
        (
            ThreadState::Blocked,
            "main;take;pthread_mutex_lock@libc.so.6;futex_wait_[k]",
            "main;take;[lock];pthread_mutex_lock;futex_wait",
            Some("take"),
        ),
        (ThreadState::Blocked, LOOP, "main;run_loop;[idle];epoll_wait", Some("run_loop")),
        (ThreadState::OnCpu, WORK, WORK, Some("compute")),
        (ThreadState::Runnable, WORK, "main;compute;[run queue]", Some("compute")),
    ] {
        assert_eq!(
            stack(state, folded),
            (expected.to_owned(), place.map(str::to_owned)),
            "{state:?} {folded}"
        );
    }
}

#[test]
fn the_cause_is_above_the_waits_of_the_thread_and_below_no_waker() {
    let folded = "main;take;pthread_mutex_lock@libc.so.6;--;unlock;other;~owner";
    let profile = Threads::wall().add(1, ThreadState::Blocked, folded).profile();
    let view = with_wait_causes(&profile, IdleThreads::Shown);
    let names = view.stack(view.samples()[0].stack).frames.iter().rev();
    let names: Vec<_> = names.map(|id| view.string(view.frame(*id).name)).collect();
    assert_eq!(names[..5], ["main", "take", "[lock]", "pthread_mutex_lock", "--"]);
}

#[test]
fn each_cause_has_a_name_of_its_own() {
    for &cause in WaitCause::ALL {
        assert_eq!(WaitCause::of_frame_name(&cause.frame_name()), Some(cause));
    }
    assert_eq!(WaitCause::of_frame_name("[libfoo.so]"), None);
}

#[test]
fn the_state_precedes_the_frames() {
    let cause = |state, folded| {
        let profile = Threads::wall().add(1, state, folded).profile();
        Waits::of(&profile).cause(&profile.samples()[0])
    };
    for (state, folded, expected) in [
        (ThreadState::OnCpu, LOOP, None),
        (ThreadState::Runnable, LOOP, Some(WaitCause::RunQueue)),
        (ThreadState::Throttled, LOOP, Some(WaitCause::CpuQuota)),
        (ThreadState::Runnable, "main;wait_for_other;sched_yield", Some(WaitCause::Other)),
        (ThreadState::Stopped, LOOP, Some(WaitCause::Other)),
        (ThreadState::Disk, WORK, Some(WaitCause::Other)),
        (ThreadState::Disk, "main;flush;fsync", Some(WaitCause::FileIo)),
        (ThreadState::Disk, "main;load;read;vfs_read;filemap_read;io_schedule", Some(WaitCause::FileIo)),
        (ThreadState::Disk, "main;exc_page_fault;filemap_fault", Some(WaitCause::PageFault)),
        (ThreadState::Disk, "main;rwsem_down_read_slowpath", Some(WaitCause::Lock)),
        (ThreadState::Blocked, LOOP, Some(WaitCause::Idle)),
        (ThreadState::Blocked, WORK, Some(WaitCause::Other)),
    ] {
        assert_eq!(cause(state, folded), expected, "{state:?} {folded}");
    }
}

#[test]
fn a_service_thread_is_idle_unless_it_executes_code_of_the_application() {
    let cause = |name: &str, folded: &str| {
        let part = (0, 1, Some(ThreadState::Blocked), folded);
        let profile = Threads::wall().add_thread(name, &[part]).profile();
        Waits::of(&profile).cause(&profile.samples()[0]).unwrap()
    };
    let native = "wait@libcoreclr.so;pthread_cond_wait@libc.so.6";
    let managed =
        "start_thread@libc.so.6;shop!Shop.Cart.Finalize();wait@libcoreclr.so;pthread_cond_wait@libc.so.6";
    assert_eq!(cause(".NET Finalizer", native), WaitCause::Idle);
    assert_eq!(cause(".NET Finalizer", managed), WaitCause::ConditionVariable);
    assert_eq!(cause("worker", native), WaitCause::ConditionVariable);
}
