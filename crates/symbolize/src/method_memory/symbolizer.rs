//! The part of [`Symbolizer`] that reads the methods of .NET runtimes from the memory of their processes.

use std::time::Instant;

use profiler_addresses::{MonotonicTime, RuntimeAddress};
use profiler_processes::monotonic_time;
use profiler_processes::{ProcFs, Process, ProcessTable};
use profiler_profile::EventSessionCause;

use super::{MAX_UNVERIFIED, MethodMemory};
use crate::{
    Symbolizer,
    jit::{JitNames, tenant_limits},
    modules::Modules,
};

impl Symbolizer {
    /// Why the methods of a process cannot be read from its memory; `None` if they can.
    pub(crate) fn lack_of_method_memory(&mut self, process: &Process) -> Option<EventSessionCause> {
        let mut memory = MethodMemory::new(process.pid, false);
        memory.find_runtime(&mut self.modules, process);
        if memory.reader.is_usable() {
            memory.read(&self.proc, process, usize::MAX);
        }
        // What else a first reading finds concerns some methods.
        let is_of_all = |lack: &EventSessionCause| *lack == EventSessionCause::MemoryNotReadable;
        let is_usable = memory.reader.is_usable();
        memory.lack().filter(is_of_all).or((!is_usable).then_some(EventSessionCause::NotDescribed))
    }

    /// Looks up the noted addresses of the processes whose memory is read, until the deadline.
    pub(crate) fn read_method_memory(
        &mut self,
        processes: &ProcessTable,
        max_bytes: usize,
        deadline: Instant,
    ) {
        let verified_before = monotonic_time().saturating_sub(MAX_UNVERIFIED);
        self.read_noted(processes, max_bytes, deadline, verified_before);
    }

    /// Looks up all noted addresses, and again what can be freed, before a profile is taken.
    pub(crate) fn read_all_method_memory(
        &mut self,
        processes: &ProcessTable,
        max_bytes: usize,
        deadline: Instant,
    ) {
        let now = monotonic_time();
        loop {
            self.read_noted(processes, max_bytes, deadline, now);
            let has_noted = |names: &JitNames| {
                names.reads_method_memory()
                    && names.method_memory.as_ref().is_some_and(MethodMemory::has_noted)
            };
            if Instant::now() >= deadline || !self.jit.values().any(has_noted) {
                return;
            }
        }
    }

    /// Looks up the noted addresses, and what can be freed and was not looked up since a time.
    fn read_noted(
        &mut self,
        processes: &ProcessTable,
        max_bytes: usize,
        deadline: Instant,
        verified_before: MonotonicTime,
    ) {
        // The methods of a capture are those that its session found.
        if !self.proc.is_live() {
            return;
        }
        let mut awaited: Vec<(&Process, &mut JitNames)> = Vec::new();
        for (key, names) in &mut self.jit {
            let reads_memory = names.reads_method_memory();
            let Some(memory) = &mut names.method_memory else { continue };
            if !reads_memory {
                memory.discard_noted();
                continue;
            }
            memory.note_found_before(verified_before);
            let Some(process) = processes.get(*key).filter(|_| memory.has_noted()) else { continue };
            memory.find_runtime(&mut self.modules, process);
            if memory.reader.is_usable() {
                awaited.push((process, names));
            } else {
                memory.discard_noted();
                memory.set_lack(EventSessionCause::NotDescribed);
            }
        }
        tenant_limits::read_method_memory(&self.proc, awaited, max_bytes, deadline);
        self.check_unlisted_code(processes);
    }

    /// Checks whether code that the runtimes do not list is a stub. Else it may have been that of a method.
    fn check_unlisted_code(&mut self, processes: &ProcessTable) {
        let unlisted: Vec<_> = self
            .jit
            .iter_mut()
            .filter_map(|(key, names)| {
                Some((*key, std::mem::take(&mut names.method_memory.as_mut()?.unlisted)))
            })
            .filter(|(_, addresses)| !addresses.is_empty())
            .collect();
        let now = monotonic_time();
        for (key, addresses) in unlisted {
            let Some(process) = processes.get(key) else { continue };
            let is_unknown = |address: u64| !self.is_known_stub(process, RuntimeAddress(address), now);
            if addresses.into_iter().any(is_unknown)
                && let Some(memory) = self.jit.get_mut(&key).and_then(|names| names.method_memory.as_mut())
            {
                memory.set_lack(EventSessionCause::UnknownCode);
            }
        }
    }
}

impl MethodMemory {
    /// Finds the runtime in the files of its process, once, and again when the mappings changed.
    pub(super) fn find_runtime(&mut self, modules: &mut Modules, process: &Process) {
        if !self.reader.is_unknown() || !self.attempts.begin(process.mapping_generation(MonotonicTime::MAX)) {
            return;
        }
        self.reader.find(modules, process);
        if !self.reader.is_unknown() {
            self.attempts.end();
        }
    }
}

impl JitNames {
    /// Looks up the noted addresses, until the names of the process take `max_bytes` of memory.
    pub(crate) fn read_method_memory(&mut self, proc: &ProcFs, process: &Process, max_bytes: usize) {
        let others = self.memory_bytes();
        if let Some(memory) = &mut self.method_memory {
            let max_bytes = max_bytes.saturating_sub(others.saturating_sub(memory.memory_bytes()));
            memory.read(proc, process, max_bytes);
        }
    }
}
