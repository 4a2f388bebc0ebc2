//! Polls and looks up the JIT code of all processes.

use std::{
    collections::{BTreeMap, HashSet},
    path::Path,
    time::{Duration, Instant},
};

use profiler_addresses::{MonotonicTime, RuntimeAddress};
use profiler_dotnet_diagnostics::{MemoryBudget, RECORDING_FILE, ReportScope, RuntimeNames};
use profiler_processes::{Backing, Pid, Process, ProcessKey, ProcessTable, tenants::tenant_of};
use profiler_profile::{EventSessionCause, Reason};

use super::Symbolizer;
use crate::{
    CodeKey, ManagedFunctionFrames, MethodEventRequests,
    jit::{
        JitBudgets, JitNames,
        tenant_limits::{self, MAX_JIT_BYTES},
    },
    method_memory::{self, MethodMemory},
    symbol::Symbolized,
};

/// Time for reading the files of all runtimes. The rest is read the next time.
const MAX_POLL_TIME: Duration = Duration::from_millis(500);

/// Time at the end of a profile for the reports of all runtimes.
const REPORT_TIMEOUT: Duration = Duration::from_millis(1000);

/// Time for the reports of all methods where the received ones took most of [`REPORT_TIMEOUT`].
const MIN_REPORT_TIMEOUT: Duration = Duration::from_millis(300);

/// Time for disabling the perf maps of all runtimes that were not disabled in order.
const STOP_TIMEOUT: Duration = Duration::from_millis(1000);

/// Methods that were requested from runtimes.
#[derive(Debug)]
pub struct RequestedMethods {
    deadline: Instant,
}

impl Symbolizer {
    /// The period without replaced JIT code in which `time` is. 0 for a process without JIT code.
    pub fn jit_epoch(&mut self, process: &Process, time: MonotonicTime) -> u32 {
        self.jit.get(&process.key).map_or(0, |names| names.epoch(time))
    }

    /// Reads what the runtimes of the targets wrote since the last call. `now` is the time before the call.
    pub fn poll_jit(&mut self, processes: &ProcessTable, now: MonotonicTime) {
        for (key, names) in &mut self.jit {
            if let Some(process) = processes.get(*key) {
                process.mapped_files().for_each(|path| names.add_mapped_file(Path::new(path)));
            }
        }
        self.find_ancestors(processes);
        // What the memory lacks decides which runtimes are asked.
        self.read_method_memory(processes, MAX_JIT_BYTES, Instant::now() + MAX_POLL_TIME);
        let mut all: Vec<_> = self.jit.values_mut().chain(self.jit_of_ancestors.values_mut()).collect();
        tenant_limits::start_listeners(&mut all);
        // A time of its own: a file of one target that does not answer delayed the search for its runtime.
        tenant_limits::poll_in_turns(all, now, MAX_JIT_BYTES, Instant::now() + MAX_POLL_TIME);
    }

    /// What describes the frames of .NET methods that were found in the memory of processes since the last call
    /// ([`RuntimeRequests::frames`](crate::RuntimeRequests::frames)).
    pub fn take_function_frames(&mut self) -> Vec<(ProcessKey, Vec<ManagedFunctionFrames>)> {
        let found = self.jit.iter_mut().map(|(key, names)| (*key, names.take_function_frames()));
        found.filter(|(_, functions)| !functions.is_empty()).collect()
    }

    /// Reads what the runtimes of the targets wrote and what is in their memory, and the method events that were received of them.
    pub fn read_received_methods(
        &mut self,
        processes: &ProcessTable,
        now: MonotonicTime,
    ) -> RequestedMethods {
        let deadline = Instant::now() + REPORT_TIMEOUT;
        self.read_all_method_memory(processes, MAX_JIT_BYTES, deadline);
        self.poll_jit(processes, now);
        let deadline = Instant::now() + REPORT_TIMEOUT;
        self.runtimes_mut().for_each(|runtime| runtime.request_report(ReportScope::Received, deadline));
        self.receive_reports(deadline);
        RequestedMethods { deadline }
    }

