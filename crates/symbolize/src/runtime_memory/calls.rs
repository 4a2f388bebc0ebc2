//! Finds the functions of a .NET runtime that managed code calls, by the call instructions in the memory of the process.
//!
//! A function that ends with a jump to another one has left the stack: the caller of the second function is then the code
//! that called the first one. The call instruction in front of the return address leads to the first one.

use profiler_addresses::RuntimeAddress;
use profiler_dotnet_symbols::calls::{Destination, call_destination, jump_destination};
use profiler_processes::Process;
use profiler_profile::SymbolSource;

use super::{Location, PRESTUB, RuntimeMemory, Search};
use crate::{CodeKey, Symbolizer, symbol::Symbolized};

/// Calls whose destination is read, for each process. A program that spends its time in reflection has 30.
const MAX_CALLS: usize = 2048;

/// Pointers and stubs between a call and a function. Runtimes have a pointer, a precode with its pointer, and a jump stub.
const MAX_STEPS: usize = 6;

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
        time_ns: u64,
    ) -> Option<CodeKey> {
        let (code, found) = self.named_called_function(process, caller, call_site, time_ns)?;
        let is_of_runtime =
            matches!(found.source, SymbolSource::RuntimeCallTable | SymbolSource::RuntimeHelper);
        let is_binder = |name: &str| BINDERS.iter().any(|binder| name.starts_with(binder));
        let is_known = is_of_runtime && !found.functions.iter().any(|function| is_binder(&function.name));
        is_known.then_some(code)
    }

    /// Whether a call of managed code requests the replacement of this code while it runs.
    pub(crate) fn calls_patchpoint(
        &mut self,
        process: &Process,
        caller: CodeKey,
        call_site: RuntimeAddress,
        time_ns: u64,
    ) -> bool {
        let found = self.named_called_function(process, caller, call_site, time_ns);
        let is_patchpoint = |name: &str| PATCHPOINTS.iter().any(|patchpoint| name.starts_with(patchpoint));
        found.is_some_and(|(_, found)| found.functions.iter().any(|function| is_patchpoint(&function.name)))
    }

    /// The function of a .NET runtime that managed code called, with its name.
    fn named_called_function(
        &mut self,
        process: &Process,
        caller: CodeKey,
        call_site: RuntimeAddress,
        time_ns: u64,
    ) -> Option<(CodeKey, Symbolized)> {
        if !cfg!(target_arch = "x86_64") || !self.is_managed(caller) {
            return None;
        }
        let memory = self.runtime_memory.entry(process.key).or_default();
        let mut search = Search { modules: &mut self.modules, proc: &self.proc, process, time_ns };
        let start = memory.called_function(&mut search, caller, call_site)?;
        let code = self.code_at(process, start, time_ns);
        let CodeKey::Runtime(_, module, address) = code else { return None };
        Some((code, self.look_up_in_runtime(process, module, address, time_ns).names.ok()?))
    }
}

impl RuntimeMemory {
    /// The start of the native function to which a call leads. Each call is read once.
    fn called_function(
        &mut self,
        search: &mut Search<'_>,
        caller: CodeKey,
        call_site: RuntimeAddress,
    ) -> Option<RuntimeAddress> {
        if let Some(known) = self.called_functions.get(&caller) {
            return *known;
        }
        if self.called_functions.len() >= MAX_CALLS || search.proc.has_capture() {
            return None;
        }
        let found = self.follow_call(search, call_site);
        self.called_functions.insert(caller, found);
        found
    }

    fn follow_call(&mut self, search: &mut Search<'_>, call_site: RuntimeAddress) -> Option<RuntimeAddress> {
        let code = search.read_call(call_site)?;
        let destination = call_destination(&code, RuntimeAddress(call_site.0.checked_add(1)?))?;
        follow(destination, |destination| match destination {
            Destination::Indirect(pointer) => {
                search.pointer_at(pointer).map(|content| Step::Next(Destination::Direct(content)))
            }
            Destination::Direct(address) => match search.locate(address)? {
                Location::Function(module, start) => {
                    search.modules.is_function_start(module, start).then_some(Step::End(address))
                }
                Location::JitMemory => self.follow_jump(search, address).map(Step::Next),
            },
        })
    }

    /// Where the stub at an address jumps to.
    fn follow_jump(&mut self, search: &Search<'_>, stub: RuntimeAddress) -> Option<Destination> {
        let mapping = search.process.find_mapping(stub, search.time_ns).ok()?;
        let (code, position) = self.code_at(search.proc, search.process, mapping, stub)?;
        jump_destination(code.get(position..)?, stub)
    }
}

/// What is at the destination of a call or a jump.
enum Step {
    /// A function.
    End(RuntimeAddress),
    /// A pointer or a stub, which leads to another destination.
    Next(Destination),
}

/// The function to which a destination leads. A process can write jumps in a circle into its memory.
fn follow(
    mut destination: Destination,
    mut step: impl FnMut(Destination) -> Option<Step>,
) -> Option<RuntimeAddress> {
    for _ in 0..MAX_STEPS {
        match step(destination)? {
            Step::End(function) => return Some(function),
            Step::Next(next) => destination = next,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const FUNCTION: RuntimeAddress = RuntimeAddress(0x9000);

    /// Follows a pointer at 1 to a stub at 2, and so on, to [`FUNCTION`] behind `stubs` stubs.
    fn follow_stubs(stubs: u64) -> Option<RuntimeAddress> {
        follow(Destination::Indirect(RuntimeAddress(1)), |destination| match destination {
            Destination::Indirect(pointer) => {
                Some(Step::Next(Destination::Direct(RuntimeAddress(pointer.0 + 1))))
            }
            Destination::Direct(address) if address.0 < 2 + stubs => {
                Some(Step::Next(Destination::Direct(RuntimeAddress(address.0 + 1))))
            }
            Destination::Direct(_) => Some(Step::End(FUNCTION)),
        })
    }

    #[test]
    fn a_call_leads_through_a_pointer_and_stubs_to_a_function() {
        for stubs in 0..=2 {
            assert_eq!(follow_stubs(stubs), Some(FUNCTION), "{stubs}");
        }
        assert_eq!(follow(Destination::Direct(FUNCTION), |_| None), None);
    }

    #[test]
    fn jumps_in_a_circle_lead_to_no_function() {
        let mut steps = 0;
        let found = follow(Destination::Direct(FUNCTION), |destination| {
            steps += 1;
            Some(Step::Next(destination))
        });
        assert_eq!((found, steps), (None, MAX_STEPS));
        assert_eq!(follow_stubs(MAX_STEPS as u64), None);
    }
}
