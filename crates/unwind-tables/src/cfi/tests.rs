//! Tests the functions and rows of valid, malformed and hostile sections.

use std::cell::Cell;

use profiler_addresses::ElfAddress;
use profiler_binary_reader::Image;
use profiler_elf_symbols::Machine::X86_64;

use super::*;
use crate::test_cfi::{CODE_ADDRESS, CODE_BYTES, TestCfi, code_layout, rule_without_offsets, x86_64_rule};

/// After one byte, the CFA is rsp + 16.
const PUSH: [u8; 3] = [0x41, 0x0e, 16];
const BEFORE_PUSH: Rule = x86_64_rule(CfaRule::StackPointer, 8);
const AFTER_PUSH: Rule = x86_64_rule(CfaRule::StackPointer, 16);
const UNKNOWN: Rule = rule_without_offsets(CfaRule::Unknown);

fn code_address(offset: u64) -> u64 {
    CODE_ADDRESS + offset
}

#[test]
fn functions_are_found_in_any_order() {
    let cfi = TestCfi::x86_64().function(code_address(4), 4, &PUSH).function(code_address(0), 4, &PUSH);
    let rules = cfi.rules(X86_64, 8);
    let function = [BEFORE_PUSH, AFTER_PUSH, AFTER_PUSH, AFTER_PUSH];
    assert_eq!(rules, [function, function].concat());
}

#[test]
fn padding_has_the_rule_of_the_function_before_it_and_other_gaps_are_unknown() {
    let cfi = TestCfi::x86_64().function(code_address(0), 2, &PUSH);
    let cfi = cfi.function(code_address(16), 1, &[]).function(code_address(24), 8, &PUSH).function(
        code_address(48),
        1,
        &[],
    );
    let rules = cfi.rules(X86_64, 50);
    assert_eq!(rules[1..17], [&[AFTER_PUSH; 15][..], &[BEFORE_PUSH]].concat());
    assert_eq!(rules[17..24], [BEFORE_PUSH; 7], "to the next multiple of 8");
    assert_eq!(rules[32..48], [UNKNOWN; 16], "large enough for a function");
    assert_eq!(rules[48..], [BEFORE_PUSH, UNKNOWN]);

    let unaligned = TestCfi::x86_64().function(code_address(0), 2, &PUSH).function(code_address(5), 1, &[]);
    assert_eq!(unaligned.rules(X86_64, 5)[2..], [UNKNOWN; 3]);
}

#[test]
fn a_function_ends_where_the_next_one_begins() {
    let cfi = TestCfi::x86_64().function(code_address(0), 8, &PUSH).function(code_address(4), 2, &[]);
    let rules = cfi.rules(X86_64, 8);
    assert_eq!(rules[3], AFTER_PUSH);
    assert_eq!(rules[4..], [BEFORE_PUSH, BEFORE_PUSH, UNKNOWN, UNKNOWN]);
}

#[test]
fn of_functions_with_one_start_the_longest_is_used() {
    for order in [[2, 8, 4], [8, 4, 2], [2, 4, 8]] {
        let cfi = order.into_iter().fold(TestCfi::x86_64(), |cfi, bytes| {
            cfi.function(code_address(0), bytes, if bytes == 8 { &PUSH } else { &[] })
        });
        assert_eq!(cfi.rules(X86_64, 8)[1..], [AFTER_PUSH; 7]);
    }
}

#[test]
fn rows_beyond_the_end_of_their_function_are_ignored() {
    let cfi = TestCfi::x86_64().function(code_address(0), 4, &[0x48, 0x0e, 16]);
    assert_eq!(cfi.rules(X86_64, 6), [&[BEFORE_PUSH; 4][..], &[UNKNOWN; 2]].concat());
}

#[test]
fn functions_outside_of_the_code_are_counted_and_ignored() {
    let cfi = TestCfi::x86_64()
        .function(0, 16, &[])
        .function(u64::MAX - 1, u64::MAX, &[])
        .function(code_address(CODE_BYTES), 16, &[])
        .function(code_address(0), 0, &[])
        .function(code_address(CODE_BYTES - 8), 16, &[]);
    let table = cfi.compile(X86_64).unwrap();
    let expected = TableStatistics { functions: 1, misplaced_functions: 4, ..TableStatistics::default() };
    assert_eq!(table.statistics(), expected);
}