    /// Whether the code has the same name after [`receive_all_methods`](Self::receive_all_methods).
    pub fn has_final_name(&mut self, code: CodeKey, process: &Process, time: MonotonicTime) -> bool {
        let address = match code {
            // Perf maps are read after they are disabled. The replay of a capture has no more than the recorded methods.
            CodeKey::Jit(..) if self.requests_perf_maps() || self.proc.records_capture() => return false,
            CodeKey::Jit(_, address, _) => Some(address),
            // The name of what it compiles.
            _ if self.is_compiler(code) => None,
            _ => return true,
        };
        let listening = self.jit_names(process).runtime.as_mut().filter(|runtime| runtime.is_listening());
        // What no listener reports any more stays as it is.
        listening.is_none_or(|runtime| match address {
            Some(address) => runtime.methods.is_final(address.0, time),
            None => runtime.methods.completeness.is_complete_at(time),
        })
    }

    /// Requests the methods up to now from the runtimes of these processes. `is_last` stops their listeners afterwards.
    pub fn request_all_methods(
        &mut self,
        requested: &mut RequestedMethods,
        processes: &HashSet<ProcessKey>,
        is_last: bool,
    ) {
        let scope = if is_last { ReportScope::Last } else { ReportScope::UpToNow };
        requested.deadline = requested.deadline.max(Instant::now() + MIN_REPORT_TIMEOUT);
        let deadline = requested.deadline;
        // All runtimes put their reports together at the same time.
        let names = self.jit.iter_mut().filter(|(key, _)| processes.contains(key));
        let runtimes = names.filter_map(|(_, names)| names.runtime.as_mut());
        runtimes.for_each(|runtime| runtime.request_report(scope, deadline));
    }

    /// Waits for the requested methods.
    pub fn receive_all_methods(
        &mut self,
        requested: &RequestedMethods,
        processes: &ProcessTable,
        now: MonotonicTime,
    ) {
        self.receive_reports(requested.deadline);
        if self.requests_perf_maps() {
            self.poll_jit(processes, now);
        }
    }

    /// Malformed lines of perf maps, records of jitdumps, and events of methods.
    pub fn malformed_jit_entries(&self) -> u64 {
        let all = self.jit.values().chain(self.jit_of_ancestors.values());
        all.map(JitNames::malformed_entries).sum()
    }

    /// Events of methods that the runtimes of the targets dropped because their buffers were full, and those that were dropped here
    /// because the memory budget was exceeded.
    pub fn dropped_method_events(&self) -> u64 {
        let runtimes = self.jit.values().filter_map(|names| names.runtime.as_ref());
        runtimes.map(|runtime| runtime.methods.completeness.dropped_events).sum()
    }

    /// The number of processes whose .NET runtimes were asked for the events of their methods, by cause.
    pub fn event_sessions(&self) -> BTreeMap<EventSessionCause, u64> {
        let mut processes = BTreeMap::new();
        for cause in self.jit.values().filter_map(JitNames::event_session_cause) {
            *processes.entry(cause).or_default() += 1;
        }
        processes
    }

    /// Adds what the runtimes of the targets wrote and reported to the capture, if one is recorded. What they reported needs the
    /// feature `capture`.
    pub fn capture_jit_names(&self, processes: &ProcessTable) {
        if !self.proc.records_capture() {
            return;
        }
        for (key, names) in &self.jit {
            let Some(process) = processes.get(*key) else { continue };
            if let Some(recording) = names.runtime.as_ref().and_then(RuntimeNames::recording)
                && let Err(error) = self.proc.capture_entry(process.pid, RECORDING_FILE, &recording)
            {
                log::warn!("the capture lacks the runtime methods of process {}: {error}", process.pid);
            }
            if let Some(recording) = names.method_memory.as_ref().and_then(MethodMemory::recording)
                && let Err(error) =
                    self.proc.capture_entry(process.pid, method_memory::RECORDING_FILE, &recording)
            {
                log::warn!("the capture lacks the runtime memory of process {}: {error}", process.pid);
            }
            self.capture_files(process.pid, names);
        }
        for ((pid, _), names) in &self.jit_of_ancestors {
            self.capture_files(*pid, names);
        }
    }

