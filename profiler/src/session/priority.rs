//! Which threads go before the processes that are sampled.

use rustix::process::{getpriority_process, setpriority_process};

/// Steps of niceness, as sched(7) counts them: ten are about ten times as much CPU time.
const STEP: i32 = 10;

/// The calling thread goes before who is sampled, where that is allowed. For threads whose work is worth nothing later, and
/// that have a bound: the reader works a moment now and then, the unwinding thread has its allowance.
pub(super) fn go_first() {
    let moved = getpriority_process(None).and_then(|nice| setpriority_process(None, nice - STEP));
    if let Err(error) = moved {
        let thread = std::thread::current();
        log::debug!("the priority of {} stays as it is: {error}", thread.name().unwrap_or("a thread"));
    }
}
