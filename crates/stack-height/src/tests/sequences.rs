//! Rows of short instruction sequences: what each kind of code does to the stack, and what deceives the analysis.

use std::{ops::Range, slice};

use crate::{
    Cfa::{self, FramePointer, StackPointer},
    Confidence, Error, Frame, Hints, Program,
    SavedFramePointer::{self, AtCfa, Same},
    StackRow, analyze, analyze_in_parts,
    run::row_at,
};

/// The address of the first function.
const CODE: u64 = 0x1000;

/// The address of the data.
const DATA: u64 = 0x8000;

/// A program with one range of code and one of data.
#[derive(Default)]
struct TestProgram {
    range: Range<u64>,
    code: Vec<u8>,
    data: Vec<u8>,
    hints: Hints,
}

impl TestProgram {
    /// A program whose first function is called.
    fn new(code: &[u8]) -> Self {
        let hints = Hints { function_starts: vec![CODE], ..Hints::default() };
        Self { range: CODE..CODE + code.len() as u64, code: code.to_vec(), data: Vec::new(), hints }
    }

    fn with_data(mut self, data: &[u8]) -> Self {
        self.data = data.to_vec();
        self
    }

    fn rows(&self) -> Vec<StackRow> {
        analyze(self, &self.hints, self.code_ranges(), &|| true).unwrap()
    }

    /// The frame at an offset in the code, if it is as reliable as CFI.
    fn frame(&self, offset: u64) -> Option<(Cfa, SavedFramePointer)> {
        let rows = self.rows();
        let row = row_at(&rows, CODE + offset)?;
        let frame = row.frame.filter(|_| row.confidence == Confidence::Full)?;
        Some((frame.cfa, frame.frame_pointer))
    }
}

impl Program for TestProgram {
    fn code_ranges(&self) -> &[Range<u64>] {
        slice::from_ref(&self.range)
    }

    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let (start, bytes) = if address >= DATA { (DATA, &self.data) } else { (CODE, &self.code) };
        let Some(offset) = address.checked_sub(start) else { return false };
        let Some(bytes) = bytes.get(offset as usize..).and_then(|bytes| bytes.get(..into.len())) else {
            return false;
        };
        into.copy_from_slice(bytes);
        true
    }

    fn pointer(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes).then(|| u64::from_le_bytes(bytes))
    }
}

fn at_entry() -> Option<(Cfa, SavedFramePointer)> {
    Some((StackPointer(8), Same))
}

#[test]
fn pushes_and_pops_move_the_stack_pointer() {
    // push %rbx; sub $32, %rsp; add $32, %rsp; pop %rbx; ret
    let program = TestProgram::new(&[0x53, 0x48, 0x83, 0xec, 0x20, 0x48, 0x83, 0xc4, 0x20, 0x5b, 0xc3]);
    let heights = [0, 1, 5, 9, 10].map(|offset| program.frame(offset).unwrap().0);
    assert_eq!(heights, [8, 16, 48, 16, 8].map(StackPointer));
}

#[test]
fn a_frame_pointer_is_the_base_of_the_cfa_until_leave() {
    // push %rbp; mov %rsp, %rbp; sub %rax, %rsp; leave; ret
    let program = TestProgram::new(&[0x55, 0x48, 0x89, 0xe5, 0x48, 0x29, 0xc4, 0xc9, 0xc3]);
    assert_eq!(program.frame(1), Some((StackPointer(16), Same)));
    assert_eq!(program.frame(4), Some((FramePointer(16), AtCfa(-16))));
    assert_eq!(program.frame(7), Some((FramePointer(16), AtCfa(-16))));
    assert_eq!(program.frame(8), at_entry());
}

#[test]
fn enter_and_leave_are_a_frame_with_a_frame_pointer() {
    // enter $16, $0; leave; ret
    let program = TestProgram::new(&[0xc8, 0x10, 0, 0, 0xc9, 0xc3]);
    assert_eq!(program.frame(4), Some((FramePointer(16), AtCfa(-16))));
    assert_eq!(program.frame(5), at_entry());
}

