//! A file image: the bytes of a file, read with `pread` at given offsets and never mapped.
//!
//! If the owner truncates a mapped file, an access kills the reader with SIGBUS. A read only fails.

use std::{fmt, fs::File, io, os::unix::fs::FileExt, sync::Arc};

use crate::error::ParseError;

/// Strings are read in chunks of this size. Most names fit into one.
const STRING_CHUNK_BYTES: u64 = 256;

/// The longest string that is read. Compilers emit longer names, which no display can show.
const MAX_STRING_BYTES: u64 = 64 << 10;

/// Reads the bytes of an image from somewhere else than a file: from the memory of a process.
pub trait ReadAt: fmt::Debug + Send + Sync {
    /// Fills `buffer` with the bytes from `offset`.
    ///
    /// # Errors
    /// [`ParseError::Malformed`] when they cannot be read, [`ParseError::TooLarge`] when a limit is exceeded,
    /// [`ParseError::TimedOut`] when the read did not end in time.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ParseError>;
}

/// A file, or the content of a file in memory.
#[derive(Debug)]
#[non_exhaustive]
pub enum Image {
    /// An open file, or a part of one.
    File {
        /// The file.
        file: Arc<File>,
        /// The offset in the file of the image's first byte.
        start: u64,
        /// The number of bytes, as of the time when the file was opened.
        length: u64,
        /// Whether a target owns the file, and can make a read wait: then a read has a deadline.
        is_of_target: bool,
    },
    /// Bytes in memory: the vDSO, or a decompressed file.
    Memory(Vec<u8>),
    /// Bytes that another reader provides, or a part of them.
    Reader {
        /// The reader.
        reader: Arc<dyn ReadAt>,
        /// The offset of the image's first byte.
        start: u64,
        /// The number of bytes.
        length: u64,
    },
}

impl Image {
    /// The image of a whole open file.
    ///
    /// # Errors
    /// [`ParseError::Malformed`] when the metadata of the file cannot be read.
    pub fn from_file(file: impl Into<Arc<File>>) -> Result<Self, ParseError> {
        let file = file.into();
        let length = file.metadata().map_err(|_| ParseError::Malformed)?.len();
        Ok(Self::File { file, start: 0, length, is_of_target: false })
    }

    /// The image of a whole open file of a target, with its number of bytes.
    pub fn of_target(file: impl Into<Arc<File>>, length: u64) -> Self {
        Self::File { file: file.into(), start: 0, length, is_of_target: true }
    }

    /// The image of `length` bytes from `offset`: a file within the file.
    ///
    /// # Errors
    /// [`ParseError::Malformed`] when the image is shorter.
    pub fn part(&self, offset: u64, length: u64) -> Result<Self, ParseError> {
        let end =
            offset.checked_add(length).filter(|end| *end <= self.length()).ok_or(ParseError::Malformed)?;
        match self {
            Self::File { file, start, is_of_target, .. } => {
                let start = start.checked_add(offset).ok_or(ParseError::Malformed)?;
                Ok(Self::File { file: Arc::clone(file), start, length, is_of_target: *is_of_target })
            }
            Self::Memory(bytes) => {
                let part = usize::try_from(offset).ok().zip(usize::try_from(end).ok());
                let part = part.and_then(|(from, to)| bytes.get(from..to)).ok_or(ParseError::Malformed)?;
                Ok(Self::Memory(part.to_vec()))
            }
            Self::Reader { reader, start, .. } => {
                let start = start.checked_add(offset).ok_or(ParseError::Malformed)?;
                Ok(Self::Reader { reader: Arc::clone(reader), start, length })
            }
        }
    }

    /// The number of bytes.
    pub fn length(&self) -> u64 {
        match self {
            Self::File { length, .. } | Self::Reader { length, .. } => *length,
            Self::Memory(bytes) => bytes.len() as u64,
        }
    }

