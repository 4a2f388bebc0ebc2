//! The unwind information of an ELF file: the function table of Go, `.eh_frame`, `.debug_frame` where the first has no FDE, and the PLTs.

use std::{
    hash::{Hash, Hasher},
    ops::Range,
};

use profiler_binary_reader::ParseError;
use profiler_common::unwind::{CfaRule, Rule};
use profiler_elf_symbols::{Elf, Machine, Sections};
use profiler_stack_height::{MAX_PROGRAM_START_BYTES, ProgramStart};

use crate::{
    architecture::Architecture,
    cfi::CodeLayout,
    cfi_entries::HashedSection,
    coverage::{Coverage, disjoint},
    go_rows::GoRows,
    instruction_rows::{Instructions, total_bytes},
    managed_code::ManagedCode,
    rule::rule_without_offsets,
    small_gaps::SmallGaps,
    table::UnwindTable,
};

/// The bytes of all sections: several times that of the largest libraries.
const MAX_SECTION_BYTES: u64 = 32 << 20;

/// The call frame information of a file that describes all of its code has at least this part of the size of the code.
const CODE_BYTES_PER_CFI_BYTE: u64 = 16;

/// The least bytes of the gaps between functions with call frame information for which a whole file is analysed. Most files have 200 to
/// 400: the code that runs at their start and end.
const MIN_GAP_BYTES: u64 = 4 << 10;

/// The most bytes of gaps whose rows take little time, about 20 ms, whatever part of the code they are.
const MAX_CHEAP_GAP_BYTES: u64 = 64 << 10;

/// Larger gaps are at least this part of the code. In a file that is described otherwise, they are rather data than code.
const CODE_BYTES_PER_GAP_BYTE: u64 = 8;

/// The functions whose ranges are compared in at most 20 ms, whatever the gaps between them. Files with more of them are the largest
/// programs and libraries.
const MAX_COMPARED_FUNCTIONS: u64 = 64 << 10;

/// In files with more functions, smaller gaps are not found: the ranges are compared only if the lengths of functions leave more of the
/// code.
const CODE_BYTES_PER_SMALL_GAP_BYTE: u64 = 32;

/// The mean padding behind a function that is aligned to 16 bytes.
const MEAN_PADDING_BYTES: u64 = 8;

/// The number of code segments of one file. Real files have a few.
const MAX_CODE_SEGMENTS: usize = 32;

/// Everything of an ELF file that its unwind table depends on.
pub(crate) struct ElfSource {
    machine: Machine,
    code: CodeLayout,
    /// The call frame information. Where several sections cover an address, the first of them is used.
    sections: Vec<HashedSection>,
}

impl ElfSource {
    /// Reads the sections. `find_debug_file` is called for a file whose call frame information cannot describe its code.
    pub(crate) fn read(
        elf: &Elf,
        find_debug_file: impl FnOnce(&Elf) -> Option<Elf>,
    ) -> Result<Self, ParseError> {
        let machine = elf.machine();
        let architecture = Architecture::for_machine(machine);
        // Without section headers, the program headers locate `.eh_frame`.
        let headers = elf.sections().unwrap_or_default();
        let plts = architecture.plt_sections.iter();
        let plts = plts.filter_map(|(name, rule)| Some((headers.find(name)?.addresses(), *rule)));
        let known_code = plts.chain(program_start(elf)).collect();
        let code_ranges = elf.code_ranges().take(MAX_CODE_SEGMENTS).collect();
        let text_ranges = match headers.code_ranges() {
            ranges if ranges.is_empty() => elf.code_ranges().collect(),
            ranges => ranges,
        };
        // Malformed tables, code, relocations or symbols are no reason to do without the call frame information.
        let go = GoRows::read(elf, &headers).unwrap_or(None);
        let of_go = Coverage::of(go.iter().map(GoRows::code));
        let text_ranges =
            disjoint(text_ranges).into_iter().flat_map(|range| of_go.gaps(range)).collect::<Vec<_>>();
        let mut sections = read_sections(elf, &headers)?;
        if !can_describe(&sections, &text_ranges)
            && let Some(debug_frame) =
                find_debug_file(elf).and_then(|debug_file| read_debug_frame(&debug_file))
        {
            sections.push(debug_frame);
        }
        let managed_code = ManagedCode::read(elf, &headers).unwrap_or(None);
        let mut code = CodeLayout {
            architecture,
            code_ranges,
            known_code,
            instructions: None,
            small_gaps: None,
            managed_code,
            go,
        };
        add_instructions(&mut code, elf, &headers, &sections, text_ranges);
        Ok(Self { machine, code, sections })
    }

