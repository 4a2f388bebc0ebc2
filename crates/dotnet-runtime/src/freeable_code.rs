//! Lists the code that a runtime can free: of dynamic methods, which have code heaps of their own, and of collectible assemblies.

use profiler_addresses::RuntimeAddress;

use crate::{
    code_ranges::{CodeRange, CodeRangeContent, find_heaps},
    error::LookupError,
    layout::Layouts,
    memory::{LimitedMemory, ReadError},
    method_desc::is_lightweight,
    nibble_map,
    threads::Listing,
};

/// Methods in one list.
const MAX_METHODS: usize = 4 << 10;

/// Bytes of one read of a nibble map.
const MAP_CHUNK_BYTES: u64 = 16 << 10;

/// Lists the starts of the methods whose code can be freed. The list is incomplete if there are too many.
///
/// # Errors
/// Those of reading the map of code ranges.
pub(crate) fn list(
    memory: &LimitedMemory,
    layouts: &Layouts,
) -> Result<Listing<RuntimeAddress>, LookupError> {
    let mut methods = Listing { entries: Vec::new(), is_complete: true };
    for range in find_heaps(memory, &layouts.code)? {
        match add_methods(memory, layouts, &range, &mut methods.entries) {
            Ok(()) => {}
            Err(LookupError::Read(ReadError::LimitExceeded) | LookupError::TooLarge(_)) => {
                methods.is_complete = false;
                break;
            }
            // The heap has been freed meanwhile.
            Err(LookupError::Read(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(methods)
}

/// Adds the methods of a heap, unless its first method shows that it has none that can be freed.
fn add_methods(
    memory: &LimitedMemory,
    layouts: &Layouts,
    range: &CodeRange,
    methods: &mut Vec<RuntimeAddress>,
) -> Result<(), LookupError> {
    let CodeRangeContent::Heap(heap) = range.content else { return Ok(()) };
    let layout = &layouts.code;
    let base = memory.u64(heap.wrapping_add(layout.heap_map_base))?;
    let map = memory.u64(heap.wrapping_add(layout.heap_header_map))?;
    let map_bytes = nibble_map::map_bytes(range.end.saturating_sub(base));
    let mut can_be_freed = range.is_collectible;
    for offset in (0..map_bytes).step_by(MAP_CHUNK_BYTES as usize) {
        let length = MAP_CHUNK_BYTES.min(map_bytes - offset);
        let units = memory.bytes(map.wrapping_add(offset), length as usize)?;
        for distance in nibble_map::starts(layout.nibble_map, offset / 4, &units) {
            let start = base.wrapping_add(distance);
            let header = memory.u64(start.wrapping_sub(8))?;
            if header <= layout.last_stub_kind {
                continue;
            }
            if !can_be_freed {
                let method = memory.u64(header.wrapping_add(layout.header_method))?;
                if !is_lightweight(memory, &layouts.method, method)? {
                    return Ok(());
                }
                can_be_freed = true;
            }
            if methods.len() >= MAX_METHODS {
                return Err(LookupError::TooLarge("number of dynamic methods"));
            }
            methods.push(RuntimeAddress(start));
        }
    }
    Ok(())
}