#[test]
fn a_realigned_stack_has_the_cfa_in_memory() {
    let program = TestProgram::new(&[
        0x4c, 0x8d, 0x54, 0x24, 0x08, // lea 8(%rsp), %r10
        0x48, 0x83, 0xe4, 0xc0, // and $-64, %rsp
        0x41, 0xff, 0x72, 0xf8, // push -8(%r10)
        0x55, // push %rbp
        0x48, 0x89, 0xe5, // mov %rsp, %rbp
        0x41, 0x52, // push %r10
        0x90, // nop
        0x41, 0x5a, // pop %r10
        0x5d, // pop %rbp
        0x49, 0x8d, 0x62, 0xf8, // lea -8(%r10), %rsp
        0xc3,
    ]);
    let stored = Cfa::StoredAtFramePointer { offset: -8, add: 0 };
    assert_eq!(program.frame(19), Some((stored, SavedFramePointer::AtFramePointer(0))));
    assert_eq!(program.frame(27), at_entry());
}

#[test]
fn a_pushed_constant_is_a_word() {
    // push $5; pop %rax; ret
    let program = TestProgram::new(&[0x6a, 5, 0x58, 0xc3]);
    assert_eq!(program.frame(2), Some((StackPointer(16), Same)));
    assert_eq!(program.frame(3), at_entry());
}

#[test]
fn the_frame_pointer_may_be_saved_in_the_red_zone() {
    // mov %rbp, -8(%rsp); mov $1, %ebp; mov -8(%rsp), %rbp; ret
    let code = [0x48, 0x89, 0x6c, 0x24, 0xf8, 0xbd, 1, 0, 0, 0, 0x48, 0x8b, 0x6c, 0x24, 0xf8, 0xc3];
    let program = TestProgram::new(&code);
    assert_eq!(program.frame(10), Some((StackPointer(8), AtCfa(-16))));
    assert_eq!(program.frame(15), at_entry());
}

/// The first copy remains below the stack pointer, but another caller of the second function may not have left it there.
#[test]
fn of_several_copies_of_the_frame_pointer_the_highest_one_is_used() {
    // push %rbx; push %rbp; pop %rbp; pop %rbx; push %rbp; mov %esi, %ebp; nop; pop %rbp; ret
    let code = [0x53, 0x55, 0x5d, 0x5b, 0x55, 0x89, 0xf5, 0x90, 0x5d, 0xc3];
    assert_eq!(TestProgram::new(&code).frame(7), Some((StackPointer(16), AtCfa(-16))));
}

#[test]
fn a_call_forgets_what_was_saved_in_the_red_zone() {
    // mov %rbp, -16(%rsp); mov $1, %ebp; call f; mov -16(%rsp), %rbp; ret; f: ret
    let code = [
        0x48, 0x89, 0x6c, 0x24, 0xf0, 0xbd, 1, 0, 0, 0, 0xe8, 6, 0, 0, 0, 0x48, 0x8b, 0x6c, 0x24, 0xf0, 0xc3,
        0xc3,
    ];
    assert_eq!(TestProgram::new(&code).frame(15), None);
}

#[test]
fn nothing_is_known_of_code_that_leads_to_a_wrong_return() {
    // test %eax, %eax; je 1f; push %rax; ret; 1: ret
    let program = TestProgram::new(&[0x85, 0xc0, 0x74, 2, 0x50, 0xc3, 0xc3]);
    assert_eq!([0, 2, 4, 5].map(|offset| program.frame(offset)), [None; 4]);
    assert_eq!(program.frame(6), at_entry(), "the other path is not affected");
    // xor %ebp, %ebp; ret
    assert_eq!(TestProgram::new(&[0x31, 0xed, 0xc3]).frame(0), None, "the frame pointer is not the caller's");
}

#[test]
fn nothing_is_known_while_the_return_address_is_in_a_register() {
    // pop %rdx; mov $58, %eax; syscall; push %rdx; ret
    let program = TestProgram::new(&[0x5a, 0xb8, 58, 0, 0, 0, 0x0f, 0x05, 0x52, 0xc3]);
    assert_eq!([1, 6, 8].map(|offset| program.frame(offset)), [None; 3]);
    assert_eq!([0, 9].map(|offset| program.frame(offset)), [at_entry(); 2]);
}

