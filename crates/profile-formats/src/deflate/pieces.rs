//! Deflate by several threads: pieces are compressed in parallel and written in order.
//!
//! Each piece ends at a byte boundary and has no reference to earlier pieces, so that their concatenation is one stream.

use std::{
    collections::VecDeque,
    io::{self, Write},
    mem,
    thread::{self, Scope, ScopedJoinHandle},
};

use flate2::{Compress, Compression, FlushCompress};
use zlib_rs::crc32::crc32_combine;

use super::{END, Packed, append, crc32};

/// Large enough that the cost of a thread and of missing back references is small.
const PIECE_BYTES: usize = 2 << 20;

/// Pieces in flight: the producer of the text is hardly faster than this many threads.
const MAX_PIECES: usize = 4;

/// Compresses the data that `make` writes.
pub(crate) fn pack<W: Write>(
    level: Compression,
    to: W,
    make: impl FnOnce(&mut Packer<'_, '_, W>) -> io::Result<()>,
) -> io::Result<Packed> {
    thread::scope(|scope| {
        let mut packer = Packer {
            scope,
            level,
            to,
            piece: Piece::default(),
            begun: VecDeque::new(),
            spare: Vec::new(),
            written: Packed::default(),
        };
        make(&mut packer)?;
        packer.finish()
    })
}

/// Compresses written data by pieces.
pub(crate) struct Packer<'scope, 'env, W> {
    scope: &'scope Scope<'scope, 'env>,
    level: Compression,
    to: W,
    /// The incomplete piece.
    piece: Piece,
    /// Pieces that are being compressed, in order.
    begun: VecDeque<ScopedJoinHandle<'scope, io::Result<Piece>>>,
    /// Written pieces, whose memory is reused.
    spare: Vec<Piece>,
    written: Packed,
}

impl<W: Write> Write for Packer<'_, '_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.piece.data.extend_from_slice(bytes);
        if self.piece.data.len() >= PIECE_BYTES {
            self.start_piece()?;
        }
        Ok(bytes.len())
    }

    /// Does nothing: only the last piece is smaller.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<W: Write> Packer<'_, '_, W> {
    /// Starts the compression of the piece.
    fn start_piece(&mut self) -> io::Result<()> {
        if self.begun.len() == MAX_PIECES {
            self.write_oldest()?;
        }
        let mut next = self.spare.pop().unwrap_or_default();
        next.data.clear();
        let (level, piece) = (self.level, mem::replace(&mut self.piece, next));
        self.begun.push_back(thread::Builder::new().spawn_scoped(self.scope, move || piece.packed(level))?);
        Ok(())
    }

    fn finish(mut self) -> io::Result<Packed> {
        self.start_piece()?;
        while !self.begun.is_empty() {
            self.write_oldest()?;
        }
        self.to.write_all(&END)?;
        Ok(self.written)
    }

    fn write_oldest(&mut self) -> io::Result<()> {
        let Some(oldest) = self.begun.pop_front() else { return Ok(()) };
        let piece = oldest.join().map_err(|_| io::Error::other("a thread that packs failed"))??;
        self.to.write_all(&piece.packed)?;
        self.written.crc32 = crc32_combine(self.written.crc32, piece.crc32, piece.data.len() as u64);
        self.written.data_bytes += piece.data.len() as u64;
        self.spare.push(piece);
        Ok(())
    }
}

#[derive(Default)]
struct Piece {
    data: Vec<u8>,
    packed: Vec<u8>,
    crc32: u32,
}

impl Piece {
    fn packed(mut self, level: Compression) -> io::Result<Self> {
        self.packed.clear();
        append(&mut Compress::new(level, false), &self.data, FlushCompress::Sync, &mut self.packed)?;
        self.crc32 = crc32(0, &self.data);
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::DeflateDecoder;

    use super::*;
    use profiler_profile::test_profile::noise;

    const LEVEL: Compression = Compression::fast();

    #[test]
    fn decompression_inverts_compression_for_any_size() {
        let text = b"what repeats ".repeat(PIECE_BYTES);
        let noise = noise(2 * PIECE_BYTES + 5);
        let one_more = &noise[..=PIECE_BYTES];
        for data in [&b""[..], b"x", one_more, &one_more[1..], &noise, &text] {
            let (mut stream, mut unpacked) = (Vec::new(), Vec::new());
            let packed =
                pack(LEVEL, &mut stream, |to| data.chunks(9_999).try_for_each(|part| to.write_all(part)));
            DeflateDecoder::new(&*stream).read_to_end(&mut unpacked).unwrap();
            assert!(unpacked == data, "{} bytes", data.len());
            let expected = Packed { crc32: crc32fast::hash(data), data_bytes: data.len() as u64 };
            assert_eq!(packed.unwrap(), expected);
            // The fastest level uses fixed codes: uniformly distributed bytes take more than eight bits.
            assert!(stream.len() <= data.len() + data.len() / 10 + 100, "{} bytes", stream.len());
        }
    }

    #[test]
    fn a_write_error_ends_compression() {
        let is_full = |result: io::Result<Packed>| result.unwrap_err().kind() == io::ErrorKind::StorageFull;
        assert!(is_full(pack(LEVEL, Vec::new(), |_| Err(io::ErrorKind::StorageFull.into()))));
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        for pieces in [0, 1, 2 * MAX_PIECES] {
            assert!(is_full(pack(LEVEL, Full, |to| to.write_all(&vec![0; PIECE_BYTES * pieces]))));
        }
    }
}
