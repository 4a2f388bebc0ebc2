//! The rows at the `ret` instructions of a NativeAOT library, with and without those of its epilogues.

use std::path::{Path, PathBuf};

use iced_x86::{Decoder, DecoderOptions, Mnemonic};
use profiler_addresses::ElfAddress;
use profiler_binary_reader::Image;
use profiler_common::unwind::CfaRule;
use profiler_elf_symbols::Elf;

use crate::elf_source::ElfSource;

const MANAGED_CODE: &[u8] = b"__managedcode";

/// A section of this name has no rows of epilogues.
const OTHER_CODE: &[u8] = b"__unknowncode";

/// `PROFILER_COMPARE_RETURNS=FILE` counts those of another file.
#[test]
fn rows_are_right_at_the_returns_of_native_aot_code() {
    let path = std::env::var_os("PROFILER_COMPARE_RETURNS").map_or_else(library, PathBuf::from);
    let Ok(file) = std::fs::read(&path) else {
        println!("not tested: {} is missing: cargo xtask setup", path.display());
        return;
    };
    let mut by_cfi = file.clone();
    let name = by_cfi.windows(MANAGED_CODE.len()).rposition(|bytes| bytes == MANAGED_CODE).unwrap();
    by_cfi[name..][..MANAGED_CODE.len()].copy_from_slice(OTHER_CODE);
    let returns = returns(&file);
    let [by_cfi, right] = [by_cfi, file].map(|file| right_rows(file, &returns));
    let (path, all) = (path.display(), returns.len());
    println!("{path}: of {all} ret, {by_cfi} have the right row by CFI, {right} with the rows of epilogues");
    assert!(all > 0 && right * 1_000 >= all * 999, "{right} of {all}");
}

/// The library that `cargo xtask workloads` installs.
fn library() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join("target/workloads/native-aot/FixedWidthParser.Native.so")
}

/// The addresses of the `ret` instructions of managed code.
fn returns(file: &[u8]) -> Vec<u64> {
    let elf = Elf::parse(Image::Memory(file.to_vec())).unwrap();
    let code = elf.sections().unwrap().find(MANAGED_CODE).unwrap().addresses();
    let (offset, _) = elf.layout().rest_from(ElfAddress(code.start)).unwrap();
    let bytes =
        &file[usize::try_from(offset.0).unwrap()..][..usize::try_from(code.end - code.start).unwrap()];
    let instructions = Decoder::with_ip(64, bytes, code.start, DecoderOptions::NONE).into_iter();
    instructions.filter(|instruction| instruction.mnemonic() == Mnemonic::Ret).map(|ret| ret.ip()).collect()
}

/// The number of `ret` instructions at which the CFA is RSP + 8.
fn right_rows(file: Vec<u8>, returns: &[u64]) -> usize {
    let elf = Elf::parse(Image::Memory(file)).unwrap();
    let table = ElfSource::read(&elf, |_| None).and_then(|source| source.compile(&|| true)).unwrap();
    let pages: Vec<_> = table.pages().collect();
    let rules = returns.iter().map(|address| table.find_rule(&pages, *address));
    rules.filter(|rule| rule.cfa == CfaRule::StackPointer as u8 && rule.cfa_offset == 8).count()
}
