//! Function names of a module from symbol tables: `.symtab`, the debug file, `.gnu_debugdata`, `.dynsym`; and from the
//! call tables of a stripped .NET runtime; of a stripped Go program, from its function table.

use std::{path::Path, sync::Arc};

use profiler_addresses::ElfAddress;
use profiler_binary_reader::WorkBudget;
use profiler_dotnet_symbols::jit_helpers::JitHelpers;
use profiler_elf_symbols::{
    Elf, FunctionRanges, GoTable, Machine, Sections, SymbolMatch, SymbolTable, TableKind,
};
use profiler_profile::{Reason, SymbolSource};
use profiler_stack_height::end_of_function;

use crate::{
    debug_file::DebugFiles,
    reasons,
    runtime_functions::RuntimeFunctions,
    runtime_helpers,
    symbol::{Function, SymbolHint, Symbolized},
    symbol_names::SymbolNames,
};

/// The maximum distance from the nearest export to an unsymbolized function: about the code of one source file. In libraries
/// with many exports, a third to a half of the unsymbolized code is within it. A .NET runtime has a dozen exports, and a
/// larger distance would say nothing about the function.
const MAX_DISTANCE_BYTES: u64 = 4 << 10;

/// The code in which the end of a function without a size is looked for, bytes.
const MAX_UNSIZED_BYTES: u64 = 64 << 10;

/// The symbol tables of one module, best first.
#[derive(Debug)]
pub(super) struct FunctionNames {
    tables: Vec<Table>,
    /// The reason for addresses that none of the tables contains.
    absence: Reason,
    /// The function ranges, loaded when the tables miss an address for the first time.
    ranges: Option<FunctionRanges>,
    /// The functions of a Go program without a symbol table.
    go_table: Option<GoTable>,
    /// Converts symbols to names.
    names: SymbolNames,
    /// The functions that a .NET runtime's call tables name, loaded when no table has the name of a function.
    runtime_functions: Option<RuntimeFunctions>,
}

#[derive(Debug)]
struct Table {
    source: SymbolSource,
    /// The file of the table, from which names are read.
    elf: Arc<Elf>,
    symbols: SymbolTable,
}

impl FunctionNames {
    /// Loads the `.symtab` of the module, else that of its debug file, else `.gnu_debugdata` and `.dynsym`.
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
            #[cfg(feature = "compressed-debug-info")]
            loader.add_mini_debug_info(module);
            loader.add(SymbolSource::DynamicSymbols, module, TableKind::Dynamic);
        }
        let go_table = if loader.is_complete() { None } else { loader.go_table(module) };
        let names = SymbolNames::of_module(module, path);
        let Loader { tables, absence, .. } = loader;
        Self { tables, absence, ranges: None, go_table, names, runtime_functions: None }
    }

    /// Demangles symbols only, and spells none as C#.
    pub(super) fn keep_raw_symbols(&mut self) {
        self.names = SymbolNames::default();
    }

    /// Whether there is a table with more than exports.
    pub(super) fn is_complete(&self) -> bool {
        is_complete(&self.tables)
    }

    /// The source of the best table.
    pub(super) fn best_source(&mut self, module: &Elf, budget: &WorkBudget) -> Option<SymbolSource> {
        if self.go_table.is_some() {
            return Some(SymbolSource::GoFunctionTable);
        }
        if !self.is_complete() && !self.runtime_functions(module, budget).is_empty() {
            return Some(SymbolSource::RuntimeCallTable);
        }
        self.tables.first().map(|table| table.source)
    }

    /// Finds the function at an address.
    ///
    /// No call ends at the last byte before a function. An address there is a return address that points to the start of a
    /// function, as makecontext(3) creates it, and the next function is returned. Without a full table, the symbol at the
    /// start of the function by `.eh_frame` is returned, regardless of its size, and then the name in a call table.
    pub(super) fn find(
        &mut self,
        module: &Elf,
        address: ElfAddress,
        budget: &WorkBudget,
    ) -> Result<Symbolized, Reason> {
        if let Some(found) = self.find_in_go_table(module, address) {
            return Ok(found);
        }
        let next = ElfAddress(address.0.wrapping_add(1));
        let found = self
            .find_at(address, |found| contains(module, found, address))
            .or_else(|reason| self.find_at(next, |found| found.start == next).map_err(|_| reason));
        match found {
            Err(Reason::NoSymbols) => {
                let start = self.function_start(module, address, budget).ok_or(self.absence)?;
                self.find_by_start(start)
                    .or_else(|reason| self.runtime_functions(module, budget).find(start).ok_or(reason))
            }
            found => found,
        }
    }

    /// The function start and the nearest symbol of an unsymbolized address.
    pub(super) fn nearby(&mut self, module: &Elf, address: ElfAddress, budget: &WorkBudget) -> SymbolHint {
        let function_start = self.function_start(module, address, budget);
        let from = function_start.unwrap_or(address);
        let nearest = self.tables.iter().filter_map(|table| table.find_nearest_global(from));
        let nearest = nearest.max_by_key(|nearest| nearest.start);
        let is_near = |nearest: &SymbolMatch| from.0 - nearest.start.0 <= MAX_DISTANCE_BYTES;
        SymbolHint {
            function_start,
            preceding_symbol: nearest.filter(is_near).map(|nearest| self.names.name(&nearest)),
        }
    }

    /// The function of Go at an address, with its line. What is not Go in the program, or malformed, has none.
    fn find_in_go_table(&self, module: &Elf, address: ElfAddress) -> Option<Symbolized> {
        let found = self.go_table.as_ref()?.find(module, address).ok().flatten()?;
        let function = Function { name: found.name, location: found.location };
        Some(Symbolized { source: SymbolSource::GoFunctionTable, functions: vec![function], tier: None })
    }

    fn function_start(
        &mut self,
        module: &Elf,
        address: ElfAddress,
        budget: &WorkBudget,
    ) -> Option<ElfAddress> {
        self.ranges.get_or_insert_with(|| read_ranges(module, budget)).find_start(address)
    }

    fn runtime_functions(&mut self, module: &Elf, budget: &WorkBudget) -> &RuntimeFunctions {
        let ranges = self.ranges.get_or_insert_with(|| read_ranges(module, budget));
        self.runtime_functions.get_or_insert_with(|| RuntimeFunctions::read(module, ranges))
    }

    /// The helpers of a .NET runtime that have these names by number.
    pub(super) fn jit_helpers(&mut self, module: &Elf, names: &[String], budget: &WorkBudget) -> JitHelpers {
        let ranges = self.ranges.get_or_insert_with(|| read_ranges(module, budget));
        runtime_helpers::jit_helpers(module, ranges, names)
    }

    fn find_by_start(&self, start: ElfAddress) -> Result<Symbolized, Reason> {
        let found = self.tables.iter().find_map(|table| {
            let found = table.symbols.find_start(&table.elf, start).ok().flatten()?;
            Some(Symbolized::new(table.source, self.names.name(&found)))
        });
        found.ok_or(self.absence)
    }

    /// Finds the best symbol of all tables: one with a size before one without, then the nearest.
    fn find_at(
        &self,
        address: ElfAddress,
        is_match: impl Fn(&SymbolMatch) -> bool,
    ) -> Result<Symbolized, Reason> {
        let mut best: Option<(SymbolSource, SymbolMatch)> = None;
        let rank = |found: &SymbolMatch| (found.is_sized, found.start);
        for table in &self.tables {
            let Some(found) = table
                .symbols
                .find(&table.elf, address)
                .map_err(reasons::parse_error_reason)?
                .filter(&is_match)
            else {
                continue;
            };
            if best.as_ref().is_none_or(|(_, best)| rank(&found) > rank(best)) {
                best = Some((table.source, found));
            }
        }
        let (source, found) = best.ok_or(self.absence)?;
        Ok(Symbolized::new(source, self.names.name(&found)))
    }
}

