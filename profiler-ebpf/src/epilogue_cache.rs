//! The cache of epilogue scans: which epilogue is behind an instruction of a process.

use crate::{
    epilogue::Epilogue,
    stack_id::{hash_finish, hash_step},
};

/// The bytes of a stack slot.
const WORD: u64 = 8;

/// Identifies an instruction of a process in the epilogue cache: a hash with the secret seed of the session, so that no
/// process can choose the entry of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpilogueKey(u64);

impl EpilogueKey {
    /// The key of an instruction. `is_leaf`: its address is no return address.
    #[inline(always)]
    #[must_use]
    pub fn new(seed: u64, pid: u32, address: u64, is_leaf: bool) -> Self {
        let process = hash_step(seed, seed, u64::from(pid));
        Self(hash_finish(hash_step(seed, process, address), u64::from(is_leaf)))
    }

    /// The index of its entry.
    #[inline(always)]
    #[must_use]
    pub fn index(self, capacity: u32) -> u32 {
        self.0 as u32 % capacity
    }
}

/// An entry of the epilogue cache, in one word: the upper bits of the instruction's key, and the epilogue.
///
/// The code at an address may be replaced. A stale entry is rejected like bytes that look like an epilogue by chance: the
/// stack slot does not hold a return address.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CachedEpilogue(u64);

impl CachedEpilogue {
    const IS_FOUND: u64 = 1;
    const IS_SAVED: u64 = 2;
    const RETURN_ADDRESS_SHIFT: u32 = 2;
    /// Set in each entry that was written.
    const IS_WRITTEN: u64 = 1 << 15;
    const EPILOGUE_BITS: u64 = Self::IS_WRITTEN - 1;

    /// The entry for an instruction; `None` caches that there is no epilogue.
    #[inline(always)]
    #[must_use]
    pub fn new(key: EpilogueKey, epilogue: Option<Epilogue>) -> Self {
        let bits = match epilogue {
            None => 0,
            Some(Epilogue { return_address_offset, frame_pointer_offset }) => {
                let saved = if frame_pointer_offset.is_some() { Self::IS_SAVED } else { 0 };
                let words = return_address_offset / WORD % (1 << 13);
                words << Self::RETURN_ADDRESS_SHIFT | saved | Self::IS_FOUND
            }
        };
        Self(Self::tag(key) | bits)
    }

    /// The cached result for an instruction; the outer `None` when the entry is of another instruction.
    #[inline(always)]
    #[must_use]
    pub fn lookup(self, key: EpilogueKey) -> Option<Option<Epilogue>> {
        if self.0 & !Self::EPILOGUE_BITS != Self::tag(key) {
            return None;
        }
        if self.0 & Self::IS_FOUND == 0 {
            return Some(None);
        }
        let return_address_offset = (self.0 & Self::EPILOGUE_BITS) >> Self::RETURN_ADDRESS_SHIFT << 3;
        let is_saved = self.0 & Self::IS_SAVED != 0;
        let frame_pointer_offset =
            if is_saved { Some(return_address_offset.wrapping_sub(WORD)) } else { None };
        Some(Some(Epilogue { return_address_offset, frame_pointer_offset }))
    }

    #[inline(always)]
    fn tag(key: EpilogueKey) -> u64 {
        key.0 & !Self::EPILOGUE_BITS | Self::IS_WRITTEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_returns_the_epilogue_of_the_same_instruction_of_the_same_process_only() {
        const SEED: u64 = 0x1234_5678_9abc_def1;
        let (pid, address) = (7, 0x7f15_4ac0_3850);
        for epilogue in [
            None,
            Some(Epilogue { return_address_offset: 0, frame_pointer_offset: None }),
            Some(Epilogue { return_address_offset: 0x38, frame_pointer_offset: None }),
            Some(Epilogue { return_address_offset: 0x268, frame_pointer_offset: Some(0x260) }),
            Some(Epilogue { return_address_offset: 0xfff8, frame_pointer_offset: Some(0xfff0) }),
        ] {
            for is_leaf in [false, true] {
                let key = EpilogueKey::new(SEED, pid, address, is_leaf);
                let cached = CachedEpilogue::new(key, epilogue);
                assert_eq!(cached.lookup(key), Some(epilogue));
                assert_eq!(cached.lookup(EpilogueKey::new(SEED, pid, address, !is_leaf)), None);
                assert_eq!(cached.lookup(EpilogueKey::new(SEED, pid, address + 1, is_leaf)), None);
                assert_eq!(cached.lookup(EpilogueKey::new(SEED, pid + 1, address, is_leaf)), None);
                assert_eq!(CachedEpilogue::default().lookup(key), None);
            }
        }
    }
}
