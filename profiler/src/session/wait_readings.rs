//! Readings of what threads wait for, until the end of their interval is known: one that is made while a profile is requested can be
//! later than the end of the profile.

use profiler_addresses::MonotonicTime;
use profiler_processes::ProcessKey;
use profiler_symbolize::ProcessLocks;

use super::poll_readings::MainThreadPoll;

/// The readings since the last profile.
#[derive(Debug, Default)]
pub(super) struct WaitReadings {
    /// Of locks and their owners.
    pub(super) locks: Vec<ProcessLocks>,
    /// Of main threads in poll(2) and select(2).
    pub(super) polls: Vec<MainThreadPoll>,
}

impl WaitReadings {
    /// Whether there is a reading of a process.
    pub(super) fn has(&self, process: ProcessKey) -> bool {
        self.locks.iter().any(|read| read.process == process)
            || self.polls.iter().any(|read| read.process == process)
    }

    /// Takes the readings up to a time.
    pub(super) fn take_until(&mut self, ended: MonotonicTime) -> Self {
        let locks = self.locks.extract_if(.., |read| read.time <= ended).collect();
        let polls = self.polls.extract_if(.., |read| read.time <= ended).collect();
        Self { locks, polls }
    }
}
