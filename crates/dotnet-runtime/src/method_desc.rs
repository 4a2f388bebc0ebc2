//! Reads the description of a method (`MethodDesc`): its kind, its row in the metadata, its type, and what a dynamic method has
//! in place of metadata.
//!
//! Source: dotnet/runtime, `docs/design/datacontracts/RuntimeTypeSystem.md`, "MethodDesc"; `vm/method.hpp`.

use crate::{error::LookupError, layout::MethodLayout, memory::LimitedMemory};

/// The largest signature of a dynamic method. A method with as many parameters as compilers allow has a smaller one.
const MAX_SIGNATURE_BYTES: u32 = 64 << 10;

/// The longest name of a dynamic method, which can be any text.
const MAX_NAME_BYTES: usize = 4 << 10;

/// `mdfClassification` and its values (`MethodClassification`).
const CLASSIFICATION: u16 = 0x7;
const ARRAY: u16 = 4;
const DYNAMIC: u16 = 7;

/// A method. Two readings of one method are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MethodDesc {
    /// The address of the type that declares it.
    pub(crate) method_table: u64,
    pub(crate) definition: Definition,
}

/// Where a method has its name and its signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Definition {
    /// In a row of the metadata of its module.
    Metadata(u32),
    /// In memory: a `DynamicMethod`, or a stub of the runtime in IL.
    Dynamic { name: String, signature: Vec<u8>, is_lightweight: bool },
}

impl MethodDesc {
    pub(crate) fn read(
        memory: &LimitedMemory,
        layout: &MethodLayout,
        address: u64,
    ) -> Result<Self, LookupError> {
        const ROW_BITS: u32 = 24;
        let fields = memory.fields(address, &[layout.flags, layout.chunk_index, layout.token_remainder]);
        let before = u64::from(fields.u8(layout.chunk_index)?).saturating_mul(layout.alignment);
        let chunk = address.wrapping_sub(layout.chunk_bytes).wrapping_sub(before);
        let chunk = memory.fields(chunk, &[layout.chunk_method_table, layout.chunk_token_range]);
        let method_table = chunk.u64(layout.chunk_method_table)?;
        let definition = match fields.u16(layout.flags)? & CLASSIFICATION {
            DYNAMIC => read_dynamic(memory, layout, address)?,
            ARRAY => return Err(LookupError::Unsupported("type of arrays")),
            _ => {
                let bits = layout.token_remainder_bits;
                let range = u32::from(chunk.u16(layout.chunk_token_range)?) & ((1 << (ROW_BITS - bits)) - 1);
                let remainder = u32::from(fields.u16(layout.token_remainder)?) & ((1 << bits) - 1);
                Definition::Metadata(range << bits | remainder)
            }
        };
        Ok(Self { method_table, definition })
    }
}

/// Whether a method is a `DynamicMethod` (lightweight code generation), whose code is in heaps of its own and can be freed.
pub(crate) fn is_lightweight(
    memory: &LimitedMemory,
    layout: &MethodLayout,
    address: u64,
) -> Result<bool, LookupError> {
    let flags = memory.u16(address.wrapping_add(layout.flags))?;
    Ok(flags & CLASSIFICATION == DYNAMIC && has_lightweight_flags(memory, layout, address)?)
}

/// Whether a dynamic method is no stub in IL (`DynamicMethodDescExtendedFlags`).
fn has_lightweight_flags(
    memory: &LimitedMemory,
    layout: &MethodLayout,
    address: u64,
) -> Result<bool, LookupError> {
    const IS_LIGHTWEIGHT: u32 = 0x4000;
    const IS_IL_STUB: u32 = 0x8000;
    let flags = memory.u32(address.wrapping_add(layout.dynamic_flags))?;
    Ok(flags & (IS_LIGHTWEIGHT | IS_IL_STUB) != IS_IL_STUB)
}

fn read_dynamic(
    memory: &LimitedMemory,
    layout: &MethodLayout,
    address: u64,
) -> Result<Definition, LookupError> {
    let fields = memory.fields(address, &[layout.dynamic_name, layout.signature, layout.signature_bytes]);
    let (name, signature) = (fields.u64(layout.dynamic_name)?, fields.u64(layout.signature)?);
    let signature_bytes = fields.u32(layout.signature_bytes)?;
    if signature_bytes > MAX_SIGNATURE_BYTES {
        return Err(LookupError::TooLarge("signature"));
    }
    let is_lightweight = has_lightweight_flags(memory, layout, address)?;
    let name = memory.string(name, MAX_NAME_BYTES)?;
    let signature = memory.bytes(signature, signature_bytes as usize)?;
    Ok(Definition::Dynamic { name, signature, is_lightweight })
}
