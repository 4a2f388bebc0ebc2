//! Malformed and hostile code: the analysis returns within its limits.

use std::{ops::Range, slice};

use profiler_stack_height::{Error, Hints, MAX_CODE_ADDRESS, Program, analyze};

/// The address of the code.
const CODE: u64 = 0x1000;

/// Code whose bytes are also its data.
struct Bytes {
    bytes: Vec<u8>,
    range: Range<u64>,
}

impl Bytes {
    fn new(bytes: Vec<u8>) -> Self {
        Self::at(CODE, bytes)
    }

    fn at(start: u64, bytes: Vec<u8>) -> Self {
        let range = start..start + bytes.len() as u64;
        Self { bytes, range }
    }

    fn analyze(&self, starts: Vec<u64>) {
        let hints = Hints { function_starts: starts, ..Hints::default() };
        let Ok(rows) = analyze(self, &hints, self.code_ranges(), &|| true) else { return };
        assert!(rows.is_sorted_by(|row, next| row.address < next.address));
        assert!(rows.iter().all(|row| self.range.contains(&row.address)));
    }
}

impl Program for Bytes {
    fn code_ranges(&self) -> &[Range<u64>] {
        slice::from_ref(&self.range)
    }

    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let offset = address.checked_sub(self.range.start).and_then(|offset| usize::try_from(offset).ok());
        let found = offset.and_then(|offset| self.bytes.get(offset..)?.get(..into.len()));
        found.map(|bytes| into.copy_from_slice(bytes)).is_some()
    }

    fn pointer(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes).then(|| u64::from_le_bytes(bytes))
    }
}

/// Numbers that look random, the same in each run.
fn numbers(mut state: u64) -> impl Iterator<Item = u8> {
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    })
}

#[test]
fn random_bytes_are_analysed_within_the_limits() {
    for seed in 0..200 {
        Bytes::new(numbers(seed).take(1000).collect()).analyze(vec![CODE]);
    }
}

#[test]
fn damaged_code_of_this_program_is_analysed_within_the_limits() {
    let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    let code = &program[program.len() / 3..][..1 << 15];
    for seed in 0..20 {
        let mut code = code.to_vec();
        let mut random = numbers(seed);
        for _ in 0..200 {
            let at = usize::from(random.next().unwrap()) << 7 | usize::from(random.next().unwrap() >> 1);
            code[at] = random.next().unwrap();
        }
        Bytes::new(code).analyze((0..64).map(|index| CODE + index * 512).collect());
    }
}

#[test]
fn as_many_functions_as_bytes_are_analysed_within_the_limits() {
    // Each address is the start of a function, and all end at the same ret.
    let mut code = vec![0x90; 1 << 16];
    code.push(0xc3);
    Bytes::new(code).analyze((0..1 << 16).map(|offset| CODE + offset).collect());
    // Each instruction jumps to all of the others: a jump table of 512 entries at each.
    let conditional: Vec<u8> =
        (0..1 << 14).flat_map(|index: u32| [0x70 | (index % 16) as u8, index as u8]).collect();
    Bytes::new(conditional).analyze((0..1 << 12).map(|offset| CODE + offset * 2).collect());
}

#[test]
fn a_chain_of_calls_that_never_return_is_analysed_within_the_limits() {
    // call next; ..., hlt
    let mut code: Vec<u8> = (0..1 << 14).flat_map(|_| [0xe8, 1, 0, 0, 0, 0xc3]).collect();
    code.push(0xf4);
    Bytes::new(code).analyze(vec![CODE]);
}

#[test]
fn code_at_the_end_of_the_address_space_is_an_error() {
    // No function ends: each path runs into the end of the code.
    let code = vec![0x90; 0x100];
    let rows = |end: u64| {
        let program = Bytes::at(end - code.len() as u64, code.clone());
        let hints = Hints { function_starts: vec![program.range.start + 1], ..Hints::default() };
        analyze(&program, &hints, program.code_ranges(), &|| true)
    };
    assert!(rows(MAX_CODE_ADDRESS).is_ok());
    for end in [MAX_CODE_ADDRESS + 1, u64::MAX - 0xf, u64::MAX] {
        assert_eq!(rows(end), Err(Error::TooLarge), "{end:x}");
    }
}
