//! The symbol tables that name a module's functions, best first.

use crate::absence;
use profiler_binary_reader::WorkBudget;
use profiler_elf_symbols::{Elf, FunctionRanges, Sections, SymbolMatch, SymbolTable, TableKind, demangle};
use std::{path::Path, sync::Arc};

use super::{
    debug_file::DebugFiles,
    symbol::{Nearby, Symbolized},
};
use profiler_addresses::ElfAddress;
use profiler_profile::{Reason, SymbolSource};

/// How far an export may stand before a function to tell where in a file that is: about what one source file
/// compiles to. In libraries with many exports a third to a half of the nameless code lies within it; in a .NET
/// runtime, which has a dozen, almost none, and there a greater distance would tell nothing.
const MAX_DISTANCE_BYTES: u64 = 4 << 10;

/// The tables of one module.
#[derive(Debug)]
pub(super) struct FunctionNames {
    tables: Vec<Table>,
    /// Why an address has no name when none of the tables has one.
    absence: Reason,
    /// Where functions begin: read when the tables miss an address for the first time.
    functions: Option<FunctionRanges>,
}

#[derive(Debug)]
struct Table {
    source: SymbolSource,
    /// The file the table stands in: names are read from it.
    elf: Arc<Elf>,
    symbols: SymbolTable,
}

impl FunctionNames {
    /// The module's own full table, else its debug file's, else the small tables a stripped file keeps: the
    /// exports, and what `.gnu_debugdata` adds to them.
    pub(super) fn load(
        module: &Arc<Elf>,
        path: &Path,
        debug_files: &DebugFiles,
        budget: &WorkBudget,
    ) -> Self {
        let mut loader = Loader { tables: Vec::new(), absence: Reason::NoSymbols, budget };
        loader.add(SymbolSource::SymbolTable, module, TableKind::Static);
        if loader.tables.is_empty()
            && let Some(found) = debug_files.find(module, path, Sections::has_symbol_table, budget)
        {
            loader.add(SymbolSource::DebugFile, &Arc::new(found.elf), TableKind::Static);
        }
        if loader.tables.is_empty() {
            #[cfg(feature = "mini-debug-info")]
            loader.add_mini_debug_info(module);
            loader.add(SymbolSource::DynamicSymbols, module, TableKind::Dynamic);
        }
        Self { tables: loader.tables, absence: loader.absence, functions: None }
    }

    /// Whether there is a table of more than exported functions.
    pub(super) fn are_complete(&self) -> bool {
        self.tables.iter().any(|table| table.source != SymbolSource::DynamicSymbols)
    }

    /// Where most names come from.
    pub(super) fn best_source(&self) -> Option<SymbolSource> {
        self.tables.first().map(|table| table.source)
    }

    /// The function at an address; else the one that begins behind it. For no call is the last byte before a function:
    /// an address there is that of a return to the function's first byte, as makecontext(3) makes it. Else, where a full
    /// table is missing, the one that begins where the call frame information lets the function begin, whatever its
    /// symbol says of its size.
    pub(super) fn find(
        &mut self,
        module: &Elf,
        address: ElfAddress,
        budget: &WorkBudget,
    ) -> Result<Symbolized, Reason> {
        let behind = ElfAddress(address.0.wrapping_add(1));
        let found = self
            .find_at(address, |_| true)
            .or_else(|reason| self.find_at(behind, |found| found.start == behind).map_err(|_| reason));
        match found {
            Err(Reason::NoSymbols) => {
                let start = self.function_start(module, address, budget).ok_or(self.absence)?;
                self.find_beginning(start)
            }
            found => found,
        }
    }

