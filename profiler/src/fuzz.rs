//! What the fuzz targets call: one function for each parser of what others wrote. Built with `--cfg fuzzing` only.
//!
//! Each must return, whatever the bytes are; what else must hold is asserted.

use std::{
    io::{self, Read},
    path::Path,
    sync::Arc,
};

use profiler_addresses::{ElfAddress, FileOffset, RuntimeAddress};
use profiler_binary_reader::{Budget, Image};
use profiler_dotnet_symbols::{managed, readytorun::{AssemblyLocation, Bundle, ReadyToRunModule}};
use profiler_elf_symbols::Elf;
use profiler_processes::{maps, root_directory::RootDirectory, Status};
use profiler_profile::{difference::Difference, recording, shape::{Shape, Share}, Profile};
use profiler_profile_formats::Format;
use profiler_symbolize::{self, debug_file::DebugFiles, fuzz, kernel::KernelSymbols, native::NativeModule, NativeOptions};
use profiler_unwind_tables::{self, TableSource, UnwindTable};
use crate::sampler;

/// No look-up is worth more than a few of these.
const MAX_ADDRESSES: usize = 64;

/// The text of `/proc/PID/maps` and of `/proc/PID/status`.
pub fn maps(bytes: &[u8]) {
    for mapping in maps::parse_executable(bytes) {
        assert!(mapping.start < mapping.end);
    }
    let text = String::from_utf8_lossy(bytes);
    let _ = Status::parse(&text);
}

/// A perf map says the same however its bytes arrive. The first byte is where they are cut.
pub fn perf_map(bytes: &[u8]) {
    let (first, second, bytes) = cut(bytes);
    fuzz::check_split_perf_map(first, second, text_numbers(bytes));
}

/// A jitdump says the same however its bytes arrive. The first byte is where they are cut.
pub fn jitdump(bytes: &[u8]) {
    let (first, second, bytes) = cut(bytes);
    fuzz::check_split_jitdump(first, second, words(bytes));
}

/// What a .NET runtime tells is the same however its bytes arrive. The first byte is where they are cut.
pub fn nettrace(bytes: &[u8]) {
    let (first, second, bytes) = cut(bytes);
    assert_eq!(fuzz::decode_stream(&[bytes]), fuzz::decode_stream(&[first, second]));
}

/// What a .NET runtime answers to a command.
pub fn ipc(bytes: &[u8]) {
    fuzz::decode_reply(bytes);
}

/// The kernel's symbols are the same however their bytes arrive.
pub fn kallsyms(bytes: &[u8]) {
    let at_once = KernelSymbols::read(bytes);
    let in_pieces = KernelSymbols::read(Trickle(bytes));
    assert_eq!(format!("{at_once:?}"), format!("{in_pieces:?}"));
    if let Ok(symbols) = at_once {
        for number in text_numbers(bytes) {
            let _ = symbols.lookup(RuntimeAddress(number));
        }
    }
}

/// An ELF file, asked for all but its debug information.
pub fn elf(bytes: &[u8]) {
    symbolize_all(bytes, NativeOptions::default());
}

/// An ELF file, asked for its debug information.
pub fn dwarf(bytes: &[u8]) {
    symbolize_all(bytes, NativeOptions { inlines: true, lines: true });
}

/// A .NET image with precompiled code.
pub fn readytorun(bytes: &[u8]) {
    let location = AssemblyLocation::from_image_path(Path::new("/fuzzed"));
    let Ok(mut module) = ReadyToRunModule::open(Image::Memory(bytes.to_vec()), location, &Arc::default()) else {
        return;
    };
    let Some(nowhere) = no_files() else { return };
    let fixed = [0, 0x1000, 0x1_0200, 0x1_1000];
    let words = words(bytes).flat_map(|word| [word & u64::from(u32::MAX), word >> 32]);
    for address in fixed.into_iter().chain(words).take(MAX_ADDRESSES) {
        let _ = module.address(RuntimeAddress(0), FileOffset(0), RuntimeAddress(address));
        let _ = module.symbolize(ElfAddress(address), &nowhere);
    }
}

/// A single-file .NET program.
pub fn bundle(bytes: &[u8]) {
    let Ok(elf) = Elf::parse(Image::Memory(bytes.to_vec())) else { return };
    let Ok(Some(bundle)) = Bundle::read(&elf, &Budget::default()) else { return };
    for offset in words(bytes).take(MAX_ADDRESSES) {
        if let Some(assembly) = bundle.assembly_at(FileOffset(offset)) {
            assert!(assembly.start <= offset && offset - assembly.start < assembly.bytes);
            assert!(bundle.image_of(assembly).is_ok());
        }
    }
}

