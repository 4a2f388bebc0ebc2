//! Follows the call instructions of managed code in the memory of the process to functions of its .NET runtime.

use profiler_addresses::RuntimeAddress;
use profiler_dotnet_symbols::calls::{Destination, call_destination, jump_destination};

use super::{Location, RuntimeMemory, Search};
use crate::CodeKey;

/// Calls whose destination is read, for each process. A program that spends its time in reflection has 30.
const MAX_CALLS: usize = 2048;

/// Pointers and stubs between a call and a function. Runtimes have a pointer, a precode with its pointer, and a jump stub.
const MAX_STEPS: usize = 6;

impl RuntimeMemory {
    /// The start of the native function to which a call leads. Each call is read once.
    pub(crate) fn called_function(
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
        let mapping = search.process.find_mapping(stub, search.time).ok()?;
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
