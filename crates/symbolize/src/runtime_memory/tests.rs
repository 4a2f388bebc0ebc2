//! Tests of whose frames get names from the memory of a process.

use std::{fs, io, os::unix::fs::symlink, path::Path, sync::Arc};

use object::elf::{SHT_DYNSYM, SHT_SYMTAB};
use profiler_addresses::MonotonicTime;
use profiler_dotnet_symbols::managed::NameStyle;
use profiler_elf_symbols::test_file::{TestFile, function};
use profiler_processes::{ProcessFilter, ProcessTable, root_directory::RootDirectory};

use super::*;
use crate::{CodeKey, NativeOptions, Symbolizer, debug_file::DebugDirectories};

/// A symbolizer and two processes in containers that map a file with this export, and with symbols, so that the
/// containers share it.
fn two_processes(export: &'static str, directory: &Path) -> (Symbolizer, ProcessTable) {
    let file = TestFile::with_code().code_segment(0x1000, 0x1000, 0x1000);
    let file = file.symbols(SHT_DYNSYM, &[function(export, 0x1000, 8)]);
    let file = file.symbols(SHT_SYMTAB, &[function("own", 0x1000, 8)]);
    fs::create_dir(directory.join("host")).unwrap();
    fs::write(directory.join("runtime.so"), file.bytes()).unwrap();
    for pid in ["7", "8"] {
        let process = directory.join(pid);
        fs::create_dir_all(process.join("root")).unwrap();
        fs::create_dir_all(process.join("map_files")).unwrap();
        symlink("../../runtime.so", process.join("map_files/100000-101000")).unwrap();
        let fields: Vec<String> = (4..=52).map(|field| field.to_string()).collect();
        fs::write(process.join("stat"), format!("{pid} (x) R {}", fields.join(" "))).unwrap();
        let status = format!("Tgid:\t{pid}\nUid:\t0\t0\t0\t0\nVmSize:\t1 kB\n");
        fs::write(process.join("status"), status).unwrap();
        let mapping = "100000-101000 r-xp 00001000 00:2a 257 /runtime.so\n";
        fs::write(process.join("maps"), mapping).unwrap();
    }
    let host = RootDirectory::open(&directory.join("host")).unwrap();
    let proc = Arc::new(ProcFs::from_capture(directory.to_owned()));
    let places = Arc::new(DebugDirectories::with_host(host));
    let kernel_names = || Err(io::ErrorKind::Unsupported.into());
    let (options, style) = (NativeOptions::default(), NameStyle::default());
    let symbolizer = Symbolizer::new(Arc::clone(&proc), places, options, style, kernel_names);
    (symbolizer, ProcessTable::new(proc, ProcessFilter::All))
}

/// The keys of one address in both processes.
fn code_of_both(export: &'static str) -> [CodeKey; 2] {
    let directory = tempfile::tempdir().unwrap();
    let (mut symbolizer, mut processes) = two_processes(export, directory.path());
    [7, 8].map(|pid| {
        let key = processes.prefetch(Pid(pid));
        symbolizer.code_at(processes.get(key).unwrap(), RuntimeAddress(0x10_0040), MonotonicTime(0))
    })
}

#[test]
fn the_memory_of_a_process_gives_names_to_its_own_frames_alone() {
    let [first, second] = code_of_both("coreclr_initialize");
    assert!(matches!(first, CodeKey::Runtime(..)), "{first:?}");
    assert_ne!(first, second, "one key would have the names of the process that is looked up first");
}

#[test]
fn frames_of_another_file_have_the_same_names_in_all_processes() {
    let [first, second] = code_of_both("other");
    assert!(matches!(first, CodeKey::Module(..)), "{first:?}");
    assert_eq!(first, second);
}