/// Whether an address before the next symbol is within a function. Compilers write the size of each function, but for those that
/// GCC links into every program (crtstuff.c): the last of them would have the code of the program that has no symbols.
fn contains(module: &Elf, found: &SymbolMatch, address: ElfAddress) -> bool {
    if found.is_sized || !found.is_function || module.machine() != Machine::X86_64 {
        return true;
    }
    let offset = address.0 - found.start.0;
    let code = module.read_code(found.start, offset.min(MAX_UNSIZED_BYTES)).unwrap_or_default();
    end_of_function(&code, found.start.0).is_none()
}

/// Whether there is a table with more than exports.
fn is_complete(tables: &[Table]) -> bool {
    tables.iter().any(|table| table.source != SymbolSource::DynamicSymbols)
}

/// The functions by `.eh_frame`. Malformed call frame information is treated as missing.
fn read_ranges(module: &Elf, budget: &WorkBudget) -> FunctionRanges {
    budget.read_symbols(|left| FunctionRanges::read(module, left)).unwrap_or_default()
}

impl Table {
    /// The nearest global symbol before an address; `None` also when its name cannot be read.
    fn find_nearest_global(&self, address: ElfAddress) -> Option<SymbolMatch> {
        self.symbols.find_nearest_global(&self.elf, address).ok().flatten()
    }
}

struct Loader<'a> {
    tables: Vec<Table>,
    absence: Reason,
    budget: &'a WorkBudget,
}

impl Loader<'_> {
    fn add(&mut self, source: SymbolSource, elf: &Arc<Elf>, kind: TableKind) {
        let sections = elf.sections();
        match sections.and_then(|sections| SymbolTable::load(elf, &sections, kind, self.budget)) {
            Ok(Some(symbols)) => self.add_table(Table { source, elf: Arc::clone(elf), symbols }),
            Ok(None) => {}
            Err(defect) => self.absence = reasons::parse_error_reason(defect),
        }
    }

    fn is_complete(&self) -> bool {
        is_complete(&self.tables)
    }

    /// The function table of a Go program. A malformed one is treated as missing, with a reason.
    fn go_table(&mut self, module: &Elf) -> Option<GoTable> {
        let sections = module.sections().unwrap_or_default();
        GoTable::read(module, &sections, self.budget).unwrap_or_else(|defect| {
            self.absence = reasons::parse_error_reason(defect);
            None
        })
    }

    #[cfg(feature = "compressed-debug-info")]
    fn add_mini_debug_info(&mut self, module: &Elf) {
        match module.sections().and_then(|sections| module.mini_debug_info(&sections, self.budget)) {
            Ok(Some(elf)) => self.add(SymbolSource::MiniDebugInfo, &Arc::new(elf), TableKind::Static),
            Ok(None) => {}
            Err(defect) => self.absence = reasons::parse_error_reason(defect),
        }
    }

    fn add_table(&mut self, table: Table) {
        // Exports are a small part of the functions. If a file has nothing else, it lacks a symbol table, not one symbol.
        if table.source != SymbolSource::DynamicSymbols {
            self.absence = Reason::NoSymbolHere;
        }
        self.tables.push(table);
    }
}
