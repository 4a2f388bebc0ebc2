//! Which threads go before the processes that are sampled.

use rustix::process::{getpriority_process, setpriority_process};

/// Steps of niceness, as sched(7) counts them: ten are about ten times as much CPU time.
const STEP: i32 = 10;

/// The calling thread goes before who is sampled, where that is allowed. For threads that work a moment now and then, and
/// whose work is worth nothing later: nobody is kept from anything.
pub(super) fn go_first() {
    let moved = getpriority_process(None).and_then(|nice| setpriority_process(None, nice - STEP));
    if let Err(error) = moved {
        let thread = std::thread::current();
        log::debug!("the priority of {} stays as it is: {error}", thread.name().unwrap_or("a thread"));
    }
}
