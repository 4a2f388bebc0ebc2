//! Tests lookups in the memory of a runtime that is built here: names, limits, and memory that changes.

mod recorded_reads;

use std::{
    path::Path,
    sync::{Arc, atomic::Ordering},
};

use profiler_addresses::RuntimeAddress;
use profiler_binary_reader::Image;
use profiler_dotnet_symbols::readytorun::AssemblyFiles;

use crate::{
    CodeKind, DescriptorError, DotNetRuntime, LookupError, Memory, ReadError, ReadLimits, RuntimeCode,
    test_image::{
        self, CODE, CODE_BYTES, CODE_MAP, DYNAMIC, FRAGMENT, GET, HANDLER_BYTES, IMAGE, INNER, LEVEL_BYTES,
        METHOD_BYTES, MODULE, OUTER, Place, RUN, SECTION, STUB, TYPES, Version, code_of, header_of,
        method_desc_of, type_of,
    },
    test_memory::{ChangingMemory, TestMemory},
};

pub(crate) struct NoFiles;

impl AssemblyFiles for NoFiles {
    fn open(&self, _: &Path) -> Option<Image> {
        None
    }
}

pub(crate) fn open(memory: impl Memory + 'static, symbols: crate::RuntimeSymbols) -> DotNetRuntime {
    DotNetRuntime::open(Arc::new(memory), symbols, ReadLimits::default(), &Arc::default()).unwrap()
}

/// Looks up an address in an image of .NET 10 after a change.
fn find_after(change: impl FnOnce(&mut TestMemory), address: u64) -> Result<RuntimeCode, LookupError> {
    let (mut memory, symbols) = test_image::build(Version::Net10, Place::LoadedImage);
    change(&mut memory);
    open(memory, symbols).find(RuntimeAddress(address), &NoFiles)
}

fn find(address: u64) -> Result<RuntimeCode, LookupError> {
    find_after(|_| (), address)
}

#[test]
fn a_method_has_its_name_and_range_in_each_version_and_from_each_place_of_metadata() {
    for version in [Version::Net9, Version::Net10] {
        for place in [Place::FlatImage, Place::LoadedImage, Place::Buffer] {
            let (memory, symbols) = test_image::build(version, place);
            let mut runtime = open(memory, symbols);
            for offset in [0, 1, METHOD_BYTES, METHOD_BYTES + HANDLER_BYTES - 1] {
                let found = runtime.find(RuntimeAddress(code_of(RUN) + offset), &NoFiles).unwrap();
                let expected = RuntimeCode {
                    start: RuntimeAddress(code_of(RUN)),
                    size_bytes: METHOD_BYTES + HANDLER_BYTES,
                    name: "Test!N.Outer.Run(int32)".to_owned(),
                    module_file_name: "Test.dll".to_owned(),
                    kind: CodeKind::Compiled,
                    can_be_freed: false,
                };
                assert_eq!(found, expected, "{version:?} {place:?}");
            }
            assert!(runtime.cached_bytes() > 0);
        }
    }
}

#[test]
fn a_generic_type_has_its_type_arguments() {
    let found = find(code_of(GET)).unwrap();
    assert_eq!(found.name, "Test!N.Outer+Inner`2[N.Outer,System.Int32].Get(class N.Outer)");
}

#[test]
fn a_dynamic_method_has_its_own_name() {
    let found = find(code_of(DYNAMIC)).unwrap();
    assert_eq!(found.name, "Test!dynamicClass.made;method(int32,?)");
    assert_eq!((found.kind, found.can_be_freed), (CodeKind::Dynamic, true));
}

#[test]
fn a_stub_in_il_is_never_freed() {
    const IS_IL_STUB: u32 = 0x8000;
    let flags = method_desc_of(DYNAMIC) + 28;
    let found = find_after(|memory| memory.write_u32(flags, IS_IL_STUB), code_of(DYNAMIC)).unwrap();
    assert_eq!((found.kind, found.can_be_freed), (CodeKind::Dynamic, false));
    let unknown = find_after(|memory| memory.write_u32(flags, 0), code_of(DYNAMIC)).unwrap();
    assert!(unknown.can_be_freed);
}

