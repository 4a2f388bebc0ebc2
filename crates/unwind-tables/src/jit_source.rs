//! The call frame information of JIT code: one `.eh_frame` section for each function, as a jitdump has it.

use std::{
    hash::{Hash, Hasher},
    ops::Range,
};

use profiler_addresses::{ElfAddress, RuntimeAddress};
use profiler_binary_reader::{Image, ParseError};
use profiler_elf_symbols::{CallFrameKind, CallFrames, Machine};

use crate::{architecture::Architecture, cfi::CodeLayout, cfi_entries::HashedSection, table::UnwindTable};

/// One function of JIT code.
#[derive(Clone, Debug)]
pub struct JitFunction<'a> {
    /// Its code.
    pub code: Range<RuntimeAddress>,
    /// The `.eh_frame` section of this function. Addresses in it are relative to their places (`DW_EH_PE_pcrel`).
    pub eh_frame: &'a [u8],
    /// The address at which the section is.
    pub eh_frame_address: RuntimeAddress,
}

/// Everything that the unwind table of JIT code depends on. Addresses of the table are relative to the start of the memory.
pub(crate) struct JitSource {
    code: CodeLayout,
    functions: Vec<(Range<u64>, HashedSection)>,
}

impl JitSource {
    /// Reads the call frame information of functions in one range of memory. Functions outside of it and malformed sections are
    /// left out.
    pub(crate) fn read<'a>(
        machine: Machine,
        memory: Range<RuntimeAddress>,
        functions: impl IntoIterator<Item = JitFunction<'a>>,
    ) -> Self {
        let all = 0..memory.end.0.saturating_sub(memory.start.0);
        let functions = functions.into_iter().filter_map(|function| read_function(&function, &memory));
        let code = CodeLayout {
            architecture: Architecture::for_machine(machine),
            code_ranges: [all].into(),
            known_code: Vec::new(),
            instructions: None,
            small_gaps: None,
            managed_code: None,
            go: None,
        };
        Self { code, functions: functions.collect() }
    }

    /// Compiles the table; empty when no function has usable call frame information.
    ///
    /// # Errors
    /// [`ParseError::TooLarge`] when a limit is exceeded or `should_continue` returns `false`.
    pub(crate) fn compile(&self, should_continue: &dyn Fn() -> bool) -> Result<UnwindTable, ParseError> {
        self.code.compile_each(&self.functions, should_continue)
    }
}

impl Hash for JitSource {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.code.code_ranges.hash(state);
        self.functions.hash(state);
    }
}

fn read_function(
    function: &JitFunction<'_>,
    memory: &Range<RuntimeAddress>,
) -> Option<(Range<u64>, HashedSection)> {
    let JitFunction { code, eh_frame, eh_frame_address } = function;
    if code.start < memory.start || code.end > memory.end {
        return None;
    }
    let offset = |address: RuntimeAddress| address.0.wrapping_sub(memory.start.0);
    let section = CallFrames {
        kind: CallFrameKind::EhFrame,
        content: Image::Memory(eh_frame.to_vec()),
        address: ElfAddress(offset(*eh_frame_address)),
    };
    Some((offset(code.start)..offset(code.end), HashedSection::read(section).ok()?))
}

#[cfg(test)]
mod tests {
    use profiler_common::unwind::{CfaRule, Rule};

    use super::*;
    use crate::test_cfi::x86_64_rule;

    const MEMORY: Range<RuntimeAddress> = RuntimeAddress(0x7f12_3456_7000)..RuntimeAddress(0x7f12_3456_9000);

    /// `DW_EH_PE_pcrel | DW_EH_PE_sdata4`, as V8 and CPython write.
    const PCREL_SDATA4: u8 = 0x1b;

    fn at(offset: u64) -> RuntimeAddress {
        RuntimeAddress(MEMORY.start.0 + offset)
    }

