//! The cache of scanned code: which edge of a function is near an instruction of a process.

use profiler_common::function_edge::{EdgeKind, FunctionEdge};

use crate::stack_id::{hash_finish, hash_step};

/// The bytes of a stack slot.
const WORD: u64 = 8;

/// Identifies an instruction of a process in the cache: a hash with the secret seed of the session, so that no process can choose the
/// entry of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EdgeKey(u64);

/// How the code from an instruction on is scanned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanMode {
    /// The instruction is about to run: its address is no return address.
    pub runs: bool,
    /// An epilogue further on is searched as well.
    pub searches: bool,
}

impl EdgeKey {
    /// The key of an instruction.
    #[inline(always)]
    #[must_use]
    pub fn new(seed: u64, pid: u32, address: u64, mode: ScanMode) -> Self {
        let process = hash_step(seed, seed, u64::from(pid));
        let mode = u64::from(mode.runs) | u64::from(mode.searches) << 1;
        Self(hash_finish(hash_step(seed, process, address), mode))
    }

    /// The index of its entry.
    #[inline(always)]
    #[must_use]
    pub fn index(self, capacity: u32) -> u32 {
        self.0 as u32 % capacity
    }
}

/// An entry of the cache, in one word: the upper bits of the instruction's key, and the edge.
///
/// The code at an address may be replaced. A stale entry is rejected like bytes that look like an epilogue by chance: the
/// stack slot does not hold a return address.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CachedEdge(u64);

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
    /// Set in each entry that was written.
    const IS_WRITTEN: u64 = 1 << 19;
    const EDGE_BITS: u64 = Self::IS_WRITTEN - 1;

    /// The entry for an instruction; `None` caches that there is no edge.
    #[inline(always)]
    #[must_use]
    pub fn new(key: EdgeKey, edge: Option<FunctionEdge>) -> Self {
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
        Self(Self::tag(key) | bits)
    }

    /// The cached result for an instruction; the outer `None` when the entry is of another instruction.
    #[inline(always)]
    #[must_use]
    pub fn lookup(self, key: EdgeKey) -> Option<Option<FunctionEdge>> {
        if self.0 & !Self::EDGE_BITS != Self::tag(key) {
            return None;
        }
        let kind = match self.0 & Self::KIND {
            Self::IS_PROLOGUE => EdgeKind::Prologue,
            Self::IS_EPILOGUE => EdgeKind::Epilogue,
            Self::IS_LIKELY => EdgeKind::LikelyEpilogue,
            _ => return Some(None),
        };
        let return_address_offset = (self.0 & Self::EDGE_BITS) >> Self::RETURN_ADDRESS_SHIFT << 3;
        let saved = self.0 >> Self::SAVED_SHIFT & Self::MAX_SAVED_WORDS;
        let frame_pointer_offset =
            if saved != 0 { Some(return_address_offset.wrapping_sub(saved * WORD)) } else { None };
        Some(Some(FunctionEdge { kind, return_address_offset, frame_pointer_offset }))
    }

    #[inline(always)]
    fn tag(key: EdgeKey) -> u64 {
        key.0 & !Self::EDGE_BITS | Self::IS_WRITTEN
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
                let key = EdgeKey::new(SEED, pid, address, mode);
                let cached = CachedEdge::new(key, edge);
                assert_eq!(cached.lookup(key), Some(edge));
                for other in [
                    EdgeKey::new(SEED, pid, address, ScanMode { runs: !mode.runs, ..mode }),
                    EdgeKey::new(SEED, pid, address, ScanMode { searches: true, ..mode }),
                    EdgeKey::new(SEED, pid, address + 1, mode),
                    EdgeKey::new(SEED, pid + 1, address, mode),
                ] {
                    assert_eq!(cached.lookup(other), None);
                }
                assert_eq!(CachedEdge::default().lookup(key), None);
            }
        }
    }
}