    /// Compiles the table; empty when the file has neither call frame information nor instructions to compute rows from.
    pub(crate) fn compile(&self, should_continue: &dyn Fn() -> bool) -> Result<UnwindTable, ParseError> {
        if self.sections.is_empty() && self.code.instructions.is_none() && self.code.go.is_none() {
            return Ok(UnwindTable::default());
        }
        self.code.compile(&self.sections, should_continue)
    }
}

impl Hash for ElfSource {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.machine.hash(state);
        self.code.code_ranges.hash(state);
        self.code.known_code.hash(state);
        self.sections.hash(state);
        self.code.instructions.hash(state);
        self.code.small_gaps.hash(state);
        self.code.managed_code.hash(state);
        self.code.go.hash(state);
    }
}

/// The start of a program whose entry point has no call frame information, and its rule. The entry point of a library can be that of a
/// function: linkers have used the first one of its code.
fn program_start(elf: &Elf) -> Option<(Range<u64>, Rule)> {
    if elf.machine() != Machine::X86_64 {
        return None;
    }
    let (offset, rest) = elf.layout().rest_from(elf.entry())?;
    let bytes = MAX_PROGRAM_START_BYTES.min(rest);
    let code = elf.image().read(offset.0, bytes, MAX_PROGRAM_START_BYTES).ok()?;
    let program_start = ProgramStart::decode(&code)?;
    let is_program = !elf.is_position_independent() || program_start.clears_frame_pointer;
    let start = elf.entry().0;
    let range = start..start.saturating_add(program_start.bytes);
    is_program.then(|| (range, rule_without_offsets(CfaRule::Root)))
}

/// Reads `.eh_frame`, then `.debug_frame`: a compiler writes the second one alone with `-fno-asynchronous-unwind-tables`, and
/// objects of both kinds are linked together.
fn read_sections(elf: &Elf, headers: &Sections) -> Result<Vec<HashedSection>, ParseError> {
    let eh_frame = elf.eh_frame(headers, MAX_SECTION_BYTES)?;
    let rest = MAX_SECTION_BYTES - eh_frame.as_ref().map_or(0, |section| section.content.length());
    let debug_frame = match elf.debug_frame(headers, rest) {
        // One that cannot be read is no reason to do without the other.
        Err(_) if eh_frame.is_some() => None,
        debug_frame => debug_frame?,
    };
    eh_frame.into_iter().chain(debug_frame).map(HashedSection::read).collect()
}

/// Reads `.debug_frame` of a debug file, whose addresses are those of the stripped file; `None` if it cannot be read.
fn read_debug_frame(debug_file: &Elf) -> Option<HashedSection> {
    let headers = debug_file.sections().ok()?;
    let section = debug_file.debug_frame(&headers, MAX_SECTION_BYTES).ok()??;
    HashedSection::read(section).ok()
}

/// Whether sections are large enough to describe all of the code.
fn can_describe(sections: &[HashedSection], code_ranges: &[Range<u64>]) -> bool {
    let cfi_bytes: u64 = sections.iter().map(|section| section.frames.content.length()).sum();
    cfi_bytes.saturating_mul(CODE_BYTES_PER_CFI_BYTE) >= total_bytes(code_ranges)
}

/// Reads the instructions of code without call frame information: of a whole file, or of its small gaps alone, whichever is worth what
/// it costs.
fn add_instructions(
    code: &mut CodeLayout,
    elf: &Elf,
    headers: &Sections,
    sections: &[HashedSection],
    text_ranges: Vec<Range<u64>>,
) {
    if !Instructions::can_read(elf) {
        return;
    }
    if can_describe(sections, &text_ranges) {
        if !may_have_gaps(sections, &text_ranges) {
            return;
        }
        let Ok(gaps) = code.gaps(sections, &text_ranges) else { return };
        if !are_worth_a_file(&gaps, &text_ranges) {
            // Without sections, the gaps of a segment have data as well.
            if !headers.code_ranges().is_empty() {
                code.small_gaps = SmallGaps::read(elf, &gaps).map(Box::new);
            }
            return;
        }
    }
    code.instructions = Instructions::read(elf, text_ranges).ok().map(Box::new);
}

