//! Collects the events of .NET runtimes beside the samples.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use profiler_addresses::MonotonicTime;
use profiler_processes::{
    Pid, Process, ProcessKey, ProcessTable, monotonic_time,
    tenants::{Tenant, TenantShares, tenant_of},
};

use crate::{
    event_buffer::{CollectedEvent, TakenEvents},
    event_listener::{EventListener, LostEvents},
    event_request::EventRequest,
    event_source::EventSource,
    memory_budget::MemoryBudget,
    omitted_counts::OmittedCount,
    runtime_process::RuntimeProcess,
    stream::MAX_UNWRITTEN,
};

/// Runtimes with a listener for events at the same time. Each listener is a thread. One tenant has at most half.
const MAX_LISTENERS: usize = 128;

/// Processes in which a runtime is searched.
const MAX_PROCESSES: usize = 1 << 13;

/// The pause before a runtime is searched again in a process without one, and the longest such pause: it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// Time for stopping the sessions of all runtimes at the end of a profile. A runtime takes 100 ms for each.
const STOP_TIMEOUT: Duration = Duration::from_millis(1000);

/// The same where a stream is kept, which can end with a rundown of all methods.
const RUNDOWN_TIMEOUT: Duration = Duration::from_secs(10);

/// The events of one process.
#[derive(Debug)]
pub struct ProcessEvents {
    /// The process, if it is in the process table.
    pub process: ProcessKey,
    /// In the profiler's pid namespace.
    pub pid: Pid,
    /// The name of the process when its runtime was found.
    pub comm: String,
    /// The events, in any order: all, or where they are too many, a part that is spread evenly over the time.
    pub events: Vec<CollectedEvent>,
    /// The numbers of the others.
    pub omitted: Vec<OmittedCount>,
}

/// The processes whose runtimes are asked for events.
#[derive(Debug, Default)]
pub struct EventSources {
    request: Arc<EventRequest>,
    budget: MemoryBudget,
    /// By process id and start time, which stay the same when the process executes another program.
    processes: HashMap<(Pid, u64), SearchedProcess>,
    /// Of the listeners that were removed.
    lost: LostEvents,
    /// Whether the runtime of a process was found.
    has_found: bool,
}

/// A process that may have a runtime.
#[derive(Debug)]
struct SearchedProcess {
    key: ProcessKey,
    comm: String,
    tenant: Tenant,
    source: EventSource,
    state: SearchState,
}

#[derive(Debug)]
enum SearchState {
    /// The runtime has no socket yet.
    Searching {
        next_search: Instant,
        pause: Duration,
    },
    Listening(EventListener),
    /// The listener has ended, and its events were taken.
    Finished,
}

impl SearchedProcess {
    fn listener(&self) -> Option<&EventListener> {
        if let SearchState::Listening(listener) = &self.state { Some(listener) } else { None }
    }
}

impl EventSources {
    /// Asks for these events. `budget` limits the memory of all sessions together.
    pub fn new(request: EventRequest, budget: MemoryBudget) -> Self {
        Self { request: Arc::new(request), budget, ..Self::default() }
    }

    /// Searches runtimes in processes that were not searched recently, and starts to collect their events. Returns the processes whose
    /// events have stacks and whose runtime was found.
    pub fn poll(&mut self, processes: &ProcessTable) -> Vec<ProcessKey> {
        if self.request.is_empty() {
            return Vec::new();
        }
        for process in processes.living() {
            self.add(process);
        }
        let started = self.start_listeners();
        if self.request.has_stacks() { started } else { Vec::new() }
    }

    /// Waits for the events up to the end of an interval, and returns those that have ended by then. A runtime writes
    /// its events every 100 ms: later ones are of the next interval.
    pub fn receive(&mut self, interval_end: MonotonicTime, is_last: bool) -> Vec<ProcessEvents> {
        if is_last {
            self.listeners_mut().for_each(EventListener::wait_until_stopped);
            if !self.request.is_empty() && !self.has_found {
                log::warn!(
                    "no .NET runtime with a diagnostics socket was found: there are no runtime events"
                );
            }
        } else {
            let written = interval_end.saturating_add(MAX_UNWRITTEN);
            // A time of a forged capture is any.
            let left = written.saturating_since(monotonic_time()).min(MAX_UNWRITTEN);
            let deadline = Instant::now() + left;
            self.listeners_mut().for_each(|listener| listener.wait_until(deadline));
        }
        self.take(interval_end, is_last)
    }

