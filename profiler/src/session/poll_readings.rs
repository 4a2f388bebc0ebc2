//! Reads whether the main threads of processes wait for new connections in poll(2) or select(2), which their frames do not show.

#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use profiler_addresses::MonotonicTime;
use profiler_processes::{KnownListeners, Process, ProcessKey, ProcessTable, monotonic_time};

use super::poll::Poll;

/// The time of a reading on a busy machine is mostly that of other programs.
const READINGS: Poll = Poll::new(Duration::from_millis(250), 2);

/// The time after which no further process is read in a reading. One takes 30 us of CPU time. The next reading begins with those that are
/// left: all readings together take 20 ms of a second at most.
const MAX_TIME: Duration = Duration::from_millis(5);

/// What the main thread of a process waited for at a time.
#[derive(Debug)]
pub(super) struct MainThreadPoll {
    pub(super) process: ProcessKey,
    pub(super) time: MonotonicTime,
    pub(super) awaits_connections: bool,
}

/// The readings of all processes, four times a second.
pub(super) struct PollReader {
    due: Poll,
    known: KnownListeners,
    /// The process that was read last.
    last: Option<ProcessKey>,
}

impl Default for PollReader {
    fn default() -> Self {
        Self { due: READINGS, known: KnownListeners::default(), last: None }
    }
}

impl PollReader {
    /// Reads the main threads of the processes that run, if a reading is due.
    pub(super) fn read(&mut self, processes: &ProcessTable, now: MonotonicTime) -> Vec<MainThreadPoll> {
        if !self.due.is_due(now) {
            return Vec::new();
        }
        let begin = Instant::now();
        let mut living: Vec<_> = processes.living().filter(|process| is_user_process(process)).collect();
        living.sort_by_key(|process| process.key);
        let first = living.partition_point(|process| Some(process.key) <= self.last);
        living.rotate_left(first);
        let mut readings = Vec::new();
        for process in living {
            if begin.elapsed() >= MAX_TIME {
                break;
            }
            self.last = Some(process.key);
            match processes.proc().awaits_connections(process, &mut self.known) {
                Ok(Some(awaits_connections)) => readings.push(MainThreadPoll {
                    process: process.key,
                    time: monotonic_time(),
                    awaits_connections,
                }),
                Ok(None) => {}
                Err(error) => log::debug!("the main thread of process {} is not read: {error}", process.pid),
            }
        }
        self.due.end(now, begin.elapsed());
        readings
    }
}

fn is_user_process(process: &Process) -> bool {
    process.identity.as_ref().is_some_and(|identity| !identity.status.kernel_thread)
}
