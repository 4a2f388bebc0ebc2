//! Builds the memory of a runtime with a few methods, for tests and for the fuzz target.

use profiler_addresses::RuntimeAddress;

#[cfg(test)]
use crate::memory::Memory as _;
use crate::{
    runtime::RuntimeSymbols,
    test_memory::TestMemory,
    test_threads::{self, MONITOR_TABLE, STRING_TYPE, THREAD_STORE},
};

const DESCRIPTOR: u64 = 0x10_0000;
const JSON: u64 = 0x11_0000;
const POINTERS: u64 = 0x12_0000;
pub(crate) const CODE_MAP: u64 = 0x20_0000;
/// The levels of the map of code ranges follow each other.
pub(crate) const LEVEL_BYTES: u64 = 0x1000;
pub(crate) const NIBBLE_MAP: u64 = 0x30_0000;
pub(crate) const FRAGMENT: u64 = 0x31_0000;
pub(crate) const SECTION: u64 = 0x31_1000;
pub(crate) const HEAP: u64 = 0x31_2000;
pub(crate) const CODE: u64 = 0x7f00_1000_0000;
pub(crate) const CODE_BYTES: u64 = 0x1_0000;
const UNWIND_INFO: u64 = 0x8000;
const METHODS: u64 = 0x33_0000;
pub(crate) const TYPES: u64 = 0x34_0000;
pub(crate) const MODULE: u64 = 0x35_0000;
pub(crate) const IMAGE: u64 = 0x36_0000;
const STRINGS: u64 = 0x37_0000;
const DAC_TABLE: u64 = 0x38_0000;

/// The address of a method's code, which begins at the third word of its bucket.
pub(crate) fn code_of(method: u64) -> u64 {
    CODE + method * 0x100 + 0x48
}

/// Bytes of a method's code: of the method, then of its exception handler.
pub(crate) const METHOD_BYTES: u64 = 0x60;
pub(crate) const HANDLER_BYTES: u64 = 0x20;

pub(crate) fn header_of(method: u64) -> u64 {
    0x32_0000 + method * 0x100
}

pub(crate) fn method_desc_of(method: u64) -> u64 {
    METHODS + 24 + method * 0x40
}

pub(crate) fn type_of(index: u64) -> u64 {
    TYPES + index * 0x100
}

/// Methods of the image: `N.Outer.Run`, `N.Outer+Inner`1[N.Outer,System.Int32].Get`, a dynamic method, and a stub.
pub(crate) const RUN: u64 = 1;
pub(crate) const GET: u64 = 2;
pub(crate) const DYNAMIC: u64 = 3;
pub(crate) const STUB: u64 = 4;

/// Types of the image.
pub(crate) const OUTER: u64 = 0;
pub(crate) const INNER: u64 = 1;
pub(crate) const INT32: u64 = 2;

/// Where a module has its metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    FlatImage,
    LoadedImage,
    Buffer,
}

/// The version of the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Net9,
    Net10,
}

/// Builds the memory of a runtime.
pub(crate) fn build(version: Version, place: Place) -> (TestMemory, RuntimeSymbols) {
    let mut memory = TestMemory::default();
    write_descriptor(&mut memory, version);
    write_code_map(&mut memory);
    for method in [RUN, GET, DYNAMIC, STUB] {
        write_code(&mut memory, method);
    }
    write_method(&mut memory, RUN, Kind::Metadata { row: 1, instantiated: false }, OUTER);
    write_method(&mut memory, GET, Kind::Metadata { row: 2, instantiated: true }, INNER);
    write_method(&mut memory, DYNAMIC, Kind::Dynamic, OUTER);
    write_types(&mut memory);
    write_module(&mut memory, place);
    test_threads::write(&mut memory, version);
    let symbols =
        RuntimeSymbols { descriptor: RuntimeAddress(DESCRIPTOR), dac_table: Some(RuntimeAddress(DAC_TABLE)) };
    (memory, symbols)
}

