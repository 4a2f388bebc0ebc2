//! The bodies of the fuzz targets: one function for each parser of untrusted input.
//!
//! A parser must return for any input. Where more must hold, it is asserted.

mod capture_directory;
mod node_agent;
mod simulated_runtime;

use std::{
    fs,
    io::{self, Read},
    ops::Range,
    path::Path,
    sync::Arc,
};

use profiler_addresses::{ElfAddress, FileMapping, FileOffset, RuntimeAddress};
use profiler_binary_reader::{Image, WorkBudget};
use profiler_dotnet_runtime::fuzz as dotnet_runtime;
use profiler_dotnet_diagnostics::fuzz as diagnostics;
use profiler_dotnet_symbols::{
    call_tables::{RuntimeFile, read_call_tables},
    jit_helpers::{find_jit_helpers, read_helper_names},
    managed, native_aot,
    readytorun::{AssemblyLocation, Bundle, ReadyToRunModule},
};
use profiler_elf_symbols::{Elf, FunctionRanges, GoTable, demangle};
use profiler_processes::{fuzz as processes, maps::parse_executable, root_directory::RootDirectory};
use profiler_profile::{Difference, Profile, Shape, recording_of_section_bodies, shape::Share};
use profiler_profile_formats::{Format, OutputOptions};
use profiler_stack_height::{Cfa, Frame, Hints, Program, SavedFramePointer, analyze, for_each_epilogue};
use profiler_symbolize::{
    NativeOptions, debug_file::DebugFiles, fuzz as symbolize, kernel::KernelSymbols, native::NativeModule,
};
use profiler_triggers::{Condition, Evaluator, Truth, Values};
use profiler_unwind_tables::{
    ManagedFunction, TableSource, UnwindTable, compile_section, compile_unwind_info,
};
use tempfile::TempDir;

pub use self::{
    capture_directory::replay,
    node_agent::{otel_environment, pod_list, resource_filter, response, spool},
    simulated_runtime::diagnostics,
};

/// A file that is mapped from its beginning at address 0.
const MAPPING: FileMapping = FileMapping { start: RuntimeAddress(0), offset: FileOffset(0) };

/// The number of addresses that are looked up in one input.
const MAX_ADDRESSES: usize = 64;

/// `/proc/PID/maps`.
pub fn maps(bytes: &[u8]) {
    for mapping in parse_executable(bytes) {
        assert!(mapping.start < mapping.end);
    }
}

/// `/proc/PID/status` and `/proc/PID/stat`.
pub fn status(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    processes::parse_status(&text);
    processes::parse_system_call(&text);
    processes::parse_sockets(&text);
}

/// `/proc/PID/mountinfo` and `/proc/PID/cgroup`, containers by a prefix of their id, and the configurations of containers.
pub fn cgroups(bytes: &[u8]) {
    processes::check_cgroup_paths(bytes, "4f1c");
    processes::check_container_configurations(bytes);
}

/// `/proc/PID/environ`.
pub fn environ(bytes: &[u8]) {
    processes::check_kept_environment(bytes, &processes::check_environment(bytes));
}

/// The process context of OpenTelemetry: `/proc/PID/maps`, then a section with the memory that begins at 0x1000.
pub fn process_context(bytes: &[u8]) {
    const START: u64 = 0x1000;
    let (maps, memory) = split_at_mark(bytes);
    processes::check_process_context(maps, START, memory.get(1..).unwrap_or_default());
}

/// The description of a .NET runtime's data structures, and changes of its memory.
pub fn dotnet_runtime(bytes: &[u8]) {
    dotnet_runtime::parse_descriptor(bytes);
    dotnet_runtime::find_methods(bytes);
}

/// What was read of the memory of a .NET runtime, as a capture has it.
pub fn runtime_memory(bytes: &[u8]) {
    symbolize::replay_memory(bytes);
    symbolize::examine_memory(bytes);
}

/// A perf map in two parts. The first byte is the position of the split.
pub fn perf_map(bytes: &[u8]) {
    let (first, second, bytes) = split(bytes);
    symbolize::check_split_perf_map(first, second, text_numbers(bytes));
}

