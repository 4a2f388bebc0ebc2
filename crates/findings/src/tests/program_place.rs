//! Places of threads in their programs.

use profiler_profile::ThreadState;

use super::Threads;
use crate::ProgramPlace;

/// The method and the number of frames of the place that a stack has.
fn place(folded: &str) -> (String, usize) {
    let profile = Threads::wall().add(1, ThreadState::Blocked, folded).profile();
    let stack = profile.stack(profile.samples()[0].stack);
    let place = ProgramPlace::of(&profile, stack).unwrap();
    (place.method.to_owned(), place.frames.len())
}

#[test]
fn a_place_is_the_method_of_the_program_nearest_to_the_leaf() {
    for (folded, method, frames) in [
        ("main;append;pthread_mutex_lock@libc.so.6;futex_wait_[k];schedule_[k]", "append", 2),
        (
            "shop!Shop.Main();shop!Shop.Cart.Get(int);System.Private.CoreLib!System.Threading.Monitor.Enter(object);\
             Monitor_Wait@libcoreclr.so;futex_wait_[k]",
            "Shop.Cart.Get",
            2,
        ),
    ] {
        assert_eq!(place(folded), (method.to_owned(), frames), "{folded}");
    }
}

#[test]
fn a_stack_without_a_method_of_the_program_has_a_place_too() {
    for (folded, method, frames) in [
        (
            "start_thread@libc.so.6;System.Private.CoreLib!System.Threading.TimerQueue.TimerThread();\
             Monitor_Wait@libcoreclr.so;futex_wait_[k]",
            "System.Threading.TimerQueue.TimerThread",
            2,
        ),
        ("[shop+0x1];pthread_cond_wait@libc.so.6;futex_wait_[k]", "[shop+0x1]", 1),
        ("kthread_[k];worker_thread_[k];schedule_[k]", "schedule", 3),
    ] {
        assert_eq!(place(folded), (method.to_owned(), frames), "{folded}");
    }
}

#[test]
fn frames_of_a_waker_are_not_in_a_place() {
    let folded = "main;append;pthread_mutex_lock@libc.so.6;--;wake;owner;~owner 8";
    assert_eq!(place(folded), ("append".to_owned(), 2));
}