#[test]
fn a_call_of_the_next_instruction_is_a_push_if_a_pop_follows() {
    // call 1f; 1: pop %rax; ret
    let program = TestProgram::new(&[0xe8, 0, 0, 0, 0, 0x58, 0xc3]);
    assert_eq!(program.frame(5), Some((StackPointer(16), Same)));
    // call 1f; 1: ret
    let program = TestProgram::new(&[0xe8, 0, 0, 0, 0, 0xc3]);
    assert_eq!(program.frame(5), at_entry(), "a function that is called and then entered");
}

#[test]
fn code_behind_a_call_that_never_returns_is_not_part_of_the_function() {
    // push %rax; call stops; <other function:> ret; stops: hlt
    let code = [0x50, 0xe8, 1, 0, 0, 0, 0xc3, 0xf4];
    let program = TestProgram::new(&code);
    assert_ne!(program.frame(6), Some((StackPointer(16), Same)));
    // The same by a pointer in the global offset table: push %rax; call *DATA(%rip); ret
    let code = [0x50, 0xff, 0x15, 0xf9, 0x6f, 0, 0, 0xc3];
    let mut program = TestProgram::new(&code).with_data(&[0; 8]);
    assert_eq!(program.frame(0), None, "the slot may return, and then ret is wrong");
    program.hints.never_return.push(DATA);
    assert_ne!(program.frame(7), Some((StackPointer(16), Same)));
}

#[test]
fn a_function_that_calls_only_what_never_returns_never_returns() {
    // a: push %rax; call b; ret; b: push %rax; call c; ret; c: ud2
    let code = [0x50, 0xe8, 1, 0, 0, 0, 0xc3, 0x50, 0xe8, 1, 0, 0, 0, 0xc3, 0x0f, 0x0b];
    let program = TestProgram::new(&code);
    assert_ne!(program.frame(6), Some((StackPointer(16), Same)));
    assert_ne!(program.frame(13), Some((StackPointer(16), Same)));
}

#[test]
fn a_function_that_runs_into_one_that_returns_returns() {
    // push %rbx; call f; pop %rbx; ret; f: nop; g: ret, where g is a symbol
    let mut program = TestProgram::new(&[0x53, 0xe8, 2, 0, 0, 0, 0x5b, 0xc3, 0x90, 0xc3]);
    program.hints.function_starts.push(CODE + 9);
    assert_eq!(program.frame(6), Some((StackPointer(16), Same)));
}

#[test]
fn a_slot_that_leads_behind_its_plt_entry_has_an_unknown_function() {
    // push %rbx; call entry; pop %rbx; ret; ud2; entry: jmp *DATA(%rip); ud2
    let code = [0x53, 0xe8, 4, 0, 0, 0, 0x5b, 0xc3, 0x0f, 0x0b, 0xff, 0x25, 0xf0, 0x6f, 0, 0, 0x0f, 0x0b];
    let after_call = |target: u64| {
        let program = TestProgram::new(&code).with_data(&(CODE + target).to_le_bytes());
        program.frame(6)
    };
    assert_eq!(after_call(16), Some((StackPointer(16), Same)));
    assert_ne!(after_call(8), Some((StackPointer(16), Same)), "ud2 never returns");
}

/// `mov $f, %edi; ret; f: push %rbx; call *%rax; hlt`, without alignment.
fn constant_of_function(size_of_move: usize) -> TestProgram {
    let constant = (CODE + size_of_move as u64 + 1).to_le_bytes();
    let load: &[u8] = if size_of_move == 5 { &[0xbf] } else { &[0x48, 0xc7, 0xc7] };
    TestProgram::new(&[load, &constant[..4], &[0xc3, 0x53, 0xff, 0xd0, 0xf4]].concat())
}