#[test]
fn code_of_a_collectible_assembly_can_be_freed() {
    // `RANGE_SECTION_COLLECTIBLE` and `RANGE_SECTION_CODEHEAP`.
    let found = find_after(|memory| memory.write_u32(SECTION + 16, 1 | 2), code_of(RUN)).unwrap();
    assert_eq!((found.kind, found.can_be_freed), (CodeKind::Compiled, true));
}

#[test]
fn levels_of_the_map_that_stay_are_read_once() {
    /// The levels in front of the last one.
    const KEPT_LEVELS: u64 = 4;
    let reads_of_third = |change: &dyn Fn(&mut TestMemory)| {
        let (mut memory, symbols) = test_image::build(Version::Net10, Place::LoadedImage);
        change(&mut memory);
        let mut runtime = open(memory, symbols);
        // The second one has the metadata as well.
        let reads = [(); 3].map(|()| {
            runtime.find(RuntimeAddress(code_of(RUN)), &NoFiles).unwrap();
            runtime.last_cost().reads
        });
        reads[2]
    };
    let without_mark = |memory: &mut TestMemory, level: u64| {
        let shift = [49, 41, 33, 25][level as usize];
        let next = CODE_MAP + (level + 1) * LEVEL_BYTES;
        memory.write_u64(CODE_MAP + level * LEVEL_BYTES + (CODE >> shift & 0xff) * 8, next);
    };
    let marked = reads_of_third(&|_| ());
    let partly = reads_of_third(&|memory| (0..KEPT_LEVELS - 1).for_each(|level| without_mark(memory, level)));
    assert_eq!(partly, marked, "the last level can be freed");
    let kept = reads_of_third(&|memory| (0..KEPT_LEVELS).for_each(|level| without_mark(memory, level)));
    assert_eq!(kept, marked - KEPT_LEVELS);
}

#[test]
fn code_that_can_be_freed_is_listed() {
    let listed = |change: &dyn Fn(&mut TestMemory)| {
        let (mut memory, symbols) = test_image::build(Version::Net10, Place::LoadedImage);
        change(&mut memory);
        let listed = open(memory, symbols).freeable_code().unwrap();
        assert!(listed.is_complete);
        listed.entries.into_iter().map(|start| start.0).collect::<Vec<_>>()
    };
    let no_start = |memory: &mut TestMemory, method: u64| {
        memory.write_u32(test_image::NIBBLE_MAP + (code_of(method) - CODE) / 256 * 4, 0);
    };
    assert_eq!(listed(&|_| ()), [0; 0], "the first method of the heap stays");
    let dynamic_heap = listed(&|memory| {
        no_start(memory, RUN);
        no_start(memory, GET);
    });
    assert_eq!(dynamic_heap, [code_of(DYNAMIC)]);
    let collectible = listed(&|memory| memory.write_u32(SECTION + 16, 1 | 2));
    assert_eq!(collectible, [RUN, GET, DYNAMIC].map(code_of));
    assert_eq!(listed(&|memory| memory.write_u32(SECTION + 16, 4)), [0; 0], "stubs");
}

#[test]
fn a_stub_is_recognized_by_its_code() {
    let found = find(code_of(STUB) + 3).unwrap();
    assert_eq!((found.name.as_str(), found.kind), ("stub VTableCallStub", CodeKind::Stub));
    assert_eq!(find(code_of(STUB) + 0x20), Err(LookupError::UnknownStub));
    let in_range_of_stubs = find_after(|memory| memory.write_u32(SECTION + 16, 4), code_of(STUB) + 3);
    assert_eq!(in_range_of_stubs.unwrap().name, "stub VTableCallStub");
}

#[test]
fn an_address_between_methods_has_no_name() {
    for address in [code_of(RUN) + METHOD_BYTES + HANDLER_BYTES, code_of(GET) - 1, code_of(GET) - 9] {
        assert_eq!(find(address), Err(LookupError::NoMethod), "{address:x}");
    }
    assert_eq!(find(CODE), Err(LookupError::NoMethod), "before the first method");
}

#[test]
fn an_address_outside_of_code_has_no_code() {
    for address in [0, 7, CODE - 1, CODE + CODE_BYTES * 3, 1 << 47, u64::MAX] {
        assert_eq!(find(address), Err(LookupError::NoCode), "{address:x}");
    }
}

