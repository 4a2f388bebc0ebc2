//! The functions of a symbol table, compact: sixteen bytes each, their names left in the file.

use std::{cmp::Reverse, collections::HashMap, ops::Range};

use object::{
    LittleEndian,
    elf::{self, Sym64},
    pod,
};

use super::{Elf, ParseError, Sections, header::LE};
use profiler_addresses::ElfAddress;

type Symbol = Sym64<LittleEndian>;

/// The greatest symbol tables in use, of whole browsers with debug information, have a few million symbols.
const MAX_SYMBOLS: u64 = 1 << 23;

/// What is read at once.
const PIECE_SYMBOLS: u64 = 8 << 10;

/// Labels without a type are rare, but each costs a read of its name: no more than this many are looked at.
const MAX_LABEL_NAMES: usize = 1 << 16;

/// How many symbols that begin after an enclosing one are looked past to find it.
const LOOK_BACK: usize = 128;

/// How many names of one address are compared.
const MAX_ALIASES: usize = 16;

/// Which of a file's two tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableKind {
    /// `.symtab`: every function.
    Static,
    /// `.dynsym`: what is exported or imported.
    Dynamic,
}

/// The functions of one table, by address.
#[derive(Debug)]
pub struct SymbolTable {
    kind: TableKind,
    /// By address, at one address the best first.
    functions: Vec<Function>,
    code: Code,
    /// Where the names are in the file.
    names: Range<u64>,
}

/// The symbol at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SymbolMatch {
    /// Where the symbol begins.
    pub start: ElfAddress,
    /// Whether the symbol states a size and the address is within it. A symbol of no stated size only reaches
    /// as far as nothing else begins.
    pub is_sized: bool,
    /// The name as it stands in the file.
    pub name: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Function {
    address: u64,
    rank_and_size: RankAndSize,
    name: u32,
}

/// The rank in the upper 3 bits, lower is better; the size in bytes in the lower 29: no function has 512 MB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RankAndSize(u32);

impl RankAndSize {
    const SIZE_BITS: u32 = 29;
    const MAX_SIZE: u32 = (1 << Self::SIZE_BITS) - 1;

    /// As perf ranks them (`choose_best_symbol`): not weak before weak, global before local. A label without
    /// a type comes after every function.
    fn of(symbol: &Symbol) -> Self {
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
    fn covers(&self, address: u64) -> bool {
        address.checked_sub(self.address).is_some_and(|within| within < self.rank_and_size.size())
    }
}

impl SymbolTable {
    /// Reads the table. `None` where the file has none or no function stands in it. Of the symbols that all files
    /// together may have there are `left`.
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
        let Some(section) = sections.of_type(section_type).filter(|section| section.is_stored()) else {
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
            code: Code::of(sections),
            names: names_start..names_end,
            functions: Vec::new(),
            label_names: HashMap::new(),
        };
        loader.read(section.header().sh_offset.get(LE), symbols)?;
        Ok(loader.finish(kind))
    }

    /// The symbol that the code at `address` belongs to; never a mere neighbour.
    ///
    /// The one that begins nearest before the address and reaches it. Of several at one place the best as
    /// perf has it: of the best rank, then with the fewest underscores in front, then the longest.
    pub fn find(&self, elf: &Elf, address: ElfAddress) -> Result<Option<SymbolMatch>, ParseError> {
        let Some(end) = self.code.end_of_range_at(address.0) else { return Ok(None) };
        let until = self.functions.partition_point(|function| function.address <= address.0);
        let candidates = &self.functions[until.saturating_sub(LOOK_BACK)..until];
        if let Some(nearest) = candidates.iter().rfind(|function| function.covers(address.0)) {
            return self.best(elf, nearest.address, |alias| alias.covers(address.0), true).map(Some);
        }
        let Some(nearest) = candidates.last() else { return Ok(None) };
        let aliases = self.aliases(nearest.address);
        let reaches = self.kind == TableKind::Static
            && self.code.end_of_range_at(nearest.address) == Some(end)
            && aliases.iter().all(|alias| alias.rank_and_size.size() == 0);
        if !reaches {
            return Ok(None);
        }
        self.best(elf, nearest.address, |_| true, false).map(Some)
    }

