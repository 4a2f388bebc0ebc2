//! Names the method that the JIT of a .NET runtime compiles.

use profiler_addresses::MonotonicTime;
use profiler_processes::{Process, Tid, thread_in_namespace};

use super::Symbolizer;
use crate::CodeKey;

impl Symbolizer {
    /// Whether the code belongs to the JIT compiler of a .NET runtime, and compiled methods are requested. The method that
    /// it compiles may arrive until the end of the interval.
    pub fn awaits_compiled_method(&mut self, code: CodeKey, process: &Process) -> bool {
        let is_compiler = self.is_compiler(code);
        if is_compiler {
            // The listener of the runtime starts.
            self.jit_names(process);
        }
        is_compiler
    }

    /// The index of the frame with which the JIT compiler of a .NET runtime begins to compile a method, in a user stack, leaf
    /// first: the outermost frame of the compiler that is called by the innermost managed method. The compiler and the
    /// runtime call each other. `None` also where compiled methods are not requested.
    pub fn compiler_entry(&mut self, stack: impl IntoIterator<Item = CodeKey>) -> Option<usize> {
        let mut entry = None;
        for (index, code) in stack.into_iter().enumerate() {
            if self.is_compiler(code) {
                entry = Some(index);
            } else if entry.is_some() && self.is_managed(code) {
                break;
            }
        }
        entry
    }

    /// The method that the JIT compiled on a thread of a process at a time, if compiled methods are
    /// requested.
    pub fn compiled_method(&mut self, process: &Process, tid: Tid, time: MonotonicTime) -> Option<String> {
        if !self.runtime_requests.compilations {
            return None;
        }
        let thread = thread_in_namespace(&self.proc, process, tid)?;
        let name = self.jit.get(&process.key)?.compiled_method(thread.into(), time)?;
        Some(self.style.apply(&name, None))
    }

    pub(super) fn is_compiler(&mut self, code: CodeKey) -> bool {
        let CodeKey::Module(module, _) = code else { return false };
        self.runtime_requests.compilations && self.modules.is_jit_compiler(module)
    }

    /// Whether it is JIT or precompiled code.
    pub(super) fn is_managed(&self, code: CodeKey) -> bool {
        match code {
            CodeKey::Jit(..) => true,
            CodeKey::Module(module, _) => self.modules.is_precompiled(module),
            _ => false,
        }
    }
}
