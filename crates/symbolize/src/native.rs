//! Symbolization of one ELF file: symbol tables, debug file, DWARF, symbol servers.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use profiler_addresses::{ElfAddress, FileMapping, RuntimeAddress};
use profiler_binary_reader::{Image, WorkBudget};
use profiler_dotnet_symbols::jit_helpers::JitHelpers;
use profiler_elf_symbols::{BuildId, DebugInfo, DwarfFrame, Elf, Sections, demangle};
use profiler_profile::{Reason, SymbolSource};

use crate::{
    debug_file::DebugFiles,
    function_names::FunctionNames,
    reasons, runtime_helpers,
    symbol::{Function, SymbolHint, Symbolized},
    symbol_server::FetchStatus,
};

/// What symbolization of native code returns in addition to the function name.
#[derive(Clone, Copy, Debug, Default)]
pub struct NativeOptions {
    /// Inlined functions.
    pub inlines: bool,
    /// File and line.
    pub lines: bool,
    /// The symbols of NativeAOT's methods as they are, not as C#.
    pub raw_names: bool,
}

/// An ELF file that is mapped into processes. It stays open, so that it can be symbolized after the process or the file is
/// gone.
pub struct NativeModule {
    elf: Arc<Elf>,
    path: PathBuf,
    /// Loaded at the first lookup.
    names: Option<FunctionNames>,
    /// Loaded at the first lookup with inlined functions or lines. `None` when it is missing or unusable.
    debug_info: Option<DebugInfo>,
    /// The state of the download of the debug file, when it was requested.
    fetch: Option<FetchStatus>,
    budget: Arc<WorkBudget>,
}

impl NativeModule {
    /// Reads headers, segments and build id. `path` is the path in the root of the process; `budget` is shared by all modules.
    ///
    /// # Errors
    /// The reason why frames of this file stay unsymbolized.
    pub fn open(image: Image, path: &Path, budget: &Arc<WorkBudget>) -> Result<Self, Reason> {
        Ok(Self::from_elf(Elf::parse(image).map_err(reasons::parse_error_reason)?, path, budget))
    }

    /// A module from an ELF file that is already open: the mapped file or its debug file.
    pub(super) fn from_elf(elf: Elf, path: &Path, budget: &Arc<WorkBudget>) -> Self {
        let (elf, path, budget) = (Arc::new(elf), path.to_owned(), Arc::clone(budget));
        Self { elf, path, names: None, debug_info: None, fetch: None, budget }
    }

    /// A module from bytes in memory.
    #[cfg(any(test, fuzzing))]
    pub fn from_bytes(bytes: Vec<u8>, path: &Path) -> Result<Self, Reason> {
        Self::open(Image::Memory(bytes), path, &Arc::default())
    }

    /// The build id; empty when the file has none.
    pub fn build_id(&self) -> &[u8] {
        self.elf.build_id().map_or(&[], BuildId::bytes)
    }

    /// The ELF file.
    pub(super) fn elf(&self) -> &Elf {
        &self.elf
    }

    /// Converts a runtime address in a mapping of the file to the ELF address; `None` outside of all segments.
    pub fn elf_address(&self, mapping: FileMapping, address: RuntimeAddress) -> Option<ElfAddress> {
        self.elf.address(mapping, address)
    }

    /// The best symbol table of the module.
    pub(super) fn best_source(&mut self, debug_files: &DebugFiles) -> Option<SymbolSource> {
        self.load_tables(NativeOptions::default(), debug_files);
        self.names.as_mut().and_then(|names| names.best_source(&self.elf, &self.budget))
    }

    /// Symbolizes an address. The name of the outermost function is from the symbol tables, or from DWARF when they have none.
    ///
    /// # Errors
    /// The reason why the address stays unsymbolized.
    pub fn symbolize(
        &mut self,
        address: ElfAddress,
        options: NativeOptions,
        debug_files: &DebugFiles,
    ) -> Result<Symbolized, Reason> {
        self.load_tables(options, debug_files);
        let names = self.names.as_mut().ok_or(Reason::NoSymbols)?;
        let symbol =
            names.find(&self.elf, address, &self.budget).map_err(|reason| self.refine_reason(reason));
        // Malformed DWARF does not invalidate the name from the symbol table.
        let debug_info = self.debug_info.as_mut();
        let frames = debug_info.and_then(|debug_info| debug_info.frames(address, debug_files).ok());
        let mut symbolized = combine(symbol, frames.unwrap_or_default(), options)?;
        if !options.lines {
            symbolized.functions.iter_mut().for_each(|function| function.location = None);
        }
        Ok(symbolized)
    }