#[test]
fn a_loop_of_fragments_ends() {
    let found = find_after(|memory| memory.write_u64(FRAGMENT, FRAGMENT), code_of(RUN));
    assert_eq!(found, Err(LookupError::TooLarge("list of code ranges")));
}

#[test]
fn a_map_of_code_ranges_that_points_to_itself_ends() {
    let found = find_after(
        |memory| {
            for entry in 0..256 {
                memory.write_u64(CODE_MAP + LEVEL_BYTES + entry * 8, CODE_MAP + LEVEL_BYTES);
            }
        },
        code_of(RUN),
    );
    assert!(found.is_err(), "{found:?}");
}

#[test]
fn tables_of_functions_are_checked() {
    let functions = header_of(RUN) + 36;
    for (what, at, value) in [
        ("count", header_of(RUN) + 32, 4_097),
        ("begin", functions, 0x100),
        ("end before begin", functions + 4, 0x10),
        ("end outside of the range", functions + 12 + 4, CODE_BYTES as u32 + 1),
        ("overlap", functions + 12, 0x150),
    ] {
        let found = find_after(|memory| memory.write_u32(at, value), code_of(RUN));
        assert!(
            matches!(found, Err(LookupError::Malformed(_) | LookupError::TooLarge(_))),
            "{what}: {found:?}"
        );
    }
    let without_functions = find_after(|memory| memory.write_u32(header_of(RUN) + 32, 0), code_of(RUN));
    assert_eq!(without_functions, Err(LookupError::NoMethod));
    let without_unwind_info = find_after(|memory| memory.write(CODE + 0x8000, &[0]), code_of(RUN));
    assert_eq!(without_unwind_info, Err(LookupError::Malformed("unwind information")));
}

#[test]
fn types_without_end_are_too_large() {
    let itself = find_after(
        |memory| {
            // The first type argument of the type is the type itself.
            memory.write_u64(TYPES + 0x1100, type_of(INNER));
        },
        code_of(GET),
    );
    assert_eq!(itself, Err(LookupError::TooLarge("nesting of types")));
    let pointers = find_after(
        |memory| {
            let pointer = TYPES + 0x2000;
            memory.write_u32(pointer, 0x0f);
            memory.write_u64(pointer + 16, pointer | 2);
            memory.write_u64(TYPES + 0x1100, pointer | 2);
        },
        code_of(GET),
    );
    assert_eq!(pointers, Err(LookupError::TooLarge("nesting of types")));
    let many = find_after(
        |memory| {
            // 40 arguments, each with 40 arguments.
            let [first, second] = [TYPES + 0x3000, TYPES + 0x4000];
            for (dictionaries, argument) in [(first, type_of(OUTER)), (second, TYPES + 0x2000)] {
                memory.write_u16(dictionaries - 4, 1);
                memory.write_u16(dictionaries - 2, 40);
                memory.write_u64(dictionaries, dictionaries + 0x100);
                (0..40).for_each(|index| memory.write_u64(dictionaries + 0x100 + index * 8, argument));
            }
            let inner = TYPES + 0x2000;
            memory.write_u32(inner, 0x10);
            memory.write_u32(inner + 8, 2 << 8);
            memory.write_u64(inner + 24, MODULE);
            memory.write_u64(inner + 48, first);
            memory.write_u64(type_of(INNER) + 48, second);
        },
        code_of(GET),
    );
    assert_eq!(many, Err(LookupError::TooLarge("number of types")));
}

#[test]
fn lists_of_type_arguments_are_bounded() {
    let dictionaries = TYPES + 0x1000;
    for (at, count) in [(dictionaries - 4, 0), (dictionaries - 4, 513), (dictionaries - 2, 257)] {
        let found = find_after(|memory| memory.write_u16(at, count), code_of(GET));
        assert_eq!(found, Err(LookupError::Malformed("list of type arguments")));
    }
}

