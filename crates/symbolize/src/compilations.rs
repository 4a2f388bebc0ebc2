//! The part of [`Symbolizer`] that names the method which the JIT of a .NET runtime compiles.

use profiler_processes::{ProcFs, Process};

use crate::{CodeKey, Symbolizer};

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

    /// The method that the JIT compiled on a thread of a process at a time (`CLOCK_MONOTONIC`), if compiled methods are
    /// requested.
    pub fn compiled_method(&mut self, process: &Process, tid: u32, time_ns: u64) -> Option<String> {
        if !self.runtime_requests.compilations {
            return None;
        }
        let thread = thread_in_namespace(&self.proc, process, tid)?;
        let name = self.jit.get(&process.key)?.compiled_method(thread.into(), time_ns)?;
        Some(self.style.apply(&name, None))
    }

    pub(crate) fn is_compiler(&mut self, code: CodeKey) -> bool {
        let CodeKey::Module(module, _) = code else { return false };
        self.runtime_requests.compilations && self.modules.is_jit_compiler(module)
    }

    /// Whether it is JIT or precompiled code.
    pub(crate) fn is_managed(&self, code: CodeKey) -> bool {
        match code {
            CodeKey::Jit(..) => true,
            CodeKey::Module(module, _) => self.modules.is_precompiled(module),
            _ => false,
        }
    }
}

/// The id of a thread in the innermost pid namespace of its process. `None` is a thread of a container that has ended.
fn thread_in_namespace(proc: &ProcFs, process: &Process, tid: u32) -> Option<u32> {
    let status = &process.identity.as_ref()?.status;
    if status.innermost_pid == process.pid {
        return Some(tid);
    }
    let text = proc.read(process.pid, &format!("task/{tid}/status")).ok()?;
    innermost_tid(&String::from_utf8_lossy(&text))
}

/// The last number of `NSpid` (proc_pid_status(5)).
pub(crate) fn innermost_tid(status: &str) -> Option<u32> {
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    ids.split_ascii_whitespace().next_back()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_id_of_a_thread_is_the_last_one() {
        assert_eq!(innermost_tid("Name:\tx\nPid:\t9\nNSpid:\t4242\t17\t3\n"), Some(3));
        assert_eq!(innermost_tid("NSpid:\t4242\n"), Some(4242));
        for text in ["", "NSpid:\n", "NSpid:\tx\n"] {
            assert_eq!(innermost_tid(text), None, "{text}");
        }
    }
}
