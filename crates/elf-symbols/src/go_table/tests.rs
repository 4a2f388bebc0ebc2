//! Tests with tables of all versions, in their section and elsewhere, whole and damaged.

use object::elf::{SHF_ALLOC, SHF_EXECINSTR, SHT_PROGBITS};

use super::*;
use crate::{
    machine::Machine,
    test_file::{TEXT_ADDRESS, TestFile},
    test_go_table::{GO_VERSIONS, GoTestFunction, GoVersion, go_table},
};

const MAIN: GoTestFunction<'_> = GoTestFunction {
    name: "main.main",
    file: "/app/main.go",
    lines: &[(10, 4), (12, 300), (9, 16)],
    inlined: &[],
    frame_sizes: &[(0, 4), (40, 300), (0, 16)],
    writes_stack_pointer: false,
    is_top_frame: false,
};
const SERVE: GoTestFunction<'_> = GoTestFunction {
    name: "main.(*Server).Serve",
    file: "/app/serve.go",
    lines: &[(70_000, 32)],
    inlined: &[],
    frame_sizes: &[(0, 32)],
    writes_stack_pointer: true,
    is_top_frame: true,
};

/// Where tests put the code of Go: not at the start of `.text`, as behind code of C.
const TEXT: u64 = TEXT_ADDRESS + 0x100;
const TABLE: u64 = 0x8000;

fn table(version: GoVersion) -> Vec<u8> {
    go_table(version, TEXT, &[MAIN, SERVE])
}

/// A program with this table in a section, and code from [`TEXT_ADDRESS`] on.
fn program(section: &str, table: Vec<u8>) -> TestFile {
    let file = TestFile::with_code().code_segment(0, TEXT_ADDRESS, 0x1000);
    let file = file.with(section, SHT_PROGBITS, table).section_address(TABLE);
    file.section_flags(2, SHF_ALLOC)
}

/// A program with this table in data that has no section, and a section of Go's linker.
fn program_with_moved_table(table: Vec<u8>) -> TestFile {
    let file = TestFile::with_code().code_segment(0, TEXT_ADDRESS, 0x1000);
    file.data_at(TABLE - 16, [vec![0xaa; 16], table].concat()).with(".go.buildinfo", SHT_PROGBITS, vec![1])
}

fn read(file: TestFile) -> Result<Option<(Elf, GoTable)>, ParseError> {
    read_bytes(file.bytes())
}

fn read_bytes(bytes: Vec<u8>) -> Result<Option<(Elf, GoTable)>, ParseError> {
    let elf = Elf::parse(Image::Memory(bytes))?;
    let table = GoTable::read(&elf, &elf.sections()?, &WorkBudget::default())?;
    Ok(table.map(|table| (elf, table)))
}

fn find((elf, table): &(Elf, GoTable), address: u64) -> Option<(u64, String, String, u32)> {
    let found = table.find(elf, ElfAddress(address)).unwrap()?;
    let (file, line) = found.location.unwrap();
    Some((found.start.0, found.name, file, line))
}

fn expected(function: &GoTestFunction<'_>, start: u64, line: u32) -> Option<(u64, String, String, u32)> {
    Some((start, function.name.to_owned(), function.file.to_owned(), line))
}

fn assert_finds_all(file: TestFile, version: GoVersion) {
    let found = read(file).unwrap().unwrap_or_else(|| panic!("{version:?} has no table"));
    let serve = TEXT + 320;
    for (address, function) in [
        (TEXT - 1, None),
        (TEXT, expected(&MAIN, TEXT, 10)),
        (TEXT + 3, expected(&MAIN, TEXT, 10)),
        (TEXT + 4, expected(&MAIN, TEXT, 12)),
        (TEXT + 303, expected(&MAIN, TEXT, 12)),
        (TEXT + 319, expected(&MAIN, TEXT, 9)),
        (serve, expected(&SERVE, serve, 70_000)),
        (serve + 31, expected(&SERVE, serve, 70_000)),
        (serve + 32, None),
        (0, None),
        (u64::MAX, None),
    ] {
        assert_eq!(find(&found, address), function, "{version:?} {address:x}");
    }
}

