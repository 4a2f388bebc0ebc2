//! Reads what describes the frames of a method: the `UNWIND_INFO` of its functions for their prologues, and their instructions,
//! in which epilogues are found.
//!
//! Source: Microsoft, "x64 exception handling", `UNWIND_INFO`.

use std::ops::Range;

use profiler_addresses::RuntimeAddress;

use crate::{
    code_header::{Function, MethodHeader},
    code_ranges::CodeRange,
    error::LookupError,
    memory::LimitedMemory,
};

/// The code of one method. The largest methods that compilers of C# write have some hundred kilobytes.
const MAX_METHOD_BYTES: u64 = 1 << 20;

/// The header of an `UNWIND_INFO`: version and flags, bytes of the prologue, slots, frame register.
const HEADER_BYTES: usize = 4;

/// What describes the frames of a function: of a method or of one of its exception handlers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionFrames {
    /// The addresses of its code.
    pub code: Range<RuntimeAddress>,
    /// Its `UNWIND_INFO`: header and slots.
    pub unwind_info: Vec<u8>,
    /// The bytes of its code.
    pub instructions: Vec<u8>,
}

/// Reads what describes the frames of a method.
///
/// # Errors
/// [`LookupError`] when the method is too large, or its unwind information is not that of the JIT.
pub(crate) fn read(
    memory: &LimitedMemory,
    range: &CodeRange,
    method: &MethodHeader,
) -> Result<Vec<FunctionFrames>, LookupError> {
    if method.end - method.start > MAX_METHOD_BYTES {
        return Err(LookupError::TooLarge("method"));
    }
    let read_function = |Function { code, unwind_info }| {
        let instructions = memory.bytes(code.start, (code.end - code.start) as usize)?;
        let unwind_info = read_unwind_info(memory, unwind_info)?;
        let code = RuntimeAddress(code.start)..RuntimeAddress(code.end);
        Ok(FunctionFrames { code, unwind_info, instructions })
    };
    method.functions(range).map(read_function).collect()
}

fn read_unwind_info(memory: &LimitedMemory, at: u64) -> Result<Vec<u8>, LookupError> {
    const VERSION: u8 = 1;
    const UNW_FLAG_CHAININFO: u8 = 4 << 3;
    const SLOT_BYTES: usize = 2;
    /// Most methods have no more.
    const FEW_SLOTS: usize = 6;
    let few = memory.bytes(at, HEADER_BYTES + SLOT_BYTES * FEW_SLOTS);
    let mut info = few.or_else(|_| memory.bytes(at, HEADER_BYTES))?;
    let &[version_and_flags, _prologue_bytes, slots, ..] = &info[..] else {
        return Err(LookupError::Malformed("unwind information"));
    };
    // The JIT chains none.
    if version_and_flags & 7 != VERSION || version_and_flags & UNW_FLAG_CHAININFO != 0 {
        return Err(LookupError::Malformed("unwind information"));
    }
    let length = HEADER_BYTES + SLOT_BYTES * usize::from(slots);
    if length > info.len() {
        info = memory.bytes(at, length)?;
    }
    info.truncate(length);
    Ok(info)
}

#[cfg(test)]
mod tests;
