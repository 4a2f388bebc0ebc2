//! Decodes instructions of a program through a cache of fixed size.

use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, Instruction};

use crate::program::Program;

/// The unit in which code is read, bytes.
const BLOCK_BYTES: u64 = 32 << 10;

/// The number of cached blocks: 2 MiB of code.
const BLOCKS: usize = 64;

/// The most bytes of an instruction (Intel SDM, volume 2, 2.3.11).
pub(crate) const MAX_INSTRUCTION_BYTES: u64 = 15;

/// The code of a program, with a direct-mapped cache.
pub(crate) struct MachineCode<'a> {
    program: &'a dyn Program,
    blocks: Vec<Option<Block>>,
}

struct Block {
    start: u64,
    /// `BLOCK_BYTES`, and what the last instruction in the block takes of the next one.
    bytes: Vec<u8>,
}

impl<'a> MachineCode<'a> {
    pub(crate) fn new(program: &'a dyn Program) -> Self {
        Self { program, blocks: (0..BLOCKS).map(|_| None).collect() }
    }

    /// The range of code that contains an address.
    pub(crate) fn range(&self, address: u64) -> Option<Range<u64>> {
        let ranges = self.program.code_ranges();
        let following = ranges.partition_point(|range| range.start <= address);
        let range = ranges.get(following.checked_sub(1)?)?;
        range.contains(&address).then(|| range.clone())
    }

    /// Whether an address is in code.
    pub(crate) fn contains(&self, address: u64) -> bool {
        self.range(address).is_some()
    }

    /// The instruction at an address; `None` outside of code and where the bytes are no instruction.
    pub(crate) fn decode(&mut self, address: u64) -> Option<Instruction> {
        let bytes = self.bytes(address)?;
        let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
        let instruction = decoder.decode();
        (!instruction.is_invalid()).then_some(instruction)
    }

    /// The bytes from an address in code, as many as an instruction can have or the range has.
    pub(crate) fn bytes(&mut self, address: u64) -> Option<&[u8]> {
        let available = self.range(address)?.end - address;
        let start = address - address % BLOCK_BYTES;
        let index = (start / BLOCK_BYTES) as usize % BLOCKS;
        if self.blocks[index].as_ref().is_none_or(|block| block.start != start) {
            self.blocks[index] = Some(self.read_block(start));
        }
        let block = self.blocks[index].as_ref()?;
        let offset = (address - start) as usize;
        let length = available.min(MAX_INSTRUCTION_BYTES) as usize;
        block.bytes.get(offset..offset + length)
    }

    /// Copies the code of a block that contains an address, from there on, with the start of the next block.
    pub(crate) fn rest_of_block(&mut self, address: u64) -> Option<&[u8]> {
        self.bytes(address)?;
        let start = address - address % BLOCK_BYTES;
        let block = self.blocks[(start / BLOCK_BYTES) as usize % BLOCKS].as_ref()?;
        block.bytes.get((address - start) as usize..)
    }

    /// Reads the code in a block. Bytes that cannot be read are 0.
    fn read_block(&self, start: u64) -> Block {
        let mut bytes = vec![0; (BLOCK_BYTES + MAX_INSTRUCTION_BYTES) as usize];
        let end = start.saturating_add(bytes.len() as u64);
        for range in self.program.code_ranges() {
            let (from, to) = (range.start.max(start), range.end.min(end));
            if from < to {
                let part = &mut bytes[(from - start) as usize..(to - start) as usize];
                if !self.program.read(from, part) {
                    part.fill(0);
                }
            }
        }
        Block { start, bytes }
    }
}
