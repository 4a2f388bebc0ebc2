//! The events that this machine can sample, and the static probes of a file.

use std::{collections::BTreeMap, path::Path};

use profiler_binary_reader::Image;
use profiler_elf_symbols::{Elf, ProbeArgument, StaticProbe};
use profiler_processes::root_directory::RootDirectory;

use crate::{
    counted_event::{DURATION, HARDWARE, SOFTWARE},
    error::{Error, ErrorKind, Operation, Result},
    sampler::ebpf::KernelTypes,
    sys::perf,
    system_calls,
};

/// An event that this machine can sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AvailableEvent {
    /// The name, for [`CountedEvent`](crate::CountedEvent).
    pub name: String,
    /// The names and the types of its fields, as in C.
    pub fields: Vec<(String, String)>,
}

/// Lists the software events, the hardware events if there is a PMU, the tracepoints if the kernel has types (BTF), and the system
/// calls. The subsystem of a tracepoint is not known: its name starts with `tracepoint:`.
#[must_use]
pub fn available_events() -> Vec<AvailableEvent> {
    let hardware = if perf::has_cycle_counter() { HARDWARE } else { &[] };
    let named = SOFTWARE.iter().chain(hardware);
    let mut events: Vec<_> =
        named.map(|(name, _)| AvailableEvent { name: (*name).to_owned(), fields: Vec::new() }).collect();
    let types = KernelTypes::default();
    if let Some(types) = types.btf() {
        let mut tracepoints: Vec<_> = types
            .tracepoints()
            .map(|(name, mut fields)| {
                if name == "sys_exit" {
                    fields.push(duration());
                }
                AvailableEvent { name: format!("tracepoint:{name}"), fields }
            })
            .collect();
        tracepoints.sort_by(|a, b| a.name.cmp(&b.name));
        events.extend(tracepoints);
    }
    events.extend(system_calls::names().flat_map(system_call_events));
    events
}

/// The field of the exits of system calls that no argument has.
fn duration() -> (String, String) {
    (DURATION.to_owned(), "nanoseconds".to_owned())
}

/// The entry and the exit of a system call.
fn system_call_events(name: &str) -> [AvailableEvent; 2] {
    let number = |field: &str| (field.to_owned(), "long int".to_owned());
    let entry: Vec<_> = ["arg1", "arg2", "arg3", "arg4", "arg5", "arg6"].map(number).into();
    let exit = entry.iter().cloned().chain([number("ret"), duration()]).collect();
    [
        AvailableEvent { name: format!("syscalls:sys_enter_{name}"), fields: entry },
        AvailableEvent { name: format!("syscalls:sys_exit_{name}"), fields: exit },
    ]
}

/// Lists the static probes (USDT) of a file, sorted by name. The types of fields are the sizes of their values; those that cannot
/// be read are their operands.
///
/// # Errors
/// The file cannot be opened or read, or is not an ELF file of this machine.
pub fn static_probes(file: &Path) -> Result<Vec<AvailableEvent>> {
    let shown = file.display();
    let opened = file.canonicalize().and_then(|path| {
        let opened = RootDirectory::open(Path::new("/"))?.open_file(&path)?;
        Ok((path, opened))
    });
    let (path, opened) = opened
        .map_err(|error| Error::from_io(Operation::OpenFile, format!("failed to open `{shown}`"), error))?;
    let probes = Image::from_file(opened).and_then(Elf::parse).and_then(|elf| elf.static_probes());
    let probes = probes.map_err(|error| {
        let message = format!("failed to read the static probes of `{shown}`");
        Error::with_source(ErrorKind::InvalidData, message, error)
    })?;
    let mut events = BTreeMap::new();
    for StaticProbe { provider, name, arguments, .. } in &probes {
        // Several places can have one name.
        events
            .entry(format!("usdt:{}:{provider}:{name}", path.display()))
            .or_insert_with(|| argument_types(arguments));
    }
    Ok(events.into_iter().map(|(name, fields)| AvailableEvent { name, fields }).collect())
}

/// The names and the types of arguments of a static probe.
fn argument_types(operands: &str) -> Vec<(String, String)> {
    let type_of = |operand: &str| match ProbeArgument::parse(operand) {
        Some(ProbeArgument { bytes, is_signed, .. }) => {
            format!("{}int{}_t", if is_signed { "" } else { "u" }, 8 * bytes)
        }
        None => operand.to_owned(),
    };
    let operands = operands.split_ascii_whitespace();
    (1..).zip(operands).map(|(number, operand)| (format!("arg{number}"), type_of(operand))).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use object::elf::SHT_NOTE;
    use profiler_elf_symbols::test_file::{TestFile, static_probe_note};

    use super::*;
    use crate::CountedEvent;

    #[test]
    fn the_static_probes_of_a_file_are_listed_once() {
        let notes = [&b"b\0end\0\0"[..], b"a\0start\x00-4@%edi 8f@%xmm0\0", b"a\0start\0\0"];
        let notes = notes.iter().flat_map(|texts| static_probe_note([0x1010, 0, 0], texts));
        let bytes = TestFile::with_code().with(".note.stapsdt", SHT_NOTE, notes.collect()).bytes();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&bytes).unwrap();
        let events = static_probes(file.path()).unwrap();
        let fields = [("arg1", "int32_t"), ("arg2", "8f@%xmm0")];
        assert_eq!(events[0].fields, fields.map(|(name, text)| (name.to_owned(), text.to_owned())));
        let names: Vec<_> = events.into_iter().map(|event| event.name).collect();
        let path = file.path().canonicalize().unwrap();
        let expected = ["a:start", "b:end"].map(|name| format!("usdt:{}:{name}", path.display()));
        assert_eq!(names, expected);
        assert!(names.iter().all(|name| name.parse::<CountedEvent>().is_ok()));
    }

    #[test]
    fn a_file_that_cannot_be_read_is_an_error() {
        assert_eq!(static_probes(Path::new("/no/such/file")).unwrap_err().kind(), ErrorKind::NoSuchFile);
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"text").unwrap();
        assert_eq!(static_probes(file.path()).unwrap_err().kind(), ErrorKind::InvalidData);
    }

    #[test]
    fn every_event_that_is_listed_can_be_named() {
        let events = available_events();
        for known in ["page-faults", "syscalls:sys_exit_read"] {
            assert!(events.iter().any(|event| event.name == known), "{known}");
        }
        for event in events {
            assert!(event.name.parse::<CountedEvent>().is_ok(), "{}", event.name);
        }
    }
}
