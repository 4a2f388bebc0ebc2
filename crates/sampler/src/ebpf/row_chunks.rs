//! Chunks of unwind rows: arrays that are inserted into an array of maps.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    thread::JoinHandle,
};

use profiler_common::unwind::{ROWS_PER_CHUNK, Row};

use crate::sys::bpf::{self, MapShape};

/// Creates a chunk. The kernel accepts only arrays of equal shape into one array of maps.
pub(super) fn create_chunk() -> io::Result<OwnedFd> {
    /// `BPF_MAP_TYPE_ARRAY`, `BPF_F_MMAPABLE` of `include/uapi/linux/bpf.h`.
    const MAP_TYPE_ARRAY: u32 = 2;
    const MAPPABLE: u32 = 1 << 10;
    let shape = MapShape {
        map_type: MAP_TYPE_ARRAY,
        key_bytes: 4,
        value_bytes: ROWS_PER_CHUNK * size_of::<Row>() as u32,
        max_entries: 1,
        flags: MAPPABLE,
    };
    bpf::create_map("ROWS", shape, None)
}

/// Inserts a chunk. Returns after an RCU grace period (`maybe_wait_bpf_programs`, `kernel/bpf/syscall.c`), which takes some
/// milliseconds.
pub(super) fn insert_chunk(rows: BorrowedFd<'_>, index: usize, chunk: BorrowedFd<'_>) -> io::Result<()> {
    let key = u32::try_from(index).map_err(io::Error::other)?;
    bpf::update_element(rows, &key.to_ne_bytes(), &chunk.as_raw_fd().to_ne_bytes())
}

/// Creates chunks and inserts them from an index on, in one RCU grace period: as many as are wanted, or a single one where
/// the kernel cannot insert several maps together (before Linux 5.19).
pub(super) fn add_chunks(rows: BorrowedFd<'_>, index: usize, wanted: usize) -> io::Result<Vec<OwnedFd>> {
    let mut chunks = (0..wanted).map(|_| create_chunk()).collect::<io::Result<Vec<_>>>()?;
    let first = u32::try_from(index).map_err(io::Error::other)?;
    let elements: Vec<_> =
        (first..).zip(&chunks).map(|(key, chunk)| (key, chunk.as_raw_fd().cast_unsigned())).collect();
    if bpf::update_elements(rows, &elements).is_err() {
        chunks.truncate(1);
        chunks.iter().try_for_each(|chunk| insert_chunk(rows, index, chunk.as_fd()))?;
    }
    Ok(chunks)
}

/// The first chunks, which a thread inserts while the programs are loaded. Dropping it does not wait for the thread.
#[derive(Debug)]
pub(super) struct FirstChunks(JoinHandle<io::Result<Vec<OwnedFd>>>);

impl FirstChunks {
    pub(super) fn start_inserting(rows: OwnedFd, wanted: usize) -> io::Result<Self> {
        let insert = move || add_chunks(rows.as_fd(), 0, wanted);
        std::thread::Builder::new().name("first-chunks".to_owned()).spawn(insert).map(Self)
    }

    /// Waits until the chunks are inserted.
    pub(super) fn wait(self) -> io::Result<Vec<OwnedFd>> {
        self.0.join().map_err(|_| io::Error::other("the thread that inserts chunks panicked"))?
    }
}
