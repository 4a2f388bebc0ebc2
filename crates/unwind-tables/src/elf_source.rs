//! The unwind information of an ELF file: `.eh_frame`, or else `.debug_frame`, and the PLTs.

use std::{
    hash::{Hash, Hasher},
    ops::Range,
};

use profiler_addresses::ElfAddress;
use profiler_binary_reader::{Image, ParseError};
use profiler_common::unwind::{CfaRule, Rule};
use profiler_elf_symbols::{CallFrameKind, CallFrames, Elf, Machine};
use profiler_stack_height::{PROGRAM_START_BYTES, program_start_at};

use crate::{
    architecture::Architecture,
    cfi::CodeLayout,
    cfi_entries::{EntryReader, content_hash},
    instruction_rows::Instructions,
    rule::rule_without_offsets,
    table::UnwindTable,
};

/// The largest section: several times that of the largest libraries.
const MAX_SECTION_BYTES: u64 = 32 << 20;

/// The number of code segments of one file. Real files have a few.
const MAX_CODE_SEGMENTS: usize = 32;

/// Everything of an ELF file that its unwind table depends on.
pub(crate) struct ElfSource {
    machine: Machine,
    code: CodeLayout,
    /// With the hash of its content.
    call_frames: Option<(CallFrames, u64)>,
}

impl ElfSource {
    /// Reads the sections.
    pub(crate) fn read(elf: &Elf) -> Result<Self, ParseError> {
        let machine = elf.machine();
        let architecture = Architecture::for_machine(machine);
        // Without section headers, the program headers locate `.eh_frame`.
        let sections = elf.sections().unwrap_or_default();
        let plts = architecture.plt_sections.iter();
        let plts = plts.filter_map(|(name, rule)| Some((sections.find(name)?.addresses(), *rule)));
        let known_code = plts.chain(program_start(elf)).collect();
        let code_ranges = elf.code_ranges().take(MAX_CODE_SEGMENTS).collect();
        // Compilers of languages without exceptions may leave `.eh_frame` empty.
        let call_frames = match elf.eh_frame(&sections, MAX_SECTION_BYTES)?.filter(has_fdes) {
            Some(call_frames) => Some(call_frames),
            None => elf.debug_frame(&sections, MAX_SECTION_BYTES)?,
        };
        let with_hash =
            |section| Ok((content_hash(&section)?, section)).map(|(hash, section)| (section, hash));
        let cfi_bytes = call_frames.as_ref().map_or(0, |section| section.content.length());
        // Malformed relocations or symbols are no reason to do without the call frame information.
        let instructions = Instructions::read(elf, &sections, cfi_bytes).unwrap_or(None).map(Box::new);
        let call_frames = call_frames.or_else(|| instructions.is_some().then(no_call_frames));
        let call_frames = call_frames.map(with_hash).transpose()?;
        let code = CodeLayout { architecture, code_ranges, known_code, instructions };
        Ok(Self { machine, code, call_frames })
    }

    /// Compiles the table; empty when the file has no call frame information.
    pub(crate) fn compile(&self, should_continue: &dyn Fn() -> bool) -> Result<UnwindTable, ParseError> {
        match &self.call_frames {
            Some((section, hash)) => self.code.compile(section, *hash, should_continue),
            None => Ok(UnwindTable::default()),
        }
    }
}

impl Hash for ElfSource {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.machine.hash(state);
        self.code.code_ranges.hash(state);
        self.code.known_code.hash(state);
        let call_frames = self.call_frames.as_ref();
        call_frames.map(|(section, hash)| (section.kind as u8, section.address.0, *hash)).hash(state);
        self.code.instructions.hash(state);
    }
}

/// The entry point of a program with musl, which has no call frame information, and its rule.
fn program_start(elf: &Elf) -> Option<(Range<u64>, Rule)> {
    if elf.machine() != Machine::X86_64 {
        return None;
    }
    let (offset, rest) = elf.layout().rest_from(elf.entry())?;
    let bytes = PROGRAM_START_BYTES.min(rest);
    let code = elf.image().read(offset.0, bytes, PROGRAM_START_BYTES).ok()?;
    let start = elf.entry().0;
    program_start_at(&code)
        .then(|| (start..start.saturating_add(PROGRAM_START_BYTES), rule_without_offsets(CfaRule::Root)))
}

