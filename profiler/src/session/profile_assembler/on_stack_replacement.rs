//! Leaves out the frames of code that .NET replaced while it ran (on-stack replacement, `docs/design/features/OsrDetailsAndDebugging.md`
//! of the runtime).
//!
//! The new code runs on top of the frame of the old code. Its own frame begins with the return address of the call in which the old
//! code asked for the replacement, so that the frame pointer leads to the old code first, as if that had called the new one. A call of
//! a method enters its first instruction, never code that continues it: a recursive method has such a pair at each of its levels.
//!
//! Events say which code continues a method. Memory does not, but there the call in front of the return address leads to the function
//! of the runtime that replaces code.

use profiler_addresses::MonotonicTime;
use profiler_processes::Process;
use profiler_sampler::{FrameFound, RawFrame};
use profiler_symbolize::{CodeKey, Symbolizer};

use super::ProfileAssembler;

impl ProfileAssembler {
    /// Whether a frame is that of code which the code of its callee's frame replaced. The callee is symbolized.
    pub(super) fn was_replaced(
        &self,
        symbolizer: &mut Symbolizer,
        process: &Process,
        (code, frame): (CodeKey, RawFrame),
        callee: CodeKey,
        time: MonotonicTime,
    ) -> bool {
        // An epilogue scan leads past the old code, to the caller of the method: that may be the same method.
        let is_by_frame_pointer = matches!(frame.found, FrameFound::ByFramePointer | FrameFound::ByGetStack);
        is_by_frame_pointer
            && matches!(code, CodeKey::Jit(..))
            && ((self.replacements.contains(&callee)
                && symbolizer.continues_method(callee, code, process, time))
                || symbolizer.continues_method_in_memory(callee, (code, frame.address), process, time))
    }
}
