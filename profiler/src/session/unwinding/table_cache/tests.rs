//! Tests that tables are shared by equal sources, evicted when unused, and found by the segments of their files.

use object::elf;
use profiler_addresses::{FileOffset, RuntimeAddress};
use profiler_common::unwind::CfaRule;
use profiler_elf_symbols::test_file::TestFile;
use profiler_sampler::test_maps::unwind_maps;
use profiler_unwind_tables::test_cfi::{CODE_ADDRESS, TestCfi};

use super::*;
use crate::session::unwinding::{
    back_off::MAX_RETRY_INTERVAL,
    test_files::{debug_directories, mapped_files},
};

struct Fixture {
    tables: TableCache,
    maps: UnwindMaps,
    directory: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Option<Self> {
        let tables = TableCache::new(mapped_files(), debug_directories());
        Some(Self { tables, maps: unwind_maps()?, directory: tempfile::tempdir().unwrap() })
    }

    /// The table of a file with this name and these contents.
    fn key(&mut self, name: u32, bytes: &[u8]) -> Option<TableKey> {
        self.key_for(Tenant::Host, name, bytes)
    }

    /// The same for a tenant.
    fn key_for(&mut self, tenant: Tenant, name: u32, bytes: &[u8]) -> Option<TableKey> {
        let file = NamedFile { file: self.file(name, bytes), path: "file", tenant };
        let image = || Ok(Image::Memory(bytes.to_vec()));
        self.tables.table_for_image(&mut self.maps, file, image, &|| false).key()
    }

    /// Makes the attempts that failed earlier.
    fn advance(&mut self, time: Duration) {
        for table in self.tables.by_file.values_mut() {
            if let CachedTable::Failed(back_off) = table {
                *back_off = back_off.earlier_by(time);
            }
        }
    }

    /// The version of a file with this name, which is written once.
    fn file(&self, name: u32, bytes: &[u8]) -> TableFile {
        let path = self.directory.path().join(name.to_string());
        if !path.exists() {
            std::fs::write(&path, bytes).unwrap();
        }
        TableFile::File(FileVersion::of(&std::fs::File::open(&path).unwrap()).unwrap())
    }
}

/// A file with one function that has a frame of this size; all have the same build id.
fn file(frame_bytes: u8) -> TestFile {
    let frames = TestCfi::x86_64().function(CODE_ADDRESS, 8, &[0x0e, frame_bytes]);
    TestFile::with_code().code_segment(0, CODE_ADDRESS, 0x100).build_id(&[7; 20]).with(
        ".eh_frame",
        elf::SHT_PROGBITS,
        frames.bytes,
    )
}

#[test]
fn equal_files_share_a_table() {
    let Some(mut fixture) = Fixture::new() else { return };
    let first = fixture.key(1, &file(16).bytes());
    assert!(first.is_some());
    assert_eq!(fixture.key(2, &file(16).bytes()), first);
    assert_eq!(fixture.key(3, &file(16).with("other", elf::SHT_PROGBITS, vec![1]).bytes()), first);
    assert_eq!(fixture.tables.tables.len(), 1);
}

#[test]
fn files_with_a_copied_build_id_have_tables_of_their_own() {
    let Some(mut fixture) = Fixture::new() else { return };
    let files = [file(16), file(32), file(16).code_segment(0x1000, 0x9_0000, 0x100)];
    let keys: Vec<TableKey> =
        files.into_iter().zip(1..).map(|(file, name)| fixture.key(name, &file.bytes()).unwrap()).collect();
    assert!(keys[0] != keys[1] && keys[0] != keys[2]);
    let mapping = Mapping {
        start: RuntimeAddress(CODE_ADDRESS),
        end: RuntimeAddress(CODE_ADDRESS + 0x1000),
        offset: FileOffset(0),
        backing: Backing::Jit,
    };
    let contents = fixture.maps.contents();
    let frame_bytes = keys.iter().map(|key| {
        let rule = contents.rule(&fixture.tables.mapping_entry(*key, &mapping).unwrap(), CODE_ADDRESS);
        assert_eq!(rule.cfa, CfaRule::StackPointer as u8);
        rule.cfa_offset
    });
    assert!(frame_bytes.eq([16, 32, 16]));
}

#[test]
fn a_file_without_a_table_is_read_once() {
    let Some(mut fixture) = Fixture::new() else { return };
    assert_eq!(fixture.key(1, b"no ELF file"), None);
    let again = || panic!("the file is read again");
    let file = NamedFile { file: fixture.file(1, b"no ELF file"), path: "file", tenant: Tenant::Host };
    let table = fixture.tables.table_for_image(&mut fixture.maps, file, again, &|| false);
    assert_eq!(table, CachedTable::Absent);
}

/// So many attempts make the back-off long enough that it does not pass during a test.
const MANY_ATTEMPTS: u32 = 10;

