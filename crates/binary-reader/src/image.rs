//! The bytes of a file, read piece by piece at given places: never mapped, never loaded whole.
//!
//! A mapped file that its owner truncates kills the reader with SIGBUS; a read of it only fails.

use std::{fs::File, os::unix::fs::FileExt, sync::Arc};

use crate::ParseError;

/// Names are read in pieces of this size: most fit into one.
const STRING_PIECE_BYTES: u64 = 256;

/// The longest name that is read. Compilers make longer ones, but nobody can read them.
const MAX_STRING_BYTES: u64 = 64 << 10;

/// A file, or bytes in memory that look like one.
#[derive(Debug)]
pub enum Image {
    /// An open file with the length that it had when it was opened, or a part of it.
    File { file: Arc<File>, start: u64, length: u64 },
    /// The vdso, or what was unpacked from another file.
    Memory(Vec<u8>),
}

impl Image {
    /// The image of an open file.
    pub fn of_file(file: File) -> Result<Self, ParseError> {
        let length = file.metadata().map_err(|_| ParseError::Malformed)?.len();
        Ok(Self::File { file: Arc::new(file), start: 0, length })
    }

    /// `length` bytes of it from `offset` on: a file within the file.
    pub fn part(&self, offset: u64, length: u64) -> Result<Self, ParseError> {
        let end =
            offset.checked_add(length).filter(|end| *end <= self.length()).ok_or(ParseError::Malformed)?;
        match self {
            Self::File { file, start, .. } => {
                let start = start.checked_add(offset).ok_or(ParseError::Malformed)?;
                Ok(Self::File { file: Arc::clone(file), start, length })
            }
            Self::Memory(bytes) => {
                let part = usize::try_from(offset).ok().zip(usize::try_from(end).ok());
                let part = part.and_then(|(from, to)| bytes.get(from..to)).ok_or(ParseError::Malformed)?;
                Ok(Self::Memory(part.to_vec()))
            }
        }
    }

    /// How long it is.
    pub fn length(&self) -> u64 {
        match self {
            Self::File { length, .. } => *length,
            Self::Memory(bytes) => bytes.len() as u64,
        }
    }

    /// Fills `buffer` from `offset` on, or fails where the image ends before.
    pub fn read_into(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ParseError> {
        match self {
            Self::File { file, start, length } => {
                let end = offset.checked_add(buffer.len() as u64);
                if end.is_none_or(|end| end > *length) {
                    return Err(ParseError::Malformed);
                }
                let at = start.checked_add(offset).ok_or(ParseError::Malformed)?;
                file.read_exact_at(buffer, at).map_err(|_| ParseError::Malformed)
            }
            Self::Memory(bytes) => {
                let start = usize::try_from(offset).map_err(|_| ParseError::Malformed)?;
                let end = start.checked_add(buffer.len()).ok_or(ParseError::Malformed)?;
                buffer.copy_from_slice(bytes.get(start..end).ok_or(ParseError::Malformed)?);
                Ok(())
            }
        }
    }

    /// `size` bytes at `offset`. Nothing is allocated before the image is known to be that long.
    pub fn read(&self, offset: u64, size: u64, limit: u64) -> Result<Vec<u8>, ParseError> {
        let mut bytes = vec![0; self.checked_size(offset, size, limit)?];
        self.read_into(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// As [`read`](Self::read), into memory that several readers share.
    pub fn read_shared(&self, offset: u64, size: u64, limit: u64) -> Result<Arc<[u8]>, ParseError> {
        let size = self.checked_size(offset, size, limit)?;
        let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, size).collect();
        if let Some(buffer) = Arc::get_mut(&mut bytes) {
            self.read_into(offset, buffer)?;
        }
        Ok(bytes)
    }

    /// The string at `offset` up to its zero byte, which must come before `end`.
    pub fn read_string(&self, offset: u64, end: u64) -> Result<Vec<u8>, ParseError> {
        let end = end.min(self.length());
        let mut string = Vec::new();
        let mut position = offset;
        while position < end && position - offset < MAX_STRING_BYTES {
            let piece = self.read(position, STRING_PIECE_BYTES.min(end - position), STRING_PIECE_BYTES)?;
            if let Some(length) = memchr::memchr(0, &piece) {
                string.extend_from_slice(&piece[..length]);
                return Ok(string);
            }
            position += piece.len() as u64;
            string.extend_from_slice(&piece);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn in_a_file(bytes: &[u8]) -> Image {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        Image::of_file(file.reopen().unwrap()).unwrap()
    }

    #[test]
    fn a_file_and_memory_answer_the_same() {
        for image in [in_a_file(b"abc\0def"), Image::Memory(b"abc\0def".to_vec())] {
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
        for image in [in_a_file(b"abcdefgh"), Image::Memory(b"abcdefgh".to_vec())] {
            let part = image.part(2, 5).unwrap();
            assert_eq!(part.length(), 5);
            assert_eq!(part.read(1, 4, 10), Ok(b"defg".to_vec()));
            assert_eq!(
                part.read_into(1, &mut [0; 5]),
                Err(ParseError::Malformed),
                "what follows is not its own"
            );
            assert_eq!(part.part(1, 2).unwrap().read(0, 2, 10), Ok(b"de".to_vec()));
            for (offset, length) in [(4, 5), (9, 0), (u64::MAX, 2), (2, u64::MAX)] {
                assert!(image.part(offset, length).is_err(), "{offset} {length}");
            }
        }
    }

    #[test]
    fn a_string_ends_at_its_zero_byte_and_before_its_table_does() {
        let image = in_a_file(b"abc\0def");
        assert_eq!(image.read_string(1, 7), Ok(b"bc".to_vec()));
        assert_eq!(image.read_string(3, 7), Ok(Vec::new()));
        assert_eq!(image.read_string(4, 7), Err(ParseError::Malformed));
        assert_eq!(image.read_string(1, 3), Err(ParseError::Malformed));
        assert_eq!(image.read_string(9, 7), Err(ParseError::Malformed));
    }

    #[test]
    fn a_string_may_be_longer_than_a_piece_but_not_endless() {
        let mut bytes = vec![b'x'; 1000];
        bytes.push(0);
        assert_eq!(Image::Memory(bytes).read_string(0, u64::MAX).unwrap().len(), 1000);
        let endless = Image::Memory(vec![b'x'; 1 << 20]);
        assert_eq!(endless.read_string(0, u64::MAX), Err(ParseError::TooLarge));
    }

    #[test]
    fn a_file_that_shrinks_is_malformed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [1; 100]).unwrap();
        let image = Image::of_file(file.reopen().unwrap()).unwrap();
        file.as_file().set_len(10).unwrap();
        assert_eq!(image.read(0, 100, 100), Err(ParseError::Malformed));
    }
}
