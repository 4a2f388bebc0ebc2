//! Symbol tables (`.symtab`, `.dynsym`): functions by address, sixteen bytes each; names are read from the file on
//! demand.

use std::{cmp::Reverse, collections::HashMap, ops::Range};

use object::{
    LittleEndian,
    elf::{self, Sym64},
    pod,
};

use profiler_addresses::ElfAddress;
use profiler_binary_reader::ParseError;

use crate::{elf::Elf, header::LE, section::Sections};

type Symbol = Sym64<LittleEndian>;

/// The largest symbol table. Those of browsers with debug information have a few million symbols.
const MAX_SYMBOLS: u64 = 1 << 23;

/// The symbols of one read.
const CHUNK_SYMBOLS: u64 = 8 << 10;

/// The number of labels without a type whose names are read. They are rare, and each costs a read.
const MAX_LABEL_NAMES: usize = 1 << 16;

/// The number of symbols before an address among which the enclosing one is searched.
const MAX_CANDIDATES: usize = 128;

/// The number of symbols of one address whose names are compared.
const MAX_ALIASES: usize = 16;

/// One of the two symbol tables of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableKind {
    /// `.symtab`: every function.
    Static,
    /// `.dynsym`: exports and imports.
    Dynamic,
}

/// The functions of one symbol table, by address.
#[derive(Debug)]
pub struct SymbolTable {
    kind: TableKind,
    /// By address; those of one address by rank.
    functions: Vec<Function>,
    code: CodeRanges,
    /// The file offsets of the string table.
    names: Range<u64>,
}

/// The result of a symbol lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SymbolMatch {
    /// The address of the symbol.
    pub start: ElfAddress,
    /// Whether the symbol states a size and the address is within it. A symbol without a size extends to the next symbol.
    pub is_sized: bool,
    /// The name as stored, possibly mangled.
    pub name: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Function {
    address: u64,
    rank_and_size: RankAndSize,
    name: u32,
}

/// The rank in the upper 3 bits, lower is better; the size in bytes in the lower 29. No function has 512 MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RankAndSize(u32);

impl RankAndSize {
    const SIZE_BITS: u32 = 29;
    const MAX_SIZE: u32 = (1 << Self::SIZE_BITS) - 1;

    /// The order of perf (`choose_best_symbol`): strong before weak, global before local. A label without a type comes
    /// after every function.
    fn from_symbol(symbol: &Symbol) -> Self {
        let binding = match symbol.st_bind() {
            elf::STB_WEAK => 2,
            elf::STB_LOCAL => 1,
            _ => 0,
        };
        let rank = if symbol.st_type() == elf::STT_NOTYPE { binding + 3 } else { binding };
        let size = u32::try_from(symbol.st_size.get(LE)).unwrap_or(u32::MAX).min(Self::MAX_SIZE);
        Self(rank << Self::SIZE_BITS | size)
    }

    fn rank(self) -> u32 {
        self.0 >> Self::SIZE_BITS
    }

    fn size(self) -> u64 {
        (self.0 & Self::MAX_SIZE).into()
    }
}

impl Function {
    fn contains(&self, address: u64) -> bool {
        address.checked_sub(self.address).is_some_and(|within| within < self.rank_and_size.size())
    }
}

impl SymbolTable {
    /// Reads a table; `None` when the file has no such table or the table has no functions. `left` is the number of symbols
    /// that may still be read of all files ([`WorkBudget::read_symbols`](profiler_binary_reader::WorkBudget::read_symbols)).
    ///
    /// # Errors
    /// When the section headers are malformed, or a limit is exceeded.
    pub fn load(
        elf: &Elf,
        sections: &Sections,
        kind: TableKind,
        left: &mut u64,
    ) -> Result<Option<Self>, ParseError> {
        let section_type = match kind {
            TableKind::Static => elf::SHT_SYMTAB,
            TableKind::Dynamic => elf::SHT_DYNSYM,
        };
        let Some(section) = sections.find_type(section_type).filter(|section| section.is_stored()) else {
            return Ok(None);
        };
        let symbols = section.header().sh_size.get(LE) / size_of::<Symbol>() as u64;
        *left = left.checked_sub(symbols).filter(|_| symbols <= MAX_SYMBOLS).ok_or(ParseError::TooLarge)?;
        let names = sections.get(section.header().sh_link.get(LE)).ok_or(ParseError::Malformed)?;
        let names_start = names.header().sh_offset.get(LE);
        let names_end =
            names_start.checked_add(names.header().sh_size.get(LE)).ok_or(ParseError::Malformed)?;

        let mut loader = Loader {
            elf,
            code: CodeRanges::of_sections(sections),
            names: names_start..names_end,
            functions: Vec::new(),
            label_names: HashMap::new(),
        };
        loader.read(section.header().sh_offset.get(LE), symbols)?;
        Ok(loader.finish(kind))
    }

