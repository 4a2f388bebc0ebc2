//! What describes the frames of methods that were found in the memory of a process.

use std::ops::Range;

use profiler_addresses::RuntimeAddress;

/// What describes the frames of a function of JIT code of .NET: of a method or of one of its exception handlers. The code stays as
/// long as its process runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedFunctionFrames {
    /// The code.
    pub code: Range<RuntimeAddress>,
    /// Its `UNWIND_INFO` (Microsoft, "x64 exception handling"), which describes the prologue.
    pub unwind_info: Vec<u8>,
    /// The bytes of the code, which has the epilogues.
    pub instructions: Vec<u8>,
}

impl ManagedFunctionFrames {
    /// The memory that it takes, bytes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.unwind_info.capacity() + self.instructions.capacity()
    }
}

#[cfg(feature = "dotnet-memory")]
impl From<profiler_dotnet_runtime::FunctionFrames> for ManagedFunctionFrames {
    fn from(frames: profiler_dotnet_runtime::FunctionFrames) -> Self {
        Self { code: frames.code, unwind_info: frames.unwind_info, instructions: frames.instructions }
    }
}
