//! The static probes of a file.

use std::{collections::BTreeMap, path::Path};

use crate::error::{Error, ErrorKind, Operation, Result};
use profiler_binary_reader::Image;
use profiler_elf_symbols::{Elf, ProbeArgument, StaticProbe};
use profiler_processes::root_directory::RootDirectory;
use profiler_sampler::AvailableEvent;

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

    use super::*;
    use object::elf::SHT_NOTE;
    use profiler_elf_symbols::test_file::{TestFile, static_probe_note};
    use profiler_sampler::CountedEvent;

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
}