#[test]
fn an_fde_is_used_up_to_its_first_malformed_instruction() {
    let bad_instruction = [&PUSH[..], &[0x41, 0x3f]].concat();
    let cfi =
        TestCfi::x86_64().function(code_address(0), 8, &bad_instruction).function(code_address(8), 8, &PUSH);
    assert_eq!(cfi.rules(X86_64, 4), [BEFORE_PUSH, AFTER_PUSH, UNKNOWN, UNKNOWN]);
    assert_eq!(cfi.rules(X86_64, 10)[9], AFTER_PUSH);
    assert_eq!(cfi.compile(X86_64).unwrap().statistics().malformed_functions, 1);

    let malformed_cie = TestCfi::default().cie("zR", 16, &[0x3f]).function(code_address(0), 8, &PUSH);
    assert_eq!(malformed_cie.rules(X86_64, 8), [UNKNOWN; 8]);
}

#[test]
fn plts_without_an_fde_have_the_rules_of_the_architecture() {
    let mut code = code_layout(X86_64);
    code.known_code = [
        code_address(0)..code_address(32),
        code_address(64)..code_address(96),
        code_address(128)..code_address(128),
        0..16,
    ]
    .into_iter()
    .map(|addresses| (addresses, x86_64_rule(CfaRule::Plt, 11)))
    .collect();
    let table = TestCfi::x86_64().function(code_address(80), 8, &[]).compile_for(&code).unwrap();
    let pages: Vec<_> = table.pages().collect();
    let rule = |start| table.find_rule(&pages, code_address(start));
    assert_eq!((rule(0), rule(31)), (x86_64_rule(CfaRule::Plt, 11), x86_64_rule(CfaRule::Plt, 11)));
    assert_eq!((rule(64), rule(80)), (x86_64_rule(CfaRule::Plt, 11), BEFORE_PUSH));
}

