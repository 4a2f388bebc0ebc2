//! `.eh_frame` sections made in memory, for tests: whatever is asked for, right or wrong.

use object::elf::Machine;
use profiler_common::unwind::{CfaRule, FramePointerRule, ReturnAddressRule, Rule};

pub(super) use super::rule::of_code as whole;
use super::{UnwindTable, architecture::Architecture, eh_frame::Code};
use profiler_addresses::ElfAddress;
use profiler_binary_reader::ParseError;
use profiler_elf_symbols::{CallFrameKind, CallFrames};

/// Where the code is that the sections are about.
pub const CODE_ADDRESS: u64 = 0x1_0000;
pub(super) const CODE_BYTES: u64 = 0x10_0000;

/// Addresses as eight bytes each.
const ENCODING_ABSOLUTE: u8 = 4;

/// A section to be.
#[derive(Clone, Default)]
pub struct TestFrames {
    pub bytes: Vec<u8>,
    /// Where the description is that the next functions share.
    shared: usize,
}

impl TestFrames {
    /// A section whose functions begin as all functions of x86-64 do.
    pub fn x86_64() -> Self {
        // The canonical frame address is rsp + 8, and the return address is stored 8 below it.
        Self::default().shared("zR", 16, &[0x0c, 7, 8, 0x90, 1])
    }

    /// A section whose functions begin as all functions of AArch64 do.
    pub(super) fn aarch64() -> Self {
        // The canonical frame address is sp.
        Self::default().shared("zR", 30, &[0x0c, 31, 0])
    }

    /// Adds a description for the functions that follow.
    pub(super) fn shared(mut self, augmentation: &str, return_address: u8, instructions: &[u8]) -> Self {
        self.shared = self.bytes.len();
        const VERSION: u8 = 1;
        const CODE_ALIGNMENT: u8 = 1;
        const DATA_ALIGNMENT_MINUS_8: u8 = 0x78;
        let fixed = [0, CODE_ALIGNMENT, DATA_ALIGNMENT_MINUS_8, return_address, 1, ENCODING_ABSOLUTE];
        self.entry(0, &[&[VERSION], augmentation.as_bytes(), &fixed, instructions].concat());
        self
    }

    /// Adds a function.
    pub fn function(mut self, start: u64, bytes: u64, instructions: &[u8]) -> Self {
        let to_shared = u32::try_from(self.bytes.len() + 4 - self.shared).unwrap();
        let augmentation_bytes = 0;
        let range = [start.to_le_bytes(), bytes.to_le_bytes()].concat();
        self.entry(to_shared, &[&range, &[augmentation_bytes][..], instructions].concat());
        self
    }

    fn entry(&mut self, id: u32, body: &[u8]) {
        let mut entry = [&id.to_le_bytes(), body].concat();
        entry.resize((entry.len() + 4).next_multiple_of(8) - 4, 0);
        self.bytes.extend(u32::try_from(entry.len()).unwrap().to_le_bytes());
        self.bytes.extend(entry);
    }

    /// Its table, as of a file for that machine.
    pub(super) fn table(&self, machine: Machine) -> Result<UnwindTable, ParseError> {
        let frames = CallFrames {
            kind: CallFrameKind::EhFrame,
            bytes: self.bytes.clone().into(),
            address: ElfAddress(0),
        };
        code(machine).table(&frames, &|| true)
    }

    /// The rule at every byte of the first so many.
    pub(super) fn rules(&self, machine: Machine, bytes: u64) -> Vec<Rule> {
        let table = self.table(machine).unwrap();
        table.check();
        let pages: Vec<_> = table.pages().collect();
        (CODE_ADDRESS..CODE_ADDRESS + bytes).map(|address| table.rule_in(&pages, address)).collect()
    }
}

/// Code without linkage tables.
pub(super) fn code(machine: Machine) -> Code {
    let architecture = Architecture::of_machine(machine).unwrap();
    let all = CODE_ADDRESS..CODE_ADDRESS + CODE_BYTES;
    Code { architecture, addresses: [all].into(), linkage_tables: Vec::new() }
}

/// A rule of x86-64 whose caller's frame pointer is in its register still.
pub(super) const fn plain(cfa: CfaRule, cfa_offset: i32) -> Rule {
    Rule { cfa: cfa as u8, cfa_offset, return_address_offset: -8, ..whole(cfa) }
}

/// A rule of x86-64 with a place for the caller's frame pointer.
pub(super) const fn saved(
    cfa: CfaRule,
    cfa_offset: i32,
    frame_pointer: FramePointerRule,
    offset: i16,
) -> Rule {
    let frame_pointer = frame_pointer as u8;
    Rule { frame_pointer, frame_pointer_offset: offset, ..plain(cfa, cfa_offset) }
}

/// A rule of AArch64.
pub(super) fn linked(
    cfa_offset: i32,
    (frame_pointer, frame_pointer_offset): (FramePointerRule, i16),
    (return_address, return_address_offset): (ReturnAddressRule, i16),
) -> Rule {
    Rule {
        cfa: CfaRule::StackPointer as u8,
        frame_pointer: frame_pointer as u8,
        return_address: return_address as u8,
        reserved: 0,
        frame_pointer_offset,
        return_address_offset,
        cfa_offset,
    }
}