/// Call frame information, as an ELF file and as a bare section.
pub fn eh_frame(bytes: &[u8]) {
    check_tables(table_of_file(bytes).into_iter().chain(unwind::tables_of_section(bytes)), bytes);
}

/// What a .NET image states of the frames of its code.
pub fn unwind_info(bytes: &[u8]) {
    check_tables(table_of_file(bytes).into_iter().chain(unwind::table_of_descriptions(bytes)), bytes);
}

fn table_of_file(bytes: &[u8]) -> Option<UnwindTable> {
    let source = TableSource::read(Image::Memory(bytes.to_vec())).ok()??;
    source.table(&|| true).ok()
}

fn check_tables(tables: impl Iterator<Item = UnwindTable>, bytes: &[u8]) {
    for table in tables {
        table.check();
        let pages: Vec<_> = table.pages().collect();
        for word in words(bytes).take(MAX_ADDRESSES) {
            let _ = table.rule_in(&pages, word);
        }
    }
}

/// A name that was brought to the product's spelling stays as it is, and can be read as C#.
pub fn names(bytes: &[u8]) {
    let _ = symbolize::demangle(bytes);
    let text = String::from_utf8_lossy(bytes);
    let once = managed::normalize_name(&text).name;
    assert_eq!(managed::normalize_name(&once).name, once);
    let _ = (managed::csharp_name(&once), managed::csharp_name(&text));
}

/// The events of a capture, and the recorded reports of runtimes.
#[cfg(feature = "capture")]
pub fn capture(bytes: &[u8]) {
    let _ = sampler::capture::parse(bytes);
    fuzz::read_recording(bytes);
}

/// A recorded profile, and one whose checksums are right. What is read can be recorded again, and be looked at in every
/// way.
pub fn recording(bytes: &[u8]) {
    for file in [bytes, &recording::file_of_bodies(bytes)] {
        let Ok(profile) = Profile::read(file) else { continue };
        let mut again = Vec::new();
        // Writing to a vector cannot fail.
        let _ = recording::write(&profile, &mut again);
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
        for format in Format::ALL {
            let _ = shaped.write(format, io::sink());
            let _ = Difference::between(&profile, &shaped).write(format, io::sink());
        }
    }
}

/// The kernel's type information.
pub fn btf(bytes: &[u8]) {
    let Some(btf) = sampler::ebpf::btf::Btf::parse(bytes.to_vec()) else { return };
    for (structure, member) in [("outer", "deep"), ("task_struct", "nsproxy"), ("", "")] {
        let _ = (btf.member(structure, member), btf.size(structure), btf.enumerator(structure, member));
    }
}

/// A record of the ring buffer, and the same bytes as one of the side band: kind, flags, body.
pub fn records(bytes: &[u8]) {
    sampler::ebpf::decode_records(bytes);
}

fn symbolize_all(bytes: &[u8], options: NativeOptions) {
    let Ok(mut module) = NativeModule::from_bytes(bytes.to_vec(), Path::new("/fuzzed")) else { return };
    let Some(nowhere) = no_files() else { return };
    let fixed = [0, 0x1000, 0x1010, 0x40_1000];
    for address in fixed.into_iter().chain(words(bytes)).take(MAX_ADDRESSES) {
        let _ = module.elf_address(RuntimeAddress(0), FileOffset(0), RuntimeAddress(address));
        let _ = module.symbolize(ElfAddress(address), options, &nowhere);
        let _ = module.nearby(ElfAddress(address));
    }
}

/// Where no file is to be found.
fn no_files() -> Option<DebugFiles> {
    let nowhere = RootDirectory::open(Path::new("/proc/self/ns")).ok()?;
    Some(DebugFiles::with_host(nowhere))
}

/// The bytes behind the first, whole and in two parts.
fn cut(bytes: &[u8]) -> (&[u8], &[u8], &[u8]) {
    let Some((at, bytes)) = bytes.split_first() else { return (bytes, bytes, bytes) };
    let (first, second) = bytes.split_at(bytes.len() * usize::from(*at) / 256);
    (first, second, bytes)
}

/// Numbers that stand in the bytes, at every eighth place: addresses among them.
fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word))
}

/// Hexadecimal numbers that begin the lines of a text.
fn text_numbers(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    let lines = bytes.split(|byte| *byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok());
    lines.filter_map(|line| u64::from_str_radix(line.split(' ').next()?, 16).ok()).take(MAX_ADDRESSES)
}

/// Hands out a few bytes at a time.
struct Trickle<'a>(&'a [u8]);

impl Read for Trickle<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        const PIECE_BYTES: usize = 7;
        let piece = buffer.len().min(PIECE_BYTES);
        self.0.read(&mut buffer[..piece])
    }
}
