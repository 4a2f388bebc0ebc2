//! Finds the description of a .NET runtime among the files of its process.

use profiler_dotnet_runtime::{RuntimeSymbols, find_symbols};
use profiler_processes::{Backing, Mapping, Process};

use super::Modules;
use crate::{CodeKey, module_code::ModuleCode};

/// The runtime where it is no part of a single-file program.
const RUNTIME_LIBRARY: &str = "libcoreclr.so";

/// Files that are opened in the search for the runtime.
const MAX_FILES: usize = 64;

impl Modules {
    /// Where the .NET runtime of a process describes its data structures. `None` is a process without one, or with one before
    /// .NET 9.
    pub(crate) fn runtime_symbols(&mut self, process: &Process) -> Option<RuntimeSymbols> {
        let files = process.mappings().filter_map(|mapping| Some((mapping, path_of(mapping)?)));
        let (libraries, others): (Vec<_>, Vec<_>) =
            files.partition(|(_, path)| path.rsplit('/').next() == Some(RUNTIME_LIBRARY));
        for (mapping, _) in libraries.into_iter().chain(others).take(MAX_FILES) {
            let CodeKey::Module(key, _) = self.code_at(process, mapping, mapping.middle()) else { continue };
            if !self.is_runtime(key) {
                continue;
            }
            let of_file = process.mappings().filter(|other| other.backing == mapping.backing);
            let mappings = of_file.map(|of_file| (of_file.file_mapping(), of_file.end.0 - of_file.start.0));
            return self.read(key, |code| match code {
                ModuleCode::Native(module) => find_symbols(module.elf(), mappings).ok().flatten(),
                ModuleCode::ReadyToRun(_) => None,
            });
        }
        None
    }
}

fn path_of(mapping: &Mapping) -> Option<&str> {
    match &mapping.backing {
        Backing::File { path, .. } => Some(path),
        _ => None,
    }
}