    /// Finds the symbol that contains `address`.
    ///
    /// Of nested symbols, the innermost is returned. Of several at one address, the best by the rules of perf: best rank,
    /// then fewest leading underscores, then longest name.
    ///
    /// # Errors
    /// When a name cannot be read.
    pub fn find(&self, elf: &Elf, address: ElfAddress) -> Result<Option<SymbolMatch>, ParseError> {
        let Some(end) = self.code.end_of_range_at(address.0) else { return Ok(None) };
        let until = self.functions.partition_point(|function| function.address <= address.0);
        let candidates = &self.functions[until.saturating_sub(MAX_CANDIDATES)..until];
        if let Some(nearest) = candidates.iter().rfind(|function| function.contains(address.0)) {
            return self.best(elf, nearest.address, |alias| alias.contains(address.0), true).map(Some);
        }
        let Some(nearest) = candidates.last() else { return Ok(None) };
        let aliases = self.aliases(nearest.address);
        let extends_to_next = self.kind == TableKind::Static
            && self.code.end_of_range_at(nearest.address) == Some(end)
            && aliases.iter().all(|alias| alias.rank_and_size.size() == 0);
        if !extends_to_next {
            return Ok(None);
        }
        self.best(elf, nearest.address, |_| true, false).map(Some)
    }

    /// Finds the symbol that starts at `address`, regardless of its size.
    ///
    /// # Errors
    /// When a name cannot be read.
    pub fn find_start(&self, elf: &Elf, address: ElfAddress) -> Result<Option<SymbolMatch>, ParseError> {
        if self.aliases(address.0).is_empty() {
            return Ok(None);
        }
        self.best(elf, address.0, |_| true, false).map(Some)
    }

    /// Finds the nearest global symbol at or before `address` in the same section, regardless of its size.
    ///
    /// Weak symbols are not considered: linkers collect functions that occur in several source files in one place.
    ///
    /// # Errors
    /// When a name cannot be read.
    pub fn find_nearest_global(
        &self,
        elf: &Elf,
        address: ElfAddress,
    ) -> Result<Option<SymbolMatch>, ParseError> {
        let Some(end) = self.code.end_of_range_at(address.0) else { return Ok(None) };
        let until = self.functions.partition_point(|function| function.address <= address.0);
        let candidates = self.functions.get(until.saturating_sub(MAX_CANDIDATES)..until).unwrap_or_default();
        let is_global = |function: &&Function| function.rank_and_size.rank() == 0;
        let nearest = candidates.iter().rev().find(is_global);
        match nearest.filter(|nearest| self.code.end_of_range_at(nearest.address) == Some(end)) {
            Some(nearest) => self.best(elf, nearest.address, |_| true, false).map(Some),
            None => Ok(None),
        }
    }

    fn aliases(&self, address: u64) -> &[Function] {
        let start = self.functions.partition_point(|function| function.address < address);
        let count = self.functions[start..].partition_point(|function| function.address == address);
        &self.functions[start..start + count]
    }

