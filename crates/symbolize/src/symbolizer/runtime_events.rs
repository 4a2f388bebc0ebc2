//! Collects the events of .NET runtimes beside the samples.

use profiler_processes::{ProcessKey, ProcessTable};

use super::Symbolizer;
use crate::{EventRequest, ProcessEvents};

impl Symbolizer {
    /// Sets the events that are requested from the runtimes of all targets.
    pub fn set_event_request(&mut self, request: EventRequest) {
        self.events.set_request(request);
    }

    /// Searches runtimes in processes that were not searched recently, and starts to collect their events.
    pub fn poll_runtime_events(&mut self, processes: &ProcessTable) {
        if !self.proc.is_live() {
            return;
        }
        // The methods of the stacks, also where no sample has JIT code.
        let started = self.events.poll(processes, &self.event_budget);
        for process in started.into_iter().filter_map(|key| processes.get(key)) {
            self.jit_names(process);
        }
    }

    /// Notifies the runtimes to write their events up to now, and to stop their sessions if the interval is the last one.
    pub fn request_runtime_events(&mut self, is_last: bool) {
        self.events.request_events(is_last);
    }

    /// Waits for the events up to the end of an interval, `CLOCK_MONOTONIC`, and returns those that have ended by then. A
    /// runtime writes its events every 100 ms: later ones are of the next interval.
    pub fn receive_runtime_events(&mut self, interval_end_ns: u64, is_last: bool) -> Vec<ProcessEvents> {
        self.events.receive(interval_end_ns, is_last, self.proc.is_live())
    }

    /// Whether events of a process may follow.
    pub fn awaits_runtime_events(&self, process: ProcessKey) -> bool {
        self.events.awaits(process)
    }
}
