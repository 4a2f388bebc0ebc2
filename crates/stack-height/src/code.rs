//! Decodes instructions of a program through caches of fixed size, for bytes and for instructions.

use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};

use crate::program::Program;

/// The unit in which code is read, bytes.
const BLOCK_BYTES: u64 = 32 << 10;

/// The number of cached blocks: 2 MiB of code.
const BLOCKS: usize = 64;

/// The number of cached instructions, 40 bytes each: those of 8 KiB of code, because the address is the place in the cache.
/// Most functions are smaller, and each instruction is interpreted several times.
const CACHED_INSTRUCTIONS: usize = 8 << 10;

/// The instructions that are decoded at once: the next ones are needed soon, and a decoder is costly to set up.
const INSTRUCTIONS_AT_ONCE: usize = 16;

/// The most bytes of an instruction (Intel SDM, volume 2, 2.3.11).
pub(crate) const MAX_INSTRUCTION_BYTES: u64 = 15;

/// The code of a program, with direct-mapped caches.
pub(crate) struct MachineCode<'a> {
    program: &'a dyn Program,
    blocks: Vec<Option<Block>>,
    /// Valid instructions in code; an instruction without a length is a free place.
    instructions: Vec<Instruction>,
}

struct Block {
    start: u64,
    /// `BLOCK_BYTES`, and what the last instruction in the block takes of the next one.
    bytes: Vec<u8>,
}

impl<'a> MachineCode<'a> {
    pub(crate) fn new(program: &'a dyn Program) -> Self {
        let blocks = (0..BLOCKS).map(|_| None).collect();
        Self { program, blocks, instructions: vec![Instruction::default(); CACHED_INSTRUCTIONS] }
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
        let place = cache_place(address);
        if !is_at(&self.instructions[place], address) {
            self.decode_into_cache(address)?;
        }
        let instruction = self.instructions[place];
        is_at(&instruction, address).then_some(instruction)
    }

    /// Decodes the instructions from an address on, until one that is not followed by the next one.
    fn decode_into_cache(&mut self, address: u64) -> Option<()> {
        let range_end = self.range(address)?.end;
        let (block_start, index) = block_of(address);
        self.load_block(block_start, index);
        let bytes = &self.blocks[index].as_ref()?.bytes;
        let block_end = block_start.saturating_add(BLOCK_BYTES).min(range_end);
        let available = bytes.len().min((range_end - block_start) as usize);
        let code = bytes.get((address - block_start) as usize..available)?;
        let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
        for _ in 0..INSTRUCTIONS_AT_ONCE {
            let place = &mut self.instructions[cache_place(decoder.ip())];
            if decoder.ip() >= block_end || is_at(place, decoder.ip()) {
                break;
            }
            decoder.decode_out(place);
            if place.is_invalid() {
                *place = Instruction::default();
                break;
            }
            if place.flow_control() != FlowControl::Next {
                break;
            }
        }
        Some(())
    }

    /// The bytes from an address in code, as many as an instruction can have or the range has.
    pub(crate) fn bytes(&mut self, address: u64) -> Option<&[u8]> {
        let available = self.range(address)?.end - address;
        let length = available.min(MAX_INSTRUCTION_BYTES) as usize;
        let (start, index) = block_of(address);
        self.load_block(start, index);
        let offset = (address - start) as usize;
        self.blocks[index].as_ref()?.bytes.get(offset..offset + length)
    }

    /// Reads a block unless it is in its place in the cache.
    fn load_block(&mut self, start: u64, index: usize) {
        if self.blocks[index].as_ref().is_none_or(|block| block.start != start) {
            self.blocks[index] = Some(self.read_block(start));
        }
    }

    /// Copies the code of a block that contains an address, from there on, with the start of the next block.
    pub(crate) fn rest_of_block(&mut self, address: u64) -> Option<&[u8]> {
        self.bytes(address)?;
        let (start, index) = block_of(address);
        self.blocks[index].as_ref()?.bytes.get((address - start) as usize..)
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

/// The start of the block that contains an address, and its place in the cache.
fn block_of(address: u64) -> (u64, usize) {
    (address - address % BLOCK_BYTES, (address / BLOCK_BYTES) as usize % BLOCKS)
}

/// The place of an instruction in the cache.
fn cache_place(address: u64) -> usize {
    address as usize % CACHED_INSTRUCTIONS
}

/// Whether a place in the cache has the instruction at an address.
fn is_at(instruction: &Instruction, address: u64) -> bool {
    instruction.len() > 0 && instruction.ip() == address
}
