//! Waiting for what will surely happen, but not for ever.

use std::{
    process::Child,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, pidfd_open},
};

/// The longest that anything may take here: far more than it does on a busy machine.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// How often is asked.
const TICK: Duration = Duration::from_millis(5);

/// Asks again and again until the answer is there.
///
/// # Panics
/// When it is not there by the deadline.
pub fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        // A waiting thread that lets go of the CPU is the first to get it back, however many run.
        std::thread::park_timeout(TICK);
    }
}

/// Whether a child ends by then. It has to be collected all the same.
pub(crate) fn ends_within(child: &Child, limit: Duration) -> bool {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a child has a pid");
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).expect("a child that was not collected is there");
    let limit = Timespec::try_from(limit).expect("a limit is no geological age");
    poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&limit)).is_ok_and(|ready| ready > 0)
}