/// What the runtime knows about the program: the addresses of the table, of its names, and of the code.
fn description(names: u64) -> Vec<u8> {
    let mut words = [0_u64; 24];
    (words[0], words[1], words[22]) = (TABLE, TABLE + names, TEXT);
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The offset of the names in a table of the newest version.
const NAMES_OFFSET: u64 = 8 + 8 * 8;

#[test]
fn functions_files_and_lines_are_found_in_every_version() {
    for version in GO_VERSIONS.into_iter().filter(|version| *version != GoVersion::V26) {
        for section in [".gopclntab", ".data.rel.ro.gopclntab"] {
            assert_finds_all(program(section, table(version)), version);
        }
    }
}

#[test]
fn inlined_code_has_no_line_of_the_function_around_it() {
    let inlined = GoTestFunction { inlined: &[(-1, 4), (3, 300), (-1, 16)], ..MAIN };
    for version in GO_VERSIONS {
        let file = program(".gopclntab", go_table(version, TEXT, &[inlined.clone(), SERVE]));
        let (elf, table) = read(file.data_at(0xa000, description(NAMES_OFFSET))).unwrap().unwrap();
        let line =
            |address| table.find(&elf, ElfAddress(address)).unwrap().unwrap().location.map(|(_, line)| line);
        assert_eq!(
            [TEXT, TEXT + 4, TEXT + 303, TEXT + 304].map(line),
            [Some(10), None, None, Some(9)],
            "{version:?}"
        );
        assert_eq!(line(TEXT + 320), Some(70_000), "{version:?}");
    }
}

#[test]
fn the_sizes_of_frames_are_read_in_every_version() {
    for version in GO_VERSIONS {
        let file = program(".gopclntab", table(version)).data_at(0xa000, description(NAMES_OFFSET));
        let (elf, table) = read(file).unwrap().unwrap();
        let mut frames = Vec::new();
        let push = |frame| {
            frames.push(frame);
            Ok::<_, ParseError>(())
        };
        table.for_each_frame(&elf, push).unwrap();
        let has_flags = !matches!(version, GoVersion::V2 | GoVersion::V16);
        let main = GoFrame {
            code: TEXT..TEXT + 320,
            writes_stack_pointer: false,
            name: None,
            is_top_frame: false,
            sizes: vec![(TEXT, 0), (TEXT + 4, 40), (TEXT + 304, 0)],
        };
        let serve = GoFrame {
            code: TEXT + 320..TEXT + 352,
            writes_stack_pointer: has_flags,
            name: has_flags.then(|| SERVE.name.to_owned()),
            is_top_frame: has_flags,
            sizes: vec![(TEXT + 320, 0)],
        };
        assert_eq!((table.code(), &frames[..]), (TEXT..TEXT + 352, &[main, serve][..]), "{version:?}");
    }
}

#[test]
fn older_versions_know_the_functions_that_switch_or_begin_stacks_by_name() {
    let of_name = |name| GoTestFunction { name, writes_stack_pointer: false, is_top_frame: false, ..SERVE };
    let functions = ["runtime.systemstack", "runtime.goexit", "runtime.rt0_go", "main.main"].map(of_name);
    let (elf, table) =
        read(program(".gopclntab", go_table(GoVersion::V16, TEXT, &functions))).unwrap().unwrap();
    let mut found = Vec::new();
    let push = |frame: GoFrame| {
        assert_eq!(frame.name.is_some(), frame.writes_stack_pointer);
        found.push((frame.writes_stack_pointer, frame.is_top_frame));
        Ok::<_, ParseError>(())
    };
    table.for_each_frame(&elf, push).unwrap();
    assert_eq!(found, [(true, false), (false, true), (true, true), (false, false)]);
}

#[test]
fn a_table_without_a_section_is_found_by_its_header() {
    for version in GO_VERSIONS.into_iter().filter(|version| *version != GoVersion::V26) {
        assert_finds_all(program_with_moved_table(table(version)), version);
    }
    let other =
        TestFile::with_code().code_segment(0, TEXT_ADDRESS, 0x1000).data_at(TABLE, table(GoVersion::V20));
    assert!(read(other).unwrap().is_none(), "nothing shows that it is a Go program");
}

#[test]
fn the_code_of_programs_without_its_address_is_found_in_their_description() {
    let file = program(".gopclntab", table(GoVersion::V26));
    let described = file.clone().data_at(0xa000, [vec![7; 64], description(NAMES_OFFSET)].concat());
    assert_finds_all(described, GoVersion::V26);
    let of_another_table = file.clone().data_at(0xa000, description(NAMES_OFFSET + 8));
    let (_, found) = read(of_another_table).unwrap().unwrap();
    assert_eq!(found.text, TEXT_ADDRESS, "without a description, it is that of the section");
}

#[test]
fn the_code_of_position_independent_programs_is_found_in_relocations() {
    const DATA: u64 = 0xa000;
    let relative = match Machine::HOST {
        Machine::X86_64 => object::elf::R_X86_64_RELATIVE.0,
        Machine::Aarch64 => object::elf::R_AARCH64_RELATIVE.0,
    };
    let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
    let relocation = |place: u64, target: u64| [place, relative.into(), target];
    let in_description = [
        relocation(DATA, TABLE),
        relocation(DATA + 8, TABLE + NAMES_OFFSET),
        relocation(DATA + 22 * 8, TEXT),
    ];
    let in_header = [relocation(TABLE + TEXT_OFFSET_OF_HEADER, TEXT)];
    for relocations in [&in_description[..], &in_header] {
        let records = words(relocations.as_flattened());
        let (tag, size_tag) =
            (object::elf::DT_RELA.0.cast_unsigned(), object::elf::DT_RELASZ.0.cast_unsigned());
        let dynamic = words(&[tag, DATA, size_tag, records.len() as u64]);
        let file = program(".gopclntab", table(GoVersion::V26)).data_at(DATA, records);
        let file = file.with(".dynamic", SHT_PROGBITS, dynamic).segment_of_section(object::elf::PT_DYNAMIC);
        assert_finds_all(file, GoVersion::V26);
    }
}

const TEXT_OFFSET_OF_HEADER: u64 = 24;

#[test]
fn a_program_of_another_language_has_no_table() {
    assert!(read(TestFile::typical()).unwrap().is_none());
    let running =
        Elf::parse(Image::from_file(std::fs::File::open("/proc/self/exe").unwrap()).unwrap()).unwrap();
    let table = GoTable::read(&running, &running.sections().unwrap(), &WorkBudget::default());
    assert!(table.unwrap().is_none());
}

#[test]
fn functions_are_read_until_the_limit() {
    let budget = WorkBudget::default();
    budget.read_symbols(|left| *left = 3);
    let elf = Elf::parse(Image::Memory(program(".gopclntab", table(GoVersion::V20)).bytes())).unwrap();
    let read = || GoTable::read(&elf, &elf.sections().unwrap(), &budget);
    assert!(read().unwrap().is_some());
    assert_eq!(read().unwrap_err(), ParseError::TooLarge);
}

#[test]
fn numbers_beyond_the_table_are_malformed() {
    for version in GO_VERSIONS {
        for (at, value) in [(8, u64::MAX), (8, 1 << 40), (8, 3000)] {
            let mut table = table(version);
            table[at..at + 8].copy_from_slice(&value.to_le_bytes());
            assert!(read(program(".gopclntab", table)).is_err(), "{version:?} {value:x}");
        }
    }
    let mut unordered = table(GoVersion::V2);
    unordered[32..40].copy_from_slice(&(TEXT - 1).to_le_bytes());
    assert!(read(program(".gopclntab", unordered)).is_err());
}

/// Looks up addresses of a table that may be damaged.
fn look_up(bytes: Vec<u8>) {
    if let Ok(Some((elf, table))) = read_bytes(bytes) {
        for address in (TEXT - 8..TEXT + 400).step_by(40) {
            let _ = table.find(&elf, ElfAddress(address));
        }
    }
}

#[test]
fn a_truncated_or_changed_table_does_not_panic() {
    for version in GO_VERSIONS {
        let whole = table(version);
        for length in 0..whole.len() {
            look_up(program(".gopclntab", whole[..length].to_vec()).bytes());
            look_up(program_with_moved_table(whole[..length].to_vec()).bytes());
        }
        for position in 0..whole.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut changed = whole.clone();
                changed[position] = value;
                look_up(program(".gopclntab", changed).bytes());
            }
        }
    }
}

#[test]
fn compressed_and_executable_sections_are_no_tables() {
    let file = program(".gopclntab", table(GoVersion::V20)).section_flags(2, SHF_EXECINSTR);
    assert!(read(file).unwrap().is_none(), "it is not loaded");
}

#[test]
fn values_end_with_the_table() {
    // The value 4 for 3 instructions of 4 bytes, then 2 for one.
    let bytes = [10, 3, 3, 1, 0];
    let find = |within| PcValues::new(&bytes, 4).find(within);
    assert_eq!([0, 11, 12, 15].map(find), [Ok(Some(4)), Ok(Some(4)), Ok(Some(2)), Ok(Some(2))]);
    assert_eq!(find(16), Ok(None));
    assert_eq!(PcValues::new(&[0x80; 8], 1).find(0), Err(ParseError::Malformed));
    assert_eq!(PcValues::new(&[0xff, 0xff, 0xff, 0xff, 0x7f], 1).find(0), Err(ParseError::Malformed));
    assert_eq!(PcValues::new(&[2, 0, 2, 0], 1).find(0), Err(ParseError::Malformed), "it has no end");
}
