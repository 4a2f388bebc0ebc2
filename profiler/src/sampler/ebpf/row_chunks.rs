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

/// The first chunk, which a thread inserts while the programs are loaded. Dropping it does not wait for the thread.
#[derive(Debug)]
pub(super) struct FirstChunk(JoinHandle<io::Result<OwnedFd>>);

impl FirstChunk {
    pub(super) fn start_inserting(rows: OwnedFd) -> io::Result<Self> {
        let insert = move || {
            let chunk = create_chunk()?;
            insert_chunk(rows.as_fd(), 0, chunk.as_fd())?;
            Ok(chunk)
        };
        std::thread::Builder::new().name("first-chunk".to_owned()).spawn(insert).map(Self)
    }

    /// Waits until the chunk is inserted.
    pub(super) fn wait(self) -> io::Result<OwnedFd> {
        self.0.join().map_err(|_| io::Error::other("the thread that inserts a chunk panicked"))?
    }
}
