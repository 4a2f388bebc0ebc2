//! The slot of an address in a node of a maple tree (`lib/maple_tree.c`).

use crate::is_below;

/// Words of `struct maple_node` (`include/linux/maple_tree.h`), which has 256 bytes.
pub const MAPLE_NODE_WORDS: usize = 32;

/// The word of the first pivot, and those of the first slots; the loader compares them with the kernel's BTF.
const PIVOTS: usize = 1;
const RANGE_SLOTS: usize = 16;
const ARANGE_SLOTS: usize = 10;

/// `MAPLE_NODE_TYPE_SHIFT`, `MAPLE_NODE_TYPE_MASK`: the type of a node is in the address of it.
const NODE_TYPE_SHIFT: u64 = 3;
const NODE_TYPE_MASK: u64 = 0xf;
/// `MAPLE_NODE_MASK`.
const NODE_ADDRESS_MASK: u64 = !255;
/// `enum maple_type`.
const MAPLE_RANGE_64: u64 = 2;
const MAPLE_ARANGE_64: u64 = 3;

/// An encoded pointer to a node: its address, and its type in the low bits.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct EncodedNode(pub u64);

impl EncodedNode {
    #[inline(always)]
    fn node_type(self) -> u64 {
        self.0 >> NODE_TYPE_SHIFT & NODE_TYPE_MASK
    }

    /// The address of the node.
    #[inline(always)]
    #[must_use]
    pub fn address(self) -> u64 {
        self.0 & NODE_ADDRESS_MASK
    }

    /// Whether the slots hold nodes of the next level.
    #[inline(always)]
    #[must_use]
    pub fn is_internal(self) -> bool {
        self.node_type() >= MAPLE_RANGE_64
    }

    /// The index of the word that holds the slot for an address. `words` are those of the node.
    ///
    /// The slot is the one of the first pivot, the last address of its range, that is not below the address. Pivots that are
    /// not in use are 0.
    ///
    /// VERIFIER: without branches. A loop that ends at the pivot was verified once for each pivot of each level.
    #[inline(always)]
    #[must_use]
    pub fn slot_of(self, words: &[u64; MAPLE_NODE_WORDS], address: u64) -> usize {
        let is_arange = is_below(self.node_type() ^ MAPLE_ARANGE_64, 1);
        let is_range = is_arange ^ 1;
        let mut slot = 0;
        let mut is_behind = 1;
        for index in 0..RANGE_SLOTS - PIVOTS {
            // A pivot of 0 becomes the largest.
            is_behind &= is_below(words[PIVOTS + index].wrapping_sub(1), address.wrapping_sub(1));
            if index >= ARANGE_SLOTS - PIVOTS {
                is_behind &= is_range;
            }
            slot += is_behind;
        }
        let slots = RANGE_SLOTS as u64 - is_arange * (RANGE_SLOTS - ARANGE_SLOTS) as u64;
        (slots + slot) as usize % MAPLE_NODE_WORDS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: u64 = 0xffff_8880_1234_5600;
    const LEAF_64: u64 = 1;

    fn encoded(node_type: u64) -> EncodedNode {
        EncodedNode(ADDRESS | node_type << NODE_TYPE_SHIFT | 4)
    }

    /// A node with these pivots, and slots that are kernel addresses.
    fn node(first_slot: usize, pivots: &[u64]) -> [u64; MAPLE_NODE_WORDS] {
        let mut words = [0; MAPLE_NODE_WORDS];
        for word in words.iter_mut().skip(first_slot) {
            *word = ADDRESS;
        }
        for (word, pivot) in words.iter_mut().skip(PIVOTS).zip(pivots) {
            *word = *pivot;
        }
        words
    }

    /// The definition, as `mtree_lookup_walk` of `lib/maple_tree.c` has it.
    fn first_pivot_not_below(pivots: &[u64], address: u64) -> usize {
        pivots.iter().position(|pivot| *pivot == 0 || *pivot >= address).unwrap_or(pivots.len())
    }

    #[test]
    fn the_slot_is_that_of_the_first_pivot_that_is_not_below_the_address() {
        let addresses =
            [1, 0xfff, 0x1000, 0x1001, 0x2fff, 0x3000, 0x8fff, 0x9000, 0xf000, 1 << 47, u64::MAX - 1];
        for (node_type, first_slot) in
            [(LEAF_64, RANGE_SLOTS), (MAPLE_RANGE_64, RANGE_SLOTS), (MAPLE_ARANGE_64, ARANGE_SLOTS)]
        {
            for used in 0..first_slot {
                let mut pivots: Vec<u64> = (1..=used as u64).map(|index| index << 12).collect();
                for last in [None, Some(u64::MAX)] {
                    if let (Some(last), Some(pivot)) = (last, pivots.last_mut()) {
                        *pivot = last;
                    }
                    let words = node(first_slot, &pivots);
                    let all = &words[PIVOTS..first_slot];
                    for address in addresses {
                        let expected = first_slot + first_pivot_not_below(all, address);
                        let found = encoded(node_type).slot_of(&words, address);
                        assert_eq!(found, expected, "type {node_type}, {pivots:x?}, {address:x}");
                    }
                }
            }
        }
    }

    #[test]
    fn pivots_behind_the_slot_do_not_count() {
        let words = node(RANGE_SLOTS, &[0x1000, 0x5000, 0x2000, 0, 0x3000]);
        assert_eq!(encoded(LEAF_64).slot_of(&words, 0x4000), RANGE_SLOTS + 1);
    }

    #[test]
    fn slots_of_a_node_with_gaps_are_not_taken_for_pivots() {
        let pivots: Vec<u64> = (1..=9).map(|index| index << 12).collect();
        let mut words = node(ARANGE_SLOTS, &pivots);
        words[ARANGE_SLOTS] = 0x100;
        assert_eq!(encoded(MAPLE_ARANGE_64).slot_of(&words, 0x9001), ARANGE_SLOTS + 9);
    }

    #[test]
    fn an_encoded_node_has_an_address_and_a_type() {
        assert_eq!(encoded(MAPLE_ARANGE_64).address(), ADDRESS);
        assert_eq!(
            [0, 1, 2, 3].map(|node_type| encoded(node_type).is_internal()),
            [false, false, true, true]
        );
    }
}
