//! Reads the header of a method's code, and checks that an address is within the method.
//!
//! In front of each method is a pointer to its header (`RealCodeHeader`), or a small number: the kind of a stub. The header has
//! the method, and a `RUNTIME_FUNCTION` of the Windows x64 ABI for the method and for each of its exception handlers. Only
//! they tell where code ends: the nibble map has starts alone.
//!
//! Source: dotnet/runtime, `vm/codeman.h` (`CodeHeader`); Microsoft, "x64 exception handling", `RUNTIME_FUNCTION` and
//! `UNWIND_INFO`.

use std::ops::Range;

use crate::{
    code_ranges::CodeRange, error::LookupError, layout::CodeLayout, memory::LimitedMemory, nibble_map,
};

/// Functions of one method: itself and its exception handlers.
const MAX_FUNCTIONS: u32 = 4_096;

/// The size of a `RUNTIME_FUNCTION`: begin, end and unwind information, each relative to the begin of the code range.
const FUNCTION_BYTES: usize = 12;

/// What is at an address of a code heap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CodeBlock {
    /// A stub, whose size is not known.
    Stub,
    /// The code of a method.
    Method(MethodHeader),
}

/// The code of a method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MethodHeader {
    /// The first address of the code.
    pub(crate) start: u64,
    /// The address behind the code of the last function.
    pub(crate) end: u64,
    /// The address of the `MethodDesc`.
    pub(crate) method: u64,
    /// The address of the header, and its functions: they change when the code is replaced.
    header: u64,
    functions: Vec<u8>,
}

/// A function of a method: the method itself or one of its exception handlers.
pub(crate) struct Function {
    /// The addresses of its code.
    pub(crate) code: Range<u64>,
    /// The address of its `UNWIND_INFO`.
    pub(crate) unwind_info: u64,
}

impl MethodHeader {
    /// The functions in ascending order, within a code range.
    pub(crate) fn functions(&self, range: &CodeRange) -> impl Iterator<Item = Function> {
        let functions = self.functions.as_chunks::<FUNCTION_BYTES>().0.iter();
        functions.map(|function| Function::at(range, function))
    }
}

impl Function {
    fn at(range: &CodeRange, function: &[u8; FUNCTION_BYTES]) -> Self {
        let address = |relative: u32| range.begin.saturating_add(relative.into());
        let [begin, end, unwind_info] = words(function);
        Self { code: address(begin)..address(end), unwind_info: address(unwind_info) }
    }
}

/// Finds the method or stub at an address of a code heap.
///
/// # Errors
/// [`LookupError::NoMethod`] when the address is in neither; other errors when the heap cannot be read.
pub(crate) fn find_code(
    memory: &LimitedMemory,
    layout: &CodeLayout,
    range: &CodeRange,
    heap: u64,
    address: u64,
) -> Result<CodeBlock, LookupError> {
    let fields = memory.fields(heap, &[layout.heap_map_base, layout.heap_header_map]);
    let (base, map) = (fields.u64(layout.heap_map_base)?, fields.u64(layout.heap_header_map)?);
    let distance = address.checked_sub(base).ok_or(LookupError::Malformed("code heap"))?;
    let start = nibble_map::find_start(layout.nibble_map, distance, |offset, into| {
        Ok(memory.read_into(map.wrapping_add(offset), into)?)
    })?;
    let start = base.checked_add(start).filter(|start| *start <= address && *start >= range.begin);
    let start = start.ok_or(LookupError::Malformed("map of methods"))?;
    match read_header(memory, layout, range, start)? {
        Some(header) => {
            let function = header.functions(range).find(|function| function.code.contains(&address));
            check_unwind_info(memory, function.ok_or(LookupError::NoMethod)?.unwind_info)?;
            Ok(CodeBlock::Method(header))
        }
        None => Ok(CodeBlock::Stub),
    }
}

/// Reads the header of the code that starts at an address; `None` for a stub.
///
/// # Errors
/// [`LookupError::Malformed`] when it is not that of a method; other errors when it cannot be read.
pub(crate) fn read_header(
    memory: &LimitedMemory,
    layout: &CodeLayout,
    range: &CodeRange,
    start: u64,
) -> Result<Option<MethodHeader>, LookupError> {
    let header = memory.u64(start.wrapping_sub(8))?;
    if header <= layout.last_stub_kind {
        return Ok(None);
    }
    if layout.runtime_function_bytes != FUNCTION_BYTES as u64 {
        return Err(LookupError::Malformed("table of functions"));
    }
    // Most methods have one function.
    let last_word = layout.header_unwind_infos.saturating_add(FUNCTION_BYTES as u64 - 8);
    let fields = memory.fields(header, &[layout.header_method, layout.header_unwind_count, last_word]);
    let (method, count) = (fields.u64(layout.header_method)?, fields.u32(layout.header_unwind_count)?);
    let functions = match count {
        0 => Vec::new(),
        1 => fields.array::<FUNCTION_BYTES>(layout.header_unwind_infos)?.to_vec(),
        2..=MAX_FUNCTIONS => {
            memory.bytes(header.wrapping_add(layout.header_unwind_infos), count as usize * FUNCTION_BYTES)?
        }
        _ => return Err(LookupError::TooLarge("table of functions")),
    };
    let mut end = start;
    for function in functions.as_chunks::<FUNCTION_BYTES>().0 {
        let Function { code, .. } = Function::at(range, function);
        // The functions of a method follow each other, the first one from the start of its code on.
        let is_in_order = if end == start { code.start == start } else { code.start >= end };
        if !is_in_order || code.is_empty() || code.end > range.end {
            return Err(LookupError::Malformed("table of functions"));
        }
        end = code.end;
    }
    Ok(Some(MethodHeader { start, end, method, header, functions }))
}

/// Checks that a function has unwind information: code that is freed and reused does not.
fn check_unwind_info(memory: &LimitedMemory, at: u64) -> Result<(), LookupError> {
    const VERSION: u8 = 0x7;
    match memory.u8(at)? & VERSION {
        1 | 2 => Ok(()),
        _ => Err(LookupError::Malformed("unwind information")),
    }
}

fn words(function: &[u8; FUNCTION_BYTES]) -> [u32; 3] {
    let (words, _) = function.as_chunks::<4>();
    [words[0], words[1], words[2]].map(u32::from_le_bytes)
}
