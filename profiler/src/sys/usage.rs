//! CPU time of this process (getrusage(2)) and of its threads (clock_gettime(2)).

use std::{mem::MaybeUninit, os::unix::thread::JoinHandleExt as _, thread::JoinHandle, time::Duration};

use rustix::time::{ClockId, clock_gettime};

/// CPU time of all threads of this process, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuTime {
    pub(crate) user_ns: u64,
    pub(crate) system_ns: u64,
}

/// The CPU time used so far.
pub(crate) fn cpu_time() -> CpuTime {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
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

/// The CPU time that a thread has used so far; zero after its end.
pub(crate) fn cpu_time_of<T>(thread: &JoinHandle<T>) -> Duration {
    let mut clock = MaybeUninit::<libc::clockid_t>::zeroed();
    // SAFETY: the thread is not detached as long as its handle lives, and the clock is writable.
    if unsafe { libc::pthread_getcpuclockid(thread.as_pthread_t(), clock.as_mut_ptr()) } != 0 {
        return Duration::ZERO;
    }
    // SAFETY: an integer, which was initialized.
    let clock = unsafe { clock.assume_init() };
    let mut time = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: the time is writable. The clock of a thread that has ended is an error.
    unsafe { libc::clock_gettime(clock, time.as_mut_ptr()) };
    // SAFETY: two integers, for which zeros are valid.
    let time = unsafe { time.assume_init() };
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
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

    #[test]
    fn the_cpu_time_of_another_thread_grows_until_it_ends() {
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || while ended.try_recv().is_err() {});
        let before = cpu_time_of(&thread);
        while cpu_time_of(&thread) <= before {}
        end.send(()).unwrap();
        while !thread.is_finished() {}
        let after = cpu_time_of(&thread);
        thread.join().unwrap();
        assert!(after.is_zero() || after > before);
    }
}
