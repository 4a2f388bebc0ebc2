//! Adds frames of functions that have left the stack, because they ended with a jump to another function.

use profiler_addresses::MonotonicTime;
use profiler_processes::Process;
use profiler_profile::{FrameId, Symbolization};
use profiler_sampler::{FrameFound, RawFrame};
use profiler_symbolize::{CodeKey, Symbolizer};

use super::ProfileAssembler;

/// Code of a user stack, and the code that called it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Callee {
    pub(super) code: CodeKey,
    pub(super) caller: (CodeKey, RawFrame),
}

impl ProfileAssembler {
    /// The frame of the function that the caller called, if this function of a .NET runtime ended with a jump to code of the
    /// runtime that has no symbol.
    pub(super) fn jumping_function(
        &mut self,
        symbolizer: &mut Symbolizer,
        process: &Process,
        Callee { code, caller: (caller, call) }: Callee,
        time: MonotonicTime,
    ) -> Option<FrameId> {
        let is_call = !matches!(call.found, FrameFound::Sampled | FrameFound::Interrupted);
        if !is_call || !self.is_unsymbolized_runtime_code(code) {
            return None;
        }
        let function = symbolizer.called_function(process, caller, call.address, time)?;
        self.symbolized_frames(symbolizer, process, function, call.address, time).last().copied()
    }

    /// Whether code whose frames are known belongs to a .NET runtime and has no symbol.
    fn is_unsymbolized_runtime_code(&self, code: CodeKey) -> bool {
        let is_unsymbolized = |frame: &FrameId| {
            matches!(self.builder.get_frame(*frame).symbolization, Symbolization::Address(_))
        };
        matches!(code, CodeKey::Runtime(..))
            && self.frames.get(&code).is_some_and(|frames| frames.iter().all(is_unsymbolized))
    }
}
