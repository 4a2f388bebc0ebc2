//! Finds the helpers that JIT code calls: by the files of the JIT compiler and of the runtime, and by pointers in the memory of
//! the process.

use std::sync::Arc;

use profiler_addresses::RuntimeAddress;

use super::{Location, RuntimeMemory, Search};
use crate::ModuleKey;

/// The helper whose code the runtime copies into memory without a file.
const WRITE_BARRIER: &str = "CORINFO_HELP_ASSIGN_REF";

impl RuntimeMemory {
    /// Searches the helpers of a runtime once, and again when the mappings changed, if there were none.
    pub(super) fn find_jit_helpers(&mut self, search: &mut Search<'_>, runtime: ModuleKey) {
        let generation = search.process.mapping_generation(search.time);
        if search.proc.has_capture() || !self.jit_attempts.begin(generation) {
            return;
        }
        let begin = super::thread_cpu_time();
        let compiler = search.jit_compiler().unwrap_or(runtime);
        self.jit_helpers = search.modules.jit_helpers(compiler, runtime);
        if !self.jit_helpers.functions.is_empty() {
            self.jit_attempts.end();
            self.jit_helpers_base = search.load_address(runtime);
            for function in &self.jit_helpers.functions {
                let name = || function.name.clone().into();
                self.functions.entry((runtime, function.address)).or_insert_with(name);
            }
            self.add_helper_pointers(search);
        }
        self.log_cost("jit-helpers", search, begin);
    }

    /// Adds the helpers to which the pointers in memory lead by now.
    pub(super) fn add_helper_pointers(&mut self, search: &mut Search<'_>) {
        let Some(base) = self.jit_helpers_base else { return };
        let helpers = Arc::clone(&self.jit_helpers);
        let address = |in_file: u64| RuntimeAddress(base.wrapping_add(in_file));
        let cells: Vec<_> =
            helpers.pointers.iter().map(|pointer| (address(pointer.address.0), &*pointer.name)).collect();
        for (name, target) in search.contents(&cells) {
            match search.locate(target) {
                Some(Location::Function(module, start)) => {
                    self.functions.entry((module, start)).or_insert_with(|| name.to_owned().into());
                }
                Some(Location::JitMemory) if name == WRITE_BARRIER => {
                    self.write_barrier.get_or_insert_with(|| (target, name.to_owned().into()));
                }
                _ => {}
            }
        }
    }
}