/// An empty section.
fn no_call_frames() -> CallFrames {
    CallFrames {
        kind: CallFrameKind::EhFrame,
        content: Image::Memory(Vec::new()),
        address: ElfAddress::default(),
    }
}

/// Whether an `.eh_frame` has an FDE.
fn has_fdes(call_frames: &CallFrames) -> bool {
    let mut entries = EntryReader::new(call_frames);
    while let Ok(Some(entry)) = entries.next() {
        if entry.cie.is_some() {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use std::{
        collections::HashSet,
        hash::{BuildHasher, RandomState},
    };

    use object::elf;
    use profiler_elf_symbols::test_file::{TestFile, function};
    use profiler_processes::ProcFs;

    use super::*;
    use crate::test_cfi::{CODE_ADDRESS, TestCfi};

    fn read_source(image: Vec<u8>) -> ElfSource {
        ElfSource::read(&Elf::parse(Image::Memory(image)).unwrap()).unwrap()
    }

    /// A file with the code of [`TestCfi`] and a fixed build id.
    fn file() -> TestFile {
        TestFile::with_code().code_segment(0, CODE_ADDRESS, 0x100).build_id(&[7; 20])
    }

    fn eh_frame(function_bytes: u64) -> Vec<u8> {
        TestCfi::x86_64().function(CODE_ADDRESS, function_bytes, &[]).bytes
    }

    #[test]
    fn files_with_one_build_id_and_different_unwind_information_have_different_hashes() {
        let hasher = RandomState::new();
        let hash = |file: TestFile| hasher.hash_one(read_source(file.bytes()));
        let with = |name, contents| file().with(name, elf::SHT_PROGBITS, contents);
        let hashes = [
            file(),
            with(".eh_frame", eh_frame(8)),
            with(".eh_frame", eh_frame(9)),
            with(".debug_frame", eh_frame(8)),
            with(".eh_frame", eh_frame(8)).code_segment(0x1000, CODE_ADDRESS + 0x1000, 0x100),
            with(".eh_frame", eh_frame(8)).with(".plt", elf::SHT_PROGBITS, vec![0; 32]),
        ]
        .map(hash);
        let distinct: HashSet<u64> = hashes.into();
        assert_eq!(distinct.len(), hashes.len());
        let stripped = with(".eh_frame", eh_frame(8));
        let not_stripped =
            with(".eh_frame", eh_frame(8)).symbols(elf::SHT_SYMTAB, &[function("main", 0x1000, 9)]);
        assert_eq!(hash(stripped), hash(not_stripped));
    }

    #[test]
    fn debug_frame_is_used_when_eh_frame_has_no_fdes() {
        let statistics = |eh_frame: Vec<u8>| {
            let file = file().with(".eh_frame", elf::SHT_PROGBITS, eh_frame);
            let file = file.with(".debug_frame", elf::SHT_PROGBITS, vec![0xff; 3]);
            read_source(file.bytes()).compile(&|| true).unwrap().statistics()
        };
        // The code without CFI is one function, with rows from its instructions.
        assert_eq!((statistics(eh_frame(8)).functions, statistics(eh_frame(8)).malformed_functions), (1, 0));
        for empty in [Vec::new(), vec![0; 4], TestCfi::x86_64().bytes] {
            let statistics = statistics(empty);
            assert_eq!((statistics.functions, statistics.malformed_functions), (1, 1));
        }
    }

    #[test]
    fn the_vdso_has_a_table_with_and_without_its_section_headers() {
        let image = ProcFs::live().vdso().unwrap();
        let table = |image: Vec<u8>| read_source(image).compile(&|| true).unwrap();
        let with_sections = table(image.clone());
        assert!(with_sections.statistics().functions > 0);
        assert_eq!(with_sections.statistics().malformed_functions, 0);

        let mut without_sections = image;
        without_sections[0x28..0x30].fill(0);
        without_sections[0x3c..0x40].fill(0);
        let without_sections = table(without_sections);
        assert!(without_sections.pages().eq(with_sections.pages()));
        assert_eq!(without_sections.rules(), with_sections.rules());
    }
}
