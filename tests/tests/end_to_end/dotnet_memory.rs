//! Tests the names of .NET methods that are read from the memory of the runtime: against the runtime's own perf map, and those
//! of precompiled code against the files of its images.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    os::unix::fs::FileExt as _,
    path::Path,
    process::Command,
    sync::Arc,
};

use profiler_addresses::{FileMapping, FileOffset, RuntimeAddress};
use profiler_binary_reader::Image;
use profiler_dotnet_runtime::{
    CodeKind, DotNetRuntime, LookupError, Memory, ReadError, ReadLimits, find_symbols,
};
use profiler_dotnet_symbols::{
    managed::normalize_name,
    readytorun::{AssemblyFiles, AssemblyLocation, ReadyToRunModule},
};
use profiler_elf_symbols::Elf;
use profiler_tests::{Workload, run_beside_others, wait_until, workload_path};

#[derive(Debug)]
struct ProcessMemory(File);

impl Memory for ProcessMemory {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), ReadError> {
        self.0.read_exact_at(into, address).map_err(|_| ReadError::NotMapped)
    }
}

/// Opens the assemblies that names of precompiled methods refer to.
struct Files;

impl AssemblyFiles for Files {
    fn open(&self, path: &Path) -> Option<Image> {
        Image::from_file(File::open(path).ok()?).ok()
    }
}

/// A line of `/proc/PID/maps` with a file.
struct Mapped {
    start: u64,
    end: u64,
    offset: u64,
    is_code: bool,
    path: String,
}

impl Mapped {
    fn parse(line: &str) -> Option<Self> {
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let mut fields = line.splitn(6, ' ');
        let (start, end) = fields.next()?.split_once('-')?;
        let (permissions, offset) = (fields.next()?, fields.next()?);
        let path = fields.nth(2)?.trim_start().to_owned();
        let (start, end, offset) = (number(start)?, number(end)?, number(offset)?);
        let is_file = path.starts_with('/') && !path.contains("doublemapper");
        is_file.then_some(Self { start, end, offset, is_code: permissions.contains('x'), path })
    }

    fn file_mapping(&self) -> FileMapping {
        FileMapping { start: RuntimeAddress(self.start), offset: FileOffset(self.offset) }
    }
}

fn mapped_files(workload: &Workload) -> Vec<Mapped> {
    let maps = fs::read_to_string(format!("/proc/{}/maps", workload.pid())).unwrap();
    maps.lines().filter_map(Mapped::parse).collect()
}

pub(crate) fn open(workload: &Workload) -> DotNetRuntime {
    let files = mapped_files(workload);
    let names: BTreeSet<_> = files.iter().map(|mapped| mapped.path.as_str()).collect();
    let symbols = names.into_iter().find_map(|name| {
        let elf = Elf::parse(Image::from_file(File::open(name).ok()?).ok()?).ok()?;
        let mappings = files.iter().filter(|mapped| mapped.path == name);
        let mappings = mappings.map(|mapped| (mapped.file_mapping(), mapped.end - mapped.start));
        find_symbols(&elf, mappings).unwrap()
    });
    let memory = ProcessMemory(File::open(format!("/proc/{}/mem", workload.pid())).unwrap());
    let symbols = symbols.expect("the runtime exports its descriptor");
    DotNetRuntime::open(Arc::new(memory), symbols, ReadLimits::default(), &Arc::default()).unwrap()
}

/// A method in a perf map.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Listed {
    start: u64,
    size_bytes: u64,
    name: String,
}

impl Listed {
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.splitn(3, ' ');
        let mut number = || u64::from_str_radix(fields.next()?.trim_start_matches("0x"), 16).ok();
        let (start, size_bytes) = (number()?, number()?);
        let name = fields.next().filter(|name| !name.starts_with("stub"))?;
        Some(Self { start, size_bytes, name: normalize_name(name).name.into_owned() })
    }
}