    /// The best of the symbols at `address` for which `is_match` holds; at least one exists.
    fn best(
        &self,
        elf: &Elf,
        address: u64,
        is_match: impl Fn(&Function) -> bool,
        is_sized: bool,
    ) -> Result<SymbolMatch, ParseError> {
        let aliases = self.aliases(address).iter().filter(|alias| is_match(alias));
        let rank = aliases.clone().map(|alias| alias.rank_and_size.rank()).min();
        let mut names = Vec::new();
        for alias in aliases.filter(|alias| Some(alias.rank_and_size.rank()) == rank).take(MAX_ALIASES) {
            names.push(self.name(elf, alias)?);
        }
        let best = names.into_iter().min_by_key(|name| {
            let underscores = name.iter().take_while(|byte| **byte == b'_').count();
            (name.is_empty(), underscores, Reverse(name.len()), name.clone())
        });
        let name = best.filter(|name| !name.is_empty()).ok_or(ParseError::Malformed)?;
        Ok(SymbolMatch { start: ElfAddress(address), is_sized, name })
    }

    fn name(&self, elf: &Elf, function: &Function) -> Result<Vec<u8>, ParseError> {
        read_name(elf, &self.names, function.name)
    }
}

fn read_name(elf: &Elf, names: &Range<u64>, name: u32) -> Result<Vec<u8>, ParseError> {
    let offset = names.start.checked_add(name.into()).ok_or(ParseError::Malformed)?;
    elf.image().read_string(offset, names.end)
}

/// Reads a table in chunks and keeps the symbols of code.
struct Loader<'a> {
    elf: &'a Elf,
    code: CodeRanges,
    names: Range<u64>,
    functions: Vec<Function>,
    /// For each label name that was read, whether it is a label of the source.
    label_names: HashMap<u32, bool>,
}

impl Loader<'_> {
    fn read(&mut self, offset: u64, symbols: u64) -> Result<(), ParseError> {
        let symbol_bytes = size_of::<Symbol>() as u64;
        let end = offset.checked_add(symbols * symbol_bytes).ok_or(ParseError::Malformed)?;
        let mut position = offset;
        while position < end {
            let chunk_bytes = (CHUNK_SYMBOLS * symbol_bytes).min(end - position);
            let chunk = self.elf.image().read(position, chunk_bytes, u64::MAX)?;
            let symbols = pod::slice_from_all_bytes::<Symbol>(&chunk).map_err(|()| ParseError::Malformed)?;
            symbols.iter().for_each(|symbol| self.add(symbol));
            position += chunk_bytes;
        }
        Ok(())
    }

    fn add(&mut self, symbol: &Symbol) {
        if self.is_code_symbol(symbol) {
            self.functions.push(Function {
                address: symbol.st_value.get(LE),
                rank_and_size: RankAndSize::from_symbol(symbol),
                name: symbol.st_name.get(LE),
            });
        }
    }

    fn is_code_symbol(&mut self, symbol: &Symbol) -> bool {
        let section = symbol.st_shndx.get(LE);
        let is_defined = section != elf::SHN_UNDEF && symbol.st_name.get(LE) != 0;
        let is_code = match symbol.st_type() {
            elf::STT_FUNC | elf::STT_GNU_IFUNC => true,
            elf::STT_NOTYPE => section != elf::SHN_ABS,
            _ => false,
        };
        is_defined
            && is_code
            && self.code.end_of_range_at(symbol.st_value.get(LE)).is_some()
            && (symbol.st_type() != elf::STT_NOTYPE || self.is_label_of_source(symbol.st_name.get(LE)))
    }

    /// Whether a label without a type is from the source. Mapping symbols (`$x`, `$d.1`: ELF for the Arm 64-bit
    /// Architecture, "Mapping symbols") and local jump targets (`.L1`) are from the assembler.
    fn is_label_of_source(&mut self, name: u32) -> bool {
        if let Some(known) = self.label_names.get(&name) {
            return *known;
        }
        if self.label_names.len() == MAX_LABEL_NAMES {
            return false;
        }
        let text = read_name(self.elf, &self.names, name).unwrap_or_default();
        let is_label = !matches!(*text, [] | [b'$', b'a' | b'd' | b't' | b'x'] | [b'$', _, b'.', ..])
            && !text.starts_with(b".L");
        self.label_names.insert(name, is_label);
        is_label
    }

    fn finish(self, kind: TableKind) -> Option<SymbolTable> {
        let Self { mut functions, code, names, .. } = self;
        functions.sort_unstable();
        functions.dedup();
        functions.shrink_to_fit();
        (!functions.is_empty()).then_some(SymbolTable { kind, functions, code, names })
    }
}

