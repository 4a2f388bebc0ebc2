//! Waits for conditions with a deadline.

use std::{
    process::Child,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, pidfd_open},
};

/// The longest that any condition may take, far more than it takes on a busy machine.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// The interval between two checks.
const INTERVAL: Duration = Duration::from_millis(5);

/// Repeats `check` until it returns a value.
///
/// # Panics
/// Panics if `check` returns no value by the deadline.
pub fn wait_until<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(value) = check() {
            return value;
        }
        assert!(Instant::now() < deadline, "deadline exceeded while waiting for {what}");
        // `park_timeout` instead of a busy loop: a thread that sleeps is scheduled soon, however many threads run.
        std::thread::park_timeout(INTERVAL);
    }
}

/// Whether a child exits within `limit`. The caller still has to wait for it.
pub(crate) fn ends_within(child: &Child, limit: Duration) -> bool {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a child has a pid");
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).expect("a child that was not collected is there");
    let limit = Timespec::try_from(limit).expect("the limit is a few seconds");
    poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&limit)).is_ok_and(|ready| ready > 0)
}
