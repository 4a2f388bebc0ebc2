//! Adds what main threads waited for in poll(2) and select(2) to a profile.

use profiler_processes::{Process, Tid};
use profiler_profile::PollReading;

use super::ProfileAssembler;
use crate::session::poll_readings::MainThreadPoll;

impl ProfileAssembler {
    /// Adds a reading of the main thread of a process.
    pub(in crate::session) fn add_poll_reading(&mut self, process: &Process, read: &MainThreadPoll) {
        let id = self.process(process).id;
        let thread = self.builder.thread(id, Tid::leader_of(process.pid).0, &process.comm);
        self.builder.add_poll_reading(PollReading {
            time_ns: read.time.nanoseconds_since(self.started),
            thread,
            awaits_connections: read.awaits_connections,
        });
    }
}
