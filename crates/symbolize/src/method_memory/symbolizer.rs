//! The part of [`Symbolizer`] that reads the methods of .NET runtimes from the memory of their processes.

use std::time::Instant;

use profiler_processes::{ProcFs, Process, ProcessTable};

use super::MethodMemory;
use crate::{
    Symbolizer,
    jit::{JitNames, tenant_limits},
    modules::Modules,
};

impl Symbolizer {
    /// Whether the methods of a process can be read from its memory.
    pub(crate) fn has_method_memory(&mut self, process: &Process) -> bool {
        let mut memory = MethodMemory::default();
        memory.find_runtime(&mut self.modules, process);
        memory.reader.is_usable() && {
            memory.read(&self.proc, process, usize::MAX);
            memory.reader.is_usable()
        }
    }

    /// Looks up the noted addresses of the processes whose runtimes report no methods, until the deadline.
    pub(crate) fn read_method_memory(
        &mut self,
        processes: &ProcessTable,
        max_bytes: usize,
        deadline: Instant,
    ) {
        let mut awaited: Vec<(&Process, &mut JitNames)> = Vec::new();
        for (key, names) in &mut self.jit {
            let needs_memory = names.needs_method_memory();
            let Some(memory) = &mut names.method_memory else { continue };
            if !needs_memory {
                memory.discard_noted();
                continue;
            }
            let Some(process) = processes.get(*key).filter(|_| !memory.noted.is_empty()) else { continue };
            memory.find_runtime(&mut self.modules, process);
            if memory.reader.is_usable() {
                awaited.push((process, names));
            } else {
                memory.discard_noted();
            }
        }
        tenant_limits::read_method_memory(&self.proc, awaited, max_bytes, deadline);
    }
}

impl MethodMemory {
    /// Finds the runtime in the files of its process, once, and again when the mappings changed.
    pub(super) fn find_runtime(&mut self, modules: &mut Modules, process: &Process) {
        if !self.reader.is_unknown() || !self.attempts.begin(process.mapping_generation(u64::MAX)) {
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
