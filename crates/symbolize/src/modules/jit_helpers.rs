//! The helpers that JIT code calls, for each pair of a JIT compiler and a .NET runtime.

use std::sync::Arc;

use profiler_dotnet_symbols::jit_helpers::JitHelpers;

use super::Modules;
use crate::ModuleKey;

/// Pairs of a JIT compiler and a runtime whose helpers are kept.
const MAX_PAIRS: usize = 64;

impl Modules {
    /// The helpers in the file of a runtime, with their names in the file of a JIT compiler. In a single-file program, both
    /// are one file. The runtime has been symbolized before.
    ///
    /// Names of one JIT compiler are not used for processes with another one, which could be hostile.
    pub(crate) fn jit_helpers(&mut self, compiler: ModuleKey, runtime: ModuleKey) -> Arc<JitHelpers> {
        if let Some(known) = self.jit_helpers.get(&(compiler, runtime)) {
            return Arc::clone(known);
        }
        let names = self.read(compiler, |code| code.helper_names());
        let helpers = Arc::new(self.read(runtime, |code| code.jit_helpers(&names)));
        if self.jit_helpers.len() >= MAX_PAIRS {
            self.jit_helpers.clear();
        }
        self.jit_helpers.insert((compiler, runtime), Arc::clone(&helpers));
        helpers
    }
}