/// The lines of the perf map, in the order of compilation, without one that is not complete.
fn perf_map_text(workload: &Workload) -> String {
    let bytes = fs::read(format!("/tmp/perf-{}.map", workload.pid())).unwrap();
    let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn perf_map(workload: &Workload) -> Vec<Listed> {
    perf_map_text(workload).lines().filter_map(Listed::parse).collect()
}

/// Whether a name is that of a perf map. Types that a signature has by address are `?` in names of events, and have their name
/// in perf maps.
fn is_same_name(found: &str, listed: &str) -> bool {
    let mut parts = found.split('?');
    let rest = parts.next().and_then(|first| listed.strip_prefix(first));
    let rest = parts.try_fold(rest, |rest, part| {
        let rest = rest?;
        Some(rest.find(part).map(|at| &rest[at + part.len()..]))
    });
    match rest.flatten() {
        Some("") => true,
        Some(_) => found.ends_with('?'),
        None => false,
    }
}

/// Looks up the first, a middle and the last address of each method of the perf map. Returns what differs, and the number of
/// methods.
fn compare_with_perf_map(runtime: &mut DotNetRuntime, workload: &Workload) -> (Vec<String>, usize) {
    let mut methods: BTreeMap<u64, Listed> = BTreeMap::new();
    for listed in perf_map(workload) {
        // Code that was freed: its memory has a later method.
        methods.retain(|start, other| {
            *start + other.size_bytes <= listed.start || listed.start + listed.size_bytes <= *start
        });
        methods.insert(listed.start, listed);
    }
    let mut differences = Vec::new();
    for listed in methods.values() {
        for offset in [0, listed.size_bytes / 2, listed.size_bytes - 1] {
            let found = runtime.find(RuntimeAddress(listed.start + offset), &Files);
            let is_same = found.as_ref().is_ok_and(|found| {
                found.start.0 == listed.start
                    && found.size_bytes == listed.size_bytes
                    && is_same_name(&found.name, &listed.name)
            });
            if !is_same {
                differences.push(format!("{listed:x?} at {offset:x} is {found:?}"));
            }
        }
    }
    (differences, methods.len())
}

/// Starts a program that compiles all methods, and lists them in a perf map.
fn start(program: &str, mode: &str) -> Workload {
    let mut command = if program.starts_with("single-file") {
        let mut command = Command::new(workload_path("dotnet").join(program));
        command.args([mode, "600"]).env("DOTNET_PerfMapEnabled", "3");
        command
    } else {
        Workload::dotnet_command(program, mode)
    };
    Workload::run(command.env("DOTNET_ReadyToRun", "0"))
}

#[test]
fn every_method_of_the_perf_map_has_its_name_and_range_in_memory() {
    let Some(_lock) = run_beside_others() else { return };
    for (program, mode, least) in
        [("9.0", "generic", 500), ("9.0", "async", 500), ("single-file-10.0", "async", 500)]
    {
        let workload = start(program, mode);
        let mut runtime = open(&workload);
        // The runtime compiles meanwhile: a method can be listed before the map of its code has it.
        let mut methods = 0;
        wait_until("every method of the perf map", || {
            let (differences, listed) = compare_with_perf_map(&mut runtime, &workload);
            methods = listed;
            differences.iter().take(5).for_each(|difference| eprintln!("{program} {mode}: {difference}"));
            (differences.is_empty() && methods >= least).then_some(())
        });
        eprintln!("{program} {mode}: {methods} methods, {} bytes kept", runtime.cached_bytes());
    }
}

/// Looks up methods that the runtime frees and makes anew all the time. The name of an address can be that of the method before
/// or after, but none that was never there.
#[test]
fn methods_that_are_freed_during_a_lookup_have_no_wrong_name() {
    const NAMES: usize = 1_000;
    const RECENT_LINES: usize = 300;
    let Some(_lock) = run_beside_others() else { return };
    for program in ["9.0", "single-file-10.0"] {
        let workload = start(program, "dynamic");
        let mut runtime = open(&workload);
        let mut names = BTreeSet::new();
        let mut changed = 0;
        wait_until("the names of many methods", || {
            let text = perf_map_text(&workload);
            for listed in text.lines().rev().take(RECENT_LINES).filter_map(Listed::parse) {
                match runtime.find(RuntimeAddress(listed.start + 1), &Files) {
                    Ok(found) if found.kind == CodeKind::Dynamic => {
                        let (start, size_bytes) = (found.start.0, found.size_bytes);
                        names.insert(Listed { start, size_bytes, name: found.name });
                    }
                    Err(LookupError::CodeChanged) => changed += 1,
                    _ => {}
                }
            }
            (names.len() >= NAMES).then_some(())
        });
        let is_listed = |listed: &BTreeSet<Listed>, found: &Listed| {
            listed.contains(found)
                || listed.iter().any(|other| {
                    (other.start, other.size_bytes) == (found.start, found.size_bytes)
                        && is_same_name(&found.name, &other.name)
                })
        };
        let unlisted = wait_until("the line of every method that was found", || {
            let listed: BTreeSet<_> = perf_map(&workload).into_iter().collect();
            let unlisted = names.iter().filter(|found| !is_listed(&listed, found)).count();
            (unlisted == 0).then_some(unlisted)
        });
        eprintln!("{program}: {} names, {unlisted} wrong, {changed} changed during the lookup", names.len());
    }
}

#[test]
fn precompiled_code_in_memory_has_the_names_of_its_image_file() {
    const ADDRESSES_PER_MAPPING: u64 = 500;
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::dotnet_program("9.0", "cpu");
    let mut runtime = open(&workload);
    let mut named = 0;
    for mapped in mapped_files(&workload).iter().filter(|mapped| mapped.is_code) {
        let Some(image) = Files.open(Path::new(&mapped.path)) else { continue };
        let location = AssemblyLocation::from_image_path(Path::new(&mapped.path));
        let Ok(mut file) = ReadyToRunModule::open(image, location, &Arc::default()) else { continue };
        let step = ((mapped.end - mapped.start) / ADDRESSES_PER_MAPPING).max(1);
        for address in (mapped.start..mapped.end).step_by(step as usize) {
            let address = RuntimeAddress(address);
            let Some(in_file) = file.address(mapped.file_mapping(), address) else { continue };
            let in_memory = runtime.find(address, &Files);
            match file.symbolize(in_file, &Files) {
                Ok(expected) => {
                    let found = in_memory.unwrap();
                    assert_eq!(found.name, expected.name, "{address:x} of {}", mapped.path);
                    assert_eq!(found.kind, CodeKind::Precompiled);
                    named += 1;
                }
                Err(error) => assert_eq!(in_memory, Err(LookupError::Precompiled(error))),
            }
        }
    }
    assert!(named > 100, "{named}");
}
