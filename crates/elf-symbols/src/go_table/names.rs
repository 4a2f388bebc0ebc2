//! Finds a few functions of Go's runtime by their names, without reading the name of every function.

use std::collections::BTreeSet;

use memchr::memmem;
use profiler_binary_reader::Image;

use super::GoTable;

/// What precedes a name of the runtime: the end of the name before, and the package.
const BEFORE_NAME: &[u8] = b"\0runtime.";

/// The functions, sorted: a goroutine calls them at any instruction, they preempt it, or signal handlers return to them
/// (`runtime/preempt.go`, `runtime/stack.go`, `runtime/sys_linux_amd64.s`).
const NAMES: [&[u8]; 10] = [
    b"asyncPreempt",
    b"debugCallV2",
    b"gopreempt_m",
    b"goschedImpl",
    b"newstack",
    b"preemptPark",
    b"sigpanic",
    b"sigpanic0",
    b"sigreturn",
    b"sigreturn__sigaction",
];

/// The longest of them with what is around it.
const MAX_NAME_BYTES: u64 = 32;

/// The bytes of names that are searched, several times those of the largest programs.
const MAX_SEARCHED_BYTES: u64 = 64 << 20;
const CHUNK_BYTES: u64 = 1 << 20;

/// The offsets of the names in their table.
pub(super) struct RuntimeNames(BTreeSet<u32>);

impl RuntimeNames {
    /// Searches the names of a table. What cannot be read is not found.
    pub(super) fn find(table: &GoTable, image: &Image) -> Self {
        let mut found = BTreeSet::new();
        let layout = &table.layout;
        // Before 1.16, names are anywhere behind the functions.
        let end = layout.units.unwrap_or(table.place.bytes).min(table.place.bytes);
        let bytes = end.saturating_sub(layout.names).min(MAX_SEARCHED_BYTES);
        for at in (0..bytes).step_by(CHUNK_BYTES as usize) {
            // Chunks overlap, so that no name is cut.
            let size = (CHUNK_BYTES + MAX_NAME_BYTES).min(bytes - at);
            let Ok(chunk) = table.place.read(image, layout.names.saturating_add(at), size) else { break };
            for start in memmem::find_iter(&chunk, BEFORE_NAME) {
                let name = chunk.get(start + BEFORE_NAME.len()..).unwrap_or_default();
                let length = memchr::memchr(0, name.get(..MAX_NAME_BYTES as usize).unwrap_or(name));
                if length.is_some_and(|length| NAMES.binary_search(&&name[..length]).is_ok()) {
                    found.insert((at + start as u64 + 1) as u32);
                }
            }
        }
        Self(found)
    }

    /// Whether the name at an offset is one of them.
    pub(super) fn contain(&self, name: u32) -> bool {
        self.0.contains(&name)
    }
}