    /// What is known of an address without a name.
    pub(super) fn nearby(&mut self, module: &Elf, address: ElfAddress, budget: &WorkBudget) -> Nearby {
        let function_start = self.function_start(module, address, budget);
        let from = function_start.unwrap_or(address);
        let nearest = self.tables.iter().filter_map(|table| table.nearest_global(from));
        let nearest = nearest.max_by_key(|nearest| nearest.start);
        let is_near = |nearest: &SymbolMatch| from.0 - nearest.start.0 <= MAX_DISTANCE_BYTES;
        Nearby { function_start, symbol: nearest.filter(is_near).map(|nearest| demangle(&nearest.name)) }
    }

    fn function_start(
        &mut self,
        module: &Elf,
        address: ElfAddress,
        budget: &WorkBudget,
    ) -> Option<ElfAddress> {
        let read = || budget.read_symbols(|left| FunctionRanges::read(module, left));
        // Where that fails, functions are as little known as where there is no such information.
        self.functions.get_or_insert_with(|| read().unwrap_or_default()).start_at(address)
    }

    fn find_beginning(&self, start: ElfAddress) -> Result<Symbolized, Reason> {
        let found = self.tables.iter().find_map(|table| {
            let found = table.symbols.beginning_at(&table.elf, start).ok().flatten()?;
            Some(Symbolized::of(table.source, demangle(&found.name)))
        });
        found.ok_or(self.absence)
    }

    /// Among the tables a symbol that states a size goes before one that only begins earlier, and then the one that
    /// begins nearer.
    fn find_at(
        &self,
        address: ElfAddress,
        fits: impl Fn(&SymbolMatch) -> bool,
    ) -> Result<Symbolized, Reason> {
        let mut best: Option<(SymbolSource, SymbolMatch)> = None;
        let rank = |found: &SymbolMatch| (found.is_sized, found.start);
        for table in &self.tables {
            let Some(found) =
                table.symbols.find(&table.elf, address).map_err(absence::of_defect)?.filter(&fits)
            else {
                continue;
            };
            if best.as_ref().is_none_or(|(_, best)| rank(&found) > rank(best)) {
                best = Some((table.source, found));
            }
        }
        let (source, SymbolMatch { name, .. }) = best.ok_or(self.absence)?;
        Ok(Symbolized::of(source, demangle(&name)))
    }
}

impl Table {
    /// The global symbol nearest before an address; one that cannot be read is none.
    fn nearest_global(&self, address: ElfAddress) -> Option<SymbolMatch> {
        self.symbols.nearest_global(&self.elf, address).ok().flatten()
    }
}

struct Loader<'a> {
    tables: Vec<Table>,
    absence: Reason,
    budget: &'a WorkBudget,
}

impl Loader<'_> {
    fn add(&mut self, source: SymbolSource, elf: &Arc<Elf>, kind: TableKind) {
        let load = |left: &mut u64| SymbolTable::load(elf, &elf.sections()?, kind, left);
        match self.budget.read_symbols(load) {
            Ok(Some(symbols)) => self.add_table(Table { source, elf: Arc::clone(elf), symbols }),
            Ok(None) => {}
            Err(defect) => self.absence = absence::of_defect(defect),
        }
    }

    #[cfg(feature = "mini-debug-info")]
    fn add_mini_debug_info(&mut self, module: &Elf) {
        match module.sections().and_then(|sections| module.mini_debug_info(&sections)) {
            Ok(Some(elf)) if elf.image().length() > self.budget.bytes_left() => {
                self.absence = Reason::TooLarge;
            }
            Ok(Some(elf)) => {
                self.budget.take_bytes(elf.image().length());
                self.add(SymbolSource::MiniDebugInfo, &Arc::new(elf), TableKind::Static);
            }
            Ok(None) => {}
            Err(defect) => self.absence = absence::of_defect(defect),
        }
    }

    fn add_table(&mut self, table: Table) {
        // Exports alone leave most functions out: what is missing then is a full table, not one symbol.
        if table.source != SymbolSource::DynamicSymbols {
            self.absence = Reason::NoSymbolHere;
        }
        self.tables.push(table);
    }
}