/// A jitdump in two parts. The first byte is the position of the split.
pub fn jitdump(bytes: &[u8]) {
    let (first, second, bytes) = split(bytes);
    symbolize::check_split_jitdump(first, second, words(bytes));
}

/// A nettrace stream in two parts. The first byte is the position of the split.
pub fn nettrace(bytes: &[u8]) {
    let (first, second, bytes) = split(bytes);
    assert_eq!(diagnostics::decode_stream(&[bytes]), diagnostics::decode_stream(&[first, second]));
}

/// A reply of the diagnostics protocol.
pub fn ipc(bytes: &[u8]) {
    diagnostics::decode_reply(bytes);
}

/// `/proc/kallsyms`, read at once and in small pieces.
pub fn kallsyms(bytes: &[u8]) {
    let whole = KernelSymbols::read(bytes);
    let in_pieces = KernelSymbols::read(SmallReads(bytes));
    assert_eq!(format!("{whole:?}"), format!("{in_pieces:?}"));
    if let Ok(symbols) = whole {
        for number in text_numbers(bytes) {
            let _ = symbols.lookup(RuntimeAddress(number));
        }
    }
}

/// An ELF file without its debug information.
pub fn elf(bytes: &[u8]) {
    symbolize_all(bytes, NativeOptions::default());
    read_static_probes(bytes);
}

/// The function table of a Go program.
pub fn go_table(bytes: &[u8]) {
    let Ok(elf) = Elf::parse(Image::Memory(bytes.to_vec())) else { return };
    let Ok(sections) = elf.sections() else { return };
    let Ok(Some(table)) = GoTable::read(&elf, &sections, &WorkBudget::default()) else { return };
    for address in words(bytes).take(MAX_ADDRESSES) {
        if let Ok(Some(found)) = table.find(&elf, ElfAddress(address)) {
            assert!(found.start.0 <= address && !found.name.is_empty());
        }
    }
}

/// Unwind rows from machine code. The first byte says how much of the input is code; the rest is data.
pub fn stack_height(bytes: &[u8]) {
    let Some((first, bytes)) = bytes.split_first() else { return };
    let code_bytes = bytes.len() * usize::from(*first) / 255;
    let (code, data) = bytes.split_at(code_bytes);
    let program = CodeAndData { code, data, code_range: CODE_ADDRESS..CODE_ADDRESS + code.len() as u64 };
    let hints = Hints {
        entry: words(data).last(),
        has_fixed_addresses: first.is_multiple_of(2),
        function_starts: words(data).take(MAX_ADDRESSES).collect(),
        code_pointers: vec![CODE_ADDRESS],
        never_return: words(data).take(1).collect(),
    };
    check_epilogues(code);
    let Ok(rows) = analyze(&program, &hints, program.code_ranges(), &|| true) else { return };
    assert!(rows.is_sorted_by(|row, next| row.address < next.address));
    assert!(rows.iter().all(|row| program.code_range.contains(&row.address)));
}

/// Epilogues follow one another, and the rows of each are within it.
fn check_epilogues(code: &[u8]) {
    let mut previous_end = CODE_ADDRESS;
    for_each_epilogue(code, CODE_ADDRESS, |epilogue| {
        assert!((previous_end..epilogue.end()).contains(&epilogue.start()));
        previous_end = epilogue.end();
        let frame = Frame { cfa: Cfa::FramePointer(16), frame_pointer: SavedFramePointer::AtCfa(-16) };
        let rows = epilogue.frames(frame).unwrap_or_default();
        assert!(rows.is_sorted_by(|row, next| row.0 < next.0));
        assert!(rows.iter().all(|(address, _)| (epilogue.start()..epilogue.end()).contains(address)));
    });
}

/// The address of the code of [`stack_height`]'s programs, low so that constants of instructions refer to it.
const CODE_ADDRESS: u64 = 0x1000;

/// The address of the data, within the reach of `lea`.
const DATA_ADDRESS: u64 = 0x10_0000;

struct CodeAndData<'a> {
    code: &'a [u8],
    data: &'a [u8],
    code_range: Range<u64>,
}

