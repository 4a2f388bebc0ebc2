//! Tests with a program that has a function table of Go, and call frame information besides.

use object::elf::SHT_PROGBITS;
use profiler_binary_reader::Image;
use profiler_elf_symbols::{
    Elf,
    test_file::TestFile,
    test_go_table::{GO_VERSIONS, GoTestFunction, GoVersion, go_table},
};

use super::*;
use crate::{
    elf_source::ElfSource,
    table::UnwindTable,
    test_cfi::{CODE_ADDRESS, TestCfi},
};

const WORK: GoTestFunction<'_> = GoTestFunction {
    name: "main.work",
    file: "/app/main.go",
    lines: &[(1, 64)],
    inlined: &[],
    frame_sizes: &[(0, 4), (0x28, 50), (0, 10)],
    writes_stack_pointer: false,
    is_top_frame: false,
};
const SWITCH: GoTestFunction<'_> = GoTestFunction {
    name: "runtime.gogo",
    file: "/go/asm.s",
    lines: &[(1, 32)],
    inlined: &[],
    frame_sizes: &[(0, 32)],
    writes_stack_pointer: true,
    is_top_frame: false,
};
const START: GoTestFunction<'_> = GoTestFunction { name: "runtime.rt0_go", is_top_frame: true, ..SWITCH };
/// The return address of the first function of each goroutine.
const EXIT: GoTestFunction<'_> =
    GoTestFunction { name: "runtime.goexit", writes_stack_pointer: false, ..START };
const CODE_BYTES: u64 = 160;

/// A program with these functions of Go from [`CODE_ADDRESS`] on, and code of another language behind them.
fn table(version: GoVersion, eh_frame: Vec<u8>) -> UnwindTable {
    table_of(version, &[WORK, SWITCH, START, EXIT], eh_frame)
}

