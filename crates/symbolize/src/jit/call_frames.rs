//! The call frame information of JIT code, and which code is newer than it.

use std::ops::Range;

use profiler_addresses::{MonotonicTime, RuntimeAddress};
use profiler_processes::{Process, ProcessKey};

use super::JitNames;
use crate::{Symbolizer, jitdump::JitCallFrames};

impl Symbolizer {
    /// The call frame information of the JIT code of processes, where it has changed since the last call: that of all
    /// functions of a process.
    pub fn take_jit_call_frames(&mut self) -> Vec<(ProcessKey, JitCallFrames)> {
        let changed =
            |(key, names): (&ProcessKey, &mut JitNames)| Some((*key, names.take_changed_call_frames()?));
        self.jit.iter_mut().filter_map(changed).collect()
    }

    /// Whether code in a jitdump of the process was replaced by other code after the start of an interval, and until
    /// its end.
    pub fn was_jit_code_replaced(&self, process: &Process, during: Range<MonotonicTime>) -> bool {
        self.jit.get(&process.key).is_some_and(|names| names.was_code_replaced(during))
    }

    /// As [`was_jit_code_replaced`](Self::was_jit_code_replaced), for the code at an address.
    pub fn was_jit_code_replaced_at(
        &self,
        process: &Process,
        address: RuntimeAddress,
        during: Range<MonotonicTime>,
    ) -> bool {
        self.jit.get(&process.key).is_some_and(|names| names.was_code_replaced_at(address, during))
    }
}

impl JitNames {
    fn take_changed_call_frames(&mut self) -> Option<JitCallFrames> {
        // A process has one jitdump; the others are those of other directories.
        self.jit_dumps.iter_mut().find_map(|dump| dump.names.take_changed_call_frames())
    }

    fn was_code_replaced(&self, during: Range<MonotonicTime>) -> bool {
        let mut dumps = self.jit_dumps.iter().map(|dump| &dump.names);
        dumps.any(|dump| dump.epoch(during.start) != dump.epoch(during.end))
    }

    fn was_code_replaced_at(&self, address: RuntimeAddress, during: Range<MonotonicTime>) -> bool {
        let mut dumps = self.jit_dumps.iter().map(|dump| &dump.names);
        dumps.any(|dump| dump.was_replaced_at(address.0, during.clone()))
    }
}
