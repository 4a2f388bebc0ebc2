//! Creates unwind maps for tests, and looks addresses up in them as the unwinder does.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

use profiler_common::unwind::{
    FileSegment, MAX_MAPPINGS, MAX_PAGES, MAX_PROCESSES, MAX_ROW_CHUNKS, MAX_RULES, MAX_SEGMENTS,
    MappingEntry, PAGE_BITS, PageEntry, ProcessEntry, ROWS_PER_CHUNK, Row, Rule, SegmentTable,
};
use profiler_processes::Pid;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{
    row_chunks::create_chunk,
    unwind_maps::{UnwindMapFds, UnwindMaps},
};
use crate::sys::bpf::{self, MapShape};

/// The environment variable that makes a privileged test fail instead of being skipped.
const REQUIRED: &str = "PROFILER_REQUIRE_PRIVILEGED";

/// `enum bpf_map_type` of `include/uapi/linux/bpf.h`.
const HASH: u32 = 1;
const ARRAY: u32 = 2;
const ARRAY_OF_MAPS: u32 = 12;
/// `BPF_F_MMAPABLE`.
const MAPPABLE: u32 = 1 << 10;

/// Creates empty maps. `None`, with a notice, where this user has no permission.
#[expect(clippy::print_stderr, reason = "a test that cannot run says why")]
#[must_use]
pub fn unwind_maps() -> Option<UnwindMaps> {
    match create() {
        Ok(maps) => Some(UnwindMaps::new(maps, None, false)),
        Err(error) => {
            assert!(error.kind() == io::ErrorKind::PermissionDenied, "{error}");
            assert!(std::env::var_os(REQUIRED).is_none(), "a privileged test cannot run: {error}");
            eprintln!("skipped, a privileged test cannot run: {error}");
            None
        }
    }
}

fn create() -> io::Result<UnwindMapFds> {
    let array_of = |bytes: usize| MapShape {
        map_type: ARRAY,
        key_bytes: 4,
        value_bytes: u32::try_from(bytes).unwrap(),
        max_entries: 1,
        flags: MAPPABLE,
    };
    let create_array = |name, bytes| bpf::create_map(name, array_of(bytes), None);
    let value_bytes = u32::try_from(size_of::<ProcessEntry>()).unwrap();
    let processes =
        MapShape { map_type: HASH, key_bytes: 4, value_bytes, max_entries: MAX_PROCESSES, flags: 0 };
    let segments = MapShape {
        map_type: HASH,
        key_bytes: u32::try_from(size_of::<FileSegment>()).unwrap(),
        value_bytes: u32::try_from(size_of::<SegmentTable>()).unwrap(),
        max_entries: MAX_SEGMENTS,
        flags: 0,
    };
    let rows = MapShape {
        map_type: ARRAY_OF_MAPS,
        key_bytes: 4,
        value_bytes: 4,
        max_entries: MAX_ROW_CHUNKS,
        flags: 0,
    };
    Ok(UnwindMapFds {
        processes: bpf::create_map("PROCESSES", processes, None)?,
        segments: bpf::create_map("SEGMENTS", segments, None)?,
        mappings: create_array("MAPPINGS", MAX_MAPPINGS as usize * size_of::<MappingEntry>())?,
        pages: create_array("UNWIND_PAGES", MAX_PAGES as usize * size_of::<PageEntry>())?,
        rules: create_array("UNWIND_RULES", MAX_RULES as usize * size_of::<Rule>())?,
        rows: bpf::create_map("UNWIND_ROWS", rows, Some(create_chunk()?.as_fd()))?,
    })
}

/// A snapshot of the maps.
#[derive(Debug)]
pub struct Contents {
    mappings: Vec<MappingEntry>,
    pages: Vec<PageEntry>,
    rules: Vec<Rule>,
    chunks: Vec<Vec<Row>>,
}

impl Contents {
    pub(super) fn read<'a>(maps: &UnwindMapFds, chunks: impl Iterator<Item = &'a OwnedFd>) -> Self {
        Self {
            mappings: read(&maps.mappings, MAX_MAPPINGS),
            pages: read(&maps.pages, MAX_PAGES),
            rules: read(&maps.rules, MAX_RULES),
            chunks: chunks.map(|chunk| read(chunk, ROWS_PER_CHUNK)).collect(),
        }
    }

    /// The mappings of a process.
    #[must_use]
    pub fn mappings(&self, process: ProcessEntry) -> &[MappingEntry] {
        let first = process.first_mapping as usize;
        &self.mappings[first..first + process.mappings as usize]
    }

    /// The unwind rule for an address in a mapping.
    #[must_use]
    pub fn rule(&self, mapping: &MappingEntry, address: u64) -> Rule {
        let address = address.wrapping_sub(mapping.bias);
        let page = ((address >> PAGE_BITS) as u32).wrapping_sub(mapping.first_page);
        if page >= mapping.pages {
            return Rule::default();
        }
        let page = self.pages[(mapping.page_entry + page) as usize];
        if page.rows == 0 {
            return Rule::default();
        }
        let first = page.first_row as usize;
        let rows = &self.chunks[usize::from(page.chunk)][first..first + usize::from(page.rows)];
        let offset = (address % (1 << PAGE_BITS)) as u32;
        let at = rows.partition_point(|row| row.offset() <= offset).saturating_sub(1);
        self.rules[rows[at].rule() as usize]
    }
}

/// The entry of a process in the processes map.
pub(super) fn process(processes: &OwnedFd, pid: Pid) -> Option<ProcessEntry> {
    let mut entry = ProcessEntry::default();
    let found = bpf::look_up_element(processes.as_fd(), &pid.0.to_ne_bytes(), entry.as_mut_bytes());
    found.map(|()| entry).ok()
}

/// The value of an array with one entry.
fn read<T: FromBytes + IntoBytes + Immutable + Clone>(array: &OwnedFd, length: u32) -> Vec<T> {
    let mut values = vec![T::new_zeroed(); length as usize];
    bpf::look_up_element(array.as_fd(), &0_u32.to_ne_bytes(), values.as_mut_slice().as_mut_bytes()).unwrap();
    values
}
