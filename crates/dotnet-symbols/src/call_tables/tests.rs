//! Tests of call tables: tables of every kind, tables with defects, hostile and random files.

use std::{collections::BTreeSet, sync::Arc};

use profiler_addresses::FileOffset;
use profiler_binary_reader::{Image, SegmentLayout, WorkBudget};

use super::*;

/// The address of the segment with the tables.
const TABLES: u64 = 0x1_0000;

/// The address of the segment with the names.
const NAMES: u64 = 0x100_0000;

/// Functions start at all multiples of this in [`CODE`].
const FUNCTION_BYTES: u64 = 0x40;
const CODE: std::ops::Range<u64> = 0x200_0000..0x210_0000;

const END: Word = Number(END_FLAG);
const END_FLAG: u64 = 0xffff_ffff_ffff_0001;

/// A word of the segment with the tables.
#[derive(Clone, Copy)]
enum Word {
    Number(u64),
    /// A relocated pointer.
    Pointer(u64),
    /// A relocated pointer to a name.
    Name(&'static str),
}

use Word::{Name, Number, Pointer};

/// The function with this number.
fn function(number: u64) -> u64 {
    CODE.start + number * FUNCTION_BYTES
}

fn read_with(words: &[Word], budget: WorkBudget) -> Vec<(u64, String)> {
    let (mut tables, mut names, mut relocations) = (Vec::new(), Vec::new(), Vec::new());
    for word in words {
        let place = ElfAddress(TABLES + tables.len() as u64);
        let target = match *word {
            Number(_) => None,
            Pointer(target) => Some(target),
            Name(name) => {
                let address = NAMES + names.len() as u64;
                names.extend(name.as_bytes());
                names.push(0);
                Some(address)
            }
        };
        relocations.extend(target.map(|target| RelativeRelocation { place, target: ElfAddress(target) }));
        // The words of relocated pointers are ignored: they are 0 in most files.
        tables.extend(if let Number(number) = word { *number } else { 0x77 }.to_le_bytes());
    }
    let bytes = tables.len() as u64;
    let segments = [
        (FileOffset(0), ElfAddress(TABLES), bytes, false),
        (FileOffset(bytes), ElfAddress(NAMES), names.len() as u64, false),
    ];
    let layout = SegmentLayout::from_sections(segments.into_iter());
    let image = Image::Memory([tables, names].concat());
    read_file(LoadedImage::new(image, layout, Arc::new(budget)).unwrap(), &relocations)
}

fn read_file(image: LoadedImage, relocations: &[RelativeRelocation]) -> Vec<(u64, String)> {
    let is_function_start =
        |address: ElfAddress| CODE.contains(&address.0) && address.0.is_multiple_of(FUNCTION_BYTES);
    let file = RuntimeFile { image, relocations, is_function_start: &is_function_start };
    let found = read_call_tables(file).unwrap();
    found.into_iter().map(|function| (function.address.0, function.name)).collect()
}

fn read(words: &[Word]) -> Vec<(u64, String)> {
    read_with(words, WorkBudget::default())
}

const SOME_NAMES: [&str; 10] = [
    "ThreadNative_SpinWait",
    "GCInterface_Collect",
    "SfiInit",
    "SfiNext",
    "Buffer_MemMove",
    "String_Intern",
    "Enum_Get_2",
    "_End",
    "Tenth_",
    "Eleventh",
];

/// An entry point table with this number of records, whose functions have descending addresses.
fn entry_points(count: usize) -> Vec<Word> {
    let records = SOME_NAMES.iter().zip((0..100).rev()).take(count);
    records.flat_map(|(name, number)| [Name(name), Pointer(function(number))]).collect()
}

/// A list of methods with these names. The functions have ascending addresses.
fn methods(first: u64, names: &[&'static str]) -> Vec<Word> {
    let records = names.iter().zip(first..);
    let records = records
        .flat_map(|(name, number)| [Number(0xffff_ffff_ffff_0000), Pointer(function(number)), Name(name)]);
    records.chain([END]).collect()
}

/// A class whose list is at the word with this index.
fn class(name: &'static str, namespace: &'static str, list: usize) -> [Word; 3] {
    [Name(name), Name(namespace), Pointer(TABLES + list as u64 * POINTER_BYTES)]
}

#[test]
fn functions_of_an_entry_point_table_have_their_names() {
    let found = read(&entry_points(10));
    let mut expected: Vec<_> = SOME_NAMES.iter().zip((0..100).rev()).collect();
    expected.reverse();
    let expected: Vec<_> =
        expected.into_iter().map(|(name, number)| (function(number), (*name).to_owned())).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_few_names_beside_functions_are_no_table() {
    assert_eq!(read(&entry_points(MIN_FUNCTIONS_PER_TABLE - 1)), []);
    assert_eq!(read(&entry_points(MIN_FUNCTIONS_PER_TABLE)).len(), MIN_FUNCTIONS_PER_TABLE);
}

#[test]
fn an_entry_point_table_ends_where_its_shape_ends() {
    let defects: [&[Word]; 6] = [
        &[Name("two words"), Pointer(function(1))],
        &[Name(""), Pointer(function(1))],
        &[Name("InAFunction"), Pointer(function(1) + 1)],
        &[Name("NotRelocated"), Number(function(1))],
        &[Name("Apart"), Number(0), Pointer(function(1))],
        &[Pointer(function(1)), Pointer(function(2))],
    ];
    for defect in defects {
        let words = [&entry_points(8)[..], defect, &entry_points(9)].concat();
        assert_eq!(read(&words).len(), 9, "the second table has the functions of the first");
        let words = [&entry_points(4)[..], defect, &entry_points(4)].concat();
        assert_eq!(read(&words), []);
    }
}

#[test]
fn methods_of_fcall_classes_have_their_classes_and_namespaces() {
    let with_signature = [
        Number(2),
        Pointer(function(20)),
        Name(".ctor"),
        Name("signature"),
        Number(0x8_0000),
        Pointer(function(21)),
        Name("get_Item"),
        END,
    ];
    let unassigned = [Number(0x100_0000), Number(0), Name("FastAllocateString"), END];
    let lists = [
        methods(0, &["ReliableEnter", "Exit", "Wait_", "Pulse", "PulseAll", "IsEntered"]),
        with_signature.to_vec(),
        unassigned.to_vec(),
        vec![END],
    ];
    let starts: Vec<_> =
        lists.iter().scan(0, |next, list| Some(std::mem::replace(next, *next + list.len()))).collect();
    let classes = [
        class("Monitor", "System.Threading", starts[0]),
        class("WeakReference`1", "System", starts[1]),
        class("String", "System", starts[2]),
        class("Empty", "System", starts[3]),
        class("Kernel32", "", starts[1]),
    ];
    let found = read(&[lists.concat(), classes.concat()].concat());
    assert_eq!(found.len(), 8, "{found:?}");
    assert_eq!(found[0], (function(0), "System.Threading.Monitor.ReliableEnter".to_owned()));
    assert_eq!(found[6], (function(20), "System.WeakReference`1..ctor".to_owned()));
    assert_eq!(found[7], (function(21), "System.WeakReference`1.get_Item".to_owned()));
}

#[test]
fn a_class_with_a_defect_in_its_list_has_no_names() {
    let defects: [&[Word]; 7] = [
        &[Number(0x10), Pointer(function(1)), Name("FlagsOfNoVersion"), END],
        &[Pointer(0), Pointer(function(1)), Name("RelocatedFlags"), END],
        &[Number(0), Pointer(function(1) + 4), Name("InAFunction"), END],
        &[Number(0), Number(5), Name("NoPointer"), END],
        &[Number(0), Pointer(function(1)), Number(0), END],
        &[Number(2), Pointer(function(1)), Name("LacksItsSignature"), END],
        &[Number(0), Pointer(function(1)), Name("LacksItsEnd")],
    ];
    for defect in defects {
        let good = methods(10, &SOME_NAMES);
        let classes = |bad: usize| {
            [class("Good", "N", bad + 40), class("Bad", "N", bad), class("Good", "N", bad + 40)].concat()
        };
        let mut words = defect.to_vec();
        words.resize(40, Number(0x7777_7777));
        words.extend(good);
        words.extend(classes(0));
        let found = read(&words);
        assert_eq!(found.len(), SOME_NAMES.len());
        assert!(found.iter().all(|(_, name)| name.starts_with("N.Good.")), "{found:?}");
    }
}

#[test]
fn the_first_of_several_names_of_a_function_is_kept() {
    let mut words = entry_points(8);
    words.extend([Name("Folded"), Pointer(function(99))]);
    let found = read(&words);
    assert_eq!(found.len(), 8);
    assert_eq!(found[7], (function(99), SOME_NAMES[0].to_owned()));
}

#[test]
fn classes_that_share_a_list_are_read_until_a_limit() {
    let list = methods(0, &SOME_NAMES);
    let classes = (0..20_000).flat_map(|_| class("C", "N", 0));
    let words: Vec<_> = list.iter().copied().chain(classes).collect();
    assert_eq!(read(&words).len(), SOME_NAMES.len());
    // The budget ends before the last class, and the result has what was read.
    let found = read_with(&words, WorkBudget::with_work_limit(100_000));
    assert!(found.is_empty() || found.len() == SOME_NAMES.len(), "{found:?}");
}

#[test]
fn a_list_that_is_its_own_class_table_ends() {
    let classes = [class("A", "N", 0), class("B", "N", 3), class("C", "N", 1)].concat();
    assert_eq!(read(&classes), []);
    // A list without an end that covers all other words.
    let records = (0..3_000).flat_map(|number| [Number(0), Pointer(function(number % 100)), Name("M")]);
    let words: Vec<_> = records.chain(class("C", "N", 0)).collect();
    assert_eq!(read(&words), []);
}

#[test]
fn random_words_do_not_panic_and_name_functions_only() {
    let mut random = fastrand::Rng::with_seed(5);
    for _ in 0..300 {
        let words: Vec<_> = (0..random.usize(..400))
            .map(|index| match random.u8(..6) {
                0 => Number(random.u64(..)),
                1 => Number(random.u64(..8)),
                2 => Pointer(function(random.u64(..30))),
                3 => Pointer(TABLES + random.u64(..(index as u64 + 2) * POINTER_BYTES)),
                4 => Pointer(random.u64(..)),
                _ => Name(random.choice(SOME_NAMES).unwrap_or_default()),
            })
            .collect();
        let found = read(&words);
        let addresses: BTreeSet<_> = found.iter().map(|(address, _)| *address).collect();
        assert_eq!(addresses.len(), found.len(), "one name for each function");
        assert!(addresses.iter().all(|address| CODE.contains(address)));
    }
}