    /// Whether events of a process may follow.
    pub fn awaits(&self, process: ProcessKey) -> bool {
        self.processes.values().any(|searched| searched.key == process && searched.listener().is_some())
    }

    /// The events that are in no profile.
    pub fn lost(&self) -> LostEvents {
        let listeners = self.processes.values().filter_map(SearchedProcess::listener);
        listeners.fold(self.lost, |sum, listener| sum.plus(listener.lost_events()))
    }

    /// Notifies all listeners to stop their sessions, before the events of the last interval are received or this is dropped.
    pub fn begin_stop(&mut self) {
        let keeps_stream = self.request.stream.is_some();
        let deadline = Instant::now() + if keeps_stream { RUNDOWN_TIMEOUT } else { STOP_TIMEOUT };
        self.listeners_mut().for_each(|listener| listener.begin_stop(deadline));
    }

    fn add(&mut self, process: &Process) {
        let Some(identity) = process.identity.as_deref() else { return };
        let id = (process.pid, identity.start_ticks);
        let known = self.processes.get_mut(&id);
        if known.as_ref().is_some_and(|known| known.key == process.key) {
            return;
        }
        let Some(runtime) = RuntimeProcess::of(process) else { return };
        let source = EventSource::new(runtime);
        if let Some(known) = known {
            // It has executed another program, which can have another user.
            (known.key, known.source) = (process.key, source);
        } else if self.processes.len() < MAX_PROCESSES {
            let (key, comm, tenant) = (process.key, process.comm.clone(), tenant_of(process));
            let state = SearchState::Searching { next_search: Instant::now(), pause: FIRST_PAUSE };
            self.processes.insert(id, SearchedProcess { key, comm, tenant, source, state });
        }
    }

    /// Starts a listener for each runtime that is found, and returns the processes of these.
    fn start_listeners(&mut self) -> Vec<ProcessKey> {
        let mut started = Vec::new();
        let mut shares = TenantShares::new(MAX_LISTENERS);
        let running = self.processes.values().filter(|searched| searched.listener().is_some());
        running.for_each(|searched| shares.spend(searched.tenant, 1));
        let now = Instant::now();
        for searched in self.processes.values_mut() {
            let SearchState::Searching { next_search, pause } = &mut searched.state else { continue };
            if *next_search > now || shares.left(searched.tenant) == 0 {
                continue;
            }
            *next_search = now + *pause;
            *pause = (2 * *pause).min(MAX_PAUSE);
            let budget = self.budget.of_tenant(searched.tenant);
            if let Some(listener) = searched.source.listen(Arc::clone(&self.request), budget) {
                searched.state = SearchState::Listening(listener);
                shares.spend(searched.tenant, 1);
                self.has_found = true;
                started.push(searched.key);
            }
        }
        started
    }

    fn take(&mut self, interval_end: MonotonicTime, is_last: bool) -> Vec<ProcessEvents> {
        let mut taken = Vec::new();
        for ((pid, _), searched) in &mut self.processes {
            let SearchState::Listening(listener) = &searched.state else { continue };
            let has_ended = listener.has_ended();
            let TakenEvents { events, omitted } = listener.take_events(interval_end, is_last || has_ended);
            if has_ended {
                self.lost = self.lost.plus(listener.lost_events());
                searched.state = SearchState::Finished;
            }
            if !events.is_empty() || !omitted.is_empty() {
                let comm = searched.comm.clone();
                taken.push(ProcessEvents { process: searched.key, pid: *pid, comm, events, omitted });
            }
        }
        taken
    }

    /// Forgets the processes that are not retained, except those with a listener.
    pub fn retire_ended(&mut self, is_retained: impl Fn(ProcessKey) -> bool) {
        self.processes.retain(|_, searched| searched.listener().is_some() || is_retained(searched.key));
    }

    fn listeners_mut(&mut self) -> impl Iterator<Item = &mut EventListener> {
        self.processes.values_mut().filter_map(|searched| match &mut searched.state {
            SearchState::Listening(listener) => Some(listener),
            _ => None,
        })
    }
}
