//! The functions of JIT code that .NET processes have, from which the unwind tables of their mappings are compiled.
//!
//! They come in parts, as methods are sampled, and stay until their process ends.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
};

use profiler_addresses::RuntimeAddress;
use profiler_processes::ProcessKey;
use profiler_symbolize::ManagedFunctionFrames;
use profiler_unwind_tables::ManagedFunction;

use super::tenant::{SharedCapacity, Tenant};

/// The memory of all functions. A server with 20,000 methods takes 6 MB.
const MAX_BYTES: usize = 32 << 20;

/// The bytes of the descriptions of functions whose process is not known yet. Beyond it, all are forgotten.
const MAX_KEPT_BYTES: usize = 4 << 20;

/// The functions of all processes.
#[derive(Debug)]
pub(super) struct ManagedFunctions {
    by_process: HashMap<ProcessKey, FunctionsOfProcess>,
    /// Those of processes that are not known yet.
    kept: HashMap<ProcessKey, Vec<ManagedFunctionFrames>>,
    byte_capacity: SharedCapacity,
}

/// The functions of one process.
#[derive(Debug)]
struct FunctionsOfProcess {
    tenant: Tenant,
    bytes: usize,
    functions: FunctionsByStart,
}

/// Functions by the start of their code.
#[derive(Debug, Default)]
pub(super) struct FunctionsByStart(BTreeMap<u64, ManagedFunction>);

impl FunctionsByStart {
    /// The functions that begin in a range of memory, in ascending order.
    pub(super) fn starting_in(
        &self,
        memory: &Range<RuntimeAddress>,
    ) -> impl Iterator<Item = &ManagedFunction> + use<'_> {
        let starts = memory.start.0..memory.end.0.max(memory.start.0);
        self.0.range(starts).map(|(_, function)| function)
    }
}

impl Default for ManagedFunctions {
    fn default() -> Self {
        Self {
            by_process: HashMap::new(),
            kept: HashMap::new(),
            byte_capacity: SharedCapacity::new(MAX_BYTES),
        }
    }
}

impl ManagedFunctions {
    /// Compiles the functions of a process, and adds them. Those whose description is malformed, and those for which there is no
    /// memory, are left out: they are unwound by frame pointer or epilogue scan.
    pub(super) fn add(
        &mut self,
        process: ProcessKey,
        tenant: Tenant,
        functions: impl IntoIterator<Item = ManagedFunctionFrames>,
    ) {
        let known = self.by_process.entry(process).or_insert_with(|| FunctionsOfProcess {
            tenant,
            bytes: 0,
            functions: FunctionsByStart::default(),
        });
        let (mut malformed, mut beyond_capacity) = (0, 0);
        for ManagedFunctionFrames { code, unwind_info, instructions } in functions {
            let start = code.start.0;
            let Ok(function) = ManagedFunction::compile(code, unwind_info, instructions) else {
                malformed += 1;
                continue;
            };
            let bytes = function.memory_bytes();
            if !self.byte_capacity.take(known.tenant, bytes) {
                beyond_capacity += 1;
                continue;
            }
            known.bytes += bytes;
            if let Some(replaced) = known.functions.0.insert(start, function) {
                known.bytes -= replaced.memory_bytes();
                self.byte_capacity.give_back(known.tenant, replaced.memory_bytes());
            }
        }
        if malformed + beyond_capacity > 0 {
            log::debug!(
                "functions of JIT code without rows: {malformed} malformed, {beyond_capacity} for which there is no memory"
            );
        }
    }

    /// Keeps the functions of a process until it is known.
    pub(super) fn keep(&mut self, process: ProcessKey, functions: Vec<ManagedFunctionFrames>) {
        let kept = self.kept.values().flatten().map(ManagedFunctionFrames::memory_bytes).sum::<usize>();
        if kept > MAX_KEPT_BYTES {
            self.kept.clear();
        }
        self.kept.entry(process).or_default().extend(functions);
    }

    /// Adds the functions that were kept for a process, which is known now.
    pub(super) fn add_kept(&mut self, process: ProcessKey, tenant: Tenant) {
        if let Some(functions) = self.kept.remove(&process) {
            self.add(process, tenant, functions);
        }
    }

    /// The functions of a process.
    pub(super) fn of_process(&self, process: ProcessKey) -> Option<&FunctionsByStart> {
        self.by_process.get(&process).map(|known| &known.functions)
    }

    /// Forgets a process that has ended.
    pub(super) fn remove(&mut self, process: ProcessKey) {
        if let Some(FunctionsOfProcess { tenant, bytes, .. }) = self.by_process.remove(&process) {
            self.byte_capacity.give_back(tenant, bytes);
        }
    }
}
