//! Names of native functions of a stripped .NET runtime, from the tables through which managed code calls them.

use std::sync::Arc;

use profiler_addresses::ElfAddress;
use profiler_binary_reader::{Name, Names, ParseError, WorkBudget};
use profiler_dotnet_symbols::call_tables::{NamedFunction, RuntimeFile, read_call_tables};
use profiler_elf_symbols::{Elf, FunctionRanges};
use profiler_profile::SymbolSource;

use crate::{runtime_detection::has_jit_compiler, symbol::Symbolized};

/// The work of reading the tables of one runtime. Those of real runtimes take a tenth.
const WORK_LIMIT: u64 = 16 << 20;

/// The functions that the call tables of a runtime name, sorted by address; empty for a file that is no runtime.
#[derive(Debug, Default)]
pub(super) struct RuntimeFunctions {
    functions: Vec<(ElfAddress, Name)>,
    names: Names,
}

impl RuntimeFunctions {
    /// Reads the call tables of a module. `ranges` has the functions of the module.
    pub(super) fn read(module: &Elf, ranges: &FunctionRanges) -> Self {
        if !has_jit_compiler(module) {
            return Self::default();
        }
        match named_functions(module, ranges) {
            Ok(functions) => Self::new(functions),
            Err(error) => {
                log::debug!("failed to read the call tables of a .NET runtime: {error}");
                Self::default()
            }
        }
    }

    fn new(found: Vec<NamedFunction>) -> Self {
        let mut names = Names::default();
        let mut functions = Vec::with_capacity(found.len());
        for NamedFunction { address, name } in found {
            functions.extend(names.push(name.as_bytes()).map(|name| (address, name)));
        }
        names.shrink_to_fit();
        Self { functions, names }
    }

    /// Whether no function has a name.
    pub(super) fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// The function that starts at an address.
    pub(super) fn find(&self, start: ElfAddress) -> Option<Symbolized> {
        let index = self.functions.binary_search_by_key(&start, |(address, _)| *address).ok()?;
        let name = self.names.get(self.functions[index].1);
        Some(Symbolized::new(SymbolSource::RuntimeCallTable, name))
    }
}