/// The layouts of .NET 9.0 and 10.0, as their descriptors have them.
fn json(version: Version) -> String {
    let common = r#"
        "Module":{"Base":224,"Path":200,"DynamicMetadata":840},
        "MethodTable":{"MTFlags":0,"MTFlags2":8,"EEClassOrCanonMT":40,"Module":24,"PerInstInfo":48},
        "ArrayClass":{"Rank":72},"TypeDesc":{"TypeAndFlags":0},"ParamTypeDesc":{"TypeArg":16},
        "FnPtrTypeDesc":{"NumArgs":24,"RetAndArgTypes":32},"DynamicMetadata":{"Size":0,"Data":4},
        "MethodDesc":{"ChunkIndex":2,"Slot":4,"Flags":6,"Flags3AndTokenRemainder":0},
        "MethodDescChunk":{"!":24,"MethodTable":0,"FlagsAndTokenRange":18},
        "StoredSigMethodDesc":{"Sig":16,"cSig":24,"ExtendedFlags":28},"DynamicMethodDesc":{"MethodName":32},
        "Thread":{"Id":16,"OSId":296,"State":0,"PreemptiveGCDisabled":4,"GCHandle":304,"LastThrownObject":336,
        "LinkNext":112},"Object":{"m_pMethTab":0},"String":{"m_FirstChar":12,"m_StringLength":8},
        "SyncBlock":{"InteropInfo":56},"SyncTableEntry":{"!":16,"SyncBlock":0}"#;
    let net9 = r#","GenericsDictInfo":{"NumTypeArgs":6},"ThreadStore":{"FirstThreadLink":160}"#;
    let net10 = r#",
        "RangeSectionMap":{"TopLevelData":0},
        "RangeSectionFragment":{"RangeBegin":8,"RangeEndOpen":16,"RangeSection":24,"Next":0},
        "RangeSection":{"RangeBegin":0,"RangeEndOpen":8,"Flags":16,"R2RModule":32,"HeapList":40},
        "CodeHeapListNode":{"MapBase":32,"HeaderMap":40},
        "RealCodeHeader":{"MethodDesc":24,"NumUnwindInfos":32,"UnwindInfos":36},
        "RuntimeFunction":{"!":12},"GenericsDictInfo":{"NumDicts":4,"NumTypeArgs":6},
        "ThreadStore":{"FirstThreadLink":88}"#;
    let globals = r#""MethodDescTokenRemainderBitCount":["0xc","uint8"],"MethodDescAlignment":["0x8","uint64"],
        "ObjectToMethodTableUnmask":["0x7","uint8"],"SyncBlockValueToObjectOffset":["0x4","uint16"],
        "ThreadStore":[[2],"pointer"],"SyncTableEntries":[[3],"pointer"],"StringMethodTable":[[4],"pointer"]"#;
    match version {
        Version::Net9 => format!(
            r#"{{"version":0,"baseline":"empty","types":{{{common}{net9}}},
            "globals":{{{globals}}},"contracts":{{"DacStreams":1,"EcmaMetadata":1,"Exception":1,"Loader":1,
            "Object":1,"RuntimeTypeSystem":1,"Thread":1}}}}"#
        ),
        Version::Net10 => format!(
            r#"{{"version":0,"baseline":"empty","types":{{{common}{net10}}},
            "globals":{{{globals},"StubCodeBlockLast":["0xf","uint8"],
            "ExecutionManagerCodeRangeMapAddress":[[1],"pointer"]}},
            "contracts":{{"EcmaMetadata":1,"ExecutionManager":2,"Loader":1,"Object":1,"RuntimeTypeSystem":1,
            "Thread":1}}}}"#
        ),
    }
}

/// Changes the text of the descriptor.
#[cfg(test)]
pub(crate) fn replace_json(memory: &mut TestMemory, from: &str, to: &str) {
    const MAX_BYTES: usize = 0x1000;
    let mut json = vec![0; MAX_BYTES];
    memory.read(JSON, &mut json).unwrap();
    let text = String::from_utf8(json).unwrap();
    assert!(text.contains(from), "{text}");
    let changed = text.trim_end_matches('\0').replace(from, to);
    memory.write(JSON, &[0; MAX_BYTES]);
    memory.write(JSON, changed.as_bytes());
    memory.write_u32(DESCRIPTOR + 12, changed.len() as u32);
}

fn write_descriptor(memory: &mut TestMemory, version: Version) {
    let json = json(version);
    memory.write(DESCRIPTOR, b"DNCCDAC\0");
    memory.write_u32(DESCRIPTOR + 8, 1);
    memory.write_u32(DESCRIPTOR + 12, json.len() as u32);
    memory.write_u64(DESCRIPTOR + 16, JSON);
    memory.write_u32(DESCRIPTOR + 24, 5);
    memory.write_u64(DESCRIPTOR + 32, POINTERS);
    memory.write(JSON, json.as_bytes());
    memory.write_u64(POINTERS + 8, CODE_MAP);
    for (pointer, variable) in [(2, THREAD_STORE), (3, MONITOR_TABLE), (4, STRING_TYPE)] {
        memory.write_u64(POINTERS + 8 * pointer, variable);
    }
    memory.write_u64(DAC_TABLE, CODE_MAP);
}

