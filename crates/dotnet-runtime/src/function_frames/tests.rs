//! Tests what is read of the frames of methods: in both versions, malformed, too large, freed and replaced.

use std::sync::Arc;

use super::*;
use crate::{
    DotNetRuntime, ReadError, ReadLimits,
    test_image::{
        self, CODE, DYNAMIC, HANDLER_BYTES, METHOD_BYTES, Place, RUN, SECTION, STUB, Version, code_of,
        header_of,
    },
    test_memory::{ChangingMemory, TestMemory},
    tests::{NoFiles, open},
};

/// The unwind information of all functions of the image.
const UNWIND_INFO: u64 = CODE + 0x8000;

fn frames_at(runtime: &mut DotNetRuntime, address: u64) -> Result<Vec<FunctionFrames>, LookupError> {
    runtime.find_with_frames(RuntimeAddress(address), &NoFiles)?.frames
}

fn frames_after(
    change: impl FnOnce(&mut TestMemory),
    address: u64,
) -> Result<Vec<FunctionFrames>, LookupError> {
    let (mut memory, symbols) = test_image::build(Version::Net10, Place::LoadedImage);
    change(&mut memory);
    frames_at(&mut open(memory, symbols), address)
}

#[test]
fn a_method_has_the_unwind_information_and_instructions_of_each_function() {
    for version in [Version::Net9, Version::Net10] {
        let (mut memory, symbols) = test_image::build(version, Place::LoadedImage);
        memory.write(code_of(RUN), &[0x55, 0x5d, 0xc3]);
        let functions = frames_at(&mut open(memory, symbols), code_of(RUN) + 5).unwrap();
        let handler = code_of(RUN) + METHOD_BYTES;
        let expected = [code_of(RUN)..handler, handler..handler + HANDLER_BYTES].map(|code| FunctionFrames {
            instructions: match code.start == code_of(RUN) {
                true => [&[0x55, 0x5d, 0xc3][..], &[0; METHOD_BYTES as usize - 3]].concat(),
                false => vec![0; HANDLER_BYTES as usize],
            },
            code: RuntimeAddress(code.start)..RuntimeAddress(code.end),
            unwind_info: vec![1, 4, 1, 0, 0, 0],
        });
        assert_eq!(functions, expected);
    }
}

#[test]
fn code_without_lasting_frames_has_a_reason() {
    let frames = |address| frames_after(|_| (), address);
    assert_eq!(frames(code_of(DYNAMIC)), Err(LookupError::CanBeFreed));
    let collectible = frames_after(|memory| memory.write_u32(SECTION + 16, 1 | 2), code_of(RUN));
    assert_eq!(collectible, Err(LookupError::CanBeFreed));
    assert_eq!(frames(code_of(STUB)), Err(LookupError::NoMethod));
    assert_eq!(frames(code_of(RUN) + METHOD_BYTES + HANDLER_BYTES), Err(LookupError::NoMethod));
    for address in [0, CODE - 1, 1 << 47, u64::MAX] {
        assert_eq!(frames(address), Err(LookupError::NoCode), "{address:x}");
    }
}

#[test]
fn malformed_and_large_methods_have_a_reason() {
    let malformed = Err(LookupError::Malformed("unwind information"));
    for version_and_flags in [0, 2, 7, 1 | 4 << 3] {
        let frames = frames_after(|memory| memory.write(UNWIND_INFO, &[version_and_flags]), code_of(RUN));
        assert_eq!(frames, malformed, "{version_and_flags}");
    }
    let unreadable = frames_after(|memory| memory.write_u32(header_of(RUN) + 44, 0x7fff_0000), code_of(RUN));
    assert_eq!(unreadable, Err(LookupError::Read(ReadError::NotMapped)));
    let large = frames_after(
        |memory| {
            memory.write_u64(SECTION + 8, CODE + (4 << 20));
            memory.write_u32(header_of(RUN) + 36 + 12 + 4, 2 << 20);
        },
        code_of(RUN),
    );
    assert_eq!(large, Err(LookupError::TooLarge("method")));
}

#[test]
fn a_method_that_is_replaced_meanwhile_has_no_frames() {
    let (before, symbols) = test_image::build(Version::Net10, Place::LoadedImage);
    let mut after = before.clone();
    // The method is shorter, and has other instructions.
    after.write_u32(header_of(RUN) + 32, 1);
    after.write(code_of(RUN), &[0xc3]);
    let mut outcomes = [0, 0, 0];
    for changes_at in 0..100 {
        let memory = ChangingMemory::new(&before, &after, changes_at);
        match frames_at(&mut open(memory, symbols), code_of(RUN)) {
            Ok(functions) if functions.len() == 2 => {
                assert_eq!(functions[0].instructions[0], 0);
                outcomes[0] += 1;
            }
            Ok(functions) => {
                assert_eq!(functions[0].instructions[0], 0xc3);
                outcomes[1] += 1;
            }
            Err(error) => {
                assert_eq!(error, LookupError::CodeChanged);
                outcomes[2] += 1;
            }
        }
    }
    assert!(outcomes.iter().all(|count| *count > 0), "{outcomes:?}");
}

#[test]
fn a_method_that_exceeds_the_limits_has_no_frames() {
    let (memory, symbols) = test_image::build(Version::Net10, Place::LoadedImage);
    let frames = |limits| {
        let memory = Arc::new(memory.clone());
        let mut runtime = DotNetRuntime::open(memory, symbols, limits, &Arc::default()).unwrap();
        let frames = frames_at(&mut runtime, code_of(RUN));
        (frames, runtime.last_cost())
    };
    let (found, cost) = frames(ReadLimits::default());
    assert!(found.is_ok());
    let fewer = ReadLimits { reads: cost.reads - 1, ..ReadLimits::default() };
    assert_eq!(frames(fewer).0, Err(LookupError::Read(ReadError::LimitExceeded)));
}
