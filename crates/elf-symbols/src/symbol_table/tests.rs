//! Tests of the lookup in symbol tables, whole, compressed and malformed.

use elf::{STB_GLOBAL, STB_LOCAL, STB_WEAK, STT_FUNC, STT_NOTYPE, STT_OBJECT};
use object::elf::SymbolInfo;

use profiler_addresses::{FileMapping, RuntimeAddress};
use profiler_binary_reader::Image;

use super::*;
use crate::test_file::{TestFile, TestSymbol, function, mapping_at, zlib, zstandard};

/// The sections of [`TestFile::symbols`] behind [`TestFile::with_code`].
const NAMES: usize = 2;
const SYMBOLS: usize = 3;

type Compress = fn(&[u8]) -> Vec<u8>;

const COMPRESSIONS: &[(elf::CompressionType, Compress)] = &[
    (elf::ELFCOMPRESS_ZLIB, zlib),
    #[cfg(feature = "compressed-debug-info")]
    (elf::ELFCOMPRESS_ZSTD, zstandard),
];

fn found(symbols: &[TestSymbol], address: u64) -> Option<String> {
    found_in(TestFile::with_code().symbols(elf::SHT_SYMTAB, symbols).bytes(), TableKind::Static, address)
        .unwrap()
}

fn found_in(file: Vec<u8>, kind: TableKind, address: u64) -> Result<Option<String>, ParseError> {
    let elf = Elf::parse(Image::Memory(file))?;
    let Some(table) = SymbolTable::load(&elf, &elf.sections()?, kind, &WorkBudget::default())? else {
        return Ok(None);
    };
    let found = table.find(&elf, ElfAddress(address))?;
    Ok(found.map(|found| String::from_utf8(found.name).unwrap()))
}

#[test]
fn an_address_belongs_to_the_function_that_contains_it() {
    let symbols = [function("first", 0x1000, 0x10), function("second", 0x1020, 0x10)];
    assert_eq!(found(&symbols, 0x1000).as_deref(), Some("first"));
    assert_eq!(found(&symbols, 0x100f).as_deref(), Some("first"));
    assert_eq!(found(&symbols, 0x1010), None);
    assert_eq!(found(&symbols, 0x1020).as_deref(), Some("second"));
    assert_eq!(found(&symbols, 0x1030), None);
    assert_eq!(found(&symbols, 0xfff), None);
    assert_eq!(found(&symbols, u64::MAX), None);
}

#[test]
fn a_function_inside_another_ends_after_its_size() {
    let symbols = [function("outer", 0x1000, 0x100), function("inner", 0x1040, 0x10)];
    assert_eq!(found(&symbols, 0x1048).as_deref(), Some("inner"));
    assert_eq!(found(&symbols, 0x1050).as_deref(), Some("outer"));
}

#[test]
fn a_symbol_without_a_size_extends_to_the_next_one_or_to_the_end_of_the_section() {
    let symbols = [function("open", 0x1000, 0), function("next", 0x1800, 0x10), function("last", 0x1900, 0)];
    assert_eq!(found(&symbols, 0x17ff).as_deref(), Some("open"));
    assert_eq!(found(&symbols, 0x1810), None);
    assert_eq!(found(&symbols, 0x1fff).as_deref(), Some("last"));
    assert_eq!(found(&symbols, 0x2000), None);
}

#[test]
fn a_symbol_without_a_size_inside_one_with_a_size_is_ignored() {
    let symbols = [function("whole", 0x1000, 0x100), function("label", 0x1010, 0)];
    assert_eq!(found(&symbols, 0x1020).as_deref(), Some("whole"));
}

#[test]
fn an_export_without_a_size_contains_nothing() {
    let file = TestFile::with_code().symbols(elf::SHT_DYNSYM, &[function("export", 0x1000, 0)]).bytes();
    assert_eq!(found_in(file, TableKind::Dynamic, 0x1001), Ok(None));
}

#[test]
fn the_nearest_global_symbol_is_found_regardless_of_its_size() {
    let weak = TestSymbol("weak", 0x1030, 8, SymbolInfo::new(STB_WEAK, STT_FUNC));
    let symbols = [function("first", 0x1010, 0x10), function("second", 0x1020, 0), weak];
    let file = TestFile::with_code().symbols(elf::SHT_DYNSYM, &symbols).bytes();
    let elf = Elf::parse(Image::Memory(file)).unwrap();
    let sections = elf.sections().unwrap();
    let table = SymbolTable::load(&elf, &sections, TableKind::Dynamic, &WorkBudget::default());
    let table = table.unwrap().unwrap();
    let start = |found: Result<Option<SymbolMatch>, _>| found.unwrap().map(|found| found.start.0);
    let nearest = |address| start(table.find_nearest_global(&elf, ElfAddress(address)));
    assert_eq!(nearest(0x100f), None);
    assert_eq!(nearest(0x101f), Some(0x1010));
    assert_eq!(nearest(0x1fff), Some(0x1020));
    assert_eq!(nearest(0x2000), None, "another section");
    let beginning = |address| start(table.find_start(&elf, ElfAddress(address)));
    assert_eq!((beginning(0x1020), beginning(0x1021)), (Some(0x1020), None));
    assert_eq!(beginning(0x1030), Some(0x1030));
}

