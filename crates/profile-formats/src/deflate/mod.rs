//! Deflate (RFC 1951) for gigabytes of text: by several threads, or with each repeated part compressed once.

pub(super) mod parts;
pub(super) mod pieces;

use std::io;

use crc32fast::Hasher;
use flate2::{Compress, FlushCompress};

/// The end of a stream: a last block without data.
const END: [u8; 2] = [3, 0];

/// The result of compression.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Packed {
    pub(super) crc32: u32,
    pub(super) data_bytes: u64,
}

/// The checksum of the data so far and of further data.
fn crc32(before: u32, data: &[u8]) -> u32 {
    let mut hasher = Hasher::new_with_initial(before);
    hasher.update(data);
    hasher.finalize()
}

/// Compresses data and appends it, up to a byte boundary. With [`FlushCompress::Full`] later data does not refer to it.
fn append(deflate: &mut Compress, data: &[u8], flush: FlushCompress, packed: &mut Vec<u8>) -> io::Result<()> {
    /// More than the end of a block takes.
    const ROOM_BYTES: usize = 1 << 10;
    let begin = deflate.total_in();
    loop {
        packed.reserve(data.len() / 4 + ROOM_BYTES);
        let taken = usize::try_from(deflate.total_in() - begin).unwrap_or(usize::MAX);
        deflate.compress_vec(data.get(taken..).unwrap_or_default(), packed, flush)?;
        // Unused output space means that all input was written.
        if packed.len() < packed.capacity() {
            return Ok(());
        }
    }
}
