//! CPU time of this process (getrusage(2)) and of the calling thread (clock_gettime(2)).

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// CPU time of all threads of this process, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuTime {
    pub(crate) user_ns: u64,
    pub(crate) system_ns: u64,
}

/// The CPU time used so far.
pub(crate) fn cpu_time() -> CpuTime {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the structure is writable; for the process itself the call cannot fail.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) };
    // SAFETY: the structure consists of integers, for which zeros and any written values are valid.
    let usage = unsafe { usage.assume_init() };
    CpuTime { user_ns: nanoseconds(usage.ru_utime), system_ns: nanoseconds(usage.ru_stime) }
}

/// The CPU time that the calling thread has used so far.
pub(crate) fn thread_cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

fn nanoseconds(time: libc::timeval) -> u64 {
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_usec * 1_000).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_increases_with_work() {
        let before = cpu_time();
        let mut after = before;
        while after.user_ns + after.system_ns <= before.user_ns + before.system_ns {
            after = cpu_time();
        }
        assert!(after.user_ns >= before.user_ns);
        assert!(!thread_cpu_time().is_zero());
    }
}