#[test]
fn types_of_other_kinds_are_named() {
    let with_argument = |write: &dyn Fn(&mut TestMemory, u64)| {
        let change = |memory: &mut TestMemory| {
            let address = TYPES + 0x2000;
            write(memory, address);
            memory.write_u64(address + 24, MODULE);
        };
        find_after(change, code_of(GET)).map(|found| found.name)
    };
    let name_of =
        |argument: &str| Ok(format!("Test!N.Outer+Inner`2[{argument},System.Int32].Get(class N.Outer)"));
    let argument = TYPES + 0x1100;
    for (flags, rank, name) in
        [(0x800a_0000_u32, 0, "N.Outer[]"), (0x8008_0000, 2, "N.Outer[,]"), (0x8008_0000, 1, "N.Outer[*]")]
    {
        let found = with_argument(&|memory, address| {
            memory.write_u64(argument, address);
            memory.write_u32(address, flags);
            memory.write_u64(address + 48, type_of(OUTER));
            memory.write_u64(address + 40, address + 0x200 - 72);
            memory.write(address + 0x200, &[rank]);
        });
        assert_eq!(found, name_of(name));
    }
    let no_dimension = with_argument(&|memory, address| {
        memory.write_u64(argument, address);
        memory.write_u32(address, 0x8008_0000);
        memory.write_u64(address + 48, type_of(OUTER));
        memory.write_u64(address + 40, address + 0x200 - 72);
        memory.write(address + 0x200, &[33]);
    });
    assert_eq!(no_dimension, Err(LookupError::Malformed("array")));
    for (kind, name) in [(0x0f, "N.Outer*"), (0x10, "N.Outer&")] {
        let found = with_argument(&|memory, address| {
            memory.write_u64(argument, address | 2);
            memory.write_u32(address, kind);
            memory.write_u64(address + 16, type_of(OUTER));
        });
        assert_eq!(found, name_of(name));
    }
    let variable = with_argument(&|memory, address| {
        memory.write_u64(argument, address | 2);
        memory.write_u32(address, 0x13);
    });
    assert_eq!(variable, Err(LookupError::Unsupported("generic type that is not instantiated")));
    let function = find_after(
        |memory| {
            let address = TYPES + 0x2000;
            memory.write_u64(argument, address | 2);
            memory.write_u32(address, 0x1b);
            memory.write_u32(address + 24, 1);
            memory.write_u64(address + 32, type_of(OUTER));
            memory.write_u64(address + 40, type_of(test_image::INT32));
        },
        code_of(GET),
    );
    assert_eq!(function.map(|found| found.name), name_of("N.Outer(System.Int32)"));
    let too_many_arguments = with_argument(&|memory, address| {
        memory.write_u64(argument, address | 2);
        memory.write_u32(address, 0x1b);
    });
    assert_eq!(too_many_arguments, Err(LookupError::TooLarge("list of arguments")), "a pointer is no number");
}

#[test]
fn metadata_is_bounded_and_within_its_image() {
    let place = |change: &dyn Fn(&mut TestMemory)| {
        let (mut memory, symbols) = test_image::build(Version::Net10, Place::Buffer);
        change(&mut memory);
        open(memory, symbols).find(RuntimeAddress(code_of(RUN)), &NoFiles)
    };
    assert_eq!(
        place(&|memory| memory.write_u32(IMAGE, (64 << 20) + 1)),
        Err(LookupError::TooLarge("metadata"))
    );
    assert!(matches!(place(&|memory| memory.write_u32(IMAGE, 40)), Err(LookupError::Metadata(_))));
    assert!(matches!(place(&|memory| memory.write(IMAGE + 4, b"none")), Err(LookupError::Metadata(_))));
    assert_eq!(
        place(&|memory| memory.write_u64(MODULE + 840, 0)),
        Err(LookupError::Malformed("module without an image"))
    );
    // The row of the method is behind the last one.
    let row = find_after(|memory| memory.write_u16(method_desc_of(RUN), 3), code_of(RUN));
    assert!(matches!(row, Err(LookupError::Metadata(_))), "{row:?}");
}

#[test]
fn the_name_and_the_signature_of_a_dynamic_method_are_bounded() {
    let method = method_desc_of(DYNAMIC);
    let long = find_after(|memory| memory.write_u32(method + 24, (64 << 10) + 1), code_of(DYNAMIC));
    assert_eq!(long, Err(LookupError::TooLarge("signature")));
    let unreadable = find_after(|memory| memory.write_u64(method + 32, 0x9999_0000), code_of(DYNAMIC));
    assert_eq!(unreadable, Err(LookupError::Read(ReadError::NotMapped)));
    let endless = find_after(
        |memory| {
            memory.write(0x50_0000, &vec![b'x'; 0x5000]);
            memory.write_u64(method + 32, 0x50_0000);
        },
        code_of(DYNAMIC),
    );
    assert_eq!(endless.unwrap().name.len(), "Test!dynamicClass.(int32,?)".len() + (4 << 10));
}