impl Program for CodeAndData<'_> {
    fn code_ranges(&self) -> &[Range<u64>] {
        std::slice::from_ref(&self.code_range)
    }

    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let (start, bytes) =
            if address >= DATA_ADDRESS { (DATA_ADDRESS, self.data) } else { (CODE_ADDRESS, self.code) };
        let offset = address.checked_sub(start).and_then(|offset| usize::try_from(offset).ok());
        let found = offset.and_then(|offset| bytes.get(offset..)?.get(..into.len()));
        found.map(|bytes| into.copy_from_slice(bytes)).is_some()
    }

    fn pointer(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes).then(|| u64::from_le_bytes(bytes))
    }
}

/// The static probes of an ELF file.
fn read_static_probes(bytes: &[u8]) {
    let Ok(elf) = Elf::parse(Image::Memory(bytes.to_vec())) else { return };
    for probe in elf.static_probes().unwrap_or_default() {
        assert!(probe.name.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' '));
        if let Some(semaphore) = probe.semaphore {
            elf.variable_offset(semaphore);
        }
    }
}

/// An ELF file with its debug information.
pub fn dwarf(bytes: &[u8]) {
    symbolize_all(bytes, NativeOptions { inlines: true, lines: true, raw_names: false });
}

/// An ELF file, and the `.dwo` and the `.dwp` file beside it. The first four bytes are the length of the ELF file.
pub fn split_dwarf(bytes: &[u8]) {
    let Some((length, bytes)) = bytes.split_first_chunk() else { return };
    let (module, split) = bytes.split_at(bytes.len().min(u32::from_le_bytes(*length) as usize));
    let directory = scratch_directory();
    for name in ["seed.dwo", "fuzzed.dwp"] {
        fs::write(directory.path().join(name), split).expect("a file in the scratch directory");
    }
    let root = RootDirectory::open(directory.path()).expect("the scratch directory");
    let options = NativeOptions { inlines: true, lines: true, raw_names: false };
    symbolize_with(module, options, &DebugFiles::with_host(root));
}

/// A ReadyToRun image.
pub fn readytorun(bytes: &[u8]) {
    let location = AssemblyLocation::from_image_path(Path::new("/fuzzed/image.dll"));
    let image = Image::Memory(bytes.to_vec());
    let Ok(mut module) = ReadyToRunModule::open(image, location, &Arc::default()) else { return };
    let Some(no_files) = no_debug_files() else { return };
    let fixed = [0, 0x1000, 0x1_0200, 0x1_1000];
    let words = words(bytes).flat_map(|word| [word & u64::from(u32::MAX), word >> 32]);
    for address in fixed.into_iter().chain(words).take(MAX_ADDRESSES) {
        let _ = module.address(MAPPING, RuntimeAddress(address));
        let _ = module.symbolize(ElfAddress(address), &no_files);
    }
}

/// A single-file .NET program.
pub fn bundle(bytes: &[u8]) {
    let Ok(elf) = Elf::parse(Image::Memory(bytes.to_vec())) else { return };
    let bundle = Bundle::read(elf.image(), elf.writable_data(), &WorkBudget::default());
    let Ok(Some(bundle)) = bundle else { return };
    for offset in words(bytes).take(MAX_ADDRESSES) {
        if let Some(assembly) = bundle.assembly_at(FileOffset(offset)) {
            assert!(assembly.start <= offset && offset - assembly.start < assembly.bytes);
            assert!(bundle.image_of(assembly).is_ok());
        }
    }
}

/// The call tables and the helpers of a .NET runtime. Each name of a call table is that of another function.
pub fn call_tables(bytes: &[u8]) {
    const WORK_LIMIT: u64 = 1 << 20;
    let Ok(elf) = Elf::parse(Image::Memory(bytes.to_vec())) else { return };
    let budget = Arc::new(WorkBudget::with_work_limit(WORK_LIMIT));
    let ranges = FunctionRanges::read(&elf, &mut { WORK_LIMIT }).unwrap_or_default();
    let Ok(relocations) = elf.relative_relocations(&budget) else { return };
    assert!(relocations.is_sorted());
    let image = || elf.loaded_image(Arc::clone(&budget));
    let is_function_start = |address| ranges.is_start(address);
    let file =
        |image| RuntimeFile { image, relocations: &relocations, is_function_start: &is_function_start };
    let Ok(functions) = image().and_then(|image| read_call_tables(file(image))) else { return };
    assert!(functions.is_sorted_by(|one, other| one.address < other.address));
    assert!(functions.iter().all(|function| ranges.is_start(function.address) && !function.name.is_empty()));
    let Ok(names) = image().and_then(|image| read_helper_names(image, &relocations)) else { return };
    let Ok(helpers) = image().and_then(|image| find_jit_helpers(file(image), &names)) else { return };
    assert!(helpers.functions.iter().all(|function| ranges.is_start(function.address)));
    assert!(helpers.pointers.is_sorted_by(|one, other| one.address < other.address));
}

