//! The blocks of one function, by address.

use crate::state::AbstractState;

/// The blocks for which memory is kept from one function to the next: some 650 bytes each.
const MAX_KEPT_BLOCKS: usize = 1 << 10;

/// Instructions that are executed one after the other.
pub(crate) struct Block {
    pub(crate) start: u64,
    /// The address behind its last instruction.
    pub(crate) end: u64,
    /// The state before its first instruction.
    pub(crate) state: AbstractState,
    pub(crate) successors: Successors,
    pub(crate) outcome: Outcome,
}

/// Where execution continues after a block.
#[derive(Default)]
pub(crate) struct Successors {
    /// The target of a conditional jump.
    pub(crate) taken: Option<u64>,
    /// The next instruction, or the target of a jump.
    pub(crate) next: Option<u64>,
    /// The targets of a jump table.
    pub(crate) cases: Vec<u64>,
}

impl Successors {
    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> {
        self.taken.into_iter().chain(self.next).chain(self.cases.iter().copied())
    }
}

/// How a block leaves its function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It does not.
    Stays,
    /// By `ret`, with the stack and frame pointers of the caller.
    Returns,
    /// By a jump to the start of another function, with the stack and frame pointers of the caller.
    TailJump,
    /// By a jump with the stack and frame pointers of the caller, to what may not be the start of a function.
    LikelyTailJump,
    /// By a jump to an unknown address.
    UnknownJump,
    /// It continues in code whose frame is known.
    Joins,
    /// With other stack or frame pointers than the caller's: the states that lead here are wrong.
    Fails,
}

/// Blocks in the order of their starts. They are stored in the order in which they were found: most are found in ascending
/// order, so that few numbers move when one is added.
#[derive(Default)]
pub(crate) struct Blocks {
    starts: Vec<u64>,
    /// The place in `blocks` of the block at each start.
    places: Vec<u32>,
    blocks: Vec<Block>,
}

impl Blocks {
    /// Removes all blocks, and keeps memory for as many as most functions have.
    pub(crate) fn clear(&mut self) {
        self.starts.clear();
        self.places.clear();
        self.blocks.clear();
        self.blocks.shrink_to(MAX_KEPT_BLOCKS);
    }

    pub(crate) fn len(&self) -> usize {
        self.starts.len()
    }

    /// All blocks, in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Block> {
        self.places.iter().map(|place| &self.blocks[*place as usize])
    }

    pub(crate) fn at(&self, start: u64) -> Option<&Block> {
        let index = self.starts.binary_search(&start).ok()?;
        self.blocks.get(self.places[index] as usize)
    }

    pub(crate) fn at_mut(&mut self, start: u64) -> Option<&mut Block> {
        let index = self.starts.binary_search(&start).ok()?;
        self.blocks.get_mut(self.places[index] as usize)
    }

    /// The start of the first block behind an address.
    pub(crate) fn next_start(&self, address: u64) -> Option<u64> {
        let index = self.starts.partition_point(|start| *start <= address);
        self.starts.get(index).copied()
    }

    /// The last block that begins before an address.
    pub(crate) fn last_before(&self, address: u64) -> Option<&Block> {
        let index = self.starts.partition_point(|start| *start < address);
        self.blocks.get(self.places[index.checked_sub(1)?] as usize)
    }

    /// Adds a block at an address that has none. The number of blocks behind it.
    pub(crate) fn insert(&mut self, start: u64, state: &AbstractState) -> usize {
        let index = self.starts.partition_point(|other| *other < start);
        self.starts.insert(index, start);
        self.places.insert(index, self.blocks.len() as u32);
        self.blocks.push(Block {
            start,
            end: start,
            state: state.clone(),
            successors: Successors::default(),
            outcome: Outcome::Stays,
        });
        self.starts.len() - index - 1
    }
}
