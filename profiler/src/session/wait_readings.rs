//! Reads what threads wait for at times: locks with their owners, and main threads in poll(2) and select(2).
//!
//! Readings are kept until the end of their interval is known: one that is made while a profile is requested can be later than the
//! end of the profile.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use profiler_addresses::MonotonicTime;
use profiler_processes::{Pid, ProcessKey, ProcessTable};
use profiler_symbolize::{ProcessLocks, Symbolizer};

use super::{
    poll::Poll,
    poll_readings::{MainThreadPoll, PollReader},
    profile_assembler::ProfileAssembler,
};

/// Readings of the owners of .NET monitors: thousands of locks take a hundredth of the thread's time.
const MONITOR_POLL: Poll = Poll::new(Duration::from_secs(1), 99);

/// Readings of the owners of mutexes. Each takes 20 ms of CPU time at most, and more time on a busy machine.
const MUTEX_POLL: Poll = Poll::new(Duration::from_secs(1), 9);

/// The readings since the last profile.
pub(super) struct WaitReadings {
    locks: Vec<ProcessLocks>,
    polls: Vec<MainThreadPoll>,
    monitor_poll: Poll,
    mutex_poll: Poll,
    /// The processes with threads that may have waited for a mutex since the last reading; `None` where they are not noted.
    mutex_waits: Option<HashSet<Pid>>,
    poll_reader: PollReader,
}

impl WaitReadings {
    pub(super) fn new(notes_mutex_waits: bool) -> Self {
        Self {
            locks: Vec::new(),
            polls: Vec::new(),
            monitor_poll: MONITOR_POLL,
            mutex_poll: MUTEX_POLL,
            mutex_waits: notes_mutex_waits.then(HashSet::new),
            poll_reader: PollReader::default(),
        }
    }

    /// Notes processes with threads that may wait for a mutex.
    pub(super) fn note_mutex_waits(&mut self, pids: &[Pid]) {
        if let Some(waits) = &mut self.mutex_waits {
            waits.extend(pids);
        }
    }

    /// Reads what is due.
    pub(super) fn read(&mut self, symbolizer: &mut Symbolizer, processes: &ProcessTable, now: MonotonicTime) {
        if self.monitor_poll.is_due(now) {
            let begin = Instant::now();
            self.locks.extend(symbolizer.read_monitor_owners(processes));
            self.monitor_poll.end(now, begin.elapsed());
        }
        if self.mutex_poll.is_due(now) {
            let begin = Instant::now();
            let waiting = self.mutex_waits.as_mut().map(std::mem::take);
            self.locks.extend(symbolizer.read_mutex_owners(processes, waiting.as_ref()));
            self.mutex_poll.end(now, begin.elapsed());
        }
        self.polls.extend(self.poll_reader.read(processes, now));
    }

    /// Whether there is a reading of a process.
    pub(super) fn has(&self, process: ProcessKey) -> bool {
        self.locks.iter().any(|read| read.process == process)
            || self.polls.iter().any(|read| read.process == process)
    }

    /// Moves the readings up to a time to a profile.
    pub(super) fn add_until(
        &mut self,
        ended: MonotonicTime,
        processes: &ProcessTable,
        assembler: &mut ProfileAssembler,
    ) {
        for read in self.locks.extract_if(.., |read| read.time <= ended) {
            if let Some(process) = processes.get(read.process) {
                assembler.add_lock_owners(process, &read);
            }
        }
        for read in self.polls.extract_if(.., |read| read.time <= ended) {
            if let Some(process) = processes.get(read.process) {
                assembler.add_poll_reading(process, &read);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use profiler_processes::{ProcFs, ProcessFilter, Tid};
    use profiler_profile::Header;
    use profiler_sampler::EventPlan;
    use profiler_symbolize::ObservedLock;

    use super::*;

    #[test]
    fn a_reading_after_the_end_of_a_profile_is_of_the_next_one() {
        let mut processes = ProcessTable::new(Arc::new(ProcFs::live()), ProcessFilter::All);
        let process = processes.prefetch(Pid::own());
        let mut readings = WaitReadings::new(false);
        for time in [10, 20, 21].map(MonotonicTime) {
            let lock =
                ObservedLock { lock: 1, owner: (Tid(7), "owner".into()), managed_thread_id: 0, waiters: 1 };
            let (locks, managed_threads) = (vec![lock], Vec::new());
            readings.locks.push(ProcessLocks { process, time, locks, managed_threads });
            readings.polls.push(MainThreadPoll { process, time, awaits_connections: true });
        }
        let mut times_of_profile = |started, ended| {
            let [started, ended] = [started, ended].map(MonotonicTime);
            let mut assembler = ProfileAssembler::new(&EventPlan::default(), false, started);
            readings.add_until(ended, &processes, &mut assembler);
            let (builder, _) = assembler.finish(|key| processes.get(key));
            let profile = builder.finish(Header::default());
            let locks: Vec<_> = profile.lock_owners().iter().map(|read| read.time_ns).collect();
            let polls: Vec<_> = profile.poll_readings().iter().map(|read| read.time_ns).collect();
            assert_eq!(locks, polls);
            locks
        };
        assert_eq!((times_of_profile(0, 20), times_of_profile(20, 30)), (vec![10, 20], vec![1]));
    }
}