#[test]
fn the_best_of_several_names_is_chosen_by_the_rules_of_perf() {
    let kind = |binding, kind| SymbolInfo::new(binding, kind);
    let at = |name, info| TestSymbol(name, 0x1000, 8, info);
    let weak = at("weak_but_long", kind(STB_WEAK, STT_FUNC));
    let local = at("local_and_long", kind(STB_LOCAL, STT_FUNC));
    let reserved = at("__libc_read_long", kind(STB_GLOBAL, STT_FUNC));
    let label = at("label_of_no_type", kind(STB_GLOBAL, STT_NOTYPE));
    let short = at("red", kind(STB_GLOBAL, STT_FUNC));
    let long = at("read", kind(STB_GLOBAL, STT_FUNC));
    let all = [weak, local, reserved, label, short, long];
    assert_eq!(found(&all, 0x1004).as_deref(), Some("read"));
    assert_eq!(found(&all[..3], 0x1004).as_deref(), Some("__libc_read_long"));
    assert_eq!(found(&all[..2], 0x1004).as_deref(), Some("local_and_long"));
    assert_eq!(found(&all[..1], 0x1004).as_deref(), Some("weak_but_long"));
}

#[test]
fn labels_of_the_source_are_symbols_and_those_of_the_assembler_are_not() {
    let label = |name, address| TestSymbol(name, address, 0, SymbolInfo::new(STB_LOCAL, STT_NOTYPE));
    let labels = [label("_start", 0x1000), label("$x", 0x1004), label("$d.7", 0x1008), label(".L12", 0x100c)];
    assert_eq!(found(&labels, 0x1010).as_deref(), Some("_start"));
}

#[test]
#[cfg(target_arch = "x86_64")]
fn all_functions_without_a_type_of_nativeaot_are_read() {
    const FUNCTIONS: u64 = MAX_LABEL_NAMES as u64 + 8;
    let info = SymbolInfo::new(STB_LOCAL, STT_NOTYPE);
    let symbols: Vec<_> = (0..FUNCTIONS)
        .map(|number| {
            TestSymbol(Box::leak(format!("F{number}").into_boxed_str()), 0x10_0000 + number, 0, info)
        })
        .collect();
    let file = TestFile::with_code().with("__managedcode", elf::SHT_NOBITS, Vec::new());
    let mut file = file.section_address(0x10_0000).section_flags(2, elf::SHF_ALLOC | elf::SHF_EXECINSTR);
    file.set_section_size(2, FUNCTIONS);
    let bytes = file.symbols(elf::SHT_SYMTAB, &symbols).bytes();
    let last = FUNCTIONS - 1;
    let found = found_in(bytes, TableKind::Static, 0x10_0000 + last).unwrap();
    assert_eq!(found, Some(format!("F{last}")));
}

#[test]
fn symbols_of_data_and_outside_of_code_are_ignored() {
    let data = TestSymbol("data", 0x1000, 8, SymbolInfo::new(STB_GLOBAL, STT_OBJECT));
    assert_eq!(found(&[data], 0x1000), None);
    assert_eq!(found(&[function("elsewhere", 0x9000, 8)], 0x9000), None);
}

#[test]
fn a_name_beyond_the_string_table_is_malformed() {
    let file = TestFile::with_code().symbols(elf::SHT_SYMTAB, &[function("f", 0x1000, 8)]);
    let names_section = 2;
    let mut short = file.clone();
    short.set_section_size(names_section, 1);
    assert_eq!(found_in(short.bytes(), TableKind::Static, 0x1000), Err(ParseError::Malformed));
    let mut oversized = file;
    oversized.set_section_size(names_section, u64::MAX);
    assert_eq!(found_in(oversized.bytes(), TableKind::Static, 0x1000), Err(ParseError::Malformed));
}

#[test]
fn a_table_with_a_wrong_size_allocates_nothing() {
    let symbols_section = 3;
    for (size, defect) in
        [(1 << 20, ParseError::Malformed), (1 << 60, ParseError::TooLarge), (u64::MAX, ParseError::Malformed)]
    {
        let mut file = TestFile::with_code().symbols(elf::SHT_SYMTAB, &[function("f", 0x1000, 8)]);
        file.set_section_size(symbols_section, size);
        assert_eq!(found_in(file.bytes(), TableKind::Static, 0x1000), Err(defect), "{size}");
    }
}

#[test]
fn an_entry_takes_sixteen_bytes() {
    assert_eq!(size_of::<Function>(), 16);
}

