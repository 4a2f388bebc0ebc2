//! The cache of scanned code: which edge of a function is near an instruction of a process.

use profiler_common::function_edge::{EdgeKind, FunctionEdge};

use crate::{
    cache_entry::{CacheEntry, CacheKey},
    stack_id::{hash_finish, hash_step},
};

/// The bytes of a stack slot.
const WORD: u64 = 8;

/// How the code from an instruction on is scanned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanMode {
    /// The instruction is about to run: its address is no return address.
    pub runs: bool,
    /// An epilogue further on is searched as well.
    pub searches: bool,
}

/// The key of an instruction.
#[inline(always)]
#[must_use]
pub const fn edge_key(seed: u64, pid: u32, address: u64, mode: ScanMode) -> CacheKey {
    let process = hash_step(seed, seed, pid as u64);
    let mode = mode.runs as u64 | (mode.searches as u64) << 1;
    CacheKey::from_hash(hash_finish(hash_step(seed, process, address), mode))
}

/// An entry of the cache: the edge near an instruction.
///
/// The code at an address may be replaced. A stale entry is rejected like bytes that look like an epilogue by chance: the
/// stack slot does not hold a return address.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CachedEdge(CacheEntry);

impl CachedEdge {
    /// The kind: 0 where the code has no edge there.
    const KIND: u64 = 3;
    const IS_PROLOGUE: u64 = 1;
    const IS_EPILOGUE: u64 = 2;
    const IS_LIKELY: u64 = 3;
    /// How many words the slot of the frame pointer is below that of the return address; 0 where the frame pointer is not popped. An
    /// epilogue pops six registers.
    const SAVED_SHIFT: u32 = 2;
    const MAX_SAVED_WORDS: u64 = 15;
    const RETURN_ADDRESS_SHIFT: u32 = 6;

    /// The entry for an instruction; `None` caches that there is no edge.
    #[inline(always)]
    #[must_use]
    pub fn new(key: CacheKey, edge: Option<FunctionEdge>) -> Self {
        let bits = match edge {
            None => 0,
            Some(FunctionEdge { kind, return_address_offset, frame_pointer_offset }) => {
                let kind = match kind {
                    EdgeKind::Prologue => Self::IS_PROLOGUE,
                    EdgeKind::Epilogue => Self::IS_EPILOGUE,
                    EdgeKind::LikelyEpilogue => Self::IS_LIKELY,
                };
                let words = return_address_offset / WORD % (1 << 13);
                let saved = match frame_pointer_offset {
                    Some(slot) => (return_address_offset.wrapping_sub(slot) / WORD) & Self::MAX_SAVED_WORDS,
                    None => 0,
                };
                words << Self::RETURN_ADDRESS_SHIFT | saved << Self::SAVED_SHIFT | kind
            }
        };
        Self(CacheEntry::new(key, bits))
    }

    /// The cached result for an instruction; the outer `None` when the entry is of another instruction.
    #[inline(always)]
    #[must_use]
    pub fn lookup(self, key: CacheKey) -> Option<Option<FunctionEdge>> {
        let bits = self.0.value(key)?;
        let kind = match bits & Self::KIND {
            Self::IS_PROLOGUE => EdgeKind::Prologue,
            Self::IS_EPILOGUE => EdgeKind::Epilogue,
            Self::IS_LIKELY => EdgeKind::LikelyEpilogue,
            _ => return Some(None),
        };
        let return_address_offset = bits >> Self::RETURN_ADDRESS_SHIFT << 3;
        let saved = bits >> Self::SAVED_SHIFT & Self::MAX_SAVED_WORDS;
        let frame_pointer_offset =
            if saved != 0 { Some(return_address_offset.wrapping_sub(saved * WORD)) } else { None };
        Some(Some(FunctionEdge { kind, return_address_offset, frame_pointer_offset }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_returns_the_edge_of_the_same_instruction_of_the_same_process_only() {
        const SEED: u64 = 0x1234_5678_9abc_def1;
        let (pid, address) = (7, 0x7f15_4ac0_3850);
        let edge = |kind, return_address_offset, frame_pointer_offset| {
            Some(FunctionEdge { kind, return_address_offset, frame_pointer_offset })
        };
        for edge in [
            None,
            edge(EdgeKind::LikelyEpilogue, 0, None),
            edge(EdgeKind::Prologue, 0x38, None),
            edge(EdgeKind::Epilogue, 0x268, Some(0x260)),
            edge(EdgeKind::Epilogue, 0x30, Some(0)),
            edge(EdgeKind::LikelyEpilogue, 0xfff8, Some(0xfff0)),
        ] {
            for mode in [false, true].map(|runs| ScanMode { runs, searches: false }) {
                let key = edge_key(SEED, pid, address, mode);
                let cached = CachedEdge::new(key, edge);
                assert_eq!(cached.lookup(key), Some(edge));
                for other in [
                    edge_key(SEED, pid, address, ScanMode { runs: !mode.runs, ..mode }),
                    edge_key(SEED, pid, address, ScanMode { searches: true, ..mode }),
                    edge_key(SEED, pid, address + 1, mode),
                    edge_key(SEED, pid + 1, address, mode),
                ] {
                    assert_eq!(cached.lookup(other), None);
                }
                assert_eq!(CachedEdge::default().lookup(key), None);
            }
        }
    }
}
