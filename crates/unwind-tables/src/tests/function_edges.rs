//! Function edges, which the BPF program finds in the instructions of code without CFI, against the CFI of ELF files of this machine.

use std::{fs::File, path::Path};

use iced_x86::{Decoder, DecoderOptions};
use profiler_addresses::ElfAddress;
use profiler_binary_reader::Image;
use profiler_common::{
    function_edge::{EdgeKind, EdgeScan, FunctionEdge, INSTRUCTION_BYTES, MAX_INSTRUCTIONS},
    unwind::CfaRule,
};
use profiler_elf_symbols::{Elf, Machine};

use crate::{elf_source::ElfSource, table::UnwindTable};

/// The return address is below the CFA (System V ABI AMD64, 3.2.2).
const WORD: i32 = 8;

#[derive(Debug, Default)]
struct Tally {
    prologues: usize,
    epilogues: usize,
    wrong: Vec<String>,
}

/// `PROFILER_COMPARE_EDGES=FILE` compares another file.
#[test]
fn function_edges_agree_with_the_call_frame_information() {
    let files = match std::env::var_os("PROFILER_COMPARE_EDGES") {
        Some(file) => vec![file.into()],
        None => vec![std::env::current_exe().unwrap(), c_library()],
    };
    for path in files {
        let mut tally = Tally::default();
        compare(&path, &mut tally);
        let Tally { prologues, epilogues, wrong } = tally;
        println!("{}: {prologues} prologues, {epilogues} epilogues, {} wrong", path.display(), wrong.len());
        assert!(prologues + epilogues > 10_000);
        // The CFI of a few functions in assembly does not follow their epilogues.
        assert!(wrong.len() * 2_000 <= prologues + epilogues, "{:#?}", &wrong[..20.min(wrong.len())]);
    }
}

/// The C library that this test maps.
fn c_library() -> std::path::PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let paths = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    paths.map(Path::new).find(|path| path.ends_with("libc.so.6")).unwrap().to_owned()
}

fn compare(path: &Path, tally: &mut Tally) {
    let elf = Elf::parse(Image::from_file(File::open(path).unwrap()).unwrap()).unwrap();
    if elf.machine() != Machine::X86_64 {
        return;
    }
    let table = ElfSource::read(&elf, |_| None).and_then(|source| source.compile(&|| true)).unwrap();
    let (file, layout) = (std::fs::read(path).unwrap(), elf.layout());
    for range in elf.sections().unwrap().code_ranges() {
        let (offset, _) = layout.rest_from(ElfAddress(range.start)).unwrap();
        let begin = usize::try_from(offset.0).unwrap();
        let end = begin + usize::try_from(range.end - range.start).unwrap();
        compare_section(&file[begin..end], range.start, &table, tally);
    }
}

/// Compares each instruction of a section.
fn compare_section(code: &[u8], start: u64, table: &UnwindTable, tally: &mut Tally) {
    let pages: Vec<_> = table.pages().collect();
    let decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
    for instruction in decoder {
        let address = instruction.ip();
        let rest = &code[usize::try_from(address - start).unwrap()..];
        // One in front of a function is padding.
        let is_nop = rest[0] == 0x90;
        let Some(edge) = scan(rest).filter(|_| !is_nop) else { continue };
        let rule = table.find_rule(&pages, address);
        if rule.cfa != CfaRule::StackPointer as u8 {
            continue;
        }
        match edge.kind {
            // The unwinder compares the slot below the return address with the frame pointer: an address in a frame can be put into
            // the register as well.
            EdgeKind::Prologue if edge.return_address_offset != 0 => continue,
            EdgeKind::Prologue => tally.prologues += 1,
            EdgeKind::Epilogue | EdgeKind::LikelyEpilogue => tally.epilogues += 1,
        }
        let expected = u64::try_from(rule.cfa_offset - WORD);
        if expected != Ok(edge.return_address_offset) {
            tally.wrong.push(format!("{address:#x}: {edge:?}, not {expected:?}"));
        }
    }
}

fn scan(code: &[u8]) -> Option<FunctionEdge> {
    let mut scan = EdgeScan::default();
    for _ in 0..MAX_INSTRUCTIONS {
        let rest = code.get(scan.scanned as usize..)?;
        let bytes = rest.first_chunk::<INSTRUCTION_BYTES>()?;
        scan.scan(u64::from_le_bytes(*bytes), true);
        if scan.is_decided() {
            break;
        }
    }
    scan.edge()
}