/// Whether code without an FDE is searched for: in a file of usual size, or where there is more than padding by the lengths of functions
/// alone.
fn may_have_gaps(sections: &[HashedSection], text_ranges: &[Range<u64>]) -> bool {
    let functions = sections.iter().map(|section| section.functions).fold(0, u64::saturating_add);
    let function_bytes = sections.iter().map(|section| section.function_bytes).fold(0, u64::saturating_add);
    let described = function_bytes.saturating_add(functions.saturating_mul(MEAN_PADDING_BYTES));
    let code_bytes = total_bytes(text_ranges);
    functions <= MAX_COMPARED_FUNCTIONS
        || code_bytes.saturating_sub(described) > code_bytes / CODE_BYTES_PER_SMALL_GAP_BYTE
}

/// Whether rows for the gaps between functions with call frame information are worth an analysis of their file.
fn are_worth_a_file(gaps: &[Range<u64>], text_ranges: &[Range<u64>]) -> bool {
    let (bytes, code_bytes) = (total_bytes(gaps), total_bytes(text_ranges));
    let is_cheap =
        bytes <= MAX_CHEAP_GAP_BYTES || bytes.saturating_mul(CODE_BYTES_PER_GAP_BYTE) >= code_bytes;
    bytes >= MIN_GAP_BYTES && is_cheap
}

#[cfg(test)]
mod tests {
    use std::{
        collections::HashSet,
        hash::{BuildHasher, RandomState},
    };

    use object::elf;
    use profiler_binary_reader::Image;
    use profiler_common::unwind::{FramePointerRule, RuleFlags};
    use profiler_elf_symbols::test_file::{TestFile, function, zlib};
    use profiler_processes::ProcFs;
    use profiler_stack_height::MAX_CODE_ADDRESS;

    use super::*;
    use crate::cfi_entries::KEYS;
    use crate::instruction_rows::{MAX_CODE_BYTES, MAX_LOADED_BYTES};
    use crate::test_cfi::{CODE_ADDRESS, TestCfi, x86_64_rule, x86_64_rule_with_frame_pointer};

    fn read_source(image: Vec<u8>) -> ElfSource {
        read_with_debug_file(image, |_| None)
    }

