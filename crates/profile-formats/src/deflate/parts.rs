//! Deflate of data with repeated parts: each distinct part is compressed once and copied for each occurrence.
//!
//! A compressed part has no back references and ends at a byte boundary, so it can be placed anywhere. The checksum of
//! the whole is combined from those of the parts.

use std::{
    io::{self, Write},
    num::NonZero,
    thread,
};

use flate2::{Compress, Compression, FlushCompress};
use zlib_rs::crc32::{crc32_combine_gen, crc32_combine_op};

use super::{END, Packed, append, crc32};

/// Each part clears a table of 128 KiB at any level; the fastest level suits data as short as a stack.
const LEVEL: Compression = Compression::fast();

/// Compression threads.
const MAX_THREADS: usize = 4;

/// A compressed part.
pub(crate) struct Part {
    packed: Box<[u8]>,
    data: Packed,
    /// Combines its checksum with that of the data before it.
    shift: u32,
}

/// Compresses parts; `make` appends the data of the part with an index.
pub(crate) fn pack(count: usize, make: impl Fn(usize, &mut Vec<u8>) + Sync) -> io::Result<Vec<Part>> {
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(MAX_THREADS);
    let share = count.div_ceil(threads).max(1);
    let pack =
        |from: usize| (from..count.min(from + share)).map(packer(&make)).collect::<io::Result<Vec<_>>>();
    thread::scope(|scope| {
        let begin = |from| thread::Builder::new().spawn_scoped(scope, move || pack(from));
        let begun = (0..count).step_by(share).map(begin).collect::<io::Result<Vec<_>>>()?;
        let mut parts = Vec::with_capacity(count);
        for thread in begun {
            parts.extend(thread.join().map_err(|_| io::Error::other("a thread that packs failed"))??);
        }
        Ok(parts)
    })
}

fn packer(make: impl Fn(usize, &mut Vec<u8>)) -> impl FnMut(usize) -> io::Result<Part> {
    let mut deflate = Compress::new(LEVEL, false);
    let (mut data, mut packed) = (Vec::new(), Vec::new());
    move |index| {
        data.clear();
        packed.clear();
        make(index, &mut data);
        append(&mut deflate, &data, FlushCompress::Full, &mut packed)?;
        let data_bytes = data.len() as u64;
        Ok(Part {
            packed: packed.as_slice().into(),
            data: Packed { crc32: crc32(0, &data), data_bytes },
            shift: crc32_combine_gen(data_bytes),
        })
    }
}

/// Writes a stream of repeated parts and of data that occurs once.
pub(crate) struct Stream<W> {
    to: W,
    written: Packed,
}

impl<W: Write> Stream<W> {
    pub(crate) fn new(to: W) -> Self {
        Self { to, written: Packed::default() }
    }

    /// Writes data uncompressed.
    pub(crate) fn store(&mut self, data: &[u8]) -> io::Result<()> {
        for block in data.chunks(usize::from(u16::MAX)) {
            let length = block.len() as u16;
            let [[a, b], [c, d]] = [length, !length].map(u16::to_le_bytes);
            self.to.write_all(&[0, a, b, c, d])?;
            self.to.write_all(block)?;
        }
        self.written.crc32 = crc32(self.written.crc32, data);
        self.written.data_bytes += data.len() as u64;
        Ok(())
    }

    /// Writes a part.
    pub(crate) fn part(&mut self, part: &Part) -> io::Result<()> {
        self.to.write_all(&part.packed)?;
        self.written.crc32 = crc32_combine_op(self.written.crc32, part.data.crc32, part.shift);
        self.written.data_bytes += part.data.data_bytes;
        Ok(())
    }

    pub(crate) fn finish(mut self) -> io::Result<Packed> {
        self.to.write_all(&END)?;
        Ok(self.written)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::DeflateDecoder;

    use super::*;
    use profiler_profile::test_profile::noise;

    #[test]
    fn parts_repeat_in_any_order() {
        let mut parts: Vec<Vec<u8>> =
            (0..100).map(|number| format!("part {number}\n").repeat(number).into()).collect();
        parts.extend([noise(1), noise(300_000), b"what repeats ".repeat(30_000)]);
        let packed = pack(parts.len(), |index, data| data.extend_from_slice(&parts[index])).unwrap();
        assert_eq!(packed.len(), parts.len());
        let mut to = Vec::new();
        let mut stream = Stream::new(&mut to);
        let mut expected = Vec::new();
        for index in (0..parts.len()).rev().chain(0..parts.len()).chain([7, 7]) {
            let head = noise(if index == 9 { 100_000 } else { index });
            stream.store(&head).unwrap();
            stream.part(&packed[index]).unwrap();
            expected.extend_from_slice(&head);
            expected.extend_from_slice(&parts[index]);
        }
        let said = stream.finish().unwrap();
        let mut unpacked = Vec::new();
        DeflateDecoder::new(&*to).read_to_end(&mut unpacked).unwrap();
        assert!(unpacked == expected);
        assert_eq!(said, Packed { crc32: crc32fast::hash(&expected), data_bytes: expected.len() as u64 });
    }

    #[test]
    fn a_stream_without_parts_is_empty() {
        assert!(pack(0, |_, _| unreachable!("there is no part")).unwrap().is_empty());
        let mut to = Vec::new();
        assert_eq!(Stream::new(&mut to).finish().unwrap(), Packed::default());
        let mut unpacked = Vec::new();
        assert_eq!(DeflateDecoder::new(&*to).read_to_end(&mut unpacked).unwrap(), 0);
    }
}