#[test]
fn tables_are_read_until_the_symbol_limit() {
    let symbols = [function("f", 0x1000, 8)];
    let elf = TestFile::with_code().symbols(elf::SHT_SYMTAB, &symbols).bytes();
    let elf = Elf::parse(Image::Memory(elf)).unwrap();
    let budget = WorkBudget::default();
    let load = || SymbolTable::load(&elf, &elf.sections().unwrap(), TableKind::Static, &budget);
    let left = || budget.read_symbols(|left| *left);
    let before = left();
    assert!(load().unwrap().is_some());
    let each = before - left();
    budget.read_symbols(|left| *left = each);
    assert!(load().unwrap().is_some());
    assert_eq!(load().unwrap_err(), ParseError::TooLarge);
}

#[test]
fn compressed_tables_have_the_names_of_those_that_are_not() {
    let file = TestFile::with_code()
        .symbols(elf::SHT_SYMTAB, &[function("first", 0x1000, 0x10), function("second", 0x1020, 0x10)]);
    for (kind, compress) in COMPRESSIONS {
        for sections in [&[NAMES][..], &[SYMBOLS], &[NAMES, SYMBOLS]] {
            let file =
                sections.iter().fold(file.clone(), |file, index| file.compress(*index, *kind, compress));
            for (address, expected) in [(0x1008, Some("first")), (0x1020, Some("second")), (0x1030, None)] {
                let found = found_in(file.clone().bytes(), TableKind::Static, address).unwrap();
                assert_eq!(found.as_deref(), expected, "{kind:?} {sections:?} {address:x}");
            }
        }
    }
}

#[test]
fn a_compressed_table_that_is_damaged_has_no_names() {
    let file = TestFile::with_code().symbols(elf::SHT_SYMTAB, &[function("first", 0x1000, 0x10)]);
    let unknown = |bytes: &[u8]| bytes.to_vec();
    for section in [NAMES, SYMBOLS] {
        let truncated = |bytes: &[u8]| zlib(bytes)[..8].to_vec();
        for file in [
            file.clone().compress(section, elf::ELFCOMPRESS_ZLIB, truncated),
            file.clone().compress(section, elf::CompressionType(99), unknown),
            file.clone().section_flags(section, elf::SHF_COMPRESSED),
            file.clone().section_flags(section, elf::SHF_COMPRESSED | elf::SHF_ALLOC),
        ] {
            assert_eq!(found_in(file.bytes(), TableKind::Static, 0x1000), Err(ParseError::Malformed));
        }
        for stored_bytes in 1..24 {
            let mut file = file.clone().compress(section, elf::ELFCOMPRESS_ZLIB, zlib);
            file.set_section_size(section, stored_bytes);
            assert_eq!(found_in(file.bytes(), TableKind::Static, 0x1000), Err(ParseError::Malformed));
        }
    }
}

#[test]
fn decompressed_tables_are_subtracted_from_the_budget() {
    let file = TestFile::with_code().symbols(elf::SHT_SYMTAB, &[function("first", 0x1000, 0x10)]);
    let file = file.compress(NAMES, elf::ELFCOMPRESS_ZLIB, zlib).bytes();
    let elf = Elf::parse(Image::Memory(file)).unwrap();
    let budget = WorkBudget::default();
    let load = || SymbolTable::load(&elf, &elf.sections().unwrap(), TableKind::Static, &budget);
    let before = budget.section_bytes_left();
    assert!(load().unwrap().is_some());
    assert_eq!(before - budget.section_bytes_left(), "\0first\0".len() as u64);
    budget.spend_section_bytes(budget.section_bytes_left() - 4);
    assert_eq!(load().unwrap_err(), ParseError::TooLarge);
}

#[test]
fn names_that_the_file_does_not_contain_are_malformed() {
    let file = TestFile::with_code().symbols(elf::SHT_SYMTAB, &[function("f", 0x1000, 8)]);
    for kind in [elf::SHT_NOBITS, elf::SHT_NULL, elf::SHT_PROGBITS] {
        let file = file.clone().section_type(NAMES, kind);
        assert_eq!(found_in(file.bytes(), TableKind::Static, 0x1000), Err(ParseError::Malformed));
    }
}

#[test]
fn functions_of_the_running_program_are_found() {
    #[inline(never)]
    fn marked() -> usize {
        std::hint::black_box(marked as fn() -> usize) as usize
    }
    let elf = Elf::parse(Image::from_file(std::fs::File::open("/proc/self/exe").unwrap()).unwrap()).unwrap();
    let table = SymbolTable::load(&elf, &elf.sections().unwrap(), TableKind::Static, &WorkBudget::default())
        .unwrap()
        .unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let address = RuntimeAddress(marked() as u64);
    let (start, offset) = mapping_at(&maps, address.0).unwrap();
    let address = elf.address(FileMapping { start, offset }, address).unwrap();
    let name = String::from_utf8(table.find(&elf, address).unwrap().unwrap().name).unwrap();
    assert!(name.contains("marked"), "{name}");
}
