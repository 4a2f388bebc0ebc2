//! Deflate by several threads: pieces of the data are packed beside each other, and written in their order.
//!
//! Each piece ends at a whole byte and refers to nothing in those before it, so that together they are one stream.

use std::{
    collections::VecDeque,
    io::{self, Write},
    mem,
    thread::{self, Scope, ScopedJoinHandle},
};

use crc32fast::Hasher;
use flate2::{Compress, Compression, FlushCompress};

/// So large that neither a thread for each nor that it refers to nothing before it matters.
const PIECE_BYTES: usize = 2 << 20;

/// Pieces that are packed at a time: what is packed is hardly made faster than by so many.
const MAX_PIECES: usize = 4;

/// What a stream ends with: a last block, without data.
const END: [u8; 2] = [3, 0];

/// What was packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packed {
    pub(super) crc32: u32,
    pub(super) data_bytes: u64,
}

/// Packs what `make` writes.
pub(super) fn pack<W: Write>(
    to: W,
    make: impl FnOnce(&mut Packer<'_, '_, W>) -> io::Result<()>,
) -> io::Result<Packed> {
    thread::scope(|scope| {
        let mut packer = Packer {
            scope,
            to,
            piece: Piece::default(),
            begun: VecDeque::new(),
            spare: Vec::new(),
            checksum: Hasher::new(),
        };
        make(&mut packer)?;
        packer.finish()
    })
}

/// Takes data, and writes it packed.
pub(super) struct Packer<'scope, 'env, W> {
    scope: &'scope Scope<'scope, 'env>,
    to: W,
    /// What is not a whole one yet.
    piece: Piece,
    /// Those that are being packed, in their order.
    begun: VecDeque<ScopedJoinHandle<'scope, io::Result<Piece>>>,
    /// Those that were written, for their memory.
    spare: Vec<Piece>,
    checksum: Hasher,
}

impl<W: Write> Write for Packer<'_, '_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.piece.data.extend_from_slice(bytes);
        if self.piece.data.len() >= PIECE_BYTES {
            self.begin()?;
        }
        Ok(bytes.len())
    }

    /// Only the end is worth a smaller piece.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<W: Write> Packer<'_, '_, W> {
    /// Has the piece packed as it is.
    fn begin(&mut self) -> io::Result<()> {
        if self.begun.len() == MAX_PIECES {
            self.write_oldest()?;
        }
        let next = self.spare.pop().unwrap_or_default();
        let piece = mem::replace(&mut self.piece, next);
        self.begun.push_back(thread::Builder::new().spawn_scoped(self.scope, || piece.packed())?);
        Ok(())
    }

    fn finish(mut self) -> io::Result<Packed> {
        self.begin()?;
        while !self.begun.is_empty() {
            self.write_oldest()?;
        }
        self.to.write_all(&END)?;
        Ok(Packed { data_bytes: self.checksum.total_len(), crc32: self.checksum.finalize() })
    }

    fn write_oldest(&mut self) -> io::Result<()> {
        let Some(oldest) = self.begun.pop_front() else { return Ok(()) };
        let piece = oldest.join().map_err(|_| io::Error::other("a thread that packs failed"))??;
        self.to.write_all(&piece.packed)?;
        self.checksum.combine(&piece.checksum);
        self.spare.push(piece);
        Ok(())
    }
}

#[derive(Default)]
struct Piece {
    data: Vec<u8>,
    packed: Vec<u8>,
    checksum: Hasher,
}

impl Piece {
    /// Packs the data and forgets it.
    fn packed(mut self) -> io::Result<Self> {
        /// The fastest level: this is for gigabytes of what repeats.
        const LEVEL: Compression = Compression::fast();
        /// More room than the end of a piece takes.
        const ROOM_BYTES: usize = 1 << 16;
        self.packed.clear();
        let mut deflate = Compress::new(LEVEL, false);
        let mut is_whole = false;
        while !is_whole {
            self.packed.reserve(ROOM_BYTES);
            let rest = self.data.get(position(deflate.total_in())..).unwrap_or_default();
            deflate.compress_vec(rest, &mut self.packed, FlushCompress::Sync)?;
            // Room that is left says that there was nothing more to write.
            is_whole = self.packed.len() < self.packed.capacity();
        }
        self.checksum = Hasher::new();
        self.checksum.update(&self.data);
        self.data.clear();
        Ok(self)
    }
}

fn position(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::DeflateDecoder;

    use super::*;

    /// Bytes that hardly repeat (Knuth's constants of a linear congruential generator).
    fn noise(bytes: usize) -> Vec<u8> {
        let mut state = 1_u64;
        let next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        std::iter::repeat_with(next).take(bytes).collect()
    }

    #[test]
    fn what_is_unpacked_is_what_was_packed_whatever_its_size() {
        let text = b"what repeats ".repeat(PIECE_BYTES);
        let noise = noise(2 * PIECE_BYTES + 5);
        let one_more = &noise[..=PIECE_BYTES];
        for data in [&b""[..], b"x", one_more, &one_more[1..], &noise, &text] {
            let (mut stream, mut unpacked) = (Vec::new(), Vec::new());
            let packed = pack(&mut stream, |to| data.chunks(9_999).try_for_each(|part| to.write_all(part)));
            DeflateDecoder::new(&*stream).read_to_end(&mut unpacked).unwrap();
            assert!(unpacked == data, "{} bytes", data.len());
            let expected = Packed { crc32: crc32fast::hash(data), data_bytes: data.len() as u64 };
            assert_eq!(packed.unwrap(), expected);
            // The fastest level writes codes of fixed lengths: bytes of which none is rarer take more than a byte.
            assert!(stream.len() <= data.len() + data.len() / 10 + 100, "{} bytes", stream.len());
        }
    }

    #[test]
    fn what_fails_is_said_and_ends_it() {
        let is_full = |result: io::Result<Packed>| result.unwrap_err().kind() == io::ErrorKind::StorageFull;
        assert!(is_full(pack(Vec::new(), |_| Err(io::ErrorKind::StorageFull.into()))));
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
            assert!(is_full(pack(Full, |to| to.write_all(&vec![0; PIECE_BYTES * pieces]))));
        }
    }
}
