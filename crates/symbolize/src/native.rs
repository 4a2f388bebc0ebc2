//! One file of compiled code: from a runtime address to the functions there.

use crate::reasons;
use profiler_binary_reader::{Image, WorkBudget};
use profiler_elf_symbols::{BuildId, Elf, demangle};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    debug_file::DebugFiles,
    dwarf::{DebugInformation, DwarfFrame},
    function_names::FunctionNames,
    symbol::{Function, SymbolHint, Symbolized},
    symbol_server::FetchStatus,
};
use profiler_addresses::{ElfAddress, FileOffset, RuntimeAddress};
use profiler_profile::{Reason, SymbolSource};

/// What is wanted beyond the name of the function.
#[derive(Clone, Copy, Debug, Default)]
pub struct NativeOptions {
    /// The functions that were inlined at the address.
    pub inlines: bool,
    /// File and line.
    pub lines: bool,
}

/// A file that is mapped into processes. Stays open, so that names survive the process and the file.
pub struct NativeModule {
    elf: Arc<Elf>,
    path: PathBuf,
    /// Read at the first look-up.
    names: Option<FunctionNames>,
    /// Read at the first look-up that asks for it.
    debug_information: Option<Result<DebugInformation, Reason>>,
    /// What became of its debug file, when symbol servers were asked for it.
    fetch: Option<FetchStatus>,
    budget: Arc<WorkBudget>,
}

impl NativeModule {
    /// Reads what every look-up needs: headers, segments, build id. `path` is the file's in its process,
    /// `budget` that of all debug information.
    pub fn open(image: Image, path: &Path, budget: &Arc<WorkBudget>) -> Result<Self, Reason> {
        Ok(Self::of_elf(Elf::parse(image).map_err(reasons::parse_error_reason)?, path, budget))
    }

    /// A module whose headers were read: the file itself, or what was split off from it.
    pub(super) fn of_elf(elf: Elf, path: &Path, budget: &Arc<WorkBudget>) -> Self {
        let (elf, path, budget) = (Arc::new(elf), path.to_owned(), Arc::clone(budget));
        Self { elf, path, names: None, debug_information: None, fetch: None, budget }
    }

    /// A module that is in memory only.
    #[cfg(any(test, fuzzing))]
    pub fn from_bytes(bytes: Vec<u8>, path: &Path) -> Result<Self, Reason> {
        Self::open(Image::Memory(bytes), path, &Arc::default())
    }

    /// The build id, empty where the file has none.
    pub fn build_id(&self) -> &[u8] {
        self.elf.build_id().map_or(&[], BuildId::bytes)
    }

    /// The file itself.
    pub(super) fn elf(&self) -> &Elf {
        &self.elf
    }

    /// The file's own address of code that runs at `address`, in a mapping of its bytes from
    /// `mapping_offset` on to the memory from `mapping_start` on.
    pub fn elf_address(
        &self,
        mapping_start: RuntimeAddress,
        mapping_offset: FileOffset,
        address: RuntimeAddress,
    ) -> Option<ElfAddress> {
        self.elf.address(mapping_start, mapping_offset, address)
    }

    /// Where most of its names come from.
    pub(super) fn best_source(&mut self, debug_files: &DebugFiles) -> Option<SymbolSource> {
        self.read_tables(NativeOptions::default(), debug_files);
        self.names.as_ref().and_then(FunctionNames::best_source)
    }

    /// The functions at an address. The outermost is named by the symbol tables, with and without `inlines`,
    /// and by the debug information only where they know no name.
    pub fn symbolize(
        &mut self,
        address: ElfAddress,
        options: NativeOptions,
        debug_files: &DebugFiles,
    ) -> Result<Symbolized, Reason> {
        self.read_tables(options, debug_files);
        let names = self.names.as_mut().ok_or(Reason::NoSymbols)?;
        let symbol = names.find(&self.elf, address, &self.budget).map_err(|reason| self.explain(reason));
        // Whatever is wrong with the debug information, the symbol's name is still right.
        let information = self.debug_information.as_mut().and_then(|information| information.as_mut().ok());
        let frames = information.and_then(|information| information.frames(address, debug_files).ok());
        join(symbol, frames.unwrap_or_default(), options)
    }

    /// Whether the debug file that would say more is on its way from a symbol server.
    pub fn awaits_debug_file(&mut self, options: NativeOptions, debug_files: &DebugFiles) -> bool {
        self.read_tables(options, debug_files);
        self.fetch == Some(FetchStatus::Pending)
    }

    /// Reads what names are looked up in: once, and again when a debug file has come since.
    fn read_tables(&mut self, options: NativeOptions, debug_files: &DebugFiles) {
        if self.names.is_none() {
            let lacks_names = self.read_tables_now(options, debug_files);
            self.fetch = if lacks_names { self.ask_servers(debug_files) } else { None };
        } else if self.fetch == Some(FetchStatus::Pending) {
            self.fetch = self.ask_servers(debug_files);
            if self.fetch == Some(FetchStatus::Found) {
                self.read_tables_now(options, debug_files);
            }
        }
    }

