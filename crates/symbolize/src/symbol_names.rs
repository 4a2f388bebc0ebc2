//! Names of functions from their symbols: demangled, and in code that NativeAOT compiled, as C#.

use std::{ops::Range, path::Path};

use profiler_addresses::ElfAddress;
use profiler_dotnet_symbols::native_aot;
use profiler_elf_symbols::{Elf, SymbolMatch, demangle};

/// The sections that NativeAOT puts managed code and its unboxing stubs into (`ObjectNodeSection` of ILCompiler, .NET 8 and
/// later).
const MANAGED_SECTIONS: [&[u8]; 2] = [b"__managedcode", b"__unbox"];

/// Converts the symbols of one module.
#[derive(Debug, Default)]
pub(super) struct SymbolNames {
    /// The code of .NET methods; empty in most modules.
    managed: Vec<Range<u64>>,
    /// The name of the assembly that the module is made of.
    program: String,
}

impl SymbolNames {
    /// The names of a module. `path` is that of its file.
    pub(super) fn of_module(module: &Elf, path: &Path) -> Self {
        let managed = managed_code(module);
        if managed.is_empty() {
            return Self::default();
        }
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        Self { managed, program: file.strip_suffix(".so").unwrap_or(&file).to_owned() }
    }

    /// The name of the function with a symbol.
    pub(super) fn name(&self, found: &SymbolMatch) -> String {
        let managed = || {
            let symbol = self.is_managed(found.start).then(|| std::str::from_utf8(&found.name).ok())??;
            native_aot::method_name(symbol, &self.program)
        };
        managed().unwrap_or_else(|| demangle(&found.name))
    }

    fn is_managed(&self, address: ElfAddress) -> bool {
        self.managed.iter().any(|range| range.contains(&address.0))
    }
}

/// The address ranges of managed code in a file that NativeAOT compiled; empty for another file.
pub(crate) fn managed_code(module: &Elf) -> Vec<Range<u64>> {
    let Ok(sections) = module.sections() else { return Vec::new() };
    let found = MANAGED_SECTIONS.iter().filter_map(|name| sections.find(name));
    found.map(|section| section.addresses()).filter(|range| !range.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use object::elf::{SHF_ALLOC, SHF_EXECINSTR, SHT_NOBITS, SHT_SYMTAB};
    use profiler_elf_symbols::test_file::{TestFile, function};
    use profiler_processes::root_directory::RootDirectory;
    use profiler_profile::{Reason, SymbolSource};

    use super::*;
    use crate::{NativeOptions, debug_file::DebugFiles, native::NativeModule};

    const MANAGED: u64 = 0x8000;
    const SYMBOL: &str = "S_P_CoreLib_System_IO_Stream__Close";

    /// A program with native code, and 4 KiB of a section at [`MANAGED`].
    fn program(section: &str) -> TestFile {
        let file = TestFile::with_code().with(section, SHT_NOBITS, Vec::new()).section_address(MANAGED);
        let mut file = file.section_flags(2, SHF_ALLOC | SHF_EXECINSTR);
        file.set_section_size(2, 0x1000);
        file
    }

    fn name_at(file: TestFile, address: u64) -> Result<(SymbolSource, String), Reason> {
        name_with(NativeOptions::default(), file, address)
    }

    fn name_with(
        options: NativeOptions,
        file: TestFile,
        address: u64,
    ) -> Result<(SymbolSource, String), Reason> {
        let empty = tempfile::tempdir().unwrap();
        let files = DebugFiles::with_host(RootDirectory::open(empty.path()).unwrap());
        let mut module = NativeModule::from_bytes(file.bytes(), Path::new("/app/my-shop")).unwrap();
        let found = module.symbolize(ElfAddress(address), options, &files)?;
        Ok((found.source, found.functions[0].name.clone()))
    }

    #[test]
    fn methods_that_nativeaot_compiled_are_spelled_as_csharp() {
        let symbols = [
            function(SYMBOL, MANAGED, 0x10),
            function("my_shop_Program__Work", MANAGED + 0x10, 0x10),
            function("RhpThrowEx", MANAGED + 0x20, 0x10),
            function("_ZN2GC4workEv", 0x1000, 0x10),
        ];
        let name =
            |address| name_at(program("__managedcode").symbols(SHT_SYMTAB, &symbols), address).unwrap().1;
        assert_eq!(name(MANAGED + 4), "System.Private.CoreLib!System.IO.Stream.Close");
        assert_eq!(name(MANAGED + 0x14), "my-shop!Program.Work");
        assert_eq!(name(MANAGED + 0x24), "RhpThrowEx");
        assert_eq!(name(0x1004), "GC::work()", "native code of the runtime");
    }

    #[test]
    fn raw_names_are_the_symbols() {
        let symbols = [function(SYMBOL, MANAGED, 0x10), function("_ZN2GC4workEv", 0x1000, 0x10)];
        let options = NativeOptions { raw_names: true, ..NativeOptions::default() };
        let name = |address| {
            let file = program("__managedcode").symbols(SHT_SYMTAB, &symbols);
            name_with(options, file, address).unwrap().1
        };
        assert_eq!(name(MANAGED + 4), SYMBOL);
        assert_eq!(name(0x1004), "GC::work()");
    }

    #[test]
    fn symbols_outside_of_managed_code_stay_as_they_are() {
        let name = |section, address| {
            let file = program(section).symbols(SHT_SYMTAB, &[function(SYMBOL, address, 0x10)]);
            name_at(file, address).unwrap().1
        };
        assert_eq!(name("__managedcode", 0x1000), SYMBOL);
        assert_eq!(name(".text.other", MANAGED), SYMBOL);
    }

    #[test]
    fn a_stripped_program_lacks_its_symbols() {
        assert_eq!(name_at(program("__managedcode"), MANAGED), Err(Reason::NoSymbols));
    }
}