/// Call frame information, as an ELF file and as a bare section.
pub fn eh_frame(bytes: &[u8]) {
    check_tables(table_of_file(bytes).into_iter().chain(compile_section(bytes)), bytes);
}

/// `UNWIND_INFO`, as a .NET image, as a bare section, and of a function of JIT code.
pub fn unwind_info(bytes: &[u8]) {
    let precompiled = table_of_file(bytes).into_iter().chain(compile_unwind_info(bytes));
    check_tables(precompiled.chain(table_of_jit_function(bytes)), bytes);
}

/// The first half of the bytes is the `UNWIND_INFO`, the second one the instructions.
fn table_of_jit_function(bytes: &[u8]) -> Option<UnwindTable> {
    let (unwind_info, instructions) = bytes.split_at(bytes.len() / 2);
    let code = RuntimeAddress(0x100)..RuntimeAddress(0x100 + instructions.len() as u64);
    let memory = RuntimeAddress(0)..code.end;
    let function = ManagedFunction::compile(code, unwind_info.to_vec(), instructions.to_vec()).ok()?;
    TableSource::of_managed_functions(&memory, FileOffset(0), [&function]).compile(&|| true).ok()
}

fn table_of_file(bytes: &[u8]) -> Option<UnwindTable> {
    let source = TableSource::read(Image::Memory(bytes.to_vec())).ok()??;
    source.compile(&|| true).ok()
}

fn check_tables(tables: impl Iterator<Item = UnwindTable>, bytes: &[u8]) {
    for table in tables {
        table.assert_valid();
        let pages: Vec<_> = table.pages().collect();
        for word in words(bytes).take(MAX_ADDRESSES) {
            let _ = table.find_rule(&pages, word);
        }
    }
}

/// Mangled names and names of managed methods. Normalizing a name twice changes nothing.
pub fn names(bytes: &[u8]) {
    let _ = demangle(bytes);
    let text = String::from_utf8_lossy(bytes);
    let once = managed::normalize_name(&text).name;
    assert_eq!(managed::normalize_name(&once).name, once);
    let _ = (managed::csharp_name(&once), managed::csharp_name(&text));
    let _ = native_aot::method_name(&text, "app");
    let event = managed::name_from_event("A.B", "C", &text);
    assert!(!event.contains("pMT: "));
}

/// The condition of a trigger. It is read from its own text again; without values, it is unknown.
pub fn condition(bytes: &[u8]) {
    match String::from_utf8_lossy(bytes).parse::<Condition>() {
        Ok(condition) => {
            let again = condition.to_string().parse::<Condition>();
            assert_eq!(again.map(|again| again.measures()), Ok(condition.measures()));
            let _ = condition.describe(&Values::default());
            let mut evaluator = Evaluator::new(condition);
            assert_eq!(evaluator.apply(0, &Values::default()), None);
            assert_eq!(evaluator.truth(), Truth::Unknown);
        }
        Err(error) => assert_eq!(error.to_string().lines().count(), 3),
    }
}

/// The event log of a capture, the recorded methods of a runtime, and its recorded memory.
pub fn capture(bytes: &[u8]) {
    profiler_sampler::fuzz::parse_capture(bytes);
    diagnostics::read_recording(bytes);
    symbolize::replay_memory(bytes);
}