    /// Whether there is something that a debug file would add.
    fn read_tables_now(&mut self, options: NativeOptions, debug_files: &DebugFiles) -> bool {
        let names = FunctionNames::load(&self.elf, &self.path, debug_files, &self.budget);
        let mut lacks_names = !names.are_complete();
        self.names = Some(names);
        if options.inlines || options.lines {
            let information = DebugInformation::load(&self.elf, &self.path, debug_files, &self.budget);
            lacks_names |= information.as_ref().is_err_and(|reason| *reason == Reason::NoSymbols);
            self.debug_information = Some(information);
        }
        lacks_names
    }

    fn ask_servers(&self, debug_files: &DebugFiles) -> Option<FetchStatus> {
        // The vdso is no file.
        let name = self.path.file_name().filter(|_| self.path.is_absolute())?;
        let servers = debug_files.common.servers.as_ref()?;
        Some(servers.request(self.elf.build_id()?, &name.to_string_lossy()))
    }

    /// The reason, with what symbol servers had to say.
    fn explain(&self, reason: Reason) -> Reason {
        match self.fetch {
            Some(FetchStatus::NotFound) if reason == Reason::NoSymbols => Reason::NotOnSymbolServer,
            Some(FetchStatus::Failed) if reason == Reason::NoSymbols => Reason::SymbolServerFailed,
            Some(FetchStatus::Pending) if reason == Reason::NoSymbols => Reason::SymbolsOnTheWay,
            _ => reason,
        }
    }

    /// What is known of an address for which there is no name. A table of all functions misses too few addresses to be
    /// worth the search.
    pub fn nearby(&mut self, address: ElfAddress) -> SymbolHint {
        let names = self.names.as_mut().filter(|names| !names.are_complete());
        names.map(|names| names.nearby(&self.elf, address, &self.budget)).unwrap_or_default()
    }
}

