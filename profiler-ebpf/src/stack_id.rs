//! Stack id: the 64-bit hash of a stack's addresses, by which samples refer to a stack that was sent once.

use profiler_common::StackId;

/// Adds one address to a stack's hash.
///
/// A target chooses its addresses. So each is mixed with the secret seed of the session before it meets the hash: without,
/// two addresses that differ in the uppermost bit and two callers that differ in one bit give the same id with every seed.
/// Then multiply and rotate as FxHash does, with the 64-bit golden ratio.
#[inline(always)]
#[must_use]
pub const fn hash_step(seed: u64, hash: u64, address: u64) -> u64 {
    let mixed = (address ^ seed).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let mixed = mixed ^ (mixed >> 32);
    (hash.rotate_left(5) ^ mixed).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Finishes a stack's hash: mixes the upper bits down (a multiplication only moves them up) and keeps 0 free
/// for "no stack".
#[inline(always)]
#[must_use]
pub const fn hash_finish(hash: u64, frames: u64) -> StackId {
    let mixed = hash ^ frames;
    let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let mixed = mixed ^ (mixed >> 32);
    if mixed == 0 { 1 } else { mixed }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(seed: u64, addresses: &[u64]) -> StackId {
        let hash = addresses.iter().fold(seed, |hash, address| hash_step(seed, hash, *address));
        hash_finish(hash, addresses.len() as u64)
    }

    #[test]
    fn stacks_that_differ_in_order_length_or_one_bit_have_different_ids() {
        let base = [0x7f00_0000_1000_u64, 0x7f00_0000_2000, 0x7f00_0000_3000];
        let mut ids = vec![
            hash(1, &base),
            hash(1, &base[..2]),
            hash(1, &[base[1], base[0], base[2]]),
            hash(1, &[]),
            hash(2, &base),
        ];
        for bit in 0..64 {
            ids.push(hash(1, &[base[0] ^ (1 << bit), base[1], base[2]]));
        }
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), count);
    }

    #[test]
    fn a_million_neighbouring_stacks_have_distinct_ids() {
        let mut ids: Vec<StackId> =
            (0..1_000_000_u64).map(|i| hash(7, &[0x40_0000 + i, 0x40_1000 + (i >> 3), 0x40_2000])).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 1_000_000);
    }

    /// Pairs of changes that cancel each other where each step only multiplies and rotates.
    #[test]
    fn no_two_changed_bits_cancel_each_other_with_every_seed() {
        let stack = [0x7f00_0000_1000_u64, 0x7f00_0000_2000];
        let cancels = |seed: u64, first: u64, second: u64| {
            hash(seed, &stack) == hash(seed, &[stack[0] ^ first, stack[1] ^ second])
        };
        let bits = || (0..64).map(|bit| 1_u64 << bit);
        let pairs = bits().flat_map(|first| bits().map(move |second| (first, second)));
        let found: Vec<_> = pairs.filter(|(first, second)| cancels(7, *first, *second)).collect();
        assert_eq!(found, []);
    }

    #[test]
    fn no_stack_has_the_id_0() {
        assert_ne!(hash_finish(0, 0), 0);
    }
}