/// A recording, and one with valid checksums. A profile that was read can be written, shaped and compared.
pub fn recording(bytes: &[u8]) {
    for file in [bytes, &recording_of_section_bodies(bytes)] {
        let Ok(profile) = Profile::read(file) else { continue };
        let mut again = Vec::new();
        // Writing to a vector cannot fail.
        let _ = profile.write_recording(&mut again);
        let read_again = Profile::read(&*again);
        assert_eq!(format!("{:?}", read_again.ok()), format!("{:?}", Some(&profile)));
        let shape = Shape {
            hide: "a".parse().ok(),
            collapse_recursion: true,
            merge_addresses: true,
            min_share: Share::from_percent(1.0),
            ..Shape::default()
        };
        let shaped = profile.shaped(&shape);
        for &format in Format::ALL {
            let _ = format.write(&shaped, io::sink());
            let difference = Difference::between(&profile, &shaped);
            let _ = format.write_difference(&difference, &OutputOptions::default(), io::sink());
        }
    }
}

/// BTF of a kernel.
pub fn btf(bytes: &[u8]) {
    profiler_sampler::fuzz::parse_btf(bytes);
}

/// A record of the ring buffer, and a sideband record.
pub fn records(bytes: &[u8]) {
    profiler_sampler::fuzz::decode_records(bytes);
}

fn symbolize_all(bytes: &[u8], options: NativeOptions) {
    if let Some(no_files) = no_debug_files() {
        symbolize_with(bytes, options, &no_files);
    }
}

fn symbolize_with(bytes: &[u8], options: NativeOptions, debug_files: &DebugFiles) {
    let Ok(mut module) = NativeModule::from_bytes(bytes.to_vec(), Path::new("/fuzzed")) else { return };
    let fixed = [0, 0x1000, 0x1010, 0x40_1000];
    for address in fixed.into_iter().chain(words(bytes)).take(MAX_ADDRESSES) {
        let _ = module.elf_address(MAPPING, RuntimeAddress(address));
        let _ = module.symbolize(ElfAddress(address), options, debug_files);
        let _ = module.nearby(ElfAddress(address));
    }
}

/// Debug files of a directory without regular files.
fn no_debug_files() -> Option<DebugFiles> {
    Some(DebugFiles::with_host(RootDirectory::open(Path::new("/proc/self/ns")).ok()?))
}

/// A directory for the files of one input, which are removed with it.
fn scratch_directory() -> TempDir {
    tempfile::tempdir().expect("a scratch directory")
}

/// The sections of an input with their tags. A section begins with a line break, two hyphens and the tag.
fn sections(bytes: &[u8]) -> Vec<(u8, &[u8])> {
    let mut sections = Vec::new();
    let (_, mut rest) = split_at_mark(bytes);
    while let Some((tag, after)) = rest.split_first() {
        let (content, next) = split_at_mark(after);
        sections.push((*tag, content));
        rest = next;
    }
    sections
}

/// The bytes before the next mark of a section, and those after it.
fn split_at_mark(bytes: &[u8]) -> (&[u8], &[u8]) {
    const MARK: [u8; 3] = *b"\n--";
    let end = bytes.windows(MARK.len()).position(|window| window == MARK).unwrap_or(bytes.len());
    (&bytes[..end], bytes.get(end + MARK.len()..).unwrap_or_default())
}

/// The bytes after the first: in two parts, and as a whole.
fn split(bytes: &[u8]) -> (&[u8], &[u8], &[u8]) {
    let Some((at, bytes)) = bytes.split_first() else { return (bytes, bytes, bytes) };
    let (first, second) = bytes.split_at(bytes.len() * usize::from(*at) / 256);
    (first, second, bytes)
}

/// The 64-bit words of the bytes: addresses among them.
fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word))
}

/// The hexadecimal numbers at the start of the lines of a text.
fn text_numbers(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    let lines = bytes.split(|byte| *byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok());
    lines.filter_map(|line| u64::from_str_radix(line.split(' ').next()?, 16).ok()).take(MAX_ADDRESSES)
}

/// Returns a few bytes for each read.
struct SmallReads<'a>(&'a [u8]);

impl Read for SmallReads<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        const READ_BYTES: usize = 7;
        let length = buffer.len().min(READ_BYTES);
        self.0.read(&mut buffer[..length])
    }
}
