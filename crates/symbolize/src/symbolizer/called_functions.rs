//! Finds the functions of a .NET runtime that managed code calls, by the call instructions in the memory of the process.
//!
//! A function that ends with a jump to another one has left the stack: the caller of the second function is then the code
//! that called the first one. The call instruction in front of the return address leads to the first one.

use profiler_addresses::{MonotonicTime, RuntimeAddress};
use profiler_processes::Process;
use profiler_profile::SymbolSource;

use super::Symbolizer;
use crate::{CodeKey, runtime_memory::PRESTUB, symbol::Symbolized};

/// The names of functions that end with a jump to whichever function managed code called.
const BINDERS: [&str; 2] = [PRESTUB, "READYTORUN_HELPER_DelayLoad_"];

/// The functions with which code of a method requests that the rest of the method runs in other code (on-stack replacement): by the
/// names of helpers, and by those in symbol tables.
const PATCHPOINTS: [&str; 4] = [
    "CORINFO_HELP_PATCHPOINT",
    "CORINFO_HELP_PARTIAL_COMPILATION_PATCHPOINT",
    "JIT_Patchpoint",
    "JIT_PartialCompilationPatchpoint",
];

impl Symbolizer {
    /// The function of a .NET runtime that managed code called, if it has a name in the call tables or the helper cells.
    ///
    /// `call_site` is the address of the last byte of the call instruction ([`RuntimeAddress::call_site`]), and `caller` the
    /// code there. If other code of the runtime returns to this caller, the function has ended with a jump to that code.
    pub fn called_function(
        &mut self,
        process: &Process,
        caller: CodeKey,
        call_site: RuntimeAddress,
        time: MonotonicTime,
    ) -> Option<CodeKey> {
        let (code, found) = self.named_called_function(process, caller, call_site, time)?;
        let is_of_runtime =
            matches!(found.source, SymbolSource::RuntimeCallTable | SymbolSource::RuntimeHelper);
        let is_binder = |name: &str| BINDERS.iter().any(|binder| name.starts_with(binder));
        let is_known = is_of_runtime && !found.functions.iter().any(|function| is_binder(&function.name));
        is_known.then_some(code)
    }

    /// Whether a call of managed code requests the replacement of this code while it runs.
    pub(super) fn calls_patchpoint(
        &mut self,
        process: &Process,
        caller: CodeKey,
        call_site: RuntimeAddress,
        time: MonotonicTime,
    ) -> bool {
        let found = self.named_called_function(process, caller, call_site, time);
        let is_patchpoint = |name: &str| PATCHPOINTS.iter().any(|patchpoint| name.starts_with(patchpoint));
        found.is_some_and(|(_, found)| found.functions.iter().any(|function| is_patchpoint(&function.name)))
    }

    /// The function of a .NET runtime that managed code called, with its name.
    fn named_called_function(
        &mut self,
        process: &Process,
        caller: CodeKey,
        call_site: RuntimeAddress,
        time: MonotonicTime,
    ) -> Option<(CodeKey, Symbolized)> {
        if !cfg!(target_arch = "x86_64") || !self.is_managed(caller) {
            return None;
        }
        let (memory, mut search) = self.memory_of_runtime(process, time);
        let start = memory.called_function(&mut search, caller, call_site)?;
        let code = self.code_at(process, start, time);
        let CodeKey::Runtime(_, module, address) = code else { return None };
        Some((code, self.look_up_in_runtime(process, module, address, time).names.ok()?))
    }
}