/// The address ranges of the code sections.
#[derive(Debug)]
struct CodeRanges(Vec<Range<u64>>);

impl CodeRanges {
    fn of_sections(sections: &Sections) -> Self {
        let code = sections.iter().filter(|section| section.is_code());
        let mut ranges: Vec<_> = code
            .map(|section| {
                let start = section.header().sh_addr.get(LE);
                start..start.saturating_add(section.header().sh_size.get(LE))
            })
            .collect();
        ranges.sort_unstable_by_key(|range| (range.start, range.end));
        Self(ranges)
    }

    /// The end of the section that contains `address`.
    fn end_of_range_at(&self, address: u64) -> Option<u64> {
        let until = self.0.partition_point(|range| range.start <= address);
        let range = self.0.get(until.checked_sub(1)?)?;
        (address < range.end).then_some(range.end)
    }
}

#[cfg(test)]
mod tests {
    use elf::{STB_GLOBAL, STB_LOCAL, STB_WEAK, STT_FUNC, STT_NOTYPE, STT_OBJECT};
    use object::elf::SymbolInfo;

    use profiler_addresses::{FileMapping, RuntimeAddress};
    use profiler_binary_reader::Image;

    use super::*;
    use crate::test_file::{TestFile, TestSymbol, function, mapping_at};

    fn found(symbols: &[TestSymbol], address: u64) -> Option<String> {
        found_in(TestFile::with_code().symbols(elf::SHT_SYMTAB, symbols).bytes(), TableKind::Static, address)
            .unwrap()
    }

    fn found_in(file: Vec<u8>, kind: TableKind, address: u64) -> Result<Option<String>, ParseError> {
        let elf = Elf::parse(Image::Memory(file))?;
        let Some(table) = SymbolTable::load(&elf, &elf.sections()?, kind, &mut { MAX_SYMBOLS })? else {
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
        let symbols =
            [function("open", 0x1000, 0), function("next", 0x1800, 0x10), function("last", 0x1900, 0)];
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
        let table = SymbolTable::load(&elf, &sections, TableKind::Dynamic, &mut { MAX_SYMBOLS });
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
        let labels =
            [label("_start", 0x1000), label("$x", 0x1004), label("$d.7", 0x1008), label(".L12", 0x100c)];
        assert_eq!(found(&labels, 0x1010).as_deref(), Some("_start"));
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
        for (size, defect) in [
            (1 << 20, ParseError::Malformed),
            (1 << 60, ParseError::TooLarge),
            (u64::MAX, ParseError::TooLarge),
        ] {
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
        let mut left = 2 * MAX_SYMBOLS;
        let mut load = || SymbolTable::load(&elf, &elf.sections().unwrap(), TableKind::Static, &mut left);
        assert!(load().unwrap().is_some());
        let each = 2 * MAX_SYMBOLS - left;
        left = each;
        let mut load = || SymbolTable::load(&elf, &elf.sections().unwrap(), TableKind::Static, &mut left);
        assert!(load().unwrap().is_some());
        assert_eq!(load().unwrap_err(), ParseError::TooLarge);
    }

    #[test]
    fn functions_of_the_running_program_are_found() {
        #[inline(never)]
        fn marked() -> usize {
            std::hint::black_box(marked as fn() -> usize) as usize
        }
        let elf =
            Elf::parse(Image::from_file(std::fs::File::open("/proc/self/exe").unwrap()).unwrap()).unwrap();
        let table =
            SymbolTable::load(&elf, &elf.sections().unwrap(), TableKind::Static, &mut { MAX_SYMBOLS })
                .unwrap()
                .unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let address = RuntimeAddress(marked() as u64);
        let (start, offset) = mapping_at(&maps, address.0).unwrap();
        let address = elf.address(FileMapping { start, offset }, address).unwrap();
        let name = String::from_utf8(table.find(&elf, address).unwrap().unwrap().name).unwrap();
        assert!(name.contains("marked"), "{name}");
    }
}