fn table_of(version: GoVersion, functions: &[GoTestFunction<'_>], eh_frame: Vec<u8>) -> UnwindTable {
    let go = go_table(version, CODE_ADDRESS, functions);
    let file = TestFile::with_code().code_segment(0, CODE_ADDRESS, 0x100);
    let file = file.with(".gopclntab", SHT_PROGBITS, go).section_address(0x8000);
    let file = file.section_flags(2, object::elf::SHF_ALLOC).with(".eh_frame", SHT_PROGBITS, eh_frame);
    let elf = Elf::parse(Image::Memory(file.bytes())).unwrap();
    ElfSource::read(&elf, |_| None).and_then(|source| source.compile(&|| true)).unwrap()
}

fn rules(table: &UnwindTable, addresses: &[u64]) -> Vec<Rule> {
    let pages: Vec<_> = table.pages().collect();
    addresses.iter().map(|address| table.find_rule(&pages, *address)).collect()
}

/// Where `morestack` saves the frame pointer in Go 1.19, and since Go 1.25.
const SAVES: [[u8; 4]; 2] = [[0x48, 0x89, 0x6e, 0x68], [0x48, 0x89, 0x6f, 0x60]];
const SWITCH_BY_RBX: [u8; 4] = [0x48, 0x8b, 0x63, 0x38];

/// The rules of a function that switches stacks, at its start and further on, in a program with this code of `morestack`.
fn rules_of_switch(name: &str, frame_sizes: &[(i32, u32)], code: &[u8]) -> [Rule; 2] {
    let more_stack = GoTestFunction { name: MORE_STACK, ..SWITCH };
    let function = GoTestFunction { name, frame_sizes, ..SWITCH };
    let functions = if name == MORE_STACK { vec![SWITCH, function] } else { vec![function, more_stack] };
    let bytes = [[0x90].repeat(32), code.to_vec(), [0x90].repeat(64)].concat();
    let go = go_table(GoVersion::V18, CODE_ADDRESS, &functions);
    let file = TestFile::with_code().code_at(".text", CODE_ADDRESS, bytes);
    let file = file.with(".gopclntab", SHT_PROGBITS, go).section_address(0x8000);
    let elf = Elf::parse(Image::Memory(file.section_flags(3, object::elf::SHF_ALLOC).bytes())).unwrap();
    let table = ElfSource::read(&elf, |_| None).and_then(|source| source.compile(&|| true)).unwrap();
    let start = CODE_ADDRESS + if name == MORE_STACK { 32 } else { 0 };
    rules(&table, &[start + 5, start + 20]).try_into().unwrap()
}

/// Until Go 1.20, they have no frame of their own, so that the frame pointer is that of their caller.
#[test]
fn functions_that_leave_the_stack_of_a_goroutine_return_to_it() {
    let rule = |name, frame_sizes, code: &[u8]| rules_of_switch(name, frame_sizes, code)[1];
    let (executed, stored) = (CfaRule::ExecutedGoroutine as u8, CfaRule::StoredGoroutine as u8);
    let suspended = CfaRule::SuspendedGoroutine as u8;
    for (save, layout) in SAVES.into_iter().zip([GoLayout::UNTIL_1_24, GoLayout::SINCE_1_25]) {
        let code = [&save[..], &[0x90; 4], &SWITCH_BY_RBX].concat();
        let without_frame = |name| {
            let Rule { cfa, cfa_offset, return_address_offset, frame_pointer_offset, .. } =
                rule(name, &[(0, 32)], &code);
            assert_eq!(frame_pointer_offset, layout.g_frame_pointer);
            (cfa, cfa_offset, return_address_offset)
        };
        assert_eq!(without_frame("runtime.systemstack"), (executed, layout.m_goroutine, 0));
        assert_eq!(without_frame("runtime.morestack"), (suspended, layout.m_goroutine, -8));
        assert_eq!(without_frame("runtime.mcall"), (stored, 0, -8));
        assert_eq!(without_frame("runtime.asmcgocall"), (stored, 48, 0));
        assert_eq!(rule("runtime.gogo", &[(0, 32)], &code), by_frame_pointer());
        let pushes_goroutine = rule("runtime.mcall", &[(0, 20), (8, 8), (0, 4)], &code);
        assert_eq!(pushes_goroutine, rule("runtime.mcall", &[(0, 32)], &code));
        for with_frame in [&[(0, 1), (8, 30), (0, 1)][..], &[(0, 4), (8, 28)]] {
            for name in ["runtime.systemstack", "runtime.asmcgocall"] {
                assert_eq!(rule(name, with_frame, &code), by_frame_pointer(), "{name}");
            }
            // The goroutine can continue before what it calls has ended.
            assert_eq!(rule("runtime.mcall", with_frame, &code).cfa, stored);
        }
    }
}

#[test]
fn more_stack_returns_to_its_caller_until_it_has_switched_the_stack() {
    let more_stack = |code: &[u8]| rules_of_switch(MORE_STACK, &[(0, 32)], code);
    let [save, _] = SAVES;
    let [before, behind] = more_stack(&[&save[..], &[0x90; 8], &SWITCH_BY_RBX].concat());
    assert_eq!((before, behind.cfa), (by_size(0), CfaRule::SuspendedGoroutine as u8));
    // Of no known version: other offsets, another order of the structure, no switch.
    let other_switch = [0x48, 0x8b, 0x63, 0x40];
    for code in [[[0x48, 0x89, 0x6e, 0x70], SWITCH_BY_RBX], [save, other_switch], [save, [0x90; 4]]] {
        let unsupported = rule_without_offsets(CfaRule::Unsupported);
        assert_eq!(more_stack(&code.concat()), [unsupported; 2], "{code:x?}");
    }
}

#[test]
fn functions_of_go_have_rows_in_every_version() {
    for version in GO_VERSIONS.into_iter().filter(|version| *version != GoVersion::V26) {
        let table = table(version, Vec::new());
        let (work, switch) = (CODE_ADDRESS, CODE_ADDRESS + 64);
        let (start, exit) = (switch + 32, switch + 64);
        let addresses = [work, work + 3, work + 4, work + 53, work + 54, switch, switch + 31, start, exit];
        let (empty, full, other) = (by_size(0), by_size(0x28), by_frame_pointer());
        let root = rule_without_offsets(CfaRule::Root);
        let expected = [empty, empty, full, full, empty, other, other, root, root];
        assert_eq!(rules(&table, &addresses), expected, "{version:?}");
        assert_eq!((full.cfa_offset, full.frame_pointer_offset), (0x30, -16));
        assert_eq!(rules(&table, &[work - 1, exit + 32]), [Rule::default(); 2], "{version:?}");
    }
}

#[test]
fn injected_calls_interrupt_their_caller() {
    const NAMES: [&str; 4] =
        ["runtime.asyncPreempt", "runtime.debugCallV2", "runtime.sigpanic", "runtime.sigpanic0"];
    for version in GO_VERSIONS.into_iter().filter(|version| *version != GoVersion::V26) {
        for name in NAMES {
            let of_other_package = GoTestFunction { name: "other.sigpanic", ..WORK };
            let longer = GoTestFunction { name: "runtime.sigpanic1", ..WORK };
            let functions = [WORK, GoTestFunction { name, ..WORK }, of_other_package, longer];
            let table = table_of(version, &functions, Vec::new());
            let interrupts = |rule| Rule { return_address: RuleFlags::INTERRUPTS_CALLER, ..rule };
            let (empty, full) = (by_size(0), by_size(0x28));
            let starts = [0, 1, 2, 3].map(|index| CODE_ADDRESS + 64 * index);
            let found = starts.map(|start| rules(&table, &[start, start + 4]));
            let expected = [[empty, full], [empty, full].map(interrupts), [empty, full], [empty, full]];
            assert_eq!(found, expected, "{version:?} {name}");
        }
    }
}

/// A tick hits it often in a program that recovers from faults.
#[test]
fn the_return_trampoline_of_signal_handlers_has_the_registers_of_the_interrupted_function() {
    for version in GO_VERSIONS.into_iter().filter(|version| *version != GoVersion::V26) {
        for name in ["runtime.sigreturn", "runtime.sigreturn__sigaction"] {
            let trampoline = GoTestFunction { name, frame_sizes: &[(0, 64)], ..WORK };
            let table = table_of(version, &[WORK, trampoline, WORK], Vec::new());
            let start = CODE_ADDRESS + 64;
            let found = rules(&table, &[start - 1, start, start + 7, start + 64]);
            let (empty, signal) = (by_size(0), rule_without_offsets(CfaRule::SignalFrame));
            assert_eq!(found, [empty, signal, signal, empty], "{version:?} {name}");
        }
    }
}

/// The scheduler executes other goroutines there, and the one that was preempted can continue on another thread.
#[test]
fn calls_that_preempt_a_goroutine_are_roots() {
    let function = |name| GoTestFunction { name, ..WORK };
    let callees = ["runtime.gopreempt_m", "runtime.goschedImpl", "runtime.preemptPark", "runtime.copystack"];
    let functions = ["runtime.newstack"].into_iter().chain(callees).map(function).collect::<Vec<_>>();
    const CALLS: [usize; 4] = [8, 16, 49, 30];
    let mut code = vec![0x90; 64 * functions.len()];
    for (index, at) in CALLS.into_iter().enumerate() {
        let distance = i32::try_from(64 * (index + 1)).unwrap() - i32::try_from(at + CALL_BYTES).unwrap();
        code[at] = CALL;
        code[at + 1..at + CALL_BYTES].copy_from_slice(&distance.to_le_bytes());
    }
    // What is called elsewhere returns to its caller, as far as the rows of that one say.
    code.copy_within(0..64, 64);
    for version in GO_VERSIONS.into_iter().filter(|version| *version != GoVersion::V26) {
        let go = go_table(version, CODE_ADDRESS, &functions);
        let file = TestFile::with_code().code_at(".text", CODE_ADDRESS, code.clone());
        let file = file.with(".gopclntab", SHT_PROGBITS, go).section_address(0x8000);
        let file = file.section_flags(3, object::elf::SHF_ALLOC);
        let elf = Elf::parse(Image::Memory(file.bytes())).unwrap();
        let table = ElfSource::read(&elf, |_| None).and_then(|source| source.compile(&|| true)).unwrap();
        let (full, root) = (by_size(0x28), rule_without_offsets(CfaRule::Root));
        for (index, at) in CALLS.into_iter().enumerate() {
            let call = CODE_ADDRESS + at as u64;
            let found = rules(&table, &[call - 1, call, call + 3, call + 4, call + 5, call + 64 + 4]);
            let preempts = index < 3;
            let behind = if at + CALL_BYTES == 54 { by_size(0) } else { full };
            let expected = [full, full, full, if preempts { root } else { full }, behind, full];
            assert_eq!(found, expected, "{version:?}, call {index}");
        }
    }
}

/// The call frame information that Go's linker writes does not describe functions that switch stacks.
#[test]
fn functions_of_go_are_not_unwound_by_call_frame_information() {
    let eh_frame = TestCfi::x86_64().function(CODE_ADDRESS, CODE_BYTES + 16, &[]).bytes;
    let table = table(GoVersion::V20, eh_frame);
    let of_other_language = CODE_ADDRESS + CODE_BYTES;
    let found = rules(&table, &[CODE_ADDRESS + 4, of_other_language - 1, of_other_language]);
    assert_eq!(found[..2], [by_size(0x28), rule_without_offsets(CfaRule::Root)]);
    assert_eq!(found[2].cfa, CfaRule::StackPointer as u8);
    assert_eq!(found[2].cfa_offset, 8);
}