fn named_functions(module: &Elf, ranges: &FunctionRanges) -> Result<Vec<NamedFunction>, ParseError> {
    let budget = Arc::new(WorkBudget::with_work_limit(WORK_LIMIT));
    let relocations = module.relative_relocations(&budget)?;
    read_call_tables(RuntimeFile {
        image: module.loaded_image(budget)?,
        relocations: &relocations,
        is_function_start: &|address| ranges.is_start(address),
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use object::elf::{self, SHT_DYNSYM, SHT_PROGBITS, SHT_SYMTAB};
    use profiler_elf_symbols::test_file::{TestFile, eh_frame, function};
    use profiler_processes::root_directory::RootDirectory;
    use profiler_profile::Reason;

    use super::*;
    use crate::{NativeOptions, debug_file::DebugFiles, native::NativeModule};

    const FUNCTIONS: u64 = 9;
    const FUNCTION_BYTES: u64 = 0x20;
    const CODE: u64 = 0x1000;
    const DATA: u64 = 0x3_0000;

    fn bytes_of(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// A stripped file with these exports, functions from [`CODE`] on, and a table that names them `Call_0`, `Call_1` ...
    fn stripped(exports: &[&'static str]) -> TestFile {
        const NAME_BYTES: u64 = 8;
        const RELATIVE: u64 = if cfg!(target_arch = "aarch64") { 1027 } else { 8 };
        let names = DATA + FUNCTIONS * 16;
        let relocations = names + FUNCTIONS * NAME_BYTES;
        let mut data = vec![0; FUNCTIONS as usize * 16];
        (0..FUNCTIONS).for_each(|number| data.extend(format!("Call_{number}\0\0").into_bytes()));
        for number in 0..FUNCTIONS {
            let record = DATA + number * 16;
            data.extend(bytes_of(&[record, RELATIVE, names + number * NAME_BYTES]));
            data.extend(bytes_of(&[record + 8, RELATIVE, CODE + number * FUNCTION_BYTES]));
        }
        let dynamic =
            [elf::DT_RELA.0.cast_unsigned(), relocations, elf::DT_RELASZ.0.cast_unsigned(), FUNCTIONS * 48];
        let exports: Vec<_> = exports.iter().map(|name| function(name, CODE, FUNCTION_BYTES)).collect();
        let ranges: Vec<_> = (0..FUNCTIONS as u32)
            .map(|number| (CODE as u32 + number * FUNCTION_BYTES as u32, FUNCTION_BYTES as u32))
            .collect();
        TestFile::with_code()
            .symbols(SHT_DYNSYM, &exports)
            .with(".eh_frame", SHT_PROGBITS, eh_frame(&ranges))
            .data_at(DATA, data)
            .with(".dynamic", SHT_PROGBITS, bytes_of(&dynamic))
            .segment_of_section(elf::PT_DYNAMIC)
    }

    fn name_at(file: TestFile, address: u64) -> Result<(SymbolSource, String), Reason> {
        let empty = tempfile::tempdir().unwrap();
        let files = DebugFiles::with_host(RootDirectory::open(empty.path()).unwrap());
        let mut module = NativeModule::from_bytes(file.bytes(), Path::new("/lib/x.so")).unwrap();
        let found = module.symbolize(ElfAddress(address), NativeOptions::default(), &files)?;
        Ok((found.source, found.functions[0].name.clone()))
    }

    #[test]
    fn functions_of_a_stripped_runtime_have_the_names_of_its_call_table() {
        let address = CODE + 3 * FUNCTION_BYTES;
        let expected = Ok((SymbolSource::RuntimeCallTable, "Call_3".to_owned()));
        for offset in [0, 1, FUNCTION_BYTES - 1] {
            assert_eq!(name_at(stripped(&["coreclr_initialize"]), address + offset), expected);
        }
        let outside = CODE + FUNCTIONS * FUNCTION_BYTES;
        assert_eq!(name_at(stripped(&["coreclr_initialize"]), outside), Err(Reason::NoSymbols));
    }

    #[test]
    fn a_file_that_is_no_runtime_has_no_names_of_call_tables() {
        for exports in
            [&["other"][..], &["DotNetRuntimeDebugHeader"], &["coreclr_initialize", "mono_get_root_domain"]]
        {
            assert_eq!(
                name_at(stripped(exports), CODE + FUNCTION_BYTES),
                Err(Reason::NoSymbols),
                "{exports:?}"
            );
        }
    }

    #[test]
    fn symbols_and_exports_take_precedence_over_call_tables() {
        let exported = name_at(stripped(&["coreclr_initialize"]), CODE);
        assert_eq!(exported, Ok((SymbolSource::DynamicSymbols, "coreclr_initialize".to_owned())));
        let symbols = [function("in_symtab", CODE + FUNCTION_BYTES, FUNCTION_BYTES)];
        let whole = stripped(&["coreclr_initialize"]).symbols(SHT_SYMTAB, &symbols);
        let found = name_at(whole.clone(), CODE + FUNCTION_BYTES);
        assert_eq!(found, Ok((SymbolSource::SymbolTable, "in_symtab".to_owned())));
        assert_eq!(name_at(whole, CODE + 2 * FUNCTION_BYTES), Err(Reason::NoSymbolHere));
    }

    #[test]
    fn a_runtime_with_malformed_tables_has_no_names_of_them() {
        let mut file = stripped(&["coreclr_initialize"]);
        let data_section = 5;
        file.set_section_size(data_section, 64);
        assert_eq!(name_at(file, CODE + FUNCTION_BYTES), Err(Reason::NoSymbols));
    }
}
