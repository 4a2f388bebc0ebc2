//! Names native functions and stubs of a .NET runtime by the memory of the process in which it runs.

use profiler_addresses::{ElfAddress, MonotonicTime, RuntimeAddress};
use profiler_processes::Process;
use profiler_profile::Reason;

use super::Symbolizer;
use crate::{
    ModuleKey,
    runtime_memory::{RuntimeMemory, Search},
    symbol::Symbolized,
};

impl Symbolizer {
    /// The helper or prestub of a runtime that starts at an address of a module, in this process.
    pub(super) fn runtime_helper(
        &mut self,
        process: &Process,
        function: (ModuleKey, ElfAddress),
        time: MonotonicTime,
    ) -> Option<Symbolized> {
        let (memory, mut search) = self.memory_of_runtime(process, time);
        memory.helper(&mut search, function)
    }

    /// The name of a stub, in place of the reason for which it belongs to no method.
    pub(super) fn symbolize_stub(
        &mut self,
        process: &Process,
        address: RuntimeAddress,
        time: MonotonicTime,
    ) -> Result<Symbolized, Reason> {
        let (memory, mut search) = self.memory_of_runtime(process, time);
        memory.symbolize_stub(&mut search, address)
    }

    /// Whether code is a stub of a known kind, or the write barrier.
    pub(crate) fn is_known_stub(
        &mut self,
        process: &Process,
        address: RuntimeAddress,
        time: MonotonicTime,
    ) -> bool {
        let (memory, mut search) = self.memory_of_runtime(process, time);
        memory.is_known_stub(&mut search, address)
    }

    /// What was read of the memory of a process, and a search in it.
    pub(super) fn memory_of_runtime<'a>(
        &'a mut self,
        process: &'a Process,
        time: MonotonicTime,
    ) -> (&'a mut RuntimeMemory, Search<'a>) {
        let memory = self.runtime_memory.entry(process.key).or_default();
        (memory, Search { modules: &mut self.modules, proc: &self.proc, process, time })
    }
}
