//! Deflate (RFC 1951), for text of which there may be gigabytes: by several threads, or each part that comes again only
//! once.

pub(super) mod parts;
pub(super) mod pieces;

use std::io;

use crc32fast::Hasher;
use flate2::{Compress, FlushCompress};

/// What a stream ends with: a last block, without data.
const END: [u8; 2] = [3, 0];

/// What was packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Packed {
    pub(super) crc32: u32,
    pub(super) data_bytes: u64,
}

/// The checksum of all before data, and of them.
fn crc32(before: u32, data: &[u8]) -> u32 {
    let mut hasher = Hasher::new_with_initial(before);
    hasher.update(data);
    hasher.finalize()
}

/// Appends all of the data to what is packed, up to the end of a byte. With [`FlushCompress::Full`], what comes next refers
/// to nothing in it.
fn append(deflate: &mut Compress, data: &[u8], flush: FlushCompress, packed: &mut Vec<u8>) -> io::Result<()> {
    /// More room than the end takes.
    const ROOM_BYTES: usize = 1 << 10;
    let begin = deflate.total_in();
    loop {
        packed.reserve(data.len() / 4 + ROOM_BYTES);
        let taken = usize::try_from(deflate.total_in() - begin).unwrap_or(usize::MAX);
        deflate.compress_vec(data.get(taken..).unwrap_or_default(), packed, flush)?;
        // Room that is left says that there was nothing more to write.
        if packed.len() < packed.capacity() {
            return Ok(());
        }
    }
}
