//! Tests of the tables of helpers: a JIT compiler and a runtime, tables with defects, random words.

use std::sync::Arc;

use profiler_addresses::FileOffset;
use profiler_binary_reader::{Image, SegmentLayout};

use super::*;
use crate::call_tables::RuntimeFile;

/// The address of the segment with the tables.
const TABLES: u64 = 0x1_0000;

/// The address of the segment with the names.
const NAMES: u64 = 0x100_0000;

/// Functions start at all multiples of this in [`CODE`].
const FUNCTION_BYTES: u64 = 0x40;
const CODE: std::ops::Range<u64> = 0x200_0000..0x210_0000;

/// A word that belongs to no table.
const OTHER: Word = Word::Number(0x7777);

#[derive(Clone, Copy)]
enum Word {
    Number(u64),
    /// A relocated pointer.
    Pointer(u64),
}

/// Helpers whose functions distinguish the table of pointers, with these functions.
const ALLOCATORS: [(&str, usize); 7] = [
    ("NEWSFAST", 501),
    ("NEWSFAST_ALIGN8", 501),
    ("NEWARR_1_VC", 502),
    ("NEWARR_1_ALIGN8", 502),
    ("ASSIGN_REF", 503),
    ("CHECKED_ASSIGN_REF", 504),
    ("ASSIGN_BYREF", 505),
];

/// What a runtime has for a helper.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Empty,
    Function,
    Pointer,
}

/// The function with this number.
fn function(number: usize) -> u64 {
    CODE.start + number as u64 * FUNCTION_BYTES
}

/// The helpers of a version.
fn version() -> Vec<(String, Kind)> {
    let named = |name: &str, kind| (format!("CORINFO_HELP_{name}"), kind);
    let many = |name: &'static str, count: u32, kind| {
        (0..count).map(move |index| (format!("CORINFO_HELP_{name}_{index}"), kind))
    };
    let mut helpers = vec![named("UNDEF", Kind::Empty)];
    helpers.extend(many("FIRST", 40, Kind::Function));
    helpers.extend(many("ABSENT", 5, Kind::Empty));
    helpers.extend(many("NUMBERED", 20, Kind::Pointer));
    helpers.extend(ALLOCATORS.map(|(name, _)| named(name, Kind::Pointer)));
    helpers.extend(many("READYTORUN", 20, Kind::Empty));
    let probes = ["PROF_FCN_ENTER", "PROF_FCN_LEAVE", "PROF_FCN_TAILCALL"];
    helpers.extend(probes.map(|name| named(name, Kind::Pointer)));
    helpers.extend(many("LAST", 20, Kind::Function));
    helpers
}

fn names() -> Vec<String> {
    version().into_iter().map(|(name, _)| name).collect()
}

/// The table of functions by number, with other functions around it.
fn functions_by_number(helpers: &[(String, Kind)]) -> Vec<Word> {
    let mut words = vec![OTHER, Word::Pointer(function(1000)), Word::Pointer(function(1001))];
    let mut number = 0;
    words.extend(helpers.iter().enumerate().map(|(index, (_, kind))| match kind {
        Kind::Empty => Word::Number(0),
        Kind::Function => Word::Pointer(function(index)),
        Kind::Pointer => {
            number += 1;
            Word::Number(number)
        }
    }));
    words.extend([Word::Pointer(function(1000)), Word::Number(0), OTHER]);
    words
}

/// The table of functions that a runtime replaces, with other functions around it.
fn pointers(helpers: &[(String, Kind)]) -> Vec<Word> {
    let mut words = vec![OTHER, Word::Pointer(function(2000)), Word::Number(0)];
    let numbered = helpers.iter().filter(|(_, kind)| *kind == Kind::Pointer).enumerate();
    words.extend(numbered.map(|(index, (name, _))| {
        let name = name.strip_prefix("CORINFO_HELP_").unwrap();
        let known = ALLOCATORS.iter().find(|(known, _)| *known == name);
        match known {
            Some((_, number)) => Word::Pointer(function(*number)),
            None if name.starts_with("PROF_FCN") => Word::Pointer(function(500)),
            None if index % 3 == 0 => Word::Number(0),
            None => Word::Pointer(function(600 + index)),
        }
    }));
    words.extend([Word::Pointer(function(2001)), Word::Number(0), OTHER]);
    words
}

fn image_of(words: &[Word], names: &[u8]) -> (LoadedImage, Vec<RelativeRelocation>) {
    let (mut tables, mut relocations) = (Vec::new(), Vec::new());
    for word in words {
        let place = ElfAddress(TABLES + tables.len() as u64);
        let content = match *word {
            Word::Number(number) => number,
            Word::Pointer(target) => {
                relocations.push(RelativeRelocation { place, target: ElfAddress(target) });
                0
            }
        };
        tables.extend(content.to_le_bytes());
    }
    let bytes = tables.len() as u64;
    let segments = [
        (FileOffset(0), ElfAddress(TABLES), bytes, false),
        (FileOffset(bytes), ElfAddress(NAMES), names.len() as u64, false),
    ];
    let layout = SegmentLayout::from_sections(segments.into_iter());
    let image = Image::Memory([&tables[..], names].concat());
    (LoadedImage::new(image, layout, Arc::default()).unwrap(), relocations)
}

