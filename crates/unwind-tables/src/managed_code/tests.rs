//! Tests the return test and the rows of epilogues, with functions whose call frame information describes prologues alone.

use object::elf;
use profiler_binary_reader::Image;
use profiler_common::unwind::RuleFlags;
use profiler_elf_symbols::test_file::TestFile;

use super::*;
use crate::{
    elf_source::ElfSource,
    test_cfi::{CODE_ADDRESS, TestCfi, x86_64_rule, x86_64_rule_with_frame_pointer},
};

/// `push rbp; push rbx; sub rsp, 8; nop; add rsp, 8; pop rbx; pop rbp; ret; nop`.
const FUNCTION: [u8; 14] = [0x55, 0x53, 0x48, 0x83, 0xec, 8, 0x90, 0x48, 0x83, 0xc4, 8, 0x5b, 0x5d, 0xc3];
const FUNCTION_BYTES: u64 = 16;

/// CFA RSP + 16 and RBP at CFA - 16 after a byte; RSP + 24 after another one, RSP + 32 after four.
const PROLOGUE: [u8; 11] = [0x41, 0x0e, 16, 0x86, 2, 0x41, 0x0e, 24, 0x44, 0x0e, 32];

/// As [`PROLOGUE`], with each instruction of the epilogue.
const WITH_EPILOGUE: [u8; 22] = [
    0x41, 0x0e, 16, 0x86, 2, 0x41, 0x0e, 24, 0x44, 0x0e, 32, 0x45, 0x0e, 24, 0x41, 0x0e, 16, 0x41, 0x0e, 8,
    0xc6, 0,
];

const FRAME: Rule = x86_64_rule_with_frame_pointer(CfaRule::StackPointer, 32, FramePointerRule::AtCfa, -16);

/// A file with functions of [`FUNCTION`] in a section. The first ones have no epilogue in their CFI.
fn file(section: &str, functions: u64, without_epilogue: u64) -> Vec<u8> {
    let cfi = (0..functions).fold(TestCfi::x86_64(), |cfi, index| {
        let instructions = if index < without_epilogue { &PROLOGUE[..] } else { &WITH_EPILOGUE };
        cfi.function(CODE_ADDRESS + index * FUNCTION_BYTES, FUNCTION_BYTES, instructions)
    });
    let code = [&FUNCTION[..], &[0x90; 2]].concat().repeat(functions as usize);
    let file = TestFile::with_code().code_at(section, CODE_ADDRESS, code);
    file.with(".eh_frame", elf::SHT_PROGBITS, cfi.bytes).bytes()
}

/// The rules of the first function.
fn rules(file: Vec<u8>) -> Vec<Rule> {
    let elf = Elf::parse(Image::Memory(file)).unwrap();
    let table = ElfSource::read(&elf, |_| None).unwrap().compile(&|| true).unwrap();
    table.assert_valid();
    let pages: Vec<_> = table.pages().collect();
    (0..FUNCTION_BYTES).map(|offset| table.find_rule(&pages, CODE_ADDRESS + offset)).collect()
}

/// A rule of [`FUNCTION`] after its prologue, from instructions.
fn in_epilogue(cfa_offset: i32) -> Rule {
    Rule { cfa_offset, return_address: RuleFlags::BY_INSTRUCTIONS, ..FRAME }
}

#[test]
fn epilogues_that_the_cfi_does_not_describe_have_rows_from_their_instructions() {
    let at_return =
        Rule { return_address: RuleFlags::BY_INSTRUCTIONS, ..x86_64_rule(CfaRule::StackPointer, 8) };
    let expected = [&[FRAME; 4][..], &[in_epilogue(24), in_epilogue(16), at_return, FRAME, FRAME]].concat();
    assert_eq!(rules(file("__managedcode", 20, 20))[7..], expected);
}

#[test]
fn rows_of_the_cfi_are_kept_where_most_epilogues_are_described() {
    let by_cfi = [&[FRAME; 9][..]].concat();
    assert_eq!(rules(file("__managedcode", 20, 1))[7..], by_cfi, "5 % are not more than 5 %");
    assert_ne!(rules(file("__managedcode", 20, 2))[7..], by_cfi);
    assert_eq!(rules(file(".text", 20, 20))[7..], by_cfi, "no managed code");
}

#[test]
fn files_with_equal_cfi_and_other_code_have_different_hashes() {
    let hash = |file: &[u8]| {
        let elf = Elf::parse(Image::Memory(file.to_vec())).unwrap();
        KEYS.hash_one(ElfSource::read(&elf, |_| None).unwrap())
    };
    let whole = file("__managedcode", 20, 20);
    let code = whole.windows(FUNCTION.len()).position(|bytes| bytes == FUNCTION).unwrap();
    let mut changed = whole.clone();
    changed[code + 10] ^= 1;
    assert_ne!(hash(&whole), hash(&changed));
    assert_eq!(hash(&whole), hash(&whole.clone()));
}

#[test]
fn rows_behind_an_epilogue_are_those_of_the_cfi() {
    let at = |offset: u64| CODE_ADDRESS + offset;
    let managed = |code: &[&[u8]]| ManagedCode { address: CODE_ADDRESS, bytes: code.concat() };
    // Two returns. The first one is in the middle.
    let code = managed(&[&FUNCTION, &FUNCTION[7..]]);
    let rows = [(at(0), x86_64_rule(CfaRule::StackPointer, 8)), (at(6), FRAME)];
    let tested = code.test(at(0)..at(21), &rows);
    let at_return =
        |address| (at(address), Rule { return_address: 0x40, ..x86_64_rule(CfaRule::StackPointer, 8) });
    let expected = [
        rows[0],
        rows[1],
        (at(11), in_epilogue(24)),
        (at(12), in_epilogue(16)),
        at_return(13),
        (at(14), FRAME),
        (at(18), in_epilogue(24)),
        (at(19), in_epilogue(16)),
        at_return(20),
    ];
    assert_eq!(tested, FunctionEpilogues { rows: Some(expected.into()), returns: 2, wrong: 2 });

    let other_frame = [(at(0), Rule { cfa_offset: 40, ..FRAME })];
    let tested = code.test(at(0)..at(21), &other_frame);
    assert_eq!(tested, FunctionEpilogues { rows: None, returns: 2, wrong: 2 });
}
