//! Finds the places of probes: the offset of a function in a file of the target, or those of a static probe.

use std::{collections::BTreeSet, fs::File, path::Path, sync::Arc};

use profiler_addresses::ElfAddress;
use profiler_binary_reader::{Image, ParseError};
use profiler_elf_symbols::{Elf, StaticProbe};
use profiler_processes::{Backing, Mapping, Pid, ProcFs, maps, root_directory::RootDirectory};
use profiler_sampler::{
    CountedEvent, EventSource, PlannedEvent, Probe, ProbePlace, ProbedFile, StaticProbeName,
};

use crate::error::{Error, ErrorKind, Operation, Result};

/// The most places of a probe. The kernel changes the code of every process that maps the file at each of them.
const MAX_PLACES: usize = 1_024;

/// The most names of probes in an error message.
const MAX_SHOWN_NAMES: usize = 20;

/// The events with their places, in the files of a process, or else in the root directory of the profiler.
pub(super) fn plan(events: &[CountedEvent], proc: &ProcFs, pid: Option<Pid>) -> Result<Vec<PlannedEvent>> {
    let plan = |event: &CountedEvent| {
        let read = |path| ElfFile::read(path, open(path, proc, pid)?);
        let probed = match event.source() {
            EventSource::Probe(probe) => Some(read(&probe.file)?.find_function(probe)?),
            EventSource::StaticProbe(probe) => Some(read(&probe.file)?.find_static_probe(probe)?),
            _ => None,
        };
        Ok(PlannedEvent { event: event.clone(), probed })
    };
    events.iter().map(plan).collect()
}

/// An open file with its headers.
struct ElfFile<'a> {
    path: &'a Path,
    file: Arc<File>,
    elf: Elf,
}

/// Opens a file by its path, or a library by its name.
fn open(path: &Path, proc: &ProcFs, pid: Option<Pid>) -> Result<File> {
    let shown = path.display();
    if path.is_absolute() {
        return root(proc, pid)?.open_file(path).map_err(|error| {
            let message = format!("failed to open `{shown}` in the root of the target");
            Error::from_io(Operation::OpenFile, message, error)
        });
    }
    let pid = pid.ok_or_else(|| {
        let message = format!(
            "`{shown}` is a library name, which needs a target process (-p): give the path of the library"
        );
        Error::new(ErrorKind::InvalidInput, message)
    })?;
    let failed = |action, error| Error::from_target_io(Operation::ReadProcess, action, error);
    let text = proc.read(pid, "maps");
    let text = text.map_err(|error| failed(format!("failed to read `/proc/{pid}/maps`"), error))?;
    let mappings = maps::parse_executable(&text);
    let mapping = mappings.iter().find(|mapping| is_library(mapping, path)).ok_or_else(|| {
        let message = format!("process {pid} has not loaded a library `{shown}`");
        Error::new(ErrorKind::InvalidInput, message)
    })?;
    proc.open_mapped(pid, mapping)
        .map_err(|error| failed(format!("failed to open the library `{shown}` of process {pid}"), error))
}

/// Whether a mapping is of the library with a name: `libc` is that of `libc.so.6` and of `libc-2.31.so`.
fn is_library(mapping: &Mapping, name: &Path) -> bool {
    let Backing::File { path, .. } = &mapping.backing else { return false };
    let (Some(file), Some(name)) = (path.rsplit('/').next(), name.to_str()) else { return false };
    file.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-']))
}

fn root(proc: &ProcFs, pid: Option<Pid>) -> Result<RootDirectory> {
    let opened = pid.map_or_else(|| RootDirectory::open(Path::new("/")), |pid| proc.root(pid));
    opened.map_err(|error| {
        Error::from_target_io(
            Operation::ReadProcess,
            "failed to open the root directory of the target",
            error,
        )
    })
}

impl<'a> ElfFile<'a> {
    fn read(path: &'a Path, file: File) -> Result<Self> {
        let file = Arc::new(file);
        let elf = Image::from_file(Arc::clone(&file)).and_then(Elf::parse);
        Ok(Self { path, file, elf: elf.map_err(|error| unreadable(path, error))? })
    }

    fn find_function(self, probe: &Probe) -> Result<ProbedFile> {
        let (path, function) = (self.path.display(), &probe.function);
        let start = self.elf.find_function(function).map_err(|error| unreadable(self.path, error))?;
        let start = start.ok_or_else(|| {
            invalid(format!(
                "`{path}` has no function `{function}` in its symbol tables (a stripped file has those it exports alone)"
            ))
        })?;
        let address = ElfAddress(start.0.wrapping_add(probe.offset_bytes));
        let offset = self.elf.code_offset(address);
        let offset = offset.ok_or_else(|| invalid(format!("`{function}` is not in the code of `{path}`")))?;
        let place = ProbePlace { offset, semaphore: None, operands: String::new() };
        Ok(ProbedFile { file: self.file, places: vec![place] })
    }

    fn find_static_probe(self, wanted: &StaticProbeName) -> Result<ProbedFile> {
        let probes = self.elf.static_probes().map_err(|error| unreadable(self.path, error))?;
        let is_wanted = |probe: &&StaticProbe| probe.provider == wanted.provider && probe.name == wanted.name;
        let found = probes.iter().filter(is_wanted).map(|probe| self.place(probe));
        let mut places = found.collect::<Result<Vec<_>>>()?;
        places.sort_by_key(|place| place.offset.0);
        places.dedup_by_key(|place| place.offset.0);
        let (path, provider, name) = (self.path.display(), &wanted.provider, &wanted.name);
        if places.is_empty() {
            let known = known_names(&probes);
            return Err(invalid(format!("`{path}` has no static probe `{provider}:{name}` ({known})")));
        }
        if places.len() > MAX_PLACES {
            let count = places.len();
            let message = format!(
                "the static probe `{provider}:{name}` has {count} places in `{path}`, and at most {MAX_PLACES} are supported"
            );
            return Err(invalid(message));
        }
        Ok(ProbedFile { file: self.file, places })
    }

