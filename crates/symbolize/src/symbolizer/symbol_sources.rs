//! Finds the runtime of a process and the symbol sources of its code, without a sample.

use std::{collections::HashSet, path::PathBuf, sync::Arc};

use profiler_processes::{Backing, Process, ProcessTable};

use super::Symbolizer;
use crate::{
    CodeKey, ModuleKey, RuntimeRequests,
    jit::{JitBudgets, JitNames, language_of, runtime_process},
    modules::ModuleFormat,
    symbol_sources::{NativeFile, ProcessSymbolSources, check_socket, detect_runtime},
};

impl Symbolizer {
    /// Detects the runtime of a process and the symbol sources of all its executable mappings.
    pub fn symbol_sources(&mut self, processes: &ProcessTable, process: &Process) -> ProcessSymbolSources {
        let mut sources = ProcessSymbolSources::default();
        let mut seen = HashSet::new();
        for mapping in process.mappings() {
            match &mapping.backing {
                Backing::Jit | Backing::DotnetJit => sources.jit_mappings += 1,
                Backing::File { path, .. } => {
                    match self.modules.code_at(process, mapping, mapping.middle()) {
                        CodeKey::Module(key, _) if seen.insert(key) => {
                            self.add_module(key, process, &mut sources);
                        }
                        CodeKey::Unopened(.., reason) => sources.unopened.push((Arc::clone(path), reason)),
                        _ => {}
                    }
                }
                Backing::Vdso | Backing::Special(_) => {}
            }
        }
        sources.socket = runtime_process(process, RuntimeRequests::NOTHING).and_then(check_socket);
        sources.memory_lack = self.lack_of_method_memory(process);
        sources.has_method_memory = sources.memory_lack.is_none();
        sources.jit_file = self.jit_file(process).or_else(|| self.inherited_jit_file(processes, process));
        sources.language = language_of(process);
        sources
    }

    fn add_module(&mut self, key: ModuleKey, process: &Process, sources: &mut ProcessSymbolSources) {
        let debug_files = self.debug_files(process);
        let Some((path, format)) = self.modules.path_and_format(key) else { return };
        match format {
            ModuleFormat::Native(module, bundled_assemblies) => {
                let runtime = detect_runtime(module, &path, bundled_assemblies);
                let source = module.best_source(&debug_files);
                sources.native.push(NativeFile { path, source, is_runtime: runtime.is_some() });
                sources.runtime = sources.runtime.take().or(runtime);
            }
            ModuleFormat::ReadyToRun { is_composite } => {
                sources.images.count += 1;
                sources.images.composite += usize::from(is_composite);
            }
        }
    }

    /// The path of the perf map or jitdump of a process.
    fn jit_file(&self, process: &Process) -> Option<PathBuf> {
        let budgets = JitBudgets { events: self.event_budget.clone(), files: Arc::default() };
        JitNames::new(process, &self.proc, budgets, RuntimeRequests::NOTHING).find_file(process)
    }
}
