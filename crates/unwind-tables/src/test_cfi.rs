//! A builder of `.eh_frame` sections in memory, valid and invalid, for tests.

use profiler_addresses::ElfAddress;
use profiler_binary_reader::{Image, ParseError};
use profiler_common::unwind::{CfaRule, FramePointerRule, RbxRule, ReturnAddressRule, Rule};
use profiler_elf_symbols::{CallFrameKind, CallFrames, Machine};

pub(crate) use crate::rule::rule_without_offsets;
use crate::{architecture::Architecture, cfi::CodeLayout, cfi_entries::HashedSection, table::UnwindTable};

/// The address of the code.
pub const CODE_ADDRESS: u64 = 0x1_0000;
pub(crate) const CODE_BYTES: u64 = 0x10_0000;

/// `DW_EH_PE_udata8`: absolute addresses of eight bytes.
const ENCODING_UDATA8: u8 = 4;

/// A builder of an `.eh_frame` section.
#[derive(Clone, Default)]
pub struct TestCfi {
    /// The section.
    pub bytes: Vec<u8>,
    /// The offset of the last CIE.
    cie: usize,
}

impl TestCfi {
    /// A section with a CIE of x86-64: CFA rsp + 8, return address at CFA - 8.
    pub fn x86_64() -> Self {
        Self::default().cie("zR", 16, &[0x0c, 7, 8, 0x90, 1])
    }

    /// A section with a CIE of AArch64: CFA sp.
    pub(crate) fn aarch64() -> Self {
        Self::default().cie("zR", 30, &[0x0c, 31, 0])
    }

    /// Adds a CIE for the functions that follow.
    pub(crate) fn cie(mut self, augmentation: &str, return_address: u8, instructions: &[u8]) -> Self {
        self.cie = self.bytes.len();
        const VERSION: u8 = 1;
        const CODE_ALIGNMENT: u8 = 1;
        const DATA_ALIGNMENT_MINUS_8: u8 = 0x78;
        let fixed = [0, CODE_ALIGNMENT, DATA_ALIGNMENT_MINUS_8, return_address, 1, ENCODING_UDATA8];
        self.entry(0, &[&[VERSION], augmentation.as_bytes(), &fixed, instructions].concat());
        self
    }

    /// Adds an FDE.
    pub fn function(mut self, start: u64, bytes: u64, instructions: &[u8]) -> Self {
        let cie_pointer = u32::try_from(self.bytes.len() + 4 - self.cie).unwrap();
        let augmentation_bytes = 0;
        let range = [start.to_le_bytes(), bytes.to_le_bytes()].concat();
        self.entry(cie_pointer, &[&range, &[augmentation_bytes][..], instructions].concat());
        self
    }

    fn entry(&mut self, id: u32, body: &[u8]) {
        let mut entry = [&id.to_le_bytes(), body].concat();
        entry.resize((entry.len() + 4).next_multiple_of(8) - 4, 0);
        self.bytes.extend(u32::try_from(entry.len()).unwrap().to_le_bytes());
        self.bytes.extend(entry);
    }

    /// Compiles the section as that of a file for a machine.
    pub(crate) fn compile(&self, machine: Machine) -> Result<UnwindTable, ParseError> {
        self.compile_for(&code_layout(machine))
    }

    /// Compiles the section for some code.
    pub(crate) fn compile_for(&self, code: &CodeLayout) -> Result<UnwindTable, ParseError> {
        code.compile(&[self.section()], &|| true)
    }

    /// The section with its hash.
    pub(crate) fn section(&self) -> HashedSection {
        let content = Image::Memory(self.bytes.clone());
        HashedSection::read(CallFrames { kind: CallFrameKind::EhFrame, content, address: ElfAddress(0) })
            .unwrap()
    }

    /// The rules of the first `bytes` bytes of code.
    pub(crate) fn rules(&self, machine: Machine, bytes: u64) -> Vec<Rule> {
        let table = self.compile(machine).unwrap();
        table.assert_valid();
        let pages: Vec<_> = table.pages().collect();
        (CODE_ADDRESS..CODE_ADDRESS + bytes).map(|address| table.find_rule(&pages, address)).collect()
    }
}

/// The code of the section, without PLTs.
pub(crate) fn code_layout(machine: Machine) -> CodeLayout {
    let architecture = Architecture::for_machine(machine);
    let all = CODE_ADDRESS..CODE_ADDRESS + CODE_BYTES;
    CodeLayout {
        architecture,
        code_ranges: [all].into(),
        known_code: Vec::new(),
        instructions: None,
        small_gaps: None,
        managed_code: None,
        go: None,
    }
}

/// A rule of x86-64 with the caller's frame pointer in its register.
pub(crate) const fn x86_64_rule(cfa: CfaRule, cfa_offset: i32) -> Rule {
    Rule { cfa: cfa as u8, cfa_offset, return_address_offset: -8, ..rule_without_offsets(cfa) }
}

/// A rule of x86-64 with the caller's frame pointer on the stack.
pub(crate) const fn x86_64_rule_with_frame_pointer(
    cfa: CfaRule,
    cfa_offset: i32,
    frame_pointer: FramePointerRule,
    offset: i16,
) -> Rule {
    let frame_pointer = frame_pointer as u8;
    Rule { frame_pointer, frame_pointer_offset: offset, ..x86_64_rule(cfa, cfa_offset) }
}

/// A rule of AArch64.
pub(crate) fn aarch64_rule(
    cfa_offset: i32,
    (frame_pointer, frame_pointer_offset): (FramePointerRule, i16),
    (return_address, return_address_offset): (ReturnAddressRule, i16),
) -> Rule {
    Rule {
        cfa: CfaRule::StackPointer as u8,
        frame_pointer: frame_pointer as u8,
        return_address: return_address as u8,
        rbx: RbxRule::UNDEFINED,
        frame_pointer_offset,
        return_address_offset,
        cfa_offset,
    }
}