    /// A section for code of 16 bytes: from offset 4 on, its frame has `frame_bytes` more.
    fn eh_frame(code_address: u64, section_address: u64, frame_bytes: u8) -> Vec<u8> {
        let entry = |id: u32, body: &[u8]| {
            let mut entry = [&id.to_le_bytes()[..], body].concat();
            entry.resize(entry.len().next_multiple_of(4), 0);
            [&(entry.len() as u32).to_le_bytes()[..], &entry].concat()
        };
        // CFA rsp + 8, return address at CFA - 8
        let cie = entry(0, &[1, b'z', b'R', 0, 1, 0x78, 16, 1, PCREL_SDATA4, 0x0c, 7, 8, 0x90, 1]);
        let place = section_address + cie.len() as u64 + 8;
        let distance = code_address.wrapping_sub(place) as u32;
        let range = [distance.to_le_bytes(), 16_u32.to_le_bytes()].concat();
        // advance by 4, CFA offset
        let fde = entry(cie.len() as u32 + 4, &[&range[..], &[0, 0x44, 0x0e, 8 + frame_bytes]].concat());
        [cie, fde, vec![0; 4]].concat()
    }

    fn function(start: u64, frame_bytes: u8, content: &mut Vec<u8>) -> JitFunction<'_> {
        let code = at(start)..at(start + 16);
        *content = eh_frame(code.start.0, code.end.0, frame_bytes);
        JitFunction { eh_frame_address: code.end, code, eh_frame: content }
    }

    fn rules(source: &JitSource, offsets: &[u64]) -> Vec<Rule> {
        let table = source.compile(&|| true).unwrap();
        table.assert_valid();
        let pages: Vec<_> = table.pages().collect();
        offsets.iter().map(|offset| table.find_rule(&pages, *offset)).collect()
    }

    #[test]
    fn functions_have_the_rows_of_their_own_sections() {
        let (mut one, mut other) = (Vec::new(), Vec::new());
        let functions = [function(0x1010, 32, &mut other), function(0x40, 16, &mut one)];
        let source = JitSource::read(Machine::X86_64, MEMORY, functions);
        let frame = |bytes| x86_64_rule(CfaRule::StackPointer, bytes);
        let offsets = [0x3f, 0x40, 0x44, 0x4f, 0x50, 0x1010, 0x1014, 0x1020];
        let expected = [
            Rule::default(),
            frame(8),
            frame(24),
            frame(24),
            Rule::default(),
            frame(8),
            frame(40),
            Rule::default(),
        ];
        assert_eq!(rules(&source, &offsets), expected);
    }

    #[test]
    fn a_section_describes_no_code_but_that_of_its_function() {
        let (mut one, mut other, mut third) = (Vec::new(), Vec::new(), Vec::new());
        let mut of_other_code = function(0x40, 16, &mut one);
        of_other_code.code = at(0x80)..at(0x90);
        let mut longer = function(0x100, 16, &mut other);
        longer.code.end = at(0x108);
        let mut outside = function(0x200, 16, &mut third);
        outside.code.end = RuntimeAddress(MEMORY.end.0 + 1);
        let source = JitSource::read(Machine::X86_64, MEMORY, [of_other_code, longer, outside]);
        let frame = x86_64_rule(CfaRule::StackPointer, 24);
        let unknown = Rule::default();
        let offsets = [0x44, 0x84, 0x107, 0x108, 0x204];
        assert_eq!(rules(&source, &offsets), [unknown, unknown, frame, unknown, unknown]);
    }

    #[test]
    fn malformed_sections_are_left_out() {
        let mut valid = Vec::new();
        let valid = function(0x40, 16, &mut valid);
        let sections: [&[u8]; 5] = [&[], &[1], &[0xff; 64], &valid.eh_frame[..30], &[0; 8]];
        let malformed = sections.iter().enumerate().map(|(index, section)| {
            let start = at(0x100 + 0x20 * index as u64);
            JitFunction {
                code: start..RuntimeAddress(start.0 + 16),
                eh_frame: section,
                eh_frame_address: start,
            }
        });
        let source = JitSource::read(Machine::X86_64, MEMORY, malformed.chain([valid.clone()]));
        assert_eq!(rules(&source, &[0x44]), [x86_64_rule(CfaRule::StackPointer, 24)]);
        assert_eq!(source.compile(&|| true).unwrap().statistics().functions, 1);
    }

    #[test]
    fn a_compilation_is_cancelled() {
        let mut content = Vec::new();
        let source = JitSource::read(Machine::X86_64, MEMORY, [function(0x40, 16, &mut content)]);
        assert_eq!(source.compile(&|| false).err(), Some(ParseError::TooLarge));
    }
}
