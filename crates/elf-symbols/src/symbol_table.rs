//! Symbol tables (`.symtab`, `.dynsym`): functions by address, sixteen bytes each; names are read from the file on
//! demand.

use std::{cmp::Reverse, collections::HashMap, ops::Range};

use object::{
    LittleEndian,
    elf::{self, Sym64},
    pod,
};

use profiler_addresses::ElfAddress;
use profiler_binary_reader::{ParseError, WorkBudget};

use crate::{
    elf::Elf,
    header::LE,
    machine::Machine,
    section::{Section, SectionContent, Sections},
};

type Symbol = Sym64<LittleEndian>;

/// The largest symbol table. Those of browsers with debug information have a few million symbols.
const MAX_SYMBOLS: u64 = 1 << 23;

/// The largest compressed string table, which is held in memory. That of a browser has a few hundred megabytes.
const MAX_COMPRESSED_NAME_BYTES: u64 = 512 << 20;

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
    /// The string table.
    names: SectionContent,
}

/// The result of a symbol lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SymbolMatch {
    /// The address of the symbol.
    pub start: ElfAddress,
    /// Whether the symbol states a size and the address is within it. A symbol without a size extends to the next symbol.
    pub is_sized: bool,
    /// Whether the symbol has the type of a function.
    pub is_function: bool,
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
    /// The rank of the best label without a type.
    const LABEL: u32 = 3;
    const MAX_SIZE: u32 = (1 << Self::SIZE_BITS) - 1;

    /// The order of perf (`choose_best_symbol`): strong before weak, global before local. A label without a type comes
    /// after every function.
    fn from_symbol(symbol: &Symbol) -> Self {
        let binding = match symbol.st_bind() {
            elf::STB_WEAK => 2,
            elf::STB_LOCAL => 1,
            _ => 0,
        };
        let rank = if symbol.st_type() == elf::STT_NOTYPE { binding + Self::LABEL } else { binding };
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
    /// Reads a table; `None` when the file has no such table or the table has no functions. Symbols, and the bytes of
    /// tables that are compressed, are subtracted from `budget`.
    ///
    /// # Errors
    /// When the section headers or a compressed table are malformed, or a limit is exceeded.
    pub fn load(
        elf: &Elf,
        sections: &Sections,
        kind: TableKind,
        budget: &WorkBudget,
    ) -> Result<Option<Self>, ParseError> {
        let section_type = match kind {
            TableKind::Static => elf::SHT_SYMTAB,
            TableKind::Dynamic => elf::SHT_DYNSYM,
        };
        let Some(section) = sections.find_type(section_type).filter(|section| section.is_stored()) else {
            return Ok(None);
        };
        let names = sections.get(section.header().sh_link.get(LE));
        let names = names.filter(|names| names.has_type(elf::SHT_STRTAB)).ok_or(ParseError::Malformed)?;
        let symbols = locate(elf, section, MAX_SYMBOLS * size_of::<Symbol>() as u64, budget)?;
        let count = symbols.bytes() / size_of::<Symbol>() as u64;
        budget.read_symbols(|left| {
            *left = left.checked_sub(count).filter(|_| count <= MAX_SYMBOLS).ok_or(ParseError::TooLarge)?;
            Ok(())
        })?;
        let mut loader = Loader {
            elf,
            code: CodeRanges::of_sections(sections),
            untyped: untyped_code(elf, sections),
            names: locate(elf, names, MAX_COMPRESSED_NAME_BYTES, budget)?,
            functions: Vec::new(),
            label_names: HashMap::new(),
        };
        loader.read(&symbols, count)?;
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
        let is_function = rank.is_some_and(|rank| rank < RankAndSize::LABEL);
        Ok(SymbolMatch { start: ElfAddress(address), is_sized, is_function, name })
    }

    fn name(&self, elf: &Elf, function: &Function) -> Result<Vec<u8>, ParseError> {
        self.names.read_string(elf.image(), function.name.into())
    }
}

/// Locates a table. One that is compressed is decompressed within the budget.
fn locate(
    elf: &Elf,
    section: Section<'_>,
    limit: u64,
    budget: &WorkBudget,
) -> Result<SectionContent, ParseError> {
    let content = section.locate(elf.image(), limit.min(budget.section_bytes_left()))?;
    budget.spend_section_bytes(content.decompressed_bytes());
    Ok(content)
}

/// The code that NativeAOT compiled: the symbols of its hundred thousands of functions have neither type nor size. Only
/// assemblers for AArch64 put labels of their own there.
fn untyped_code(elf: &Elf, sections: &Sections) -> Range<u64> {
    let managed = sections.find(b"__managedcode").filter(|_| elf.machine() == Machine::X86_64);
    managed.map_or(0..0, |section| section.addresses())
}

/// Reads a table in chunks and keeps the symbols of code.
struct Loader<'a> {
    elf: &'a Elf,
    code: CodeRanges,
    /// The code whose functions have no type.
    untyped: Range<u64>,
    names: SectionContent,
    functions: Vec<Function>,
    /// For each label name that was read, whether it is a label of the source.
    label_names: HashMap<u32, bool>,
}

impl Loader<'_> {
    fn read(&mut self, table: &SectionContent, count: u64) -> Result<(), ParseError> {
        let symbol_bytes = size_of::<Symbol>() as u64;
        for first in (0..count).step_by(CHUNK_SYMBOLS as usize) {
            let chunk_bytes = CHUNK_SYMBOLS.min(count - first) * symbol_bytes;
            let chunk = table.read(self.elf.image(), first * symbol_bytes, chunk_bytes)?;
            let symbols = pod::slice_from_all_bytes::<Symbol>(&chunk).map_err(|()| ParseError::Malformed)?;
            symbols.iter().for_each(|symbol| self.add(symbol));
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
            && (symbol.st_type() != elf::STT_NOTYPE
                || self.untyped.contains(&symbol.st_value.get(LE))
                || self.is_label_of_source(symbol.st_name.get(LE)))
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
        let text = self.names.read_string(self.elf.image(), name.into()).unwrap_or_default();
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
mod tests;