    fn place(&self, probe: &StaticProbe) -> Result<ProbePlace> {
        let malformed = |what: &str| {
            let (path, StaticProbe { provider, name, .. }) = (self.path.display(), probe);
            let message = format!("the {what} of the static probe `{provider}:{name}` is not in `{path}`");
            Error::new(ErrorKind::InvalidData, message)
        };
        let offset = self.elf.code_offset(probe.address).ok_or_else(|| malformed("instruction"))?;
        let semaphore = probe
            .semaphore
            .map(|address| self.elf.variable_offset(address).ok_or_else(|| malformed("semaphore")));
        Ok(ProbePlace { offset, semaphore: semaphore.transpose()?, operands: probe.arguments.clone() })
    }
}

/// The first names of static probes, sorted.
fn known_names(probes: &[StaticProbe]) -> String {
    let names: BTreeSet<_> = probes.iter().map(|probe| (&probe.provider, &probe.name)).collect();
    if names.is_empty() {
        return "it has no static probes".to_owned();
    }
    let shown = names.iter().take(MAX_SHOWN_NAMES).map(|(provider, name)| format!("{provider}:{name}"));
    let shown = shown.collect::<Vec<_>>().join(", ");
    let more = if names.len() > MAX_SHOWN_NAMES { ", ..." } else { "" };
    format!("known: {shown}{more}")
}

fn unreadable(path: &Path, error: ParseError) -> Error {
    let message = format!("failed to read the symbols of `{}`", path.display());
    Error::with_source(ErrorKind::InvalidData, message, error)
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use object::elf::SHT_NOTE;
    use profiler_elf_symbols::test_file::{TestFile, static_probe_note};

    use super::*;

    fn place_of(name: &str) -> Result<Vec<PlannedEvent>> {
        plan(&[name.parse().unwrap()], &ProcFs::live(), Some(Pid::own()))
    }

    fn first_place(planned: &[PlannedEvent]) -> &ProbePlace {
        &planned[0].probed.as_ref().unwrap().places[0]
    }

    #[test]
    fn a_function_of_the_running_program_has_a_place() {
        let program = std::env::current_exe().unwrap();
        let planned = place_of(&format!("uprobe:{}:main", program.display())).unwrap();
        let start = first_place(&planned).offset;
        let planned = place_of(&format!("uprobe:{}:main+4", program.display())).unwrap();
        assert_eq!(first_place(&planned).offset.0, start.0 + 4);
    }

    #[test]
    fn a_library_is_found_by_its_name() {
        let planned = place_of("uprobe:libc:malloc").unwrap();
        assert_eq!(planned[0].probed.as_ref().unwrap().places.len(), 1);
        let error = place_of("uprobe:libno:malloc").unwrap_err().to_string();
        assert!(error.contains("not loaded a library `libno`"), "{error}");
        let error = plan(&["uprobe:libc:malloc".parse().unwrap()], &ProcFs::live(), None).unwrap_err();
        assert!(error.to_string().contains("give the path"), "{error}");
    }

    #[test]
    fn what_is_missing_is_named() {
        let error = place_of("uprobe:/no/such/file:main").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSuchFile);
        let program = std::env::current_exe().unwrap();
        let error = place_of(&format!("uprobe:{}:no_such_function", program.display())).unwrap_err();
        assert!(error.to_string().contains("no function `no_such_function`"), "{error}");
    }

    /// A file with a code segment, a writable segment at 0x2000, and these static probes.
    fn file_with_probes(addresses: &[[u64; 3]]) -> tempfile::NamedTempFile {
        let notes =
            addresses.iter().flat_map(|addresses| static_probe_note(*addresses, b"app\0start\x008@%rdi\0"));
        let file = TestFile::with_code().code_segment(0, 0x1000, 0x100).data_at(0x2000, vec![0; 16]).with(
            ".note.stapsdt",
            SHT_NOTE,
            notes.collect(),
        );
        let mut written = tempfile::NamedTempFile::new().unwrap();
        written.write_all(&file.bytes()).unwrap();
        written
    }

    #[test]
    fn a_static_probe_has_all_places_of_its_name() {
        let file = file_with_probes(&[[0x1020, 0, 0x2004], [0x1010, 0, 0], [0x1020, 0, 0x2004]]);
        let planned = place_of(&format!("usdt:{}:app:start", file.path().display())).unwrap();
        let places = &planned[0].probed.as_ref().unwrap().places;
        let offsets: Vec<_> = places.iter().map(|place| place.offset.0).collect();
        assert_eq!(offsets, [0x10, 0x20]);
        assert!(places[0].semaphore.is_none() && places[1].semaphore.is_some());
        assert!(places.iter().all(|place| place.operands == "8@%rdi"));
    }

    #[test]
    fn a_static_probe_that_is_missing_or_outside_of_the_file_is_an_error() {
        let path = |file: &tempfile::NamedTempFile| file.path().display().to_string();
        let file = file_with_probes(&[[0x1010, 0, 0]]);
        let error = place_of(&format!("usdt:{}:app:end", path(&file))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("(known: app:start)"), "{error}");
        for outside in [[0x5000, 0, 0], [0x1010, 0, 0x5000]] {
            let file = file_with_probes(&[outside]);
            let error = place_of(&format!("usdt:{}:app:start", path(&file))).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
        }
    }
}
