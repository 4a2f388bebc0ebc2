//! The methods of one process, as its runtime reports them: the listener, its reports, and the table of methods.

use std::{
    sync::mpsc::Receiver,
    time::{Duration, Instant},
};

use profiler_profile::Reason;

use super::{
    listener::Listener,
    memory_budget::MemoryBudget,
    method_events::EventOptions,
    method_table::MethodTable,
    report::{Report, ReportScope},
    requested_perf_map::RequestedPerfMap,
    runtime_process::RuntimeProcess,
    socket::Endpoint,
};

/// The file of a capture with the recording of a process ([`RuntimeNames::recording`]).
pub const RECORDING_FILE: &str = "runtime-methods.jsonl";

/// Additional time for a report after the deadline of the listener, which has to put the report together.
const REPORT_TIMEOUT: Duration = Duration::from_millis(200);

/// The methods of one process, as its runtime reports them.
#[derive(Debug)]
pub struct RuntimeNames {
    listener: ListenerState,
    awaited_report: Option<Receiver<Report>>,
    perf_map: Option<RequestedPerfMap>,
    /// The methods of all reports.
    pub methods: MethodTable,
}

#[derive(Debug)]
enum ListenerState {
    /// The runtime has no socket yet.
    NotStarted(Endpoint, EventOptions),
    Running(Listener),
    Finished,
}

impl RuntimeNames {
    /// Sends nothing before the first [`start_listener`](Self::start_listener).
    pub fn new(process: RuntimeProcess, budget: MemoryBudget) -> Self {
        let perf_map_paths = process.perf_map.clone();
        let options = EventOptions { budget, keeps_compilations: process.keeps_compilations };
        let endpoint = Endpoint::new(process);
        let perf_map = perf_map_paths.map(|paths| RequestedPerfMap::new(endpoint.clone(), paths));
        let listener = ListenerState::NotStarted(endpoint, options);
        Self { listener, awaited_report: None, perf_map, methods: MethodTable::default() }
    }

    /// The methods in the recording of a capture; `None` without the feature `capture`.
    pub fn from_recording(text: &[u8]) -> Option<Self> {
        let (listener, methods) = (ListenerState::Finished, MethodTable::from_recording(text)?);
        Some(Self { listener, awaited_report: None, perf_map: None, methods })
    }

    /// Takes the next steps to enable the perf map, if one was requested.
    pub fn advance_perf_map(&mut self) {
        if let Some(map) = &mut self.perf_map {
            map.advance();
        }
    }

    /// Starts the listener if the runtime has a socket and the listener was not started before.
    pub fn start_listener(&mut self) {
        let ListenerState::NotStarted(endpoint, options) = &self.listener else { return };
        if !endpoint.exists() {
            return;
        }
        self.listener = match Listener::start(endpoint.clone(), options.clone()) {
            Ok(listener) => ListenerState::Running(listener),
            Err(error) => {
                log::warn!("failed to listen to the runtime of process {}: {error}", endpoint.pid);
                ListenerState::Finished
            }
        };
    }

    /// Whether a listener thread exists.
    pub fn is_listening(&self) -> bool {
        matches!(self.listener, ListenerState::Running(_))
    }

    /// Whether the runtime was asked for the events of its methods.
    pub fn was_asked(&self) -> bool {
        !matches!(self.listener, ListenerState::NotStarted(..))
    }

    /// Whether a listener receives the methods of the runtime.
    pub fn reports_methods(&self) -> bool {
        self.is_listening() && self.methods.completeness.failure.is_none()
    }

    /// Notifies the listener to stop its session, and the runtime to disable its perf map, before this is dropped. Dropping
    /// it waits until the deadline at most.
    pub fn begin_stop(&mut self, deadline: Instant) {
        if let ListenerState::Running(listener) = &mut self.listener {
            listener.begin_stop();
        }
        if let Some(map) = &mut self.perf_map {
            map.begin_drop(deadline);
        }
    }

    /// Requests a report, and disables the perf map if this is the last one. The listener reports what it has at the
    /// deadline.
    pub fn request_report(&mut self, scope: ReportScope, deadline: Instant) {
        if let ListenerState::Running(listener) = &self.listener {
            self.awaited_report = Some(listener.request_report(scope, deadline));
        }
        if let Some(map) = self.perf_map.as_mut().filter(|_| scope == ReportScope::Last) {
            map.disable(deadline);
        }
    }

    /// Waits for the requested report, and adds its methods until all methods take `max_bytes` of memory. After the last
    /// report the perf map is complete. Its file exists until this is dropped.
    pub fn receive_report(&mut self, deadline: Instant, max_bytes: usize) {
        if let Some(report) = self.awaited_report.take() {
            let left = (deadline + REPORT_TIMEOUT).saturating_duration_since(Instant::now());
            match report.recv_timeout(left) {
                Ok(report) => self.methods.add_report(report, max_bytes),
                Err(_) => self.methods.completeness.failure = Some(Reason::RuntimeSilent),
            }
        }
        if let Some(map) = &mut self.perf_map {
            map.finish(deadline);
        }
    }

    /// Why an address has no method. `None` is a process without a runtime.
    pub fn reason(&self) -> Option<Reason> {
        let completeness = &self.methods.completeness;
        match self.listener {
            ListenerState::NotStarted(..) => None,
            _ if completeness.truncated => Some(Reason::TooLarge),
            _ => Some(completeness.failure.unwrap_or(Reason::NoJitEntry)),
        }
    }

    /// The recording of the methods for a capture. `None` is a process without a runtime, or a build without the feature `capture`.
    pub fn recording(&self) -> Option<Vec<u8>> {
        match self.listener {
            ListenerState::NotStarted(..) => None,
            ListenerState::Running(_) | ListenerState::Finished => self.methods.recording(),
        }
    }
}
