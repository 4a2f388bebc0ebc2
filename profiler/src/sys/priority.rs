//! Raises the scheduling priority of the profiler's own threads.

use rustix::process::{getpriority_process, setpriority_process};

/// Steps of niceness (sched(7)): ten are about ten times as much CPU time.
const NICENESS_STEPS: i32 = 10;

/// Lets the calling thread run before the sampled processes, where the profiler has the privilege. Only for threads
/// that must not be late and that are bounded: the reader runs for moments, the unwinding thread has a CPU quota.
pub fn raise_thread_priority() {
    let result = getpriority_process(None).and_then(|nice| setpriority_process(None, nice - NICENESS_STEPS));
    if let Err(error) = result {
        let thread = std::thread::current();
        log::debug!("cannot raise the priority of thread {}: {error}", thread.name().unwrap_or("?"));
    }
}