fn find(words: &[Word]) -> JitHelpers {
    let (image, relocations) = image_of(words, &[]);
    let is_function_start =
        |address: ElfAddress| CODE.contains(&address.0) && address.0.is_multiple_of(FUNCTION_BYTES);
    let file = RuntimeFile { image, relocations: &relocations, is_function_start: &is_function_start };
    find_jit_helpers(file, &names()).unwrap()
}

/// The names that are read from a file with pointers to these texts.
fn read_names(texts: &[String]) -> Vec<String> {
    let (mut words, mut bytes) = (vec![OTHER, Word::Pointer(function(0))], Vec::new());
    for text in texts {
        words.push(Word::Pointer(NAMES + bytes.len() as u64));
        bytes.extend(text.as_bytes());
        bytes.push(0);
    }
    words.push(Word::Pointer(function(1)));
    let (image, relocations) = image_of(&words, &bytes);
    read_helper_names(image, &relocations).unwrap()
}

#[test]
fn the_names_of_a_jit_compiler_are_in_the_order_of_their_numbers() {
    assert_eq!(read_names(&names()), names());
    let behind_others = [vec!["CORINFO_HELP_OTHER".to_owned(), "text".to_owned()], names()].concat();
    assert_eq!(read_names(&behind_others), names());
}

#[test]
fn texts_that_are_no_names_end_a_table() {
    for text in ["CORINFO_HELP_lower", "CORINFO_", "text", ""] {
        let mut texts = names();
        texts.insert(MIN_NAMES, text.to_owned());
        assert_eq!(read_names(&texts), names()[..MIN_NAMES], "{text}");
        texts.swap(MIN_NAMES, MIN_NAMES - 1);
        assert_eq!(read_names(&texts), Vec::<String>::new(), "{text}");
    }
}

#[test]
fn helpers_have_functions_in_the_file_or_pointers_in_memory() {
    let helpers = version();
    let functions = functions_by_number(&helpers);
    let found = find(&[functions.clone(), pointers(&helpers)].concat());
    let in_file = helpers.iter().enumerate().filter(|(_, (_, kind))| *kind == Kind::Function);
    let expected: Vec<_> = in_file.map(|(index, (name, _))| (function(index), name.clone())).collect();
    let named: Vec<_> =
        found.functions.iter().map(|function| (function.address.0, function.name.clone())).collect();
    assert_eq!(named, expected);
    let start = TABLES + (functions.len() as u64 + 3) * POINTER_BYTES;
    let addresses = (start..).step_by(POINTER_BYTES as usize);
    let numbered = helpers.iter().filter(|(_, kind)| *kind == Kind::Pointer);
    let expected: Vec<_> = numbered.zip(addresses).map(|((name, _), at)| (at, name.clone())).collect();
    let pointers: Vec<_> =
        found.pointers.iter().map(|pointer| (pointer.address.0, pointer.name.clone())).collect();
    assert_eq!(pointers, expected);
}

#[test]
fn a_second_table_makes_the_place_uncertain() {
    let helpers = version();
    let (functions, pointers) = (functions_by_number(&helpers), pointers(&helpers));
    assert_eq!(find(&[&functions[..], &pointers, &functions].concat()), JitHelpers::default());
    let found = find(&[&functions[..], &pointers, &pointers].concat());
    assert_eq!((found.functions.len(), found.pointers.len()), (60, 0));
}

#[test]
fn a_table_with_another_shape_has_no_helpers() {
    let changed = |name: &str, kind| {
        let mut helpers = version();
        let helper = helpers.iter_mut().find(|(known, _)| known.ends_with(name)).unwrap();
        helper.1 = kind;
        find(&functions_by_number(&helpers))
    };
    assert_eq!(changed("LAST_3", Kind::Empty).functions.len(), 59);
    assert_eq!(changed("READYTORUN_3", Kind::Function), JitHelpers::default());
    assert_eq!(changed("UNDEF", Kind::Function), JitHelpers::default());
    let mut shorter = version();
    shorter.retain(|(name, _)| !name.ends_with("READYTORUN_19"));
    assert_eq!(find(&functions_by_number(&shorter)), JitHelpers::default());
    let mut words = functions_by_number(&version());
    let number = words.iter_mut().find(|word| matches!(word, Word::Number(7))).unwrap();
    *number = Word::Number(8);
    assert_eq!(find(&words), JitHelpers::default());
}

#[test]
fn random_words_have_no_helpers() {
    let mut state = 1_u64;
    let mut draw = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for _ in 0..20 {
        let words: Vec<_> = (0..2_000)
            .map(|_| match draw(4) {
                0 => Word::Number(0),
                1 => Word::Number(draw(30)),
                _ => Word::Pointer(function(draw(40) as usize)),
            })
            .collect();
        assert_eq!(find(&words), JitHelpers::default());
    }
}