    /// Fills `buffer` with the bytes from `offset`.
    ///
    /// # Errors
    /// [`ParseError::Malformed`] when the image ends before, or the file was truncated.
    pub fn read_into(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ParseError> {
        match self {
            Self::File { file, start, length, is_of_target } => {
                let end = offset.checked_add(buffer.len() as u64);
                if end.is_none_or(|end| end > *length) {
                    return Err(ParseError::Malformed);
                }
                let at = start.checked_add(offset).ok_or(ParseError::Malformed)?;
                if *is_of_target {
                    return read_of_target(file, buffer, at);
                }
                file.read_exact_at(buffer, at).map_err(|_| ParseError::Malformed)
            }
            Self::Memory(bytes) => {
                let start = usize::try_from(offset).map_err(|_| ParseError::Malformed)?;
                let end = start.checked_add(buffer.len()).ok_or(ParseError::Malformed)?;
                buffer.copy_from_slice(bytes.get(start..end).ok_or(ParseError::Malformed)?);
                Ok(())
            }
            Self::Reader { reader, start, length } => {
                let end = offset.checked_add(buffer.len() as u64);
                if end.is_none_or(|end| end > *length) {
                    return Err(ParseError::Malformed);
                }
                reader.read_at(start.checked_add(offset).ok_or(ParseError::Malformed)?, buffer)
            }
        }
    }

    /// Reads `size` bytes at `offset`. The size is checked before memory is allocated.
    ///
    /// # Errors
    /// [`ParseError::Malformed`] when the image ends before, [`ParseError::TooLarge`] when `size` exceeds `limit`.
    pub fn read(&self, offset: u64, size: u64, limit: u64) -> Result<Vec<u8>, ParseError> {
        let mut bytes = vec![0; self.checked_size(offset, size, limit)?];
        self.read_into(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads as [`read`](Self::read) does, into shared memory.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn read_shared(&self, offset: u64, size: u64, limit: u64) -> Result<Arc<[u8]>, ParseError> {
        let size = self.checked_size(offset, size, limit)?;
        let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, size).collect();
        if let Some(buffer) = Arc::get_mut(&mut bytes) {
            self.read_into(offset, buffer)?;
        }
        Ok(bytes)
    }

    /// Reads the string at `offset`, without its terminating zero byte.
    ///
    /// # Errors
    /// [`ParseError::Malformed`] when there is no zero byte before `end`, [`ParseError::TooLarge`] when the string
    /// exceeds 64 KiB.
    pub fn read_string(&self, offset: u64, end: u64) -> Result<Vec<u8>, ParseError> {
        let end = end.min(self.length());
        let mut string = Vec::new();
        let mut position = offset;
        while position < end && position - offset < MAX_STRING_BYTES {
            let chunk = self.read(position, STRING_CHUNK_BYTES.min(end - position), STRING_CHUNK_BYTES)?;
            if let Some(length) = memchr::memchr(0, &chunk) {
                string.extend_from_slice(&chunk[..length]);
                return Ok(string);
            }
            position += chunk.len() as u64;
            string.extend_from_slice(&chunk);
        }
        Err(if position < end { ParseError::TooLarge } else { ParseError::Malformed })
    }

    fn checked_size(&self, offset: u64, size: u64, limit: u64) -> Result<usize, ParseError> {
        let end = offset.checked_add(size).ok_or(ParseError::Malformed)?;
        if end > self.length() {
            return Err(ParseError::Malformed);
        }
        if size > limit {
            return Err(ParseError::TooLarge);
        }
        usize::try_from(size).map_err(|_| ParseError::TooLarge)
    }
}

/// Reads in parts: each has a deadline, and a large read from a disk takes long.
fn read_of_target(file: &Arc<File>, buffer: &mut [u8], offset: u64) -> Result<(), ParseError> {
    const PART_BYTES: usize = 1 << 20;
    let mut read = 0;
    while let Some(rest) = buffer.get_mut(read..).filter(|rest| !rest.is_empty()) {
        let length = rest.len().min(PART_BYTES);
        match profiler_blocking::read_at(file, &mut rest[..length], offset + read as u64) {
            Ok(0) => return Err(ParseError::Malformed),
            Ok(count) => read += count,
            Err(error) if error.kind() == io::ErrorKind::TimedOut => return Err(ParseError::TimedOut),
            Err(_) => return Err(ParseError::Malformed),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_a_file(bytes: &[u8]) -> Image {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        Image::from_file(file.reopen().unwrap()).unwrap()
    }

    /// Reads from bytes that have others around them.
    #[derive(Debug)]
    struct Surrounded(Vec<u8>);

    impl ReadAt for Surrounded {
        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ParseError> {
            Image::Memory(self.0.clone()).read_into(offset, buffer)
        }
    }

    fn by_a_reader(bytes: &[u8]) -> Image {
        let surrounded = [&b"##"[..], bytes, &b"####"[..]].concat();
        Image::Reader { reader: Arc::new(Surrounded(surrounded)), start: 2, length: bytes.len() as u64 }
    }

    #[test]
    fn a_file_and_memory_read_the_same() {
        let content = b"abc\0def";
        for image in [in_a_file(content), Image::Memory(content.to_vec()), by_a_reader(content)] {
            assert_eq!(image.length(), 7);
            assert_eq!(image.read(1, 2, 10), Ok(b"bc".to_vec()));
            assert_eq!(&*image.read_shared(4, 3, 10).unwrap(), b"def");
            assert_eq!(image.read(5, 3, 10), Err(ParseError::Malformed));
            assert_eq!(image.read(u64::MAX, 2, 10), Err(ParseError::Malformed));
            assert_eq!(image.read(0, 7, 6), Err(ParseError::TooLarge));
        }
    }

    #[test]
    fn a_part_begins_and_ends_within_its_file() {
        let content = b"abcdefgh";
        for image in [in_a_file(content), Image::Memory(content.to_vec()), by_a_reader(content)] {
            let part = image.part(2, 5).unwrap();
            assert_eq!(part.length(), 5);
            assert_eq!(part.read(1, 4, 10), Ok(b"defg".to_vec()));
            assert_eq!(
                part.read_into(1, &mut [0; 5]),
                Err(ParseError::Malformed),
                "the next byte is outside of the part"
            );
            assert_eq!(part.part(1, 2).unwrap().read(0, 2, 10), Ok(b"de".to_vec()));
            for (offset, length) in [(4, 5), (9, 0), (u64::MAX, 2), (2, u64::MAX)] {
                assert!(image.part(offset, length).is_err(), "{offset} {length}");
            }
        }
    }

    #[test]
    fn a_string_ends_at_its_zero_byte_and_within_its_table() {
        let image = in_a_file(b"abc\0def");
        assert_eq!(image.read_string(1, 7), Ok(b"bc".to_vec()));
        assert_eq!(image.read_string(3, 7), Ok(Vec::new()));
        assert_eq!(image.read_string(4, 7), Err(ParseError::Malformed));
        assert_eq!(image.read_string(1, 3), Err(ParseError::Malformed));
        assert_eq!(image.read_string(9, 7), Err(ParseError::Malformed));
    }

    #[test]
    fn a_string_may_be_longer_than_a_chunk_but_not_than_the_limit() {
        let mut bytes = vec![b'x'; 1000];
        bytes.push(0);
        assert_eq!(Image::Memory(bytes).read_string(0, u64::MAX).unwrap().len(), 1000);
        let unterminated = Image::Memory(vec![b'x'; 1 << 20]);
        assert_eq!(unterminated.read_string(0, u64::MAX), Err(ParseError::TooLarge));
    }

    #[test]
    fn a_file_that_was_truncated_is_malformed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [1; 100]).unwrap();
        let image = Image::from_file(file.reopen().unwrap()).unwrap();
        file.as_file().set_len(10).unwrap();
        assert_eq!(image.read(0, 100, 100), Err(ParseError::Malformed));
    }
}