    /// The names of helpers, by number, in the file of a JIT compiler.
    pub(super) fn helper_names(&self) -> Vec<String> {
        runtime_helpers::helper_names(&self.elf)
    }

    /// The helpers of a .NET runtime that have these names by number; empty before the first lookup.
    pub(super) fn jit_helpers(&mut self, names: &[String]) -> JitHelpers {
        let functions = self.names.as_mut();
        functions.map(|functions| functions.jit_helpers(&self.elf, names, &self.budget)).unwrap_or_default()
    }

    /// Whether it has all names and debug information with these debug files.
    pub(super) fn is_self_contained(&mut self, options: NativeOptions, debug_files: &DebugFiles) -> bool {
        self.load_tables(options, debug_files);
        let has_names = self.names.as_ref().is_some_and(FunctionNames::is_complete);
        let needs_debug_info = options.inlines || options.lines;
        let has_debug_info = || self.debug_info.is_some() && !self.may_have_split_units(debug_files);
        has_names && (!needs_debug_info || has_debug_info())
    }

    /// Whether units of the debug information can be in other files (`.dwo`, `.dwp`), which a container can have. Their
    /// skeletons have addresses in `.debug_addr` (DWARF 5, section 7.3.2), which units that are not split can use too.
    fn may_have_split_units(&self, debug_files: &DebugFiles) -> bool {
        let has_addresses = |sections: &Sections| {
            [&b".debug_addr"[..], b".zdebug_addr"].iter().any(|name| sections.find(name).is_some())
        };
        if let Ok(sections) = self.elf.sections()
            && sections.has_dwarf()
        {
            return has_addresses(&sections);
        }
        let debug_file = debug_files.find(&self.elf, &self.path, Sections::has_dwarf, &self.budget);
        let sections = debug_file.map(|file| file.elf.sections());
        sections.is_some_and(|sections| sections.is_ok_and(|sections| has_addresses(&sections)))
    }

    /// Discards names and debug information, so that they are loaded with other debug files.
    pub(super) fn discard_symbols(&mut self) {
        (self.names, self.debug_info, self.fetch) = (None, None, None);
    }

    /// Whether the debug file is being downloaded from a symbol server.
    pub fn awaits_debug_file(&mut self, options: NativeOptions, debug_files: &DebugFiles) -> bool {
        self.load_tables(options, debug_files);
        self.fetch == Some(FetchStatus::Pending)
    }

    /// Loads the tables once, and again after a debug file was downloaded.
    fn load_tables(&mut self, options: NativeOptions, debug_files: &DebugFiles) {
        if self.names.is_none() {
            let lacks_names = self.load_tables_now(options, debug_files);
            self.fetch = if lacks_names { self.fetch_debug_file(debug_files) } else { None };
        } else if self.fetch == Some(FetchStatus::Pending) {
            self.fetch = self.fetch_debug_file(debug_files);
            if self.fetch == Some(FetchStatus::Found) {
                self.load_tables_now(options, debug_files);
            }
        }
    }

    /// Loads the tables. Returns whether a debug file would add names.
    fn load_tables_now(&mut self, options: NativeOptions, debug_files: &DebugFiles) -> bool {
        let mut names = FunctionNames::load(&self.elf, &self.path, debug_files, &self.budget);
        if options.raw_names {
            names.keep_raw_symbols();
        }
        let mut lacks_names = !names.is_complete();
        self.names = Some(names);
        if options.inlines || options.lines {
            let debug_info = DebugInfo::load(&self.elf, &self.path, debug_files, &self.budget);
            lacks_names |= matches!(debug_info, Ok(None));
            self.debug_info = debug_info.ok().flatten();
        }
        lacks_names
    }

