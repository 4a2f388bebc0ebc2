//! What is known of all functions of a program while its functions are analysed one by one.

use std::{
    collections::{BTreeSet, HashSet},
    ops::Range,
};

use iced_x86::Mnemonic;

use crate::{
    Error,
    blocks::Blocks,
    code::{MAX_INSTRUCTION_BYTES, MachineCode},
    program::Program,
    step::Interpreter,
    work::Work,
};

/// The largest distance of a jump from its table's targets, bytes. Functions are smaller.
const MAX_TABLE_JUMP_BYTES: u64 = 1 << 19;

/// The most entries that are read of a jump table whose size is not known.
const MAX_UNBOUNDED_ENTRIES: u64 = 512;

/// The most addresses of data that are kept; without more, a jump table may be read too far, which its targets show.
const MAX_DATA_ADDRESSES: usize = 1 << 20;

/// The length of `jmp *slot(%rip)`.
const JUMP_THROUGH_SLOT_BYTES: u64 = 6;

/// Everything that the analysis of one function reads, and writes what it learns to.
pub(crate) struct Knowledge<'a> {
    pub(crate) program: &'a dyn Program,
    pub(crate) code: MachineCode<'a>,
    pub(crate) interpreter: Interpreter,
    pub(crate) work: Work<'a>,
    /// Whether instructions have addresses as constants.
    pub(crate) has_fixed_addresses: bool,
    /// Functions that are called directly, or that symbols name.
    pub(crate) called: BTreeSet<u64>,
    /// Addresses that are functions if their code confirms it: pointers and targets of tail jumps.
    pub(crate) likely: BTreeSet<u64>,
    /// Functions and slots that never return.
    pub(crate) never_return: HashSet<u64>,
    /// Addresses of data that instructions load: a jump table ends before the next one.
    pub(crate) data_addresses: BTreeSet<u64>,
    /// Memory for the blocks of the next function.
    pub(crate) spare_blocks: Blocks,
}

impl Knowledge<'_> {
    /// The addresses that belong to the function at `start`, as far as the starts of others limit them.
    pub(crate) fn extent(&self, start: u64) -> Range<u64> {
        let end = self.code.range(start).map_or(start, |range| range.end);
        start..end.min(self.next_function(start))
    }

    /// The start of the first known function behind an address.
    pub(crate) fn next_function(&self, address: u64) -> u64 {
        self.called.range(address.saturating_add(1)..).next().copied().unwrap_or(u64::MAX)
    }

    /// The addresses of a sequence of code in a window and up to the end of its last block. It is at most as long as an
    /// instruction can be.
    pub(crate) fn addresses_of(&mut self, sequence: &[u8], window: &Range<u64>) -> Result<Vec<u64>, Error> {
        let mut addresses = Vec::new();
        let mut address = window.start;
        while address < window.end {
            let Some(code) = self.code.rest_of_block(address) else { break };
            let searched = code.len().saturating_sub(MAX_INSTRUCTION_BYTES as usize).max(1) as u64;
            let offsets = memchr::memmem::find_iter(code, sequence).map(|offset| offset as u64);
            let found: Vec<_> = offsets.filter(|offset| *offset < searched).collect();
            // Behind the end of the code the block has zeros.
            let is_code =
                |place: &u64| self.code.bytes(*place).is_some_and(|code| code.starts_with(sequence));
            addresses.extend(found.into_iter().map(|offset| address + offset).filter(is_code));
            self.work.spend(searched / 64 + 1)?;
            address += searched;
        }
        Ok(addresses)
    }

    /// Adds an address that instructions load.
    pub(crate) fn add_data_address(&mut self, address: u64) {
        if self.data_addresses.len() < MAX_DATA_ADDRESSES {
            self.data_addresses.insert(address);
        }
    }

    /// The addresses of the function that contains an address.
    pub(crate) fn extent_around(&self, address: u64) -> Range<u64> {
        let start = self.called.range(..=address).next_back().copied();
        let start = start.or_else(|| Some(self.code.range(address)?.start)).unwrap_or(address);
        start..self.extent(address).end
    }

    /// Whether a call to a function, or through a slot, never returns.
    pub(crate) fn never_returns(&self, function_or_slot: u64) -> bool {
        self.never_return.contains(&function_or_slot)
    }

    /// The function that a slot holds the address of; `None` if it leads behind the jump through it in a PLT entry, as it does
    /// until a function is bound (lazy binding, `IRELATIVE`; System V ABI AMD64, 5.2).
    pub(crate) fn function_of_slot(&mut self, slot: u64) -> Option<u64> {
        let target = self.program.pointer(slot).filter(|address| self.code.contains(*address))?;
        let jump = self.code.decode(target.wrapping_sub(JUMP_THROUGH_SLOT_BYTES));
        let is_unbound = jump.is_some_and(|jump| {
            jump.mnemonic() == Mnemonic::Jmp
                && jump.is_ip_rel_memory_operand()
                && jump.ip_rel_memory_address() == slot
        });
        (!is_unbound).then_some(target)
    }

    /// The targets of a jump table. The end of a table whose number of entries is not known is where the next table
    /// begins, or where an entry does not lead into the function.
    pub(crate) fn table_targets(&mut self, jump: &TableJump, extent: &Range<u64>) -> Result<Vec<u64>, Error> {
        let is_bounded = jump.entries > 0;
        let limit = if is_bounded { jump.entries.into() } else { MAX_UNBOUNDED_ENTRIES };
        let next_data = self.data_addresses.range(jump.table.saturating_add(1)..).next().copied();
        let end = next_data.filter(|_| !is_bounded).unwrap_or(u64::MAX);
        let mut targets = Vec::new();
        for index in 0..limit {
            self.work.spend(1)?;
            let place = jump.table.wrapping_add(index * jump.entry_bytes);
            if place >= end {
                break;
            }
            let Some(target) = self.table_entry(jump, place) else { break };
            let is_near = target.abs_diff(jump.address) <= MAX_TABLE_JUMP_BYTES;
            if !is_near || !self.code.contains(target) {
                break;
            }
            if !is_bounded && !extent.contains(&target) {
                // Tables of pointers have entries of other functions among theirs; offsets do not.
                if jump.entry_bytes == 8 {
                    continue;
                }
                break;
            }
            targets.push(target);
        }
        targets.sort_unstable();
        targets.dedup();
        Ok(targets)
    }

    fn table_entry(&self, jump: &TableJump, place: u64) -> Option<u64> {
        if jump.entry_bytes == 8 {
            return self.program.pointer(place);
        }
        let mut offset = [0; 4];
        let is_read = self.program.read(place, &mut offset);
        is_read.then(|| jump.table.wrapping_add_signed(i32::from_le_bytes(offset).into()))
    }
}

/// An indirect jump through a table.
pub(crate) struct TableJump {
    /// The address of the jump instruction.
    pub(crate) address: u64,
    pub(crate) table: u64,
    /// 0 when not known.
    pub(crate) entries: u32,
    pub(crate) entry_bytes: u64,
}