    fn capture_files(&self, pid: Pid, names: &JitNames) {
        for (path, file) in names.files() {
            if let Err(error) = self.proc.capture_root_file(pid, path, file) {
                log::warn!("the capture lacks `{}` of process {pid}: {error}", path.display());
            }
        }
    }

    /// Looks up JIT code. What belongs to no method of a .NET runtime can be a stub.
    pub(super) fn symbolize_jit(
        &mut self,
        process: &Process,
        address: RuntimeAddress,
        time: MonotonicTime,
    ) -> Result<Symbolized, Reason> {
        let reason = match self.own_or_inherited(process, address, time) {
            Ok(found) => return Ok(found),
            Err(reason) if !self.jit_names(process).is_stub(address, time) => return Err(reason),
            Err(reason) => reason,
        };
        // In anonymous memory, where runtimes before .NET 7 have their code, it may be code of another JIT compiler.
        let mapping = process.find_mapping(address, time);
        let is_of_runtime = mapping.is_ok_and(|mapping| mapping.backing == Backing::DotnetJit);
        let stub = self.symbolize_stub(process, address, time);
        stub.map_err(|stub| if is_of_runtime && reason != Reason::JitCodeUnloaded { stub } else { reason })
    }

    /// Names the JIT code of a process, also where no sample has any: events have stacks.
    pub fn begin_jit_names(&mut self, process: &Process) {
        self.jit_names(process);
    }

    /// The memory of the method events of all runtimes together.
    pub fn event_budget(&self) -> &MemoryBudget {
        &self.event_budget
    }

    /// The JIT code of a process.
    pub(super) fn jit_names(&mut self, process: &Process) -> &mut JitNames {
        self.jit.entry(process.key).or_insert_with(|| {
            let tenant = tenant_of(process);
            let files = self.modules.budget_of(tenant).part();
            let budgets = JitBudgets { events: self.event_budget.of_tenant(tenant), files };
            JitNames::new(process, &self.proc, budgets, self.runtime_requests)
        })
    }

    fn receive_reports(&mut self, deadline: Instant) {
        let all = self.jit.values_mut().chain(self.jit_of_ancestors.values_mut());
        tenant_limits::receive_reports(&mut all.collect::<Vec<_>>(), deadline);
    }

    fn requests_perf_maps(&self) -> bool {
        self.runtime_requests.perf_maps
    }

    fn runtimes_mut(&mut self) -> impl Iterator<Item = &mut RuntimeNames> {
        self.jit.values_mut().filter_map(|names| names.runtime.as_mut())
    }
}

impl JitNames {
    /// Why the runtime was asked for the events of its methods; `None` if it was not.
    fn event_session_cause(&self) -> Option<EventSessionCause> {
        self.runtime.as_ref().filter(|runtime| runtime.was_asked())?;
        Some(match (self.event_requests, &self.method_memory) {
            (MethodEventRequests::WhereMemoryLacks, Some(memory)) => {
                memory.lack().unwrap_or(EventSessionCause::NotDescribed)
            }
            _ => EventSessionCause::Requested,
        })
    }
}

impl Drop for Symbolizer {
    /// Stops the sessions of all runtimes at the same time.
    fn drop(&mut self) {
        let deadline = Instant::now() + STOP_TIMEOUT;
        self.runtimes_mut().for_each(|runtime| runtime.begin_stop(deadline));
    }
}