    fn fetch_debug_file(&self, debug_files: &DebugFiles) -> Option<FetchStatus> {
        // The vDSO is not a file.
        let name = self.path.file_name().filter(|_| self.path.is_absolute())?;
        let servers = debug_files.shared.servers.as_ref()?;
        Some(servers.request(self.elf.build_id()?, &name.to_string_lossy(), debug_files.tenant))
    }

    /// The reason, refined by the result of the symbol servers.
    fn refine_reason(&self, reason: Reason) -> Reason {
        match self.fetch {
            Some(FetchStatus::NotFound) if reason == Reason::NoSymbols => Reason::NotOnSymbolServer,
            Some(FetchStatus::Failed) if reason == Reason::NoSymbols => Reason::SymbolServerFailed,
            Some(FetchStatus::Pending) if reason == Reason::NoSymbols => Reason::SymbolsOnTheWay,
            _ => reason,
        }
    }

    /// The function start and the nearest symbol of an unsymbolized address; empty when the module has a full symbol table.
    pub fn nearby(&mut self, address: ElfAddress) -> SymbolHint {
        let names = self.names.as_mut().filter(|names| !names.is_complete());
        names.map(|names| names.nearby(&self.elf, address, &self.budget)).unwrap_or_default()
    }
}

/// Combines the result of the symbol tables with the frames of DWARF, innermost first.
fn combine(
    symbol: Result<Symbolized, Reason>,
    mut frames: Vec<DwarfFrame>,
    options: NativeOptions,
) -> Result<Symbolized, Reason> {
    let Some(mut outer) = frames.pop() else { return symbol };
    let mut symbolized = match (symbol, outer.name.take()) {
        // A call table names the method of an FCall, and DWARF the function.
        (Ok(symbol), None) => symbol,
        (Ok(symbol), _) if symbol.source != SymbolSource::RuntimeCallTable => symbol,
        (_, Some(name)) => Symbolized::new(SymbolSource::Dwarf, demangle(&name)),
        (Err(reason), None) => return Err(reason),
    };
    if let Some(function) = symbolized.functions.last_mut() {
        function.location = outer.location;
    }
    if options.inlines {
        let inlined = frames
            .into_iter()
            .filter_map(|frame| Some(Function { name: demangle(&frame.name?), location: frame.location }));
        symbolized.functions.splice(0..0, inlined);
    }
    Ok(symbolized)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use object::elf::{SHT_DYNSYM, SHT_PROGBITS, SHT_SYMTAB, STB_LOCAL, STT_NOTYPE, SymbolInfo};
    use profiler_addresses::FileOffset;

    use profiler_elf_symbols::{
        test_file::{TestFile, TestSymbol, eh_frame, function, mapping_at},
        test_go_table::{GoTestFunction, GoVersion, go_table},
    };
    use profiler_processes::root_directory::RootDirectory;

    use super::*;

    const BOTH: NativeOptions = NativeOptions { inlines: true, lines: true, raw_names: false };

    fn no_debug_files() -> DebugFiles {
        let empty = tempfile::tempdir().unwrap();
        DebugFiles::with_host(RootDirectory::open(empty.path()).unwrap())
    }

    fn symbolize(file: TestFile, address: u64) -> Result<Symbolized, Reason> {
        let mut module = NativeModule::from_bytes(file.bytes(), Path::new("/lib/x.so"))?;
        module.symbolize(ElfAddress(address), NativeOptions::default(), &no_debug_files())
    }

    #[inline(always)]
    fn inlined_deeper(value: u64) -> u64 {
        std::hint::black_box(std::hint::black_box(value) * 3)
    }

    #[inline(always)]
    fn inlined(value: u64) -> u64 {
        std::hint::black_box(inlined_deeper(value) + 5)
    }

    #[inline(never)]
    fn marked(value: u64) -> u64 {
        std::hint::black_box(inlined(value) ^ 7)
    }

    /// The running test program, and the address of code that was inlined twice into `marked`.
    fn open_this_program() -> (NativeModule, ElfAddress) {
        assert_ne!(marked(1), 0);
        let path = std::fs::read_link("/proc/self/exe").unwrap();
        let image = Image::from_file(File::open(&path).unwrap()).unwrap();
        let mut module = NativeModule::open(image, &path, &Arc::default()).unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let entry = marked as fn(u64) -> u64 as usize as u64;
        let (start, offset) = mapping_at(&maps, entry).unwrap();
        let inlined_twice = (entry..entry + 0x100).find_map(|address| {
            let address = module.elf_address(FileMapping { start, offset }, RuntimeAddress(address))?;
            let found = module.symbolize(address, BOTH, &no_debug_files()).ok()?;
            found
                .functions
                .iter()
                .any(|function| function.name.ends_with("inlined_deeper"))
                .then_some(address)
        });
        (module, inlined_twice.unwrap())
    }

    #[test]
    fn the_symbol_table_is_preferred_to_exports() {
        let exports = [function("exported", 0x1000, 0x10)];
        let both = TestFile::with_code()
            .symbols(SHT_SYMTAB, &[function("own", 0x1000, 0x10)])
            .symbols(SHT_DYNSYM, &exports);
        assert_eq!(symbolize(both, 0x1008), Ok(Symbolized::new(SymbolSource::SymbolTable, "own")));
        let stripped = TestFile::with_code().symbols(SHT_DYNSYM, &exports);
        assert_eq!(
            symbolize(stripped, 0x1008),
            Ok(Symbolized::new(SymbolSource::DynamicSymbols, "exported"))
        );
    }

    /// A Go program with this table, whose code begins at 0x1100.
    fn go_program(table: Vec<u8>) -> TestFile {
        let file = TestFile::with_code().code_segment(0, 0x1000, 0x1000);
        let file = file.with(".gopclntab", SHT_PROGBITS, table).section_address(0x8000);
        file.section_flags(2, object::elf::SHF_ALLOC)
    }

    #[test]
    fn a_stripped_go_program_has_the_names_and_lines_of_its_function_table() {
        let main = GoTestFunction {
            name: "main.main",
            file: "/app/main.go",
            lines: &[(10, 16), (12, 16)],
            inlined: &[],
            frame_sizes: &[],
            writes_stack_pointer: false,
            is_top_frame: false,
        };
        let file = go_program(go_table(GoVersion::V20, 0x1100, &[main]));
        let mut module = NativeModule::from_bytes(file.clone().bytes(), Path::new("/app/x")).unwrap();
        let mut find = |address, lines| {
            let options = NativeOptions { lines, ..NativeOptions::default() };
            module.symbolize(ElfAddress(address), options, &no_debug_files())
        };
        let found = find(0x1118, true).unwrap();
        assert_eq!(found.source, SymbolSource::GoFunctionTable);
        let location = Some(("/app/main.go".to_owned(), 12));
        assert_eq!(found.functions, [Function { name: "main.main".to_owned(), location }]);
        assert_eq!(find(0x1118, false), Ok(Symbolized::new(SymbolSource::GoFunctionTable, "main.main")));
        assert_eq!(find(0x1120, true), Err(Reason::NoSymbols), "code of C");

        let whole = file.symbols(SHT_SYMTAB, &[function("own", 0x1100, 0x10)]);
        assert_eq!(symbolize(whole, 0x1108), Ok(Symbolized::new(SymbolSource::SymbolTable, "own")));
        let malformed = go_program(go_table(GoVersion::V20, 0x1100, &[])[..40].to_vec());
        assert_eq!(symbolize(malformed, 0x1108), Err(Reason::MalformedFile));
    }

    #[test]
    fn code_behind_a_function_without_a_size_has_not_its_name() {
        // endbr64; jmp 0xff0; push %rbx; nop; pop %rbx; ret
        let code = [
            &[0xf3, 0x0f, 0x1e, 0xfa, 0xe9, 0xe7, 0xff, 0xff, 0xff][..],
            &[0x53, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x5b, 0xc3],
        ]
        .concat();
        let program = |symbols: &[TestSymbol]| {
            let file = TestFile::default().code_at(".text", 0x1000, code.clone());
            file.symbols(SHT_SYMTAB, symbols)
        };
        let label = TestSymbol("label", 0x1000, 0, SymbolInfo::new(STB_LOCAL, STT_NOTYPE));
        let name = |name| Ok(Symbolized::new(SymbolSource::SymbolTable, name));
        let last = [function("frame_dummy", 0x1000, 0)];
        assert_eq!(symbolize(program(&last), 0x1008), name("frame_dummy"));
        assert_eq!(symbolize(program(&last), 0x1012), Err(Reason::NoSymbolHere));
        assert_eq!(symbolize(program(&[label]), 0x1012), name("label"), "a label can be within a function");
        assert_eq!(symbolize(program(&[function("sized", 0x1000, 0x14)]), 0x1012), name("sized"));
    }

    #[test]
    fn an_unsymbolized_address_has_a_reason() {
        assert_eq!(symbolize(TestFile::with_code(), 0x1000), Err(Reason::NoSymbols));
        let own = TestFile::with_code().symbols(SHT_SYMTAB, &[function("own", 0x1000, 0x10)]);
        assert_eq!(symbolize(own, 0x1010), Err(Reason::NoSymbolHere));
        let exports = TestFile::with_code().symbols(SHT_DYNSYM, &[function("exported", 0x1000, 0x10)]);
        assert_eq!(symbolize(exports, 0x1010), Err(Reason::NoSymbols));
        let mut malformed = TestFile::with_code().symbols(SHT_SYMTAB, &[function("own", 0x1000, 0x10)]);
        malformed.set_section_size(3, 1 << 20);
        assert_eq!(symbolize(malformed, 0x1000), Err(Reason::MalformedFile));
    }

    #[test]
    fn an_unsymbolized_address_has_a_function_start_and_the_nearest_export() {
        let exports = [function("near", 0x1010, 8), function("unsized", 0x1080, 0)];
        let file = TestFile::with_code().symbols(SHT_DYNSYM, &exports).with(
            ".eh_frame",
            SHT_PROGBITS,
            eh_frame(&[(0x1040, 0x20), (0x1080, 0x20)]),
        );
        let mut module = NativeModule::from_bytes(file.bytes(), Path::new("/lib/x.so")).unwrap();
        let mut look_up = |address| {
            let found = module.symbolize(ElfAddress(address), NativeOptions::default(), &no_debug_files());
            found.map(|found| found.functions[0].name.clone()).map_err(|_| module.nearby(ElfAddress(address)))
        };
        let near = |function_start| SymbolHint { function_start, preceding_symbol: Some("near".to_owned()) };
        assert_eq!(look_up(0x1048), Err(near(Some(ElfAddress(0x1040)))));
        assert_eq!(look_up(0x1020), Err(near(None)), "no FDE covers the address");
        assert_eq!(look_up(0x1090).as_deref(), Ok("unsized"), "the function starts at the symbol");
        assert_eq!(look_up(0x1008).unwrap_err(), SymbolHint::default());
    }

    #[test]
    fn a_distant_export_is_not_the_nearest_symbol() {
        let mut file = TestFile::with_code().symbols(SHT_DYNSYM, &[function("far", 0x1000, 8)]);
        let code_section = 1;
        file.set_section_size(code_section, 0x4000);
        let mut module = NativeModule::from_bytes(file.bytes(), Path::new("/lib/x.so")).unwrap();
        let mut near = |address| {
            let found = module.symbolize(ElfAddress(address), NativeOptions::default(), &no_debug_files());
            assert_eq!(found, Err(Reason::NoSymbols));
            module.nearby(ElfAddress(address)).preceding_symbol.is_some()
        };
        assert!(near(0x2000));
        assert!(!near(0x2001));
    }

    #[test]
    fn a_file_that_is_not_elf_is_reported() {
        let open = |bytes: &[u8]| NativeModule::from_bytes(bytes.to_vec(), Path::new("/x")).err();
        assert_eq!(open(b"text"), Some(Reason::NotElf));
        assert_eq!(open(b"\x7fELF\x01\x01\x01"), Some(Reason::NotElf));
    }

    #[test]
    fn a_module_is_send() {
        fn is_send<T: Send>(_: &T) {}
        is_send(&NativeModule::from_bytes(TestFile::with_code().bytes(), Path::new("/x")).ok());
    }

    #[test]
    fn inlined_functions_precede_their_caller() {
        let (mut module, address) = open_this_program();
        // With `line-tables-only`, names have no module path.
        let names = |options, module: &mut NativeModule| -> Vec<String> {
            let found = module.symbolize(address, options, &no_debug_files()).unwrap();
            let last_part = |name: &str| name.rsplit("::").next().unwrap().to_owned();
            found.functions.iter().map(|function| last_part(&function.name)).collect()
        };
        assert_eq!(names(NativeOptions::default(), &mut module), ["marked"]);
        let chain = names(BOTH, &mut module);
        assert!(chain.ends_with(&["inlined_deeper", "inlined", "marked"].map(String::from)), "{chain:?}");
    }

    #[test]
    fn lines_are_independent_of_inlined_functions() {
        let (mut module, address) = open_this_program();
        let lines = NativeOptions { lines: true, ..NativeOptions::default() };
        let found = module.symbolize(address, lines, &no_debug_files()).unwrap();
        let [function] = &found.functions[..] else { panic!("{found:?}") };
        let (file, line) = function.location.as_ref().unwrap();
        assert!(file.ends_with("native.rs"), "{file}");
        let source = include_str!("native.rs").lines().nth(*line as usize - 1).unwrap();
        assert!(source.contains("black_box(inlined(value) ^ 7)"), "{source}");

        let inlines = NativeOptions { inlines: true, ..NativeOptions::default() };
        let found = module.symbolize(address, inlines, &no_debug_files()).unwrap();
        assert!(found.functions.len() > 1);
        assert!(found.functions.iter().all(|function| function.location.is_none()));
    }

    /// A file with a symbol table and one unit of DWARF 4, with this abbreviation table and this entry.
    fn with_unit(abbreviations: &[u8], entry: &[u8]) -> TestFile {
        let length = u32::try_from(entry.len() + 7).unwrap();
        let header = [&length.to_le_bytes()[..], &4_u16.to_le_bytes(), &0_u32.to_le_bytes(), &[8]].concat();
        TestFile::with_code()
            .symbols(SHT_SYMTAB, &[function("own", 0x1000, 0x10)])
            .with(".debug_info", SHT_PROGBITS, [&header[..], entry].concat())
            .with(".debug_abbrev", SHT_PROGBITS, abbreviations.to_vec())
    }

    #[test]
    fn a_file_with_split_units_is_not_self_contained() {
        let is_self_contained = |file: TestFile, options| {
            let mut module = NativeModule::from_bytes(file.bytes(), Path::new("/lib/x.so")).unwrap();
            module.is_self_contained(options, &no_debug_files())
        };
        let whole = with_unit(&[1, 0x11, 0, 0, 0, 0], &[1]);
        // With `DW_AT_GNU_dwo_name` and `DW_AT_GNU_dwo_id`.
        let skeleton = [1, 0x11, 0, 0xb0, 0x42, 0x08, 0xb1, 0x42, 0x07, 0, 0, 0];
        let split = with_unit(&skeleton, b"\x01x.dwo\0\x07\0\0\0\0\0\0\0");
        let split = split.with(".debug_addr", SHT_PROGBITS, vec![0; 8]);
        assert!(is_self_contained(whole, BOTH));
        assert!(!is_self_contained(split.clone(), BOTH));
        assert!(is_self_contained(split, NativeOptions::default()), "names are enough");
    }

    #[test]
    fn the_vdso_is_symbolized_from_memory() {
        use std::os::unix::fs::FileExt;

        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps.lines().find(|line| line.ends_with("[vdso]")).unwrap();
        let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        let start = u64::from_str_radix(start, 16).unwrap();
        let mut image = vec![0; usize::try_from(u64::from_str_radix(end, 16).unwrap() - start).unwrap()];
        File::open("/proc/self/mem").unwrap().read_exact_at(&mut image, start).unwrap();

        let end = start + image.len() as u64;
        let mut vdso = NativeModule::from_bytes(image, Path::new("[vdso]")).unwrap();
        assert!(!vdso.build_id().is_empty());
        let found = (start..end).step_by(16).find_map(|address| {
            let address = vdso.elf_address(
                FileMapping { start: RuntimeAddress(start), offset: FileOffset(0) },
                RuntimeAddress(address),
            )?;
            vdso.symbolize(address, NativeOptions::default(), &no_debug_files()).ok()
        });
        assert_eq!(found.map(|found| found.source), Some(SymbolSource::DynamicSymbols));
    }
}