    fn read_with_debug_file(image: Vec<u8>, find_debug_file: impl FnOnce(&Elf) -> Option<Elf>) -> ElfSource {
        ElfSource::read(&Elf::parse(Image::Memory(image)).unwrap(), find_debug_file).unwrap()
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

    /// A section with a function of 0x80 bytes from `CODE_ADDRESS`, in the format of 64 bits.
    fn debug_frame() -> Vec<u8> {
        let entry = |body: &[&[u8]]| {
            let body = body.concat();
            [&u32::MAX.to_le_bytes()[..], &(body.len() as u64).to_le_bytes(), &body].concat()
        };
        let cie = entry(&[&u64::MAX.to_le_bytes(), &[1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1, 0, 0]]);
        let range = [CODE_ADDRESS.to_le_bytes(), 0x80_u64.to_le_bytes()].concat();
        [cie, entry(&[&0_u64.to_le_bytes(), &range, &[0x48, 0x0e, 24, 0]])].concat()
    }

    /// The rules of the first bytes of code.
    fn rules(source: &ElfSource, addresses: [u64; 3]) -> [Rule; 3] {
        let table = source.compile(&|| true).unwrap();
        table.assert_valid();
        let pages: Vec<_> = table.pages().collect();
        addresses.map(|offset| table.find_rule(&pages, CODE_ADDRESS + offset))
    }

    const BEFORE: Rule = x86_64_rule(CfaRule::StackPointer, 8);
    const AFTER: Rule = x86_64_rule(CfaRule::StackPointer, 24);

    #[test]
    fn debug_frame_is_used_where_eh_frame_has_no_fde_in_each_form() {
        let file = || file().with(".eh_frame", elf::SHT_PROGBITS, eh_frame(8));
        let (bytes, size) = (debug_frame(), debug_frame().len() as u64);
        let files = [
            file().with(".debug_frame", elf::SHT_PROGBITS, bytes.clone()),
            file().compressed(".debug_frame", elf::ELFCOMPRESS_ZLIB, size, &zlib(&bytes)),
        ];
        for file in files {
            let rules = rules(&read_source(file.bytes()), [7, 8, 0x7f]);
            assert_eq!(rules, [BEFORE, AFTER, AFTER], "of the call frame information alone");
        }
    }

    #[test]
    fn debug_frame_alone_is_used() {
        for empty in [Vec::new(), vec![0; 4], TestCfi::x86_64().bytes] {
            let file = file().with(".eh_frame", elf::SHT_PROGBITS, empty);
            let file = file.with(".debug_frame", elf::SHT_PROGBITS, debug_frame());
            assert_eq!(rules(&read_source(file.bytes()), [0, 7, 8]), [BEFORE, BEFORE, AFTER]);
        }
    }

    #[test]
    fn debug_frame_of_the_debug_file_is_used_where_the_file_has_little_call_frame_information() {
        let debug_file = || TestFile::with_code().with(".debug_frame", elf::SHT_PROGBITS, debug_frame());
        let open = |file: TestFile| Elf::parse(Image::Memory(file.bytes())).ok();
        let stripped = || TestFile::with_code().code_segment(0, CODE_ADDRESS, 0x1000);
        let with_own = || stripped().with(".eh_frame", elf::SHT_PROGBITS, eh_frame(8));

        let source = read_with_debug_file(with_own().bytes(), |_| open(debug_file()));
        assert_eq!(rules(&source, [7, 8, 0x7f]), [BEFORE, AFTER, AFTER]);
        let hash = |source: &ElfSource| RandomState::hash_one(&KEYS, source);
        assert_ne!(hash(&source), hash(&read_source(with_own().bytes())));

        let malformed = TestFile::with_code().with(".debug_frame", elf::SHT_PROGBITS, vec![0xff; 3]);
        let source = read_with_debug_file(with_own().bytes(), |_| open(malformed));
        assert_eq!(rules(&source, [0, 6, 7]), [BEFORE; 3]);

        let functions =
            (0..20).fold(TestCfi::x86_64(), |cfi, index| cfi.function(CODE_ADDRESS + index, 1, &[]));
        let described = stripped().with(".eh_frame", elf::SHT_PROGBITS, functions.bytes);
        read_with_debug_file(described.bytes(), |_| panic!("the file describes its code"));
    }

    /// `push rbp; nop ...; pop rbp; ret` of 128 bytes.
    fn function_without_cfi() -> Vec<u8> {
        [&[0x55][..], &[0x90; 125], &[0x5d, 0xc3]].concat()
    }

    #[test]
    fn large_gaps_of_a_file_with_call_frame_information_have_rows_from_instructions() {
        const GAP_OFFSET: u64 = 0x4000;
        let source = |gap_bytes: u64| {
            // The file has more call frame information than a sixteenth of its code.
            const FUNCTION_BYTES: u64 = 0x100;
            let starts = (CODE_ADDRESS..CODE_ADDRESS + GAP_OFFSET).step_by(FUNCTION_BYTES as usize);
            let cfi = starts.fold(TestCfi::x86_64(), |cfi, start| cfi.function(start, FUNCTION_BYTES, &[]));
            let without_cfi = function_without_cfi().repeat((gap_bytes / 128) as usize);
            let code = [vec![0x90; GAP_OFFSET as usize], without_cfi].concat();
            let file = TestFile::with_code().code_at(".code", CODE_ADDRESS, code);
            read_source(file.with(".eh_frame", elf::SHT_PROGBITS, cfi.bytes).bytes())
        };
        let first = |source: &ElfSource| rules(source, [GAP_OFFSET, GAP_OFFSET + 1, GAP_OFFSET + 127]);
        let by_instructions = |cfa_offset, frame_pointer, offset| Rule {
            return_address: RuleFlags::BY_INSTRUCTIONS,
            ..x86_64_rule_with_frame_pointer(CfaRule::StackPointer, cfa_offset, frame_pointer, offset)
        };
        let outside = by_instructions(8, FramePointerRule::Same, 0);
        let inside = by_instructions(16, FramePointerRule::Same, 0);
        let (large, small) = (source(MIN_GAP_BYTES), source(MIN_GAP_BYTES - 128));
        assert_eq!([first(&large), first(&small)], [[outside, inside, outside]; 2]);
        assert!(large.code.instructions.is_some() && small.code.instructions.is_none());
    }

    /// The claim alone would cost the time of 2 MiB of code.
    #[test]
    fn code_whose_bytes_are_not_in_the_file_is_not_analysed() {
        let code = function_without_cfi().repeat(4);
        let file = TestFile::with_code().code_at(".text", CODE_ADDRESS, code);
        let image = file.code_segment(0, CODE_ADDRESS + 0x1000, 2 << 20);
        let mut image = image.bytes();
        // Without section headers, segments tell where code is.
        image[0x28..0x30].fill(0);
        image[0x3c..0x40].fill(0);
        let length = image.len() as u64;
        let instructions = read_source(image).code.instructions.unwrap();
        let text = total_bytes(instructions.readable_text());
        assert!((512..=512 + length).contains(&text), "{text} bytes of code in a file of {length}");
    }

    /// The first function of a library's code has been its entry point.
    #[test]
    fn the_start_of_a_program_is_a_root() {
        const EXEC: u16 = 2;
        const DYN: u16 = 3;
        // xor %ebp, %ebp; call *%rax; hlt, and pop %rdi; nop; call *%rax; hlt
        let (clears, other) = ([0x31, 0xed, 0xff, 0xd0, 0xf4], [0x5f, 0x90, 0xff, 0xd0, 0xf4]);
        let has_root = |code: [u8; 5], kind: u16| {
            let file = TestFile::with_code().code_at(".text", CODE_ADDRESS, code.to_vec());
            let mut bytes = file.bytes();
            // e_type and e_entry.
            bytes[0x10..0x12].copy_from_slice(&kind.to_le_bytes());
            bytes[0x18..0x20].copy_from_slice(&CODE_ADDRESS.to_le_bytes());
            rules(&read_source(bytes), [0, 3, 4]).map(|rule| rule.cfa == CfaRule::Root as u8)
        };
        let (root, none) = ([true, true, false], [false; 3]);
        let programs = [(clears, EXEC), (clears, DYN), (other, EXEC), (other, DYN)];
        assert_eq!(programs.map(|(code, kind)| has_root(code, kind)), [root, root, root, none]);
    }

    /// `main` does not return, is not aligned, and only an entry point with call frame information has its address.
    #[test]
    fn main_is_found_by_the_entry_point() {
        const MAIN_OFFSET: u64 = 45;
        const EXEC: u16 = 2;
        const DYN: u16 = 3;
        // mov $main, %rdi, and lea main(%rip), %rdi
        let fixed = [&[0x48, 0xc7, 0xc7][..], &((CODE_ADDRESS + MAIN_OFFSET) as u32).to_le_bytes()].concat();
        let relative = [&[0x48, 0x8d, 0x3d][..], &(MAIN_OFFSET as u32 - 7).to_le_bytes()].concat();
        let in_main = |load: &[u8], kind: u16| {
            // call *%rax; hlt
            let mut code = [load, &[0xff, 0xd0, 0xf4]].concat();
            code.resize(MAIN_OFFSET as usize, 0xcc);
            // push %rbx; call *%rax; hlt
            code.extend([0x53, 0xff, 0xd0, 0xf4]);
            // More code than the call frame information can describe.
            code.resize(0x1000, 0xcc);
            let file = TestFile::with_code().code_at(".text", CODE_ADDRESS, code);
            let mut bytes = file.with(".eh_frame", elf::SHT_PROGBITS, eh_frame(10)).bytes();
            // e_type and e_entry.
            bytes[0x10..0x12].copy_from_slice(&kind.to_le_bytes());
            bytes[0x18..0x20].copy_from_slice(&CODE_ADDRESS.to_le_bytes());
            rules(&read_source(bytes), [MAIN_OFFSET + 1, MAIN_OFFSET + 2, 0])
        };
        let saved = Rule {
            return_address: RuleFlags::BY_INSTRUCTIONS | RuleFlags::RETURNS_BEHIND_CALL,
            ..x86_64_rule(CfaRule::StackPointer, 16)
        };
        let (found, not_found) = ([saved, saved, BEFORE], [Rule::default(), Rule::default(), BEFORE]);
        let programs = [(&fixed, EXEC), (&relative, EXEC), (&relative, DYN), (&fixed, DYN)];
        let rules = programs.map(|(load, kind)| in_main(load, kind));
        assert_eq!(rules, [found, found, found, not_found]);
    }

    /// Tables of functions in the data of a program at fixed addresses have no relocations.
    #[test]
    fn functions_are_found_by_pointers_in_data() {
        const FUNCTION_OFFSET: u64 = 45;
        const DATA_ADDRESS: u64 = CODE_ADDRESS + 0x10_0000;
        const EXEC: u16 = 2;
        const DYN: u16 = 3;
        let in_function = |place: u64, pointer: u64, kind: u16| {
            // Never executed.
            let mut code = vec![0xcc; FUNCTION_OFFSET as usize];
            // push %rbx; call *%rax; hlt
            code.extend([0x53, 0xff, 0xd0, 0xf4]);
            code.resize(0x1000, 0xcc);
            let mut data = vec![0; place as usize];
            data.extend(pointer.to_le_bytes());
            let file = TestFile::with_code().code_at(".text", CODE_ADDRESS, code).data_at(DATA_ADDRESS, data);
            let mut bytes = file.bytes();
            // e_type
            bytes[0x10..0x12].copy_from_slice(&kind.to_le_bytes());
            rules(&read_source(bytes), [FUNCTION_OFFSET + 1, FUNCTION_OFFSET + 2, 0])
        };
        let saved = Rule {
            return_address: RuleFlags::BY_INSTRUCTIONS | RuleFlags::RETURNS_BEHIND_CALL,
            ..x86_64_rule(CfaRule::StackPointer, 16)
        };
        let function = CODE_ADDRESS + FUNCTION_OFFSET;
        assert_eq!(in_function(16, function, EXEC), [saved, saved, Rule::default()]);
        assert_eq!(in_function(16, function, DYN), [Rule::default(); 3], "a number");
        assert_eq!(in_function(12, function, EXEC), [Rule::default(); 3], "between two words");
        assert_eq!(in_function(16, DATA_ADDRESS, EXEC), [Rule::default(); 3], "a pointer to data");
    }

    /// Addresses of a process end far below, and those behind an instruction cannot overflow.
    #[test]
    fn code_at_the_end_of_the_address_space_is_not_analysed() {
        // No function ends: each path runs into the end of the code.
        let code = || vec![0x90; 0x100];
        let text = |end: u64| {
            let source = read_source(TestFile::with_code().code_at(".text", end - 0x100, code()).bytes());
            let _ = source.compile(&|| true);
            total_bytes(source.code.instructions.unwrap().readable_text())
        };
        let highest = MAX_CODE_ADDRESS;
        let ends = [highest, highest + 0x10, highest + 0x100, u64::MAX];
        assert_eq!(ends.map(text), [0x100, 0xf0, 0, 0]);
    }

    /// Whether the function without CFI at an offset in the code has rows.
    fn has_rows(table: &UnwindTable, offset: u64) -> bool {
        let pages: Vec<_> = table.pages().collect();
        let rule = table.find_rule(&pages, CODE_ADDRESS + offset + 1);
        rule.cfa == CfaRule::StackPointer as u8 && rule.cfa_offset == 16
    }

    #[test]
    fn of_too_much_code_without_call_frame_information_the_first_part_has_rows() {
        const MORE_BYTES: u64 = 1 << 20;
        let code = function_without_cfi().repeat(((MAX_CODE_BYTES + MORE_BYTES) / 128) as usize);
        let source = read_source(TestFile::with_code().code_at(".text", CODE_ADDRESS, code).bytes());
        let table = source.compile(&|| true).unwrap();
        table.assert_valid();
        let last = MAX_CODE_BYTES - 128;
        assert_eq!([0, last, last + 128].map(|offset| has_rows(&table, offset)), [true, true, false]);
        assert_eq!(table.statistics().bytes_not_analysed, MORE_BYTES);
    }

    #[test]
    fn sections_that_are_not_loaded_do_not_count_as_size_of_a_file() {
        let code = function_without_cfi().repeat(64);
        let file = TestFile::with_code().code_at(".text", CODE_ADDRESS, code);
        let debug = vec![0; MAX_LOADED_BYTES as usize];
        let source = read_source(file.with(".debug_info", elf::SHT_PROGBITS, debug).bytes());
        let table = source.compile(&|| true).unwrap();
        assert!(has_rows(&table, 0));
        assert_eq!(table.statistics().bytes_not_analysed, 0);
    }

    #[test]
    fn of_a_large_file_the_code_within_the_limit_of_memory_has_rows() {
        let code = || function_without_cfi().repeat(64);
        let (far, bytes) = (2 * MAX_LOADED_BYTES, code().len() as u64);
        let file = TestFile::with_code().code_at(".text", CODE_ADDRESS, code());
        let file = file.with(".data", elf::SHT_PROGBITS, vec![0; MAX_LOADED_BYTES as usize]);
        let source = read_source(file.code_at(".far", CODE_ADDRESS + far, code()).bytes());
        assert_eq!(total_bytes(source.code.instructions.as_ref().unwrap().readable_text()), bytes);
        let table = source.compile(&|| true).unwrap();
        table.assert_valid();
        assert_eq!([0, far].map(|offset| has_rows(&table, offset)), [true, false]);
        assert_eq!(table.statistics().bytes_not_analysed, bytes);
    }

    /// Other symbols lead to other rows, and are not in a segment.
    #[test]
    fn files_whose_symbols_alone_differ_have_different_hashes() {
        let hash = |symbols: &[_]| {
            let file = TestFile::with_code().code_at(".text", CODE_ADDRESS, function_without_cfi());
            let source = read_source(file.symbols(elf::SHT_SYMTAB, symbols).bytes());
            RandomState::hash_one(&KEYS, &source)
        };
        assert_ne!(hash(&[function("f", CODE_ADDRESS, 9)]), hash(&[function("f", CODE_ADDRESS + 1, 9)]));
    }

    #[test]
    fn code_that_two_segments_have_is_analysed_once() {
        let code = function_without_cfi().repeat(4);
        let file = TestFile::with_code().code_at(".text", CODE_ADDRESS, code.clone());
        let source = read_source(file.code_at(".copy", CODE_ADDRESS, code).bytes());
        let table = source.compile(&|| true).unwrap();
        table.assert_valid();
        assert_eq!(total_bytes(source.code.instructions.unwrap().readable_text()), 512);
    }

    #[test]
    fn a_malformed_debug_frame_leaves_the_rows_of_eh_frame() {
        let large = vec![0; MAX_SECTION_BYTES as usize];
        for malformed in [vec![0xff; 3], large] {
            let file = file().with(".eh_frame", elf::SHT_PROGBITS, eh_frame(8));
            let file = file.with(".debug_frame", elf::SHT_PROGBITS, malformed);
            assert_eq!(rules(&read_source(file.bytes()), [0, 6, 7]), [BEFORE; 3]);
        }
    }

    fn by_call_frame_information(rule: Rule) -> Option<Rule> {
        (rule != Rule::default() && rule.return_address & RuleFlags::BY_INSTRUCTIONS == 0).then_some(rule)
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
        let code = Elf::parse(Image::Memory(without_sections.clone())).unwrap();
        let code: Vec<_> = code.code_ranges().flatten().collect();
        let without_sections = table(without_sections);
        let [found, expected] = [&without_sections, &with_sections].map(|table| {
            let pages: Vec<_> = table.pages().collect();
            let rules = code.iter().map(|address| table.find_rule(&pages, *address));
            // Gaps of sections alone have rows from instructions.
            rules.map(by_call_frame_information).collect::<Vec<_>>()
        });
        assert_eq!(found, expected);
    }
}
