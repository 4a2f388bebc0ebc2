//! Shares the listeners and the memory of a session among the tenants whose processes have JIT code.

use std::time::Instant;

use profiler_addresses::MonotonicTime;
use profiler_dotnet_diagnostics::RuntimeNames;
use profiler_processes::{
    ProcFs, Process,
    tenants::{Tenant, TenantShares},
};

use super::JitNames;

/// Memory for the names of JIT code of all processes together. One tenant has at most half.
pub(crate) const MAX_JIT_BYTES: usize = 512 << 20;

/// Runtimes with a listener at the same time. Each listener is a thread. One tenant has at most half.
const MAX_LISTENERS: usize = 128;

/// Starts a listener for each runtime without one, as far as the shares of the tenants allow.
pub(crate) fn start_listeners(all: &mut [&mut JitNames]) {
    let mut shares = TenantShares::new(MAX_LISTENERS);
    all.iter().filter(|names| names.is_listening()).for_each(|names| shares.spend(names.tenant(), 1));
    for names in all.iter_mut().filter(|names| names.root.is_some() && names.needs_method_events()) {
        let tenant = names.tenant();
        let Some(runtime) = &mut names.runtime else { continue };
        runtime.advance_perf_map();
        if !runtime.is_listening() && shares.left(tenant) > 0 {
            runtime.start_listener();
            shares.spend(tenant, usize::from(runtime.is_listening()));
        }
    }
}

/// Reads what the runtimes wrote into files, until the deadline. `max_bytes` limits the memory of all names.
///
/// The processes are polled in turns, and those with large files last, so that one process does not use the time of all.
pub(crate) fn poll_in_turns(
    mut behind: Vec<&mut JitNames>,
    now: MonotonicTime,
    max_bytes: usize,
    deadline: Instant,
) {
    let mut memory = JitMemory::new(&behind, max_bytes);
    behind.sort_by_key(|names| names.read_bytes());
    while !behind.is_empty() {
        behind.retain_mut(|names| {
            Instant::now() < deadline && memory.change(names, |names, max_bytes| names.poll(now, max_bytes))
        });
    }
}

/// Looks up the noted addresses of processes in their memory, until the deadline. `max_bytes` limits the memory of all names.
///
/// Processes with many names come last, so that one process does not use the time of all.
pub(crate) fn read_method_memory(
    proc: &ProcFs,
    mut awaited: Vec<(&Process, &mut JitNames)>,
    max_bytes: usize,
    deadline: Instant,
) {
    let mut shares = TenantShares::new(max_bytes);
    awaited.iter().for_each(|(_, names)| shares.spend(names.tenant(), names.memory_bytes()));
    let mut memory = JitMemory(shares);
    awaited.sort_by_key(|(_, names)| names.memory_bytes());
    for (process, names) in awaited {
        if Instant::now() >= deadline {
            break;
        }
        memory.change(names, |names, max_bytes| names.read_method_memory(proc, process, max_bytes));
    }
}

/// Waits for the reports that were requested from the runtimes.
pub(crate) fn receive_reports(all: &mut [&mut JitNames], deadline: Instant) {
    let mut memory = JitMemory::new(all, MAX_JIT_BYTES);
    for names in all {
        memory.change(names, |names, max_bytes| names.receive_report(deadline, max_bytes));
    }
}

/// The memory of the names of all processes.
struct JitMemory(TenantShares);

impl JitMemory {
    fn new(all: &[&mut JitNames], max_bytes: usize) -> Self {
        let mut shares = TenantShares::new(max_bytes);
        all.iter().for_each(|names| shares.spend(names.tenant(), names.memory_bytes()));
        Self(shares)
    }

    /// Calls `act` with the names of a process and the memory that they may take.
    fn change<T>(&mut self, names: &mut JitNames, act: impl FnOnce(&mut JitNames, usize) -> T) -> T {
        let tenant = names.tenant();
        self.0.refund(tenant, names.memory_bytes());
        let result = act(names, self.0.left(tenant));
        self.0.spend(tenant, names.memory_bytes());
        result
    }
}

impl JitNames {
    fn tenant(&self) -> Tenant {
        self.root.as_ref()?.id()
    }

    fn is_listening(&self) -> bool {
        self.runtime.as_ref().is_some_and(RuntimeNames::is_listening)
    }

    /// Waits for the report of the runtime. `max_bytes` limits the memory of this process's names.
    fn receive_report(&mut self, deadline: Instant, max_bytes: usize) {
        let max_method_bytes = max_bytes.saturating_sub(self.file_memory_bytes());
        if let Some(runtime) = &mut self.runtime {
            runtime.receive_report(deadline, max_method_bytes);
        }
    }
}

#[cfg(test)]
mod tests;
