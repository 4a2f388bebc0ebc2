//! The time for which threads of processes wait for a CPU.

use std::collections::HashMap;

use profiler_processes::{Pid, ProcFs, Tid};

/// Threads that are read at one moment, which takes some microseconds for each.
const MAX_THREADS: usize = 512;

/// Measures the waits of the threads of processes in the run queues.
#[derive(Debug, Default)]
pub(crate) struct RunQueue {
    last: Option<Snapshot>,
}

/// The waits of threads up to a moment.
#[derive(Debug)]
struct Snapshot {
    time_ns: u64,
    /// Time in run queues since the start of each thread.
    waits_ns: HashMap<Tid, u64>,
    /// Whether all threads were read.
    is_complete: bool,
}

impl RunQueue {
    /// The time in run queues per time since the last moment, summed over threads; `None` at the first moment, and if
    /// the kernel does not count.
    pub(crate) fn update(&mut self, proc: &ProcFs, pids: &[Pid], now_ns: u64) -> Option<f64> {
        let now = Snapshot::read(proc, pids, now_ns)?;
        let share = self.last.as_ref().and_then(|last| now.share_since(last));
        self.last = Some(now);
        share
    }
}

impl Snapshot {
    fn read(proc: &ProcFs, pids: &[Pid], time_ns: u64) -> Option<Self> {
        let mut threads = Vec::new();
        for pid in pids {
            // A process can end while the others are read.
            let of_process = proc.threads(*pid, MAX_THREADS - threads.len()).unwrap_or_default();
            threads.extend(of_process.into_iter().map(|tid| (*pid, tid)));
        }
        let is_complete = threads.len() < MAX_THREADS;
        let mut waits_ns = HashMap::with_capacity(threads.len());
        let mut slices: u64 = 0;
        for (pid, tid) in threads {
            // A thread can end while the others are read.
            let Ok(text) = proc.read(pid, &format!("task/{tid}/schedstat")) else { continue };
            let Some(schedstat) = SchedStat::parse(&String::from_utf8_lossy(&text)) else { continue };
            slices = slices.saturating_add(schedstat.slices);
            waits_ns.insert(tid, schedstat.wait_ns);
        }
        // Without `CONFIG_SCHED_INFO`, all numbers are 0 (`proc_pid_schedstat`, `fs/proc/base.c`).
        (slices > 0).then_some(Self { time_ns, waits_ns, is_complete })
    }

    fn share_since(&self, last: &Self) -> Option<f64> {
        let elapsed_ns = self.time_ns.checked_sub(last.time_ns).filter(|elapsed_ns| *elapsed_ns > 0)?;
        let waits_ns = self.waits_ns.iter().map(|(tid, wait_ns)| match last.waits_ns.get(tid) {
            Some(before_ns) if before_ns <= wait_ns => wait_ns - before_ns,
            // Another thread with this id.
            Some(_) => *wait_ns,
            // The thread is new, unless it was beyond the limit.
            None if last.is_complete => *wait_ns,
            None => 0,
        });
        Some(waits_ns.fold(0_u64, u64::saturating_add) as f64 / elapsed_ns as f64)
    }
}

/// The numbers of `/proc/PID/task/TID/schedstat` (`Documentation/scheduler/sched-stats.rst`) after the time on a CPU.
struct SchedStat {
    /// Time in run queues.
    wait_ns: u64,
    /// Number of time slices that were run.
    slices: u64,
}

impl SchedStat {
    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split_ascii_whitespace().skip(1).map(|number| number.parse().ok());
        Some(Self { wait_ns: numbers.next()??, slices: numbers.next()?? })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    /// A proc file system with the threads of process 7.
    struct Threads {
        directory: TempDir,
    }

    impl Threads {
        fn new() -> Self {
            Self { directory: tempfile::tempdir().unwrap() }
        }

        fn set(&self, tid: usize, schedstat: &str) {
            let thread = self.directory.path().join(format!("7/task/{tid}"));
            fs::create_dir_all(&thread).unwrap();
            fs::write(thread.join("schedstat"), schedstat).unwrap();
        }

        fn remove(&self, tid: usize) {
            fs::remove_dir_all(self.directory.path().join(format!("7/task/{tid}"))).unwrap();
        }

        fn update(&self, run_queue: &mut RunQueue, now_ns: u64) -> Option<f64> {
            run_queue.update(&ProcFs::from_capture(self.directory.path().to_owned()), &[Pid(7)], now_ns)
        }
    }

    #[test]
    fn waits_of_threads_are_summed_over_those_that_began_and_ended() {
        let (threads, mut run_queue) = (Threads::new(), RunQueue::default());
        threads.set(7, "900 100 3\n");
        threads.set(8, "900 500 3\n");
        assert_eq!(threads.update(&mut run_queue, 1_000), None);
        threads.set(7, "900 300 4\n");
        threads.remove(8);
        threads.set(9, "900 50 1\n");
        assert_eq!(threads.update(&mut run_queue, 2_000), Some(0.25));
        threads.set(9, "10 20 1\n");
        assert_eq!(threads.update(&mut run_queue, 3_000), Some(0.02), "a reused id");
        assert_eq!(threads.update(&mut run_queue, 3_000), None, "no time has passed");
    }

    #[test]
    fn a_kernel_that_does_not_count_gives_no_value() {
        let (threads, mut run_queue) = (Threads::new(), RunQueue::default());
        threads.set(7, "0 0 0\n");
        threads.set(8, "malformed\n");
        assert!((0..3).all(|moment| threads.update(&mut run_queue, moment).is_none()));
    }

    #[test]
    fn a_thread_that_was_beyond_the_limit_is_not_new() {
        let (threads, mut run_queue) = (Threads::new(), RunQueue::default());
        (0..MAX_THREADS + 1).for_each(|tid| threads.set(tid, "1 100 1\n"));
        assert_eq!(threads.update(&mut run_queue, 1_000), None);
        (0..MAX_THREADS + 1).for_each(|tid| threads.set(tid, "1 101 1\n"));
        (0..2).for_each(|tid| threads.remove(tid));
        let share = threads.update(&mut run_queue, 2_000).unwrap();
        assert!((0.5..0.512).contains(&share), "{share}");
    }
}