/// The answer of the symbol tables, and the frames of the debug information, innermost first.
fn join(
    symbol: Result<Symbolized, Reason>,
    mut frames: Vec<DwarfFrame>,
    options: NativeOptions,
) -> Result<Symbolized, Reason> {
    let Some(mut outer) = frames.pop() else { return symbol };
    let mut answer = match (symbol, outer.name.take()) {
        (Ok(symbol), _) => symbol,
        (Err(_), Some(name)) => Symbolized::new(SymbolSource::Dwarf, demangle(&name)),
        (Err(reason), None) => return Err(reason),
    };
    if let Some(function) = answer.functions.last_mut() {
        function.location = outer.location;
    }
    if options.inlines {
        let inlined = frames
            .into_iter()
            .filter_map(|frame| Some(Function { name: demangle(&frame.name?), location: frame.location }));
        answer.functions.splice(0..0, inlined);
    }
    if !options.lines {
        answer.functions.iter_mut().for_each(|function| function.location = None);
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use object::elf::{SHT_DYNSYM, SHT_PROGBITS, SHT_SYMTAB};

    use super::*;
    use profiler_elf_symbols::test_file::{TestFile, eh_frame, function, mapping_at};
    use profiler_processes::root_directory::RootDirectory;

    const BOTH: NativeOptions = NativeOptions { inlines: true, lines: true };

    fn nowhere() -> DebugFiles {
        let empty = tempfile::tempdir().unwrap();
        DebugFiles::of_host(RootDirectory::open(empty.path()).unwrap())
    }

    fn symbolize(file: TestFile, address: u64) -> Result<Symbolized, Reason> {
        let mut module = NativeModule::from_bytes(file.bytes(), Path::new("/lib/x.so"))?;
        module.symbolize(ElfAddress(address), NativeOptions::default(), &nowhere())
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

    /// The running test, and the address in it of code that was inlined twice into `marked`.
    fn this_program() -> (NativeModule, ElfAddress) {
        assert_ne!(marked(1), 0);
        let path = std::fs::read_link("/proc/self/exe").unwrap();
        let image = Image::of_file(File::open(&path).unwrap()).unwrap();
        let mut module = NativeModule::open(image, &path, &Arc::default()).unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let entry = marked as fn(u64) -> u64 as usize as u64;
        let (start, offset) = mapping_at(&maps, entry).unwrap();
        let inlined_twice = (entry..entry + 0x100).find_map(|address| {
            let address = module.elf_address(start, offset, RuntimeAddress(address))?;
            let found = module.symbolize(address, BOTH, &nowhere()).ok()?;
            found
                .functions
                .iter()
                .any(|function| function.name.ends_with("inlined_deeper"))
                .then_some(address)
        });
        (module, inlined_twice.unwrap())
    }

    #[test]
    fn an_own_table_goes_before_exports() {
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

    #[test]
    fn an_address_without_a_name_has_a_reason() {
        assert_eq!(symbolize(TestFile::with_code(), 0x1000), Err(Reason::NoSymbols));
        let own = TestFile::with_code().symbols(SHT_SYMTAB, &[function("own", 0x1000, 0x10)]);
        assert_eq!(symbolize(own, 0x1010), Err(Reason::NoSymbolHere));
        let exports = TestFile::with_code().symbols(SHT_DYNSYM, &[function("exported", 0x1000, 0x10)]);
        assert_eq!(symbolize(exports, 0x1010), Err(Reason::NoSymbols));
        let mut lying = TestFile::with_code().symbols(SHT_SYMTAB, &[function("own", 0x1000, 0x10)]);
        lying.set_section_size(3, 1 << 20);
        assert_eq!(symbolize(lying, 0x1000), Err(Reason::MalformedFile));
    }

    #[test]
    fn code_without_a_name_is_known_by_its_function_and_by_an_export_that_is_near() {
        let exports = [function("near", 0x1010, 8), function("unsized", 0x1080, 0)];
        let file = TestFile::with_code().symbols(SHT_DYNSYM, &exports).with(
            ".eh_frame",
            SHT_PROGBITS,
            eh_frame(&[(0x1040, 0x20), (0x1080, 0x20)]),
        );
        let mut module = NativeModule::from_bytes(file.bytes(), Path::new("/lib/x.so")).unwrap();
        let mut look_up = |address| {
            let found = module.symbolize(ElfAddress(address), NativeOptions::default(), &nowhere());
            found.map(|found| found.functions[0].name.clone()).map_err(|_| module.nearby(ElfAddress(address)))
        };
        let near = |function_start| SymbolHint { function_start, preceding_symbol: Some("near".to_owned()) };
        assert_eq!(look_up(0x1048), Err(near(Some(ElfAddress(0x1040)))));
        assert_eq!(look_up(0x1020), Err(near(None)), "no function is known there");
        assert_eq!(look_up(0x1090).as_deref(), Ok("unsized"), "its function begins where the symbol stands");
        assert_eq!(look_up(0x1008).unwrap_err(), SymbolHint::default());
    }

    #[test]
    fn an_export_that_is_far_away_is_no_neighbour() {
        let mut file = TestFile::with_code().symbols(SHT_DYNSYM, &[function("far", 0x1000, 8)]);
        let code_section = 1;
        file.set_section_size(code_section, 0x4000);
        let mut module = NativeModule::from_bytes(file.bytes(), Path::new("/lib/x.so")).unwrap();
        let mut near = |address| {
            let found = module.symbolize(ElfAddress(address), NativeOptions::default(), &nowhere());
            assert_eq!(found, Err(Reason::NoSymbols));
            module.nearby(ElfAddress(address)).preceding_symbol.is_some()
        };
        assert!(near(0x2000));
        assert!(!near(0x2001));
    }

    #[test]
    fn what_is_no_elf_file_is_said_so() {
        let open = |bytes: &[u8]| NativeModule::from_bytes(bytes.to_vec(), Path::new("/x")).err();
        assert_eq!(open(b"text"), Some(Reason::NotElf));
        assert_eq!(open(b"\x7fELF\x01\x01\x01"), Some(Reason::NotElf));
    }

    #[test]
    fn a_module_can_go_to_another_thread() {
        fn is_send<T: Send>(_: &T) {}
        is_send(&NativeModule::from_bytes(TestFile::with_code().bytes(), Path::new("/x")).ok());
    }

    #[test]
    fn inlined_functions_stand_before_the_one_they_are_in() {
        let (mut module, address) = this_program();
        // Line tables alone hold names without their modules.
        let names = |options, module: &mut NativeModule| -> Vec<String> {
            let found = module.symbolize(address, options, &nowhere()).unwrap();
            let last_part = |name: &str| name.rsplit("::").next().unwrap().to_owned();
            found.functions.iter().map(|function| last_part(&function.name)).collect()
        };
        assert_eq!(names(NativeOptions::default(), &mut module), ["marked"]);
        let chain = names(BOTH, &mut module);
        assert!(chain.ends_with(&["inlined_deeper", "inlined", "marked"].map(String::from)), "{chain:?}");
    }

    #[test]
    fn lines_come_without_inlined_functions_when_only_lines_are_asked_for() {
        let (mut module, address) = this_program();
        let lines = NativeOptions { lines: true, inlines: false };
        let found = module.symbolize(address, lines, &nowhere()).unwrap();
        let [function] = &found.functions[..] else { panic!("{found:?}") };
        let (file, line) = function.location.as_ref().unwrap();
        assert!(file.ends_with("native.rs"), "{file}");
        let source = include_str!("native.rs").lines().nth(*line as usize - 1).unwrap();
        assert!(source.contains("black_box(inlined(value) ^ 7)"), "{source}");

        let inlines = NativeOptions { lines: false, inlines: true };
        let found = module.symbolize(address, inlines, &nowhere()).unwrap();
        assert!(found.functions.len() > 1);
        assert!(found.functions.iter().all(|function| function.location.is_none()));
    }

    #[test]
    fn the_vdso_is_read_from_memory() {
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
            let address = vdso.elf_address(RuntimeAddress(start), FileOffset(0), RuntimeAddress(address))?;
            vdso.symbolize(address, NativeOptions::default(), &nowhere()).ok()
        });
        assert_eq!(found.map(|found| found.source), Some(SymbolSource::DynamicSymbols));
    }
}
