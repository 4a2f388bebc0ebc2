//! Tests the rows of JIT code: prologue, body, epilogues, funclets, and what is malformed.

use profiler_addresses::FileOffset;
use profiler_common::unwind::{FramePointerRule, RuleFlags};

use super::*;
use crate::{
    TableSource,
    test_cfi::{x86_64_rule, x86_64_rule_with_frame_pointer},
};

const MEMORY: Range<RuntimeAddress> = RuntimeAddress(0x7f12_3456_7000)..RuntimeAddress(0x7f12_3456_9000);

const PUSH_RBP: [u8; 2] = [1, 0x50];
const PUSH_RBX: [u8; 2] = [2, 0x30];
const ALLOCATE_40: [u8; 2] = [6, 0x42];

/// push rbp; push rbx; sub rsp, 40
const PROLOGUE: &[u8] = &[0x55, 0x53, 0x48, 0x83, 0xec, 40];
/// add rsp, 40; pop rbx; pop rbp; ret
const EPILOGUE: &[u8] = &[0x48, 0x83, 0xc4, 40, 0x5b, 0x5d, 0xc3];

fn unwind_info(frame: u8, slots: &[[u8; 2]]) -> Vec<u8> {
    [&[1, 6, u8::try_from(slots.len()).unwrap(), frame], &slots.concat()[..]].concat()
}

fn compile(start: u64, unwind_info: Vec<u8>, instructions: &[u8]) -> Result<ManagedFunction, ParseError> {
    let start = MEMORY.start.0 + start;
    let code = RuntimeAddress(start)..RuntimeAddress(start + instructions.len() as u64);
    ManagedFunction::compile(code, unwind_info, instructions.to_vec())
}

/// A function without a frame pointer: `nop` bytes between its prologue and its epilogue.
fn frameless(start: u64, bytes: usize) -> ManagedFunction {
    let code = [PROLOGUE, &vec![0x90; bytes], EPILOGUE].concat();
    compile(start, unwind_info(0, &[ALLOCATE_40, PUSH_RBX, PUSH_RBP]), &code).unwrap()
}

fn rules(functions: &[ManagedFunction], offsets: impl IntoIterator<Item = u64>) -> Vec<Rule> {
    let source = TableSource::of_managed_functions(&MEMORY, FileOffset(0x5000), functions);
    let table = source.compile(&|| true).unwrap();
    table.assert_valid();
    assert_eq!(table.statistics().functions, functions.len() as u32);
    let pages: Vec<_> = table.pages().collect();
    offsets.into_iter().map(|offset| table.find_rule(&pages, offset)).collect()
}

const ENTRY: Rule = x86_64_rule(CfaRule::StackPointer, 8);

const fn saved(bytes: i32) -> Rule {
    x86_64_rule_with_frame_pointer(CfaRule::StackPointer, bytes, FramePointerRule::AtCfa, -16)
}

/// The rule of an instruction in an epilogue.
fn in_epilogue(rule: Rule) -> Rule {
    Rule { return_address: RuleFlags::BY_INSTRUCTIONS, ..rule }
}

#[test]
fn each_instruction_has_the_frame_that_the_prologue_the_body_or_the_epilogue_has_there() {
    let found = rules(&[frameless(0x40, 200)], 0x3f..0x40 + 214);
    let expected = [
        vec![Rule::default(), ENTRY, saved(16)],
        vec![saved(24); 4],
        vec![saved(64); 200],
        vec![saved(64); 4],
        vec![in_epilogue(saved(24)), in_epilogue(saved(16)), in_epilogue(ENTRY)],
        vec![Rule::default()],
    ];
    assert_eq!(found, expected.concat());
}