#[test]
fn a_constant_is_the_address_of_a_function_only_at_fixed_addresses() {
    for size_of_move in [5, 7] {
        let mut program = constant_of_function(size_of_move);
        let call = CODE + size_of_move as u64 + 2;
        let row = |program: &TestProgram| {
            let rows = program.rows();
            row_at(&rows, call).and_then(|row| Some((row.frame?.cfa, row.confidence)))
        };
        assert_eq!(row(&program), None);
        program.hints.has_fixed_addresses = true;
        assert_eq!(row(&program), Some((StackPointer(16), Confidence::ReturnMustFollowCall)));
    }
}

#[test]
fn a_constant_in_the_midst_of_a_function_is_not_its_start() {
    // mov $1f, %edi; ret; push %rbx; 1: five times mov %rbx, %rax; pop %rbx; ret
    let code =
        [&[0xbf, 7, 0x10, 0, 0, 0xc3, 0x53], &[0x48, 0x89, 0xd8].repeat(5)[..], &[0x5b, 0xc3]].concat();
    let mut program = TestProgram::new(&code);
    program.hints.has_fixed_addresses = true;
    let rows = program.rows();
    let found = row_at(&rows, CODE + 7).and_then(|row| Some((row.frame?.cfa, row.confidence)));
    assert_eq!(found, Some((StackPointer(16), Confidence::ReturnMustFollowCall)));
}

#[test]
fn an_entry_point_that_is_not_wanted_leads_to_main() {
    // lea main(%rip), %rdi; hlt; main: push %rbx; call *%rax; hlt
    let code = [0x48, 0x8d, 0x3d, 1, 0, 0, 0, 0xf4, 0x90, 0x53, 0xff, 0xd0, 0xf4];
    let mut program = TestProgram::new(&code);
    program.hints = Hints::default();
    let wanted = CODE + 8..CODE + code.len() as u64;
    let in_main = |program: &TestProgram| {
        let rows = analyze(program, &program.hints, slice::from_ref(&wanted), &|| true).unwrap();
        assert!(rows.iter().all(|row| wanted.contains(&row.address)));
        row_at(&rows, CODE + 10).and_then(|row| row.frame).map(|frame| frame.cfa)
    };
    assert_eq!(in_main(&program), None);
    program.hints.entry = Some(CODE);
    assert_eq!(in_main(&program), Some(StackPointer(16)));
}

#[test]
fn a_tail_jump_needs_the_callers_registers() {
    // jmp f; f: ret, where f is a symbol
    let mut program = TestProgram::new(&[0x90, 0xeb, 0, 0xc3]);
    program.hints.function_starts.push(CODE + 3);
    assert_eq!(program.frame(0), at_entry());
    // push %rax; jmp f; f: ret
    let mut program = TestProgram::new(&[0x50, 0xeb, 0, 0xc3]);
    program.hints.function_starts.push(CODE + 3);
    assert_eq!(program.frame(0), None);
    assert_eq!(program.frame(3), at_entry());
}

/// `lea DATA(%rip), %rdx; movslq (%rdx,%rax,4), %rax; add %rdx, %rax; jmp *%rax`, after `before`, with two cases that
/// return and one of another table.
fn jump_table(before: &[u8], entries: [i64; 3]) -> TestProgram {
    let mut code = before.to_vec();
    let displacement = (DATA - CODE) as u32 - before.len() as u32 - 7;
    code.extend([0x48, 0x8d, 0x15]);
    code.extend(displacement.to_le_bytes());
    code.extend([0x48, 0x63, 0x04, 0x82, 0x48, 0x01, 0xd0, 0xff, 0xe0]);
    let cases = CODE + code.len() as u64;
    code.extend([0xc3, 0xc3, 0x50, 0xc3]);
    let offset = |entry: i64| cases.wrapping_add_signed(entry).wrapping_sub(DATA) as u32;
    let data: Vec<u8> = entries.iter().flat_map(|entry| offset(*entry).to_le_bytes()).collect();
    TestProgram::new(&code).with_data(&data)
}

#[test]
fn the_targets_of_a_jump_table_are_followed() {
    let program = jump_table(&[], [0, 1, 0x100_0000]);
    assert_eq!([0, 16, 17].map(|offset| program.frame(offset)), [at_entry(); 3]);
}

