//! The stacks of the events in a stream: blocks of return addresses, to which events refer by number.

use std::collections::HashMap;

use profiler_binary_reader::{ByteCursor, ParseError};

/// Addresses of all stacks that are kept between two sequence points. A runtime captures 100 frames at most
/// (dotnet/runtime, src/native/eventpipe/ep-types-forward.h, `EP_MAX_STACK_DEPTH`).
const MAX_ADDRESSES: usize = 1 << 18;

/// Stacks that are kept between two sequence points.
const MAX_STACKS: usize = 1 << 16;

/// The stacks since the last sequence point: events refer to no older ones.
#[derive(Debug, Default)]
pub(super) struct Stacks {
    addresses: Vec<u64>,
    /// The range of each stack in `addresses`.
    ranges: HashMap<u32, (usize, usize)>,
}

impl Stacks {
    /// Adds the stacks of a block, as many as it has whole.
    pub(super) fn add_block(&mut self, content: &[u8]) {
        // A block that ends early has the stacks before its end.
        let _ = self.read_block(&mut ByteCursor::new(content, 0));
    }

    fn read_block(&mut self, bytes: &mut ByteCursor<'_>) -> Result<(), ParseError> {
        let (first, count) = (bytes.u32()?, bytes.u32()?);
        for number in 0..count {
            let size = bytes.u32()? as usize;
            let words = bytes.take(size)?.chunks_exact(size_of::<u64>());
            let begin = self.addresses.len();
            if self.ranges.len() >= MAX_STACKS || begin + words.len() > MAX_ADDRESSES {
                return Ok(());
            }
            let address = |word: &[u8]| word.try_into().map_or(0, u64::from_le_bytes);
            self.addresses.extend(words.map(address));
            self.ranges.insert(first.wrapping_add(number), (begin, self.addresses.len()));
        }
        Ok(())
    }

    /// The addresses of a stack, leaf first; none where the stack is unknown.
    pub(super) fn get(&self, id: u32) -> &[u64] {
        let range = self.ranges.get(&id).and_then(|(begin, end)| self.addresses.get(*begin..*end));
        range.unwrap_or_default()
    }

    /// Discards all stacks.
    pub(super) fn clear(&mut self) {
        self.addresses.clear();
        self.ranges.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eventpipe::testing::stack_block;

    #[test]
    fn stacks_are_numbered_from_the_first_of_their_block() {
        let mut stacks = Stacks::default();
        stacks.add_block(&stack_block(5, &[&[0x10, 0x20], &[], &[0x30]]));
        assert_eq!(
            [5, 6, 7, 8].map(|id| stacks.get(id).to_vec()),
            [vec![0x10, 0x20], vec![], vec![0x30], vec![]]
        );
        stacks.clear();
        assert!(stacks.get(5).is_empty());
    }

    #[test]
    fn a_truncated_block_has_the_stacks_before_its_end() {
        let block = stack_block(1, &[&[0x10], &[0x20, 0x30]]);
        for length in 0..block.len() {
            let mut stacks = Stacks::default();
            stacks.add_block(&block[..length]);
            assert!(stacks.get(2).is_empty(), "{length}");
        }
        let mut stacks = Stacks::default();
        stacks.add_block(&block[..block.len() - 1]);
        assert_eq!(stacks.get(1), [0x10]);
    }

    #[test]
    fn endless_stacks_are_bounded() {
        let mut stacks = Stacks::default();
        for block in 0..40 {
            stacks.add_block(&stack_block(block * 100, &[&[1; 100][..]; 100]));
            let empty = vec![&[][..]; 3_000];
            stacks.add_block(&stack_block(1 << 20, &empty));
        }
        assert!(stacks.addresses.len() <= MAX_ADDRESSES && stacks.ranges.len() <= MAX_STACKS);
    }
}