#[test]
fn code_that_is_replaced_during_a_lookup_has_the_name_of_before_or_after_or_none() {
    const OTHER: &str = "Test!dynamicClass.another(int32,?)";
    let (before, symbols) = test_image::build(Version::Net10, Place::Buffer);
    for address in [code_of(DYNAMIC), code_of(RUN)] {
        let mut after = before.clone();
        // The same code belongs to a method of another name.
        after.write(0x37_0100, b"another\0");
        after.write_u64(header_of(RUN) + 24, method_desc_of(DYNAMIC));
        let name = |memory: &TestMemory| {
            open(memory.clone(), symbols).find(RuntimeAddress(address), &NoFiles).unwrap().name
        };
        let names = [name(&before), name(&after)];
        assert_eq!(names[1], OTHER);
        let mut outcomes = [0, 0, 0];
        for changes_at in 0..200 {
            let memory = ChangingMemory::new(&before, &after, changes_at);
            match open(memory, symbols).find(RuntimeAddress(address), &NoFiles) {
                Ok(found) if found.name == names[0] => outcomes[0] += 1,
                Ok(found) if found.name == names[1] => outcomes[1] += 1,
                Err(LookupError::CodeChanged) => outcomes[2] += 1,
                other => panic!("{changes_at}: {other:?}"),
            }
        }
        assert!(outcomes.iter().all(|count| *count > 0), "{outcomes:?}");
    }
}

/// Reads from a copy, which checks must not use.
#[derive(Debug)]
struct CopiedMemory {
    copy: TestMemory,
    current: TestMemory,
}

impl Memory for CopiedMemory {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), ReadError> {
        self.copy.read(address, into)
    }

    fn read_again(&self, address: u64, into: &mut [u8]) -> Result<(), ReadError> {
        self.current.read(address, into)
    }
}

#[test]
fn code_that_was_replaced_after_its_page_was_read_has_changed() {
    let (copy, symbols) = test_image::build(Version::Net10, Place::LoadedImage);
    for address in [code_of(RUN), code_of(DYNAMIC)] {
        let mut current = copy.clone();
        let find = |current: &TestMemory| {
            let memory = CopiedMemory { copy: copy.clone(), current: current.clone() };
            open(memory, symbols).find(RuntimeAddress(address), &NoFiles).map(|found| found.start.0)
        };
        assert_eq!(find(&current), Ok(address));
        current.write_u64(address - 8, header_of(GET));
        assert_eq!(find(&current), Err(LookupError::CodeChanged));
    }
}

#[test]
fn a_module_that_is_replaced_has_the_names_of_the_new_one() {
    let (before, symbols) = test_image::build(Version::Net10, Place::Buffer);
    let mut after = before.clone();
    // Another version id, and `Rum` in place of `Run`.
    let metadata: Vec<u8> = {
        let mut bytes = vec![0; 0x200];
        before.read(IMAGE, &mut bytes).unwrap();
        bytes
    };
    let at = |text: &[u8]| metadata.windows(text.len()).position(|window| window == text).unwrap() as u64;
    after.write(IMAGE + at(b"Run\0"), b"Rum");
    after.write(IMAGE + at(&[7; 16]), &[8; 16]);
    let memory = Arc::new(ChangingMemory::new(&before, &after, 1 << 40));
    let shared: Arc<dyn Memory> = Arc::clone(&memory) as Arc<dyn Memory>;
    let mut runtime = DotNetRuntime::open(shared, symbols, ReadLimits::default(), &Arc::default()).unwrap();
    let mut name = || runtime.find(RuntimeAddress(code_of(RUN)), &NoFiles).unwrap().name;
    assert_eq!(name(), "Test!N.Outer.Run(int32)");
    memory.reads.store(1 << 40, Ordering::Relaxed);
    assert_eq!(name(), "Test!N.Outer.Rum(int32)");
}