#[test]
fn a_comparison_bounds_a_jump_table() {
    // cmp $1, %eax; ja 1f (the first case): two entries, so that the third does not refute the function.
    let program = jump_table(&[0x83, 0xf8, 1, 0x77, 16], [0, 1, 2]);
    assert_eq!([0, 21, 22].map(|offset| program.frame(offset)), [at_entry(); 3]);
    let unbounded = jump_table(&[], [0, 1, 2]);
    assert_eq!(unbounded.frame(0), None, "push %rax; ret is a case");
}

#[test]
fn a_byte_as_index_does_not_bound_a_jump_table_to_256_entries() {
    // movzbl %al, %eax: the table ends where an entry leaves the function.
    let program = jump_table(&[0x0f, 0xb6, 0xc0], [0, 1, 0x100_0000]);
    assert_eq!([0, 19, 20].map(|offset| program.frame(offset)), [at_entry(); 3]);
}

#[test]
fn a_landing_pad_is_not_taken_for_a_function() {
    // ret; padding; <16-aligned:> mov %rbx, %rdi; call f; ud2; f: ret
    let mut code = vec![0xc3];
    code.resize(16, 0x90);
    code.extend([0x48, 0x89, 0xdf, 0xe8, 2, 0, 0, 0, 0x0f, 0x0b, 0xc3]);
    assert_eq!(TestProgram::new(&code).frame(16), None);
}

/// Nothing calls it directly, and it has no `ret`: a main loop.
#[test]
fn a_function_that_loops_for_ever_is_known_by_its_prologue() {
    let call = [0xff, 0x15, 0, 0x70, 0, 0];
    let again = [0xeb, 0xf8];
    let prologues: [(&[u8], i32); 4] = [
        (&[0x53], 16),                                             // push %rbx
        (&[0x48, 0x83, 0xec, 0x18], 32),                           // sub $24, %rsp
        (&[0x48, 0x8d, 0x64, 0x24, 0xf8], 16),                     // lea -8(%rsp), %rsp
        (&[0x48, 0x8d, 0xa4, 0x24, 8, 0xff, 0xff, 0xff], 8 + 248), // lea -248(%rsp), %rsp
    ];
    let frame_behind = |prologue: &[u8]| {
        let code = [&[0xc3][..], &[0; 15], prologue, &call, &again].concat();
        let rows = TestProgram::new(&code).rows();
        let row = row_at(&rows, CODE + 16 + prologue.len() as u64)?;
        row.frame.map(|frame| (frame.cfa, row.confidence))
    };
    for (prologue, bytes) in prologues {
        let expected = Some((StackPointer(bytes), Confidence::ReturnMustFollowCall));
        assert_eq!(frame_behind(prologue), expected, "{prologue:x?}");
    }
    // lea 8(%rsp), %rsp; lea -8(%rsp, %rax), %rsp; add $8, %rsp
    let others: [&[u8]; 3] =
        [&[0x48, 0x8d, 0x64, 0x24, 8], &[0x48, 0x8d, 0x64, 0x04, 0xf8], &[0x48, 0x83, 0xc4, 8]];
    for other in others {
        assert_eq!(frame_behind(other), None, "{other:x?}");
    }
}

#[test]
fn a_gap_has_rows_of_low_confidence() {
    // ret; int3; <unaligned:> pop %rbx; ret
    let program = TestProgram::new(&[0xc3, 0xcc, 0x5b, 0xc3]);
    let rows = program.rows();
    let row = row_at(&rows, CODE + 2).unwrap();
    assert_eq!(row.frame, Some(Frame { cfa: StackPointer(16), frame_pointer: Same }));
    assert_eq!(row.confidence, Confidence::ReturnMustFollowCall);
}

#[test]
fn the_first_plt_entry_is_entered_after_a_push() {
    // push GOT+8(%rip); jmp *GOT+16(%rip)
    let program = TestProgram::new(&[0xff, 0x35, 0, 0x10, 0, 0, 0xff, 0x25, 0, 0x10, 0, 0]);
    let rows = program.rows();
    let frame = row_at(&rows, CODE).and_then(|row| row.frame).unwrap();
    assert_eq!(frame.cfa, StackPointer(16));
}

