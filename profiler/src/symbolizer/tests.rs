//! Tests addresses of this process, of its file and of the kernel.

use std::{error::Error as _, fs};

use super::*;
use crate::Profiler;

#[inline(never)]
fn function_of_this_program() {}

fn address() -> u64 {
    function_of_this_program as *const () as u64
}

/// The address of `function_of_this_program`, as an offset in the file of this program.
fn offset() -> u64 {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let hexadecimal = |text: &str| u64::from_str_radix(text, 16).unwrap();
    let within = |line: &&str| {
        let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        (hexadecimal(start)..hexadecimal(end)).contains(&address())
    };
    let line = maps.lines().find(within).unwrap();
    let words: Vec<_> = line.split_whitespace().collect();
    address() - hexadecimal(words[0].split_once('-').unwrap().0) + hexadecimal(words[2])
}

fn symbolizer() -> Symbolizer {
    Profiler::builder().lines(true).symbolizer().unwrap()
}

#[test]
fn addresses_of_a_process_have_their_functions_in_order() {
    let function = address();
    let mut symbolizer = symbolizer();
    for _ in 0..2 {
        let addresses =
            [Address::Instruction(function), Address::Return(function + 1), Address::Instruction(8)];
        let symbols = symbolizer.symbolize(std::process::id(), &addresses).unwrap();
        let [found, before, unmapped] = &symbols[..] else { panic!("{symbols:?}") };
        assert_eq!(found, before, "a return address belongs to the call in front of it");
        assert!(found.name().ends_with("function_of_this_program"), "{found:?}");
        let location = found.functions[0].location.as_ref().unwrap();
        assert!(location.0.ends_with("tests.rs") && location.1 > 0, "{location:?}");
        assert_eq!(found.to_string(), format!("{} at {}:{}", found.name(), location.0, location.1));
        let module = found.module.as_deref().unwrap();
        assert_eq!(fs::canonicalize(module).unwrap(), std::env::current_exe().unwrap());
        assert_eq!((unmapped.name(), &unmapped.source), ("[unmapped]", &Err(Reason::NoMapping)));
        assert_eq!((unmapped.to_string(), unmapped.functions.len()), ("[unmapped]".to_owned(), 0));
    }
}

#[test]
fn a_process_that_does_not_exist_is_an_error() {
    let error = symbolizer().symbolize(u32::MAX / 2, &[]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSuchTarget);
}

#[test]
fn offsets_of_a_file_have_their_functions_and_others_a_reason() {
    let path = std::env::current_exe().unwrap();
    let mut symbolizer = symbolizer();
    let symbols = symbolizer
        .symbolize_file(&path, &[Address::Instruction(offset()), Address::Instruction(u64::MAX / 2)])
        .unwrap();
    assert!(symbols[0].name().ends_with("function_of_this_program"), "{symbols:?}");
    assert!(symbols[1].source.is_err() && symbols[1].name().starts_with('['), "{symbols:?}");

    let directory = tempfile::tempdir().unwrap();
    let text = directory.path().join("text");
    fs::write(&text, "no program").unwrap();
    let symbols = symbolizer.symbolize_file(&text, &[Address::Instruction(0)]).unwrap();
    assert!(symbols[0].source.is_err(), "{symbols:?}");
    for path in [directory.path().join("missing"), directory.path().to_owned()] {
        let error = symbolizer.symbolize_file(&path, &[]).unwrap_err();
        assert!(error.to_string().contains(path.to_str().unwrap()) && error.source().is_some(), "{error:?}");
    }
}

#[test]
fn addresses_of_the_kernel_have_its_module() {
    let symbols = symbolizer().symbolize_kernel(&[Address::Instruction(u64::MAX)]);
    assert_eq!((symbols[0].kind, symbols[0].module.as_deref()), (FrameKind::Kernel, Some("[kernel]")));
}
