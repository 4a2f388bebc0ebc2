//! Raises the scheduling priority of the profiler's own threads.

use std::{io, num::NonZeroU64};

use rustix::{
    process::{getpriority_process, setpriority_process},
    thread::set_current_timer_slack,
};

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

/// Lets the calling thread run at once whenever it wakes (`SCHED_FIFO`, sched(7)), without the timer slack of other threads.
/// Returns whether it does: the profiler can lack the privilege. Only for a thread whose runs are short.
pub(crate) fn start_real_time() -> bool {
    /// The least, which is above all threads that are not real-time.
    const PRIORITY: libc::c_int = 1;
    /// `SCHED_RESET_ON_FORK` of `include/uapi/linux/sched.h`: threads that it starts have the usual policy.
    const RESET_ON_FORK: libc::c_int = 1 << 30;
    let slack = set_current_timer_slack(NonZeroU64::new(1)).map_err(io::Error::from);
    let result = slack.and_then(|()| set_policy(libc::SCHED_FIFO | RESET_ON_FORK, PRIORITY));
    if let Err(error) = &result {
        log::debug!("a thread has no real-time priority: {error}");
    }
    result.is_ok()
}

/// Ends the real-time priority of the calling thread. Its niceness is the one of before.
pub(crate) fn end_real_time() {
    if let Err(error) = set_policy(libc::SCHED_OTHER, 0) {
        log::debug!("a thread keeps its real-time priority: {error}");
    }
}

fn set_policy(policy: libc::c_int, priority: libc::c_int) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: the pointer is that of the parameters; 0 is the calling thread. The wrapper of musl always fails.
    let result = unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const parameters) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