#[test]
fn the_return_trampoline_of_signals_has_a_row_of_its_own() {
    // ret; padding; mov $15, %rax; syscall
    let mut code = vec![0xc3];
    code.resize(16, 0x90);
    code.extend([0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05]);
    let program = TestProgram::new(&code);
    for address in [15, 16, 23] {
        assert_eq!(program.frame(address), Some((Cfa::SignalFrame, SavedFramePointer::Unknown)), "{address}");
    }
    assert_eq!(program.frame(0), Some((StackPointer(8), Same)));
}

#[test]
fn the_start_of_a_thread_has_no_caller_and_the_rest_of_clone_has() {
    // test %eax, %eax; jne ret; xor %ebp, %ebp; pop %rdi; call *%r9; mov %eax, %edi; xor %eax, %eax; mov $60, %al; syscall; hlt; ret
    let code = [
        0x85, 0xc0, 0x75, 0x0f, 0x31, 0xed, 0x5f, 0x41, 0xff, 0xd1, 0x89, 0xc7, 0x31, 0xc0, 0xb0, 0x3c, 0x0f,
        0x05, 0xf4, 0xc3,
    ];
    let program = TestProgram::new(&code);
    let root = Some((Cfa::Root, SavedFramePointer::Unknown));
    assert_eq!([4, 6, 9, 17].map(|offset| program.frame(offset)), [root; 4]);
    let caller = Some((StackPointer(8), Same));
    assert_eq!([0, 2, 19].map(|offset| program.frame(offset)), [caller; 3]);
}

#[test]
fn an_analysis_is_cancelled_and_limited() {
    let nops = vec![0x90; 1 << 20];
    let program = TestProgram::new(&nops);
    let rows = analyze(&program, &program.hints, program.code_ranges(), &|| false);
    assert_eq!(rows, Err(Error::Cancelled));
    let program = TestProgram { range: 0..u64::MAX, ..TestProgram::default() };
    assert_eq!(analyze(&program, &program.hints, program.code_ranges(), &|| true), Err(Error::TooLarge));
}

#[test]
fn only_wanted_code_has_rows() {
    // call f; ret; f: ret
    let program = TestProgram::new(&[0xe8, 1, 0, 0, 0, 0xc3, 0xc3]);
    let rows = analyze(&program, &program.hints, slice::from_ref(&(CODE..CODE + 6)), &|| true).unwrap();
    assert!(rows.iter().all(|row| row.address < CODE + 6));
    assert_eq!(row_at(&rows, CODE + 5).unwrap().frame.unwrap().cfa, StackPointer(8));
}

#[test]
fn the_last_row_of_a_part_ends_with_it() {
    // f: push rbx; pop rbx; ret, and behind it hlt
    let program = TestProgram::new(&[0x53, 0x5b, 0xc3, 0xf4]);
    let parts = [CODE..CODE + 3, CODE + 3..CODE + 4];
    let rows = analyze(&program, &program.hints, &parts, &|| true).unwrap();
    assert_eq!(row_at(&rows, CODE + 2).unwrap().frame.unwrap().cfa, StackPointer(8));
    assert_eq!(row_at(&rows, CODE + 3).unwrap().frame, None);
}

#[test]
fn rows_are_given_in_parts_until_an_error() {
    let code = [&[0x53, 0x5b, 0xc3][..], &vec![0xcc; 9 << 20], &[0x53, 0x5b, 0xc3]].concat();
    let mut program = TestProgram::new(&code);
    program.hints.function_starts.push(CODE + code.len() as u64 - 3);
    let mut parts = Vec::new();
    let mut analyze = |result: Result<(), Error>| {
        parts.clear();
        let analyzed =
            analyze_in_parts(&program, &program.hints, program.code_ranges(), &|| true, &mut |part| {
                parts.push(part.to_vec());
                result
            });
        (analyzed, parts.clone())
    };
    let (result, all) = analyze(Ok(()));
    assert_eq!((result, all.len()), (Ok(()), 2));
    assert_eq!(all.concat(), program.rows());
    assert_eq!(analyze(Err(Error::TooLarge)), (Err(Error::TooLarge), all[..1].to_vec()));
}