    /// The symbol that begins at `address`, whatever it says of its size.
    pub fn beginning_at(&self, elf: &Elf, address: ElfAddress) -> Result<Option<SymbolMatch>, ParseError> {
        if self.aliases(address.0).is_empty() {
            return Ok(None);
        }
        self.best(elf, address.0, |_| true, false).map(Some)
    }

    /// The global symbol that begins nearest at or before `address` in the same section, whether it reaches it or not.
    /// A weak one is no neighbour: linkers gather functions that several source files have.
    pub fn nearest_global(&self, elf: &Elf, address: ElfAddress) -> Result<Option<SymbolMatch>, ParseError> {
        let Some(end) = self.code.end_of_range_at(address.0) else { return Ok(None) };
        let until = self.functions.partition_point(|function| function.address <= address.0);
        let candidates = self.functions.get(until.saturating_sub(LOOK_BACK)..until).unwrap_or_default();
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

    /// The best of the symbols at `address` that `fits`; at least one does.
    fn best(
        &self,
        elf: &Elf,
        address: u64,
        fits: impl Fn(&Function) -> bool,
        is_sized: bool,
    ) -> Result<SymbolMatch, ParseError> {
        let aliases = self.aliases(address).iter().filter(|alias| fits(alias));
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

/// Reads a table piece by piece and keeps what names code.
struct Loader<'a> {
    elf: &'a Elf,
    code: Code,
    names: Range<u64>,
    functions: Vec<Function>,
    /// Whether the label names that were read stand for a place in the source.
    label_names: HashMap<u32, bool>,
}

impl Loader<'_> {
    fn read(&mut self, offset: u64, symbols: u64) -> Result<(), ParseError> {
        let symbol_bytes = size_of::<Symbol>() as u64;
        let end = offset.checked_add(symbols * symbol_bytes).ok_or(ParseError::Malformed)?;
        let mut position = offset;
        while position < end {
            let piece_bytes = (PIECE_SYMBOLS * symbol_bytes).min(end - position);
            let piece = self.elf.image().read(position, piece_bytes, u64::MAX)?;
            let symbols = pod::slice_from_all_bytes::<Symbol>(&piece).map_err(|()| ParseError::Malformed)?;
            symbols.iter().for_each(|symbol| self.take(symbol));
            position += piece_bytes;
        }
        Ok(())
    }

    fn take(&mut self, symbol: &Symbol) {
        if self.names_code(symbol) {
            self.functions.push(Function {
                address: symbol.st_value.get(LE),
                rank_and_size: RankAndSize::of(symbol),
                name: symbol.st_name.get(LE),
            });
        }
    }

    fn names_code(&mut self, symbol: &Symbol) -> bool {
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

    /// Whether a label without a type is somebody's: an assembler's own mark where data begins in code (`$x`,
    /// `$d.1`: ELF for the Arm 64-bit Architecture, "Mapping symbols") or a place to jump to (`.L1`) is not.
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

/// Where code is: the ranges of the sections that hold it.
#[derive(Debug)]
struct Code(Vec<Range<u64>>);

impl Code {
    fn of(sections: &Sections) -> Self {
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

    /// The end of the section that holds the address.
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

    use super::{
        super::{
            Image,
            test_file::{TestFile, TestSymbol, function, mapping_at},
        },
        *,
    };
    use profiler_addresses::RuntimeAddress;

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
    fn an_address_belongs_to_the_function_around_it_and_to_no_neighbour() {
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
    fn a_function_inside_another_ends_where_it_says() {
        let symbols = [function("outer", 0x1000, 0x100), function("inner", 0x1040, 0x10)];
        assert_eq!(found(&symbols, 0x1048).as_deref(), Some("inner"));
        assert_eq!(found(&symbols, 0x1050).as_deref(), Some("outer"));
    }

    #[test]
    fn a_symbol_without_a_size_reaches_to_the_next_one_and_to_the_end_of_the_code() {
        let symbols =
            [function("open", 0x1000, 0), function("next", 0x1800, 0x10), function("last", 0x1900, 0)];
        assert_eq!(found(&symbols, 0x17ff).as_deref(), Some("open"));
        assert_eq!(found(&symbols, 0x1810), None);
        assert_eq!(found(&symbols, 0x1fff).as_deref(), Some("last"));
        assert_eq!(found(&symbols, 0x2000), None);
    }

    #[test]
    fn a_symbol_without_a_size_inside_one_with_a_size_is_a_mere_label() {
        let symbols = [function("whole", 0x1000, 0x100), function("label", 0x1010, 0)];
        assert_eq!(found(&symbols, 0x1020).as_deref(), Some("whole"));
    }

    #[test]
    fn an_export_without_a_size_reaches_nothing() {
        let file = TestFile::with_code().symbols(elf::SHT_DYNSYM, &[function("export", 0x1000, 0)]).bytes();
        assert_eq!(found_in(file, TableKind::Dynamic, 0x1001), Ok(None));
    }

    #[test]
    fn the_nearest_global_symbol_is_found_whether_it_reaches_the_address_or_not() {
        let weak = TestSymbol("weak", 0x1030, 8, SymbolInfo::new(STB_WEAK, STT_FUNC));
        let symbols = [function("first", 0x1010, 0x10), function("second", 0x1020, 0), weak];
        let file = TestFile::with_code().symbols(elf::SHT_DYNSYM, &symbols).bytes();
        let elf = Elf::parse(Image::Memory(file)).unwrap();
        let sections = elf.sections().unwrap();
        let table = SymbolTable::load(&elf, &sections, TableKind::Dynamic, &mut { MAX_SYMBOLS });
        let table = table.unwrap().unwrap();
        let start = |found: Result<Option<SymbolMatch>, _>| found.unwrap().map(|found| found.start.0);
        let nearest = |address| start(table.nearest_global(&elf, ElfAddress(address)));
        assert_eq!(nearest(0x100f), None);
        assert_eq!(nearest(0x101f), Some(0x1010));
        assert_eq!(nearest(0x1fff), Some(0x1020));
        assert_eq!(nearest(0x2000), None, "another section");
        let beginning = |address| start(table.beginning_at(&elf, ElfAddress(address)));
        assert_eq!((beginning(0x1020), beginning(0x1021)), (Some(0x1020), None));
        assert_eq!(beginning(0x1030), Some(0x1030));
    }

    #[test]
    fn of_several_names_the_best_is_chosen_as_perf_does() {
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
    fn labels_of_the_source_name_code_and_those_of_the_assembler_do_not() {
        let label = |name, address| TestSymbol(name, address, 0, SymbolInfo::new(STB_LOCAL, STT_NOTYPE));
        let labels =
            [label("_start", 0x1000), label("$x", 0x1004), label("$d.7", 0x1008), label(".L12", 0x100c)];
        assert_eq!(found(&labels, 0x1010).as_deref(), Some("_start"));
    }

    #[test]
    fn data_and_what_lies_outside_of_code_is_left_out() {
        let data = TestSymbol("data", 0x1000, 8, SymbolInfo::new(STB_GLOBAL, STT_OBJECT));
        assert_eq!(found(&[data], 0x1000), None);
        assert_eq!(found(&[function("elsewhere", 0x9000, 8)], 0x9000), None);
    }

    #[test]
    fn a_name_beyond_the_names_is_malformed() {
        let file = TestFile::with_code().symbols(elf::SHT_SYMTAB, &[function("f", 0x1000, 8)]);
        let names_section = 2;
        let mut short = file.clone();
        short.set_section_size(names_section, 1);
        assert_eq!(found_in(short.bytes(), TableKind::Static, 0x1000), Err(ParseError::Malformed));
        let mut endless = file;
        endless.set_section_size(names_section, u64::MAX);
        assert_eq!(found_in(endless.bytes(), TableKind::Static, 0x1000), Err(ParseError::Malformed));
    }

    #[test]
    fn a_table_that_lies_about_its_size_takes_no_memory() {
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
    fn tables_are_read_until_there_were_too_many_symbols() {
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
            Elf::parse(Image::of_file(std::fs::File::open("/proc/self/exe").unwrap()).unwrap()).unwrap();
        let table =
            SymbolTable::load(&elf, &elf.sections().unwrap(), TableKind::Static, &mut { MAX_SYMBOLS })
                .unwrap()
                .unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let address = RuntimeAddress(marked() as u64);
        let (start, offset) = mapping_at(&maps, address.0).unwrap();
        let address = elf.address(start, offset, address).unwrap();
        let name = String::from_utf8(table.find(&elf, address).unwrap().unwrap().name).unwrap();
        assert!(name.contains("marked"), "{name}");
    }
}