fn write_code_map(memory: &mut TestMemory) {
    for (level, shift) in (0..).zip([49, 41, 33, 25, 17]) {
        let next = if level == 4 { FRAGMENT } else { CODE_MAP + (level + 1) * LEVEL_BYTES };
        memory.write_u64(CODE_MAP + level * LEVEL_BYTES + (CODE >> shift & 0xff) * 8, next | 1);
    }
    // A fragment of another range is in front.
    let other = FRAGMENT + 0x100;
    memory.write_u64(FRAGMENT, other);
    memory.write_u64(FRAGMENT + 8, CODE + CODE_BYTES);
    memory.write_u64(FRAGMENT + 16, CODE + 2 * CODE_BYTES);
    memory.write_u64(other + 8, CODE);
    memory.write_u64(other + 16, CODE + CODE_BYTES);
    memory.write_u64(other + 24, SECTION);
    memory.write_u64(SECTION, CODE);
    memory.write_u64(SECTION + 8, CODE + CODE_BYTES);
    memory.write_u32(SECTION + 16, 2);
    memory.write_u64(SECTION + 40, HEAP);
    memory.write_u64(HEAP + 32, CODE);
    memory.write_u64(HEAP + 40, NIBBLE_MAP);
}

fn write_code(memory: &mut TestMemory, method: u64) {
    let start = code_of(method);
    // Bucket 2 of the unit of the method, word 2.
    memory.write_u32(NIBBLE_MAP + (start - CODE) / 256 * 4, 3 << (28 - 4 * 2));
    if method == STUB {
        memory.write_u64(start - 8, 5);
        // mov rax, [rdi]; mov rax, [rax + 0x40]; jmp [rax + 0x38]
        memory.write(start, &[0x48, 0x8b, 0x07, 0x48, 0x8b, 0x40, 0x40, 0xff, 0x60, 0x38]);
        return;
    }
    let header = header_of(method);
    memory.write_u64(start - 8, header);
    memory.write_u64(header + 24, method_desc_of(method));
    memory.write_u32(header + 32, 2);
    let relative = (start - CODE) as u32;
    let handler = relative + METHOD_BYTES as u32;
    let functions = [
        [relative, handler, UNWIND_INFO as u32],
        [handler, handler + HANDLER_BYTES as u32, UNWIND_INFO as u32],
    ];
    for (at, word) in (header + 36..).step_by(4).zip(functions.into_iter().flatten()) {
        memory.write_u32(at, word);
    }
    memory.write(CODE + UNWIND_INFO, &[1, 4, 1, 0]);
}

/// What a method is.
#[derive(Clone, Copy)]
enum Kind {
    Metadata { row: u16, instantiated: bool },
    Dynamic,
}

fn write_method(memory: &mut TestMemory, method: u64, kind: Kind, of: u64) {
    let address = method_desc_of(method);
    // Each method is the third of its chunk: eight bytes times two.
    let chunk = address - 24 - 2 * 8;
    memory.write(address + 2, &[2]);
    memory.write_u64(chunk, type_of(of));
    match kind {
        Kind::Metadata { row, instantiated } => {
            memory.write_u16(chunk + 18, 0xf000);
            memory.write_u16(address, 0xa000 | row);
            memory.write_u16(address + 6, if instantiated { 5 } else { 0 });
        }
        Kind::Dynamic => {
            memory.write_u16(address + 6, 7);
            memory.write_u64(address + 16, STRINGS);
            memory.write_u64(address + 32, STRINGS + 0x100);
            // static void (int32, a type of the runtime)
            memory.write(STRINGS, &[0, 2, 1, 8, 0x21, 1, 2, 3, 4, 5, 6, 7, 8]);
            memory.write_u32(address + 24, 13);
            memory.write_u32(address + 28, 0x4800);
            memory.write(STRINGS + 0x100, b"made;method\0");
        }
    }
}

fn write_types(memory: &mut TestMemory) {
    for (index, row, flags) in [(OUTER, 2, 0), (INNER, 3, 0x10), (INT32, 4, 0)] {
        memory.write_u32(type_of(index), flags);
        memory.write_u32(type_of(index) + 8, row << 8);
        memory.write_u64(type_of(index) + 24, MODULE);
    }
    // Two dictionaries; the numbers are in front of the table of dictionaries.
    let dictionaries = TYPES + 0x1000;
    memory.write_u64(type_of(INNER) + 48, dictionaries);
    memory.write_u16(dictionaries - 8 + 4, 2);
    memory.write_u16(dictionaries - 8 + 6, 2);
    memory.write_u64(dictionaries + 8, dictionaries + 0x100);
    memory.write_u64(dictionaries + 0x100, type_of(OUTER));
    memory.write_u64(dictionaries + 0x108, type_of(INT32));
}