#[test]
fn a_lookup_that_exceeds_its_limits_says_so() {
    let (memory, symbols) = test_image::build(Version::Net10, Place::LoadedImage);
    let mut limited = 0;
    for reads in 6..80 {
        let limits = ReadLimits { reads, ..ReadLimits::default() };
        let memory = Arc::new(memory.clone());
        let mut runtime = DotNetRuntime::open(memory, symbols, limits, &Arc::default()).unwrap();
        match runtime.find(RuntimeAddress(code_of(GET)), &NoFiles) {
            Ok(found) => assert!(found.name.ends_with("Get(class N.Outer)")),
            Err(_) => limited += 1,
        }
        assert!(runtime.last_cost().reads <= reads + 10, "{:?}", runtime.last_cost());
    }
    assert!((20..74).contains(&limited), "{limited}");
}

#[test]
fn damaged_memory_takes_bounded_reads_and_does_not_panic() {
    let mut random = fastrand::Rng::with_seed(11);
    let limits = ReadLimits::default();
    for round in 0..600 {
        let places = [Place::FlatImage, Place::LoadedImage, Place::Buffer];
        let (mut memory, symbols) = test_image::build(Version::Net10, places[round % 3]);
        memory.damage(&mut random, [10_000, 1_000, 100][round / 200]);
        let Ok(mut runtime) = DotNetRuntime::open(Arc::new(memory), symbols, limits, &Arc::default()) else {
            continue;
        };
        for method in [RUN, GET, DYNAMIC, STUB] {
            let address = RuntimeAddress(code_of(method) + 5);
            let _ = runtime.find(address, &NoFiles);
            assert!(runtime.last_cost().reads <= limits.reads + 10, "{:?}", runtime.last_cost());
            let _ = runtime.find_with_frames(address, &NoFiles);
            assert!(runtime.last_cost().reads <= limits.reads + 10, "{:?}", runtime.last_cost());
        }
    }
}

#[test]
fn a_runtime_of_another_version_is_refused_with_its_reason() {
    let refused = |from: &str, to: &str| {
        let (mut memory, symbols) = test_image::build(Version::Net10, Place::LoadedImage);
        test_image::replace_json(&mut memory, from, to);
        let limits = ReadLimits::default();
        DotNetRuntime::open(Arc::new(memory), symbols, limits, &Arc::default()).map(drop)
    };
    let version = |contract, version: &str| {
        Err(DescriptorError::ContractVersion { contract, version: version.to_owned() })
    };
    assert_eq!(
        refused(r#""ExecutionManager":2"#, r#""ExecutionManager":3"#),
        version("ExecutionManager", "3")
    );
    assert_eq!(
        refused(r#""ExecutionManager":2"#, r#""ExecutionManager":"c9""#),
        version("ExecutionManager", "c9")
    );
    assert_eq!(
        refused(r#""globals":{"#, r#""globals":{"Architecture":["arm64","string"],"#),
        Err(DescriptorError::Architecture("arm64".to_owned()))
    );
    assert_eq!(refused(r#""globals":{"#, r#""globals":{"Architecture":["x64","string"],"#), Ok(()));
    assert_eq!(refused(r#""ExecutionManager":2"#, r#""ExecutionManager":1"#), Ok(()));
    assert_eq!(
        refused(r#""ExecutionManager":2,"#, ""),
        Err(DescriptorError::ContractMissing("ExecutionManager"))
    );
    assert_eq!(refused(r#""Loader":1"#, r#""Loader":2"#), version("Loader", "2"));
    assert_eq!(
        refused(r#""HeaderMap":40"#, r#""Header":40"#),
        Err(DescriptorError::Missing("the field CodeHeapListNode.HeaderMap".to_owned()))
    );
    assert_eq!(
        refused(r#""RuntimeFunction":{"!":12}"#, r#""RuntimeFunction":{}"#),
        Err(DescriptorError::Missing("the size of RuntimeFunction".to_owned()))
    );
    assert_eq!(
        refused(r#""StubCodeBlockLast""#, r#""Stub""#),
        Err(DescriptorError::Missing("the global StubCodeBlockLast".to_owned()))
    );
}

#[test]
fn a_runtime_of_net9_needs_the_table_with_its_code_map() {
    let (memory, mut symbols) = test_image::build(Version::Net9, Place::LoadedImage);
    symbols.dac_table = None;
    let opened =
        DotNetRuntime::open(Arc::new(memory), symbols, ReadLimits::default(), &Arc::default()).map(drop);
    assert_eq!(opened, Err(DescriptorError::CodeMapMissing));
}