#[test]
fn a_table_for_which_the_maps_were_full_is_built_when_they_have_capacity() {
    let Some(mut fixture) = Fixture::new() else { return };
    fixture.tables.table_capacity = SharedCapacity::new(1);
    let first = fixture.key(1, &file(16).bytes()).unwrap();
    fixture.tables.retain(first);
    for _ in 0..MANY_ATTEMPTS {
        fixture.advance(MAX_RETRY_INTERVAL);
        assert_eq!(fixture.key(2, &file(32).bytes()), None);
    }
    fixture.tables.release(&mut fixture.maps, &[first]);
    assert_eq!(fixture.key(2, &file(32).bytes()), None, "the back-off has not passed");
    fixture.advance(MAX_RETRY_INTERVAL);
    let second = fixture.key(2, &file(32).bytes());
    assert!(second.is_some() && second != Some(first));
}

#[test]
fn a_read_that_timed_out_is_repeated_after_the_back_off_and_not_before() {
    let Some(mut fixture) = Fixture::new() else { return };
    let bytes = file(16).bytes();
    let named = NamedFile { file: fixture.file(1, &bytes), path: "file", tenant: Tenant::Host };
    let times_out = || Err(ParseError::TimedOut);
    for _ in 0..MANY_ATTEMPTS {
        fixture.advance(MAX_RETRY_INTERVAL);
        let table = fixture.tables.table_for_image(&mut fixture.maps, named, times_out, &|| false);
        assert!(table.retry_at().is_some());
    }
    let early = || panic!("the file is read before the back-off has passed");
    let table = fixture.tables.table_for_image(&mut fixture.maps, named, early, &|| false);
    assert!(table.retry_at().is_some());
    fixture.advance(MAX_RETRY_INTERVAL);
    assert!(fixture.key(1, &bytes).is_some());
}

#[test]
fn a_table_larger_than_the_whole_capacity_is_not_built_again() {
    let Some(mut fixture) = Fixture::new() else { return };
    fixture.tables.byte_capacity = SharedCapacity::new(1);
    assert_eq!(fixture.key(1, &file(16).bytes()), None);
    assert!(fixture.tables.by_file.values_mut().eq([&mut CachedTable::Absent]));
}

#[test]
fn an_unused_table_is_evicted_after_a_delay() {
    let Some(mut fixture) = Fixture::new() else { return };
    let (used, unused) = (fixture.key(1, &file(16).bytes()), fixture.key(2, &file(32).bytes()));
    fixture.tables.retain(used.unwrap());
    let soon = Instant::now();
    fixture.tables.evict_unused(&mut fixture.maps, soon);
    assert!(fixture.tables.has_unused() && fixture.key(2, &file(32).bytes()) == unused);
    fixture.tables.evict_unused(&mut fixture.maps, soon + 2 * EVICTION_DELAY);
    assert!(!fixture.tables.has_unused());
    assert_ne!(fixture.key(2, &file(32).bytes()), unused, "built again");
    assert_eq!(fixture.key(1, &file(16).bytes()), used);
    fixture.tables.release(&mut fixture.maps, &[used.unwrap()]);
    fixture.tables.evict_unused(&mut fixture.maps, Instant::now() + 2 * EVICTION_DELAY);
    assert!(fixture.maps.are_empty());
}

#[test]
fn a_stopped_build_gives_no_table() {
    let Some(mut fixture) = Fixture::new() else { return };
    let image = || Ok(Image::Memory(file(16).bytes()));
    let file = NamedFile { file: TableFile::Vdso, path: "file", tenant: Tenant::Host };
    let table = fixture.tables.table_for_image(&mut fixture.maps, file, image, &|| true);
    assert_eq!(table, CachedTable::Absent);
}

#[test]
fn the_tables_of_a_container_leave_capacity_for_others() {
    const MANY_TABLES: usize = 20;
    let Some(mut fixture) = Fixture::new() else { return };
    fixture.tables.table_capacity = SharedCapacity::new(2 * MANY_TABLES);
    let mut next = 0;
    let mut installed = |fixture: &mut Fixture, tenant| {
        let keys = (0..3 * MANY_TABLES).filter_map(|_| {
            next += 1;
            let bytes = file(8 * u8::try_from(1 + next % 15).unwrap()).code_segment(
                0x1000,
                u64::from(next) << 20,
                0x100,
            );
            let key = fixture.key_for(tenant, next, &bytes.bytes())?;
            fixture.tables.retain(key);
            Some(key)
        });
        keys.count()
    };
    assert_eq!(installed(&mut fixture, Tenant::Unknown), MANY_TABLES);
    assert_eq!(installed(&mut fixture, Tenant::Host), MANY_TABLES);
}

#[test]
fn a_container_evicts_no_unused_table_of_others() {
    let Some(mut fixture) = Fixture::new() else { return };
    fixture.tables.table_capacity = SharedCapacity::new(4);
    let of_host = fixture.key_for(Tenant::Host, 1, &file(16).bytes()).unwrap();
    let of_container = fixture.key_for(Tenant::Unknown, 2, &file(24).bytes()).unwrap();
    assert!(fixture.key_for(Tenant::Unknown, 3, &file(32).bytes()).is_some());
    assert!(fixture.tables.contains(of_host) && !fixture.tables.contains(of_container));
}