fn write_module(memory: &mut TestMemory, place: Place) {
    const SECTION_ADDRESS: u64 = 0x2000;
    const SECTION_OFFSET: u64 = 0x200;
    let path: Vec<u8> = "/app/Test.dll\0".encode_utf16().flat_map(u16::to_le_bytes).collect();
    memory.write(STRINGS + 0x200, &path);
    memory.write_u64(MODULE + 200, STRINGS + 0x200);
    let metadata = metadata();
    if place == Place::Buffer {
        memory.write_u64(MODULE + 840, IMAGE);
        memory.write_u32(IMAGE, metadata.len() as u32);
        memory.write(IMAGE + 4, &metadata);
        return;
    }
    memory.write_u64(MODULE + 840, 0);
    memory.write_u64(MODULE + 224, IMAGE);
    memory.write(IMAGE, b"MZ");
    memory.write_u32(IMAGE + 0x3c, 0x40);
    memory.write(IMAGE + 0x40, b"PE\0\0");
    memory.write_u16(IMAGE + 0x44, 0x8664);
    memory.write_u16(IMAGE + 0x46, 1);
    memory.write_u16(IMAGE + 0x54, 240);
    let optional = IMAGE + 0x58;
    memory.write_u16(optional, 0x20b);
    memory.write_u32(optional + 108, 16);
    memory.write_u32(optional + 112 + 14 * 8, SECTION_ADDRESS as u32);
    memory.write_u32(optional + 112 + 14 * 8 + 4, 72);
    let section = optional + 240;
    memory.write_u32(section + 8, 0x1000);
    memory.write_u32(section + 12, SECTION_ADDRESS as u32);
    memory.write_u32(section + 16, 0x1000);
    memory.write_u32(section + 20, SECTION_OFFSET as u32);
    let content = IMAGE + if place == Place::FlatImage { SECTION_OFFSET } else { SECTION_ADDRESS };
    memory.write_u32(content, 72);
    memory.write_u32(content + 8, SECTION_ADDRESS as u32 + 0x48);
    memory.write_u32(content + 12, metadata.len() as u32);
    memory.write(content + 0x48, &metadata);
}

/// Strings of the metadata, and the offset of one of them.
const NAMES: &str = "\0Test.dll\0Test\0<Module>\0N\0Outer\0Inner`2\0System\0Int32\0Run\0Get\0";

fn name(text: &str) -> u16 {
    NAMES.find(&format!("\0{text}\0")).map_or(0, |at| at as u16 + 1)
}

/// The metadata of the module: `N.Outer` with `Run`, `N.Outer+Inner`2` with `Get`, and `System.Int32`.
fn metadata() -> Vec<u8> {
    const BLOBS: &[u8] = &[0, 4, 0, 1, 1, 8, 6, 0x20, 1, 0x13, 0, 0x12, 8];
    let mut tables = vec![0, 0, 0, 0, 2, 0, 0, 1];
    let present: u64 = 1 | 1 << 2 | 1 << 6 | 1 << 0x20 | 1 << 0x29;
    tables.extend(present.to_le_bytes());
    tables.extend([0; 8]);
    for rows in [1_u32, 4, 2, 1, 1] {
        tables.extend(rows.to_le_bytes());
    }
    let mut put = |words: &[u16]| words.iter().for_each(|word| tables.extend(word.to_le_bytes()));
    put(&[0, name("Test.dll"), 1, 0, 0]);
    for (own, namespace, first_method) in
        [("<Module>", "", 1), ("Outer", "N", 1), ("Inner`2", "", 2), ("Int32", "System", 3)]
    {
        put(&[0, 0, name(own), name(namespace), 0, 1, first_method]);
    }
    put(&[0, 0, 0, 0, name("Run"), 1, 1]);
    put(&[0, 0, 0, 0, name("Get"), 6, 1]);
    put(&[0, 0, 0, 0, 0, 0, 0, 0, 0, name("Test"), 0]);
    put(&[3, 2]);
    let streams: [(&[u8], &[u8]); 4] = [
        (b"#~\0\0", &tables),
        (b"#Strings\0\0\0\0", NAMES.as_bytes()),
        (b"#Blob\0\0\0", BLOBS),
        (b"#GUID\0\0\0", &[7; 16]),
    ];
    let mut root = b"BSJB\x01\0\x01\0\0\0\0\0\x0c\0\0\0v4.0.30319\0\0\0\0\x04\0".to_vec();
    let mut offset = root.len() + streams.iter().map(|(name, _)| 8 + name.len()).sum::<usize>();
    for (name, content) in streams {
        root.extend((offset as u32).to_le_bytes());
        root.extend((content.len() as u32).to_le_bytes());
        root.extend(name);
        offset += content.len();
    }
    streams.iter().for_each(|(_, content)| root.extend(*content));
    root
}