/// A `.debug_frame` of functions whose rows are those of [`PUSH`].
fn debug_frame(functions: &[(u64, u64)]) -> HashedSection {
    // No augmentation; the CIE pointer is an offset in the section.
    let mut bytes = [&[12, 0, 0, 0, 0xff, 0xff, 0xff, 0xff][..], &[1, 0, 1, 0x78, 16, 0x0c, 7, 8]].concat();
    for (start, length) in functions {
        bytes.extend([28, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend([start.to_le_bytes(), length.to_le_bytes()].concat());
        bytes.extend([0x90, 1, 0x41, 0x0e, 16, 0, 0, 0]);
    }
    let (kind, content) = (CallFrameKind::DebugFrame, Image::Memory(bytes));
    HashedSection::read(CallFrames { kind, content, address: ElfAddress(0) }).unwrap()
}

#[test]
fn debug_frame_has_the_same_rules() {
    let table = code_layout(X86_64).compile(&[debug_frame(&[(code_address(0), 8)])], &|| true).unwrap();
    let pages: Vec<_> = table.pages().collect();
    assert_eq!(table.find_rule(&pages, code_address(7)), AFTER_PUSH);
}

#[test]
fn debug_frame_is_used_where_eh_frame_has_no_fde() {
    let eh_frame = TestCfi::x86_64().function(code_address(8), 8, &[]).function(code_address(20), 2, &[]);
    let functions =
        [(code_address(18), 14), (code_address(8), 8), (code_address(4), 8), (code_address(32), 4)];
    let sections = [eh_frame.section(), debug_frame(&functions)];
    let table = code_layout(X86_64).compile(&sections, &|| true).unwrap();
    table.assert_valid();
    let pages: Vec<_> = table.pages().collect();
    let rules =
        |range: Range<u64>| range.map(|at| table.find_rule(&pages, code_address(at))).collect::<Vec<_>>();
    assert_eq!(rules(4..6), [BEFORE_PUSH, AFTER_PUSH]);
    assert_eq!(rules(6..8), [AFTER_PUSH; 2]);
    assert_eq!(rules(8..16), [BEFORE_PUSH; 8], "of `.eh_frame`");
    assert_eq!(rules(16..18), [UNKNOWN; 2]);
    assert_eq!(rules(18..20), [BEFORE_PUSH, AFTER_PUSH]);
    assert_eq!(rules(20..22), [BEFORE_PUSH; 2], "of `.eh_frame`");
    assert_eq!(rules(22..32), [AFTER_PUSH; 10], "the rest of the function around that of `.eh_frame`");
    assert_eq!(rules(32..36), [BEFORE_PUSH, AFTER_PUSH, AFTER_PUSH, AFTER_PUSH]);
}

#[test]
fn functions_that_the_linker_discarded_are_ignored() {
    let mut code = code_layout(X86_64);
    let all = 0..0x2000;
    code.code_ranges = [all].into();
    let table = code.compile(&[debug_frame(&[(0, 0x1800), (0x1000, 8)])], &|| true).unwrap();
    let pages: Vec<_> = table.pages().collect();
    assert_eq!(table.find_rule(&pages, 0xfff), UNKNOWN);
    assert_eq!((table.find_rule(&pages, 0x1007), table.find_rule(&pages, 0x1010)), (AFTER_PUSH, UNKNOWN));
    assert_eq!(table.statistics().misplaced_functions, 1);
}

#[test]
fn a_truncated_or_changed_section_does_not_panic() {
    let realigned = [0x0f, 3, 0x76, 0x78, 0x06, 0x10, 6, 2, 0x76, 0];
    let remembering = [0x41, 0x0a, 0x0e, 32, 0x41, 0x0b];
    let cfi = TestCfi::x86_64().function(code_address(0), 8, &PUSH);
    let whole = cfi.function(code_address(8), 16, &realigned).function(code_address(64), 8, &remembering);
    let compile = |bytes: &[u8]| {
        let mut cfi = TestCfi::default();
        cfi.bytes.extend(bytes);
        if let Ok(table) = cfi.compile(X86_64) {
            table.assert_valid();
        }
    };
    for length in 0..whole.bytes.len() {
        compile(&whole.bytes[..length]);
    }
    for position in 0..whole.bytes.len() {
        for value in 0..=255 {
            let mut changed = whole.bytes.clone();
            changed[position] = value;
            compile(&changed);
        }
    }
}

#[test]
fn fdes_that_share_a_long_cie_cost_no_more_than_the_limit() {
    // The first instruction fails, so that the test is fast. The length of the CIE counts nevertheless.
    let with_functions = |count: u64| {
        let mut instructions = vec![0; 128 << 10];
        instructions[0] = 0x3f;
        let cfi = TestCfi::default().cie("zR", 16, &instructions);
        (0..count).fold(cfi, |cfi, index| cfi.function(code_address(index), 1, &[])).compile(X86_64)
    };
    assert!(with_functions(500).is_ok());
    assert_eq!(with_functions(520).unwrap_err(), ParseError::TooLarge);
}

#[test]
fn a_too_long_cie_or_fde_is_not_evaluated() {
    let with_bytes = |bytes| {
        let instructions = [&PUSH[..], &vec![0; bytes]].concat();
        let in_function = TestCfi::x86_64().function(code_address(0), 2, &instructions);
        let in_cie = TestCfi::default().cie("zR", 16, &[&[0x0c, 7, 8, 0x90, 1], &instructions[..]].concat());
        [in_function, in_cie.function(code_address(0), 2, &[])].map(|cfi| cfi.rules(X86_64, 2)[0])
    };
    assert_eq!(with_bytes(MAX_ENTRY_BYTES - 100), [BEFORE_PUSH, AFTER_PUSH]);
    assert_eq!(with_bytes(MAX_ENTRY_BYTES), [UNKNOWN; 2]);
}

#[test]
fn cancellation_is_checked_regularly() {
    let checks = Cell::new(0);
    let long = vec![0; MAX_ENTRY_BYTES - 100];
    let cfi = (0..10).fold(TestCfi::x86_64(), |cfi, index| cfi.function(code_address(index), 1, &long));
    let section = [cfi.section()];
    let compile = |limit: u32| {
        checks.set(0);
        code_layout(X86_64).compile(&section, &|| checks.replace(checks.get() + 1) < limit)
    };
    assert!(compile(10).is_ok());
    assert_eq!(compile(4).unwrap_err(), ParseError::TooLarge);
    assert_eq!(checks.get(), 5);
}

#[test]
fn too_many_cies_are_refused() {
    let with_cies = |count| (0..count).fold(TestCfi::default(), |cfi, _| cfi.cie("zR", 16, &[]));
    assert!(with_cies(MAX_CIES_PER_SECTION).compile(X86_64).is_ok());
    let result = with_cies(MAX_CIES_PER_SECTION + 1).compile(X86_64);
    assert_eq!(result.unwrap_err(), ParseError::TooLarge);
}

#[test]
fn code_with_too_large_gaps_is_refused() {
    let mut code = code_layout(X86_64);
    let far = 2 << 30;
    code.code_ranges.push(far..far + 16);
    let cfi = TestCfi::x86_64().function(code_address(0), 8, &[]).function(far, 8, &[]);
    assert_eq!(cfi.compile_for(&code).unwrap_err(), ParseError::TooLarge);
}

#[test]
fn a_section_whose_content_has_another_hash_is_refused() {
    let cfi = TestCfi::x86_64().function(code_address(0), 8, &PUSH);
    let code = code_layout(X86_64);
    assert!(code.compile(&[cfi.section()], &|| true).is_ok());
    for changed in 0..cfi.bytes.len() {
        let mut other = cfi.clone();
        other.bytes[changed] ^= 1;
        let section = HashedSection { content_hash: cfi.section().content_hash, ..other.section() };
        assert!(code.compile(&[section], &|| true).is_err(), "byte {changed}");
    }
}
