//! A process whose runtime may be asked for events.

use std::sync::Arc;

use crate::{
    event_listener::EventListener, event_request::EventRequest, event_threads::ThreadReader,
    memory_budget::MemoryBudget, runtime_process::RuntimeProcess, socket::Endpoint,
};

/// A process whose runtime may be asked for events.
#[derive(Debug)]
pub(crate) struct EventSource {
    endpoint: Endpoint,
    namespace_pid: u32,
}

impl EventSource {
    pub(crate) fn new(process: RuntimeProcess) -> Self {
        Self { namespace_pid: process.namespace_pid, endpoint: Endpoint::new(process) }
    }

    /// Starts a listener if the runtime has a socket.
    pub(crate) fn listen(&self, request: Arc<EventRequest>, budget: MemoryBudget) -> Option<EventListener> {
        if !self.endpoint.exists() {
            return None;
        }
        let threads = ThreadReader::new(self.endpoint.pid, self.namespace_pid);
        EventListener::start(self.endpoint.clone(), request, threads, budget)
            .inspect_err(|error| {
                log::warn!("failed to listen to the events of process {}: {error}", self.endpoint.pid);
            })
            .ok()
    }
}