#[test]
fn a_frame_with_a_localloc_is_found_by_its_frame_register() {
    // push rbp; push rbx; sub rsp, 40; lea rbp, [rsp + 48]; ...; lea rsp, [rbp - 8]; pop rbx; pop rbp; ret
    let code = [
        PROLOGUE,
        &[0x48, 0x8d, 0x6c, 0x24, 48],
        &[0x90; 20],
        &[0x48, 0x8d, 0x65, 0xf8, 0x5b, 0x5d, 0xc3],
        &[0x90],
    ]
    .concat();
    let info = unwind_info(0x35, &[[11, 3], ALLOCATE_40, PUSH_RBX, PUSH_RBP]);
    let found = rules(&[compile(0, info, &code).unwrap()], [5, 6, 11, 34, 35, 36, 37, 38]);
    let body = x86_64_rule_with_frame_pointer(CfaRule::FramePointer, 16, FramePointerRule::AtCfa, -16);
    let epilogue = [saved(24), saved(16), ENTRY].map(in_epilogue);
    assert_eq!(found, [saved(24), saved(64), body, body, epilogue[0], epilogue[1], epilogue[2], body]);
}

#[test]
fn a_handler_is_a_function_of_its_own() {
    let functions = [frameless(0x1000 - 30, 17), frameless(0x1000, 10)];
    let found = rules(&functions, [0xfff, 0x1000, 0x1001, 0x1006]);
    assert_eq!(found, [in_epilogue(ENTRY), ENTRY, saved(16), saved(64)]);
}

#[test]
fn an_exit_that_does_not_release_the_frame_is_no_epilogue() {
    let info = unwind_info(0, &[ALLOCATE_40, PUSH_RBX, PUSH_RBP]);
    let code = [PROLOGUE, &[0x90, 0x5b, 0xc3], &[0x48, 0x83, 0xc4, 8, 0xc3], EPILOGUE].concat();
    let found = rules(&[compile(0, info, &code).unwrap()], 6..18);
    assert_eq!(found, [saved(64); 12]);
}

#[test]
fn functions_outside_of_the_memory_or_in_others_are_left_out() {
    let outside = frameless(MEMORY.end.0 - MEMORY.start.0 - 4, 4);
    let functions = [frameless(0x40, 40), frameless(0x50, 8), outside];
    let source = TableSource::of_managed_functions(&MEMORY, FileOffset(0), &functions);
    assert_eq!(source.compile(&|| true).unwrap().statistics().functions, 1);
    assert_eq!(source.compile(&|| false).err(), Some(ParseError::TooLarge));
    let none = TableSource::of_managed_functions(&MEMORY, FileOffset(0), &functions[2..]);
    assert_eq!(none.compile(&|| true).unwrap().row_count(), 0);
}

#[test]
fn malformed_functions_have_no_rows() {
    let valid = unwind_info(0, &[PUSH_RBP]);
    for (what, info, code) in [
        ("without unwind information", vec![], &[0x55][..]),
        ("of another version", [vec![2], valid[1..].to_vec()].concat(), &[0x55]),
        ("a truncated code", valid[..5].to_vec(), &[0x55]),
        ("by another frame register", unwind_info(0x33, &[[2, 3], PUSH_RBP]), &[0x55]),
        ("without instructions", valid.clone(), &[]),
    ] {
        assert_eq!(compile(0, info, code), Err(ParseError::Malformed), "{what}");
    }
    let code = RuntimeAddress(0x1000)..RuntimeAddress(0x1002);
    assert_eq!(ManagedFunction::compile(code, valid, vec![0x55]), Err(ParseError::Malformed));
}

#[test]
fn a_prologue_that_is_longer_than_its_function_ends_with_it() {
    let info = unwind_info(0, &[[200, 0x42], PUSH_RBP]);
    let found = rules(&[compile(0, info, &[0x55, 0x90]).unwrap()], [0, 1, 2, 200]);
    assert_eq!(found, [ENTRY, saved(16), Rule::default(), Rule::default()]);
}

/// A server has 20,000 methods. Their rows must fit into 2 MB.
#[test]
fn a_typical_function_takes_less_than_a_hundred_bytes_of_kernel_memory() {
    let functions: Vec<_> = (0..16).map(|index| frameless(index * 0x200, 0x1d0)).collect();
    let source = TableSource::of_managed_functions(&MEMORY, FileOffset(0), &functions);
    let table = source.compile(&|| true).unwrap();
    let bytes = table.row_count() * size_of::<profiler_common::unwind::Row>()
        + table.pages().len() * size_of::<profiler_common::unwind::PageEntry>();
    assert!(bytes < 100 * functions.len(), "{bytes}");
}
